"""Exact Poisson subsampling in time proportional to the sample, not to the table."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["poisson_sample"]


def poisson_sample(rng: np.random.Generator, *, num_records: int, sampling_rate: float) -> NDArray[np.int64]:
    """Return the sorted indices of one Poisson subsample.

    Every index enters independently with probability `sampling_rate`. The gaps between consecutive
    successes of independent trials are geometric, so only about ``sampling_rate * num_records`` numbers
    are drawn.

    Guarantees
    ----------
    - Inclusions are independent Bernoulli(`sampling_rate`) draws; no index occurs twice.
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
    expected = num_records * sampling_rate
    block = int(expected + 6.0 * np.sqrt(expected * (1.0 - sampling_rate)) + 16.0)
    blocks: list[NDArray[np.int64]] = []
    last = -1
    while last < num_records:
        # A gap beyond the table ends the sample whatever its size; the limit keeps the sum from wrapping.
        gaps = np.minimum(rng.geometric(sampling_rate, size=block), num_records + 1)
        positions = last + np.cumsum(gaps)
        blocks.append(positions)
        last = int(positions[-1])
    indices = np.concatenate(blocks)
    return indices[: int(np.searchsorted(indices, num_records))]
