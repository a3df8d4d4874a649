"""Data for Stan programs as plain numbers: what is neither a number nor finite is refused by name."""

from collections.abc import Mapping

import numpy as np

from nadpvi.errors import ArgumentError

__all__ = ["StanData", "StanValue", "check_data"]

StanValue = int | float | list[object]
StanData = Mapping[str, object]


def check_data(data: StanData) -> dict[str, StanValue]:
    """Return the data as plain ints, floats and nested lists, ready for JSON.

    Whether a number is int or real stays as it was given: 20.0 is not turned into 20, and Stan refuses it
    where the program declares an int.

    Raises
    ------
    ArgumentError
        If an entry is not numeric or not finite; the entry is named.

    Examples
    --------
    >>> check_data({"N": np.int64(2), "y": np.array([1.0, 2.5])})
    {'N': 2, 'y': [1.0, 2.5]}
    """
    checked: dict[str, StanValue] = {}
    for name, value in data.items():
        array = np.asarray(value)
        if array.size == 0:
            array = array.astype(np.float64)
        if array.dtype.kind not in "iufb":
            raise ArgumentError(f"Stan data {name!r} must be numeric (got {type(value).__name__}).")
        if array.dtype.kind == "b":
            array = array.astype(np.int64)
        finite = np.isfinite(array)
        if not finite.all():
            count = int(array.size - np.count_nonzero(finite))
            raise ArgumentError(
                f"Stan data {name!r} must be finite ({count} of {array.size} entries are not)."
            )
        checked[name] = array.tolist()
    return checked
