"""Simulation-based calibration: ranks as a uniform sample, with a band for the whole of its curve."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.checks import check_count
from nadpvi.coverage.null import curve_counts, p_value, smallest_tail, uniform_null
from nadpvi.coverage.tarp import check_replicates
from nadpvi.errors import ArgumentError
from nadpvi.privacy.randomness import check_seed

__all__ = ["CalibrationTest", "calibration_ranks", "calibration_test"]

Array = NDArray[np.float64]

_LEVEL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CalibrationTest:
    """Empirical distribution functions of the ranks of K parameters over R replicates.

    Attributes
    ----------
    levels : ndarray, shape (A,)
        Where the functions are evaluated; each level is also the value of a perfect one.
    ecdf : ndarray, shape (K, A)
        Share of replicates whose rank is below the level.
    band : ndarray, shape (2, A)
        Edges within which 95 % of perfect functions stay whole, at all levels at once.
    p_value : ndarray, shape (K,)
        Probability that a perfect function comes as close to leaving its band, (r + 1) / (n + 1).
    num_replicates : int
        R.
    """

    levels: Array
    ecdf: Array
    band: Array
    p_value: Array
    num_replicates: int

    @property
    def is_rejected(self) -> NDArray[np.bool_]:
        """Whether each parameter's function leaves the band, shape (K,). Of K perfect ones, 5 % do."""
        return self.p_value <= _LEVEL


def calibration_ranks(ranks: ArrayLike, *, num_draws: ArrayLike, seed: int) -> Array:
    """Return ranks among draws as numbers in (0, 1), shape (R, K), uniform for a perfect posterior.

    Parameters
    ----------
    ranks : ndarray, shape (R, K)
        Whole numbers 0 to `num_draws`, ``rank`` of `score_draws`.
    num_draws : int or ndarray, shape (R,)
        Number of draws of each replicate.
    seed : int
        Places a rank at random within its step, so that any grid of levels may follow.

    Raises
    ------
    ArgumentError
        If there are fewer than 10 replicates, or a rank is outside its range.
    """
    values = check_replicates("ranks", ranks)
    sizes = np.broadcast_to(np.asarray(num_draws, dtype=np.float64).reshape(-1, 1), (len(values), 1))
    if (values < 0).any() or (values > sizes).any() or (values != np.floor(values)).any():
        raise ArgumentError("ranks must be whole numbers from 0 to num_draws.")
    rng = np.random.default_rng(check_seed("seed", seed))
    places: Array = (values + rng.random(values.shape)) / (sizes + 1.0)
    return places


def calibration_test(places: ArrayLike, *, num_levels: int = 99) -> CalibrationTest:
    """Return the distribution functions of `calibration_ranks`, their simultaneous band and p-values.

    Parameters
    ----------
    places : ndarray, shape (R, K)
        From `calibration_ranks`.
    num_levels : int
        Size A of the grid i / (A + 1).

    Raises
    ------
    ArgumentError
        If there are fewer than 10 replicates.

    Examples
    --------
    >>> found = calibration_test(np.random.default_rng(0).random((300, 2)))
    >>> found.is_rejected
    array([False, False])
    """
    values = check_replicates("places", places)
    if values.min() < 0.0 or values.max() > 1.0:
        raise ArgumentError("places must be in [0, 1]; see calibration_ranks.")
    null = uniform_null(len(values), check_count("num_levels", num_levels))
    counts = curve_counts(values, null.levels)
    tails = smallest_tail(counts, null.levels, num_replicates=len(values))
    return CalibrationTest(
        levels=null.levels,
        ecdf=counts / len(values),
        band=null.band,
        p_value=np.array([p_value(null.tail, float(tail), large_is_extreme=False) for tail in tails]),
        num_replicates=len(values),
    )
