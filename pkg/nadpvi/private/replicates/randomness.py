"""The random numbers of many simulated runs: streams of each replicate's own, read in blocks of steps.

No number depends on which replicates run together, nor on how many.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides.antithetic import antithetic, num_independent
from nadpvi.privacy.noise import NoiseSource, NoNoise, SimulatedGaussianNoise
from nadpvi.privacy.randomness import Streams
from nadpvi.private.replicates.rows import SampledRows, lay_out
from nadpvi.settings import Settings

__all__ = ["RandomBlocks", "ReplicateNoise"]

Array = NDArray[np.float64]


class ReplicateNoise:
    """The noise of G runs, each from its own source, a block of steps at a time.

    The numbers are those that `SimulatedGaussianNoise` would give each run step by step.

    Parameters
    ----------
    streams : sequence of Streams
        One for each replicate.
    noise_multiplier : float
        sigma >= 0.
    dimension : int
        D.
    block_steps : int
        How many draws `refill` prepares.
    """

    grid_units: int | None = None
    is_private = False

    def __init__(
        self, streams: Sequence[Streams], *, noise_multiplier: float, dimension: int, block_steps: int
    ) -> None:
        length = block_steps * dimension
        self._sources: list[NoiseSource] = []
        for stream in streams:
            if noise_multiplier == 0.0 or stream.noise is None:
                self._sources.append(NoNoise(dimension=length))
            else:
                self._sources.append(
                    SimulatedGaussianNoise(stream.noise, noise_multiplier=noise_multiplier, dimension=length)
                )
        self.mechanism = self._sources[0].mechanism
        self._values = np.zeros((block_steps, len(streams), dimension))
        self._next = block_steps

    def refill(self) -> None:
        """Draw the noise of the next block of steps."""
        num_steps, _, dimension = self._values.shape
        for place, source in enumerate(self._sources):
            self._values[:, place] = source.draw().reshape(num_steps, dimension)
        self._next = 0

    def draw(self) -> Array:
        """Return the noise of one step in clip norms, shape (G, D)."""
        values: Array = self._values[self._next]
        self._next += 1
        return values


class RandomBlocks:
    """Every random number of G runs: each replicate has its own streams, one a purpose.

    Parameters
    ----------
    streams : sequence of Streams
        Seeded ones, one for each replicate.
    rows : SampledRows
        The records.
    settings : Settings
        Of the runs.
    noise_multiplier : float
        sigma.
    noise_dimension : int
        How many coordinates each step's noise has.
    """

    def __init__(
        self,
        streams: Sequence[Streams],
        *,
        rows: SampledRows,
        settings: Settings,
        noise_multiplier: float,
        noise_dimension: int,
    ) -> None:
        self.rows = rows
        self.noise = ReplicateNoise(
            streams,
            noise_multiplier=noise_multiplier,
            dimension=noise_dimension,
            block_steps=rows.block_steps,
        )
        self._subsample = [stream.subsample for stream in streams]
        self._monte_carlo = [stream.monte_carlo for stream in streams]
        description = settings.description
        num_noise = description.guide.num_noise(len(description.names))
        self._normals = np.empty((rows.block_steps, settings.monte_carlo_samples, len(streams), num_noise))

    def refill(self) -> None:
        """Draw everything that the next block of steps needs."""
        lay_out(self._normals.transpose(2, 0, 1, 3), _draw_normals, generators=self._monte_carlo)
        self.rows.draw_block(self._subsample)
        self.noise.refill()

    def standard_normal(self, index: int) -> Array:
        """Return the guide's noise for step `index` of the block, shape (S, G, M)."""
        values: Array = self._normals[index]
        return values


def _draw_normals(rng: np.random.Generator, *, place: int, out: Array) -> None:
    """Draw one replicate's noise of the guide, in the order in which single steps would."""
    num_steps, num_draws, num_noise = out.shape
    antithetic(rng.standard_normal((num_steps, num_independent(num_draws), num_noise)), out=out)
