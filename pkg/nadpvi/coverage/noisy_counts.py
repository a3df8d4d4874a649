"""The posterior of levels' probabilities given counts with Gaussian noise, summed over whole counts."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

from nadpvi.errors import ArgumentError
from nadpvi.supports import log_levels_after

__all__ = ["count_moments"]

Array = NDArray[np.float64]

# Whole counts this many noise sds away have no weight to speak of.
_REACH = 9.0


class _Counts(NamedTuple):
    """Weights of the whole counts from `first` on, and the concentration that belongs to them."""

    first: float
    weights: Array
    concentration: float


def count_moments(noisy: Array, *, concentrations: Array, noise_std: float) -> tuple[Array, Array]:
    """Return mean and sd, each (K,), of stick-breaking coordinates given noisy counts of C = K + 1 levels.

    Levels' probabilities are a priori Dirichlet, and the number of records n, which is not known, has a flat
    prior. The weight of counts c is then the product over levels of normal(noisy; c) Gamma(a + c) / c!, times
    f(n) = n! / Gamma(n + sum of a). Given the counts a coordinate is the log ratio of two independent gamma
    variables, of a level and of all after it. All sums over the counts of other levels are convolutions.
    """
    concentration = float(concentrations.sum())
    # f is steep. Its slope goes into the levels' weights, so that no convolution holds numbers of all sizes;
    # it is taken where counts are likely, s^2 / |noisy| for those that noise made negative.
    middle = float(0.5 * (noisy + np.hypot(noisy, 2.0 * noise_std)).sum())
    slope = float(digamma(middle + concentration) - digamma(middle + 1.0))
    levels = [_level(value, a, noise_std, slope) for value, a in zip(noisy, concentrations, strict=True)]
    after = levels[-1:]
    for level in levels[-2:0:-1]:
        after.insert(0, _add(level, after[0]))
    before = _Counts(0.0, np.ones(1), 0.0)
    mean, variance = np.empty((2, len(noisy) - 1))
    for k, rest in enumerate(after):
        mean[k], variance[k] = _log_ratio(levels[k], rest, before, slope)
        before = _add(levels[k], before)
    return mean + log_levels_after(len(mean)), np.sqrt(variance)


def _level(noisy: float, concentration: float, noise_std: float, slope: float) -> _Counts:
    """Return the weights of one level's count."""
    reach = _REACH * noise_std + 1.0
    count = np.arange(np.floor(max(noisy - reach, 0.0)), np.ceil(max(noisy, 0.0) + reach) + 1.0)
    logarithm = -0.5 * np.square((count - noisy) / noise_std) - slope * count
    logarithm += gammaln(concentration + count) - gammaln(count + 1.0)
    weights = np.exp(logarithm - logarithm.max())
    return _Counts(float(count[0]), weights / weights.sum(), float(concentration))


def _add(one: _Counts, other: _Counts) -> _Counts:
    """Return the weights of the sum of two counts."""
    return _Counts(
        one.first + other.first,
        np.convolve(one.weights, other.weights),
        one.concentration + other.concentration,
    )


def _log_ratio(level: _Counts, rest: _Counts, before: _Counts, slope: float) -> tuple[float, float]:
    """Return mean and variance of the log ratio of the gamma variables of a level and of all after it."""
    concentration = level.concentration + rest.concentration + before.concentration
    sizes = len(level.weights) + len(rest.weights) + len(before.weights) - 2
    total = level.first + rest.first + before.first + np.arange(sizes)
    log_f = gammaln(total + 1.0) - gammaln(total + concentration) + slope * total
    both = np.correlate(np.exp(log_f - log_f.max()), before.weights, mode="valid")
    together = level.weights * np.correlate(both, rest.weights, mode="valid")
    if together.sum() == 0.0:
        raise ArgumentError(
            f"prior must not hold {concentration:.6g} imagined records where noise hides all real ones: the "
            "optimum cannot be summed there."
        )
    parts = []
    for one, other in ((level, rest), (rest, level)):
        weights = one.weights * np.correlate(both, other.weights, mode="valid")
        weights = weights / weights.sum()
        shape = one.concentration + one.first + np.arange(len(weights))
        centre = digamma(shape)
        mean = float(weights @ centre)
        away = centre - mean
        parts.append((mean, away, float(weights @ (np.square(away) + polygamma(1, shape)))))
    (above, away_above, spread_above), (below, away_below, spread_below) = parts
    crossed = level.weights * away_above * np.correlate(both, rest.weights * away_below, mode="valid")
    return above - below, spread_above + spread_below - 2.0 * float(crossed.sum() / together.sum())
