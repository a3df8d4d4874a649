"""The encoded private rows. This module is on the private side of the wall.

Nothing on the public side may import it, and what it holds must not travel: records do not print, and do not
pickle.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.cells import missing_cells
from nadpvi.columns import quoted
from nadpvi.encoding import Design, encode_features, encode_outcome
from nadpvi.errors import ArgumentError, DataError, PrivacyError
from nadpvi.schema import Person
from nadpvi.tables import TableLike, require_columns, to_table

__all__ = ["Records", "make_records"]

# Past this, a number is not an id, and writing it out in digits can fail.
_LARGEST_NUMBER = 1e300
_NO_ID = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Records:
    """Private rows ready for a model, and whose they are. Their number N and the number of units are private.

    A unit is what the guarantee protects: one row, or one person with all the rows kept of theirs.

    Attributes
    ----------
    x : ndarray, shape (N, F)
        Features, finite. Private; a read-only float64 copy.
    y : ndarray, shape (N,)
        Outcomes, finite. Private; a read-only float64 copy.
    unit_starts : ndarray of int64, shape (number of units + 1,), or None
        Unit i owns the rows from ``unit_starts[i]`` up to ``unit_starts[i + 1]``, at least one. Private; a
        read-only copy. None if each row is its own unit.

    Raises
    ------
    DataError
        If the shapes disagree, there is no row, an entry is not finite, or the units do not share out the
        rows.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    unit_starts: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        x = np.array(self.x, dtype=np.float64, order="C", copy=True)
        y = np.array(self.y, dtype=np.float64, order="C", copy=True)
        if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
            raise DataError("records need x of shape (N, F) and y of shape (N,) with one N")
        if len(y) == 0:
            raise DataError("the table has no usable row; a model needs at least one")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise DataError("records must be finite; encode the table by its schema first")
        arrays: dict[str, NDArray[Any]] = {"x": x, "y": y}
        if self.unit_starts is not None:
            arrays["unit_starts"] = _checked_starts(self.unit_starts, num_rows=len(y))
        for name, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def num_units(self) -> int:
        """How many units there are. Private, like the number of rows."""
        return len(self.y) if self.unit_starts is None else len(self.unit_starts) - 1

    def rows_of(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the indices of all rows of some units: unit after unit as given, each one's rows ascending.

        Parameters
        ----------
        units : ndarray of int64, shape (U,)
            Indices in [0, `num_units`), in any order. If each row is its own unit they are returned as they
            are.

        Returns
        -------
        ndarray of int64, shape (B,)
        """
        if self.unit_starts is None or self.num_units == len(self.y):
            return units
        starts = self.unit_starts[units]
        sizes = self.unit_starts[units + 1] - starts
        ends = np.cumsum(sizes)
        # Position among all the rows, minus that of the unit's first, plus the unit's first row.
        offsets = np.repeat(starts - (ends - sizes), sizes)
        return offsets + np.arange(len(offsets), dtype=np.int64)

    def __repr__(self) -> str:
        return "Records(private)"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("private records cannot be pickled or copied; encode the table where it is used")


def _checked_starts(starts: object, *, num_rows: int) -> NDArray[np.int64]:
    """Return a copy of the units' first rows, or raise unless they share out all rows."""
    given = np.asarray(starts)
    if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) < 2:
        raise DataError("records need unit_starts of whole numbers, one a unit and one for the end")
    copied = given.astype(np.int64)
    if copied[0] != 0 or copied[-1] != num_rows or (np.diff(copied) <= 0).any():
        raise DataError("records need unit_starts that rise from 0 to N; a unit owns at least one row")
    return copied


def make_records(
    table: TableLike,
    design: Design,
    *,
    person: Person | None = None,
    rng: np.random.Generator | None = None,
) -> Records:
    """Return a table's complete rows, encoded; with a person column, at most so many of each person.

    Rows that a column's policy drops (missing = "drop", unknown = "drop") are left out on both sides alike,
    and with a person column those without an id too, if its policy says so. Of the usable rows that are
    left, each person then keeps a random choice of at most ``person.max_rows``.

    Ids are compared as text, exactly as a CSV file would hold it, with capitals and blanks: the number 1,
    the float 1.0 and the text "1" are one id; the texts "1.0" and "01" are two others. None, NaN, NA and
    blank text are no id. A float tells whole numbers apart only up to a size (2^53 for float64); one beyond
    is refused.

    Guarantees
    ----------
    - A person with n usable rows keeps exactly ``min(n, person.max_rows)`` of them, and each such choice is
      equally likely: the rows go by a uniformly random permutation, which has no ties to break.
    - What a person keeps depends, in distribution, on their own rows alone: each row says by itself whether
      it is usable, and the order that a uniform permutation gives to one person's rows is uniform and
      independent of the others'. Adding or removing a person leaves the joint distribution of what all
      others keep as it was.
    - A person without a usable row is no unit: their rows and no rows are the same table.
    - Persons come in the order of their first usable row. It plays no part: every unit enters a step
      independently, with one probability, and its rows are summed.
    - The same table and the same state of `rng` give the same records, whether the table is a CSV file, a
      Parquet file or a DataFrame.

    Parameters
    ----------
    table : DataFrame, mapping of columns, or path
        Private.
    design : Design
        Public.
    person : Person, optional
        Public. None: each row is its own unit, and protects itself only.
    rng : numpy.random.Generator, optional
        Draws the rows that are kept; needed with `person`, and unused without. Secret, and cryptographic
        for a real release.

    Raises
    ------
    ArgumentError
        If `person` is given without `rng`, or its column is the outcome or a predictor.
    DataError
        If a column is absent, a cell is unusable and its policy is to refuse, or no row is left.
    """
    if person is not None:
        _check_person(person, design, rng)
    frame = to_table(table)
    if person is not None:
        require_columns(frame, (person.column,), known=(*design.schema.names, person.column))
    x, has_features = encode_features(design, frame)
    y, has_outcome = encode_outcome(design, frame)
    is_complete = has_features & has_outcome
    if person is None or rng is None:
        return Records(x=x, y=y) if is_complete.all() else Records(x=x[is_complete], y=y[is_complete])
    ids = _read_ids(frame[person.column], person)
    rows = np.flatnonzero(is_complete & (ids != _NO_ID))
    kept, unit_starts = _keep_rows(_number(ids[rows]), max_rows=person.max_rows, rng=rng)
    return Records(x=x[rows[kept]], y=y[rows[kept]], unit_starts=unit_starts)


class _Kept(NamedTuple):
    """The rows kept (N,), person by person, and where each person's begin (number of persons + 1,)."""

    rows: NDArray[np.int64]
    unit_starts: NDArray[np.int64]


def _keep_rows(persons: NDArray[np.int64], *, max_rows: int, rng: np.random.Generator) -> _Kept:
    """Return a uniformly random choice of at most `max_rows` rows for each person; see `make_records`.

    `persons` (N,) holds the number of each row's person; the numbers 0, 1, ... all occur.
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
    return _Kept(rows, np.concatenate([[0], ends]).astype(np.int64))


def _number(ids: Iterable[str]) -> NDArray[np.int64]:
    """Return the number of each id, counted from 0 in order of first appearance."""
    # A dict compares texts as they are; pandas' factorize takes a lone surrogate and its escape for one.
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in ids], dtype=np.int64)


def _check_person(person: object, design: Design, rng: object) -> None:
    """Raise unless a person column can be used with this design and there is chance to draw from."""
    if not isinstance(person, Person):
        raise ArgumentError(f"person must be a Person, the schema's (got {type(person).__name__}).")
    if person.column in design.schema:
        raise ArgumentError(
            f"person column {quoted(person.column)} is the outcome or a predictor; leave it out of the model"
        )
    if not isinstance(rng, np.random.Generator):
        raise ArgumentError(
            "rng must be a numpy Generator when there is a person column: it draws the rows that are kept "
            f"(got {type(rng).__name__})."
        )


def _read_ids(cells: "pd.Series[Any]", person: Person) -> NDArray[np.object_]:
    """Return each row's id as text (N,), "" where it has none."""
    objects = cells.to_numpy(dtype=object)
    largest_whole = _largest_whole(cells.dtype)
    is_na = missing_cells(cells)
    texts = [
        cell if isinstance(cell, str) else _NO_ID if na else _id_text(cell, largest_whole=largest_whole)
        for cell, na in zip(objects, is_na, strict=True)
    ]
    name = quoted(person.column)
    if None in texts:
        raise DataError(
            f"person column {name} holds ids that are neither text nor exact numbers; write them as text"
        )
    no_id = frozenset(person.missing_values)
    ids = np.empty(len(texts), dtype=object)
    ids[:] = [_NO_ID if text in no_id or text.isspace() else text for text in texts if text is not None]
    if person.missing == "refuse" and (ids == _NO_ID).any():
        raise DataError(
            f"person column {name} has rows without an id, and whose they are cannot be bounded; "
            'fill them in or declare missing = "drop" in [person]'
        )
    return ids


def _id_text(cell: object, *, largest_whole: float) -> str | None:
    """Return a cell that is not text as a CSV file would hold it, None if that would not tell ids apart."""
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell))
    if not isinstance(cell, Real | Decimal):
        return None
    number: Any = cell
    if number != number:
        return _NO_ID
    if not abs(number) < _LARGEST_NUMBER:
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
