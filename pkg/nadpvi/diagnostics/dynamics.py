"""How the iterates move within a window: an AR(1) whose stationary spread the checks measure against.

With ``g = c (phi - phi_star) + e`` and ``phi' = phi - lambda g``, the iterates of one coordinate follow an
AR(1) with coefficient ``rho = 1 - lambda c``, c = kappa * a, and innovations of sd ``lambda s``. Whatever the
step was (thinned, momentum, another optimizer), the iterates kept are described by the AR(1) that fits them.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dynamics", "contrast_variance", "fitted_dynamics", "known_dynamics"]

FloatArray = NDArray[np.float64]


class Dynamics(NamedTuple):
    """An AR(1) for each coordinate, between one kept step and the next.

    Attributes
    ----------
    decay : ndarray, shape (D,)
        1 - rho, less its bias, held within [1 / n, 2 - 1 / n].
    sd : ndarray, shape (D,)
        Stationary standard deviation, in units of phi.
    freedom : ndarray, shape (D,)
        Degrees of freedom of the decay, ``1 / (2 e^2)`` with e its relative standard error, at least 1. In a
        stationary window it is half the effective number of independent iterates.
    """

    decay: FloatArray
    sd: FloatArray
    freedom: FloatArray


def known_dynamics(
    *,
    step: FloatArray,
    learning_rate: FloatArray,
    noise_sd: FloatArray,
    root_spread: FloatArray,
    num_steps: int,
) -> Dynamics:
    """Return the AR(1) of plain DP-SGD with every step kept.

    Parameters
    ----------
    step : ndarray, shape (D,)
        lambda * c, c the regression slope of gradient on iterate.
    learning_rate, noise_sd, root_spread : ndarray, shape (D,)
        lambda, the gradients' residual sd s, and the square root of sum (phi - phi_bar)^2.
    num_steps : int
        n, steps in the window.
    """
    return _dynamics(step, innovation_sd=learning_rate * noise_sd, root=root_spread, num_steps=num_steps)


def fitted_dynamics(phi: FloatArray) -> Dynamics:
    """Return the AR(1) that least squares fits to kept iterates, shape (n, D), n >= 3."""
    before, after = (part - part.mean(axis=0) for part in (phi[:-1], phi[1:]))
    spread = np.einsum("td,td->d", before, before)
    product = np.einsum("td,td->d", before, after)
    rho = np.divide(product, spread, out=np.ones_like(spread), where=spread > 0)
    rest = np.maximum(np.einsum("td,td->d", after, after) - rho * product, 0.0)
    innovation = np.sqrt(rest / max(len(phi) - 3, 1))
    return _dynamics(1.0 - rho, innovation_sd=innovation, root=np.sqrt(spread), num_steps=len(phi))


def _dynamics(
    raw_decay: FloatArray, *, innovation_sd: FloatArray, root: FloatArray, num_steps: int
) -> Dynamics:
    """Correct the decay for its bias and return what follows from it."""
    # Least squares leans towards decay: by (1 + 3 rho) / n (Kendall 1954, Biometrika 41, 403).
    bias = np.clip(4.0 - 3.0 * raw_decay, 0.0, 4.0) / num_steps
    decay = np.clip(raw_decay - bias, 1.0 / num_steps, 2.0 - 1.0 / num_steps)
    with np.errstate(divide="ignore", invalid="ignore"):  # without noise the decay is known exactly
        freedom = 0.5 * np.square(decay * root / innovation_sd)
    return Dynamics(
        decay=decay,
        sd=innovation_sd / np.sqrt(decay * (2.0 - decay)),
        freedom=np.maximum(np.nan_to_num(freedom, nan=1.0, posinf=1e9), 1.0),
    )


def contrast_variance(decay: FloatArray, *, num_steps: int, num_part: int) -> FloatArray:
    """Return the variance of "mean of the first m iterates less mean of the last m", in units of one's.

    Exact for a stationary AR(1) with rho = 1 - decay, shape (D,); m = `num_part` of n = `num_steps`.

    Examples
    --------
    >>> contrast_variance(np.array([1.0, 0.5]), num_steps=9, num_part=3).round(4)
    array([0.6667, 1.1797])
    """
    rho = 1.0 - decay
    lagged = (1.0 - rho**num_part) / decay
    within = (num_part * (1.0 + rho) - 2.0 * rho * lagged) / decay
    between = rho ** (num_steps - 2 * num_part + 1) * np.square(lagged)
    variance: FloatArray = np.maximum(2.0 * (within - between), 0.0) / num_part**2
    return variance
