"""Mistakes in a trace from elsewhere that show in its own numbers, cheaply and without doubt."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.sums import make_trace_sums

__all__ = ["check_claimed_noise", "check_steps"]

Array = NDArray[np.float64]

# Below this many steps a trace says too little about itself.
_MIN_STEPS = 30
# So many coordinates are looked at, evenly spread, whatever the size of phi.
_MAX_COORDINATES = 256
# Largest share of the squared moves left over by a multiple of the gradients; float32 leaves about 1e-6.
_SAME = 1e-4
_SAME_FACTOR = 0.01
# A trace whose noise is as claimed is refused once in 10^9.
_FALSE_ALARM = 1e-9
_SUSPICIOUS_RATIO = 0.5


def check_steps(phi: Array, noisy_gradient: Array, *, learning_rate: Array) -> None:
    """Refuse what plain gradient steps show to be wrong; traces of other optimisers pass unseen.

    Parameters
    ----------
    phi, noisy_gradient : ndarray, shape (T, D) or more rows of phi, and (T, D)
        As given, in any units.
    learning_rate : ndarray, shape () or (D,)
        In the units of `noisy_gradient`; NaN where it is not known.

    Raises
    ------
    ArgumentError
        If each gradient is paired with the iterate after its step, is that of minus the loss, or if the steps
        are another multiple of the gradients than the learning rate.
    """
    steps, dimension = noisy_gradient.shape
    if steps < _MIN_STEPS or dimension == 0:
        return
    columns = slice(None, None, -(-dimension // _MAX_COORDINATES))
    moves, gradients = np.diff(phi[:steps, columns], axis=0), noisy_gradient[:, columns]
    if not (np.isfinite(moves).all() and np.isfinite(gradients).all()):
        return  # the release says at which step
    left_over, multiple = _multiple_of(gradients[:-1], moves)
    if left_over > _SAME:
        if _multiple_of(gradients[1:], moves)[0] < _SAME:
            raise ArgumentError(
                "phi[t] must be the iterate at which noisy_gradient[t] was computed, and here it is the one "
                "after that step: record phi before each step, or put the start in front as row 0."
            )
        return
    if (multiple > 0).any():
        raise ArgumentError(
            "phi moves up noisy_gradient; give the gradient of the loss, not of its negative."
        )
    if learning_rate.shape not in ((), (dimension,)):
        return  # the release says so
    ratio = -multiple / np.broadcast_to(learning_rate, (dimension,))[columns]
    worst = ratio[np.nanargmax(np.abs(ratio - 1.0))] if np.isfinite(ratio).any() else 1.0
    if abs(worst - 1.0) > _SAME_FACTOR:
        raise ArgumentError(
            f"phi moves by {worst:.4g} times learning_rate * noisy_gradient; give learning_rate in the units "
            "of noisy_gradient as given: loss converts both."
        )


def _multiple_of(gradients: Array, moves: Array) -> tuple[float, Array]:
    """Return how far moves are from multiples of gradients (0 to 1), and the multiples (D,), NaN if still."""
    total, power = np.einsum("td,td->d", moves, moves), np.einsum("td,td->d", gradients, gradients)
    product = np.einsum("td,td->d", moves, gradients)
    moving = (total > 0) & (power > 0)
    multiple = np.divide(product, power, out=np.full(total.shape, math.nan), where=moving)
    explained = np.divide(product * multiple, total, out=np.full(total.shape, math.nan), where=moving)
    return (1.0 - float(np.nanmin(explained)) if moving.any() else 1.0), multiple


def check_claimed_noise(phi: Array, noisy_gradient: Array, *, noise_std: Array, loss: str) -> None:
    """Refuse a trace that varies far less than its noise alone would make it.

    Around any line in phi, a coordinate's noisy gradient leaves at least its noise: the sum of squares over
    the noise's variance is above chi-squared with T - 2 degrees of freedom. Too much is no fault by itself,
    since subsampling adds to it.

    Parameters
    ----------
    phi, noisy_gradient : ndarray, shape (T, D)
        In the units of a release.
    noise_std : ndarray, shape (D,)
        What the noise is said to be; a trace without noise is not checked.
    loss : str
        What the gradients were said to be, for the message.

    Raises
    ------
    ArgumentError
        If the noise cannot be as large as claimed; of traces where it is, one in 10^9 is refused.
    """
    steps, dimension = noisy_gradient.shape
    if steps < _MIN_STEPS or dimension == 0 or not (noise_std > 0).all():
        return
    columns = slice(None, None, -(-dimension // _MAX_COORDINATES))
    sums = make_trace_sums(phi[:, columns], noisy_gradient[:, columns], burn_in=0.0)
    squares, freedom = sums.residual / noise_std[columns] ** 2, steps - 2
    number = squares.size
    for value, degrees, tries in ((squares.sum(), freedom * number, 1), (squares.min(), freedom, number)):
        ratio = value / degrees
        if ratio < _SUSPICIOUS_RATIO and 2 * tries * chi2.cdf(value, degrees) < _FALSE_ALARM:
            raise ArgumentError(
                f"noisy_gradient varies {math.sqrt(ratio):.3g} times as much as noise of noise_multiplier * "
                f"clip_norm / preconditioner alone would make it, with loss={loss!r}: say by loss what the "
                "noisy sums were divided by, and check noise_multiplier and clip_norm."
            )
