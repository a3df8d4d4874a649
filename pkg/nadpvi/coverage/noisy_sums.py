"""The posterior of a rate given noisy sums of clamped outcomes and of records, on grids."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, pdtr

__all__ = ["share_moments", "sum_moments"]

Array = NDArray[np.float64]

_GRID, _NUM_ZOOMS = 301, 6
_NUM_RECORDS_GRID = 41
# Nothing is left of a density that is exp(-40) of its peak.
_LOG_NEGLIGIBLE = -40.0


def sum_moments(
    kind: str, noisy: Array, *, prior: Array, upper: float, noise_std: float
) -> tuple[Array, Array]:
    """Return mean and sd, each (1,), of the log rate given noisy sums of shares y/U and 1 - y/U.

    The number of records is not known, has a flat prior and is summed out. Given it and the rate, the sum of
    shares is taken as normal, the only approximation (the skewness of thousands of outcomes is some
    hundredths); the rate's posterior is read off a grid.
    """
    total, difference = noisy.sum(), noisy[0] - noisy[1]
    reach = 6.0 * math.sqrt(2.0) * noise_std
    num_records = np.linspace(max(1.0, total - reach), max(total, 0.0) + reach + 1.0, _NUM_RECORDS_GRID)
    log_weight = -np.square(num_records - total) / (4.0 * noise_std**2)
    shape, rate = prior

    def log_posterior(theta: Array) -> Array:
        mean, variance = share_moments(kind, theta, upper=upper)
        expected = np.outer(2.0 * mean - 1.0, num_records)
        spread = np.outer(4.0 * variance, num_records) + 2.0 * noise_std**2
        each = log_weight - 0.5 * np.log(spread) - 0.5 * np.square(difference - expected) / spread
        peak = each.max(axis=1)
        likelihood = peak + np.log(np.exp(each - peak[:, None]).sum(axis=1))
        # The gamma prior's density of the logarithm of the rate.
        logarithm: Array = likelihood + shape * theta - rate * np.exp(theta)
        return logarithm

    # The prior's support, generously: its log density falls by shape * theta to the left, by exp(theta) to
    # the right.
    centre = math.log(shape / rate)
    low, high = (
        centre - 60.0 / min(shape, 60.0) - 10.0 / math.sqrt(shape),
        centre + math.log1p(60.0 / shape) + 1.0,
    )
    for _ in range(_NUM_ZOOMS):
        theta = np.linspace(low, high, _GRID)
        logarithm = log_posterior(theta)
        inside = np.flatnonzero(logarithm > logarithm.max() + _LOG_NEGLIGIBLE)
        low, high = theta[max(inside[0] - 1, 0)], theta[min(inside[-1] + 1, _GRID - 1)]
    weights = np.exp(logarithm - logarithm.max())
    weights = weights / weights.sum()
    mean = float(weights @ theta)
    return np.array([mean]), np.array([math.sqrt(float(weights @ np.square(theta - mean)))])


def share_moments(kind: str, theta: Array, *, upper: float) -> tuple[Array, Array]:
    """Return mean and variance of min(y, U)/U, one outcome's share, for each log rate."""
    rate = np.exp(theta)
    if kind == "exponential_gamma":
        # Far below the clamp's inverse all outcomes are clamped alike, and the square of less would be 0.
        bound = np.maximum(rate * upper, 1e-100)
        mean = -np.expm1(-bound) / bound
        # The incomplete gamma function is 1 - exp(-bound) (1 + bound), without cancellation.
        square = 2.0 * gammainc(2.0, bound) / np.square(bound)
    else:
        at_most = [pdtr(k, rate) if k >= 0 else np.zeros_like(rate) for k in (upper, upper - 1, upper - 2)]
        mean = rate / upper * at_most[1] + (1.0 - at_most[0])
        square = (np.square(rate) * at_most[2] + rate * at_most[1]) / upper**2 + (1.0 - at_most[0])
    # Where all outcomes are clamped, two equal numbers are subtracted.
    return mean, np.maximum(square - np.square(mean), 0.0)
