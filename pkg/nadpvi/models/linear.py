"""Bayesian linear regression with unknown variance and the normal-inverse-gamma prior of section 4.3."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from nadpvi.checks import check_positive
from nadpvi.encoding import Design
from nadpvi.errors import ArgumentError
from nadpvi.models.base import Parameter, RecordBatch
from nadpvi.models.coefficients import PriorSetting
from nadpvi.models.links import bounded_exp, bounded_exp_slope, bounded_exp_value
from nadpvi.models.regression import Regression, linear_predictor, shared

__all__ = ["LinearRegression"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRegression(Regression):
    """Linear regression, ``y ~ Normal(x' w, s2)`` with unknown variance s2.

    The prior is conjugate: ``s2 ~ InvGamma(prior_shape, prior_scale)`` and, given s2,
    ``w_k ~ Normal(prior_mean, s2 * prior_sd^2)``. Theta is w and then log s2. The outcome is in its own unit,
    clamped to its public bounds and transformed as its column says; s2 is in the square of that unit, and the
    default prior, that of the published experiments, expects it near 1/40: choose `prior_scale` as about
    `prior_shape` times the variance that is expected around the regression line.

    Parameters
    ----------
    outcome : str
        A real column of the schema.
    prior_shape, prior_scale : float
        Of the inverse gamma prior; finite and positive, the shape above 1, so that coefficients have a
        variance. The prior mean of s2 is prior_scale / (prior_shape - 1).
    prior_sd : float or mapping
        Of the coefficients, in residual standard deviations; a mapping overrides 1 for some of them.
    predictors, prior_mean, intercept
        As for every regression: the columns to use (all others when omitted), the coefficients' prior mean
        (0; a mapping overrides it for some columns or labels), and whether there is a constant.

    Examples
    --------
    >>> LinearRegression(outcome="height", prior_scale=2000).prior_sd
    2.0
    """

    kind: ClassVar[str] = "linear_regression"
    outcome_kind: ClassVar[str] = "real"
    num_extras: ClassVar[int] = 1

    prior_sd: PriorSetting = 2.0
    prior_shape: float = 20.0
    prior_scale: float = 0.5

    def __post_init__(self) -> None:
        Regression.__post_init__(self)
        for name in ("prior_shape", "prior_scale"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        if self.prior_shape <= 1.0:
            raise ArgumentError(
                f"prior_shape must be above 1, so that coefficients have a prior variance "
                f"(got {self.prior_shape:g})."
            )

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return the blocks ``coefficients`` and ``variance``."""
        return (*Regression.parameters(self, design), Parameter(name="variance", support="positive"))

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return prior mean and sd of theta, shape (K,): Student t for w, log-inverse-gamma for log s2."""
        mean, sd = Regression.prior_moments(self, design)
        log_mean = math.log(self.prior_scale) - float(digamma(self.prior_shape))
        log_sd = math.sqrt(float(polygamma(1, self.prior_shape)))
        typical_sd = math.sqrt(self.prior_scale / (self.prior_shape - 1.0))
        return np.append(mean, log_mean), np.append(sd * typical_sd, log_sd)

    def draw_prior(self, design: Design, *, num_draws: int, rng: np.random.Generator) -> Array:
        """Return independent prior draws of theta, shape (`num_draws`, K)."""
        mean, sd = Regression.prior_moments(self, design)
        variance = self.prior_scale / rng.gamma(self.prior_shape, size=(num_draws, 1))
        coefficients = mean + np.sqrt(variance) * sd * rng.standard_normal((num_draws, len(mean)))
        return np.concatenate([coefficients, np.log(variance)], axis=1)

    def log_prior(self, theta: Array, design: Design) -> Array:
        """Return the log prior density of (w, log s2), shape (..., K) -> (...)."""
        coefficients, log_variance = theta[..., :-1], theta[..., -1]
        size = coefficients.shape[-1]
        mean, sd = self.coefficient_prior(design, num_coefficients=size)
        squares = anp.sum(((coefficients - mean) / sd) ** 2, axis=-1)
        constant = np.sum(np.full(size, np.log(sd))) + 0.5 * size * math.log(2.0 * math.pi)
        density: Array = -0.5 * squares * bounded_exp(-log_variance) - 0.5 * size * log_variance - constant
        normaliser = self.prior_shape * math.log(self.prior_scale) - math.lgamma(self.prior_shape)
        return (
            density
            - self.prior_shape * log_variance
            - self.prior_scale * bounded_exp(-log_variance)
            + normaliser
        )

    def log_prior_gradient(self, theta: Array, design: Design) -> Array:
        """Return the gradient of `log_prior`, shape (..., K) -> (..., K)."""
        coefficients, log_variance = theta[..., :-1], theta[..., -1:]
        size = coefficients.shape[-1]
        mean, sd = self.coefficient_prior(design, num_coefficients=size)
        standardised = (coefficients - mean) / sd
        squares = np.vecdot(standardised, standardised)[..., None]
        gradient = np.empty(theta.shape)
        gradient[..., :-1] = standardised / sd * -bounded_exp_value(-log_variance)
        scaled = (0.5 * squares + self.prior_scale) * bounded_exp_slope(-log_variance)
        gradient[..., -1:] = scaled - (0.5 * size + self.prior_shape)
        return gradient

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return log p(y_b | x_b, theta), shape (..., B, K) -> (..., B)."""
        residual = batch.y - linear_predictor(theta[..., :-1], batch.x)
        log_variance = theta[..., -1]
        density: Array = -0.5 * residual**2 * bounded_exp(-log_variance)
        return density - 0.5 * log_variance - 0.5 * math.log(2.0 * math.pi)

    def score(self, predictors: Array | Sequence[Array], y: Array) -> Array:
        """Return d log p / d eta and d log p / d log s2: (2, ...) -> (2, ...)."""
        log_variance = shared(predictors[1])
        scores = np.empty((2, *np.broadcast_shapes(predictors[0].shape, y.shape)))
        residual = np.subtract(y, predictors[0], out=scores[0])
        np.multiply(residual, residual, out=scores[1])
        scores[1] *= 0.5 * bounded_exp_slope(-log_variance)
        scores[1] -= 0.5
        residual *= bounded_exp_value(-log_variance)
        return scores

    def curvature_weights(self, mean: Array, sd: Array, *, extras: tuple[Array, Array]) -> Array:
        """Return E[1 / s2], the same for every record: (1, B) -> (1, 1, B)."""
        return np.full((1, *mean.shape), self.curvature_weight_bound(extras=extras))

    def curvature_weight_bound(self, *, extras: tuple[Array, Array]) -> float:
        """Return E[1 / s2] for normal log s2: public, since the iterate is."""
        (log_mean,), (log_sd,) = extras
        return float(bounded_exp_value(-log_mean + 0.5 * log_sd**2))

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return E[y | x, theta], theta (M, K) and x (N, F) -> (M, N)."""
        return theta[:, :-1] @ x.T

    def simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return outcomes: theta (K,) or (..., B, K) and x (B, F) -> (B,) or (..., B)."""
        located = linear_predictor(theta[..., :-1], x)
        spread = np.exp(np.minimum(0.5 * theta[..., -1], 300.0))
        return located + spread * rng.standard_normal(located.shape)
