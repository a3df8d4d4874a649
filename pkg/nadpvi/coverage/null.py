"""How far the curve of K uniform numbers strays from the diagonal: the null of every coverage test.

References
----------
.. [1] Säilynoja, Bürkner and Vehtari (2022). Graphical test for discrete uniformity and its applications in
   goodness-of-fit evaluation and multiple sample comparison. Statistics and Computing 32.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc
from scipy.stats import binom

__all__ = ["NUM_SIMULATIONS", "UniformNull", "curve_counts", "p_value", "smallest_tail", "uniform_null"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

NUM_SIMULATIONS = 9_999
_BAND = 0.95


class UniformNull(NamedTuple):
    """Simulated curves of `num_replicates` uniform numbers on a grid of `num_points` levels.

    levels : (A,), the grid i / (A + 1). rmse : (n,), sorted distances to the diagonal, eq. (15). tail : (n,),
    sorted smallest pointwise tail probabilities. band : (2, A), edges within which 95 % of curves stay whole.
    """

    levels: Array
    rmse: Array
    tail: Array
    band: Array


@lru_cache(maxsize=64)
def uniform_null(num_replicates: int, num_points: int) -> UniformNull:
    """Return the null for a number of replicates and of levels; the same numbers in every process.

    The band is that of [1]_, with the pointwise probability chosen by simulation.
    """
    levels = np.arange(1, num_points + 1) / (num_points + 1)
    rng = np.random.default_rng([num_replicates, num_points])
    shares = np.full(num_points + 1, 1.0 / (num_points + 1))
    bins = rng.multinomial(num_replicates, shares, size=NUM_SIMULATIONS)
    counts = np.cumsum(bins, axis=1)[:, :-1]
    rmse = np.sqrt(np.square(counts / num_replicates - levels).mean(axis=1))
    tail = np.sort(smallest_tail(counts, levels, num_replicates=num_replicates))
    # The band is where the pointwise tail stays at or above what 5 % of curves fall below.
    critical = tail[int(NUM_SIMULATIONS * (1.0 - _BAND))]
    edges = binom.ppf(critical, num_replicates, levels), binom.isf(critical, num_replicates, levels)
    null = UniformNull(levels, np.sort(rmse), tail, np.stack(edges) / num_replicates)
    for array in null:
        array.setflags(write=False)
    return null


def smallest_tail(counts: Counts, levels: Array, *, num_replicates: int) -> Array:
    """Return each curve's smallest pointwise tail probability, (..., A) -> (...)."""
    smallest = np.ones(counts.shape[:-1])
    # Level by level: few counts are different, and the binomial distribution is dear.
    for index, level in enumerate(levels):
        column = counts[..., index]
        different = np.arange(column.min(), column.max() + 1)
        lower = bdtr(different, num_replicates, level)
        # Every curve is at or above 0, which bdtrc does not know.
        upper = np.where(different > 0, bdtrc(np.maximum(different - 1, 0), num_replicates, level), 1.0)
        smallest = np.minimum(smallest, np.minimum(lower, upper)[column - different[0]])
    return smallest


def curve_counts(values: Array, levels: Array) -> Counts:
    """Return how many of the R values are below each level, columnwise: (R, F) -> (F, A)."""
    counts = [np.searchsorted(np.sort(column), levels, side="left") for column in values.T]
    return np.stack(counts).astype(np.int64)


def p_value(null: Array, observed: float, *, large_is_extreme: bool) -> float:
    """Return (r + 1) / (n + 1), r of the n sorted null values being at least as extreme as that observed."""
    if large_is_extreme:
        extreme = len(null) - np.searchsorted(null, observed, side="left")
    else:
        extreme = np.searchsorted(null, observed, side="right")
    return (int(extreme) + 1) / (len(null) + 1)
