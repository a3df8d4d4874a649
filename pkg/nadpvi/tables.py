"""Read a table from a file, or take one from memory, whole or in parts.

Messages quote a column's name only if the caller gave it: what stands where the names should be may be a
person's record, so the table's own names are told by position.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd

from nadpvi.arrow_tables import arrow_frame, arrow_table, is_arrow
from nadpvi.columns import listed, quoted
from nadpvi.errors import ArgumentError, DataError
from nadpvi.table_files import check_names, file_header, file_parts, read_file

__all__ = ["ArrowFrame", "TableLike", "TableParts", "in_parts", "read_table", "require_columns", "to_table"]


class ArrowFrame(Protocol):
    """A table in Arrow's memory, such as pyarrow's Table or polars' DataFrame."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

    def __len__(self) -> int: ...


TableLike = pd.DataFrame | Mapping[str, Any] | ArrowFrame | str | PathLike[str]

_PART_ROWS = 2**15


class TableParts(NamedTuple):
    """A table that is read in parts, as often as asked.

    Attributes
    ----------
    header : DataFrame
        Its columns without rows.
    num_rows : int or None
        N, or None if only reading the file tells.
    read : callable
        Takes names of columns and yields these columns' rows, in order, as DataFrames: at least one, perhaps
        without rows.
    """

    header: pd.DataFrame
    num_rows: int | None
    read: Callable[[Sequence[str]], Iterator[pd.DataFrame]]


def in_parts(source: TableLike, *, part_rows: int = _PART_ROWS) -> TableParts:
    """Return a table for reading in parts of at most `part_rows` rows, never more than one in memory.

    Parameters and errors are those of `to_table`. Of a file, its header is read here; that a line of it is
    unsuitable shows when its part is read. A mapping of NumPy arrays, memory-mapped ones among them, is not
    copied. What cannot be read twice, such as a pipe, is read at once.
    """
    if isinstance(source, str | PathLike) and (path := Path(source)).is_file():
        names, num_rows = file_header(path)
        header = _header(names)

        def read_parts(names: Sequence[str]) -> Iterator[pd.DataFrame]:
            empty: pd.DataFrame | None = header[list(names)]
            for part in file_parts(path, names, num_rows=part_rows):
                empty = None
                yield part
            if empty is not None:
                yield empty

        return TableParts(header, num_rows, read_parts)
    if isinstance(source, Mapping):
        length = _check_mapping(source)

        def cut(start: int, names: Sequence[str]) -> pd.DataFrame:
            return _from_mapping({name: _rows(source[name], start, start + part_rows) for name in names})

        header = cut(length, list(source))
    elif is_arrow(source):
        arrow = _named_arrow(source)
        length, header = len(arrow), _header(arrow.schema.names)

        def cut(start: int, names: Sequence[str]) -> pd.DataFrame:
            return arrow_frame(arrow.select(list(names)).slice(start, part_rows))

    else:
        table = to_table(source)
        length, header = len(table), table.iloc[:0]

        def cut(start: int, names: Sequence[str]) -> pd.DataFrame:
            return table.iloc[start : start + part_rows][list(names)]

    def read(names: Sequence[str]) -> Iterator[pd.DataFrame]:
        return (cut(start, names) for start in range(0, max(length, 1), part_rows))

    return TableParts(header, length, read)


def to_table(source: TableLike) -> pd.DataFrame:
    """Return a table given as a DataFrame, as a mapping from name to column, or as a file's path.

    Parameters
    ----------
    source : DataFrame, mapping, Arrow table or path
        A DataFrame is passed on as it is and never modified; its index plays no part. The columns of a
        mapping have equal lengths N and are matched by position. pyarrow's Table, polars' DataFrame and what
        else hands itself over as Arrow does (`__arrow_c_stream__`) is read by pyarrow, as a Parquet file of
        it would be. A path goes to `read_table`.

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
        _check_mapping(source)
        return _from_mapping(source)
    if is_arrow(source):
        return arrow_frame(_named_arrow(source))
    if not isinstance(source, pd.DataFrame):
        raise ArgumentError(
            "a table must be a DataFrame of pandas or polars, a pyarrow Table, a mapping from name to "
            f"column, or a path (got {type(source).__name__}); convert it first, for example with "
            ".to_pandas() or .collect()"
        )
    if source.columns.nlevels > 1:
        raise DataError("the table has several levels of column names; give each column one name")
    check_names([str(name) for name in source.columns], source="the table")
    return source


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
        first line. Every CSV cell is kept as text, exactly; lines without any character are skipped, unless
        they are cells of a single column with others below.

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
    return read_file(Path(path))


def _header(names: Sequence[str]) -> pd.DataFrame:
    """Return columns without rows."""
    return pd.DataFrame({name: pd.Series(dtype=object) for name in names})


def _named_arrow(source: object) -> Any:
    """Return a table in Arrow's memory as pyarrow's, its columns told by their names."""
    table = arrow_table(source)
    check_names(table.schema.names, source="the table")
    return table


def _check_mapping(source: Mapping[str, Any]) -> int:
    """Return how many rows a mapping's columns have, or raise unless they make up a table."""
    lengths = []
    for position, (name, values) in enumerate(source.items(), start=1):
        if not isinstance(name, str):
            raise DataError(f"column names must be text (got a {type(name).__name__})")
        if getattr(values, "ndim", 1 if _is_sequence(values) else 0) != 1:
            raise DataError(f"column {position} of the table must be one-dimensional: one cell a row")
        if getattr(getattr(values, "dtype", None), "kind", "") == "V" and isinstance(values, np.ndarray):
            raise DataError(f"column {position} of the table has fields of its own; give numbers or text")
        lengths.append(len(values))
    if len(set(lengths)) > 1:
        odd = next(i for i, length in enumerate(lengths, start=1) if length != lengths[0])
        raise DataError(f"columns 1 and {odd} of the table differ in length; give one cell a row in each")
    check_names(list(source), source="the table")
    return lengths[0] if lengths else 0


def _from_mapping(source: Mapping[str, Any]) -> pd.DataFrame:
    """Return a mapping from name to column as a table, matched by position."""
    return pd.DataFrame({name: _series(values).reset_index(drop=True) for name, values in source.items()})


def _series(values: Any) -> "pd.Series[Any]":
    """Return a column of a mapping as pandas' own."""
    if isinstance(values, np.ma.MaskedArray):
        # In a type that holds a missing cell whether or not there is one: pandas fails on masked integers.
        objects = np.array(values.data, dtype=object)
        objects[np.ma.getmaskarray(values)] = None
        values = objects
    # Cells of mixed types are kept as they are: pandas would infer a type from all of them together.
    return pd.Series(values, dtype=object if _is_sequence(values) else values.dtype)


def _rows(values: Any, start: int, stop: int) -> Any:
    """Return some cells of a column by position."""
    return values.iloc[start:stop] if isinstance(values, pd.Series) else values[start:stop]


def _is_sequence(values: object) -> bool:
    """Return whether a column is a list, a tuple or the like."""
    return isinstance(values, Sequence) and not isinstance(values, str | bytes)
