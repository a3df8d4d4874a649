"""Exponential and Poisson outcomes: what is released is their sum, of what public bounds let in. Public."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincinv, pdtr

from nadpvi.baselines.sufficient_statistics.families import (
    BeyondBounds,
    NoisySums,
    Norm,
    RecordMoments,
    StatisticsFamily,
)
from nadpvi.design import Design
from nadpvi.errors import ArgumentError
from nadpvi.models import ExponentialGamma, PoissonGamma
from nadpvi.models.exponential_family import draw_log_gamma, log_gamma_moments

__all__ = ["SumStatistics", "sum_statistics"]

Array = NDArray[np.float64]

# A rate beyond exp(300) has no prior density left, and its square still fits a float.
_LARGEST_LOG_RATE = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SumStatistics:
    """Exponential and Poisson outcomes: their sum in units of a public bound, of a known law beyond it.

    Outcomes are not bounded; the statistic of a record is. An outcome from `bound` on is left out of the sum
    ("drop": the random sum truncation of Bernstein and Sheldon) or counted as `bound` ("clamp"). Moments of
    what is summed, and of the full sum given it, are exact functions of theta and the public `bound`.

    Parameters
    ----------
    kind : "exponential" or "poisson"
        The outcome's law given its rate.
    bound : float
        b > 0, from the schema.
    beyond : "drop" or "clamp"
        What an outcome of at least `bound` contributes.
    prior_shape, prior_rate : float
        Of the rate's gamma prior.
    has_public_count : bool
        Whether N is public: then J = 1, the scaled sum; else J = 2, the scaled sum and N minus it.
    labels : tuple of str
        Of the released sums.
    """

    kind: Literal["exponential", "poisson"]
    bound: float
    beyond: BeyondBounds
    prior_shape: float
    prior_rate: float
    has_public_count: bool
    labels: tuple[str, ...]

    @property
    def blocks(self) -> tuple[slice, ...]:
        """All coordinates move together."""
        return (slice(None),)

    def sensitivity(self, norm: Norm) -> float:
        """Return 1: the scaled outcome is in [0, 1], and with its complement it sums to 1."""
        return 1.0

    def record_statistics(self, y: Array, *, x: Array | None = None) -> Array:
        """Return the scaled outcome, and its complement where N is private: (...) -> (..., J)."""
        inside = np.minimum(np.maximum(y, 0.0), self.bound) / self.bound
        if self.beyond == "drop":
            inside = np.where(y < self.bound, inside, 0.0)
        parts = [inside] if self.has_public_count else [inside, 1.0 - inside]
        return np.stack(parts, axis=-1)

    def estimate_count(self, noisy: Array) -> Array:
        """Return the sum of all noisy sums, at least 1."""
        total: Array = noisy.sum(axis=1)
        return np.maximum(total, 1.0)

    def start(self, noisy: Array, *, num_records: Array) -> tuple[StatisticsFamily, Array, Array]:
        """Return possible sums near the noisy ones, and theta as if none were beyond the bound."""
        total = np.clip(noisy[:, 0], 1e-3 * num_records, 0.999 * num_records)
        sums = total[:, None] if self.has_public_count else np.stack([total, num_records - total], axis=1)
        rate = self._posterior_shape(total, num_records) / self._posterior_rate(total, num_records)
        return self, np.log(rate)[:, None], sums

    def moments(self, theta: Array) -> RecordMoments:
        """Return the moments of one record's scaled outcome, and of its complement."""
        mean, variance, _ = self._law(self._rate(theta))
        sign = self._signs()
        means = mean[:, None] if self.has_public_count else np.stack([mean, 1.0 - mean], axis=1)
        return RecordMoments(means, variance[:, None, None] * np.outer(sign, sign))

    def draw_deviation(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return normal deviations of the scaled outcome and, the other way, of its complement."""
        _, variance, _ = self._law(self._rate(theta))
        drawn: Array = (np.sqrt(variance) * rng.standard_normal(len(theta)))[:, None] * self._signs()
        return drawn

    def standardise(self, theta: Array) -> Array:
        """Return theta less its prior mean, over its prior sd."""
        mean, sd = log_gamma_moments(self.prior_shape, self.prior_rate)
        standard: Array = (theta - mean) / sd
        return standard

    def from_standard(self, standard: Array) -> Array:
        """Return theta from `standardise`."""
        mean, sd = log_gamma_moments(self.prior_shape, self.prior_rate)
        theta: Array = mean + sd * standard
        return theta

    def log_tilt(self, standard: Array) -> Array:
        """Return the log density of the logarithm of a gamma variable, plus half the square of `standard`."""
        theta = self.from_standard(standard)
        density = self.prior_shape * theta - self.prior_rate * np.exp(np.minimum(theta, _LARGEST_LOG_RATE))
        tilt: Array = (density + 0.5 * standard**2)[:, 0]
        return tilt

    def propose(self, standard: Array, *, block: int, given: NoisySums, rng: np.random.Generator) -> None:
        """Return None: steps serve."""

    def is_possible(self, sums: Array, *, num_records: Array) -> NDArray[np.bool_]:
        """Return where the scaled sum is between 0 and N."""
        possible: NDArray[np.bool_] = (sums[:, 0] >= 0.0) & (sums[:, 0] <= num_records)
        return possible

    def draw_theta(self, theta: Array, sums: Array, *, num_records: Array, rng: np.random.Generator) -> Array:
        """Return theta from its gamma conditional, the sum beyond the bound filled in first.

        Given theta and what was summed, what was not has the CLT's normal law; theta is then conjugate to the
        full sum, which is sufficient.
        """
        mean, variance, (gap_mean, gap_variance, covariance) = self._law(self._rate(theta))
        slope = covariance / variance
        expected = num_records * gap_mean + slope * (sums[:, 0] - num_records * mean)
        spread = np.sqrt(num_records * np.maximum(gap_variance - slope * covariance, 0.0))
        # What is left out is not negative; a normal variable may be, where hardly anything is.
        gap = np.maximum(expected + spread * rng.standard_normal(len(mean)), 0.0)
        total = sums[:, 0] + gap
        shape = self._posterior_shape(total, num_records)
        logs = draw_log_gamma(shape, size=shape.shape, rng=rng)
        drawn: Array = (logs - np.log(self._posterior_rate(total, num_records)))[:, None]
        return drawn

    def _signs(self) -> Array:
        """Return how each released sum moves with the scaled outcome, (J,)."""
        return np.array([1.0] if self.has_public_count else [1.0, -1.0])

    def _rate(self, theta: Array) -> Array:
        """Return the rate, (R, 1) -> (R,)."""
        rate: Array = np.exp(np.clip(theta[:, 0], -_LARGEST_LOG_RATE, _LARGEST_LOG_RATE))
        return rate

    def _posterior_shape(self, total: Array, num_records: Array) -> Array:
        """Return the shape of the rate's conditional given the full scaled sum."""
        return self.prior_shape + (num_records if self.kind == "exponential" else total * self.bound)

    def _posterior_rate(self, total: Array, num_records: Array) -> Array:
        """Return the rate of the rate's conditional given the full scaled sum."""
        return self.prior_rate + (total * self.bound if self.kind == "exponential" else num_records)

    def _law(self, rate: Array) -> tuple[Array, Array, tuple[Array, Array, Array]]:
        """Return mean and variance of what a record adds to the sum, and the same of what it does not.

        In units of the bound. The second, the outcome minus what was summed of it, comes with the covariance.
        """
        whole, inside = self._partial_moments(rate)
        outside = [np.maximum(a - b, 0.0) for a, b in zip(whole, inside, strict=True)]
        # Of the outcome y beyond the bound 1, `kept` is summed and y - kept is not.
        kept = 1.0 if self.beyond == "clamp" else 0.0
        mean = inside[1] + kept * outside[0]
        variance = inside[2] + kept * outside[0] - mean**2
        gap_mean = outside[1] - kept * outside[0]
        gap_square = outside[2] - 2.0 * kept * outside[1] + kept * outside[0]
        product = kept * (outside[1] - outside[0])
        gap = np.maximum(gap_mean, 0.0)
        return mean, variance, (gap, np.maximum(gap_square, 0.0) - gap**2, product - mean * gap)

    def _partial_moments(self, rate: Array) -> tuple[list[Array], list[Array]]:
        """Return E[y^k] and E[y^k; y < b] for k = 0, 1, 2 and y in units of the bound b."""
        one = np.ones_like(rate)
        if self.kind == "exponential":
            scaled = rate * self.bound
            whole = [one, 1.0 / scaled, 2.0 / scaled**2]
            return whole, [value * gammainc(k + 1.0, scaled) for k, value in enumerate(whole)]
        last = np.ceil(self.bound) - 1.0
        # With y < b, E[y (y - 1) ... (y - k + 1)] is rate^k P(y < b - k).
        below = [pdtr(last - k, rate) if last >= k else 0.0 * one for k in range(3)]
        first, second = rate / self.bound, (rate / self.bound) ** 2
        whole = [one, first, second + first / self.bound]
        return whole, [below[0], first * below[1], second * below[2] + first * below[1] / self.bound]


def sum_statistics(
    model: ExponentialGamma | PoissonGamma,
    design: Design,
    *,
    has_public_count: bool,
    beyond: BeyondBounds = "clamp",
) -> SumStatistics:
    """Return what is released of waiting times or counts.

    Parameters
    ----------
    model : ExponentialGamma or PoissonGamma
    design : Design
        Gives the outcome's public bounds, from 0.
    has_public_count : bool
        Whether N is public.
    beyond : "drop" or "clamp"
        What an outcome of at least its public upper bound adds to the sum.

    Raises
    ------
    ArgumentError
        If the lower bound is not 0, or outcomes are dropped beyond a bound so low that the sum does not tell
        rates apart which the prior holds possible.
    """
    if beyond not in ("drop", "clamp"):
        raise ArgumentError(f'beyond must be "drop" or "clamp" (got {beyond!r}).')
    lower, upper = design.outcome_bounds
    if lower != 0.0 or not upper > 0.0:
        raise ArgumentError(f"the outcome must have public bounds from 0 (got {lower:g} to {upper:g}).")
    names = (f"sum[{model.outcome} / {upper:g}]", f"records - sum[{model.outcome} / {upper:g}]")
    family = SumStatistics(
        kind="exponential" if isinstance(model, ExponentialGamma) else "poisson",
        bound=upper,
        beyond=beyond,
        prior_shape=model.prior_shape,
        prior_rate=model.prior_rate,
        has_public_count=has_public_count,
        labels=names[:1] if has_public_count else names,
    )
    # Between which rates the prior holds all but 2e-4 of its mass.
    ends = np.log(gammaincinv(model.prior_shape, [1e-4, 1.0 - 1e-4]) / model.prior_rate)
    trend = np.diff(family.moments(np.linspace(ends[0], ends[1], 400)[:, None]).mean[:, 0])
    if trend.min() < 0.0 < trend.max():
        raise ArgumentError(
            f"the upper bound {upper:g} is too low to drop what is beyond: two rates that the prior expects "
            'give the same sum; raise the bound in the schema or use beyond="clamp".'
        )
    return family
