"""How far the sum over a Poisson sample is from the Gaussian that stands for it (Eq. 9). Public side."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.checks import check_real
from nadpvi.errors import ArgumentError

__all__ = ["SubsampledSum", "subsampled_sum"]

Array = NDArray[np.float64]

# Shevtsova 2010, Doklady Mathematics 82, 862: summands that are independent but not alike.
_BERRY_ESSEEN = 0.56


class SubsampledSum(NamedTuple):
    """The sum of the gradients in one Poisson sample, with privacy noise if there is any.

    Parameters
    ----------
    mean : ndarray, shape (D,)
    covariance : ndarray, shape (D, D)
    skewness : ndarray, shape (D,)
        Of each coordinate; 0 where it has no variance.
    distance_bound : ndarray, shape (D,)
        No coordinate's distribution function is further than this from its Gaussian's (Berry and Esseen).
    """

    mean: Array
    covariance: Array
    skewness: Array
    distance_bound: Array

    @property
    def expected_distance(self) -> Array:
        """What skewness alone makes the largest difference (Edgeworth's first term), shape (D,)."""
        distance: Array = np.abs(self.skewness) / (6.0 * math.sqrt(2.0 * math.pi))
        return distance


def subsampled_sum(
    gradients: ArrayLike, *, sampling_rate: float, counts: ArrayLike | None = None, noise_std: ArrayLike = 0.0
) -> SubsampledSum:
    """Return the first moments of the sum over one Poisson sample, and how near its law is to a Gaussian.

    Each gradient g enters with probability kappa by itself, so that the sum has mean ``kappa sum g``,
    covariance ``kappa (1 - kappa) sum g g'`` and third cumulants ``kappa (1 - kappa) (1 - 2 kappa) sum g^3``.
    The covariance is about zero, not about the mean gradient: the sample's size varies too.

    Parameters
    ----------
    gradients : array_like, shape (N, D)
        Clipped gradients of simulated records.
    sampling_rate : float
        kappa in (0, 1].
    counts : array_like, shape (N,), optional
        How many records each row stands for; one each when omitted.
    noise_std : array_like, shape (D,) or scalar
        sigma C / beta, of Gaussian noise added to the sum.

    Raises
    ------
    ArgumentError
        If `sampling_rate` is not in (0, 1], or shapes do not fit.

    Examples
    --------
    >>> found = subsampled_sum([[1.0], [-1.0]], sampling_rate=0.5, counts=[300, 100])
    >>> found.mean, found.covariance, found.skewness
    (array([100.]), array([[100.]]), array([0.]))
    """
    rows = np.asarray(gradients, dtype=np.float64)
    times = np.ones(len(rows)) if counts is None else np.asarray(counts, dtype=np.float64)
    if rows.ndim != 2 or times.shape != rows.shape[:1]:
        raise ArgumentError("gradients must have shape (N, D), and counts (N,).")
    rate = check_real("sampling_rate", sampling_rate)
    if not 0.0 < rate <= 1.0:
        raise ArgumentError(f"sampling_rate must be in (0, 1] (got {rate:g}).")
    spread = rate * (1.0 - rate)
    noise = np.broadcast_to(np.asarray(noise_std, dtype=np.float64), rows.shape[1:])
    covariance = spread * (rows.T * times) @ rows + np.diag(noise**2)
    cubes = np.diag(covariance) ** 1.5
    third = spread * (1.0 - 2.0 * rate) * (times @ rows**3)
    absolute = spread * (rate**2 + (1.0 - rate) ** 2) * (times @ np.abs(rows) ** 3)
    return SubsampledSum(
        mean=rate * (times @ rows),
        covariance=covariance,
        skewness=np.divide(third, cubes, out=np.zeros_like(cubes), where=cubes > 0),
        distance_bound=_BERRY_ESSEEN * np.divide(absolute, cubes, out=np.zeros_like(cubes), where=cubes > 0),
    )
