"""How long a run will take on this machine, from a few of its own steps on made-up records.

Drives the private side, with no private data: the records are made up by the schema.
"""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nadpvi.made_up import made_up_records, prior_draws
from nadpvi.privacy.noise import GRID_UNITS, DiscreteGaussianNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.dpvi import State, step
from nadpvi.private.records import Records
from nadpvi.settings import Settings

__all__ = ["RunTime", "time_run"]

_NUM_STEPS = 20
_MOST_BATCH_VALUES = 1_000_000
_NOISE_VALUES = 4_000


class RunTime(NamedTuple):
    """Expected wall-clock seconds of a run's steps, and the measurements they come from.

    Parameters
    ----------
    total : float
        Of the whole run: steps and noise side by side where there is a second core, else one after the other.
    per_step : float
        Of one step without its noise.
    noise : float
        Of all the noise.
    num_timed_steps : int
        How many steps were timed.
    """

    total: float
    per_step: float
    noise: float
    num_timed_steps: int


class _NoNoiseOnGrid:
    """Zeros on the grid of a real release, so that sums are exact and the noise's own time is left out."""

    grid_units: int | None = GRID_UNITS
    is_private = False
    mechanism = "no noise, for timing"

    def __init__(self, dimension: int) -> None:
        self._zeros = np.zeros(dimension)

    def draw(self) -> NDArray[np.float64]:
        """Return zeros, shape (D,)."""
        return self._zeros


def time_run(settings: Settings, *, noise_multiplier: float, num_records: int) -> RunTime:
    """Return the expected run time of a release with exact noise.

    A step is timed on batches of the expected size, or, where that would be large, of a smaller one, and
    extended in proportion. What depends on the real table is not in it: reading it, and memory too large for
    the processor's cache.

    Parameters
    ----------
    settings : Settings
        The run.
    noise_multiplier : float
        sigma; 0 for a run without noise.
    num_records : int
        N, a public guess.
    """
    batch = settings.sampling_rate * num_records
    shown = min(batch, _MOST_BATCH_VALUES / (settings.monte_carlo_samples * len(settings.initial_phi)))
    with threadpool_limits(limits=1, user_api="blas"):
        fixed = _time_steps(settings, num_records=1)
        timed = _time_steps(settings, num_records=max(1, round(shown / settings.sampling_rate)))
        noise = _time_noise(settings, noise_multiplier=noise_multiplier) if noise_multiplier > 0 else 0.0
    per_step = fixed + max(timed - fixed, 0.0) * batch / shown
    steps, noise = settings.num_steps * per_step, settings.num_steps * noise
    total = max(steps, noise) if (os.cpu_count() or 1) > 1 else steps + noise
    return RunTime(total=total, per_step=per_step, noise=noise, num_timed_steps=_NUM_STEPS)


def _time_steps(settings: Settings, *, num_records: int) -> float:
    """Return the mean seconds of a step over this many made-up records, without noise."""
    rng = np.random.default_rng(0)
    model, design = settings.description.model, settings.description.design
    theta = prior_draws(model, design, num_draws=1, rng=rng)[0]
    made_up = made_up_records(model, design, theta=theta, num_records=num_records, rng=rng)
    records = Records(x=made_up.x, y=made_up.y)
    streams, noise = make_streams(insecure_seed=None), _NoNoiseOnGrid(len(settings.initial_phi))
    state = State(0, settings.initial_phi)

    def one_step() -> None:
        step(state, records=records, settings=settings, noise=noise, streams=streams)

    def all_steps() -> None:
        for _ in range(_NUM_STEPS):
            one_step()

    one_step()
    return _seconds(all_steps) / _NUM_STEPS


def _time_noise(settings: Settings, *, noise_multiplier: float) -> float:
    """Return the seconds that one step's noise takes, from one block of it."""
    dimension = len(settings.initial_phi)
    num_rows = min(settings.num_steps, max(1, _NOISE_VALUES // dimension))

    def one_block() -> None:
        source = DiscreteGaussianNoise(
            noise_multiplier=noise_multiplier, dimension=dimension, num_steps=num_rows
        )
        source.draw()

    one_block()
    return _seconds(one_block) / num_rows


def _seconds(call: Callable[[], object]) -> float:
    """Return the wall-clock seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
