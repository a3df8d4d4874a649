"""Read a table from a file, or take one from memory, without guessing what a cell means.

Cells of a CSV file stay text: what counts as a number, a level or as missing is the schema's to say, so a
level called "NA" survives. Messages quote a column's name only if the caller gave it: what stands where the
names should be may be a person's record, so the table's own names are told by position.
"""

import csv
import importlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from nadpvi.columns import listed, quoted
from nadpvi.errors import ArgumentError, DataError, FileError

__all__ = ["TableLike", "read_table", "require_columns", "to_table"]

TableLike = pd.DataFrame | Mapping[str, Any] | str | PathLike[str]

_PARQUET_SUFFIXES = (".parquet", ".pq")
_CHUNK = 10_000


def to_table(source: TableLike) -> pd.DataFrame:
    """Return a table given as a DataFrame, as a mapping from name to column, or as a file's path.

    Parameters
    ----------
    source : DataFrame, mapping or path
        A DataFrame is passed on as it is and never modified; its index plays no part. The columns of a
        mapping have equal lengths N and are matched by position. A path goes to `read_table`.

    Raises
    ------
    ArgumentError
        If `source` is of another type.
    DataError
        If two columns share a name, a name is empty, or the columns' lengths differ.
    FileError
        If the file cannot be read.
    """
    if isinstance(source, str | PathLike):
        return read_table(source)
    if isinstance(source, Mapping):
        table = _from_mapping(source)
    elif isinstance(source, pd.DataFrame):
        table = source
    else:
        raise ArgumentError(
            "a table must be a pandas DataFrame, a mapping from name to column, or a path "
            f"(got {type(source).__name__}); convert it first, for example with .to_pandas()"
        )
    if table.columns.nlevels > 1:
        raise DataError("the table has several levels of column names; give each column one name")
    _check_names([str(name) for name in table.columns], source="the table")
    return table


def require_columns(table: pd.DataFrame, names: tuple[str, ...], *, known: tuple[str, ...]) -> None:
    """Raise a DataError that names the first absent column, with a hint at what is wrong.

    Parameters
    ----------
    table : DataFrame
    names : tuple of str
        The columns to be there.
    known : tuple of str
        Names that belong to such a table, `names` among them. No other name of the table is quoted, and
        these only if at least half of them were found.
    """
    absent = [name for name in names if name not in table.columns]
    if absent:
        headings = [str(name) for name in table.columns]
        raise DataError(f"the table has no column {quoted(absent[0])}{_hint(headings, known)}")


def _hint(headings: list[str], known: tuple[str, ...]) -> str:
    """Return how a message on an absent column goes on."""
    for delimiter, called in ((";", "semicolon"), ("\t", "tab"), ("|", "vertical bar")):
        parts = [part.strip().strip('"') for heading in headings for part in heading.split(delimiter)]
        if len(parts) > len(headings) and set(parts) & set(known):
            return f"; the delimiter is a {called}, save the file with commas"
    if {heading.strip() for heading in headings} & (set(known) - set(headings)):
        return "; remove the blanks around the names in the header"
    found = [name for name in known if name in headings]
    count = f"{len(headings)} column{'' if len(headings) == 1 else 's'}"
    if found and 2 * len(found) >= len(known):
        return f"; among its {count} are {listed(found)}: names are compared exactly, capitals too"
    return f" (it has {count}); the first line must hold the column names, with commas between them"


def read_table(path: str | PathLike[str]) -> pd.DataFrame:
    """Return the table in a CSV or Parquet file.

    Parameters
    ----------
    path : str or path-like
        `.parquet` and `.pq` files are read by pyarrow (extra `parquet`) with their own types; any other is
        read as CSV: UTF-8 (a byte-order mark is allowed), comma-separated, double quotes, the names in the
        first line. Every CSV cell is kept as text, exactly; lines without any character are skipped.

    Returns
    -------
    DataFrame
        N rows; N = 0 if there is a header only.

    Raises
    ------
    FileError
        If the file is absent, unreadable, empty, not UTF-8, or a line's width differs from the header's.
    DataError
        If two columns share a name, or a name is empty.
    ArgumentError
        If pyarrow is needed and not installed.
    """
    path = Path(path)
    try:
        if path.suffix.lower() in _PARQUET_SUFFIXES:
            table = _read_parquet(path)
        else:
            with path.open(encoding="utf-8-sig", newline="") as lines:
                table = _from_csv(csv.reader(lines, strict=True), path)
    except FileNotFoundError:
        raise FileError(f"table {path} does not exist") from None
    except UnicodeDecodeError:
        raise FileError(f"table {path} is not UTF-8 text; save it as CSV in UTF-8") from None
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"table {path} cannot be read ({error.strerror or 'input error'})") from None
    _check_names([str(name) for name in table.columns], source=f"table {path}")
    return table


def _check_names(names: list[str], *, source: str) -> None:
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


def _from_csv(reader: Any, path: Path) -> pd.DataFrame:
    """Return the table of a CSV reader, each cell as text."""
    try:
        header = next((row for row in reader if row), None)
        if header is None:
            raise FileError(f"table {path} is empty; its first line must hold the column names")
        # Before the cells, because a repeated name would merge two columns.
        _check_names(header, source=f"table {path}")
        columns: list[list[str]] = [[] for _ in header]
        # One object per distinct text: levels repeat, and a table of them would not fit otherwise.
        pools: list[dict[str, str]] = [{} for _ in header]
        rows = _full_rows(reader, len(header), path)
        while chunk := list(islice(rows, _CHUNK)):
            for cells, pool, column in zip(zip(*chunk, strict=True), pools, columns, strict=True):
                column.extend(pool.setdefault(cell, cell) for cell in cells)
    except csv.Error as error:
        raise FileError(f"table {path}, line {reader.line_num}: not valid CSV ({error})") from None
    return pd.DataFrame(
        {name: pd.Series(cells, dtype=str) for name, cells in zip(header, columns, strict=True)}
    )


def _full_rows(reader: Any, width: int, path: Path) -> Iterator[list[str]]:
    """Yield the rows of a CSV reader, or raise at a line of another width than the header."""
    for row in reader:
        if len(row) == width:
            yield row
        elif row:
            raise FileError(
                f"table {path}, line {reader.line_num}: {len(row)} fields where the header has {width}; "
                "put quotes round cells that hold commas"
            )


def _read_parquet(path: Path) -> pd.DataFrame:
    """Return the table of a Parquet file with its own types."""
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ArgumentError(
            f"table {path}: reading Parquet needs pyarrow; pip install 'nadpvi[parquet]', or save it as CSV"
        ) from None
    with path.open("rb") as file:
        try:
            # Integers with nulls would turn into floats, and a level "1" into "1.0".
            table: pd.DataFrame = parquet.read_table(file).to_pandas(
                ignore_metadata=True, integer_object_nulls=True
            )
        except (ValueError, OSError, TypeError, NotImplementedError):
            raise FileError(f"table {path} cannot be read as Parquet; is it complete?") from None
    return table


def _from_mapping(source: Mapping[str, Any]) -> pd.DataFrame:
    """Return a mapping from name to column as a table, matched by position."""
    columns: dict[str, pd.Series[Any]] = {}
    for position, (name, values) in enumerate(source.items(), start=1):
        if not isinstance(name, str):
            raise DataError(f"column names must be text (got a {type(name).__name__})")
        sequence = isinstance(values, Sequence) and not isinstance(values, str | bytes)
        if getattr(values, "ndim", 1 if sequence else 0) != 1:
            raise DataError(f"column {position} of the table must be one-dimensional: one cell a row")
        # Cells of mixed types are kept as they are: pandas would infer a type from all of them together.
        dtype = object if sequence else values.dtype
        columns[name] = pd.Series(values, dtype=dtype).reset_index(drop=True)
    lengths = [len(column) for column in columns.values()]
    if len(set(lengths)) > 1:
        odd = next(i for i, length in enumerate(lengths, start=1) if length != lengths[0])
        raise DataError(f"columns 1 and {odd} of the table differ in length; give one cell a row in each")
    return pd.DataFrame(columns)
