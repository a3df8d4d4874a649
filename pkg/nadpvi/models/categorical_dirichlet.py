"""A die: categorical outcomes whose probabilities have a Dirichlet prior."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from nadpvi.checks import check_positive
from nadpvi.columns import quoted
from nadpvi.design import Design
from nadpvi.errors import ArgumentError
from nadpvi.models.base import Parameter
from nadpvi.models.exponential_family import (
    ConjugateModel,
    PriorRecords,
    draw_log_gamma,
    log_gamma_moments,
)
from nadpvi.supports import log_levels_after

__all__ = ["CategoricalDirichlet"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoricalDirichlet(ConjugateModel):
    """``y ~ Categorical(probabilities)``, ``probabilities ~ Dirichlet(concentration)``, C levels.

    Theta has K = C - 1 coordinates, by Stan's stick breaking: level k < C takes the share
    ``z_k = logit^-1(theta_k - log(C - k))`` of what the levels before it left, the last level the rest, so
    that theta = 0 is the uniform vector.

    Parameters
    ----------
    outcome : str
        A categorical column of the schema.
    concentration : float or sequence of float
        Imagined records of each level; positive; one number for all levels or one a level, in their order.

    Examples
    --------
    >>> model = CategoricalDirichlet(outcome="blood", concentration=[5, 5, 5])
    >>> model.predict_mean(np.zeros((1, 2)), np.empty((1, 0))).round(3)
    array([[[0.333, 0.333, 0.333]]])
    """

    kind: ClassVar[str] = "categorical_dirichlet"
    outcome_kind: ClassVar[str] = "categorical"

    outcome: str
    concentration: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        given = self.concentration
        if isinstance(given, list | tuple):
            checked: object = tuple(check_positive("concentration", value) for value in given)
        else:
            checked = check_positive("concentration", given)
        object.__setattr__(self, "concentration", checked)

    def check_design(self, design: Design) -> None:
        """Raise unless there is one concentration, or one for each of the outcome's levels."""
        self._concentrations(len(design.outcome_levels))

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return one block, ``probabilities``, labelled by the outcome's levels."""
        levels = design.outcome_levels
        return (Parameter(name="probabilities", support="simplex", dims=("category",), coords=(levels,)),)

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return mean and standard deviation of theta, each of shape (K,)."""
        # Independent a priori: z_k is a gamma variable's share of its sum with that of all later levels.
        first, rest = self._sticks(len(design.outcome_levels))
        mean, sd = log_gamma_moments(first)
        rest_mean, rest_sd = log_gamma_moments(rest)
        return mean - rest_mean + log_levels_after(len(first)), np.hypot(sd, rest_sd)

    def draw_prior(self, design: Design, *, num_draws: int, rng: np.random.Generator) -> Array:
        """Return independent prior draws of theta, shape (`num_draws`, K)."""
        first, rest = self._sticks(len(design.outcome_levels))
        size = (num_draws, len(first))
        logit = draw_log_gamma(first, size=size, rng=rng) - draw_log_gamma(rest, size=size, rng=rng)
        draws: Array = logit + log_levels_after(len(first))
        return draws

    def prior_records(self, num_params: int) -> PriorRecords:
        """Return the prior as `concentration` records of each level."""
        counts = self._concentrations(num_params + 1)
        normaliser = sum(math.lgamma(count) for count in counts) - math.lgamma(counts.sum())
        return PriorRecords(counts[:-1], float(counts.sum()), normaliser)

    def natural(self, theta: Array) -> Array:
        """Return log(p_k / p_C) for the first C - 1 levels, shape (..., K)."""
        logit, taken = self._breaks(theta)
        later = np.tri(theta.shape[-1], k=-1)
        ratio: Array = logit + anp.dot(taken, later)
        return ratio

    def log_partition(self, theta: Array) -> Array:
        """Return -log(p_C), shape (...)."""
        _, taken = self._breaks(theta)
        partition: Array = anp.sum(taken, axis=-1)
        return partition

    def natural_gradient(self, theta: Array) -> Array:
        """Return 1 for j = k and z_j for j > k in row k, and -z_j in the last row: (..., C, K)."""
        num_params = theta.shape[-1]
        share = expit(theta - log_levels_after(num_params))
        gradient = np.zeros((*theta.shape[:-1], num_params + 1, num_params))
        # Row by row: a broadcast product with a matrix of ones is several times slower where levels are few.
        for row in range(num_params):
            gradient[..., row, row] = 1.0
            gradient[..., row, row + 1 :] = share[..., row + 1 :]
        np.negative(share, out=gradient[..., num_params, :])
        return gradient

    def sufficient(self, y: Array, *, num_params: int) -> Array:
        """Return indicators of the first C - 1 levels, shape (..., K)."""
        indicators: Array = (y[..., None] == np.arange(num_params)).astype(np.float64)
        return indicators

    def log_base(self, y: Array) -> float:
        """Return 0."""
        return 0.0

    def gradient_bound(self, design: Design) -> float | None:
        """Return sqrt(K): each entry of a record's gradient is a share or its complement, signed."""
        return math.sqrt(len(design.outcome_levels) - 1)

    def mean_outcome(self, theta: Array) -> Array:
        """Return the probability of each level, (M, K) -> (M, C)."""
        partition = self.log_partition(theta)[..., None]
        logarithms = np.concatenate([self.natural(theta) - partition, -partition], axis=-1)
        probabilities: Array = np.exp(logarithms)
        return probabilities

    def draw_outcomes(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return a level's code, 0.0 to C - 1, for each theta, (..., K) -> (...)."""
        return self.outcome_quantile(theta, rng.random(theta.shape[:-1]))

    def outcome_quantile(self, theta: Array, share: Array) -> Array:
        """Return the code of the level that a share falls on, levels in their order, (..., K) -> (...)."""
        below = np.cumsum(self.mean_outcome(theta)[..., :-1], axis=-1)
        codes: Array = (share[..., None] >= below).sum(axis=-1).astype(np.float64)
        return codes

    def _breaks(self, theta: Array) -> tuple[Array, Array]:
        """Return the shares' logits and -log(1 - share), each of shape (..., K)."""
        logit = theta - log_levels_after(theta.shape[-1])
        return logit, anp.logaddexp(0.0, logit)

    def _sticks(self, num_levels: int) -> tuple[Array, Array]:
        """Return each level's concentration and the sum of those after it, each of shape (K,)."""
        counts = self._concentrations(num_levels)
        return counts[:-1], np.cumsum(counts[::-1])[::-1][1:]

    def _concentrations(self, num_levels: int) -> Array:
        """Return one concentration a level, shape (C,)."""
        if isinstance(self.concentration, float | int):
            return np.full(num_levels, self.concentration)
        if len(self.concentration) != num_levels:
            raise ArgumentError(
                f"concentration must be one number or one for each of the {num_levels} levels of "
                f"{quoted(self.outcome)} (got {len(self.concentration)} numbers)."
            )
        return np.array(self.concentration)
