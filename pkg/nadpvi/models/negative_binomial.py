"""Bayesian negative binomial regression with a log link: counts that vary more than Poisson's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, expit, gammaln, polygamma

from nadpvi.checks import check_positive
from nadpvi.encoding import Design
from nadpvi.models.base import Parameter, RecordBatch
from nadpvi.models.exponential_family import draw_log_gamma
from nadpvi.models.links import bounded_exp, bounded_exp_slope, log_rising, log_rising_slope
from nadpvi.models.quadrature import normal_average
from nadpvi.models.regression import Regression, linear_predictor, shared

__all__ = ["NegativeBinomialRegression"]

Array = NDArray[np.float64]

# A dispersion of exp(50) is Poisson to the last bit; numpy draws no Poisson counts of a mean beyond exp(43).
_LARGEST_LOG_DISPERSION = 50.0
_LARGEST_LOG_RATE = 40.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NegativeBinomialRegression(Regression):
    """Negative binomial regression: mean mu = exp(x' w), variance mu + mu^2 / phi.

    Stan's ``neg_binomial_2_log(x' w, phi)``; the dispersion phi is positive, ``phi ~ Gamma(prior_shape,
    prior_rate)``, and Poisson regression is its limit as phi grows. Theta is w and then log phi. Gradients
    are not bounded: a run needs a `clip_norm`.

    Parameters
    ----------
    outcome : str
        A count column of the schema; counts above its public bound are clamped.
    prior_shape, prior_rate : float
        Of the dispersion's gamma prior; finite and positive.
    predictors, prior_mean, prior_sd, intercept
        As for every regression: the columns to use (all others when omitted), the coefficients' normal prior
        (0 and 1; a mapping overrides it for some columns or labels), and whether there is a constant.
    """

    kind: ClassVar[str] = "negative_binomial_regression"
    outcome_kind: ClassVar[str] = "count"
    num_extras: ClassVar[int] = 1

    prior_shape: float = 2.0
    prior_rate: float = 0.1

    def __post_init__(self) -> None:
        Regression.__post_init__(self)
        for name in ("prior_shape", "prior_rate"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return the blocks ``coefficients`` and ``dispersion``."""
        return (*Regression.parameters(self, design), Parameter(name="dispersion", support="positive"))

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return prior mean and sd of theta, shape (K,): normal for w, log-gamma for log phi."""
        mean, sd = Regression.prior_moments(self, design)
        log_mean = float(digamma(self.prior_shape)) - math.log(self.prior_rate)
        return np.append(mean, log_mean), np.append(sd, math.sqrt(float(polygamma(1, self.prior_shape))))

    def draw_prior(self, design: Design, *, num_draws: int, rng: np.random.Generator) -> Array:
        """Return independent prior draws of theta, shape (`num_draws`, K)."""
        coefficients = Regression.draw_prior(self, design, num_draws=num_draws, rng=rng)
        log_draw = draw_log_gamma(self.prior_shape, size=(num_draws, 1), rng=rng)
        return np.concatenate([coefficients, log_draw - math.log(self.prior_rate)], axis=1)

    def log_prior(self, theta: Array, design: Design) -> Array:
        """Return the log prior density of (w, log phi), shape (..., K) -> (...)."""
        log_dispersion = theta[..., -1]
        normaliser = self.prior_shape * math.log(self.prior_rate) - math.lgamma(self.prior_shape)
        density: Array = self.prior_shape * log_dispersion - self.prior_rate * bounded_exp(log_dispersion)
        return Regression.log_prior(self, theta[..., :-1], design) + density + normaliser

    def log_prior_gradient(self, theta: Array, design: Design) -> Array:
        """Return the gradient of `log_prior`, shape (..., K) -> (..., K)."""
        located = Regression.log_prior_gradient(self, theta[..., :-1], design)
        scaled = self.prior_shape - self.prior_rate * bounded_exp_slope(theta[..., -1:])
        return np.concatenate([located, scaled], axis=-1)

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return log p(y_b | x_b, theta), shape (..., B, K) -> (..., B)."""
        predictor = linear_predictor(theta[..., :-1], batch.x)
        log_dispersion = anp.minimum(theta[..., -1], _LARGEST_LOG_DISPERSION)
        excess = predictor - log_dispersion
        density: Array = log_rising(log_dispersion, batch.y) - gammaln(batch.y + 1.0)
        density = density - anp.exp(log_dispersion) * anp.logaddexp(0.0, excess)
        density = density - batch.y * anp.logaddexp(0.0, -excess)
        return density

    def score(self, predictors: Array | Sequence[Array], y: Array) -> Array:
        """Return d log p / d eta and d log p / d log phi: (2, ...) -> (2, ...)."""
        located, log_size = predictors[0], shared(predictors[1])
        log_dispersion = np.minimum(log_size, _LARGEST_LOG_DISPERSION)
        dispersion, excess = np.exp(log_dispersion), located - log_dispersion
        # The logistic function and log(1 + exp) of the excess, written so that NumPy vectorises them.
        decay = np.exp(-np.abs(excess))
        share = np.where(excess >= 0.0, 1.0, decay) / (1.0 + decay)
        slope = y - (y + dispersion) * share
        scaled = log_rising_slope(log_dispersion, y) - slope
        scaled -= dispersion * (np.maximum(excess, 0.0) + np.log1p(decay))
        return np.stack([slope, np.where(log_size < _LARGEST_LOG_DISPERSION, scaled, 0.0)])

    def curvature_weights(self, mean: Array, sd: Array, *, extras: tuple[Array, Array]) -> Array:
        """Return E[mu phi / (mu + phi)] over a normal predictor: (1, B) -> (1, 1, B).

        The dispersion phi is taken at the mean of its logarithm.
        """
        (log_dispersion,), _ = extras
        dispersion = math.exp(min(log_dispersion, _LARGEST_LOG_DISPERSION))

        def information(predictor: Array) -> Array:
            return dispersion * np.asarray(expit(predictor - log_dispersion))

        return normal_average(information, mean, sd)[None]

    def curvature_weight_bound(self, *, extras: tuple[Array, Array]) -> None:
        """Return None: phi bounds it, and that can be far above what any record has."""
        return None

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return the mean count at x, theta (M, K) and x (N, F) -> (M, N)."""
        return bounded_exp_slope(theta[:, :-1] @ x.T)

    def simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return counts: theta (K,) or (..., B, K) and x (B, F) -> (B,) or (..., B)."""
        predictor = linear_predictor(theta[..., :-1], x)
        log_dispersion = np.clip(theta[..., -1], -_LARGEST_LOG_DISPERSION, _LARGEST_LOG_DISPERSION)
        dispersion = np.broadcast_to(np.exp(log_dispersion), predictor.shape)
        # A Poisson rate that varies by a gamma factor of mean 1.
        log_factor = draw_log_gamma(dispersion, size=predictor.shape, rng=rng) - log_dispersion
        log_rate = predictor + log_factor
        return rng.poisson(np.exp(np.minimum(log_rate, _LARGEST_LOG_RATE))).astype(np.float64)
