"""Ids of a person column: which are one, which are none, and that they are never told."""

import csv
import math
import pickle
import uuid
from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from person_tables import CANARY, DESIGN, SCHEMA, encode, groups_of, kept_rows, table_of

from nadpvi.encoding import make_design
from nadpvi.errors import ArgumentError, DataError, NadpviError, PrivacyError
from nadpvi.private.persons import read_ids
from nadpvi.private.records import Records, make_records
from nadpvi.schema import Person
from nadpvi.tables import read_table

pa = pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the parquet extra is not installed")

SAME_GROUPS = {
    "text": pd.Series(["7", "12", "7", "-3", "12"], dtype=str),
    "object text": pd.Series(["7", "12", "7", "-3", "12"], dtype=object),
    "int8": pd.Series([7, 12, 7, -3, 12], dtype="int8"),
    "int64": pd.Series([7, 12, 7, -3, 12]),
    "float64": pd.Series([7.0, 12.0, 7.0, -3.0, 12.0]),
    "float16": pd.Series([7.0, 12.0, 7.0, -3.0, 12.0], dtype="float16"),
    "Int64": pd.Series([7, 12, 7, -3, 12], dtype="Int64"),
    "Float64": pd.Series([7, 12, 7, -3, 12], dtype="Float64"),
    "string": pd.Series(["7", "12", "7", "-3", "12"], dtype="string[python]"),
    "category of text": pd.Series(["7", "12", "7", "-3", "12"], dtype="category"),
    "category of numbers": pd.Series([7, 12, 7, -3, 12], dtype="category"),
    "sparse": pd.Series([7, 12, 7, -3, 12], dtype="Sparse[int64]"),
    "arrow int": pd.Series([7, 12, 7, -3, 12], dtype="int16[pyarrow]"),
    "arrow float": pd.Series([7, 12, 7, -3, 12], dtype="float[pyarrow]"),
    "arrow text": pd.Series(["7", "12", "7", "-3", "12"], dtype=pd.ArrowDtype(pa.large_string())),
    "arrow decimal": pd.Series(
        [Decimal(n) for n in (7, 12, 7, -3, 12)], dtype=pd.ArrowDtype(pa.decimal128(9, 2))
    ),
    "arrow dictionary": pd.Series(
        pd.arrays.ArrowExtensionArray(pa.array(["7", "12", "7", "-3", "12"]).dictionary_encode())
    ),
    "mixed": pd.Series(["7", 12, 7.0, Decimal("-3.00"), np.uint8(12)], dtype=object),
}


@pytest.mark.parametrize("ids", SAME_GROUPS.values(), ids=SAME_GROUPS.keys())
def test_one_id_whatever_its_type(ids: pd.Series):
    records = encode(table_of(ids), max_rows=1, seed=5)
    assert groups_of(ids) == [[0, 2], [1, 4], [3]]
    # Chance is spent alike, so the same rows are kept too.
    assert kept_rows(records) == kept_rows(encode(table_of(SAME_GROUPS["text"]), max_rows=1, seed=5))


def test_ids_are_compared_exactly():
    nul, accent, escape = ["a\0b", "a\0c"], ["\u00e9", "e\u0301"], ["\ud800", repr("\ud800")]
    ids = ["1", "01", "1.0", " 1", "1 ", "a", "A", "NA", "nan", "None", "True", *nul, *accent, *escape]
    assert groups_of(ids) == [[row] for row in range(len(ids))]
    assert groups_of([1, True, "1", "True", 0.5, "0.5", Decimal("0.50")]) == [[0, 2], [1, 3], [4, 5, 6]]
    large = [2**63, 2**63 + 1, 2**53, 2**53 + 1, str(2**53)]
    assert groups_of(large) == [[0], [1], [2, 4], [3]]


NO_ID = {
    "None": None,
    "NaN": float("nan"),
    "NaN of numpy": np.float32("nan"),
    "NA": pd.NA,
    "NaT": pd.NaT,
    "decimal NaN": Decimal("NaN"),
    "empty": "",
    "blank": " \t",
    "listed text": "unknown",
    "listed number as text": "-9",
    "listed number": -9,
    "listed number as float": -9.0,
}


@pytest.mark.parametrize("cell", NO_ID.values(), ids=NO_ID.keys())
def test_rows_without_an_id_follow_the_policy(cell: object):
    ids = ["a", cell, "b", cell, "a"]
    listed = ("unknown", "-9")
    assert groups_of(ids, missing="drop", missing_values=listed) == [[0, 4], [2]]
    with pytest.raises(DataError, match=r'^person column "id" has rows without an id.*\[person\]$'):
        groups_of(ids, missing_values=listed)


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series([1.0, np.nan, 1.0]),
        pd.Series([1, None, 1], dtype="Int64"),
        pd.Series(["1", None, "1"], dtype="string"),
        pd.Series(["1", None, "1"], dtype="category"),
        pd.Series([1, None, 1], dtype="int64[pyarrow]"),
        pd.Series(pd.arrays.ArrowExtensionArray(pa.array([1.0, float("nan"), 1.0]))),
        pd.Series(["1", None, "1"], dtype=pd.ArrowDtype(pa.string())),
    ],
    ids=lambda ids: str(ids.dtype),
)
def test_missing_ids_of_every_type(ids: pd.Series):
    assert groups_of(ids, missing="drop") == [[0, 2]]
    with pytest.raises(DataError, match="rows without an id"):
        groups_of(ids)


UNUSABLE = {
    "list": [CANARY],
    "bytes": CANARY.encode(),
    "date": date(1987, 6, 5),
    "timestamp": pd.Timestamp("1987-06-05"),
    "uuid": uuid.UUID(int=7),
    "complex": 1j,
    "infinite": math.inf,
    "float that cannot tell persons apart": 2.0**53,
    "huge whole number": 10**5000,
    "huge decimal": Decimal("1e5000"),
}


@pytest.mark.parametrize("cell", UNUSABLE.values(), ids=UNUSABLE.keys())
@pytest.mark.parametrize("missing", ["refuse", "drop"])
def test_ids_that_cannot_be_compared_are_refused(cell: object, missing: str):
    with pytest.raises(DataError) as caught:
        groups_of(["a", cell, "b"], missing=missing)
    assert str(caught.value) == (
        'person column "id" holds ids that are neither text nor exact numbers; write them as text'
    )


@pytest.mark.parametrize(
    ("dtype", "size"), [("float16", 2**11), ("float32", 2**24), ("float[pyarrow]", 2**24)]
)
def test_small_floats_tell_fewer_persons_apart(dtype: str, size: int):
    assert groups_of(pd.Series([size - 1, size - 2], dtype=dtype)) == [[0], [1]]
    with pytest.raises(DataError, match="neither text nor exact numbers"):
        groups_of(pd.Series([size, 1], dtype=dtype))


@pytest.mark.parametrize(
    "ids",
    [
        ["a", "b", "a", "NA", "b"],
        [5, 7, 5, 11, 7],
        [5, None, 5, 11, None],
        [0.5, 0.25, 0.5, 3.0, 0.25],
        [True, False, True, True, False],
    ],
    ids=str,
)
def test_csv_and_parquet_give_the_same_records(tmp_path: Path, ids: list):
    columns = {"row": list(range(5)), "y": ["no", "yes", "no", "yes", "no"], "id": ids}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with (tmp_path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    for seed in range(5):
        sources = [tmp_path / "t.parquet", tmp_path / "t.csv", columns]
        one, two, three = (encode(source, seed=seed, missing="drop") for source in sources)
        assert kept_rows(one) == kept_rows(two) == kept_rows(three)
        assert one.y.tolist() == two.y.tolist() == three.y.tolist()


# --- What is refused, and what is never said ---


def test_bad_arguments_are_refused_before_the_table_is_opened():
    person, absent = Person(column="id"), Path("absent.csv")
    with pytest.raises(ArgumentError, match="rng must be a numpy Generator"):
        make_records(absent, DESIGN, person=person)
    with pytest.raises(ArgumentError, match="rng must be a numpy Generator"):
        make_records(absent, DESIGN, person=person, rng=np.random.RandomState(1))
    with pytest.raises(ArgumentError, match="person must be a Person"):
        make_records(absent, DESIGN, person="id", rng=np.random.default_rng(1))
    for column in ("row", "y"):
        with pytest.raises(ArgumentError, match=f'"{column}" is the outcome or a predictor'):
            make_records(absent, DESIGN, person=Person(column=column), rng=np.random.default_rng(1))


def test_an_absent_person_column_is_named_like_any_other(tmp_path: Path):
    table = table_of(["a"]).rename(columns={"id": "ID"})
    with pytest.raises(DataError, match=r'no column "id"; among its 3 columns are "row", "y"'):
        encode(table)
    path = tmp_path / "t.csv"
    path.write_text("row;y;id\n1;yes;a\n")
    with pytest.raises(DataError, match="the delimiter is a semicolon"):
        encode(path)


def test_a_person_column_can_be_neither_outcome_nor_predictor():
    for roles in ({"outcome": "id"}, {"outcome": "y", "predictors": ["id"]}):
        with pytest.raises(ArgumentError, match='"id" is not in the schema'):
            make_design(SCHEMA, **roles)
    assert make_design(SCHEMA, outcome="y", intercept=False).labels == ("row",)


BROKEN = {
    "no id": lambda table: table.assign(id=[CANARY, None, CANARY]),
    "unusable id": lambda table: table.assign(id=[CANARY, [CANARY], 3]),
    "no id column": lambda table: table.rename(columns={"id": CANARY}),
    "feature that is no number": lambda table: table.assign(row=CANARY),
    "unknown outcome": lambda table: table.assign(y=CANARY),
    "no usable row": lambda table: table.assign(row=None),
    "two id columns": lambda table: table.assign(other=1).set_axis(["row", "y", "id", "id"], axis=1),
}


@pytest.mark.parametrize("spoil", BROKEN.values(), ids=BROKEN.keys())
def test_no_message_holds_an_id(spoil):
    with pytest.raises(NadpviError) as caught:
        encode(spoil(table_of([CANARY, "other", CANARY])))
    error: BaseException | None = caught.value
    while error is not None:
        assert CANARY not in str(error) + repr(error)
        error = error.__cause__ or error.__context__


def test_ids_are_not_kept():
    records = encode(table_of([CANARY, "other", CANARY]), max_rows=2)
    held = [array for name in Records.__slots__ if (array := getattr(records, name)) is not None]
    assert {array.dtype.kind for array in held} == {"f", "i"}
    assert repr(records) == "Records(private)"
    with pytest.raises(PrivacyError, match="cannot be pickled") as caught:
        pickle.dumps(records)
    assert CANARY not in str(caught.value)


def test_a_code_for_no_id_is_one_as_files_write_it_in_a_column_of_floats(tmp_path: Path):
    """Or else all rows without an id would be one person's in a CSV file, and nobody's in a Parquet file."""
    person = Person(column="who", missing="drop", missing_values=("-9", "0"))
    ids = pd.Series([-9.0, 7.0, -9.0, 0.0, 7.5, -19.0])
    frame = pd.DataFrame({"who": ids})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    expected = ["", "7", "", "", "7.5", "-19"]
    assert read_ids(read_table(tmp_path / "t.parquet")["who"], person).tolist() == expected
    written = read_ids(read_table(tmp_path / "t.csv")["who"], person).tolist()
    assert written == ["", "7.0", "", "", "7.5", "-19.0"]
