"""Bayesian Poisson regression with a log link."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from nadpvi.models.base import RecordBatch
from nadpvi.models.links import bounded_exp, bounded_exp_slope
from nadpvi.models.regression import Regression, linear_predictor

__all__ = ["PoissonRegression"]

Array = NDArray[np.float64]

# numpy draws no Poisson counts of a larger mean.
_LARGEST_LOG_RATE = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonRegression(Regression):
    """Poisson regression, ``y ~ Poisson(exp(x' theta))``.

    A record's gradient is (y - rate) x, not bounded: a run needs a `clip_norm`.

    Parameters
    ----------
    outcome : str
        A count column of the schema; counts above its public bound are clamped.
    predictors, prior_mean, prior_sd, intercept
        As for every regression: the columns to use (all others when omitted), the coefficients' normal prior
        (0 and 1; a mapping overrides it for some columns or labels), and whether there is a constant.

    Examples
    --------
    >>> model = PoissonRegression(outcome="visits", prior_mean={"Intercept": 2})
    >>> model.predict_mean(np.array([[0.0, 1.0]]), np.array([[1.0, 1.0], [1.0, 0.0]])).round(3)
    array([[2.718, 1.   ]])
    """

    kind: ClassVar[str] = "poisson_regression"
    outcome_kind: ClassVar[str] = "count"

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return log p(y_b | x_b, theta), shape (..., B, K) -> (..., B)."""
        predictor = linear_predictor(theta, batch.x)
        density: Array = batch.y * predictor - bounded_exp(predictor) - gammaln(batch.y + 1.0)
        return density

    def score(self, predictors: Array, y: Array) -> Array:
        """Return y - exp(eta) for the one linear predictor: (1, ...) -> (1, ...)."""
        return y - bounded_exp_slope(predictors)

    def curvature_weights(self, mean: Array, sd: Array, *, extras: tuple[Array, Array]) -> Array:
        """Return E[rate] over a normal predictor: (1, B) -> (1, 1, B)."""
        return bounded_exp_slope(mean + 0.5 * np.square(sd))[None]

    def curvature_weight_bound(self, *, extras: tuple[Array, Array]) -> None:
        """Return None: the rate grows with the linear predictor."""
        return None

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return the rate at x, theta (M, K) and x (N, F) -> (M, N)."""
        return bounded_exp_slope(theta @ x.T)

    def simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return counts: theta (K,) or (..., B, K) and x (B, F) -> (B,) or (..., B)."""
        rate = np.exp(np.minimum(linear_predictor(theta, x), _LARGEST_LOG_RATE))
        return rng.poisson(rate).astype(np.float64)
