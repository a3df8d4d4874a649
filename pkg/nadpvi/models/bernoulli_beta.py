"""A coin: binary outcomes whose probability has a beta prior."""

from dataclasses import dataclass
from typing import ClassVar

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, expit

from nadpvi.checks import check_positive
from nadpvi.design import Design
from nadpvi.models.base import Parameter
from nadpvi.models.exponential_family import (
    ConjugateModel,
    PriorRecords,
    draw_log_gamma,
    log_gamma_moments,
)

__all__ = ["BernoulliBeta"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BernoulliBeta(ConjugateModel):
    """``y ~ Bernoulli(probability)``, ``probability ~ Beta(prior_alpha, prior_beta)``; theta is its logit.

    Parameters
    ----------
    outcome : str
        A binary column of the schema; its second level counts as 1.
    prior_alpha, prior_beta : float
        Imagined records with outcome 1 and with outcome 0; positive. One each is the uniform prior.

    Examples
    --------
    >>> model = BernoulliBeta(outcome="heads")
    >>> model.predict_mean(np.array([[0.0]]), np.empty((2, 0)))
    array([[0.5, 0.5]])
    """

    kind: ClassVar[str] = "bernoulli_beta"
    outcome_kind: ClassVar[str] = "binary"

    outcome: str
    prior_alpha: float = 1.0
    prior_beta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("prior_alpha", "prior_beta"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return one number, ``probability``, that of the outcome's second level."""
        return (Parameter(name="probability", support="unit_interval"),)

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return mean and standard deviation of the logit, each of shape (1,)."""
        # The logit is the difference of two independent log gammas.
        mean, sd = log_gamma_moments(np.array([self.prior_alpha, self.prior_beta]))
        return mean[:1] - mean[1:], np.hypot(sd[:1], sd[1:])

    def draw_prior(self, design: Design, *, num_draws: int, rng: np.random.Generator) -> Array:
        """Return independent prior draws of the logit, shape (`num_draws`, 1)."""
        size = (num_draws, 1)
        above = draw_log_gamma(self.prior_alpha, size=size, rng=rng)
        return above - draw_log_gamma(self.prior_beta, size=size, rng=rng)

    def prior_records(self, num_params: int) -> PriorRecords:
        """Return the prior as prior_alpha + prior_beta records, prior_alpha of them with outcome 1."""
        normaliser = float(betaln(self.prior_alpha, self.prior_beta))
        return PriorRecords(np.array([self.prior_alpha]), self.prior_alpha + self.prior_beta, normaliser)

    def natural(self, theta: Array) -> Array:
        """Return the logit, shape (..., 1)."""
        return theta

    def log_partition(self, theta: Array) -> Array:
        """Return -log(1 - probability), shape (...)."""
        partition: Array = anp.logaddexp(0.0, theta[..., 0])
        return partition

    def natural_gradient(self, theta: Array) -> Array:
        """Return the rows 1 and -probability: (..., 1) -> (..., 2, 1)."""
        probability = expit(theta)
        return np.stack([np.ones_like(probability), -probability], axis=-2)

    def sufficient(self, y: Array, *, num_params: int) -> Array:
        """Return the outcome itself, shape (..., 1)."""
        return y[..., None]

    def log_base(self, y: Array) -> float:
        """Return 0."""
        return 0.0

    def gradient_bound(self, design: Design) -> float | None:
        """Return 1: a record's gradient is y - probability."""
        return 1.0

    def mean_outcome(self, theta: Array) -> Array:
        """Return the probability, shape (M,)."""
        return np.asarray(expit(theta[..., 0]))

    def draw_outcomes(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return 0.0 or 1.0 for each theta, (..., 1) -> (...)."""
        outcomes: Array = (rng.random(theta.shape[:-1]) < expit(theta[..., 0])).astype(np.float64)
        return outcomes

    def outcome_quantile(self, theta: Array, share: Array) -> Array:
        """Return 1.0 for the largest shares, as many as the probability says, (..., 1) -> (...)."""
        outcomes: Array = (share > expit(-theta[..., 0])).astype(np.float64)
        return outcomes
