"""What a run keeps of its steps: all of them, each k-th, or the sums of the window. Private side."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.data import TraceSums
from nadpvi.gradient_model.running import RunningSums, no_sums
from nadpvi.gradient_model.sums import window_start
from nadpvi.settings import Settings

__all__ = ["Keeper", "Kept", "Trace"]

Array = NDArray[np.float64]


class Trace(NamedTuple):
    """Iterates and the noisy gradients computed at them, each of shape (T, D)."""

    phi: Array
    noisy_gradient: Array


class Kept(NamedTuple):
    """What goes into a release: steps (T', D), the sums of the window or None, and the iterate after them."""

    trace: Trace
    sums: TraceSums | None
    final_phi: Array


class _Now(NamedTuple):
    """Where a run stands: steps done, the last one's iterate and noisy gradient, and the window's sums."""

    num_done: int
    phi: Array
    noisy_gradient: Array
    sums: RunningSums


class Keeper:
    """The steps of one run as far as it got; memory is what `Settings.keep` and `thin` ask for.

    Steps are numbered from 0. With `thin` = k those kept are T - 1, T - 1 - k, ... and, whatever k, the last
    one that was done. An interrupt at any moment leaves a step in or out as a whole.

    Parameters
    ----------
    settings : Settings
        Of the whole run.
    done : Trace, optional
        The steps of an interrupted run, all of them, which this one continues.
    """

    def __init__(self, settings: Settings, *, done: Trace | None = None) -> None:
        self._settings = settings
        start = settings.initial_phi
        self._keeps_sums = settings.keep == "sums"
        self._window = window_start(settings.num_steps, burn_in=settings.burn_in) if self._keeps_sums else 0
        self._now = _Now(0, start, np.zeros_like(start), no_sums(len(start) if self._keeps_sums else 0))
        # Zeros that nobody has written to take no memory yet.
        shape = (0 if self._keeps_sums else -(-settings.num_steps // settings.thin), len(start))
        self._trace = Trace(np.zeros(shape), np.zeros(shape))
        for phi, gradient in zip(*done, strict=True) if done is not None else ():
            self.add(phi, gradient)

    @property
    def num_done(self) -> int:
        """How many steps are in."""
        return self._now.num_done

    @property
    def next_phi(self) -> Array:
        """The iterate after the last step that was done, shape (D,); the start if there is none."""
        now = self._now
        if not now.num_done:
            return self._settings.initial_phi
        return self._settings.advance(now.num_done - 1, phi=now.phi, noisy_gradient=now.noisy_gradient)

    def add(self, phi: Array, noisy_gradient: Array) -> None:
        """Take in the next step; neither array may be changed afterwards."""
        num_done, sums = self._now.num_done, self._now.sums
        if self._keeps_sums:
            if num_done >= self._window:
                sums = sums.added(phi, noisy_gradient)
        elif self._num_kept(num_done + 1) > (row := self._num_kept(num_done)):
            self._trace.phi[row] = phi
            self._trace.noisy_gradient[row] = noisy_gradient
        # One assignment: whoever looks in between finds the step nowhere yet.
        self._now = _Now(num_done + 1, phi, noisy_gradient, sums)

    def trace(self) -> Trace:
        """Return the steps kept so far; without thinning all that were done."""
        num_kept = self._num_kept(self._now.num_done)
        return Trace(self._trace.phi[:num_kept], self._trace.noisy_gradient[:num_kept])

    def result(self) -> Kept:
        """Return what a release holds after the steps so far, of which there must be one."""
        now, trace = self._now, self.trace()
        if self._keeps_sums or (self._settings.num_steps - now.num_done) % self._settings.thin:
            phi, gradient = trace
            trace = Trace(np.vstack([phi, now.phi]), np.vstack([gradient, now.noisy_gradient]))
        return Kept(trace, now.sums.result() if self._keeps_sums else None, self.next_phi)

    def _num_kept(self, num_done: int) -> int:
        """Return how many of the first steps are those that thinning keeps; none where sums are kept."""
        thin = self._settings.thin
        return 0 if self._keeps_sums else (num_done - 1 - (self._settings.num_steps - 1) % thin) // thin + 1
