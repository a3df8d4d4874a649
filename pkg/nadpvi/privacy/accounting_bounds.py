"""What is known of a run of DP-SGD in closed form, and what is out of the accountant's reach.

All under either neighbouring relation. `sigma` is the noise multiplier, `rate` the sampling rate.
"""

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal

from scipy.special import erf

from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting_pld import MAX_STEPS, smallest_delta
from nadpvi.privacy.parameters import REPLACE_ONE

__all__ = [
    "central_limit_noise",
    "check_exposure",
    "check_reach",
    "full_batch_mu",
    "round_up",
    "total_variation",
]

_DIGITS = 6  # significant digits of a noise multiplier on record


def full_batch_mu(sigma: float, *, num_steps: int, relation: str) -> float:
    """Return the sensitivity over noise of all steps of a full-batch run together."""
    return _reach(relation) * math.sqrt(num_steps) / sigma


def _reach(relation: str) -> float:
    """Return how far the sum of a full batch may move, in clip norms."""
    return 2.0 if relation == REPLACE_ONE else 1.0


def total_variation(steps: Sequence[tuple[float, float, int]], relation: str) -> float:
    """Return an upper bound on how far the probability of any event moves between neighbours.

    The smaller of the sum over all steps, given as (noise multiplier, sampling rate, number of steps), and
    of Pinsker's bound, with each step's relative entropy below its chi-squared divergence
    q^2 (exp(1/sigma^2) - 1). Replacing a record moves it at most twice as far as removing one.
    """
    reach = _reach(relation)
    summed = sum(number * rate * float(erf(reach / math.sqrt(8) / sigma)) for sigma, rate, number in steps)
    if min(sigma for sigma, _, _ in steps) < 0.1:
        return summed
    divergence = sum(number * rate**2 * math.expm1(1 / sigma**2) for sigma, rate, number in steps)
    return min(summed, reach * math.sqrt(divergence / 2))


def central_limit_noise(mu: float, *, num_steps: int, sampling_rate: float, relation: str) -> float:
    """Return the noise multiplier at which many subsampled steps tend to a Gaussian mechanism with `mu`.

    mu^2 is the number of steps times the chi-squared divergence of one: q^2 (exp(1/sigma^2) - 1) for the
    pair of add or remove one, and for that of replace one, with both outputs about Normal(0, sigma^2),
    q^2 (2 exp(1/sigma^2) - 2 exp(-1/sigma^2)).
    """
    share = (mu / sampling_rate) ** 2 / num_steps
    precision = math.asinh(share / 4) if relation == REPLACE_ONE else math.log1p(share)
    return 1 / math.sqrt(precision)


def check_reach(delta: float, *, num_steps: int, sampling_rate: float) -> None:
    """Refuse settings of subsampled runs that the composition cannot resolve, naming the range it can."""
    if sampling_rate == 1.0:
        return
    if num_steps > MAX_STEPS:
        raise ArgumentError(
            f"num_steps must be at most {MAX_STEPS:,} when sampling_rate is below 1 (got {num_steps:,})."
        )
    if delta < smallest_delta(num_steps):
        raise ArgumentError(
            f"delta must be at least {smallest_delta(num_steps):.2g}, and a little more for what discrete "
            f"noise takes of it, for {num_steps:,} steps, sampling_rate below 1 (got {delta:.3g}): a smaller "
            "one drowns in rounding."
        )


def check_exposure(delta: float, *, num_steps: int, sampling_rate: float) -> None:
    """Refuse a delta so large that it lets every record that is used be published as it is."""
    exposed = -math.expm1(num_steps * math.log1p(-sampling_rate))
    if exposed <= delta:
        raise ArgumentError(
            f"delta must be below {exposed:.3g}, the probability that a record is used at all "
            f"(got {delta:.3g}); choose it far below one over the number of records."
        )


def round_up(value: float) -> float:
    """Return the next number of six significant digits that is not below `value`."""
    exact = Decimal(value)
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1), rounding=ROUND_CEILING))
