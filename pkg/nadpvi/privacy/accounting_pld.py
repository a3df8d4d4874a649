"""Privacy loss distribution of the Poisson-subsampled Gaussian: grids for dp-accounting, and what they give.

dp-accounting replaces the privacy loss of one step by a pessimistic one on a grid (connect the dots [1]_) and
composes by FFT, so each number is an upper bound. Too coarse a grid swamps a small epsilon; too fine a one
adds mass by rounding and explodes. The grid here follows the spread of one step's loss, its size is bounded
before anything is built, and results on grids that halve in turn have to agree.

References
----------
.. [1] Doroshenko, Ghazi, Kamath, Kumar, Manurangsi (2022). Connect the dots: tighter discrete
   approximations of privacy loss distributions. https://arxiv.org/abs/2207.04380
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq

from nadpvi.privacy.accounting_loss import TAIL_MASS, SubsampledRun, make_run
from nadpvi.privacy.parameters import REPLACE_ONE

__all__ = [
    "MAX_STEPS",
    "MIN_NOISE",
    "UnresolvedError",
    "calibrated_noise",
    "compose_steps",
    "pld_epsilon",
    "rounding_allowance",
    "smallest_delta",
    "smallest_epsilon",
]

MAX_STEPS = 10**6
MIN_NOISE = 0.02

_STANDARD_GRIDS = 4  # grids that are always computed: the stopping rule must not depend on delta
_TOLERANCE = 5e-4  # relative change of epsilon between the last two grids


class UnresolvedError(Exception):
    """A noise multiplier is too small, or cannot be accounted to 0.1 % on grids of bounded size."""

    def __init__(self, *, noise_multiplier: float) -> None:
        super().__init__(f"unresolved at noise multiplier {noise_multiplier:.6g}")
        self.noise_multiplier = noise_multiplier


def smallest_delta(num_steps: int) -> float:
    """Return the smallest delta at which rounding in the composition stays below a fiftieth of delta."""
    return max(1e-12, 50 * rounding_allowance(num_steps))


def pld_epsilon(
    *,
    noise_multiplier: float,
    delta: float,
    num_steps: int,
    sampling_rate: float,
    neighbouring_relation: str,
) -> float:
    """Return the smallest epsilon over the grids tried: each gives an upper bound, so the least one is.

    Inputs are validated by the caller; `sampling_rate` < 1 and `delta` >= `smallest_delta`. Raises
    `UnresolvedError` if the grids do not agree to 0.1 % within the bounds on their size.
    """
    run = make_run(
        noise_multiplier,
        num_steps=num_steps,
        sampling_rate=sampling_rate,
        neighbouring_relation=neighbouring_relation,
    )
    usable = delta - rounding_allowance(num_steps)
    floor = 1e-2 * math.sqrt(num_steps) * run.step_sd
    interval = run.first_interval()
    found: list[float] = []
    settled = False
    while run.fits(interval):
        found.append(smallest_epsilon(compose_steps(run, interval), usable, scale=floor))
        if len(found) > 2:
            # Grid error falls fourfold with each halving while rounding error grows fourfold; two small
            # changes in a row cannot come from the two cancelling.
            last, before = abs(found[-1] - found[-2]), abs(found[-2] - found[-3])
            allowed = _TOLERANCE * max(min(found), floor)
            settled = settled or (last <= allowed and before <= 4 * allowed)
        enough = len(found) >= _STANDARD_GRIDS or (len(found) > 2 and run.is_large(interval))
        if enough and (settled or min(found) == 0.0 or found[-1] > found[-2]):
            break
        interval /= 2
    if found and (settled or min(found) == 0.0):
        return min(found)
    raise UnresolvedError(noise_multiplier=noise_multiplier)


def calibrated_noise(
    *,
    epsilon: float,
    delta: float,
    num_steps: int,
    sampling_rate: float,
    neighbouring_relation: str,
    start: float,
) -> float:
    """Return the noise multiplier whose delta at `epsilon` is `delta`, refining until it moves below 0.1 %.

    `start` is the central-limit value; inputs are validated by the caller. Raises `UnresolvedError` if no
    noise multiplier from `MIN_NOISE` up with a grid of bounded size reaches the target.
    """
    usable = delta - rounding_allowance(num_steps)

    def excess(log_noise: float, halvings: int) -> float:
        run = make_run(
            math.exp(log_noise),
            num_steps=num_steps,
            sampling_rate=sampling_rate,
            neighbouring_relation=neighbouring_relation,
        )
        interval = run.first_interval() / 2**halvings
        if not run.fits(interval):
            raise UnresolvedError(noise_multiplier=run.noise_multiplier)
        found = float(compose_steps(run, interval).get_delta_for_epsilon(epsilon))
        return math.log(max(found, 1e-300)) - math.log(usable)

    coarse = functools.partial(excess, halvings=0)
    bracket = _bracket(coarse, math.log(max(start, 1.01 * MIN_NOISE)))
    log_noise = float(brentq(coarse, *bracket, xtol=1e-4))
    slope = (coarse(log_noise + 1e-3) - coarse(log_noise - 1e-3)) / 2e-3
    # Finer grids move the root so little that one Newton step with the coarse slope finds it.
    for halvings in range(1, 12):
        try:
            move = -excess(log_noise, halvings) / slope
        except UnresolvedError:
            break
        log_noise += move
        if halvings > 1 and abs(move) < _TOLERANCE:
            break
    return max(math.exp(log_noise), MIN_NOISE)


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Return two log noise multipliers, the second at least `MIN_NOISE`, with a change of sign between."""
    too_loud = excess(start) > 0
    inner, step = start, 0.01
    while True:
        outer = max(inner + (step if too_loud else -step), math.log(MIN_NOISE))
        if (excess(outer) > 0) != too_loud:
            return inner, outer
        if outer == inner:
            raise UnresolvedError(noise_multiplier=MIN_NOISE)
        inner, step = outer, 2 * step


def rounding_allowance(num_steps: int) -> float:
    """Return an allowance on delta for FFT rounding: measured were 3e-14 at 10^4 steps, 7e-11 at 10^6."""
    return float(max(1e-16 * min(num_steps, 5000), 2e-20 * num_steps**1.6))


def compose_steps(run: SubsampledRun, interval: float) -> Any:
    """Return dp-accounting's loss distribution of all steps, in both directions."""
    from dp_accounting.pld import privacy_loss_distribution

    relations = privacy_loss_distribution.NeighborRel
    replaces = run.neighbouring_relation == REPLACE_ONE
    # Far tails under- and overflow to the right limits.
    with np.errstate(all="ignore"):
        one_step = privacy_loss_distribution.from_gaussian_mechanism(
            run.noise_multiplier,
            sampling_prob=run.sampling_rate,
            value_discretization_interval=interval,
            use_connect_dots=True,
            neighboring_relation=relations.REPLACE_ONE if replaces else relations.ADD_OR_REMOVE_ONE,
        )
        if run.block == 1:
            return one_step.self_compose(run.num_steps, TAIL_MASS)
        blocks, rest = divmod(run.num_steps, run.block)
        composed = one_step.self_compose(run.block, 0.0).self_compose(blocks, TAIL_MASS)
        return composed.compose(one_step.self_compose(rest, 0.0), 0.0) if rest else composed


def smallest_epsilon(pld: Any, delta: float, *, scale: float) -> float:
    """Return the smallest epsilon >= 0 of a composed loss distribution at `delta`; `scale` starts the search.

    Solved on delta(epsilon): dp-accounting's own inverse divides by masses that underflow above 700.
    """

    def excess(epsilon: float) -> float:
        with np.errstate(all="ignore"):
            return math.log(max(float(pld.get_delta_for_epsilon(epsilon)), 1e-300)) - math.log(delta)

    if excess(0.0) <= 0:
        return 0.0
    low, high = 0.0, scale
    while excess(high) > 0:
        low, high = high, 2 * high
    # Up by more than the solver's tolerance, so that this end is safe.
    return float(brentq(excess, low, high, xtol=1e-9 * high)) + 2e-9 * high
