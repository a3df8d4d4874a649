"""Bayesian logistic regression with independent normal priors on the coefficients."""

from dataclasses import dataclass
from typing import ClassVar

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from nadpvi.encoding import Design
from nadpvi.models.base import RecordBatch
from nadpvi.models.quadrature import normal_average
from nadpvi.models.regression import Regression, linear_predictor

__all__ = ["LogisticRegression"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticRegression(Regression):
    """Logistic regression, ``y ~ Bernoulli(logit^-1(x' theta))``.

    Parameters
    ----------
    outcome : str
        A binary column of the schema; its second level counts as 1.
    predictors, prior_mean, prior_sd, intercept
        As for every regression: the columns to use (all others when omitted), the coefficients' normal prior
        (0 and 1; a mapping overrides it for some columns or labels), and whether there is a constant.

    Examples
    --------
    >>> LogisticRegression(outcome="income", predictors=["age"]).predictors
    ('age',)
    >>> LogisticRegression(outcome="income", prior_sd={"Intercept": 5}).to_dict()["prior_sd"]
    {'Intercept': 5.0}
    """

    kind: ClassVar[str] = "logistic_regression"
    outcome_kind: ClassVar[str] = "binary"

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return log p(y_b | x_b, theta), shape (..., B, K) -> (..., B)."""
        predictor = linear_predictor(theta, batch.x)
        density: Array = batch.y * predictor - anp.logaddexp(0.0, predictor)
        return density

    def score(self, predictors: Array, y: Array) -> Array:
        """Return y - logit^-1(eta), in [-1, 1], for the one linear predictor: (1, ...) -> (1, ...)."""
        # The logistic function written with tanh, which NumPy vectorises: the same to 1e-16 absolute.
        residual: Array = np.tanh(0.5 * predictors)
        residual *= -0.5
        residual += y - 0.5
        return residual

    def gradient_bound(self, design: Design) -> float | None:
        """Return the largest norm of one record's gradient: a residual in [-1, 1] times the norm of x."""
        return design.feature_norm_bound

    def curvature_weights(self, mean: Array, sd: Array, *, extras: tuple[Array, Array]) -> Array:
        """Return E[p (1 - p)] over a normal predictor: (1, B) -> (1, 1, B)."""
        weights = normal_average(_information, mean, sd)[None]
        bounded: Array = np.minimum(weights, 0.25)  # which rounding may exceed
        return bounded

    def curvature_weight_bound(self, *, extras: tuple[Array, Array]) -> float:
        """Return 1/4, the weight at even odds."""
        return 0.25

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return P(y = 1 | x, theta), theta (M, K) and x (N, F) -> (M, N)."""
        return np.asarray(expit(theta @ x.T))

    def simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return outcomes 0.0 or 1.0: theta (K,) or (..., B, K) and x (B, F) -> (B,) or (..., B).

        Examples
        --------
        >>> model = LogisticRegression(outcome="income")
        >>> model.simulate(np.array([50.0]), np.array([[1.0], [-1.0]]), rng=np.random.default_rng(0))
        array([1., 0.])
        """
        chance = expit(linear_predictor(theta, x))
        outcomes: Array = (rng.random(chance.shape) < chance).astype(np.float64)
        return outcomes


def _information(predictor: Array) -> Array:
    """Return p (1 - p) at a linear predictor."""
    chance = expit(predictor)
    information: Array = chance * (1.0 - chance)
    return information
