"""Counts: Poisson outcomes whose rate has a gamma prior."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from nadpvi.models.exponential_family import PriorRecords
from nadpvi.models.gamma_rate import GammaRate
from nadpvi.models.links import bounded_exp, bounded_exp_slope

__all__ = ["PoissonGamma"]

Array = NDArray[np.float64]

# NumPy draws no Poisson counts of a mean beyond exp(43); a schema's bounds are far below that.
_LARGEST_LOG_RATE = 43.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonGamma(GammaRate):
    """``y ~ Poisson(rate)``, ``rate ~ Gamma(prior_shape, prior_rate)``; theta is log(rate).

    Parameters
    ----------
    outcome : str
        A count column of the schema.
    prior_shape : float
        Shape of the rate's prior, a count; positive.
    prior_rate : float
        Rate of the rate's prior, a number of records; positive.

    Examples
    --------
    >>> model = PoissonGamma(outcome="visits", prior_shape=2.0, prior_rate=1.0)
    >>> model.predict_mean(np.array([[0.0]]), np.empty((2, 0)))
    array([[1., 1.]])
    """

    kind: ClassVar[str] = "poisson_gamma"
    outcome_kind: ClassVar[str] = "count"

    def prior_records(self, num_params: int) -> PriorRecords:
        """Return the prior as prior_rate records with counts of prior_shape in all."""
        return PriorRecords(np.array([self.prior_shape]), self.prior_rate, self.log_normaliser)

    def natural(self, theta: Array) -> Array:
        """Return log(rate), shape (..., 1)."""
        return theta

    def log_partition(self, theta: Array) -> Array:
        """Return the rate, shape (...)."""
        return bounded_exp(theta[..., 0])

    def natural_gradient(self, theta: Array) -> Array:
        """Return the rows 1 and -rate: (..., 1) -> (..., 2, 1)."""
        rate = bounded_exp_slope(theta)
        return np.stack([np.ones_like(rate), -rate], axis=-2)

    def sufficient(self, y: Array, *, num_params: int) -> Array:
        """Return the count itself, shape (..., 1)."""
        return y[..., None]

    def log_base(self, y: Array) -> Array:
        """Return -log(y!)."""
        return np.asarray(-gammaln(y + 1.0))

    def mean_outcome(self, theta: Array) -> Array:
        """Return the rate, shape (M,)."""
        return bounded_exp_slope(theta[..., 0])

    def draw_outcomes(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return one count for each theta, (..., 1) -> (...)."""
        rate = np.exp(np.minimum(theta[..., 0], _LARGEST_LOG_RATE))
        return rng.poisson(rate).astype(np.float64)

    def outcome_quantile(self, theta: Array, share: Array) -> Array:
        """Return the count that a share of counts does not exceed, (..., 1) -> (...)."""
        from scipy.stats import poisson

        rate = np.exp(np.minimum(theta[..., 0], _LARGEST_LOG_RATE))
        counts: Array = poisson.ppf(share, rate)
        return counts
