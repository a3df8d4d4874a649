"""How iterates move around the optimum: their law in steps, and in continuous time. Public side.

Near the optimum phi_star a step of DP-SGD is ``phi' = phi - lambda (kappa A (phi - phi_star) + e)`` with
noise e of covariance S, independent from step to step (Eq. 22). Iterates are then a vector autoregression;
theorem 3 puts an Ornstein-Uhlenbeck process in its place, which is right as far as lambda kappa A is small.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from nadpvi.checks import check_real
from nadpvi.errors import ArgumentError

__all__ = ["IterateLaw", "expected_squared_distance", "iterate_law", "stationary_covariance"]

Array = NDArray[np.float64]


class IterateLaw(NamedTuple):
    """Mean, shape (D,), and covariance, shape (D, D), of the iterates over the noise."""

    mean: Array
    covariance: Array


def stationary_covariance(
    curvature: ArrayLike,
    *,
    sampling_rate: float,
    learning_rate: ArrayLike,
    noise_covariance: ArrayLike,
    is_continuous: bool = False,
) -> Array:
    """Return the covariance that the iterates settle at, shape (D, D).

    With ``M = kappa diag(lambda) A`` it solves ``V = (I - M) V (I - M)' + diag(lambda) S diag(lambda)``, the
    iterates being an autoregression; in continuous time, as an Ornstein-Uhlenbeck process (theorem 3), it
    solves ``M V + V M' = diag(lambda) S diag(lambda)``, which is smaller.

    Parameters
    ----------
    curvature : array_like, shape (D, D)
        A, symmetric and positive definite: the Hessian of the loss over all records.
    sampling_rate : float
        kappa in (0, 1].
    learning_rate : array_like, shape (D,) or scalar
        lambda > 0.
    noise_covariance : array_like, shape (D, D)
        S, positive semi-definite; in units of the summed gradient, squared.
    is_continuous : bool
        Whether time is.

    Raises
    ------
    ArgumentError
        If the iterates never settle: an eigenvalue of M is not above 0 or, in steps, not below 2.

    Examples
    --------
    >>> noise = {"sampling_rate": 0.5, "learning_rate": 0.5, "noise_covariance": [[9.0]]}
    >>> float(stationary_covariance([[2.0]], **noise)[0, 0])
    3.0
    >>> float(stationary_covariance([[2.0]], is_continuous=True, **noise)[0, 0])
    2.25
    """
    pull, kick = _dynamics(curvature, sampling_rate, learning_rate, noise_covariance, is_continuous)
    if is_continuous:
        covariance: Array = linalg.solve_continuous_lyapunov(pull, kick)
    else:
        covariance = linalg.solve_discrete_lyapunov(np.eye(len(pull)) - pull, kick)
    return covariance


def iterate_law(
    num_steps: int,
    *,
    start: ArrayLike,
    phi_star: ArrayLike,
    curvature: ArrayLike,
    sampling_rate: float,
    learning_rate: ArrayLike,
    noise_covariance: ArrayLike,
    is_continuous: bool = False,
) -> IterateLaw:
    """Return mean and covariance of the iterate after `num_steps` steps from a fixed start (Eq. 42 to 44).

    What is left of the way to phi_star and of the missing covariance shrinks by ``Q = I - M`` a step, or by
    exp(-M) in continuous time: a coordinate by itself relaxes within 1 / (lambda kappa a) steps.

    Parameters
    ----------
    num_steps : int
        At least 0.
    start, phi_star : array_like, shape (D,)
    curvature, sampling_rate, learning_rate, noise_covariance, is_continuous
        As in `stationary_covariance`.
    """
    settled = stationary_covariance(
        curvature,
        sampling_rate=sampling_rate,
        learning_rate=learning_rate,
        noise_covariance=noise_covariance,
        is_continuous=is_continuous,
    )
    pull, _ = _dynamics(curvature, sampling_rate, learning_rate, noise_covariance, is_continuous)
    if is_continuous:
        left = linalg.expm(-num_steps * pull)
    else:
        left = np.linalg.matrix_power(np.eye(len(pull)) - pull, num_steps)
    optimum = np.asarray(phi_star, dtype=np.float64)
    mean = optimum + left @ (np.asarray(start, dtype=np.float64) - optimum)
    return IterateLaw(mean, settled - left @ settled @ left.T)


def expected_squared_distance(
    eigenvalues: ArrayLike,
    *,
    sampling_rate: float,
    learning_rate: float,
    noise_std: float,
    is_continuous: bool = False,
) -> float:
    """Return ``E |phi - phi_star|^2`` of settled iterates under noise of equal sd: the end of section 11.

    It is ``lambda s^2 / kappa * sum 1 / (2 l - lambda kappa l^2)`` over the eigenvalues l of A, and
    ``lambda s^2 / kappa * sum 1 / (2 l)`` in continuous time (theorem 3). The paper's last line has lost the
    kappa in front of l^2, which its line before still has.

    Parameters
    ----------
    eigenvalues : array_like, shape (D,)
        l > 0, of the curvature.
    sampling_rate, learning_rate : float
        kappa and lambda.
    noise_std : float
        s = sigma C.
    is_continuous : bool
        Whether time is.

    Examples
    --------
    >>> expected_squared_distance([2.0], sampling_rate=0.5, learning_rate=0.5, noise_std=3.0)
    3.0
    """
    values = np.asarray(eigenvalues, dtype=np.float64)
    step = learning_rate * sampling_rate * values
    _check_settling(step, is_continuous=is_continuous)
    per_step = np.zeros_like(step) if is_continuous else step
    return float(np.sum(learning_rate * noise_std**2 / (sampling_rate * values * (2.0 - per_step))))


def _dynamics(
    curvature: ArrayLike, rate: float, learning_rate: ArrayLike, noise: ArrayLike, is_continuous: bool
) -> tuple[Array, Array]:
    """Return M and the covariance of one step's noise in phi, or raise if the iterates never settle."""
    hessian, covariance = np.asarray(curvature, dtype=np.float64), np.asarray(noise, dtype=np.float64)
    size = len(hessian)
    if hessian.shape != (size, size) or covariance.shape != (size, size):
        raise ArgumentError(
            f"curvature and noise_covariance must be square and of one shape (got {hessian.shape} and "
            f"{covariance.shape})."
        )
    step = np.broadcast_to(np.asarray(learning_rate, dtype=np.float64), size)
    if not ((step > 0).all() and 0.0 < check_real("sampling_rate", rate) <= 1.0):
        raise ArgumentError("learning_rate must be positive, and sampling_rate in (0, 1].")
    # M is similar to this symmetric matrix.
    _check_settling(
        linalg.eigvalsh(rate * hessian * np.sqrt(np.outer(step, step))), is_continuous=is_continuous
    )
    return rate * step[:, None] * hessian, covariance * np.outer(step, step)


def _check_settling(step: Array, *, is_continuous: bool) -> None:
    """Raise unless iterates settle where the eigenvalues of lambda kappa A are `step`."""
    if not (step.min() > 0 and (is_continuous or step.max() < 2)):
        raise ArgumentError(
            f"eigenvalues of lambda * kappa * A must lie between 0 and 2 for iterates to settle (got "
            f"{step.min():.3g} to {step.max():.3g}): lower learning_rate."
        )
