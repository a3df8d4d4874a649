"""The mechanism broken on purpose, one fault at a time, by wrapping the real functions that a run calls.

Each entry of `MUTANTS` has a context manager, within which the engine and `nadpvi.release` have the fault
while what they claim stays what it was, and the data sets on which an auditor would look for it: a batch
size that divides the noise needs a crowd, a fixed batch size one that stands against the canary.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from audit_pairs import ALONE, CROWD, OPPOSED, PERSON, Pair
from numpy.typing import NDArray

from nadpvi.privacy.noise import DiscreteGaussianNoise, NoiseSource, SimulatedGaussianNoise
from nadpvi.privacy.sampling import poisson_sample
from nadpvi.private import dpvi, records
from nadpvi.private.dpsgd import clipped_sum, release_gradient

Array = NDArray[np.float64]


class _Altered:
    """A noise source whose draws are put through a function."""

    def __init__(self, source: NoiseSource, change: Callable[[NoiseSource], Array]) -> None:
        self.grid_units, self.is_private, self.mechanism = (
            source.grid_units,
            source.is_private,
            source.mechanism,
        )
        self._source, self._change = source, change

    def draw(self) -> Array:
        return self._change(self._source)


@contextmanager
def _noise_on_the_mean(*, realised: bool) -> Iterator[None]:
    """Noise of sd sigma * C is divided by the batch size along with the sum: as if it had been averaged."""
    sizes: list[float] = []

    def counted(rng: np.random.Generator, *, num_records: int, sampling_rate: float) -> NDArray[np.int64]:
        indices = poisson_sample(rng, num_records=num_records, sampling_rate=sampling_rate)
        sizes.append(max(1.0, len(indices) if realised else sampling_rate * num_records))
        return indices

    def averaged(total: Array, *, noise: NoiseSource, **rest: Any) -> Array:
        source = _Altered(noise, lambda real: real.draw() / sizes[-1])
        return release_gradient(total, noise=source, **rest)

    with (
        patch("nadpvi.private.dpvi.poisson_sample", counted),
        patch("nadpvi.private.dpvi.release_gradient", averaged),
    ):
        yield


@contextmanager
def _no_clipping() -> Iterator[None]:
    """Clipping to 1024 C, with the grid and the noise as they are for C."""
    looser = 1024

    def unclipped(gradients: Any, *, clip_norm: float, grid_units: int | None, **rest: Any) -> Array:
        total = clipped_sum(
            gradients,
            clip_norm=looser * clip_norm,
            grid_units=None if grid_units is None else looser * grid_units,
            **rest,
        )
        return total if grid_units is not None else looser * total

    with patch("nadpvi.private.dpvi.clipped_sum", unclipped):
        yield


@contextmanager
def _half_the_noise() -> Iterator[None]:
    """Both noise sources are built with half of sigma."""
    with ExitStack() as stack:
        for kind in (DiscreteGaussianNoise, SimulatedGaussianNoise):
            stack.enter_context(patch.object(kind, "__init__", _halved(kind.__init__)))
        yield


def _halved(real: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that is given half of the noise multiplier."""

    def build(self: object, *args: Any, noise_multiplier: float, **rest: Any) -> None:
        real(self, *args, noise_multiplier=noise_multiplier / 2.0, **rest)

    return build


@contextmanager
def _noise_reused(*, within_a_run: bool) -> Iterator[None]:
    """A run repeats its first vector at every step; or every run repeats the vectors of the first run."""
    step, kept = dpvi.step, {}

    def repeated(state: dpvi.State, *, noise: NoiseSource, **rest: Any) -> tuple[dpvi.State, Array]:
        key = 0 if within_a_run else state.num_steps
        if key not in kept or (within_a_run and state.num_steps == 0):
            kept[key] = noise.draw()
        return step(state, noise=_Altered(noise, lambda _: kept[key]), **rest)

    with patch("nadpvi.private.dpvi.step", repeated):
        yield


@contextmanager
def _sampler(change: Callable[..., NDArray[np.int64]]) -> Iterator[None]:
    """Another sampler in the place of Poisson's."""
    with patch("nadpvi.private.dpvi.poisson_sample", change):
        yield


def _fixed_size(rng: np.random.Generator, *, num_records: int, sampling_rate: float) -> NDArray[np.int64]:
    """Return q N records, no more and no fewer."""
    return np.sort(rng.choice(num_records, max(1, round(sampling_rate * num_records)), replace=False))


def _at_rate(factor: float) -> Callable[..., NDArray[np.int64]]:
    """Return the real sampler at `factor` times the rate that is accounted, at most 1."""

    def faster(rng: np.random.Generator, *, num_records: int, sampling_rate: float) -> NDArray[np.int64]:
        return poisson_sample(rng, num_records=num_records, sampling_rate=min(1.0, factor * sampling_rate))

    return faster


@contextmanager
def _same_batch() -> Iterator[None]:
    """A run draws one Poisson sample and uses it at every step."""
    step = dpvi.step
    kept: list[NDArray[np.int64]] = []

    def repeated(rng: np.random.Generator, **rest: Any) -> NDArray[np.int64]:
        if not kept:
            kept.append(poisson_sample(rng, **rest))
        return kept[0]

    def first_forgets(state: dpvi.State, **rest: Any) -> tuple[dpvi.State, Array]:
        if state.num_steps == 0:
            kept.clear()
        return step(state, **rest)

    with (
        patch("nadpvi.private.dpvi.poisson_sample", repeated),
        patch("nadpvi.private.dpvi.step", first_forgets),
    ):
        yield


@contextmanager
def _persons_unbounded() -> Iterator[None]:
    """All rows of a person are kept, whatever number was declared."""
    keep = records.keep_rows

    def keep_all(persons: NDArray[np.int64], *, max_rows: int, rng: np.random.Generator) -> Any:
        return keep(persons, max_rows=max(max_rows, len(persons)), rng=rng)

    with patch("nadpvi.private.records.keep_rows", keep_all):
        yield


class Mutant(NamedTuple):
    """A fault, and where to look for it."""

    apply: Callable[[], AbstractContextManager[None]]
    pair: Pair


MUTANTS = {
    "noise on the mean (expected batch)": Mutant(lambda: _noise_on_the_mean(realised=False), CROWD),
    "noise on the mean (realised batch)": Mutant(lambda: _noise_on_the_mean(realised=True), CROWD),
    "no clipping": Mutant(_no_clipping, ALONE),
    "half the noise": Mutant(_half_the_noise, ALONE),
    "noise reused at every step": Mutant(lambda: _noise_reused(within_a_run=True), ALONE),
    "noise reused by every run": Mutant(lambda: _noise_reused(within_a_run=False), ALONE),
    "fixed-size batches": Mutant(lambda: _sampler(_fixed_size), OPPOSED),
    "three times the sampling rate": Mutant(lambda: _sampler(_at_rate(3.0)), ALONE),
    "every record at every step": Mutant(lambda: _sampler(_at_rate(math.inf)), ALONE),
    "the same batch at every step": Mutant(_same_batch, ALONE),
    "all rows of a person": Mutant(_persons_unbounded, PERSON),
}
