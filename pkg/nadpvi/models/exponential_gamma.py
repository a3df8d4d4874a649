"""Waiting times: exponential outcomes whose rate has a gamma prior."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.columns import quoted
from nadpvi.design import Design
from nadpvi.errors import SchemaError
from nadpvi.models.exponential_family import PriorRecords
from nadpvi.models.gamma_rate import GammaRate
from nadpvi.models.links import bounded_exp, bounded_exp_slope

__all__ = ["ExponentialGamma"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialGamma(GammaRate):
    """``y ~ Exponential(rate)``, ``rate ~ Gamma(prior_shape, prior_rate)``; theta is log(rate).

    Parameters
    ----------
    outcome : str
        A real column of the schema whose lower bound is not negative.
    prior_shape : float
        Shape of the rate's prior; positive, without unit.
    prior_rate : float
        Rate of the rate's prior, in the outcome's unit; positive.

    Examples
    --------
    >>> model = ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0)
    >>> model.simulate(np.array([0.0]), np.empty((2, 0)), rng=np.random.default_rng(0)).shape
    (2,)
    """

    kind: ClassVar[str] = "exponential_gamma"
    outcome_kind: ClassVar[str] = "real"

    def check_design(self, design: Design) -> None:
        """Raise unless the outcome's public bounds leave out negative values."""
        lower, _ = design.outcome_bounds
        if lower < 0.0:
            raise SchemaError(
                f"outcome {quoted(self.outcome)} must have lower = 0 or more: waiting times are not negative"
            )

    def prior_records(self, num_params: int) -> PriorRecords:
        """Return the prior as prior_shape waits that took prior_rate in all."""
        return PriorRecords(np.array([self.prior_rate]), self.prior_shape, self.log_normaliser)

    def natural(self, theta: Array) -> Array:
        """Return -rate, shape (..., 1)."""
        return -bounded_exp(theta)

    def log_partition(self, theta: Array) -> Array:
        """Return -log(rate), shape (...)."""
        return -theta[..., 0]

    def natural_gradient(self, theta: Array) -> Array:
        """Return the rows -rate and 1: (..., 1) -> (..., 2, 1)."""
        gradient = np.empty((*theta.shape[:-1], 2, 1))
        np.negative(bounded_exp_slope(theta), out=gradient[..., 0, :])
        gradient[..., 1, :] = 1.0
        return gradient

    def sufficient(self, y: Array, *, num_params: int) -> Array:
        """Return the waiting time itself, shape (..., 1)."""
        return y[..., None]

    def log_base(self, y: Array) -> float:
        """Return 0."""
        return 0.0

    def mean_outcome(self, theta: Array) -> Array:
        """Return 1 / rate, shape (M,)."""
        return bounded_exp_slope(-theta[..., 0])

    def draw_outcomes(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return one waiting time for each theta, (..., 1) -> (...)."""
        waits: Array = rng.standard_exponential(theta.shape[:-1]) * self.mean_outcome(theta)
        return waits

    def outcome_quantile(self, theta: Array, share: Array) -> Array:
        """Return the waiting time that a share of waits does not exceed, (..., 1) -> (...)."""
        waits: Array = -np.log1p(-share) * self.mean_outcome(theta)
        return waits
