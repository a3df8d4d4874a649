"""Argument checks that many modules share: each returns the value in its own type, or raises one line."""

import math
import numbers

from nadpvi.errors import ArgumentError

__all__ = ["check_count", "check_positive", "check_probability", "check_real"]


def check_real(name: str, value: object, *, rule: str = "a finite number") -> float:
    """Return `value` as a finite float; text, booleans, None and NaN are refused.

    Parameters
    ----------
    name : str
        The argument's name, for the message.
    value : object
        What the user gave.
    rule : str
        What the argument must be, for the message.

    Raises
    ------
    ArgumentError
        If `value` is not a finite real number.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ArgumentError(f"{name} must be {rule} (got {value!r}).")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ArgumentError(f"{name} must be {rule} (got {value!r}).")
    return number


def check_positive(name: str, value: object) -> float:
    """Return `value` as a finite float above 0, or raise `ArgumentError`."""
    number = check_real(name, value, rule="finite and positive")
    if number <= 0.0:
        raise ArgumentError(f"{name} must be finite and positive (got {value!r}).")
    return number


def check_probability(name: str, value: object) -> float:
    """Return `value` as a float in (0, 1), or raise `ArgumentError`."""
    number = check_real(name, value, rule="in (0, 1)")
    if not 0.0 < number < 1.0:
        raise ArgumentError(f"{name} must be in (0, 1) (got {value!r}).")
    return number


def check_count(name: str, value: object) -> int:
    """Return `value` as an integer of at least 1, or raise `ArgumentError`."""
    rule = "a whole number of at least 1"
    number = check_real(name, value, rule=rule)
    if number != int(number) or number < 1:
        raise ArgumentError(f"{name} must be {rule} (got {value!r}).")
    return int(number)
