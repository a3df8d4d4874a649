"""Privacy of several runs of DP-SGD on the same records, composed through their privacy losses.

Epsilons do not add up: the loss of all runs together is the sum of independent losses, and epsilon is read
off the tail of that sum. Full-batch runs are Gaussian mechanisms, whose ``mu`` add in squares; subsampled
ones are composed on grids (`nadpvi.privacy.composition_pld`).

A later run may depend on what earlier ones released in everything but its noise multiplier, sampling rate and
number of steps: these are taken as chosen without regard to earlier outcomes.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import erf

from nadpvi.checks import check_count, check_real
from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy.accounting import epsilon_spent
from nadpvi.privacy.accounting_cache import cached_number
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon
from nadpvi.privacy.accounting_pld import MAX_STEPS, MIN_NOISE, smallest_delta
from nadpvi.privacy.composition_pld import PART_STEPS, compose_runs
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.parameters import (
    check_delta,
    check_noise_multiplier,
    check_num_steps,
    check_sampling_rate,
)

__all__ = ["Run", "composed_epsilon"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the accountant needs to know of a run of DP-SGD.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation per unit of clip norm; at least 0.001, or 0.02 when sampling_rate < 1.
    num_steps : int
        Number of noisy gradients drawn, >= 1.
    sampling_rate : float
        Poisson inclusion probability in (0, 1].
    count : int
        How many such runs there were, >= 1.
    discreteness : float
        xi of each run, in [0, 0.01]: its discrete noise is accounted as continuous at this price
        (`nadpvi.privacy.discreteness`).
    """

    noise_multiplier: float
    num_steps: int
    sampling_rate: float
    count: int = 1
    discreteness: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", check_noise_multiplier(self.noise_multiplier))
        object.__setattr__(self, "num_steps", check_num_steps(self.num_steps))
        object.__setattr__(self, "sampling_rate", check_sampling_rate(self.sampling_rate))
        object.__setattr__(self, "count", check_count("count", self.count))
        rule = "in [0, 0.01]"
        object.__setattr__(self, "discreteness", check_real("discreteness", self.discreteness, rule=rule))
        if not 0.0 <= self.discreteness <= 0.01:
            raise ArgumentError(f"discreteness must be {rule} (got {self.discreteness!r}).")
        if self.sampling_rate < 1 and self.noise_multiplier < MIN_NOISE:
            raise ArgumentError(
                f"noise_multiplier must be at least {MIN_NOISE} when sampling_rate is below 1 "
                f"(got {self.noise_multiplier:.6g})."
            )

    @classmethod
    def from_guarantee(cls, guarantee: Guarantee, *, num_steps: int | None = None) -> "Run":
        """Return the run behind a guarantee, cut to the first `num_steps` steps if given.

        Raises
        ------
        PrivacyError
            If the guarantee promises nothing, or protects otherwise than what is composed here.
        """
        if not guarantee.is_private:
            raise PrivacyError("a run that is not private cannot be composed with private ones.")
        kind = (guarantee.neighbouring_relation, guarantee.unit, guarantee.sampler)
        if kind != ("add_or_remove_one", "one record", "poisson"):
            raise PrivacyError(f"runs that protect {kind} cannot be composed with others yet.")
        return cls(
            noise_multiplier=guarantee.noise_multiplier,
            num_steps=guarantee.num_steps if num_steps is None else num_steps,
            sampling_rate=guarantee.sampling_rate,
            discreteness=guarantee.discreteness,
        )


def composed_epsilon(runs: Sequence[Run], *, delta: float) -> float:
    """Return the epsilon at `delta` of all runs together on the same records, under add or remove one.

    Parameters
    ----------
    runs : sequence of Run
        In any order, chosen one after the other or at once; none spends nothing.
    delta : float
        In (0, 1).

    Returns
    -------
    float
        An upper bound >= 0 on the exact epsilon, within about 0.1 % of it.

    Raises
    ------
    ArgumentError
        If `delta` is too small, or the runs too many or too noisy, to be accounted.

    Examples
    --------
    >>> run = Run(noise_multiplier=20.0, num_steps=100, sampling_rate=1)
    >>> round(composed_epsilon([run] * 4, delta=1e-5), 6)
    4.377178
    """
    delta = check_delta(delta)
    steps: Counter[tuple[float, float]] = Counter()
    discreteness = 0.0
    for run in runs:
        if not isinstance(run, Run):
            raise ArgumentError(f"runs must hold Run objects (got {type(run).__name__}).")
        steps[run.noise_multiplier, run.sampling_rate] += run.num_steps * run.count
        discreteness += run.discreteness * run.count
    if 2.0 * discreteness >= 1.0:
        raise ArgumentError("the runs are too many, or their noise too coarse, to be accounted together.")
    # The factors exp(xi) between discrete and continuous traces of independent runs multiply.
    lengths = {run.num_steps for run in runs}
    continuous = _continuous_epsilon(steps, delta=delta * (1.0 - 2.0 * discreteness), lengths=lengths)
    return continuous + 2.0 * discreteness


def _continuous_epsilon(
    steps: Mapping[tuple[float, float], int], *, delta: float, lengths: Collection[int]
) -> float:
    """Return epsilon for numbers of steps by noise multiplier and rate; single runs had these `lengths`."""
    groups = sorted((sigma, rate, number) for (sigma, rate), number in steps.items())
    mu = math.sqrt(sum(number / sigma**2 for sigma, rate, number in groups if rate == 1.0))
    subsampled = [group for group in groups if group[1] < 1.0]
    if not subsampled:
        return gaussian_epsilon(mu, delta) if mu > 0 else 0.0
    if _total_variation(groups) <= delta:
        return 0.0
    if len(groups) == 1:
        sigma, rate, number = groups[0]
        # The accountant of one run may fail on many runs that it resolves singly; parts serve those.
        is_within_reach = number <= PART_STEPS or number in lengths
        if is_within_reach and number <= MAX_STEPS and delta >= smallest_delta(number):
            return epsilon_spent(noise_multiplier=sigma, delta=delta, num_steps=number, sampling_rate=rate)
    inputs = {"delta": delta, "gaussian_mu": mu}
    for i, (sigma, rate, number) in enumerate(subsampled):
        inputs |= {f"noise_multiplier_{i}": sigma, f"sampling_rate_{i}": rate, f"num_steps_{i}": number}
    return cached_number(
        "composed_epsilon", inputs, compute=lambda: compose_runs(subsampled, gaussian_mu=mu, delta=delta)
    )


def _total_variation(groups: Sequence[tuple[float, float, int]]) -> float:
    """Return an upper bound on the total variation of everything: the sum over steps, or Pinsker's bound."""
    summed = sum(number * rate * float(erf(1 / (math.sqrt(8) * sigma))) for sigma, rate, number in groups)
    if min(sigma for sigma, _, _ in groups) < 0.1:
        return summed
    divergence = sum(number * rate**2 * math.expm1(1 / sigma**2) for sigma, rate, number in groups)
    return min(summed, math.sqrt(divergence / 2))
