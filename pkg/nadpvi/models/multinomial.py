"""Bayesian multinomial logistic regression: an outcome of several levels, the first as reference."""

import math
from dataclasses import dataclass
from typing import ClassVar

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from nadpvi.encoding import Design
from nadpvi.models.base import Parameter, RecordBatch
from nadpvi.models.quadrature import standard_normal_points
from nadpvi.models.regression import Regression

__all__ = ["MultinomialLogisticRegression"]

Array = NDArray[np.float64]

_SLACK = 1.0 - 1e-12  # so that rounding takes no weight beyond its bound


@dataclass(frozen=True, slots=True, kw_only=True)
class MultinomialLogisticRegression(Regression):
    """Multinomial logistic regression, ``p(y = c) = exp(eta_c) / sum_j exp(eta_j)`` with eta_0 = 0.

    Each of the C - 1 levels after the first has its own F coefficients: log odds against the first level.
    Theta is one block of F a level, in the levels' order.

    Parameters
    ----------
    outcome : str
        A categorical (or binary) column of the schema; its first level is the reference.
    predictors, prior_mean, prior_sd, intercept
        As for every regression: the columns to use (all others when omitted), the coefficients' normal prior
        (0 and 1; a mapping overrides it for some columns or labels, in every level's block), and whether
        there is a constant.

    Examples
    --------
    >>> model = MultinomialLogisticRegression(outcome="job")
    >>> model.predict_mean(np.log([[2.0, 3.0]]), np.array([[1.0]])).round(3)
    array([[[0.167, 0.333, 0.5  ]]])
    """

    kind: ClassVar[str] = "multinomial_logistic_regression"
    outcome_kind: ClassVar[str] = "categorical"

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return one block, ``coefficients``, of one row a level after the first."""
        coords = (design.outcome_levels[1:], design.labels)
        return (Parameter(name="coefficients", dims=("category", "coefficient"), coords=coords),)

    def num_predictors(self, design: Design) -> int:
        """Return C - 1, the number of linear predictors."""
        return len(design.outcome_levels) - 1

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return log p(y_b | x_b, theta), shape (..., B, K) -> (..., B)."""
        predictors = _predictors(theta, batch.x)
        chosen = anp.sum(_indicators(batch.y, num_levels=predictors.shape[-1]) * predictors, axis=-1)
        # logsumexp by hand: autograd's own brings all of scipy.stats with it, seconds of import.
        largest = anp.max(predictors, axis=-1, keepdims=True)
        rest = anp.log(anp.sum(anp.exp(predictors - largest), axis=-1))
        density: Array = chosen - largest[..., 0] - rest
        return density

    def score(self, predictors: Array, y: Array) -> Array:
        """Return 1(y = c) - p_c for each level after the first: (C - 1, ...) -> (C - 1, ...)."""
        # Shifted by the largest predictor, the reference's 0 included, so that no exponential overflows.
        largest = np.maximum(predictors.max(axis=0), 0.0)
        weights: Array = predictors - largest
        np.exp(weights, out=weights)
        weights /= -(weights.sum(axis=0) + np.exp(-largest))
        for level, residual in enumerate(weights, start=1):
            residual += y == level
        return weights

    def gradient_bound(self, design: Design) -> float | None:
        """Return the largest norm of one record's gradient: sqrt(2) (1 for two levels) times that of x."""
        residual = 1.0 if len(design.outcome_levels) == 2 else math.sqrt(2.0)
        return residual * design.feature_norm_bound

    def curvature_weights(self, mean: Array, sd: Array, *, extras: tuple[Array, Array]) -> Array:
        """Return E[diag(p) - p p'] over normal predictors of the levels after the first: (J, B) -> (J, J, B).

        The average is over the same 64 points for every record.
        """
        num_levels = len(mean)
        weights = np.zeros((num_levels, *mean.shape))
        points = standard_normal_points(num_levels)
        for point in points:
            chances = _chances(mean + sd * point[:, None])
            weights -= chances[:, None] * chances[None, :]
            weights[range(num_levels), range(num_levels)] += chances
        weights *= _SLACK / len(points)
        return weights

    def curvature_weight_bound(self, *, extras: tuple[Array, Array]) -> float:
        """Return 1/2, at two levels of equal chances.

        With S_k the sum of p^k the squared norm is S_2 - 2 S_3 + S_2^2, and S_3 >= S_2^2, so that it is at
        most S_2 (1 - S_2) <= 1/4.
        """
        return 0.5

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return each level's probability, theta (M, K) and x (N, F) -> (M, N, C)."""
        blocks = theta.reshape(len(theta), -1, x.shape[1])
        others = np.swapaxes(blocks @ x.T, 1, 2)
        every = np.concatenate([np.zeros((*others.shape[:2], 1)), others], axis=2)
        return np.asarray(softmax(every, axis=-1))

    def simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return levels' places 0.0 to C - 1: theta (K,) or (..., B, K) and x (B, F) -> (B,) or (..., B)."""
        chances = softmax(_predictors(theta, x), axis=-1)
        below = np.cumsum(chances, axis=-1)[..., :-1]
        codes: Array = (rng.random(below.shape[:-1])[..., None] >= below).sum(axis=-1).astype(np.float64)
        return codes


def _predictors(theta: Array, x: Array) -> Array:
    """Return all C linear predictors, the reference's 0 first: theta (..., B, K), x (B, F) -> (..., B, C)."""
    num_features = x.shape[-1]
    blocks = anp.reshape(theta, (*theta.shape[:-1], theta.shape[-1] // num_features, num_features))
    others = anp.sum(blocks * x[:, None, :], axis=-1)
    every: Array = anp.concatenate([anp.zeros((*others.shape[:-1], 1)), others], axis=-1)
    return every


def _indicators(y: Array, *, num_levels: int) -> Array:
    """Return y as 0/1 entries, shape (..., C)."""
    indicators: Array = (y[..., None] == np.arange(num_levels)).astype(np.float64)
    return indicators


def _chances(predictors: Array) -> Array:
    """Return the chances of the levels after the first, (J, B) -> (J, B), added up level by level.

    A sum over the first axis may go in another order where there is one record only.
    """
    largest = np.maximum(predictors.max(axis=0), 0.0)
    odds: Array = np.exp(predictors - largest)
    total = np.exp(-largest)
    for level in odds:
        total += level
    odds /= total
    return odds
