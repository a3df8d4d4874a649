"""Exact Poisson subsampling in time proportional to the sample, not to the table."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["poisson_sample"]

# From here on one number a record costs less than the gaps, and NumPy's geometric search, which never ends on
# the largest uniform, is not used.
_DENSE_RATE = 1.0 / 3.0


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
    block = int(expected + 6.0 * np.sqrt(expected * (1.0 - sampling_rate)) + 16.0)
    blocks: list[NDArray[np.int64]] = []
    last = -1
    while last < num_records:
        # A gap beyond the table ends the sample whatever its size, and the limit keeps the sum from wrapping.
        # NumPy returns a gap of 0, which no geometric variable has, with probability 2^-53.
        gaps = np.clip(rng.geometric(sampling_rate, size=block), 1, num_records + 1)
        positions = last + np.cumsum(gaps)
        blocks.append(positions)
        last = int(positions[-1])
    indices = np.concatenate(blocks)
    return indices[: int(np.searchsorted(indices, num_records))]
