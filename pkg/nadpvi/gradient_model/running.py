"""The sums of a window taken step by step, for traces too large to be kept."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.data import MIN_WINDOW, TraceSums

__all__ = ["RunningSums", "no_sums"]

FloatArray = NDArray[np.float64]


class RunningSums(NamedTuple):
    """Counts, means and centred second moments that one more step updates in O(D) (Welford's recurrence).

    Equal to `make_trace_sums` of the same steps but for rounding: the moments are centred on the running
    means, so that nothing cancels however far from zero an iterate sits.

    Parameters
    ----------
    num_steps : int
        How many steps are in.
    phi_bar, g_bar, s_pp, s_gp, s_gg : ndarray, shape (D,)
        As in `TraceSums`.

    Examples
    --------
    >>> sums = no_sums(1)
    >>> for phi, gradient in ((1.0, 2.0), (2.0, 4.0), (3.0, 6.0)):
    ...     sums = sums.added(np.array([phi]), np.array([gradient]))
    >>> sums.result().slope.item()
    2.0
    """

    num_steps: int
    phi_bar: FloatArray
    g_bar: FloatArray
    s_pp: FloatArray
    s_gp: FloatArray
    s_gg: FloatArray

    def added(self, phi: FloatArray, noisy_gradient: FloatArray) -> "RunningSums":
        """Return the sums with one more step: an iterate and the noisy gradient there, each of shape (D,)."""
        num_steps = self.num_steps + 1
        phi_before, g_before = phi - self.phi_bar, noisy_gradient - self.g_bar
        phi_bar = self.phi_bar + phi_before / num_steps
        g_bar = self.g_bar + g_before / num_steps
        phi_after = phi - phi_bar
        return RunningSums(
            num_steps,
            phi_bar,
            g_bar,
            self.s_pp + phi_before * phi_after,
            self.s_gp + g_before * phi_after,
            self.s_gg + g_before * (noisy_gradient - g_bar),
        )

    def result(self) -> TraceSums | None:
        """Return the sums so far; None while there are too few steps for a window."""
        return None if self.num_steps < MIN_WINDOW else TraceSums(**self._asdict())


def no_sums(dimension: int) -> RunningSums:
    """Return the sums of no step, for D = `dimension` coordinates."""
    return RunningSums(0, *np.zeros((5, dimension)))
