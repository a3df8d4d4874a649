"""Bayesian regression of a binary outcome with a probit or complementary log-log link."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from nadpvi.errors import ArgumentError
from nadpvi.models.base import RecordBatch
from nadpvi.models.links import (
    bounded_exp,
    bounded_exp_slope,
    cloglog_log_chance,
    cloglog_slope,
    normal_log_cdf,
    normal_log_cdf_slope,
)
from nadpvi.models.quadrature import normal_average
from nadpvi.models.regression import Regression, linear_predictor

__all__ = ["BinaryRegression"]

Array = NDArray[np.float64]

# Of u^2 / (exp(u) - 1), at u = 1.5936.
_LARGEST_CLOGLOG_INFORMATION = 0.64761024
# u = exp(7) leaves no doubt about the outcome: nothing is told beyond.
_CERTAIN = 7.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryRegression(Regression):
    """Binary regression, ``y ~ Bernoulli(p)`` with p from the linear predictor eta by one of two links.

    Probit: p = Phi(eta), the standard normal distribution function. Complementary log-log:
    p = 1 - exp(-exp(eta)), the chance of at least one event at the rate exp(eta). For the logit link see
    `LogisticRegression`, whose gradients are bounded; here they are not, so that a run needs a `clip_norm`.

    Parameters
    ----------
    outcome : str
        A binary column of the schema; its second level counts as 1.
    link : {"probit", "cloglog"}
        From eta to the chance of 1.
    predictors, prior_mean, prior_sd, intercept
        As for every regression: the columns to use (all others when omitted), the coefficients' normal prior
        (0 and 1; a mapping overrides it for some columns or labels), and whether there is a constant.

    Examples
    --------
    >>> model = BinaryRegression(outcome="ill", link="cloglog")
    >>> model.predict_mean(np.array([[0.0]]), np.array([[1.0]])).round(4)
    array([[0.6321]])
    """

    kind: ClassVar[str] = "binary_regression"
    outcome_kind: ClassVar[str] = "binary"

    link: str = "probit"

    def __post_init__(self) -> None:
        Regression.__post_init__(self)
        if self.link not in ("probit", "cloglog"):
            raise ArgumentError(
                f'link must be "probit" or "cloglog" (got {self.link!r}); for "logit" use LogisticRegression.'
            )

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return log p(y_b | x_b, theta), shape (..., B, K) -> (..., B)."""
        predictor = linear_predictor(theta, batch.x)
        if self.link == "probit":
            return normal_log_cdf((2.0 * batch.y - 1.0) * predictor)
        density: Array = batch.y * cloglog_log_chance(predictor) - (1.0 - batch.y) * bounded_exp(predictor)
        return density

    def score(self, predictors: Array, y: Array) -> Array:
        """Return d log p / d eta for the one linear predictor: (1, ...) -> (1, ...)."""
        if self.link == "probit":
            sign = 2.0 * y - 1.0
            return sign * normal_log_cdf_slope(sign * predictors)
        return y * cloglog_slope(predictors) - (1.0 - y) * bounded_exp_slope(predictors)

    def curvature_weights(self, mean: Array, sd: Array, *, extras: tuple[Array, Array]) -> Array:
        """Return E[(dp / d eta)^2 / (p (1 - p))] over a normal predictor: (1, B) -> (1, 1, B)."""
        information = _probit_information if self.link == "probit" else _cloglog_information
        weights = normal_average(information, mean, sd)[None]
        bounded: Array = np.minimum(weights, self.curvature_weight_bound(extras=extras))
        return bounded

    def curvature_weight_bound(self, *, extras: tuple[Array, Array]) -> float:
        """Return the largest weight: 2 / pi for probit, at 0; 0.648 for cloglog, at 0.466."""
        return 2.0 / math.pi if self.link == "probit" else _LARGEST_CLOGLOG_INFORMATION

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return P(y = 1 | x, theta), theta (M, K) and x (N, F) -> (M, N)."""
        return self._chance(theta @ x.T)

    def simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return outcomes 0.0 or 1.0: theta (K,) or (..., B, K) and x (B, F) -> (B,) or (..., B)."""
        chance = self._chance(linear_predictor(theta, x))
        outcomes: Array = (rng.random(chance.shape) < chance).astype(np.float64)
        return outcomes

    def _chance(self, predictor: Array) -> Array:
        """Return P(y = 1) at a linear predictor."""
        if self.link == "probit":
            return np.asarray(ndtr(predictor))
        return -np.expm1(-bounded_exp_slope(predictor))


def _probit_information(predictor: Array) -> Array:
    """Return the product of both outcomes' slopes of log Phi, which is density^2 / (p (1 - p))."""
    information: Array = normal_log_cdf_slope(predictor) * normal_log_cdf_slope(-predictor)
    return information


def _cloglog_information(predictor: Array) -> Array:
    """Return the product of both outcomes' slopes, u and u / (exp(u) - 1) with u = exp(eta)."""
    capped = np.minimum(predictor, _CERTAIN)
    information: Array = np.exp(capped) * cloglog_slope(capped)
    return information
