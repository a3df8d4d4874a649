"""Whose row each row is: ids compared as text, and at most so many rows of each person. Private side."""

import re
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.cells import is_number, missing_cells
from nadpvi.columns import quoted
from nadpvi.errors import DataError
from nadpvi.schema import Person

__all__ = ["NO_ID", "KeptRows", "keep_rows", "read_ids"]

# Past this, a number is not an id, and writing it out in digits can fail: of either side of the point.
_LARGEST_NUMBER = 1e300
_MOST_DECIMALS = 300
NO_ID = ""
# How a file writes what follows a whole number in a column of floats: a code for "no id" is one there too.
_WHOLE = re.compile(r"(?<=[0-9])\.0+\Z", re.ASCII)


class KeptRows(NamedTuple):
    """The rows kept (N,), person by person, and where each person's begin (number of persons + 1,)."""

    rows: NDArray[np.int64]
    unit_starts: NDArray[np.int64]


def keep_rows(persons: NDArray[np.int64], *, max_rows: int, rng: np.random.Generator) -> KeptRows:
    """Return a uniformly random choice of at most `max_rows` rows for each person.

    Parameters
    ----------
    persons : ndarray of int64, shape (N,)
        The number of each row's person; the numbers 0, 1, ... all occur.
    max_rows : int
        At least 1.
    rng : numpy.random.Generator
        Secret, and cryptographic for a real release.
    """
    order = rng.permutation(len(persons))
    by_person = order[np.argsort(persons[order], kind="stable")]
    sizes = np.bincount(persons)
    ranks = np.arange(len(persons)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_kept = np.zeros(len(persons), dtype=np.bool_)
    is_kept[by_person[ranks < max_rows]] = True
    rows = np.flatnonzero(is_kept)
    # Back to the table's order within each person, so that chance shows only where there was a choice.
    rows = rows[np.argsort(persons[rows], kind="stable")]
    ends = np.cumsum(np.minimum(sizes, max_rows))
    return KeptRows(rows, np.concatenate([[0], ends]).astype(np.int64))


def read_ids(cells: "pd.Series[Any]", person: Person) -> NDArray[np.object_]:
    """Return each row's id as text (N,), "" where it has none; see `nadpvi.private.records.make_records`.

    Raises
    ------
    DataError
        If an id is neither text nor an exact number, or one is missing and the policy is to refuse. The
        message names the column; no row, value or count.
    """
    objects = cells.to_numpy(dtype=object)
    largest_whole = _largest_whole(cells.dtype)
    is_na = missing_cells(cells)
    texts = [
        cell if isinstance(cell, str) else NO_ID if na else _id_text(cell, largest_whole=largest_whole)
        for cell, na in zip(objects, is_na, strict=True)
    ]
    name = quoted(person.column)
    if None in texts:
        raise DataError(
            f"person column {name} holds ids that are neither text nor exact numbers; write them as text"
        )
    no_id = frozenset(person.missing_values)
    ids = np.empty(len(texts), dtype=object)
    ids[:] = [
        NO_ID if text in no_id or text.isspace() or _WHOLE.sub("", text) in no_id else text
        for text in texts
        if text is not None
    ]
    if person.missing == "refuse" and (ids == NO_ID).any():
        raise DataError(
            f"person column {name} has rows without an id, and whose they are cannot be bounded; "
            'fill them in or declare missing = "drop" in [person]'
        )
    return ids


def _id_text(cell: object, *, largest_whole: float) -> str | None:
    """Return a cell that is not text as a CSV file would hold it, None if that would not tell ids apart."""
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell))
    if not is_number(cell):
        return None
    number: Any = cell
    if isinstance(cell, np.float16 | np.float32):
        # One by one in a column of objects: a narrow one cannot be compared with what is below.
        largest_whole = min(largest_whole, _largest_whole(cell.dtype))
        number = float(cell)
    if number != number:
        return NO_ID
    if not abs(number) < _LARGEST_NUMBER:
        return None
    if isinstance(cell, Decimal) and cell and cell.adjusted() < -_MOST_DECIMALS:
        return None
    if number != int(number):
        # Decimals are equal whatever zeros they end with.
        return format(number, "f").rstrip("0") if isinstance(cell, Decimal) else str(float(number))
    is_float = isinstance(number, float | np.floating)
    return None if is_float and abs(float(number)) >= largest_whole else str(int(number))


def _largest_whole(dtype: Any) -> float:
    """Return up to which size floats of a column's type tell whole numbers apart."""
    inner = getattr(dtype, "subtype", getattr(dtype, "numpy_dtype", dtype))
    return 2.0 ** (np.finfo(inner).nmant + 1) if inner.kind == "f" else 2.0**53
