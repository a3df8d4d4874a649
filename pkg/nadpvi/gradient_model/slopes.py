"""What the least-squares slope of gradient on iterate says of v, in whatever units the trace has."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.bijectors import inverse_softplus, softplus_derivative

__all__ = ["estimated_v", "information_on_v", "slope_precision"]

FloatArray = NDArray[np.float64]


def slope_precision(*, s_pp: FloatArray, noise_std: FloatArray, sampling_rate: float) -> FloatArray:
    """Return one over the squared standard error of the curvature slope / kappa, where tau = 0."""
    precision: FloatArray = s_pp * np.square(sampling_rate / noise_std)
    return precision


def information_on_v(v: FloatArray, *, precision: FloatArray) -> FloatArray:
    """Return the information of the slope on v: what it says of the curvature a, times (da / dv)^2.

    Without that derivative the unit of a would matter, since v is like log(a) where a is small.

    Parameters
    ----------
    v : ndarray, shape (..., D)
    precision : ndarray, shape (D,)
        From `slope_precision`.

    Examples
    --------
    >>> information_on_v(np.array([0.0, 50.0]), precision=np.array([4.0, 4.0])).round(6)
    array([1., 4.])
    """
    information: FloatArray = precision * np.square(softplus_derivative(v))
    return information


def estimated_v(estimate: FloatArray, *, precision: FloatArray) -> FloatArray:
    """Return v at the curvature's least-squares estimate, or at its standard error where that is larger.

    Parameters
    ----------
    estimate : ndarray, shape (D,)
        slope / kappa, of any sign.
    precision : ndarray, shape (D,)
        As in `information_on_v`.

    Examples
    --------
    >>> estimated_v(np.array([60.0, -3.0]), precision=np.array([1.0, 1.0 / np.log(2.0) ** 2])).round(9) + 0.0
    array([60.,  0.])
    """
    return inverse_softplus(np.maximum(estimate, 1.0 / np.sqrt(precision)))
