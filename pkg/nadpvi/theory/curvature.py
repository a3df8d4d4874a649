"""How well a trace can tell the curvature, were the optimum known (theorem 2). Public side."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.checks import check_count, check_positive

__all__ = ["curvature_variance", "least_curvature_variance"]

Array = NDArray[np.float64]


def curvature_variance(distance: ArrayLike, *, sampling_rate: float, noise_std: ArrayLike) -> Array:
    """Return the variance of the curvature's estimate where the optimum is known, shape (D,) (theorem 2).

    The estimate is ``sum g (phi - phi_star) / (kappa sum (phi - phi_star)^2)``, and its variance
    ``s^2 / (kappa^2 sum (phi - phi_star)^2)``, given the iterates.

    Parameters
    ----------
    distance : array_like, shape (n, D)
        phi - phi_star in the steps of the window.
    sampling_rate : float
        kappa.
    noise_std : array_like, shape (D,) or scalar
        s, of one noisy gradient.

    Examples
    --------
    >>> curvature_variance([[1.0], [-1.0]], sampling_rate=0.5, noise_std=3.0)
    array([18.])
    """
    steps = np.asarray(distance, dtype=np.float64)
    squares = np.einsum("td,td->d", steps, steps)
    variance: Array = (np.asarray(noise_std, dtype=np.float64) / sampling_rate) ** 2 / squares
    return variance


def least_curvature_variance(
    num_steps: int, *, radius: float, sampling_rate: float, noise_std: ArrayLike
) -> float:
    """Return what the largest `curvature_variance` cannot be below while n iterates stay in a ball.

    Squared distances add up to at most n r^2 over steps *and* coordinates, so that the worst of D coordinates
    is left with at least ``sum s_d^2 / (kappa^2 n r^2)``: D times the s^2 / (kappa^2 n r^2) that holds for a
    single one. It is reached when all move alike.

    Parameters
    ----------
    num_steps : int
        n.
    radius : float
        r, of the ball around phi_star that holds the iterates.
    sampling_rate : float
        kappa.
    noise_std : array_like, shape (D,)
        s of each coordinate.
    """
    squares = float(np.sum(np.square(np.asarray(noise_std, dtype=np.float64))))
    size = check_count("num_steps", num_steps) * (sampling_rate * check_positive("radius", radius)) ** 2
    return squares / size
