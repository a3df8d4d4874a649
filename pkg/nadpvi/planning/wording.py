"""How a plan writes names, numbers and durations."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["duration", "number_range", "shown_names", "to_json"]

_MOST_NAMES = 5


def shown_names(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    """Return names as a line: the first few, and how many more there are.

    Examples
    --------
    >>> shown_names(["age", "job[a]", "job[b]", "job[c]", "job[d]", "job[e]", "job[f]"])
    'age, job[a], job[b], job[c], job[d] and 2 more'
    """
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def number_range(values: NDArray[np.float64]) -> str:
    """Return numbers as their least and largest, or as one where all are alike."""
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def duration(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    if seconds < 90:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def to_json(value: Any) -> Any:
    """Return arrays and tuples as lists, infinities as a text, and all else as it is."""
    if isinstance(value, np.ndarray | tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return "infinity" if value == float("inf") else value
