"""The encoded private rows. This module is on the private side of the wall.

Nothing on the public side may import it, and what it holds must not travel: records do not print, and do not
pickle.
"""

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from nadpvi.encoding import Design, encode_features, encode_outcome
from nadpvi.errors import DataError, PrivacyError
from nadpvi.tables import TableLike, to_table

__all__ = ["Records", "make_records"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Records:
    """Private rows ready for a model: one row a person. Their number N is private too.

    Attributes
    ----------
    x : ndarray, shape (N, F)
        Features, finite. Private; a read-only float64 copy.
    y : ndarray, shape (N,)
        Outcomes, finite. Private; a read-only float64 copy.

    Raises
    ------
    DataError
        If the shapes disagree, there is no row, or an entry is not finite.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]

    def __post_init__(self) -> None:
        x = np.array(self.x, dtype=np.float64, order="C", copy=True)
        y = np.array(self.y, dtype=np.float64, order="C", copy=True)
        if x.ndim != 2 or y.ndim != 1 or len(x) != len(y):
            raise DataError("records need x of shape (N, F) and y of shape (N,) with one N")
        if len(y) == 0:
            raise DataError("the table has no usable row; a model needs at least one")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise DataError("records must be finite; encode the table by its schema first")
        for name, array in (("x", x), ("y", y)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        return "Records(private)"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("private records cannot be pickled or copied; encode the table where it is used")


def make_records(table: TableLike, design: Design) -> Records:
    """Return a table's complete rows, encoded.

    Rows that a column's policy drops (missing = "drop", unknown = "drop") are left out on both sides alike.

    Parameters
    ----------
    table : DataFrame, mapping of columns, or path
        Private.
    design : Design
        Public.

    Raises
    ------
    DataError
        If a column is absent, a cell is unusable and its policy is to refuse, or no row is left.
    """
    frame = to_table(table)
    x, has_features = encode_features(design, frame)
    y, has_outcome = encode_outcome(design, frame)
    is_complete = has_features & has_outcome
    if is_complete.all():
        return Records(x=x, y=y)
    return Records(x=x[is_complete], y=y[is_complete])
