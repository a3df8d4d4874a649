"""What models of a rate with a gamma prior share: the prior, and theta as the rate's logarithm."""

from dataclasses import dataclass
from math import lgamma, log

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_positive
from nadpvi.design import Design
from nadpvi.models.base import Parameter
from nadpvi.models.exponential_family import ConjugateModel, draw_log_gamma, log_gamma_moments

__all__ = ["GammaRate"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GammaRate(ConjugateModel):
    """A model with one parameter, ``rate ~ Gamma(prior_shape, prior_rate)``; base of the model files."""

    outcome: str
    prior_shape: float
    prior_rate: float

    def __post_init__(self) -> None:
        for name in ("prior_shape", "prior_rate"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return one number, ``rate``."""
        return (Parameter(name="rate", support="positive"),)

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return mean and standard deviation of log(rate), each of shape (1,)."""
        return log_gamma_moments(np.array([self.prior_shape]), self.prior_rate)

    def draw_prior(self, design: Design, *, num_draws: int, rng: np.random.Generator) -> Array:
        """Return independent prior draws of log(rate), shape (`num_draws`, 1)."""
        return draw_log_gamma(self.prior_shape, size=(num_draws, 1), rng=rng) - log(self.prior_rate)

    @property
    def log_normaliser(self) -> float:
        """Log of the integral of ``rate^(prior_shape - 1) exp(-prior_rate * rate)``."""
        return lgamma(self.prior_shape) - self.prior_shape * log(self.prior_rate)
