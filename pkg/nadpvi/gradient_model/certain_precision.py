"""The part of a location's curvature that is known beforehand: what the model's own prior adds to it.

Where the prior of a coefficient depends on another parameter, its marginal variance says nothing of that: in
linear regression w given s2 is normal with variance s2 * prior_sd^2, and the negative ELBO has the curvature
E_q[1 / s2] / prior_sd^2 in its location, whose place is where the trace says that s2 is.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.design import Design
from nadpvi.models.base import LinearModel, Model

__all__ = ["certain_precision", "certain_prior_sd"]

FloatArray = NDArray[np.float64]


class _DifferentiatedPrior(Protocol):
    """A model that knows the gradient of its log prior."""

    def log_prior_gradient(self, theta: FloatArray, design: Design) -> FloatArray:
        """Return the gradient in theta, shape (..., K) -> (..., K)."""


def certain_precision(description: ModelDescription, *, center: FloatArray) -> FloatArray:
    """Return what the prior adds to the curvature of each location, shape (K,); 0 where that is not certain.

    Certain are the coefficients of a model with linear predictors, whose prior is normal and independent
    given the model's further parameters, with those at `center`.

    Parameters
    ----------
    description : ModelDescription
    center : ndarray, shape (D,)
        Where the curvature is asked for: the mean of the window.

    Examples
    --------
    >>> from nadpvi.columns import RealColumn
    >>> from nadpvi.guides import MeanField
    >>> from nadpvi.models import LinearRegression
    >>> from nadpvi.schema import Schema
    >>> schema = Schema(columns=[RealColumn(name=name, lower=0, upper=1) for name in ("x", "y")])
    >>> made = ModelDescription(model=LinearRegression(outcome="y"), schema=schema, guide=MeanField())
    >>> at = np.array([0.0, 0.0, np.log(0.1), -9.0, -9.0, -9.0])  # s2 = 0.1, with little doubt
    >>> certain_precision(made, center=at).round(2).tolist()  # 1 / (0.1 * 2^2)
    [2.5, 2.5, 0.0]
    """
    model, size = description.model, len(description.names)
    precision = np.zeros(size)
    if not isinstance(model, LinearModel):
        return precision
    count = size - model.num_extras
    mean, sd = model.prior_moments(description.design)
    if model.num_extras and _has_gradient(model):
        theta = center[:size].copy()
        # The mean of exp(-log s2) over a normal guide is its value here.
        theta[count:] -= 0.5 * np.square(description.guide.standard_deviation(center)[count:])
        theta[:count] = mean[:count] + sd[:count]
        # The log prior's gradient is linear in the coefficients, and 0 at their mean.
        gradient = model.log_prior_gradient(theta, description.design)  # type: ignore[attr-defined]
        precision[:count] = -gradient[:count] / sd[:count]
    elif not model.num_extras:
        precision = 1.0 / np.square(sd)
    return precision


def certain_prior_sd(
    description: ModelDescription | None, *, prior_sd: FloatArray, center: FloatArray
) -> FloatArray:
    """Return the prior sds whose precisions a curvature may be held to, shape (D,); infinite where none is.

    Those of a model with linear predictors are `certain_precision`'s; of any other they are `prior_sd`, NaN
    where the model says nothing.
    """
    sd = np.array(prior_sd, dtype=np.float64)
    if description is not None and isinstance(description.model, LinearModel):
        precision = certain_precision(description, center=center)
        with np.errstate(divide="ignore"):
            sd[: precision.size] = 1.0 / np.sqrt(precision)
    return sd


def _has_gradient(model: Model) -> bool:
    """Tell whether a model knows the gradient of its log prior."""
    return callable(getattr(model, "log_prior_gradient", None))
