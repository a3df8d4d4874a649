"""Encoding: known numbers, every type of cell, declared policies, and rows that never see each other."""

import json
import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nadpvi.encoding import Design, encode_features, encode_outcome, make_design
from nadpvi.errors import ArgumentError, DataError, NadpviError, SchemaError
from nadpvi.schema import Schema
from nadpvi.tables import read_table

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "gain": {"kind": "real", "lower": 0, "upper": 99_999, "transform": "log1p"},
            "sex": {"kind": "binary", "levels": ["F", "M"]},
            "country": {"kind": "categorical", "levels": ["NA", "SE", "other"]},
            "well": {"kind": "binary", "levels": ["0", "1"]},
        }
    }
)
DESIGN = make_design(SCHEMA, outcome="well")
SECRET = "s3cret-cell"


def one_column(entry: dict, name: str = "v") -> Design:
    """Return a design of one predictor without intercept."""
    schema = Schema.from_dict({"columns": {name: entry, "well": {"kind": "binary", "levels": ["0", "1"]}}})
    return make_design(schema, outcome="well", intercept=False)


REAL = {"kind": "real", "lower": 0, "upper": 100}
LEVELS = {"kind": "categorical", "levels": ["a", "b", "c"]}


def test_labels_and_numbers():
    assert DESIGN.labels == (
        "Intercept",
        "age",
        "gain",
        "sex[M]",
        "country[NA]",
        "country[SE]",
        "country[other]",
    )
    assert DESIGN.num_features == 7
    assert DESIGN.feature_norm_bound == math.sqrt(5)
    table = {
        "age": [25, 400],
        "gain": [999, -5],
        "sex": ["M", "F"],
        "country": ["NA", "other"],
        "well": [1, 0],
    }
    x, is_complete = encode_features(DESIGN, table)
    np.testing.assert_allclose(x, [[1, 0.25, 0.6, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 1]], rtol=0, atol=1e-15)
    assert x.dtype == np.float64
    assert x.flags.c_contiguous
    assert is_complete.tolist() == [True, True]
    assert encode_outcome(DESIGN, table)[0].tolist() == [1.0, 0.0]


def test_norm_bound_is_reached_and_never_passed():
    table = {"age": [100, 37], "gain": [1e9, 12], "sex": ["M", "M"], "country": ["SE", "NA"]}
    norms = np.linalg.norm(encode_features(DESIGN, table).x, axis=1)
    assert norms[0] == pytest.approx(DESIGN.feature_norm_bound, rel=1e-15)
    assert norms.max() <= DESIGN.feature_norm_bound


def test_chosen_predictors_keep_their_order():
    design = make_design(SCHEMA, outcome="well", predictors=["sex", "age"], intercept=False)
    assert design.labels == ("sex[M]", "age")
    assert design.schema.names == ("sex", "age", "well")
    assert encode_features(design, {"age": [50], "sex": ["M"]}).x.tolist() == [[1.0, 0.5]]


def test_design_travels_as_json():
    design = make_design(SCHEMA, outcome="well", predictors=["country", "gain"])
    back = Design.from_dict(json.loads(json.dumps(design.to_dict(), sort_keys=True)))
    assert back == design
    assert back.labels == design.labels
    with pytest.raises(SchemaError, match="exactly"):
        Design.from_dict({**design.to_dict(), "extra": 1})


@pytest.mark.parametrize(
    "name", ["Sprout Length", "class", "1B", "%male", "a/b", "größe", "chain", "draw", "y", "C"]
)
def test_awkward_names_are_labels_unchanged(name: str):
    design = one_column(REAL, name)
    assert design.labels == (name,)
    assert encode_features(design, {name: ["50"]}).x.tolist() == [[0.5]]


@pytest.mark.parametrize(
    ("arguments", "error", "rule"),
    [
        ({"outcome": "wages"}, ArgumentError, 'outcome "wages" is not in the schema; it knows "age"'),
        (
            {"outcome": "well", "predictors": ["wages"]},
            ArgumentError,
            'predictor "wages" is not in the schema',
        ),
        ({"outcome": "well", "predictors": "age"}, ArgumentError, "list of column names"),
        ({"outcome": "well", "predictors": [3]}, ArgumentError, "list of column names"),
        ({"outcome": "well", "predictors": ["age", "age"]}, ArgumentError, '"age" is named twice'),
        ({"outcome": "well", "predictors": ["well"]}, ArgumentError, '"well" is named twice'),
        ({"outcome": "age"}, SchemaError, 'outcome "age" must be a binary column'),
        ({"outcome": "well", "predictors": [], "intercept": False}, SchemaError, "it has neither"),
        ({"outcome": "well", "intercept": 1}, ArgumentError, "True or False"),
        ({"outcome": "well", "predictors": ["open('x').read()"]}, ArgumentError, "is not in the schema"),
    ],
)
def test_wrong_design_is_one_line(arguments: dict, error: type[Exception], rule: str):
    with pytest.raises(error) as caught:
        make_design(SCHEMA, **arguments)
    assert rule in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_two_coefficients_never_share_a_label():
    columns = {"Intercept": REAL, "sex[M]": REAL, "sex": {"kind": "binary", "levels": ["F", "M"]}}
    schema = Schema.from_dict({"columns": {**columns, "well": {"kind": "binary", "levels": ["0", "1"]}}})
    with pytest.raises(SchemaError, match=r'called "Intercept"; rename a column or leave the intercept out'):
        make_design(schema, outcome="well", predictors=["Intercept"])
    assert make_design(schema, outcome="well", predictors=["Intercept"], intercept=False).labels == (
        "Intercept",
    )
    with pytest.raises(SchemaError, match=r'called "sex\[M\]"'):
        make_design(schema, outcome="well", predictors=["sex", "sex[M]"])


# Cases E2: one answer for every type that holds the same numbers.
NUMBERS = [0.0, 25.0, 3.0, 100.0]


def read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


NUMBER_COLUMNS = {
    "lists": NUMBERS,
    "int64": np.array(NUMBERS, dtype=np.int64),
    "uint8": np.array(NUMBERS, dtype=np.uint8),
    "float16": np.array(NUMBERS, dtype=np.float16),
    "float32": np.array(NUMBERS, dtype=np.float32),
    "longdouble": np.array(NUMBERS, dtype=np.longdouble),
    "big-endian": np.array(NUMBERS, dtype=">f8"),
    "read-only": read_only(np.array(NUMBERS)),
    "strided": np.repeat(NUMBERS, 2)[::2],
    "Int64": pd.array([0, 25, 3, 100], dtype="Int64"),
    "UInt8": pd.array([0, 25, 3, 100], dtype="UInt8"),
    "Float32": pd.array(NUMBERS, dtype="Float32"),
    "text": ["0", " 25", "3.0 ", "+1e2"],
    "str dtype": pd.array(["0", " 25", "3.0 ", "+1e2"], dtype="string"),
    "categorical text": pd.Categorical(["0", "25", "3", "100"]),
    "categorical numbers": pd.Categorical(NUMBERS),
    "decimal": [Decimal("0"), Decimal("25"), Decimal("3.00"), Decimal("100")],
    "mixed": [False, "25", np.int8(3), Decimal("1e2")],
    "sparse": pd.arrays.SparseArray(NUMBERS),
    "shuffled index": pd.Series(NUMBERS, index=[3, 1, 0, 2]),
}


@pytest.mark.parametrize("values", NUMBER_COLUMNS.values(), ids=NUMBER_COLUMNS.keys())
def test_number_types_agree(values: object):
    frame = pd.DataFrame({"v": values})
    before = frame.copy(deep=True)
    for table in (frame, {"v": values}):
        encoded = encode_features(one_column(REAL), table)
        np.testing.assert_allclose(encoded.x[:, 0], [0.0, 0.25, 0.03, 1.0], rtol=0, atol=1e-15)
        assert encoded.is_complete.all()
    pd.testing.assert_frame_equal(frame, before)


def test_memory_mapped_columns(tmp_path: Path):
    np.save(tmp_path / "v.npy", np.array(NUMBERS))
    column = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert encode_features(one_column(REAL), {"v": column}).x[:, 0].tolist() == [0.0, 0.25, 0.03, 1.0]


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        pd.array([True, False], dtype="boolean"),
        ["1", "0"],
        [1, 0],
        [1.0, -0.0],
        np.array([1, 0], dtype=np.uint8),
        [Decimal("1.00"), Decimal("0")],
        pd.Categorical(["1", "0"], categories=["0", "1", "never"]),
        pd.Categorical([1, 0]),
        np.array([True, False], dtype=object),
    ],
)
def test_level_types_agree(values: object):
    y, has_outcome = encode_outcome(DESIGN, {"well": values})
    assert y.tolist() == [1.0, 0.0]
    assert has_outcome.all()


def test_spelling_of_a_number_does_not_depend_on_its_type():
    design = one_column({"kind": "categorical", "levels": ["1", "1.0", "True", "0.5"]})
    cells = [1, 1.0, np.uint8(1), Decimal("1.00"), "1", "1.0", True, 0.5, Decimal("0.50"), np.float32(0.5)]
    expected = [0, 0, 0, 0, 0, 1, 2, 3, 3, 3]
    assert encode_features(design, {"v": cells}).x.argmax(axis=1).tolist() == expected
    pointed = one_column({"kind": "categorical", "levels": ["1.0", "2.0"]})
    assert encode_features(pointed, {"v": [1, 2.0, "1.0"]}).x.argmax(axis=1).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "values",
    [
        pd.to_datetime(["2020-01-01"]),
        pd.to_timedelta(["1 day"]),
        pd.period_range("2020", periods=1, freq="Y"),
        pd.arrays.IntervalArray.from_tuples([(0, 1)]),
        np.array([1j]),
        pd.arrays.SparseArray([77123j], fill_value=77123j),
    ],
)
@pytest.mark.parametrize("entry", [REAL, LEVELS], ids=["real", "levels"])
@pytest.mark.parametrize("on_problem", ["refuse", "incomplete"])
def test_unsupported_types_are_named(values: object, entry: dict, on_problem: str):
    with pytest.raises(DataError, match=r'^column "v" holds .* cells') as caught:
        encode_features(one_column(entry), pd.DataFrame({"v": values}), on_problem=on_problem)
    assert len(str(caught.value).splitlines()) == 1
    assert "77123" not in str(caught.value)


# Refusals: a planted cell among good ones, and what the one line must hold.
REFUSED = {
    "NaN": (REAL, [1.0, np.nan], "missing values"),
    "None": (REAL, [1.0, None], "missing values"),
    "NA": (REAL, pd.array([1, None], dtype="Int64"), "missing values"),
    "NaT": (REAL, np.array([1, pd.NaT], dtype=object), "missing values"),
    "blank number": (REAL, ["1", "  "], "missing values"),
    "text for a number": (REAL, ["1", SECRET], "not a number"),
    "decimal comma": (REAL, ["1", "77,123"], "not a number"),
    "underscores": (REAL, ["1", "77_123"], "not a number"),
    "hexadecimal": (REAL, ["1", "0x77123"], "not a number"),
    "digits of another script": (REAL, ["1", "\u0667\u0667"], "not a number"),
    "NaN as text": (REAL, ["1", "NaN"], "not a number"),
    "bytes": (REAL, [1, SECRET.encode()], "not a number"),
    "list cell": (REAL, np.array([1, [77123]], dtype=object), "not a number"),
    "unknown level": (LEVELS, ["a", SECRET], "a level that the schema does not list"),
    "level in other case": (LEVELS, ["a", "B"], "a level that the schema does not list"),
    "level with a blank": (LEVELS, ["a", "b "], "blanks around the text are in the way"),
    "missing level": (LEVELS, ["a", None], "missing values"),
    "empty level": (LEVELS, ["a", ""], "missing values"),
    "bytes level": (LEVELS, ["a", b"b"], "a level that the schema does not list"),
    "huge integer level": (LEVELS, ["a", 77123**5000], "a level that the schema does not list"),
    "infinite level": (LEVELS, ["a", math.inf], "a level that the schema does not list"),
    "unknown binary level": (
        {"kind": "binary", "levels": ["a", "b"]},
        ["b", SECRET],
        "a level that the schema",
    ),
    "level called as the policy": ({**LEVELS, "levels": ["a", "refuse"]}, ["a", SECRET], "a level that the"),
}


@pytest.mark.parametrize(("entry", "cells", "rule"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_cell_is_refused_by_column_alone(entry: dict, cells: object, rule: str):
    design = one_column(entry)
    table = {"v": cells}
    with pytest.raises(DataError) as caught:
        encode_features(design, table)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert 'column "v"' in message
    assert rule in message
    for leak in (SECRET, "77", "NaN", "row", "1 "):
        assert leak not in message
    encoded = encode_features(design, table, on_problem="incomplete")
    assert encoded.is_complete.tolist() == [True, False]
    assert encoded.x[0].any()
    assert not encoded.x[1].any()


def test_the_message_does_not_depend_on_how_many_cells_are_bad():
    messages = set()
    for count in (1, 7):
        with pytest.raises(DataError) as caught:
            encode_features(one_column(REAL), {"v": [1.0] * 3 + [np.nan] * count})
        messages.add(str(caught.value))
    assert len(messages) == 1


@pytest.mark.parametrize(
    ("cell", "scaled"),
    [
        (np.inf, 1.0),
        (-np.inf, 0.0),
        ("inf", 1.0),
        ("-Infinity", 0.0),
        ("1e400", 1.0),
        (10**400, 1.0),
        (-(10**400), 0.0),
    ],
    ids=["inf", "-inf", "text", "long text", "overflowing text", "huge", "-huge"],
)
def test_infinite_numbers_are_clamped(cell: object, scaled: float):
    assert encode_features(one_column(REAL), {"v": np.array([cell], dtype=object)}).x.tolist() == [[scaled]]


def test_declared_missing_values():
    design = one_column({**REAL, "missing": "drop", "missing_values": ["", "?", "-9"]})
    for cells in (["?", "-9", " -9.0 ", "", "9"], np.array([np.nan, -9, -9.0, None, 9], dtype=object)):
        encoded = encode_features(design, {"v": cells})
        assert encoded.is_complete.tolist() == [False, False, False, False, True]
        assert encoded.x[:, 0].tolist() == [0.0, 0.0, 0.0, 0.0, 0.09]
    assert encode_features(design, {"v": np.array([-9, 9])}).is_complete.tolist() == [False, True]


def test_a_declared_level_wins_over_missing():
    design = one_column(
        {"kind": "categorical", "levels": ["NA", "SE"], "missing": "drop", "missing_values": ["NA", "?"]}
    )
    encoded = encode_features(design, {"v": ["NA", "?", "SE", None]})
    assert encoded.is_complete.tolist() == [True, False, True, False]
    assert encoded.x.tolist() == [[1, 0], [0, 0], [0, 1], [0, 0]]


def test_policies_for_unknown_levels():
    cells = {"v": ["a", "z", "c", None]}
    drop = encode_features(one_column({**LEVELS, "unknown": "drop", "missing": "drop"}), cells)
    assert drop.is_complete.tolist() == [True, False, True, False]
    other = encode_features(one_column({**LEVELS, "unknown": "b", "missing": "drop"}), cells)
    assert other.is_complete.tolist() == [True, True, True, False]
    assert other.x.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_one_incomplete_column_empties_the_row():
    table = {"age": [1, None], "gain": [1, 1], "sex": ["M", "M"], "country": ["SE", "SE"]}
    encoded = encode_features(DESIGN, table, on_problem="incomplete")
    assert encoded.is_complete.tolist() == [True, False]
    assert not encoded.x[1].any()


def test_outcome_is_held_to_the_same_rules():
    with pytest.raises(DataError, match='column "well" has missing values'):
        encode_outcome(DESIGN, {"well": ["1", None]})
    y, has_outcome = encode_outcome(DESIGN, {"well": ["1", "2", ""]}, on_problem="incomplete")
    assert y.tolist() == [1.0, 0.0, 0.0]
    assert has_outcome.tolist() == [True, False, False]


def test_only_used_columns_are_looked_at():
    table = {"age": [50], "gain": [SECRET], "sex": [None], "country": [np.nan], "well": ["?"], "more": [b"x"]}
    design = make_design(SCHEMA, outcome="well", predictors=["age"])
    assert encode_features(design, table).x.tolist() == [[1.0, 0.5]]


def test_unknown_choice_of_problem_is_refused():
    for encode in (encode_features, encode_outcome):
        with pytest.raises(ArgumentError, match="on_problem"):
            encode(DESIGN, {"age": [1]}, on_problem="ignore")


@pytest.mark.parametrize(
    "cells", [["b"], ["b", "b"], ["c", "b", "a"], pd.Categorical(["b"], categories=["b", "a"])]
)
def test_columns_do_not_depend_on_the_levels_present(cells: object):
    encoded = encode_features(one_column(LEVELS), {"v": cells})
    assert encoded.x.shape[1] == 3
    assert encoded.x.argmax(axis=1).tolist() == ["abc".index(cell) for cell in cells]


def test_tiny_tables_keep_their_axes():
    intercept_only = make_design(SCHEMA, outcome="well", predictors=())
    assert encode_features(intercept_only, {"age": [1]}).x.tolist() == [[1.0]]
    empty = encode_features(DESIGN, pd.DataFrame(columns=["age", "gain", "sex", "country", "well"]))
    assert empty.x.shape == (0, 7)
    assert encode_outcome(DESIGN, {"well": []})[0].shape == (0,)


def test_csv_parquet_and_frame_give_one_design_matrix(tmp_path: Path):
    frame = pd.DataFrame(
        {
            "age": np.array([39, 17, 90], dtype=np.uint8),
            "gain": [0.5, 2174.25, 1e7],
            "sex": pd.Categorical(["M", "F", "M"]),
            "country": ["NA", "SE", "other"],
            "well": [True, False, True],
        }
    )
    expected = encode_features(DESIGN, frame).x
    outcome = encode_outcome(DESIGN, frame)[0]
    csv = tmp_path / "table.csv"
    frame.assign(well=frame["well"].astype(int)).to_csv(csv, index=False)
    np.testing.assert_array_equal(encode_features(DESIGN, csv).x, expected)
    np.testing.assert_array_equal(encode_features(DESIGN, read_table(str(csv))).x, expected)
    np.testing.assert_array_equal(encode_outcome(DESIGN, csv)[0], outcome)
    pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
    parquet = tmp_path / "table.parquet"
    frame.to_parquet(parquet)
    np.testing.assert_array_equal(encode_features(DESIGN, parquet).x, expected)
    np.testing.assert_array_equal(encode_outcome(DESIGN, parquet)[0], outcome)


def test_parquet_types(tmp_path: Path):
    pa = pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="the parquet extra is not installed")
    types = [
        pa.uint8(),
        pa.int64(),
        pa.float16(),
        pa.decimal128(5, 2),
        pa.string(),
        pa.dictionary(pa.int8(), pa.string()),
    ]
    design = one_column({**REAL, "missing": "drop"})
    coded = one_column({"kind": "categorical", "levels": ["25", "3"], "missing": "drop"})
    for kind in types:
        text = pa.types.is_string(kind) or pa.types.is_dictionary(kind)
        cells = ["25", None, "3"] if text else [25, None, 3]
        cells = (
            [None if cell is None else np.float16(cell) for cell in cells] if kind == pa.float16() else cells
        )
        parquet.write_table(pa.table({"v": pa.array(cells, type=kind)}), tmp_path / "t.parquet")
        for which, expected in ((design, [[0.25], [0.0], [0.03]]), (coded, [[1, 0], [0, 0], [0, 1]])):
            encoded = encode_features(which, tmp_path / "t.parquet")
            np.testing.assert_allclose(encoded.x, expected, rtol=0, atol=1e-15)
            assert encoded.is_complete.tolist() == [True, False, True]


@pytest.mark.parametrize(("delimiter", "called"), [(";", "semicolon"), ("\t", "tab")])
def test_wrong_delimiter_is_suggested(tmp_path: Path, delimiter: str, called: str):
    path = tmp_path / "table.csv"
    path.write_text(delimiter.join(["well", "age", SECRET]) + "\n" + delimiter.join("123") + "\n")
    with pytest.raises(NadpviError, match=f"the delimiter is a {called}") as caught:
        encode_features(make_design(SCHEMA, outcome="well", predictors=["age"]), path)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "first", [f"{SECRET},well", f"age,{SECRET}", f"{SECRET},{SECRET}", f"{SECRET},", f"{SECRET};age", SECRET]
)
@pytest.mark.parametrize("on_problem", ["refuse", "incomplete"])
def test_a_first_record_in_place_of_the_header_is_not_quoted(tmp_path: Path, first: str, on_problem: str):
    path = tmp_path / "table.csv"
    path.write_text(f"{first}\n{first}\n")
    for encode in (encode_features, encode_outcome):
        design = make_design(SCHEMA, outcome="well", predictors=["country", "sex"])
        if encode is encode_outcome and first.endswith("well"):
            continue
        with pytest.raises(NadpviError) as caught:
            encode(design, path, on_problem=on_problem)
        assert SECRET not in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1


def test_a_header_without_the_outcome_shows_the_known_names():
    design = make_design(SCHEMA, outcome="well", predictors=["age", "sex"])
    with pytest.raises(DataError, match='no column "well"; among its 3 columns are "age", "sex"') as caught:
        encode_outcome(design, {"age": [1], "sex": ["F"], SECRET: [0]})
    assert SECRET not in str(caught.value)


# A row's encoding is a function of that row: cells of every type mixed in one column, good and bad.
NUMBER_CELL = st.one_of(
    st.floats(),
    st.integers(),
    st.booleans(),
    st.none(),
    st.decimals(allow_nan=False),
    st.sampled_from(["1", " 2 ", "", "?", "1e400", "x", "-1", str(2**63), "nan", 2**63, -1, 2**53 + 1]),
)
LEVEL_CELL = st.one_of(
    st.sampled_from(
        ["NA", "SE", "1", "1.0", "True", "z", "", " SE", 1, 1.0, True, Decimal("1.0"), None, np.nan, pd.NA]
    ),
    st.integers(-2, 2),
    st.text(max_size=3),
)
MIXED = Schema.from_dict(
    {
        "columns": {
            "number": {
                "kind": "real",
                "lower": -5,
                "upper": 50,
                "missing": "drop",
                "missing_values": ["", "?", "-1"],
            },
            "level": {"kind": "categorical", "levels": ["NA", "SE", "1", "1.0", "True"], "unknown": "drop"},
            "pooled": {"kind": "categorical", "levels": ["NA", "SE"], "unknown": "SE", "missing": "drop"},
            "well": {"kind": "binary", "levels": ["0", "1"]},
        }
    }
)
MIXED_DESIGN = make_design(MIXED, outcome="well")
ROW = st.tuples(NUMBER_CELL, LEVEL_CELL, LEVEL_CELL)


def encode_rows(rows: list[tuple]) -> tuple[np.ndarray, np.ndarray]:
    """Return the encoding of rows, each column as pandas itself would type it from its cells."""
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("number", "level", "pooled"))}
    typed = encode_features(MIXED_DESIGN, pd.DataFrame(columns), on_problem="incomplete")
    untyped = encode_features(MIXED_DESIGN, columns, on_problem="incomplete")
    np.testing.assert_array_equal(typed.x, untyped.x)
    np.testing.assert_array_equal(typed.is_complete, untyped.is_complete)
    return typed


@settings(max_examples=150, deadline=None, derandomize=True)
@given(rows=st.lists(ROW, min_size=1, max_size=8), cut=st.integers(0, 8), data=st.data())
def test_a_row_never_depends_on_other_rows(rows: list[tuple], cut: int, data: st.DataObject):
    x, is_complete = encode_rows(rows)
    halves = [encode_rows(half) for half in (rows[:cut], rows[cut:])]
    singles = [encode_rows([row]) for row in rows]
    for parts in (halves, singles):
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), x)
        np.testing.assert_array_equal(np.concatenate([part[1] for part in parts]), is_complete)
    order = data.draw(st.permutations(range(len(rows))))
    shuffled = encode_rows([rows[i] for i in order])
    np.testing.assert_array_equal(shuffled[0], x[list(order)])
    np.testing.assert_array_equal(shuffled[1], is_complete[list(order)])
    assert ((x >= 0.0) & (x <= 1.0)).all()
    assert (np.linalg.norm(x, axis=1) <= MIXED_DESIGN.feature_norm_bound).all()
    assert not x[~is_complete].any()


@pytest.mark.parametrize("kind", ["real", "categorical", "binary"])
def test_a_signalling_nan_is_a_cell_like_any_other_bad_one(kind):
    """Arithmetic with Decimal("sNaN") raises; a row that holds it must not end the run."""
    settings = {
        "real": {"lower": 0, "upper": 10, "missing": "drop"},
        "categorical": {"levels": ["a", "b"], "missing": "drop", "unknown": "drop"},
        "binary": {"levels": ["a", "b"], "missing": "drop", "unknown": "drop"},
    }[kind]
    schema = Schema.from_dict(
        {"columns": {"x": {"kind": kind, **settings}, "y": {"kind": "binary", "levels": ["no", "yes"]}}}
    )
    design = make_design(schema, outcome="y", predictors=["x"], intercept=True)
    good = Decimal("3") if kind == "real" else "a"
    table = pd.DataFrame({"x": pd.Series([Decimal("sNaN"), good], dtype=object), "y": ["no", "yes"]})
    encoded = encode_features(design, table, on_problem="incomplete")
    assert encoded.is_complete.tolist() == [False, True]
