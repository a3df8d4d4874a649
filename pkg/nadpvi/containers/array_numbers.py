"""Arrays and numbers that a user hands over, as float64 or one line that says what is wrong with them."""

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_real
from nadpvi.errors import ArgumentError

__all__ = ["real_array", "single_number"]

Array = NDArray[np.float64]


def real_array(name: str, values: Any, *, dims: tuple[int, ...], shape: str) -> Array:
    """Return a float64 array, NaN allowed.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    values : array_like
        What the user gave; text, booleans, complex numbers and masked entries are refused.
    dims : tuple of int
        How many axes it may have.
    shape : str
        The same in words, for the message.

    Raises
    ------
    ArgumentError
        If it is no array of real numbers with so many axes.
    """
    try:
        found = np.asanyarray(values)
        has_masked = np.ma.is_masked(found) or (
            isinstance(values, list | tuple) and any(np.ma.is_masked(row) for row in values)
        )
        is_real = found.dtype.kind in "iuf" or (
            found.dtype.kind == "O" and all(_is_real(entry) for entry in np.asarray(found).flat)
        )
        array = np.asarray(found, dtype=np.float64) if is_real else None
    # RuntimeError is PyTorch's for a tensor that is being differentiated
    except (TypeError, ValueError, RuntimeError, OverflowError):
        array, has_masked = None, False
    if array is None:
        raise ArgumentError(f"{name} must be an array of numbers, {shape}.")
    if has_masked:
        raise ArgumentError(
            f"{name} has masked entries, and every one is needed: fill them or leave them out."
        )
    if array.ndim not in dims:
        raise ArgumentError(f"{name} must be an array of {shape} (got {array.shape}).")
    return array


def _is_real(entry: object) -> bool:
    """Tell whether an entry of an array of objects is a real number."""
    return isinstance(entry, numbers.Real) and not isinstance(entry, bool | np.bool_)


def single_number(name: str, value: Any, *, rule: str, least: float = -math.inf) -> float:
    """Return a finite float of at least `least`; anything else is one line that ends in `rule`.

    Raises
    ------
    ArgumentError
        If it is an array, text, a boolean, or out of range.
    """
    if not isinstance(value, str | bytes) and hasattr(value, "__len__"):
        raise ArgumentError(f"{name} must be one number, {rule} (got type {type(value).__name__}).")
    number = check_real(name, value, rule=rule)
    if number < least:
        raise ArgumentError(f"{name} must be {rule} (got {value!r}).")
    return number
