"""Private rows: what is kept, and that they neither print nor travel."""

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nadpvi.encoding import make_design
from nadpvi.errors import DataError, PrivacyError
from nadpvi.private.records import Records, make_records
from nadpvi.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100, "missing": "drop"},
            "job": {"kind": "categorical", "levels": ["a", "b"], "unknown": "drop"},
            "unused": {"kind": "real", "lower": 0, "upper": 1},
            "well": {"kind": "binary", "levels": ["no", "yes"], "missing": "drop"},
        }
    }
)
DESIGN = make_design(SCHEMA, outcome="well", predictors=["age", "job"])
TABLE = pd.DataFrame(
    {
        "age": [50.0, None, 25.0, 75.0, 100.0],
        "job": ["a", "a", "z", "b", "b"],
        "unused": [None, "?", np.inf, 3, "x"],
        "well": ["yes", "no", "no", None, "no"],
    }
)


def test_rows_are_dropped_on_both_sides_alike():
    records = make_records(TABLE, DESIGN)
    assert records.x.tolist() == [[1.0, 0.5, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0]]
    assert records.y.tolist() == [1.0, 0.0]


def test_nothing_of_the_rows_is_shown():
    records = make_records(TABLE, DESIGN)
    for text in (repr(records), str(records), f"{records}"):
        assert text == "Records(private)"
    assert repr(records) == repr(make_records(TABLE.head(1), DESIGN))


def test_records_do_not_travel():
    records = make_records(TABLE, DESIGN)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(PrivacyError, match="cannot be pickled"):
            pickle.dumps(records, protocol=protocol)
    for attempt in (copy.copy, copy.deepcopy):
        with pytest.raises(PrivacyError):
            attempt(records)
    with pytest.raises(TypeError):
        json.dumps(records)


def test_arrays_are_read_only_copies():
    x, y = np.ones((2, 3), dtype=np.int8, order="F"), np.array([0, 1])
    records = Records(x=x, y=y)
    x[:] = 5
    assert records.x.tolist() == [[1.0] * 3] * 2
    for array in (records.x, records.y):
        assert array.dtype == np.float64
        assert array.flags.c_contiguous
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2.0


@pytest.mark.parametrize(
    "table",
    [TABLE.head(0), TABLE.iloc[[1, 2, 3]], {"age": [], "job": [], "well": []}],
    ids=["header only", "all dropped", "empty mapping"],
)
def test_no_usable_row_is_refused(table: object):
    with pytest.raises(DataError, match="no usable row"):
        make_records(table, DESIGN)


def test_one_row_keeps_its_axes():
    records = make_records(TABLE.head(1), make_design(SCHEMA, outcome="well", predictors=()))
    assert records.x.shape == (1, 1)
    assert records.y.shape == (1,)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((2, 1)), np.zeros(3)),
        (np.zeros(2), np.zeros(2)),
        (np.full((2, 1), np.nan), np.zeros(2)),
        (np.zeros((2, 1)), np.array([0.0, np.inf])),
    ],
)
def test_inconsistent_arrays_are_refused(x: np.ndarray, y: np.ndarray):
    with pytest.raises(DataError, match=r"^records"):
        Records(x=x, y=y)


def units(starts, *, num_rows=5):
    return Records(x=np.zeros((num_rows, 1)), y=np.zeros(num_rows), unit_starts=starts)


def test_each_row_is_its_own_unit_unless_told_otherwise():
    records = make_records(TABLE, DESIGN)
    assert records.unit_starts is None
    assert records.num_units == 2
    chosen = np.array([1, 0])
    assert records.rows_of(chosen) is chosen


def test_unit_starts_are_a_read_only_copy():
    starts = np.array([0, 2, 5], dtype=np.int32)
    records = units(starts)
    starts[:] = 0
    assert records.num_units == 2
    assert records.unit_starts.tolist() == [0, 2, 5]
    assert records.unit_starts.dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        records.unit_starts[0] = 1
    assert repr(records) == "Records(private)"
    with pytest.raises(PrivacyError):
        pickle.dumps(records)


@pytest.mark.parametrize(
    "starts",
    [
        [0, 2, 4],
        [0, 2, 6],
        [1, 2, 5],
        [0, 3, 2, 5],
        [0, 2, 2, 5],
        [-1, 0, 5],
        [5],
        [],
        [[0, 5]],
        [0.0, 5.0],
        [False, True],
        5,
        np.array([0, 2**64 - 1, 5], dtype=np.uint64),
    ],
    ids=str,
)
def test_inconsistent_units_are_refused(starts: object):
    with pytest.raises(DataError, match=r"^records need unit_starts"):
        units(np.array(starts))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    picks=st.lists(st.integers(0, 10**6), max_size=20),
)
def test_rows_of_equals_a_plain_loop(sizes: list[int], picks: list[int]):
    starts = np.concatenate([[0], np.cumsum(sizes)])
    records = units(starts, num_rows=sum(sizes))
    chosen = np.array([pick % len(sizes) for pick in picks], dtype=np.int64)
    expected = [row for unit in chosen for row in range(starts[unit], starts[unit + 1])]
    rows = records.rows_of(chosen)
    assert rows.tolist() == expected
    assert rows.dtype == np.int64
