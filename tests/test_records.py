"""Private rows: what is kept, and that they neither print nor travel."""

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest

from nadpvi.encoding import make_design
from nadpvi.errors import DataError, PrivacyError
from nadpvi.records import Records, make_records
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
    x, y = np.ones((2, 3), dtype=np.float32, order="F"), np.array([0, 1])
    records = Records(x=x, y=y)
    x[:] = 5.0
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
