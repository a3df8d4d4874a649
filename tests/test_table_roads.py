"""One table, handed over in every way there is, gives one design matrix: CSV, Parquet, pandas and Arrow."""

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nadpvi.config import DPVIConfig
from nadpvi.encoding import encode_features, make_design
from nadpvi.errors import DataError, NadpviError
from nadpvi.models import LogisticRegression
from nadpvi.privacy.budget import NonPrivate
from nadpvi.private.curator import release
from nadpvi.private.records import make_records
from nadpvi.schema import Schema
from nadpvi.tables import in_parts, to_table

pa = pyarrow = pytest.importorskip("pyarrow")  # not in the smoke environment
pytest.importorskip("pyarrow.csv")
pytest.importorskip("pyarrow.parquet")

LEVELS = ["NA", "1", "2.5", "True", "a,b", " x", "0", "False", 'q"r']
NUMBER = {"kind": "real", "lower": -10, "upper": 1e6, "missing": "drop", "unknown": 4}
COUNT = {"kind": "count", "upper": 100, "missing": 5, "unknown": "drop"}
LEVEL = {"kind": "categorical", "levels": LEVELS, "missing": "drop", "unknown": "2.5"}
BINARY = {"kind": "binary", "levels": ["0", "1"], "unknown": "0", "missing": "1"}
TEXTS = st.sampled_from([*LEVELS, "zz", "1.0", " 1", "-9", "1e400", "٣", "0x1", "true", "li\nne"])
ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\r\x00"), max_size=4)
# Of each column: its description, its type, and what its cells may be.
COLUMNS = {
    "float": (NUMBER, pa.float64(), st.floats(allow_nan=False)),
    "integer": (NUMBER, pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)),
    "count": (COUNT, pa.uint8(), st.integers(0, 255)),
    "truth": (NUMBER, pa.bool_(), st.booleans()),
    "decimal": (NUMBER, pa.decimal128(20, 2), st.decimals(-1000, 1000, places=2)),
    "text": (NUMBER | {"missing": 3}, pa.string(), TEXTS | ANY_TEXT),
    "float level": (LEVEL, pa.float64(), st.sampled_from([0.0, 1.0, 2.5, -0.0, 3.0])),
    "integer level": (BINARY, pa.int64(), st.integers(-1, 2)),
    "truth level": (LEVEL, pa.bool_(), st.booleans()),
    "truth as 0 and 1": (BINARY, pa.bool_(), st.booleans()),
    "decimal level": (LEVEL | {"kind": "ordered"}, pa.decimal128(9, 2), st.decimals(0, 3, places=1)),
    "text level": (LEVEL, pa.string(), TEXTS | ANY_TEXT),
}  # fmt: skip
NULLABLE = {
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.string(): pd.StringDtype(),
}


class Exporter:
    """A table of another library, of which nothing is known but that it speaks Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def roads(table: pa.Table, folder: Path) -> dict[str, object]:
    """Return the table in every form; files are written anew."""
    frame = table.to_pandas()
    made = {
        "pandas": frame,
        "pandas, nullable": table.to_pandas(types_mapper=NULLABLE.get),
        "pandas, Arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas, objects": pd.DataFrame(table.to_pydict(), dtype=object),
        "mapping": table.to_pydict(),
        "record batch": table.combine_chunks().to_batches()[0],
        "another library": Exporter(table),
    }
    if table.schema.types[0] == pa.string():
        made["dictionary"] = table.set_column(0, table.schema.names[0], table.column(0).dictionary_encode())
        made["category"] = frame.astype("category")
    files = {name: folder / f"{place}.csv" for place, name in enumerate(("pandas", "pyarrow", "csv"))}
    frame.to_csv(files["pandas"], index=False, encoding="utf-8-sig", lineterminator="\r\n")
    pyarrow.csv.write_csv(table, files["pyarrow"])
    with files["csv"].open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(table.schema.names)
        writer.writerows(zip(*table.to_pydict().values(), strict=True))
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    frame.to_parquet(folder / "b.pq")
    made |= {f"CSV by {name}": path for name, path in files.items()}
    return made | {"Parquet": folder / "a.parquet", "Parquet by pandas": folder / "b.pq"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("roads")


@pytest.mark.parametrize("name", COLUMNS)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_one_table_gives_one_design_matrix(name, folder, data):
    described, kind, cell = COLUMNS[name]
    cells = data.draw(st.lists(st.none() | cell, min_size=1, max_size=6))
    schema = Schema.from_dict({"columns": {name: described, "y": {"kind": "binary", "levels": ["n", "y"]}}})
    design = make_design(schema, outcome="y")
    table = pa.table({name: pa.array(cells, kind), "y": pa.array(["y"] * len(cells))})
    expected = encode_features(design, table)
    for road, source in roads(table, folder).items():
        found = encode_features(design, source)
        assert np.array_equal(found.x, expected.x), road
        assert np.array_equal(found.is_complete, expected.is_complete), road


def people(num_rows: int) -> tuple[pa.Table, Schema]:
    rng = np.random.default_rng(3)
    table = pa.table(
        {
            "age": pa.array(rng.uniform(0, 90, num_rows)),
            "unused": pa.array([[1]] * num_rows),
            "well": pa.array(rng.choice(["no", "yes"], num_rows)).dictionary_encode(),
        }
    )
    columns = {
        "age": {"kind": "real", "lower": 0, "upper": 90},
        "well": {"kind": "binary", "levels": ["no", "yes"]},
    }
    return table, Schema.from_dict({"columns": columns})


@pytest.mark.parametrize("made", [lambda table: table, Exporter], ids=["pyarrow", "another library"])
def test_a_release_of_an_arrow_table_is_that_of_the_frame(made):
    table, schema = people(40)
    config = DPVIConfig(num_steps=9, learning_rate=0.01)
    shared = {"schema": schema, "privacy": NonPrivate(), "insecure_seed": 1, "config": config}
    model = LogisticRegression(outcome="well")
    first = release(model, made(table), **shared)
    second = release(model, table.to_pandas(), **shared)
    assert np.array_equal(first.noisy_gradient, second.noisy_gradient)


def test_an_arrow_table_is_read_in_parts():
    table, schema = people(10)
    parts = list(in_parts(pa.concat_tables([table, table]), part_rows=7).read(["well", "age"]))
    assert [len(part) for part in parts] == [7, 7, 6]
    assert list(parts[0].columns) == ["well", "age"]
    design = make_design(schema, outcome="well")
    assert np.array_equal(make_records(table, design).x, make_records(table.to_pandas(), design).x)


def test_polars_is_read():
    polars = pytest.importorskip("polars", reason="polars is no dependency; its interface is tested above")
    table, schema = people(10)
    design = make_design(schema, outcome="well")
    frame = polars.from_arrow(table)
    assert np.array_equal(make_records(frame, design).x, make_records(table, design).x)
    with pytest.raises(NadpviError, match=r"got LazyFrame.*collect"):
        to_table(frame.lazy())


@pytest.mark.parametrize("day", [0, 2_932_897 * 400])
def test_dates_are_refused_as_a_type_whatever_they_say(day):
    """Python's dates end with the year 9999; one later date must not decide how the run ends."""
    _, schema = people(1)
    design = make_design(schema, outcome="well")
    table = pa.table({"age": pa.array([1, day], pa.date32()), "well": ["no", "yes"]})
    with pytest.raises(DataError, match=r"holds datetime64.*dates as a number"):
        encode_features(design, table)


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        (pa.table([[1], [2]], names=["s3cret", "s3cret"]), "columns 1 and 2"),
        (pa.table([[1]], names=[" "]), "column 1 has an empty name"),
        (pa.chunked_array([["s3cret"]]), "ChunkedArray cannot be read as an Arrow table"),
        (pa.table({"a": [1]}).to_reader(), "got RecordBatchReader"),
    ],
    ids=["names", "blank", "array", "reader"],
)
def test_what_is_no_table_is_one_line(source, rule):
    for read in (to_table, in_parts):
        with pytest.raises(NadpviError) as caught:
            read(source)
        assert rule in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1
        assert "s3cret" not in str(caught.value)


def test_arrow_without_pyarrow_names_the_extra(monkeypatch):
    table, _ = people(1)
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(NadpviError, match=r"nadpvi\[parquet\]"):
        to_table(Exporter(table))
