"""Large tables: read in parts, stored once, and run in memory that does not grow with the batch.

Memory is NumPy's own, counted by tracemalloc, and asserted per record: the difference of two sizes, so that
what a part of the table takes does not count.
"""

import tracemalloc

import numpy as np
import pandas as pd
import pytest

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.encoding import make_design
from nadpvi.errors import ArgumentError, DataError, NadpviError
from nadpvi.privacy.noise import GRID_UNITS, NoNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.batches import Workspace, block_rows
from nadpvi.private.dpvi import State, step
from nadpvi.private.records import Records, make_records
from nadpvi.schema import Person
from nadpvi.settings import make_settings
from nadpvi.tables import in_parts, read_table

SECRET = "s3cret-cell"
SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100, "missing": "drop"},
            "a.b": {"kind": "real", "lower": 0, "upper": 1},
            "job": {"kind": "categorical", "levels": ["1", "2", "3"], "missing": "drop", "unknown": "drop"},
            "well": {"kind": "binary", "levels": ["no", "yes"]},
        },
        "person": {"column": "id", "max_rows": 2},
    }
)
DESIGN = make_design(SCHEMA, outcome="well")


def mixed_table(num_rows=101, seed=2):
    """Columns of several types, with cells missing here and there."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "unused": "x",
            "age": np.where(rng.random(num_rows) < 0.2, np.nan, rng.integers(0, 120, num_rows)),
            "a.b": rng.random(num_rows),
            "job": pd.array(rng.integers(1, 5, num_rows), dtype="Int64"),
            "well": rng.choice(["no", "yes"], num_rows),
            "id": rng.integers(0, num_rows // 3, num_rows),
        }
    )
    frame.loc[num_rows // 2 :: 7, "job"] = None
    frame["job"] = frame["job"].astype(object).where(frame["job"].notna(), None)
    return frame


def files_of(frame, folder):
    """The same table as a CSV file, as a Parquet file of several row groups, and as columns in memory."""
    pyarrow = pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
    parquet_module = pytest.importorskip("pyarrow.parquet")
    csv, parquet = folder / "table.csv", folder / "table.parquet"
    frame.to_csv(csv, index=False)
    table = pyarrow.table(
        {
            name: pyarrow.array([None if pd.isna(cell) else cell for cell in frame[name]])
            for name in frame.columns
        }
    )
    parquet_module.write_table(table, parquet, row_group_size=40)
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    return {
        "frame": frame,
        "csv": csv,
        "parquet": parquet,
        "mapping": columns,
        "lists": frame.to_dict("list"),
    }


@pytest.fixture
def parts(monkeypatch):
    """Return a function that sets how many rows are read at a time."""

    def set_rows(part_rows):
        monkeypatch.setattr(
            "nadpvi.private.records.in_parts", lambda table: in_parts(table, part_rows=part_rows)
        )

    return set_rows


class TestStreaming:
    """Reading in parts is reading at once."""

    @pytest.mark.parametrize("kind", ["frame", "csv", "parquet", "mapping", "lists"])
    @pytest.mark.parametrize("with_person", [False, True])
    def test_the_records_are_those_of_the_whole_table(self, tmp_path, parts, kind, with_person):
        frame = mixed_table()
        source = files_of(frame, tmp_path)[kind]
        found = []
        for part_rows in (10**6, 1, 13, 40):
            parts(part_rows)
            rng = np.random.default_rng(3)
            person = {"person": SCHEMA.person, "rng": rng} if with_person else {}
            found.append(make_records(source, DESIGN, **person))
            found.append(make_records(frame, DESIGN, **({**person, "rng": np.random.default_rng(3)})))
        for records in found[1:]:
            np.testing.assert_array_equal(records.x, found[0].x)
            np.testing.assert_array_equal(records.y, found[0].y)
            np.testing.assert_array_equal(records.unit_starts, found[0].unit_starts)
        # Rows were dropped, and others kept.
        assert 10 < len(found[0].y) < 90

    @pytest.mark.parametrize("num_rows", [1, 12, 13, 14])
    def test_parts_of_any_size_join(self, tmp_path, num_rows):
        frame = mixed_table(50).head(num_rows)
        for source in files_of(frame, tmp_path).values():
            table = in_parts(source, part_rows=13)
            assert list(table.header.columns) == list(frame.columns)
            assert table.num_rows in (num_rows, None)
            for _ in range(2):
                read = list(table.read(("a.b", "age")))
                assert max(len(part) for part in read) <= 13
                together = pd.concat(read)
                assert list(together.columns) == ["a.b", "age"]
                np.testing.assert_allclose(together["a.b"].astype(float), frame["a.b"])

    @pytest.mark.parametrize("kind", ["csv", "parquet", "mapping", "frame"])
    def test_no_rows_are_one_part_without_rows(self, tmp_path, kind):
        frame = pd.DataFrame({name: pd.Series(dtype=float) for name in mixed_table().columns})
        source = files_of(frame, tmp_path)[kind]
        assert [len(part) for part in in_parts(source).read(("age",))] == [0]
        with pytest.raises(DataError, match="no usable row"):
            make_records(source, DESIGN)

    def test_a_pipe_is_read_once(self, tmp_path):
        import os
        import threading

        pipe = tmp_path / "pipe.csv"
        os.mkfifo(pipe)
        frame = mixed_table()
        writer = threading.Thread(target=frame.to_csv, args=(pipe,), kwargs={"index": False})
        writer.start()
        records = make_records(pipe, DESIGN)
        writer.join()
        np.testing.assert_array_equal(records.x, make_records(frame, DESIGN).x)


# Cells that are wrong, and what a whole table says first; parts would meet the others before.
FAULTS = {
    "a later column comes first": ({("well", 0): SECRET, ("a.b", 90): None}, '"a.b" has missing values'),
    "missing cells go first": ({("a.b", 0): SECRET, ("a.b", 90): None}, '"a.b" has missing values'),
    "one cell of many is stripped": ({("well", 0): SECRET, ("well", 90): " yes"}, "strip them"),
    "text in the middle": ({("a.b", 70): SECRET}, '"a.b" holds text'),
    "an id is missing": ({("id", 60): None}, '"id" has rows without an id'),
    "an id is missing, and a cell": ({("id", 3): None, ("well", 88): SECRET}, '"well" holds a level'),
}


class TestErrorsOfParts:
    """They are those of the whole table, in one line without a cell."""

    @staticmethod
    def message(source):
        with pytest.raises(NadpviError) as caught:
            make_records(source, DESIGN, person=SCHEMA.person, rng=np.random.default_rng(0))
        assert caught.value.__cause__ is None
        return type(caught.value), str(caught.value)

    @pytest.mark.parametrize(("cells", "rule"), FAULTS.values(), ids=FAULTS.keys())
    @pytest.mark.parametrize("kind", ["frame", "csv"])
    def test_faults_in_cells(self, tmp_path, parts, cells, rule, kind):
        frame = mixed_table().astype(object)
        for (name, row), cell in cells.items():
            frame.loc[row, name] = cell
        source = frame
        if kind == "csv":
            source = tmp_path / "table.csv"
            frame.to_csv(source, index=False)
        parts(10**6)
        whole = self.message(source)
        assert rule in whole[1]
        assert SECRET not in whole[1]
        assert len(whole[1].splitlines()) == 1
        for part_rows in (1, 13):
            parts(part_rows)
            assert self.message(source) == whole

    def test_a_line_of_another_width_is_told_before_a_cell(self, tmp_path, parts):
        path = tmp_path / "table.csv"
        frame = mixed_table().astype(object)
        frame.loc[0, "well"] = SECRET
        path.write_text(frame.to_csv(index=False) + f"{SECRET},1\n")
        with pytest.raises(NadpviError) as caught:
            read_table(path)
        for part_rows in (1, 13, 10**6):
            parts(part_rows)
            assert self.message(path) == (type(caught.value), str(caught.value))
        assert SECRET not in str(caught.value)

    def test_a_column_of_a_wrong_type(self, tmp_path, parts):
        frame = mixed_table()
        frame["a.b"] = pd.Timestamp("2020-01-01")
        source = files_of(frame, tmp_path)["parquet"]
        for part_rows in (13, 10**6):
            parts(part_rows)
            assert "datetime64" in self.message(source)[1]

    def test_a_damaged_file(self, tmp_path):
        path = files_of(mixed_table(), tmp_path)["parquet"]
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 3] + b"\0" * 400 + content[len(content) // 3 + 400 :])
        assert "cannot be read as Parquet" in self.message(path)[1]

    @pytest.mark.parametrize("column", ["age", "well", "id"])
    def test_an_absent_column_is_found_before_any_cell(self, tmp_path, column):
        frame = mixed_table().astype(object).drop(columns=column)
        frame.loc[0, "a.b"] = SECRET
        assert f'no column "{column}"' in self.message(frame)[1]


def numeric(num_rows, *, num_columns=20, seed=0):
    rng = np.random.default_rng(seed)
    columns = {f"c{i}": rng.random(num_rows) for i in range(num_columns)}
    return columns | {"y": rng.integers(0, 2, num_rows)}


NUMERIC = na.Schema.from_dict(
    {
        "columns": {f"c{i}": {"kind": "real", "lower": 0, "upper": 1} for i in range(20)}
        | {"y": {"kind": "binary", "levels": ["0", "1"]}}
    }
)
WIDE = make_design(NUMERIC, outcome="y")


def peak_of(call):
    """Return the most bytes that NumPy held during a call beyond those before it, and what it returns."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    result = call()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    return peak, result


def per_record(call_of):
    """Return peak bytes per record, from 3 to 7 whole parts of a table, 229,376 records at most."""
    few, many = (peak_of(call_of(num_parts * 2**15))[0] for num_parts in (3, 7))
    return (many - few) / (4 * 2**15)


class TestMemory:
    @pytest.mark.parametrize(("storage", "size"), [("float32", 4), ("float64", 8)])
    @pytest.mark.parametrize("kind", ["mapping", "frame", "parquet"])
    def test_a_table_takes_what_its_encoded_rows_take(self, tmp_path, storage, size, kind):
        """21 features and an outcome, and no second copy of any of them."""
        pytest.importorskip("pyarrow", reason="the parquet extra is not installed")

        def call_of(num_rows):
            source = pd.DataFrame(numeric(num_rows))
            if kind == "mapping":
                source = {name: source[name].to_numpy() for name in source}
            elif kind == "parquet":
                source.to_parquet(tmp_path / "table.parquet", row_group_size=30_000)
                source = tmp_path / "table.parquet"
            return lambda: make_records(source, WIDE, storage=storage)

        assert per_record(call_of) < 1.05 * (21 * size + 8)

    def test_a_csv_file_takes_a_quarter_more(self, tmp_path):
        """Its length is not known, and memory grows by a quarter; its text is never held whole."""

        def call_of(num_rows):
            path = tmp_path / f"{num_rows}.csv"
            path.write_text("c0,y\n" + "".join(f"{i / num_rows},{i % 2}\n" for i in range(num_rows)))
            design = make_design(NUMERIC, outcome="y", predictors=["c0"])
            return lambda: make_records(path, design, storage="float32")

        assert per_record(call_of) < 1.3 * (2 * 4 + 8)

    def test_equal_rows_take_nothing(self):
        def call_of(num_rows):
            source = {"c0": np.arange(num_rows) % 7 / 7, "y": np.arange(num_rows) % 2}
            design = make_design(NUMERIC, outcome="y", predictors=["c0"])
            return lambda: make_records(source, design, collapse=True)

        assert per_record(call_of) < 1

    def test_a_mapped_file_is_not_copied(self, tmp_path):
        x, y = np.random.default_rng(0).random((200_000, 20), dtype=np.float32), np.zeros(200_000)
        np.save(tmp_path / "x.npy", x)
        np.save(tmp_path / "y.npy", y)
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r"), np.load(tmp_path / "y.npy", mmap_mode="r")
        peak, records = peak_of(lambda: Records(x=mapped[0], y=mapped[1]))
        assert peak < 4 * 2**20 < x.nbytes
        assert np.shares_memory(records.x, mapped[0])
        for mode in ("r+", "c"):
            records = Records(x=np.load(tmp_path / "x.npy", mmap_mode=mode), y=y)
            assert not isinstance(records.x.base, np.memmap)
            assert not records.x.flags.writeable

    def test_columns_that_are_mapped_files_are_read_in_parts(self, tmp_path):
        def call_of(num_rows):
            columns = {}
            for name, values in numeric(num_rows).items():
                np.save(tmp_path / f"{name}.npy", values)
                columns[name] = np.load(tmp_path / f"{name}.npy", mmap_mode="r")
            return lambda: make_records(columns, WIDE, storage="float32")

        assert per_record(call_of) < 1.05 * (21 * 4 + 8)

    @pytest.mark.parametrize("num_features", [20, 4000])
    def test_a_step_takes_the_same_whatever_the_batch(self, num_features):
        """K parameters and ten draws: a few blocks of D = 2 K columns, not the batch's B."""
        few, many = (self.peak_of_a_step(num_rows, num_features) for num_rows in (1100, 5500))
        assert many < few + 8 * 5500 * 3
        block = 8 * block_rows(10 * num_features) * 2 * num_features
        assert many < 8 * block + 2**20

    @staticmethod
    def peak_of_a_step(num_rows, num_features):
        columns = {f"c{i}": {"kind": "real", "lower": 0, "upper": 1} for i in range(num_features)}
        schema = na.Schema.from_dict({"columns": columns | {"y": {"kind": "binary", "levels": ["0", "1"]}}})
        model = na.models.LogisticRegression(outcome="y", intercept=False)
        description = ModelDescription(model=model, schema=schema, guide=na.MeanField())
        settings = make_settings(
            description, na.DPVIConfig(num_steps=2, sampling_rate=1.0), noise_multiplier=1.0
        )
        x = np.random.default_rng(1).random((num_rows, num_features), dtype=np.float32)
        records = Records(x=x, y=np.zeros(num_rows))
        noise, workspace = NoNoise(dimension=2 * num_features), Workspace()
        noise.grid_units = GRID_UNITS

        def one_step():
            return step(
                State(0, settings.initial_phi),
                records=records,
                settings=settings,
                noise=noise,
                streams=make_streams(insecure_seed=1),
                workspace=workspace,
            )

        one_step()
        return peak_of(one_step)[0]


class TestStorage:
    def test_arrays_that_nobody_can_write_to_are_taken_as_they_are(self):
        x, y = np.ones((3, 2), dtype=np.float32), np.zeros(3)
        for array in (x, y):
            array.setflags(write=False)
        records = Records(x=x, y=y)
        assert records.x is x
        assert records.y is y

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_a_read_only_view_of_memory_that_can_change_is_copied(self, dtype):
        memory = np.ones((3, 2), dtype=dtype)
        view = memory[:]
        view.setflags(write=False)
        records = Records(x=view, y=np.zeros(3))
        memory[:] = 7.0
        assert records.x.tolist() == [[1.0, 1.0]] * 3
        assert records.x.dtype == dtype

    @pytest.mark.parametrize("dtype", ["float16", "int32", "bool", ">f4", ">f8", "longdouble"])
    def test_other_types_become_native_floats(self, dtype):
        x = np.ones((2, 1), dtype=dtype)
        x.setflags(write=False)
        stored = Records(x=x, y=np.zeros(2)).x
        assert stored.dtype.isnative
        assert stored.dtype == (np.float32 if dtype == ">f4" else np.float64)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("row", [0, 199_999])
    def test_an_entry_that_is_not_finite_is_found_anywhere(self, dtype, row):
        x = np.zeros((200_000, 20), dtype=dtype)
        x[row, 19] = np.nan
        x.setflags(write=False)
        with pytest.raises(DataError, match="must be finite"):
            Records(x=x, y=np.zeros(200_000))

    def test_float32_storage_rounds_features_and_nothing_else(self):
        source = numeric(500)
        double, single = (make_records(source, WIDE, storage=name) for name in ("float64", "float32"))
        np.testing.assert_array_equal(single.x, double.x.astype(np.float32))
        assert (single.y.dtype, single.x.dtype) == (np.float64, np.float32)
        assert np.abs(single.x - double.x).max() <= 2.0**-25

    def test_a_run_over_float32_is_a_run_over_its_values(self):
        single = make_records(numeric(3000), WIDE, storage="float32")
        double = Records(x=single.x.astype(np.float64), y=single.y)
        description = ModelDescription(
            model=na.models.LogisticRegression(outcome="y"), schema=NUMERIC, guide=na.MeanField()
        )
        settings = make_settings(
            description, na.DPVIConfig(num_steps=2, sampling_rate=0.5), noise_multiplier=1.0
        )
        noise = NoNoise(dimension=42)
        noise.grid_units = GRID_UNITS
        first, second = (
            step(
                State(0, settings.initial_phi),
                records=records,
                settings=settings,
                noise=noise,
                streams=make_streams(insecure_seed=4),
            )[1]
            for records in (single, double)
        )
        np.testing.assert_array_equal(first, second)

    @pytest.mark.parametrize("storage", ["float16", None, "double", 32])
    def test_unknown_storage_is_refused(self, storage):
        with pytest.raises(ArgumentError, match='storage must be "float64" or "float32"'):
            make_records(numeric(3), WIDE, storage=storage)


def test_persons_and_float32_go_together():
    person = Person(column="id", max_rows=1)
    table = numeric(50) | {"id": np.arange(50) // 2}
    records = make_records(table, WIDE, person=person, rng=np.random.default_rng(0), storage="float32")
    assert records.num_units == len(records.y) == 25
    assert records.x.dtype == np.float32
