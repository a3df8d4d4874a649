"""CSV and Parquet files, whole or in parts that fit into memory, without guessing what a cell means.

Cells of a CSV file stay text: what counts as a number, a level or as missing is the schema's to say, so a
level called "NA" survives. Messages tell a file's own names by position: what stands where the names should
be may be a person's record.
"""

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from nadpvi.arrow_tables import arrow_frame
from nadpvi.errors import ArgumentError, DataError, FileError

__all__ = ["check_names", "file_header", "file_parts", "is_parquet", "read_file"]

_PARQUET_SUFFIXES = (".parquet", ".pq")
_CSV_LINES = 10_000
# Bytes per column that are read from a Parquet file at a time; without this, all of a row group is.
_BUFFER = 2**18


def check_names(names: Sequence[str], *, source: str) -> None:
    """Raise if a column cannot be told by its name; it is told by its position."""
    first: dict[str, int] = {}
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise DataError(f"{source}: column {position} has an empty name; name it or remove it")
        earlier = first.setdefault(name, position)
        if earlier != position:
            raise DataError(
                f"{source}: columns {earlier} and {position} of the header have the same name; rename or "
                "remove one, or add the header if the first line is a record"
            )


def read_file(path: Path) -> pd.DataFrame:
    """Return the table in a file; errors are those of `nadpvi.tables.read_table`."""
    with _named_errors(path):
        if not is_parquet(path):
            return _read_csv(path)
        with path.open("rb") as file, _parquet_errors(path):
            # The names first: two that are equal would stop the conversion less clearly.
            check_names(_parquet_file(file, path).schema_arrow.names, source=f"table {path}")
            return arrow_frame(_pyarrow(path).parquet.read_table(file))


def file_header(path: Path) -> tuple[tuple[str, ...], int | None]:
    """Return the names of a file's columns, and how many rows it has, None if only reading it tells."""
    with _named_errors(path):
        if not is_parquet(path):
            with path.open(encoding="utf-8-sig", newline="") as lines:
                return tuple(_csv_header(csv.reader(lines, strict=True), path)), None
        with path.open("rb") as file, _parquet_errors(path):
            source = _parquet_file(file, path)
            names, num_rows = tuple(source.schema_arrow.names), int(source.metadata.num_rows)
        check_names(names, source=f"table {path}")
        return names, num_rows


def file_parts(path: Path, names: Sequence[str], *, num_rows: int) -> Iterator[pd.DataFrame]:
    """Yield some columns of a file, at most `num_rows` rows at a time; the cells are those of `read_file`."""
    with _named_errors(path):
        if not is_parquet(path):
            with path.open(encoding="utf-8-sig", newline="") as lines:
                reader = csv.reader(lines, strict=True)
                header = _csv_header(reader, path)
                positions = [header.index(name) for name in names]
                for cells in _csv_columns(reader, len(header), path, num_rows=num_rows):
                    yield _text_frame(names, [cells[position] for position in positions])
            return
        with path.open("rb") as file, _parquet_errors(path):
            source = _parquet_file(file, path)
            table = _pyarrow(path).Table
            for batch in source.iter_batches(batch_size=num_rows, columns=list(names), use_threads=False):
                # A name with a dot can bring others along.
                yield arrow_frame(table.from_batches([batch]).select(list(names)))


@contextmanager
def _named_errors(path: Path) -> Iterator[None]:
    """Turn what can go wrong with a file into one line that names it."""
    try:
        yield
    except FileNotFoundError:
        raise FileError(f"table {path} does not exist") from None
    except UnicodeDecodeError:
        raise FileError(f"table {path} is not UTF-8 text; save it as CSV in UTF-8") from None
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"table {path} cannot be read ({error.strerror or 'input error'})") from None


def is_parquet(path: Path) -> bool:
    """Return whether a file is read by pyarrow, by its name."""
    return path.suffix.lower() in _PARQUET_SUFFIXES


def _read_csv(path: Path) -> pd.DataFrame:
    """Return the table of a CSV file, each cell as text."""
    # Opened once: it may be a pipe.
    with path.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.reader(lines, strict=True)
        names = _csv_header(reader, path)
        columns: list[list[str]] = [[] for _ in names]
        # One object per distinct text: levels repeat, and a table of them would not fit otherwise.
        pools: list[dict[str, str]] = [{} for _ in names]
        for parts in _csv_columns(reader, len(names), path, num_rows=_CSV_LINES):
            for cells, pool, column in zip(parts, pools, columns, strict=True):
                column.extend(pool.setdefault(cell, cell) for cell in cells)
    return _text_frame(names, columns)


def _text_frame(names: Sequence[str], columns: Sequence[Sequence[str]]) -> pd.DataFrame:
    """Return columns of text as a table."""
    return pd.DataFrame(
        {name: pd.Series(cells, dtype=str) for name, cells in zip(names, columns, strict=True)}
    )


def _csv_header(reader: Any, path: Path) -> list[str]:
    """Return the names in the first line that is not blank."""
    try:
        header: list[str] | None = next((row for row in reader if row), None)
    except csv.Error as error:
        raise _csv_error(path, reader, error) from None
    if header is None:
        raise FileError(f"table {path} is empty; its first line must hold the column names")
    # Before the cells, because a repeated name would merge two columns.
    check_names(header, source=f"table {path}")
    return header


def _csv_columns(reader: Any, width: int, path: Path, *, num_rows: int) -> Iterator[list[tuple[str, ...]]]:
    """Yield the cells below the header, one tuple a column, in parts of at most `num_rows` lines."""
    rows = _full_rows(reader, width, path)
    try:
        while part := list(islice(rows, num_rows)):
            yield list(zip(*part, strict=True))
    except csv.Error as error:
        raise _csv_error(path, reader, error) from None


def _csv_error(path: Path, reader: Any, error: csv.Error) -> FileError:
    """Return the error of a line that is not CSV."""
    return FileError(f"table {path}, line {reader.line_num}: not valid CSV ({error})")


def _full_rows(reader: Any, width: int, path: Path) -> Iterator[list[str]]:
    """Yield the rows of a CSV reader, or raise at a line of another width than the header.

    Lines without any character are skipped, but for those between the rows of a single column: there they are
    empty cells, without which a prediction for every row would be short of some.
    """
    blank = 0
    for row in reader:
        if not row:
            blank += width == 1
            continue
        if len(row) != width:
            raise FileError(
                f"table {path}, line {reader.line_num}: {len(row)} fields where the header has {width}; "
                "put quotes round cells that hold commas"
            )
        yield from [[""]] * blank
        blank = 0
        yield row


def _pyarrow(path: Path) -> Any:
    """Return pyarrow with its Parquet part, or raise if the extra is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ArgumentError(
            f"table {path}: reading Parquet needs pyarrow; pip install 'nadpvi[parquet]', or save it as CSV"
        ) from None
    return pyarrow


def _parquet_file(file: Any, path: Path) -> Any:
    """Return an open Parquet file that is read a buffer at a time."""
    return _pyarrow(path).parquet.ParquetFile(file, buffer_size=_BUFFER, pre_buffer=False)


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    """Turn pyarrow's errors, which may quote a cell, into one line that names the file."""
    try:
        yield
    except (ArgumentError, DataError):
        raise
    except (ValueError, OSError, TypeError, NotImplementedError):
        raise FileError(f"table {path} cannot be read as Parquet; is it complete?") from None
