"""Per-record gradients in theta itself, at one draw: what a guide's locations have. Private side.

A location moves its parameter one to one, so that with a single draw a record's loss gradient in the
locations is minus the derivative of its log likelihood in theta there. Three ways give equal numbers, as for
whole gradients: the model's own scores of its linear predictors, its sufficient statistics, and autodiff.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.models.base import ExponentialFamily, LinearModel, Model, RecordBatch
from nadpvi.private.routes.rows import DenseGradients, GradientFunction

__all__ = ["location_route"]

Array = NDArray[np.float64]


def location_route(model: Model, *, theta: Array) -> GradientFunction:
    """Return the function that gives a batch's per-record loss gradients in theta, (B, K).

    Parameters
    ----------
    model : Model
        A `LinearModel` or an `ExponentialFamily` takes matrix products, any other autodiff.
    theta : ndarray, shape (K,)
        The draw.
    """
    made: GradientFunction = _route_of(type(model))(model, theta)
    return made


@cache
def _route_of(kind: type[Model]) -> Callable[[Any, Array], GradientFunction]:
    """Return the route that a model offers; asked for at every step, so the answer is kept."""
    if hasattr(kind, "score"):
        return _linear
    if hasattr(kind, "natural_gradient"):
        return _exponential
    return _by_autodiff


def _linear(model: LinearModel, theta: Array) -> GradientFunction:
    """Return gradients as features times the scores of their predictors."""
    num_coefficients = len(theta) - model.num_extras
    extras = [np.full((1, 1), value) for value in theta[num_coefficients:]]

    def gradients(batch: RecordBatch) -> DenseGradients:
        num_records, num_features = batch.x.shape
        coefficients = theta[:num_coefficients].reshape(-1, num_features)
        predictors = [batch.x @ block[:, None] for block in coefficients]
        score = model.score(np.array(predictors) if not extras else [*predictors, *extras], batch.y[:, None])
        rows = np.empty((num_records, len(theta)))
        for j in range(len(coefficients)):
            np.multiply(batch.x, -score[j], out=rows[:, j * num_features : (j + 1) * num_features])
        for place in range(len(extras)):
            rows[:, num_coefficients + place] = -score[len(coefficients) + place, :, 0]
        return DenseGradients(rows=rows)

    return gradients


def _exponential(model: ExponentialFamily, theta: Array) -> GradientFunction:
    """Return gradients as statistics, and a constant, times one matrix of the step."""
    matrix = -model.natural_gradient(theta[None])[0]

    def gradients(batch: RecordBatch) -> DenseGradients:
        statistics = np.ones((len(matrix), len(batch.y)))
        statistics[:-1] = model.statistics(batch, num_params=len(theta)).T
        return DenseGradients(rows=(matrix.T @ statistics).T)

    return gradients


def _by_autodiff(model: Model, theta: Array) -> GradientFunction:
    """Return gradients by one reverse pass over theta, repeated for every record."""
    from autograd import grad

    def gradients(batch: RecordBatch) -> DenseGradients:
        tiled = np.repeat(theta[None, None], len(batch.y), axis=1)
        rows = grad(lambda value: -model.log_likelihood(value, batch).sum())(tiled)[0]
        return DenseGradients(rows=rows)

    return gradients
