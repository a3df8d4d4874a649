"""Accounting of a private choice among candidates, through Renyi divergences.

A single run has the Renyi divergences of its subsampled Gaussian steps and of its score's Gaussian noise.
dp-accounting's RepeatAndSelect event turns them into those of the best of a geometric number of runs:

    eps'(a) = eps(a) + 2 min_b [(1 - 1/b) eps(b) + log(mean) / b] + log(mean) / (a - 1)

for all orders a, b > 1 (Theorem 2 of [1]_ with eta = 1 and gamma = 1/mean).

References
----------
.. [1] Papernot and Steinke (2022). Hyperparameter tuning with Renyi differential privacy. ICLR.
   https://arxiv.org/abs/2110.03620
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scipy.optimize import brentq

from nadpvi.checks import check_real
from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy.accounting_bounds import round_up
from nadpvi.privacy.accounting_cache import ALGORITHM_VERSION, dp_accounting_version
from nadpvi.privacy.parameters import (
    ADD_OR_REMOVE_ONE,
    LEAST_NOISE,
    check_delta,
    check_epsilon,
    check_neighbouring_relation,
    check_noise_multiplier,
    check_num_steps,
    check_sampling_rate,
)
from nadpvi.privacy.selection import Selection

__all__ = [
    "SelectedRun",
    "composed_selection_epsilon",
    "selection_accountant",
    "selection_epsilon",
    "selection_noise_multiplier",
]

_MOST_NOISE = 1e9
_GEOMETRIC = 1.0  # dp-accounting's shape of the distribution of the number of runs
# Whole orders: dp-accounting computes these in a finite sum.
_ORDERS = (*range(2, 64), *(round(64 * 2 ** (i / 4)) for i in range(25)))
_STEP_ROUNDING = 1e-14  # allowance on a step's Renyi divergence for float rounding in that sum


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedRun:
    """A choice among candidates as the accountant sees it.

    Parameters
    ----------
    selection : Selection
        The choice.
    noise_multiplier : float
        Of each run, over what one unit of privacy may add to a sum.
    num_steps, sampling_rate
        Of each run.
    discreteness : float
        xi of each run (`nadpvi.privacy.discreteness`). With ratios of densities within exp(+-xi), Renyi
        divergences of order a rise by at most (2a - 1)/(a - 1) xi <= 3 xi, as a >= 2 here.
    """

    selection: Selection
    noise_multiplier: float
    num_steps: int
    sampling_rate: float
    discreteness: float = 0.0


def selection_accountant() -> tuple[str, str]:
    """Return name and version of the accountant of a choice among candidates."""
    name = "dp-accounting Renyi accountant, RepeatAndSelect (Papernot and Steinke 2022), geometric runs"
    return name, f"{dp_accounting_version()}, nadpvi accounting {ALGORITHM_VERSION}"


def selection_epsilon(
    *,
    noise_multiplier: float,
    delta: float,
    num_steps: int,
    sampling_rate: float,
    selection: Selection,
    discreteness: float = 0.0,
    neighbouring_relation: str = ADD_OR_REMOVE_ONE,
) -> float:
    """Return the epsilon at `delta` of running a random number of candidates and releasing the best.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation of each run per unit of clip norm, at least 0.001.
    delta : float
        In (0, 1).
    num_steps : int
        Number of noisy gradients of each run, >= 1.
    sampling_rate : float
        Poisson inclusion probability in (0, 1].
    selection : Selection
        How many runs, and the noise on their scores.
    discreteness : float
        xi of each run, in [0, 0.01] (`nadpvi.privacy.discreteness`).
    neighbouring_relation : str
        "add_or_remove_one"; "replace_one" is refused.

    Returns
    -------
    float
        An upper bound >= 0 on the exact epsilon, looser than what single runs are accounted with.

    Raises
    ------
    ArgumentError
        If an argument is outside its range.
    PrivacyError
        If the relation is not "add_or_remove_one".

    Examples
    --------
    >>> best_of_ten = Selection(mean_runs=10, score_noise_multiplier=28.4)
    >>> round(selection_epsilon(
    ...     noise_multiplier=28.4, delta=1e-5, num_steps=1000, sampling_rate=0.1, selection=best_of_ten), 3)
    0.996
    """
    if not isinstance(selection, Selection):
        raise ArgumentError(f"selection must be a Selection (got {type(selection).__name__}).")
    run = SelectedRun(
        selection=selection,
        noise_multiplier=check_noise_multiplier(noise_multiplier),
        num_steps=check_num_steps(num_steps),
        sampling_rate=check_sampling_rate(sampling_rate),
        discreteness=check_real("discreteness", discreteness, rule="in [0, 0.01]"),
    )
    if not 0.0 <= run.discreteness <= 0.01:
        raise ArgumentError(f"discreteness must be in [0, 0.01] (got {discreteness!r}).")
    return composed_selection_epsilon(
        [run], delta=check_delta(delta), neighbouring_relation=neighbouring_relation
    )


def selection_noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    num_steps: int,
    sampling_rate: float,
    selection: Selection,
    neighbouring_relation: str = ADD_OR_REMOVE_ONE,
) -> float:
    """Return the smallest noise multiplier of each run that keeps the choice within its budget.

    Parameters and errors are those of `selection_epsilon`, with `epsilon` finite and > 0.

    Returns
    -------
    float
        Rounded up to six significant digits; `selection_epsilon` of this very number is at most `epsilon`.

    Examples
    --------
    >>> selection_noise_multiplier(
    ...     epsilon=1, delta=1e-5, num_steps=1000, sampling_rate=0.1,
    ...     selection=Selection(mean_runs=10, score_noise_multiplier=28.4))
    28.291
    """
    target = check_epsilon(epsilon)

    def spent(sigma: float) -> float:
        return selection_epsilon(
            noise_multiplier=sigma,
            delta=delta,
            num_steps=num_steps,
            sampling_rate=sampling_rate,
            selection=selection,
            neighbouring_relation=neighbouring_relation,
        )

    least = spent(_MOST_NOISE)
    if least > target:
        raise ArgumentError(
            f"epsilon must be at least {least:.4g} with mean_runs={selection.mean_runs:g} and "
            f"score_noise_multiplier={selection.score_noise_multiplier:g}, however noisy the runs "
            f"(got {target:.6g}); take fewer runs or more noise on the score."
        )
    sigma = round_up(_smallest(spent, target))
    while spent(sigma) > target:
        sigma = round_up(sigma * (1 + 1e-6))
    return sigma


def composed_selection_epsilon(
    runs: Sequence[SelectedRun], *, delta: float, neighbouring_relation: str = ADD_OR_REMOVE_ONE
) -> float:
    """Return the epsilon at `delta` of several choices among candidates, whose Renyi divergences add up.

    Raises
    ------
    PrivacyError
        If the relation is not "add_or_remove_one".
    """
    import dp_accounting
    from dp_accounting import rdp
    from dp_accounting.dp_event import RepeatAndSelectDpEvent

    if check_neighbouring_relation(neighbouring_relation) != ADD_OR_REMOVE_ONE:
        raise PrivacyError(
            'a choice among candidates is accounted under "add_or_remove_one" only; choose that relation.'
        )
    accountant = rdp.RdpAccountant(_ORDERS)
    for run in runs:
        step = dp_accounting.PoissonSampledDpEvent(
            run.sampling_rate, dp_accounting.GaussianDpEvent(run.noise_multiplier)
        )
        price = 3.0 * run.discreteness + _STEP_ROUNDING * run.num_steps
        once = dp_accounting.ComposedDpEvent(
            [
                dp_accounting.SelfComposedDpEvent(step, run.num_steps),
                dp_accounting.GaussianDpEvent(run.selection.score_noise_multiplier),
                dp_accounting.ZCDpEvent(rho=0.0, xi=price),
            ]
        )
        accountant.compose(RepeatAndSelectDpEvent(once, run.selection.mean_runs, _GEOMETRIC))
    # Covers what lies between discrete noise and the hybrid law of `nadpvi.privacy.discreteness`: E[K] times
    # a total variation below exp(-700).
    return float(accountant.get_epsilon(delta * (1 - 1e-9)))


def _smallest(spent: Callable[[float], float], target: float) -> float:
    """Return, nearly, the smallest noise multiplier that spends at most `target`; the largest one does."""
    high = 1.0
    while spent(high) > target:
        high *= 2.0
    low = high / 2.0
    while spent(low) <= target:
        if low <= LEAST_NOISE:
            return low
        high, low = low, max(low / 2.0, LEAST_NOISE)
    return math.exp(brentq(lambda x: spent(math.exp(x)) - target, math.log(low), math.log(high), xtol=1e-7))
