"""A log prior is tried before anything relies on it. Public side; no record is involved."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ModelError, NadpviError
from nadpvi.models.parameters import Parameter, log_jacobian, parts_of

__all__ = ["LogDensity", "check_log_prior", "gradient_of"]

Array = NDArray[np.float64]
LogDensity = Callable[[Array], Array]

# A constant density is a proper prior on these, and on no other support.
_BOUNDED = ("unit_interval", "simplex")


def check_log_prior(log_prior: LogDensity, theta: Array, *, blocks: Sequence[Parameter], name: str) -> None:
    """Raise unless a log prior gives one finite number a draw, and a finite gradient in every parameter.

    Parameters
    ----------
    log_prior : callable
        Log density of unconstrained theta, its Jacobian included: (S, K) -> (S,).
    theta : ndarray, shape (S, K)
        Ordinary values.
    blocks : sequence of Parameter
        K coordinates in all.
    name : str
        What its author calls it, for messages.

    Raises
    ------
    ModelError
        If it fails, cannot be differentiated, does not depend on a parameter, or has a wrong shape or values
        that are not finite.
    """
    value = _tried(log_prior, theta, problem=f"{name} failed on made-up parameters")
    if np.shape(value) != (len(theta),):
        raise ModelError(
            f"{name} must give one number a draw: shape ({len(theta)},) for {len(theta)} draws (got "
            f"{np.shape(value)})."
        )
    if not np.isfinite(value).all():
        raise ModelError(f"{name} is not finite at ordinary values of the parameters.")
    problem = f"{name} cannot be differentiated; write it with autograd.numpy (and autograd.scipy)"
    gradient = _tried(gradient_of(log_prior), theta, problem=problem)
    if not np.isfinite(gradient).all():
        raise ModelError(f"{name} has a gradient that is not finite at ordinary values of the parameters.")
    # Of the density of the constrained values alone.
    sloped = np.abs(gradient - gradient_of(lambda z: log_jacobian(blocks, z))(theta)).max(axis=0) > 0.0
    for block, part in parts_of(blocks):
        matters = sloped[part] if block.support in ("real", "positive") else sloped[part].any(keepdims=True)
        if block.support not in _BOUNDED and not matters.all():
            missing = block.labels[int(matters.argmin())] if len(matters) > 1 else block.name
            raise ModelError(
                f"{name} does not depend on {missing}: a flat prior there is improper; give it a prior, or "
                "support='unit_interval' if it is uniform between two bounds, with a linear map in the model."
            )


def gradient_of(log_density: LogDensity) -> LogDensity:
    """Return the gradient (S, K) -> (S, K); each draw's density depends on that draw alone."""
    from autograd import grad

    gradient: LogDensity = grad(lambda theta: log_density(theta).sum())
    return gradient


def _tried(function: LogDensity, theta: Array, *, problem: str) -> Array:
    """Return what a user's function gives, or raise one line."""
    frozen = theta.copy()
    frozen.flags.writeable = False
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            # That the result does not depend on its input is told below, by the parameter's name.
            warnings.filterwarnings("ignore", message="Output seems independent of input")
            return function(frozen)
    except NadpviError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise ModelError(f"{problem} ({type(error).__name__}: {str(error).rstrip('.')}).") from error
