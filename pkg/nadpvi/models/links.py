"""Functions that likelihoods are made of, finite with finite derivatives wherever they are evaluated.

Each is either written with ``autograd.numpy`` or a primitive that knows its derivative, to second order: the
naive formulas overflow, or lose all their digits, long before the functions themselves do.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import autograd.numpy as anp
import numpy as np
from autograd.extend import defvjp, primitive
from autograd.numpy.numpy_vjps import unbroadcast_f
from numpy.typing import NDArray
from scipy import special

__all__ = [
    "bounded_exp",
    "bounded_exp_slope",
    "bounded_exp_value",
    "cloglog_log_chance",
    "cloglog_slope",
    "log_rising",
    "log_rising_slope",
    "normal_log_cdf",
    "normal_log_cdf_slope",
]

Array = NDArray[np.float64]

# exp continues as its tangent from here on: far beyond every sensible value, and its square is still finite.
_TANGENT_FROM = 300.0
# exp(50) is where an event of cloglog has long been certain, and a negative binomial a Poisson.
_LARGEST = 50.0
# From here on Stirling's series is exact to the last bit with the terms below.
_STIRLING_FROM = 100.0

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _primitive(function: _Function) -> _Function:
    """Return a function that autograd differentiates by the rule below, under its own type."""
    traced: _Function = primitive(function)
    return traced


def bounded_exp(x: Array) -> Array:
    """Return exp(x), continued as its tangent beyond 300: convex, finite, with the matching derivative."""
    value: Array = anp.exp(anp.minimum(x, _TANGENT_FROM)) * (1.0 + anp.maximum(x - _TANGENT_FROM, 0.0))
    return value


def bounded_exp_slope(x: Array) -> Array:
    """Return the derivative of `bounded_exp`, exp(min(x, 300))."""
    slope: Array = np.exp(np.minimum(x, _TANGENT_FROM))
    return slope


def bounded_exp_value(x: Array) -> Array:
    """Return `bounded_exp` of a plain array, without what autograd's wrappers cost at every step."""
    value: Array = bounded_exp_slope(x) * (1.0 + np.maximum(x - _TANGENT_FROM, 0.0))
    return value


@_primitive
def normal_log_cdf(x: Array) -> Array:
    """Return log Phi(x), the standard normal's log distribution function."""
    return np.asarray(special.log_ndtr(x))


@_primitive
def normal_log_cdf_slope(x: Array) -> Array:
    """Return the derivative of `normal_log_cdf`, the density over Phi(x): 0 at the right, -x at the left."""
    # By the scaled complementary error function, which holds neither tail's exponential.
    with np.errstate(over="ignore"):
        slope: Array = math.sqrt(2.0 / math.pi) / special.erfcx(-math.sqrt(0.5) * x)
    return slope


@_primitive
def cloglog_log_chance(x: Array) -> Array:
    """Return log(1 - exp(-exp(x))), x on the left and 0 on the right."""
    capped = np.minimum(x, _LARGEST)
    value: Array = capped + np.log(special.exprel(-np.exp(capped)))
    return value


@_primitive
def cloglog_slope(x: Array) -> Array:
    """Return the derivative of `cloglog_log_chance`, u / (exp(u) - 1) with u = exp(x)."""
    slope: Array = 1.0 / special.exprel(np.exp(np.minimum(x, _LARGEST)))
    return slope


@_primitive
def log_rising(log_size: Array, y: Array) -> Array:
    """Return log(Gamma(y + r) / Gamma(r)) for whole y >= 0, with r = exp(`log_size`) up to exp(50)."""

    def near(size: Array, counts: Array) -> Array:
        # Gamma(r) = Gamma(1 + r) / r, so that nothing overflows as r goes to 0.
        log_small = np.minimum(log_size, math.log(_STIRLING_FROM))
        value: Array = special.gammaln(counts + size) - special.gammaln(1.0 + size) + log_small
        return value

    def far(size: Array) -> Array:
        value: Array = y * np.log(size) + (size + y - 0.5) * np.log1p(y / size) - y
        return value + _stirling(y + size) - _stirling(size)

    return _switched(log_size, y, near=near, far=far)


@_primitive
def log_rising_slope(log_size: Array, y: Array) -> Array:
    """Return the derivative of `log_rising` in `log_size`, r (digamma(y + r) - digamma(r))."""

    def near(size: Array, counts: Array) -> Array:
        value: Array = size * (special.digamma(counts + size) - special.digamma(1.0 + size)) + 1.0
        return value

    def far(size: Array) -> Array:
        value: Array = size * np.log1p(y / size) + 0.5 * y / (y + size)
        return value + size * (_digamma_rest(y + size) - _digamma_rest(size))

    return np.where(log_size < _LARGEST, _switched(log_size, y, near=near, far=far), 0.0)


def _log_rising_curvature(log_size: Array, y: Array) -> Array:
    """Return the second derivative of `log_rising` in `log_size`; no call goes further."""

    def near(size: Array, counts: Array) -> Array:
        first = special.digamma(counts + size) - special.digamma(1.0 + size)
        second = special.polygamma(1, counts + size) - special.polygamma(1, 1.0 + size)
        value: Array = size * first + size**2 * second
        return value

    def far(size: Array) -> Array:
        value: Array = size * np.log1p(y / size) - y * size / (y + size) - 0.5 * y * size / (y + size) ** 2
        value = value + size * (_digamma_rest(y + size) - _digamma_rest(size))
        return value + size**2 * (_digamma_rest_slope(y + size) - _digamma_rest_slope(size))

    return np.where(log_size < _LARGEST, _switched(log_size, y, near=near, far=far), 0.0)


def _switched(
    log_size: Array, y: Array, *, near: Callable[[Array, Array], Array], far: Callable[[Array], Array]
) -> Array:
    """Return `near` for small r and y > 0, 0 for small r and y = 0, and `far` for large r.

    Which of them are worked out depends on `log_size` alone, never on an outcome.
    """
    size = np.exp(np.minimum(log_size, _LARGEST))
    is_small = size < _STIRLING_FROM
    value: Array = np.zeros(np.broadcast_shapes(np.shape(log_size), np.shape(y)))
    if is_small.any():
        small = near(np.minimum(size, _STIRLING_FROM), np.maximum(y, 1.0))
        value = np.where(np.asarray(y) > 0, small, 0.0)
    if not is_small.all():
        value = np.where(is_small, value, far(np.maximum(size, _STIRLING_FROM)))
    return value


def _stirling(z: Array) -> Array:
    """Return log Gamma(z) less (z - 1/2) log z - z + log(2 pi) / 2."""
    rest: Array = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / z**2) / z**2) / z
    return rest


def _digamma_rest(z: Array) -> Array:
    """Return digamma(z) less log z - 1 / (2 z)."""
    rest: Array = -(1.0 / 12.0 - (1.0 / 120.0 - 1.0 / 252.0 / z**2) / z**2) / z**2
    return rest


def _digamma_rest_slope(z: Array) -> Array:
    """Return the derivative of `_digamma_rest`."""
    slope: Array = (1.0 / 6.0 - (1.0 / 30.0 - 1.0 / 42.0 / z**2) / z**2) / z**3
    return slope


defvjp(normal_log_cdf, lambda ans, x: lambda g: g * normal_log_cdf_slope(x))
defvjp(normal_log_cdf_slope, lambda ans, x: lambda g: -g * ans * (x + ans))
defvjp(cloglog_log_chance, lambda ans, x: lambda g: g * cloglog_slope(x))
defvjp(cloglog_slope, lambda ans, x: lambda g: g * ans * (1.0 - bounded_exp(x) - ans))
defvjp(
    log_rising,
    lambda ans, log_size, y: unbroadcast_f(log_size, lambda g: g * log_rising_slope(log_size, y)),
    argnums=(0,),
)
defvjp(
    log_rising_slope,
    lambda ans, log_size, y: unbroadcast_f(log_size, lambda g: g * _log_rising_curvature(log_size, y)),
    argnums=(0,),
)
