"""The encoded private rows. This module is on the private side of the wall.

Nothing on the public side may import it, and what it holds must not travel: records do not print, and do not
pickle.
"""

import mmap
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nadpvi.columns import quoted
from nadpvi.encoding import Design
from nadpvi.errors import ArgumentError, DataError, PrivacyError
from nadpvi.privacy.sampling import CountedSampler
from nadpvi.private.persons import keep_rows
from nadpvi.private.reading import encode_table
from nadpvi.row_columns import Counts, Person
from nadpvi.tables import TableLike, in_parts

__all__ = ["Records", "check_storage", "make_records"]

FloatArray = NDArray[np.float32] | NDArray[np.float64]

_STORAGE = {"float64": np.float64, "float32": np.float32}
_CHECKED_VALUES = 2**20
# Whole numbers up to here are exact in float64, which is what sums are made of.
_MOST_RECORDS = 2**53


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Records:
    """Private rows ready for a model, and whose they are. Their number N and the number of units are private.

    A unit is what the guarantee protects: one record, or one person with all the rows kept of theirs. A row
    is one record, or with `counts` several that are identical, each of which is a unit by itself.

    Arrays of float32 and float64 keep their type; others become float64. An array that is read-only together
    with all that it is a view of, such as a file mapped with ``numpy.load(..., mmap_mode="r")``, is taken as
    it is; any other is copied. A mapped file must not change while it is in use.

    Attributes
    ----------
    x : ndarray, shape (R, F)
        Features, finite. Private; read-only.
    y : ndarray, shape (R,)
        Outcomes, finite. Private; read-only.
    unit_starts : ndarray of int64, shape (number of units + 1,), or None
        Unit i owns the rows from ``unit_starts[i]`` up to ``unit_starts[i + 1]``, at least one. Private; a
        read-only copy. None if each record is its own unit.
    counts : ndarray of int64, shape (R,), or None
        Row i stands for ``counts[i]`` >= 1 identical records. Private; a read-only copy. None if each row is
        one record. Not together with `unit_starts`.

    Raises
    ------
    DataError
        If the shapes disagree, there is no row, an entry is not finite, the units do not share out the rows,
        or the counts are no counts.
    """

    x: FloatArray
    y: FloatArray
    unit_starts: NDArray[np.int64] | None = None
    counts: NDArray[np.int64] | None = None
    sampler: CountedSampler | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        x, y = _fixed(self.x), _fixed(self.y)
        if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
            raise DataError("records need x of shape (N, F) and y of shape (N,) with one N")
        if len(y) == 0:
            raise DataError("the table has no usable row; a model needs at least one")
        if not (_is_finite(x) and _is_finite(y)):
            raise DataError("records must be finite; encode the table by its schema first")
        arrays: dict[str, NDArray[Any]] = {"x": x, "y": y}
        if self.unit_starts is not None:
            arrays["unit_starts"] = _checked_starts(self.unit_starts, num_rows=len(y))
        if self.counts is not None:
            if self.unit_starts is not None:
                raise DataError("records have either counts or unit_starts; a person's rows come one by one")
            arrays["counts"] = _checked_counts(self.counts, num_rows=len(y))
            object.__setattr__(self, "sampler", CountedSampler(arrays["counts"]))
        for name, array in arrays.items():
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @property
    def num_records(self) -> int:
        """N, how many records there are, each row counted as often as it stands for one. Private."""
        return len(self.y) if self.counts is None else int(self.counts.sum())

    @property
    def num_units(self) -> int:
        """How many units there are. Private, like the number of records."""
        return self.num_records if self.unit_starts is None else len(self.unit_starts) - 1

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


def _fixed(values: object) -> FloatArray:
    """Return values as an array that nobody can write to: as they are if they are one, else a copy."""
    given: Any = np.asarray(values)
    is_stored = given.dtype in (np.float32, np.float64) and given.dtype.isnative and given.flags.c_contiguous
    if is_stored and _is_read_only(given):
        fixed: FloatArray = given
        return fixed
    copied: FloatArray = (
        np.array(given, dtype=np.float32, order="C", copy=True)
        if given.dtype.newbyteorder("=") == np.float32
        else np.array(given, dtype=np.float64, order="C", copy=True)
    )
    return copied


def _is_read_only(array: Any) -> bool:
    """Return whether no array can write to this one's memory."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    return array is None or isinstance(array, bytes | mmap.mmap)


def _is_finite(array: FloatArray) -> bool:
    """Return whether all entries are finite, without a temporary array of the same size."""
    step = max(1, _CHECKED_VALUES // max(1, array[:1].size))
    return all(bool(np.isfinite(array[i : i + step]).all()) for i in range(0, len(array), step))


def _checked_counts(counts: object, *, num_rows: int) -> NDArray[np.int64]:
    """Return a copy of the counts, or raise unless each row stands for a record or more."""
    given = np.asarray(counts)
    if given.shape != (num_rows,) or given.dtype.kind not in "iu":
        raise DataError("records need counts of whole numbers, one a row")
    if given.min() < 1:
        raise DataError("records need counts of at least 1; leave out rows that stand for no record")
    if given.sum(dtype=np.float64) >= _MOST_RECORDS:
        raise DataError("records need counts whose sum is below 2^53")
    return given.astype(np.int64)


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
    counts: Counts | None = None,
    rng: np.random.Generator | None = None,
    collapse: bool = False,
    storage: str = "float64",
) -> Records:
    """Return a table's complete rows, encoded; with a person column, at most so many of each person.

    The table is read in parts, so that besides the encoded rows only a small part of it is in memory, unless
    it comes as a DataFrame. Nothing is written to disk.

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
    - With `counts` the records are those of the table in which each row is written out as often as it
      counts: each of them is a unit. Adding or removing one changes one row's count by one or, if the count
      is at its upper bound, nothing.
    - `collapse` changes how records are stored, not which there are: rows of equal bits are one row with
      their number, by which it enters sampling, clipping and summing as they would.

    Parameters
    ----------
    table : DataFrame, mapping of columns, or path
        Private.
    design : Design
        Public.
    person : Person, optional
        Public. None: each row is its own unit, and protects itself only.
    counts : Counts, optional
        Public. Names the column that says how many records a row stands for; not together with `person`.
    rng : numpy.random.Generator, optional
        Draws the rows that are kept; needed with `person`, and unused without. Secret, and cryptographic
        for a real release.
    collapse : bool
        Store identical rows once, with counts; not together with `person`. It pays where few distinct rows
        are left after encoding, as with levels and counts, and costs a sort of the rows.
    storage : "float64" or "float32"
        How features are stored. float32 halves the memory; features are then rounded to 24 binary digits,
        in [0, 1] by at most 3e-8. Outcomes are float64 always, and so is all arithmetic.

    Raises
    ------
    ArgumentError
        If `person` is given without `rng` or with `collapse`, its column is the outcome or a predictor, or
        some row's features would be too large for `storage`.
    DataError
        If a column is absent, a cell is unusable and its policy is to refuse, or no row is left.
    """
    check_storage(storage)
    ends = (abs(end) for bound in design.feature_bounds for end in bound)
    if max(ends, default=0.0) > float(np.finfo(storage).max):
        # By the bounds: one row alone must not decide whether there is an error.
        raise ArgumentError('storage="float32" ends at 3.4e38, and features may be larger: use "float64".')
    if person is not None:
        _check_person(person, design, rng)
        if counts is not None:
            raise ArgumentError("records have a person or counts, not both: a person's rows come one by one.")
        if collapse:
            raise ArgumentError("collapse is for records that are units; leave it out with a person column.")
    rows = encode_table(
        in_parts(table),
        design,
        person=person,
        counts=counts,
        collapse=collapse,
        dtype=_STORAGE[storage],
    )
    if person is None or rng is None or rows.persons is None:
        return Records(x=rows.x, y=rows.y, counts=rows.counts)
    kept, unit_starts = keep_rows(rows.persons, max_rows=person.max_rows, rng=rng)
    return Records(x=rows.x[kept], y=rows.y[kept], unit_starts=unit_starts)


def check_storage(storage: object) -> None:
    """Raise `ArgumentError` unless it names a type in which features are stored."""
    if storage not in tuple(_STORAGE):
        raise ArgumentError(f'storage must be "float64" or "float32" (got {storage!r}).')


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
