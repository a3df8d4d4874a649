"""Mean and standard deviation of a prior that is known by its log density alone.

From the density's peak, each coordinate of theta is integrated by itself, the others held at the peak; where
the curvature at the peak says that coordinates are correlated, the standard deviations are widened by it. The
result is exact for independent coordinates and for every normal prior, and an approximation for others.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ModelError
from nadpvi.models.parameters import Parameter, unconstrained_labels
from nadpvi.models.prior_check import LogDensity, check_log_prior, gradient_of

__all__ = ["prior_moments_of"]

Array = NDArray[np.float64]

# Points of one integral: theta = peak + width * sinh(t), which reaches 10,000 widths to either side.
_GRID = np.sinh(np.linspace(-np.arcsinh(1e4), np.arcsinh(1e4), 1601))
_GRID_SLOPE = np.cosh(np.arcsinh(_GRID))
# Share of the second moment that the outermost step may hold; that of a t with 3 degrees of freedom has less.
_LARGEST_TAIL = 1e-4
_FARTHEST_PEAK = 1e6
_REMEDY = "give it a proper prior, or give prior_mean and prior_sd on the unconstrained scale."


def prior_moments_of(
    log_density: LogDensity, *, blocks: Sequence[Parameter], name: str
) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of each coordinate, shape (K,).

    Parameters
    ----------
    log_density : callable
        Log prior density of unconstrained theta, its Jacobian included, up to a constant: (S, K) -> (S,),
        differentiable by autograd.
    blocks : sequence of Parameter
        K coordinates in all.
    name : str
        What the user calls the function, for messages.

    Raises
    ------
    ModelError
        If the density has no peak, or a coordinate has no finite variance: the prior is improper. And if the
        function itself is unsound: see `nadpvi.models.prior_check`.

    Examples
    --------
    >>> mean, sd = prior_moments_of(
    ...     lambda theta: -0.5 * ((theta - 3.0) ** 2 / 4.0).sum(axis=-1),
    ...     blocks=[Parameter(name="a")], name="log_prior")
    >>> mean.round(6).tolist(), sd.round(6).tolist()
    ([3.0], [2.0])
    """
    labels = unconstrained_labels(blocks)
    points = np.random.default_rng(0).standard_normal((3, len(labels)))
    check_log_prior(log_density, points, blocks=blocks, name=name)
    with np.errstate(all="ignore"):
        peak = _peak(log_density, num_params=len(labels), name=name)
        alone = [_integrated(log_density, peak, k, label=label, name=name) for k, label in enumerate(labels)]
        widening = _widening(log_density, peak, scale=np.array([width for _, _, width in alone]), name=name)
    mean = np.array([center for center, _, _ in alone])
    return mean, np.array([sd for _, sd, _ in alone]) * widening


def _peak(log_density: LogDensity, *, num_params: int, name: str) -> Array:
    """Return where the density is largest, shape (K,), by quasi-Newton search from zero."""
    from scipy.optimize import minimize

    gradient = gradient_of(log_density)

    def loss(theta: Array) -> float:
        # The search would go on to the end of the number range before it gave up.
        if not np.abs(theta).max() < _FARTHEST_PEAK:
            raise ModelError(f"{name} has no peak on the unconstrained scale: {_REMEDY}")
        return -float(log_density(theta[None])[0])

    found = minimize(loss, np.zeros(num_params), jac=lambda theta: -gradient(theta[None])[0], method="BFGS")
    return np.asarray(found.x, dtype=np.float64)


def _integrated(
    log_density: LogDensity, peak: Array, k: int, *, label: str, name: str
) -> tuple[float, float, float]:
    """Return mean, sd and width of coordinate k alone; the width is where the density has lost one nat."""
    problem = (
        f"{name} gives {label} no finite variance (it is flat, improper or heavy-tailed there): {_REMEDY}"
    )
    top = float(log_density(peak[None])[0])

    def drop(steps: Array) -> Array:
        theta = np.repeat(peak[None], len(steps), axis=0)
        theta[:, k] += steps
        return top - log_density(theta)

    widths: Array = 2.0 ** np.arange(-30.0, 20.0)
    fallen = (drop(widths) > 1.0) | (drop(-widths) > 1.0)
    if not fallen.any():
        raise ModelError(problem)
    width = float(widths[fallen.argmax()])
    steps = width * _GRID
    loss = drop(steps)
    # Where the density cannot be evaluated, far out, there is none.
    weight = np.exp(-np.where(np.isfinite(loss), loss, np.inf)) * _GRID_SLOPE
    second = weight * steps**2
    if not np.isfinite(second).all() or max(second[0], second[-1]) > _LARGEST_TAIL * second.sum():
        raise ModelError(problem)
    shift = float(weight @ steps / weight.sum())
    spread = float(weight @ (steps - shift) ** 2 / weight.sum())
    return float(peak[k]) + shift, float(np.sqrt(spread)), width


def _widening(log_density: LogDensity, peak: Array, *, scale: Array, name: str) -> Array:
    """Return marginal over conditional standard deviation at the peak, shape (K,), at least 1."""
    gradient = gradient_of(log_density)
    steps = np.diag(1e-3 * scale)
    differences = (gradient(peak - steps) - gradient(peak + steps)) / 2e-3
    # In units of each coordinate's width, so that their scales do not matter.
    curvature = 0.5 * (differences * scale + (differences * scale).T)
    diagonal = np.diag(curvature)
    if not (np.isfinite(curvature).all() and (diagonal > 0).all()):
        raise ModelError(f"{name} has no peak on the unconstrained scale: {_REMEDY}")
    correlation = curvature / np.sqrt(np.outer(diagonal, diagonal))
    values, vectors = np.linalg.eigh(correlation)
    if values[0] < 1e-8:
        raise ModelError(f"{name} is flat along a combination of parameters: {_REMEDY}")
    widening: Array = np.sqrt((vectors**2 / values).sum(axis=1))
    return widening
