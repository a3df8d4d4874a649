"""The records of many simulated runs, and the subsample of each at every step. Private side, never private.

A step sees records as *slots*: B of them for each of G replicates, slots first, with a multiplicity that is
zero where a slot is empty. Sums then run over the first axis, row by row, so that empty slots, the order of
replicates and their number cannot change a replicate's sum, not even by rounding.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.privacy.sampling import poisson_sample

__all__ = ["CountedRows", "LooseRows", "SampledRows", "Slots", "lay_out"]

Array = NDArray[np.float64]

# Steps whose randomness is drawn at once: long enough to keep Python out of the way, short enough to stay in
# cache. Subsamples of loose rows depend on it, so it must not change with the number of replicates.
_COUNTED_BLOCK = 64
_LOOSE_BLOCK = 16

# Replicates whose numbers are copied to their places together: a few lines of the cache.
_TOGETHER = 32


class Slots(NamedTuple):
    """One step's sample: statistics (P, B, G), (P, B, 1) where shared, and how often each counts (B, G)."""

    statistics: Array
    multiplicity: Array


class Draw(Protocol):
    """Fills an array with numbers of one replicate, from its own generator."""

    def __call__(self, rng: np.random.Generator, *, place: int, out: Array) -> None:
        """Draw the numbers of the replicate at `place` into `out`."""
        ...


def lay_out(target: Array, draw: Draw, *, generators: Sequence[np.random.Generator]) -> None:
    """Fill a view of shape (G, ...) replicate by replicate, wherever in memory its first axis runs.

    Written one replicate at a time, each number would go to another line of the cache.

    Parameters
    ----------
    target : ndarray, shape (G, ...)
        A view, whose first axis is the replicates; filled in place.
    draw : Draw
        Draws what one replicate needs.
    generators : sequence of numpy.random.Generator
        G of them.
    """
    together = np.empty((min(_TOGETHER, len(target)), *target.shape[1:]))
    for start in range(0, len(target), len(together)):
        part = target[start : start + len(together)]
        for place in range(start, start + len(part)):
            draw(generators[place], place=place, out=together[place - start])
        part[:] = together[: len(part)]


class SampledRows(Protocol):
    """Records of G replicates from which blocks of Poisson subsamples are drawn."""

    block_steps: int
    num_replicates: int

    def draw_block(self, generators: Sequence[np.random.Generator]) -> None:
        """Draw the subsamples of the next `block_steps` steps, each replicate's from its own generator."""
        ...

    def slots(self, index: int) -> Slots:
        """Return the sample of step `index` of the block; good until the next block is drawn."""
        ...


class CountedRows:
    """Few distinct rows, each held once with its count: sampled by one binomial number a row.

    Inclusions are independent with probability kappa, so how many of a row's copies enter is
    Binomial(count, kappa): the same mechanism as sampling the copies one by one.

    Parameters
    ----------
    statistics : ndarray, shape (P, M)
        Sufficient statistics of the M rows, which all replicates share.
    counts : ndarray of int64, shape (G, M)
        How many records of each replicate they stand for; zeros are allowed.
    sampling_rate : float
        kappa in (0, 1].
    """

    block_steps = _COUNTED_BLOCK

    def __init__(self, statistics: Array, *, counts: NDArray[np.int64], sampling_rate: float) -> None:
        self.num_replicates = len(counts)
        self._statistics = statistics[:, :, None]
        self._counts = counts
        self._sampling_rate = sampling_rate
        self._drawn = np.empty((self.block_steps, counts.shape[1], len(counts)))
        # With rate 1 everything enters, and nothing is drawn.
        self._drawn[:] = counts.T

    def draw_block(self, generators: Sequence[np.random.Generator]) -> None:
        """Draw the counts of the next block, row by row."""
        if self._sampling_rate < 1.0:
            lay_out(self._drawn.transpose(2, 1, 0), self._draw_counts, generators=generators)

    def _draw_counts(self, rng: np.random.Generator, *, place: int, out: Array) -> None:
        """Draw one replicate's counts, shape (M, steps)."""
        # One call a row: NumPy prepares its sampler once for each, which costs more than a number.
        for drawn, count in zip(out, self._counts[place].tolist(), strict=True):
            drawn[:] = rng.binomial(count, self._sampling_rate, size=self.block_steps)

    def slots(self, index: int) -> Slots:
        """Return the sample of step `index` of the block."""
        return Slots(self._statistics, self._drawn[index])


class LooseRows:
    """Records that are all different: sampled by geometric gaps, those of a block of steps in one go.

    The inclusions of N records in b steps are b * N independent trials, one after the other.

    Parameters
    ----------
    statistics : sequence of ndarray, each of shape (P, N_r)
        Sufficient statistics of each replicate's own records.
    sampling_rate : float
        kappa in (0, 1].
    """

    block_steps = _LOOSE_BLOCK

    def __init__(self, statistics: Sequence[Array], *, sampling_rate: float) -> None:
        self.num_replicates = len(statistics)
        self._statistics = statistics
        self._sampling_rate = sampling_rate
        self._sizes = np.zeros((self.block_steps, self.num_replicates), dtype=np.int64)
        self._values = np.empty((len(statistics[0]), self.num_replicates, self.block_steps, 0))

    def draw_block(self, generators: Sequence[np.random.Generator]) -> None:
        """Draw the subsamples of the next block and look their statistics up."""
        steps = np.arange(self.block_steps + 1)
        for place, (rng, statistics) in enumerate(zip(generators, self._statistics, strict=True)):
            num_records = statistics.shape[1]
            chosen = poisson_sample(
                rng, num_records=self.block_steps * num_records, sampling_rate=self._sampling_rate
            )
            sizes = np.diff(np.searchsorted(chosen, steps * num_records))
            self._make_room(int(sizes.max()))
            self._sizes[:, place] = sizes
            chosen -= np.repeat(steps[:-1] * num_records, sizes)
            is_filled = np.arange(self._values.shape[-1]) < sizes[:, None]
            for values, row in zip(self._values, statistics, strict=True):
                values[place][is_filled] = row[chosen]

    def slots(self, index: int) -> Slots:
        """Return the sample of step `index` of the block."""
        sizes = self._sizes[index]
        num_slots = int(sizes.max())
        # What lies beyond a replicate's sample is left over from an earlier one, and counts zero times.
        values = self._values[:, :, index, :num_slots].transpose(0, 2, 1)
        is_filled = np.arange(num_slots)[:, None] < sizes
        return Slots(np.ascontiguousarray(values), is_filled.astype(np.float64))

    def _make_room(self, num_slots: int) -> None:
        """Widen the buffer if a sample does not fit into it."""
        before = self._values.shape[-1]
        if num_slots > before:
            widened = np.zeros((*self._values.shape[:-1], num_slots + num_slots // 8))
            widened[..., :before] = self._values
            self._values = widened
