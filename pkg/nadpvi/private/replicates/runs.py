"""A group of simulated runs from start to end, and what is kept of them. Private side, never private."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.running import RunningSums
from nadpvi.gradient_model.sums import window_start
from nadpvi.privacy.noise import NoiseSource
from nadpvi.private.keeping import Trace
from nadpvi.private.replicates.randomness import RandomBlocks
from nadpvi.private.replicates.rows import Slots
from nadpvi.private.replicates.steps import GroupState, step
from nadpvi.settings import Settings

__all__ = ["GroupResult", "GroupStep", "run_group"]

Array = NDArray[np.float64]


class GroupResult(NamedTuple):
    """The last iterates of G runs (G, D), the sums of their windows, and who stayed finite (G,)."""

    final_phi: Array
    sums: RunningSums | None
    is_finite: NDArray[np.bool_]


class GroupStep(Protocol):
    """One way to take a step of G runs; `nadpvi.private.replicates.steps.step` is that of DP-SGD."""

    def __call__(
        self,
        state: GroupState,
        *,
        settings: Settings,
        slots: Slots,
        standard_normal: Array,
        noise: NoiseSource,
    ) -> tuple[GroupState, Array]:
        """Return the next state and the noisy gradients that led to it, shape (G, D)."""
        ...


def run_group(
    random: RandomBlocks, *, settings: Settings, into: Trace, take_step: GroupStep = step
) -> GroupResult:
    """Run G replicates from start to end, and return what is not in their traces.

    A replicate that leaves the finite numbers is marked, and NaN throughout; the others are not affected.

    Parameters
    ----------
    random : RandomBlocks
        Fresh streams and the records.
    settings : Settings
        Of all runs; the model is an exponential family.
    into : Trace
        Arrays of shape (G, T', D), filled with the steps of `Settings.kept_steps`.
    take_step : callable
        How a step is taken.
    """
    keeper = _GroupKeeper(settings, into=into)
    state = GroupState(0, np.tile(settings.initial_phi, (random.rows.num_replicates, 1)))
    while state.num_steps < settings.num_steps:
        random.refill()
        length = min(random.rows.block_steps, settings.num_steps - state.num_steps)
        phi, gradient = np.empty((2, length, *state.phi.shape))
        # Overflow is looked for in the block as a whole.
        with np.errstate(all="ignore"):
            for index in range(length):
                phi[index] = state.phi
                state, gradient[index] = take_step(
                    state,
                    settings=settings,
                    slots=random.rows.slots(index),
                    standard_normal=random.standard_normal(index),
                    noise=random.noise,
                )
        state = keeper.add(phi, gradient, state=state)
    return keeper.result(state)


class _GroupKeeper:
    """Takes in blocks of steps of G runs, and keeps what a `Keeper` would of each."""

    def __init__(self, settings: Settings, *, into: Trace) -> None:
        self._settings = settings
        self._kept = np.array(settings.kept_steps(settings.num_steps))
        self._trace = into
        num_replicates, _, dimension = into.phi.shape
        self._is_finite = np.ones(num_replicates, dtype=np.bool_)
        self._sums: RunningSums | None = None
        self._window = 0
        if settings.keep == "sums":
            self._sums = RunningSums(0, *np.zeros((5, num_replicates, dimension)))
            self._window = window_start(settings.num_steps, burn_in=settings.burn_in)

    def add(self, phi: Array, gradient: Array, *, state: GroupState) -> GroupState:
        """Take in a block, arrays of shape (steps, G, D), and return the state from which to go on."""
        first = state.num_steps - len(phi)
        is_finite = np.isfinite(state.phi).all(axis=1)
        for values in (phi, gradient):
            is_finite &= np.isfinite(values).all(axis=(0, 2))
        if not is_finite.all():
            self._is_finite &= is_finite
            # Its numbers are thrown away; finite ones keep the others' sums sound and the arithmetic fast.
            for values in (phi, gradient, state.phi):
                values[..., ~is_finite, :] = self._settings.initial_phi
        start, stop = np.searchsorted(self._kept, [first, state.num_steps])
        rows = self._kept[start:stop] - first
        for values, block in zip(self._trace, (phi, gradient), strict=True):
            values[:, start:stop] = block[rows].transpose(1, 0, 2)
        if self._sums is not None:
            for index in range(max(self._window - first, 0), len(phi)):
                self._sums = self._sums.added(phi[index], gradient[index])
        return state

    def result(self, state: GroupState) -> GroupResult:
        """Return what is not in the traces, after NaN for the replicates that did not stay finite."""
        failed = ~self._is_finite
        sums = self._sums
        for values in (*self._trace, state.phi, *(() if sums is None else sums[1:])):
            values[failed] = np.nan
        return GroupResult(state.phi, sums, self._is_finite)
