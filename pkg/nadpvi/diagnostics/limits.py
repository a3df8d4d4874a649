"""What the checks of a window share: their level, what they are told, and how they mark coordinates.

A test of D coordinates is made at a level that keeps the chance of any false alarm over all of them below
`FALSE_ALARM` (Bonferroni). Thresholds of size beside it say when what is significant also matters; those
called measured are from ``benchmarks/diagnostics.py``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nadpvi.diagnostics.window import WindowNumbers

__all__ = ["FALSE_ALARM", "FEW_RELAXATIONS", "Subject", "by_kind", "critical", "stationarity_scores"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# Of each check over a whole release; six of them make such tests.
FALSE_ALARM = 0.005
# Measured: 90 % intervals cover 0.80 to 0.86 where the window truly holds 1 to 4 relaxation times, 0.84 with
# 8, and 0.87 with 16. The slope sees up to 4 more than there are.
FEW_RELAXATIONS = 8.0


class Subject(NamedTuple):
    """What the checks are told besides a window's numbers.

    Attributes
    ----------
    labels : sequence of str
        Names of the D coordinates.
    is_location : ndarray of bool, shape (D,)
        Whether a coordinate is a location of the guide, or else one of its scales.
    guide_sd : ndarray, shape (D,)
        The guide's own sd of a location; 0 for anything else.
    is_released : ndarray of bool, shape (D,)
        Whether a coordinate's curvature was released, and is what inference takes it to be.
    is_diagonal : bool
        Whether the curvature is taken to be diagonal.
    has_tau : bool
        Whether extra variance is part of the model.
    is_model_prior : bool
        Whether phi_star has the model's own prior.
    """

    labels: Sequence[str]
    is_location: BoolArray
    guide_sd: FloatArray
    is_released: BoolArray
    is_diagonal: bool = True
    has_tau: bool = True
    is_model_prior: bool = False


def critical(num_tests: int, freedom: FloatArray | float = np.inf) -> FloatArray:
    """Return the two-sided limit that none of `num_tests` scores passes but with chance `FALSE_ALARM`.

    Examples
    --------
    >>> critical(100).round(2).item(), critical(100, 10.0).round(2).item()
    (4.06, 6.76)
    """
    limit: FloatArray = np.asarray(stats.t.isf(0.5 * FALSE_ALARM / num_tests, freedom))
    return limit


def stationarity_scores(numbers: WindowNumbers) -> FloatArray:
    """Return the larger of drift and start, each over its own limit, shape (D,); 0 where neither is known."""
    size = len(numbers.drift)
    with np.errstate(invalid="ignore"):
        drift = np.abs(numbers.drift) / critical(2 * size, numbers.drift_freedom)
        start = np.abs(numbers.start) / critical(2 * size, numbers.start_freedom)
    scores: FloatArray = np.fmax(np.nan_to_num(drift), np.nan_to_num(start))
    return scores


def by_kind(is_bad: BoolArray, is_grave: BoolArray) -> tuple[tuple[str, BoolArray], tuple[str, BoolArray]]:
    """Return the marked coordinates as warnings where grave, and as notes elsewhere."""
    return ("warning", is_bad & is_grave), ("note", is_bad & ~is_grave)
