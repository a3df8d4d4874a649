"""From a trace to its sums: the window after burn-in, checked and summed once.

The sums are taken in two passes, centred on the window means: raw sums of squares would cancel badly when
an iterate sits far from zero.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.data import MIN_WINDOW, TraceSums

__all__ = ["DEFAULT_BURN_IN", "make_trace_sums", "window_start"]

FloatArray = NDArray[np.float64]

DEFAULT_BURN_IN = 0.2
_WINDOW_TOLERANCE = 1e-9


def window_start(num_steps: int, *, burn_in: float) -> int:
    """Return the first step of the post-processing window: floor(burn_in * num_steps).

    A product that is a whole number but for rounding counts as that number, so that 0.29 of 100 steps
    drops 29 of them.

    Raises
    ------
    ArgumentError
        If `burn_in` is not in [0, 1), or fewer than 3 steps remain.

    Examples
    --------
    >>> window_start(1000, burn_in=0.2)
    200
    >>> window_start(100, burn_in=0.29)
    29
    """
    if isinstance(burn_in, bool) or not isinstance(burn_in, int | float | np.number):
        raise ArgumentError(f"burn_in must be a number in [0, 1) (got {burn_in!r}).")
    if not 0.0 <= burn_in < 1.0:
        raise ArgumentError(f"burn_in must be in [0, 1) (got {burn_in}).")
    first = math.floor(float(burn_in) * num_steps + _WINDOW_TOLERANCE)
    if num_steps - first < MIN_WINDOW:
        raise ArgumentError(
            f"burn_in={burn_in} leaves {num_steps - first} of {num_steps} steps, and the window needs at "
            f"least {MIN_WINDOW}: lower burn_in or run more steps."
        )
    return first


def _check_trace(phi: ArrayLike, noisy_gradient: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return both traces as float64 arrays of one shape (T, D), all entries finite."""
    arrays = []
    for name, values in (("phi", phi), ("noisy_gradient", noisy_gradient)):
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(f"{name} must be an array of numbers, shape (T, D).") from None
        if array.ndim != 2 or array.shape[1] == 0:
            raise ArgumentError(f"{name} must have shape (T, D) with D >= 1 (got {array.shape}).")
        bad_steps = np.flatnonzero(~np.isfinite(array).all(axis=1))
        if bad_steps.size:
            raise ArgumentError(
                f"{name} is not finite at step {bad_steps[0]} ({bad_steps.size} of {array.shape[0]} steps, "
                "counted from 0): the release is damaged or the run diverged."
            )
        arrays.append(array)
    if arrays[0].shape != arrays[1].shape:
        raise ArgumentError(
            f"phi and noisy_gradient must have one shape (got {arrays[0].shape} and {arrays[1].shape})."
        )
    return arrays[0], arrays[1]


def _centre(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the means over steps and the deviations from them, exact for a constant column."""
    first = values[0]
    shifted = values - first
    offset = shifted.mean(axis=0)
    return first + offset, shifted - offset


def make_trace_sums(
    phi: ArrayLike, noisy_gradient: ArrayLike, *, burn_in: float = DEFAULT_BURN_IN
) -> TraceSums:
    """Return the sums of the window: the steps from floor(burn_in * T) on.

    Parameters
    ----------
    phi : array_like, shape (T, D)
        Iterates; row t is the point at which row t of `noisy_gradient` was computed.
    noisy_gradient : array_like, shape (T, D)
        Noisy summed gradients of the loss (the negative ELBO).
    burn_in : float
        Share of the steps to drop, in [0, 1).

    Raises
    ------
    ArgumentError
        If an entry is not finite (the step is named), shapes differ, or fewer than 3 steps remain.

    Examples
    --------
    >>> sums = make_trace_sums([[0.0], [1.0], [2.0], [3.0]], [[9.0], [2.0], [4.0], [6.0]], burn_in=0.25)
    >>> sums.num_steps, sums.phi_bar.item(), sums.slope.item()
    (3, 2.0, 2.0)
    """
    iterates, gradients = _check_trace(phi, noisy_gradient)
    first = window_start(iterates.shape[0], burn_in=burn_in)
    with np.errstate(over="ignore", invalid="ignore"):  # TraceSums refuses what overflowed, by name
        phi_bar, phi_centred = _centre(iterates[first:])
        g_bar, g_centred = _centre(gradients[first:])
        return TraceSums(
            num_steps=iterates.shape[0] - first,
            phi_bar=phi_bar,
            g_bar=g_bar,
            s_pp=np.einsum("td,td->d", phi_centred, phi_centred),
            s_gp=np.einsum("td,td->d", g_centred, phi_centred),
            s_gg=np.einsum("td,td->d", g_centred, g_centred),
        )
