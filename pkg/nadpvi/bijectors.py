"""Softplus, the map to a guide's scales; the parameters of models have theirs in `nadpvi.supports`."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

__all__ = ["inverse_softplus", "softplus", "softplus_derivative", "softplus_log_derivative"]

# Below this, softplus(x) = exp(x) to the last bit, and exp(x) / softplus(x) is 1.
_EXPONENTIAL_BELOW = -37.0


def softplus(x: ArrayLike) -> NDArray[np.float64]:
    """Return log(1 + exp(x)), positive and overflow-free.

    Values below x = -708, where the result would leave the range of normal numbers, are held at
    softplus(-708), so that a scale never reaches zero.

    Examples
    --------
    >>> float(softplus(0.0)) == float(np.log(2.0))
    True
    >>> bool(softplus(-1e4) > 0)
    True
    """
    value = np.maximum(np.asarray(x, dtype=np.float64), -708.0)
    # equal to logaddexp(0, x), which is ten times slower: NumPy has no vector instructions for it
    softened: NDArray[np.float64] = np.maximum(value, 0.0) + np.log1p(np.exp(-np.abs(value)))
    return softened


def inverse_softplus(value: ArrayLike) -> NDArray[np.float64]:
    """Return x with softplus(x) = `value` > 0, precise at either end.

    Examples
    --------
    >>> bool(np.isclose(softplus(inverse_softplus(1e-30)), 1e-30, rtol=1e-12))
    True
    """
    given = np.asarray(value, dtype=np.float64)
    return np.asarray(given + np.log(-np.expm1(-given)))


def softplus_derivative(x: ArrayLike) -> NDArray[np.float64]:
    """Return d softplus(x) / dx, the logistic function of `x`."""
    return np.asarray(expit(np.asarray(x, dtype=np.float64)))


def softplus_log_derivative(x: ArrayLike) -> NDArray[np.float64]:
    """Return d log(softplus(x)) / dx, which tends to 1 as x falls and to 1/x as x grows.

    Examples
    --------
    >>> float(softplus_log_derivative(-1e4))
    1.0
    """
    # Where the ratio is 1 to the last bit, it is that of the largest such argument.
    value = np.maximum(np.asarray(x, dtype=np.float64), _EXPONENTIAL_BELOW)
    return np.asarray(expit(value) / np.logaddexp(0.0, value))
