"""Sums of a trace for a curvature that is not diagonal: D x D second moments, centred, taken once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.data import check_window
from nadpvi.gradient_model.sums import make_trace_sums, window_start

__all__ = ["DenseSums", "make_dense_sums"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseSums:
    """The sufficient statistics of a window of n steps for M coordinates that may interact.

    Arrays may have one leading axis more, for a simulation study: one trace a chain.

    Attributes
    ----------
    num_steps : int
        n >= 3, the number of steps in the window.
    phi_bar, g_bar : ndarray, shape (M,)
        Mean iterate, in units of phi, and mean noisy gradient, in units of the summed gradient.
    s_pp : ndarray, shape (M, M)
        Sum of (phi - phi_bar) (phi - phi_bar)', symmetric.
    s_gp : ndarray, shape (M, M)
        Sum of (g - g_bar) (phi - phi_bar)': row i belongs to gradient i, column j to iterate j.
    s_gg : ndarray, shape (M,)
        Sum of (g - g_bar)^2 >= 0, each coordinate by itself.

    Raises
    ------
    ArgumentError
        If the window is shorter than 3 steps, shapes differ, or a sum is not finite.
    """

    num_steps: int
    phi_bar: FloatArray
    g_bar: FloatArray
    s_pp: FloatArray
    s_gp: FloatArray
    s_gg: FloatArray

    def __post_init__(self) -> None:
        check_window(self.num_steps)
        shape = np.shape(self.phi_bar)
        if len(shape) not in (1, 2) or np.size(self.phi_bar) == 0:
            raise ArgumentError(f"phi_bar must have shape (M,) with M >= 1 (got {shape}).")
        for name in ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg"):
            wanted = (*shape, shape[-1]) if name in ("s_pp", "s_gp") else shape
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
            if array.shape != wanted:
                raise ArgumentError(f"{name} must have shape {wanted} (got {array.shape}).")
            if not np.isfinite(array).all():
                raise ArgumentError(f"{name} is not finite: the trace's values overflow; the run diverged.")

    @property
    def num_parameters(self) -> int:
        """M, the number of coordinates."""
        return int(self.phi_bar.shape[-1])


def make_dense_sums(
    phi: ArrayLike, noisy_gradient: ArrayLike, *, burn_in: float = 0.2, columns: ArrayLike | None = None
) -> DenseSums:
    """Return the sums of the window over some coordinates: the steps from floor(burn_in * T) on.

    Parameters
    ----------
    phi : array_like, shape (T, D)
        Iterates; row t is the point at which row t of `noisy_gradient` was computed.
    noisy_gradient : array_like, shape (T, D)
        Noisy summed gradients of the loss (the negative ELBO).
    burn_in : float
        Share of the steps to drop, in [0, 1).
    columns : array_like of int, shape (M,), optional
        Which coordinates; all of them when omitted.

    Raises
    ------
    ArgumentError
        If an entry is not finite, shapes differ, fewer than 3 steps remain, or a column does not exist.

    Examples
    --------
    >>> sums = make_dense_sums([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]], [[1.0, 0.0], [2.0, 1.0], [3.0, 2.0]],
    ...                        burn_in=0.0)
    >>> sums.s_pp.tolist(), sums.s_gp.tolist()
    ([[2.0, 1.0], [1.0, 2.0]], [[2.0, 1.0], [2.0, 1.0]])
    """
    sums = make_trace_sums(phi, noisy_gradient, burn_in=burn_in)
    size = sums.num_parameters
    chosen = np.arange(size) if columns is None else np.asarray(columns)
    is_index = chosen.ndim == 1 and chosen.size > 0 and np.issubdtype(chosen.dtype, np.integer)
    if not is_index or chosen.min() < 0 or chosen.max() >= size:
        raise ArgumentError(f"columns must be indices of the {size} coordinates, at least one.")
    first = window_start(len(np.asarray(phi)), burn_in=burn_in)
    phi_centred = np.asarray(phi, dtype=np.float64)[first:, chosen] - sums.phi_bar[chosen]
    g_centred = np.asarray(noisy_gradient, dtype=np.float64)[first:, chosen] - sums.g_bar[chosen]
    return DenseSums(
        num_steps=sums.num_steps,
        phi_bar=sums.phi_bar[chosen],
        g_bar=sums.g_bar[chosen],
        s_pp=phi_centred.T @ phi_centred,
        s_gp=g_centred.T @ phi_centred,
        s_gg=sums.s_gg[chosen],
    )
