"""Whatever one cell holds, the run's path is the same: each follows its column's policy, by itself."""

import datetime
import timeit
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from nadpvi.cells import read_numbers
from nadpvi.columns import BinaryColumn, CategoricalColumn, CountColumn, OrderedColumn, RealColumn
from nadpvi.encoding import encode_counts, encode_features, make_design
from nadpvi.errors import DataError
from nadpvi.private.persons import read_ids
from nadpvi.schema import Counts, Person, Schema
from nadpvi.tables import in_parts, to_table

LEVELS = ("NA", "1", "2.5", "True")
CELLS = [
    None, np.nan, pd.NA, pd.NaT, "", " ", "NA", "nan", "inf", "-inf", "1e400", "-1e400", "1_0", "٣",
    "0x10", "1,5", "+1", "-0", -0.0, 0, 1, True, False, np.bool_(True), 10**400, -(10**400), 2**64,
    "9" * 5000, int("9" * 4000), Decimal("1e400"), Decimal("NaN"), Decimal("sNaN"), Decimal("1E-400"),
    Decimal("-Infinity"), Decimal("1.50"), Decimal("1E-99999999999"), Decimal("1E+999999"),
    Fraction(10**400, 3), Fraction(1, 3), 1j, np.longdouble(2.5), np.float16(1.5), np.float32(0.1),
    np.float32(2**24), np.int8(3), np.str_("1"), b"1", "a\nb", "\x00", "\ud800", [1, 2], (1,), {}, {1},
    object, range(3), np.array([1.0]), np.array([1.0, 2.0]), np.array(1.0), pd.Series([1]),
    np.datetime64("2020-01-01"), datetime.date(2020, 1, 1), pd.Timestamp("2020"), pd.Timedelta(1, "D"),
    np.timedelta64(1, "D"), np.timedelta64("NaT"), pd.Interval(0, 1), "NaT", "<NA>", "None",
]  # fmt: skip
NUMBER = {"name": "v", "lower": 0, "upper": 10, "missing_values": ("", "-9", "NA")}
COLUMNS = [
    *(RealColumn(unknown=u, missing=m, **NUMBER) for u in ("drop", 3) for m in ("drop", 5)),
    *(CountColumn(unknown=u, missing=m, **NUMBER) for u in ("drop", 3) for m in ("drop", 5)),
    *(
        BinaryColumn(name="v", levels=("0", "1"), unknown=u, missing=m)
        for u in ("drop", "0")
        for m in ("drop", "1")
    ),
    *(
        kind(name="v", levels=LEVELS, unknown=u, missing=m)
        for kind in (CategoricalColumn, OrderedColumn)
        for u in ("drop", "NA")
        for m in ("drop", "1")
    ),
]


def as_column(cells: list[object]) -> pd.DataFrame:
    objects = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        objects[place] = cell
    return pd.DataFrame({"v": pd.Series(objects, dtype=object)})


@pytest.mark.parametrize(
    "column", COLUMNS, ids=lambda column: f"{column.kind}-{column.unknown}-{column.missing}"
)
def test_a_cell_is_read_by_itself_and_never_ends_the_run(column):
    design = make_design(
        Schema(columns=(column, BinaryColumn(name="y", levels=("n", "y")))),
        outcome="y",
        outcome_kind="binary",
    )
    alone = [encode_features(design, as_column([cell])) for cell in CELLS]
    together = encode_features(design, as_column(CELLS))
    assert np.array_equal(together.x, np.concatenate([one.x for one in alone]))
    assert np.array_equal(together.is_complete, np.concatenate([one.is_complete for one in alone]))
    low, high = map(np.array, design.feature_bounds)
    usable = together.x[together.is_complete]
    assert len(usable) > 2
    assert ((low <= usable) & (usable <= high)).all()
    if "drop" not in (column.unknown, column.missing):
        assert together.is_complete.all()


def test_a_count_is_read_by_itself_and_never_ends_the_run():
    counts = Counts(column="v", missing="drop", unknown="drop", upper=50)
    alone = [int(encode_counts(counts, as_column([cell]))[0]) for cell in CELLS]
    assert encode_counts(counts, as_column(CELLS)).tolist() == alone
    assert set(alone) == {0, 1, 3, 50}


def test_an_id_is_text_or_refused_in_one_line():
    person = Person(column="v", missing="drop")
    ids, refused = [], 0
    for cell in CELLS:
        try:
            ids.append((cell, read_ids(as_column([cell])["v"], person)[0]))
        except DataError:
            refused += 1
    together = read_ids(as_column([cell for cell, _ in ids])["v"], person)
    assert together.tolist() == [text for _, text in ids]
    assert refused > 10
    assert {"1", "1.5", "True", "NA"} <= set(together)


def test_a_narrow_float_among_objects_tells_fewer_numbers_apart():
    person = Person(column="v")
    assert read_ids(as_column([np.float32(2**24 - 1)])["v"], person).tolist() == ["16777215"]
    for cell in (np.float32(2**24), np.float16(2**11), 2.0**53):
        with pytest.raises(DataError, match="neither text nor exact numbers"):
            read_ids(as_column([cell])["v"], person)


@pytest.mark.parametrize("ends", ["{}x", "1.{}x", "{}e", "1e{}x"])
def test_a_long_cell_costs_one_pass_over_it(ends):
    """One record must not hold the run up: where two parts of a pattern share digits, length is squared."""
    column = RealColumn(name="v", lower=0, upper=1, unknown="drop")

    def cost(length: int) -> float:
        cells = pd.Series([ends.format("1" * length)], dtype=object)
        return min(timeit.repeat(lambda: read_numbers(cells, column), number=1, repeat=7))

    assert cost(16_000) < 32 * cost(2_000)


@pytest.mark.parametrize("kind", ["int64", "uint8", "float32", "bool", "U3", "object"])
def test_a_masked_cell_is_missing_and_never_ends_the_run(kind):
    """Whether one cell is masked must not decide whether there is an error."""
    column = RealColumn(name="v", lower=0, upper=10, missing="drop", unknown="drop")
    design = make_design(Schema(columns=(column, BinaryColumn(name="y", levels=("n", "y")))), outcome="y")
    for mask in ([False, False], [False, True], [True, True]):
        table = {"v": np.ma.array(np.array([1, 0]).astype(kind), mask=mask), "y": ["n", "y"]}
        for source in (table, to_table(table)):
            found = encode_features(design, source)
            assert found.is_complete.tolist() == [not hidden for hidden in mask]
        parts = in_parts(table, part_rows=1).read(["v"])
        assert [bool(part["v"].isna().iloc[0]) for part in parts] == mask
