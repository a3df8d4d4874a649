"""A table read part by part into encoded rows, in memory for one table and one part. Private side."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.encoding import Design, encode_counts, encode_features, encode_outcome
from nadpvi.errors import DataError
from nadpvi.private.collapse import CountedRows, collapsed
from nadpvi.private.persons import NO_ID, read_ids
from nadpvi.row_columns import Counts, Person
from nadpvi.tables import TableParts, require_columns

__all__ = ["EncodedRows", "encode_table"]

# Rows that a table of unknown length, or of few distinct rows, has room for at first.
_FIRST_ROWS = 2**17
# A table that outgrows its memory grows by this factor.
_GROWTH = 1.25

_Reader = Callable[[pd.DataFrame], object]


class EncodedRows(NamedTuple):
    """The usable rows of a table. Private.

    Features (N, F), outcomes (N,), counts (N,) or None, and the number of each row's person (N,) or None.
    Arrays are read-only and belong to nobody else.
    """

    x: NDArray[np.float32] | NDArray[np.float64]
    y: NDArray[np.float64]
    counts: NDArray[np.int64] | None
    persons: NDArray[np.int64] | None

    def __repr__(self) -> str:
        return "EncodedRows(private)"


class _Part(NamedTuple):
    """The usable rows of a part of the table, their ids and counts (None without such a column)."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    ids: NDArray[np.object_] | None
    counts: NDArray[np.int64] | None


def encode_table(
    parts: TableParts,
    design: Design,
    *,
    person: Person | None,
    counts: Counts | None = None,
    collapse: bool,
    dtype: Any,
) -> EncodedRows:
    """Return the rows that no policy drops, in order; see `nadpvi.private.records.make_records`.

    Guarantees
    ----------
    - The rows, and the error if there is one, are those of the table read at once: every row is encoded on
      its own, and of several faults the one that a whole table would show first is told.

    Raises
    ------
    DataError
        If a column is absent, or a cell is unusable and its policy is to refuse.
    """
    special = person if person is not None else counts
    _check_columns(parts.header, design, special)
    # With counts the table may be far longer than what is kept of it.
    num_rows = None if collapse else parts.num_rows
    growing = _GrowingRows(
        num_features=design.num_features, dtype=dtype, num_rows=num_rows, is_counted=counts is not None
    )
    numbers: dict[str, int] = {}
    persons: list[NDArray[np.int64]] = []
    for part in _encoded_parts(parts, design, special):
        growing.add(part, collapse=collapse)
        if part.ids is not None:
            # A dict compares texts as they are; pandas' factorize takes a lone surrogate and its escape for
            # one. Persons are numbered from 0 in order of first appearance.
            found = [numbers.setdefault(text, len(numbers)) for text in part.ids]
            persons.append(np.array(found, dtype=np.int64))
    rows = growing.finish(collapse=collapse)
    is_counted = counts is not None or (collapse and bool((rows.counts > 1).any()))
    numbers_of = np.concatenate(persons) if persons else None
    return EncodedRows(rows.x, rows.y, rows.counts if is_counted else None, numbers_of)


def _check_columns(header: pd.DataFrame, design: Design, special: Person | Counts | None) -> None:
    """Raise if a column that is needed is absent."""
    if special is not None:
        require_columns(header, (special.column,), known=(*design.schema.names, special.column))
    require_columns(header, design.predictors, known=design.predictors)
    require_columns(header, design.schema.names, known=design.schema.names)


def _encoded_parts(parts: TableParts, design: Design, special: Person | Counts | None) -> Iterator[_Part]:
    """Yield the usable rows of each part."""
    columns = (*design.schema.names, *(() if special is None else (special.column,)))
    frames = parts.read(columns)
    for frame in frames:
        try:
            yield _encode(frame, design, special)
        except DataError as error:
            raise _first_error(parts, chain([frame], frames), design, special, found=error) from None


def _encode(frame: pd.DataFrame, design: Design, special: Person | Counts | None) -> _Part:
    """Return the usable rows of one part."""
    x, has_features = encode_features(design, frame)
    y, has_outcome = encode_outcome(design, frame)
    is_usable = has_features & has_outcome
    ids = counts = None
    if isinstance(special, Person):
        ids = read_ids(frame[special.column], special)
        is_usable &= ids != NO_ID
        ids = ids[is_usable]
    elif special is not None:
        counts = encode_counts(special, frame)
        is_usable &= counts > 0
        counts = counts[is_usable]
    return _Part(x, y, ids, counts) if is_usable.all() else _Part(x[is_usable], y[is_usable], ids, counts)


def _first_error(
    parts: TableParts,
    frames: Iterable[pd.DataFrame],
    design: Design,
    special: Person | Counts | None,
    *,
    found: DataError,
) -> DataError:
    """Return the error that the whole table would give, of which `frames` are the parts not yet read.

    A whole table is checked column by column, and its message depends on the column's worst cell.
    """
    readers = _readers(design, special)
    first = len(readers)
    for frame in frames:
        first = next((i for i, (_, read) in enumerate(readers[:first]) if _fails(read, frame)), first)
    if first < len(readers):
        name, read = readers[first]
        try:
            read(pd.concat(list(parts.read((name,))), ignore_index=True))
        except DataError as error:
            return error
    return found


def _fails(read: _Reader, frame: pd.DataFrame) -> bool:
    """Return whether a column of this part is refused."""
    try:
        read(frame)
    except DataError:
        return True
    return False


def _readers(design: Design, special: Person | Counts | None) -> list[tuple[str, _Reader]]:
    """Return for each column, in the order of checking, its name and what reads it alone."""

    def reader_of(name: str) -> _Reader:
        alone = replace(design, predictors=(name,), intercept=False, terms=None)
        return lambda frame: encode_features(alone, frame)

    readers = [(name, reader_of(name)) for name in design.predictors]
    readers += [
        (name, lambda frame: encode_outcome(design, frame))
        for name in design.schema.names
        if name not in design.predictors
    ]
    if isinstance(special, Person):
        readers.append((special.column, lambda frame: read_ids(frame[special.column], special)))
    elif special is not None:
        readers.append((special.column, lambda frame: encode_counts(special, frame)))
    return readers


class _GrowingRows:
    """Rows that are added part by part and never copied as a whole, except where they collapse."""

    def __init__(self, *, num_features: int, dtype: Any, num_rows: int | None, is_counted: bool) -> None:
        room = _FIRST_ROWS if num_rows is None else num_rows
        self._x = np.empty((room, num_features), dtype=dtype)
        self._y = np.empty(room)
        self._counts = np.empty(0, dtype=np.int64)
        self._is_counted = is_counted
        self._size = 0
        self._most = _FIRST_ROWS

    def add(self, rows: _Part, *, collapse: bool) -> None:
        """Append rows, merged first if they are to collapse."""
        counts = np.ones(len(rows.y), dtype=np.int64) if rows.counts is None else rows.counts
        # In the type of storage: what is equal there is merged.
        part = CountedRows(rows.x.astype(self._x.dtype, copy=False), rows.y, counts)
        if collapse:
            part = collapsed(part)
        start, self._size = self._size, self._size + len(part.y)
        if self._size > len(self._y):
            self._make_room(int(_GROWTH * self._size))
        self._x[start : self._size] = part.x
        self._y[start : self._size] = part.y
        if collapse or self._is_counted:
            self._counts = np.concatenate([self._counts, part.counts])
        if collapse and self._size > self._most:
            self._collapse()

    def finish(self, *, collapse: bool) -> CountedRows:
        """Return the rows in arrays of their own, read-only; this object is used up."""
        self._make_room(self._size)
        if collapse:
            self._collapse()
        for array in (self._x, self._y, self._counts):
            array.setflags(write=False)
        return CountedRows(self._x, self._y, self._counts)

    def _collapse(self) -> None:
        """Merge equal rows, and wait with the next time until there are twice as many as are left now."""
        rows = CountedRows(self._x[: self._size], self._y[: self._size], self._counts)
        merged = collapsed(rows)
        if len(merged.y) < self._size:
            self._x, self._y, self._counts = merged
            self._size = len(merged.y)
        self._most = max(_FIRST_ROWS, 2 * self._size)

    def _make_room(self, num_rows: int) -> None:
        """Change the number of rows that fit, in place where the operating system can."""
        # No array shares this memory, so that no reference has to be counted.
        self._x.resize((num_rows, self._x.shape[1]), refcheck=False)
        self._y.resize(num_rows, refcheck=False)
