"""Bernoulli and categorical outcomes: what is released is how many records each level has. Public side."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from nadpvi.baselines.sufficient_statistics.families import NoisySums, Norm, RecordMoments, StatisticsFamily
from nadpvi.design import Design
from nadpvi.models import BernoulliBeta, CategoricalDirichlet
from nadpvi.models.exponential_family import draw_log_gamma, log_gamma_moments
from nadpvi.supports import SUPPORTS, log_levels_after

__all__ = ["CountStatistics", "count_statistics"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountStatistics:
    """Bernoulli and categorical outcomes: how many records each level has.

    Where neighbours add or remove a record: all C counts, L1 and L2 sensitivity 1. Where they replace one:
    one count if C = 2, sensitivity 1; else all C counts, of which two change by 1: L1 2, L2 sqrt(2).

    Parameters
    ----------
    codes : tuple of float
        Outcome codes in the order of stick breaking: theta_k is the k-th one's share of what is left.
    concentration : tuple of float
        Dirichlet prior in that order.
    labels : tuple of str
        Of the released counts.
    has_public_count : bool
        Whether N is public, that is, neighbours replace a record.
    """

    codes: tuple[float, ...]
    concentration: tuple[float, ...]
    labels: tuple[str, ...]
    has_public_count: bool

    @property
    def blocks(self) -> tuple[slice, ...]:
        """All coordinates move together."""
        return (slice(None),)

    def sensitivity(self, norm: Norm) -> float:
        """Return the sensitivity of the whole vector of counts."""
        changes = 2.0 if self.has_public_count and len(self.labels) > 1 else 1.0
        return changes if norm == "l1" else math.sqrt(changes)

    def record_statistics(self, y: Array, *, x: Array | None = None) -> Array:
        """Return one indicator a released count: (...) -> (..., J)."""
        indicators: Array = (y[..., None] == np.array(self.codes[: len(self.labels)])).astype(np.float64)
        return indicators

    def estimate_count(self, noisy: Array) -> Array:
        """Return the sum of all noisy sums, at least 1."""
        total: Array = noisy.sum(axis=1)
        return np.maximum(total, 1.0)

    def start(self, noisy: Array, *, num_records: Array) -> tuple[StatisticsFamily, Array, Array]:
        """Return counts near the noisy ones that records can have, and theta at its mean given them."""
        positive = np.maximum(noisy, 0.5)
        if self.has_public_count and len(self.labels) == 1:
            sums = np.minimum(positive, num_records[:, None] - 0.5)
        else:
            sums = positive * (num_records / positive.sum(axis=1))[:, None]
        counts = self._all_counts(sums, num_records) + np.array(self.concentration)
        simplex = counts / counts.sum(axis=1, keepdims=True)
        return self, SUPPORTS["simplex"].unconstrain(simplex, (len(self.codes),)), sums

    def moments(self, theta: Array) -> RecordMoments:
        """Return the multinomial moments of one record."""
        number = len(self.labels)
        shares = SUPPORTS["simplex"].constrain(theta, (len(self.codes),))
        mean = shares[:, :number]
        return RecordMoments(mean, mean[:, :, None] * (np.eye(number) - mean[:, None, :]))

    def draw_deviation(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return normal deviations with the multinomial covariance, which is singular over all levels.

        With a = sqrt(p), the matrix diag(a) - p a' is a root of diag(p) - p p'.
        """
        shares = SUPPORTS["simplex"].constrain(theta, (len(self.codes),))
        scaled = np.sqrt(shares) * rng.standard_normal(shares.shape)
        drawn: Array = (scaled - shares * scaled.sum(axis=1, keepdims=True))[:, : len(self.labels)]
        return drawn

    def standardise(self, theta: Array) -> Array:
        """Return theta less its prior mean, over its prior sd."""
        mean, sd = self._reference()
        standard: Array = (theta - mean) / sd
        return standard

    def from_standard(self, standard: Array) -> Array:
        """Return theta from `standardise`."""
        mean, sd = self._reference()
        theta: Array = mean + sd * standard
        return theta

    def log_tilt(self, standard: Array) -> Array:
        """Return the log density of logits of beta variables, plus half the square of `standard`."""
        first, rest = self._sticks()
        logits = self.from_standard(standard) - log_levels_after(len(first))
        density = first * logits - (first + rest) * np.logaddexp(0.0, logits)
        tilt: Array = (density + 0.5 * standard**2).sum(axis=1)
        return tilt

    def propose(self, standard: Array, *, block: int, given: NoisySums, rng: np.random.Generator) -> None:
        """Return None: steps serve."""

    def is_possible(self, sums: Array, *, num_records: Array) -> NDArray[np.bool_]:
        """Return where no count is negative."""
        least: Array = self._all_counts(sums, num_records).min(axis=1)
        return least >= 0.0

    def draw_theta(self, theta: Array, sums: Array, *, num_records: Array, rng: np.random.Generator) -> Array:
        """Return theta from its Dirichlet conditional, as shares of log-gamma variables."""
        shape = self._all_counts(sums, num_records) + np.array(self.concentration)
        logs = draw_log_gamma(shape, size=shape.shape, rng=rng)
        breaks = range(len(self.codes) - 1)
        rest = np.stack([logsumexp(logs[:, k + 1 :], axis=1) for k in breaks], axis=1)
        drawn: Array = logs[:, :-1] - rest + log_levels_after(len(breaks))
        return drawn

    def _sticks(self) -> tuple[Array, Array]:
        """Return each stick's beta parameters a priori: its concentration, and that of all after it."""
        shape = np.array(self.concentration)
        return shape[:-1], np.cumsum(shape[::-1])[::-1][1:]

    def _reference(self) -> tuple[Array, Array]:
        """Return the prior mean and sd of theta, each (K,)."""
        (mean, sd), (rest_mean, rest_sd) = (log_gamma_moments(shape) for shape in self._sticks())
        return mean - rest_mean + log_levels_after(len(mean)), np.hypot(sd, rest_sd)

    def _all_counts(self, sums: Array, num_records: Array) -> Array:
        """Return all C counts, the one that is not released by subtraction."""
        if sums.shape[1] == len(self.codes):
            return sums
        return np.concatenate([sums, num_records[:, None] - sums.sum(axis=1, keepdims=True)], axis=1)


def count_statistics(
    model: BernoulliBeta | CategoricalDirichlet, design: Design, *, has_public_count: bool
) -> CountStatistics:
    """Return what is released of a coin or a die.

    Parameters
    ----------
    model : BernoulliBeta or CategoricalDirichlet
    design : Design
        Gives the outcome's levels.
    has_public_count : bool
        Whether N is public.
    """
    levels = design.outcome_levels
    codes = tuple(float(code) for code in range(len(levels)))
    concentration: tuple[float, ...]
    if isinstance(model, BernoulliBeta):
        # theta is the logit of the second level.
        codes, concentration = codes[::-1], (model.prior_alpha, model.prior_beta)
    else:
        prior = model.prior_records(len(levels) - 1)
        first = tuple(float(value) for value in prior.statistics)
        concentration = (*first, prior.weight - sum(first))
    released = codes[:1] if has_public_count and len(codes) == 2 else codes
    labels = tuple(f"count[{levels[int(code)]}]" for code in released)
    return CountStatistics(
        codes=codes, concentration=concentration, labels=labels, has_public_count=has_public_count
    )
