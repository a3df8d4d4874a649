"""The scale s(u) > 0 that all guides share, and its derivatives."""

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nadpvi.bijectors import softplus, softplus_derivative, softplus_log_derivative
from nadpvi.errors import ArgumentError

__all__ = ["Scale", "check_scale", "gaussian_entropy", "scale_derivative", "scale_log_derivative", "scale_of"]

Scale = Literal["sd", "variance"]
Array = NDArray[np.float64]


def check_scale(scale: object) -> None:
    """Raise `ArgumentError` unless `scale` is "sd" or "variance"."""
    if scale not in ("sd", "variance"):
        raise ArgumentError(f'scale must be "sd" or "variance" (got {scale!r}).')


def scale_of(u: Array, *, scale: Scale) -> Array:
    """Return s(u), softplus(u) or its square root, of the shape of `u`; it never reaches zero."""
    return softplus(u) if scale == "sd" else np.sqrt(softplus(u))


def scale_derivative(u: Array, *, scale: Scale) -> Array:
    """Return ds / du, of the shape of `u`."""
    if scale == "sd":
        return softplus_derivative(u)
    return 0.5 * np.sqrt(softplus(u)) * softplus_log_derivative(u)


def scale_log_derivative(u: Array, *, scale: Scale) -> Array:
    """Return d log s / du, of the shape of `u`."""
    return (1.0 if scale == "sd" else 0.5) * softplus_log_derivative(u)


def gaussian_entropy(u: Array, *, scale: Scale) -> Array:
    """Return the entropy in nats of K independent Gaussians of sd s(u), (..., K) -> (...)."""
    constant = 0.5 * (1.0 + math.log(2.0 * math.pi))
    entropy: Array = (np.log(scale_of(u, scale=scale)) + constant).sum(axis=-1)
    return entropy
