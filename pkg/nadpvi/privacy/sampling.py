"""Exact Poisson subsampling in time proportional to the sample, not to the table."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CountedSample", "CountedSampler", "poisson_sample"]

# From here on one number a record costs less than the gaps, and NumPy's geometric search, which never ends on
# the largest uniform, is not used.
_DENSE_RATE = 1.0 / 3.0

# A row that is expected to enter (or to stay out) so many times is drawn by NumPy's binomial: above 30 that
# is an exact rejection sampler, below it is an inversion that cuts the tail off, which gaps do not.
_MANY = 64


def poisson_sample(rng: np.random.Generator, *, num_records: int, sampling_rate: float) -> NDArray[np.int64]:
    """Return the sorted indices of one Poisson subsample.

    Every index enters independently with probability `sampling_rate`. The gaps between consecutive
    successes of independent trials are geometric, so only about ``sampling_rate * num_records`` numbers
    are drawn.

    Guarantees
    ----------
    - Inclusions are independent Bernoulli(`sampling_rate`) draws, to the 2^-53 of the generator's floats; no
      index occurs twice and every index is in [0, `num_records`).
    - An empty subsample is a valid result and is returned as such.
    - ``sampling_rate = 1`` returns every index and draws nothing.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness; cryptographic for a real release.
    num_records : int
        N >= 0. Private.
    sampling_rate : float
        kappa in (0, 1].

    Returns
    -------
    ndarray of int64, shape (B,)
    """
    if sampling_rate >= 1.0:
        return np.arange(num_records, dtype=np.int64)
    if sampling_rate >= _DENSE_RATE:
        return np.flatnonzero(rng.random(num_records) < sampling_rate)
    expected = num_records * sampling_rate
    block = int(expected + 6.0 * math.sqrt(expected * (1.0 - sampling_rate)) + 16.0)
    blocks: list[NDArray[np.int64]] = []
    last = -1
    while last < num_records:
        # A gap beyond the table ends the sample whatever its size, and the limit keeps the sum from wrapping.
        # NumPy returns a gap of 0, which no geometric variable has, with probability 2^-53.
        positions = rng.geometric(sampling_rate, size=block)
        np.maximum(positions, 1, out=positions)
        np.minimum(positions, num_records + 1, out=positions)
        positions[0] += last
        positions.cumsum(out=positions)
        blocks.append(positions)
        last = int(positions[-1])
    indices = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
    return indices[: int(indices.searchsorted(num_records))]


class CountedSample(NamedTuple):
    """Rows (B,), each at most once, and how many of its records entered (B,), which may be none. Private."""

    rows: NDArray[np.int64]
    multiplicities: NDArray[np.int64]

    def __repr__(self) -> str:
        return "CountedSample(private)"


class CountedSampler:
    """Poisson subsampling of records that come as rows with counts. Private.

    Row i stands for ``counts[i]`` records, each of which enters independently with the sampling rate, so that
    the row's multiplicity is Binomial(``counts[i]``, kappa). Rows of few records are drawn by the gaps of
    `poisson_sample` over all their records, rows of many by one binomial each. A draw costs about
    ``min(kappa N, 64 * number of rows)``, whatever the number of rows.

    Guarantees
    ----------
    - Multiplicities are independent over rows and have the distribution of as many independent
      Bernoulli(`sampling_rate`) draws, to the accuracy of the generator's floats.
    - It depends on counts alone by which of the two ways a row is drawn: both have one distribution.
    - ``sampling_rate = 1`` returns every row with its count and draws nothing.

    Parameters
    ----------
    counts : ndarray of int64, shape (R,)
        At least 1 each; their sum N is below 2^53.
    """

    __slots__ = ("_counts", "_ends", "_rows")

    def __init__(self, counts: NDArray[np.int64]) -> None:
        self._rows = np.argsort(counts, kind="stable").astype(np.int64, copy=False)
        self._counts = counts[self._rows]
        self._ends = np.cumsum(self._counts)

    def draw(self, rng: np.random.Generator, *, sampling_rate: float) -> CountedSample:
        """Return which rows enter one step, and how many times each.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness; cryptographic for a real release.
        sampling_rate : float
            kappa in (0, 1].
        """
        if sampling_rate >= 1.0:
            return CountedSample(self._rows, self._counts)
        rarer = min(sampling_rate, 1.0 - sampling_rate)
        split = int(np.searchsorted(self._counts, math.ceil(min(_MANY / rarer, 2.0**62))))
        many = rng.binomial(self._counts[split:], sampling_rate)
        ranks, few = self._draw_few(rng, split, sampling_rate=sampling_rate)
        return CountedSample(
            rows=np.concatenate([self._rows[ranks], self._rows[split:]]),
            multiplicities=np.concatenate([few, many]),
        )

    def _draw_few(
        self, rng: np.random.Generator, num_rows: int, *, sampling_rate: float
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return which of the `num_rows` rarest rows enter, and how many times, by way of their records."""
        num_records = int(self._ends[num_rows - 1]) if num_rows else 0
        # Above one half it is those left out that are drawn: they are fewer.
        is_dense = sampling_rate > 0.5
        rate = 1.0 - sampling_rate if is_dense else sampling_rate
        records = poisson_sample(rng, num_records=num_records, sampling_rate=rate)
        owners = np.searchsorted(self._ends[:num_rows], records, side="right")
        if is_dense:
            return np.arange(num_rows), self._counts[:num_rows] - np.bincount(owners, minlength=num_rows)
        # Records come in order, so that those of a row stand together.
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        return owners[starts], np.diff(starts, append=len(owners))

    def __repr__(self) -> str:
        return "CountedSampler(private)"
