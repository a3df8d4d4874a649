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

    Kept are those of `Settings.kept_steps` and the last one that was done. An interrupt at any moment leaves
    a step in or out as a whole.

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
        shape = (len(settings.kept_steps(settings.num_steps)), len(start))
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
        kept = self._settings.kept_steps(num_done + 1)
        if num_done in kept:
            self._trace.phi[len(kept) - 1] = phi
            self._trace.noisy_gradient[len(kept) - 1] = noisy_gradient
        if self._keeps_sums and num_done >= self._window:
            sums = sums.added(phi, noisy_gradient)
        # One assignment: whoever looks in between finds the step nowhere yet.
        self._now = _Now(num_done + 1, phi, noisy_gradient, sums)

    def trace(self) -> Trace:
        """Return the steps kept so far; without thinning all that were done."""
        num_kept = len(self._settings.kept_steps(self._now.num_done))
        return Trace(self._trace.phi[:num_kept], self._trace.noisy_gradient[:num_kept])

    def result(self) -> Kept:
        """Return what a release holds after the steps so far, of which there must be one."""
        now, trace = self._now, self.trace()
        if now.num_done - 1 not in self._settings.kept_steps(now.num_done):
            phi, gradient = trace
            trace = Trace(np.vstack([phi, now.phi]), np.vstack([gradient, now.noisy_gradient]))
        return Kept(trace, now.sums.result() if self._keeps_sums else None, self.next_phi)
