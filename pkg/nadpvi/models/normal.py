"""Measurements: normal outcomes with unknown mean and variance, normal-inverse-gamma prior."""

import math
from dataclasses import dataclass
from typing import ClassVar

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from nadpvi.checks import check_positive, check_real
from nadpvi.design import Design
from nadpvi.errors import ArgumentError
from nadpvi.models.base import Parameter
from nadpvi.models.exponential_family import (
    ConjugateModel,
    PriorRecords,
    draw_log_gamma,
    log_gamma_moments,
)
from nadpvi.models.links import bounded_exp, bounded_exp_slope

__all__ = ["Normal"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal(ConjugateModel):
    """``y ~ Normal(mean, sqrt(variance))``; theta is (mean, log(variance)).

    The prior is ``variance ~ InverseGamma(prior_shape, prior_scale)`` and
    ``mean | variance ~ Normal(prior_mean, sqrt(variance / prior_precision_factor))``.

    Parameters
    ----------
    outcome : str
        A real column of the schema.
    prior_mean : float
        In the outcome's unit. Statistics are centred on it, so that they cancel little.
    prior_precision_factor : float
        How many records the prior mean is worth; positive.
    prior_shape : float
        Above 1, so that the mean's prior has a standard deviation.
    prior_scale : float
        In the square of the outcome's unit; positive.

    Examples
    --------
    >>> model = Normal(
    ...     outcome="height", prior_mean=170.0, prior_precision_factor=0.1, prior_shape=2.0, prior_scale=100.0
    ... )
    >>> model.predict_mean(np.array([[165.0, 4.0]]), np.empty((1, 0)))
    array([[165.]])
    """

    kind: ClassVar[str] = "normal"
    outcome_kind: ClassVar[str] = "real"

    outcome: str
    prior_mean: float
    prior_precision_factor: float
    prior_shape: float
    prior_scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior_mean", check_real("prior_mean", self.prior_mean))
        for name in ("prior_precision_factor", "prior_shape", "prior_scale"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        if self.prior_shape <= 1.0:
            raise ArgumentError(
                "prior_shape must be above 1, or the mean's prior has no standard deviation "
                f"(got {self.prior_shape!r})."
            )

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return two numbers, ``mean`` and ``variance``."""
        return Parameter(name="mean"), Parameter(name="variance", support="positive")

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return mean and standard deviation of (mean, log(variance)), each of shape (2,)."""
        log_precision, log_sd = log_gamma_moments(self.prior_shape, self.prior_scale)
        mean_variance = self.prior_scale / (self.prior_shape - 1.0) / self.prior_precision_factor
        mean = np.array([self.prior_mean, -log_precision])
        return mean, np.array([math.sqrt(mean_variance), log_sd])

    def draw_prior(self, design: Design, *, num_draws: int, rng: np.random.Generator) -> Array:
        """Return independent prior draws of (mean, log(variance)), shape (`num_draws`, 2)."""
        log_variance = math.log(self.prior_scale) - draw_log_gamma(self.prior_shape, size=num_draws, rng=rng)
        sd = bounded_exp_slope(0.5 * log_variance) / math.sqrt(self.prior_precision_factor)
        return np.stack([self.prior_mean + sd * rng.standard_normal(num_draws), log_variance], axis=-1)

    def prior_records(self, num_params: int) -> PriorRecords:
        """Return the prior as prior_precision_factor records; the tilt gives the variance its own count."""
        factor, shape, scale = self.prior_precision_factor, self.prior_shape, self.prior_scale
        normaliser = math.lgamma(shape) - shape * math.log(scale)
        normaliser += 0.5 * (math.log(2.0 * math.pi) - math.log(factor))
        tilt = np.array([0.0, 0.5 * (factor - 1.0) - shape])
        return PriorRecords(np.array([0.0, 2.0 * scale]), factor, normaliser, tilt)

    def natural(self, theta: Array) -> Array:
        """Return distance / variance and -1 / (2 variance), distance = mean - prior_mean: (..., 2)."""
        precision = bounded_exp(-theta[..., 1:])
        distance = theta[..., :1] - self.prior_mean
        parameters: Array = anp.concatenate([distance * precision, -0.5 * precision], axis=-1)
        return parameters

    def log_partition(self, theta: Array) -> Array:
        """Return distance^2 / (2 variance) + log(variance) / 2, shape (...)."""
        distance, log_variance = theta[..., 0] - self.prior_mean, theta[..., 1]
        partition: Array = 0.5 * (distance**2 * bounded_exp(-log_variance) + log_variance)
        return partition

    def natural_gradient(self, theta: Array) -> Array:
        """Return the three rows of derivatives in mean and log(variance): (..., 2) -> (..., 3, 2)."""
        distance, negative = theta[..., 0] - self.prior_mean, -theta[..., 1]
        precision, slope = bounded_exp(negative), bounded_exp_slope(negative)
        gradient = np.zeros((*theta.shape[:-1], 3, 2))
        gradient[..., 0, 0] = precision
        gradient[..., 0, 1] = -distance * slope
        gradient[..., 1, 1] = 0.5 * slope
        gradient[..., 2, 0] = -distance * precision
        gradient[..., 2, 1] = 0.5 * (distance**2 * slope - 1.0)
        return gradient

    def sufficient(self, y: Array, *, num_params: int) -> Array:
        """Return the distance from prior_mean and its square, shape (..., 2)."""
        distance = y - self.prior_mean
        return np.stack([distance, distance**2], axis=-1)

    def log_base(self, y: Array) -> float:
        """Return -log(2 pi) / 2."""
        return -0.5 * math.log(2.0 * math.pi)

    def mean_outcome(self, theta: Array) -> Array:
        """Return the mean, shape (M,)."""
        return theta[..., 0]

    def draw_outcomes(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return one measurement for each theta, (..., 2) -> (...)."""
        noise = rng.standard_normal(theta.shape[:-1])
        measurements: Array = theta[..., 0] + bounded_exp_slope(0.5 * theta[..., 1]) * noise
        return measurements

    def outcome_quantile(self, theta: Array, share: Array) -> Array:
        """Return the measurement that a share of them does not exceed, (..., 2) -> (...)."""
        measurements: Array = theta[..., 0] + bounded_exp_slope(0.5 * theta[..., 1]) * ndtri(share)
        return measurements
