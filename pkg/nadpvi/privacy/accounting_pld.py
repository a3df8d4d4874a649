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
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import logsumexp

__all__ = [
    "MAX_STEPS",
    "MIN_NOISE",
    "SubsampledRun",
    "UnresolvedError",
    "calibrated_noise",
    "compose_steps",
    "make_run",
    "pld_epsilon",
    "rounding_allowance",
    "smallest_delta",
    "smallest_epsilon",
]

MAX_STEPS = 10**6
MIN_NOISE = 0.02

_TAIL_MASS = 1e-15  # dp-accounting's own: mass outside the composed range, counted as an infinite loss
_TRUNCATION = 9.745474864965935  # normal quantile of exp(-50)/2, dp-accounting's cut of one step
_COARSEST = 8.0  # grid points per standard deviation of one step's loss, first grid
_STANDARD_GRIDS = 4  # grids that are always computed: the stopping rule must not depend on delta
_FIRST_STEP_POINTS, _MAX_STEP_POINTS = 2**12, 2**17
_FIRST_COMPOSED_POINTS, _MAX_COMPOSED_POINTS = 2**18, 2**22
_LARGE_COMPOSED_POINTS = 2**19
_TOLERANCE = 5e-4  # relative change of epsilon between the last two grids


class UnresolvedError(Exception):
    """A noise multiplier is too small, or cannot be accounted to 0.1 % on grids of bounded size."""

    def __init__(self, *, noise_multiplier: float) -> None:
        super().__init__(f"unresolved at noise multiplier {noise_multiplier:.6g}")
        self.noise_multiplier = noise_multiplier


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    """One step's privacy loss in one direction, above its least value, with the weight of each point."""

    values: npt.NDArray[np.float64]
    log_weight: npt.NDArray[np.float64]

    @property
    def sd(self) -> float:
        """Standard deviation of one step's loss."""
        weight = np.exp(self.log_weight)
        return math.sqrt(float(weight @ (self.values - float(weight @ self.values)) ** 2))

    @property
    def range(self) -> float:
        """Range of one step's loss between dp-accounting's cuts."""
        return float(self.values.max())

    def composed_width(self, num_steps: int, *, block: int, noise_floor: float) -> float:
        """Return the width that dp-accounting will give to the composition: its Chernoff bound, its orders.

        `noise_floor` is the mass that rounding may add to one step, spread evenly over its range.
        """
        upper, lower = self.range * num_steps, 0.0
        slack = math.log(2 / _TAIL_MASS)
        for order in np.arange(1, 21) / block:
            rate = order / self.range
            above = float(logsumexp(self.log_weight + rate * self.values))
            above = float(np.logaddexp(above, math.log(noise_floor * math.expm1(order) / order)))
            below = math.log1p(noise_floor) + float(logsumexp(self.log_weight - rate * self.values))
            upper = min(upper, (num_steps * above + slack) / rate)
            lower = max(lower, -(num_steps * below + slack) / rate)
        return upper - lower


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsampledRun:
    """A run of DP-SGD as its accountant sees it: losses of removing and of adding, and grids for them."""

    noise_multiplier: float
    num_steps: int
    sampling_rate: float
    losses: tuple[_Loss, _Loss]

    @property
    def step_sd(self) -> float:
        """Smaller standard deviation of one step's loss."""
        return min(loss.sd for loss in self.losses)

    @property
    def step_range(self) -> float:
        """Range of one step's loss, equal in both directions."""
        return self.losses[0].range

    @property
    def block(self) -> int:
        """Number of steps that are composed first, exactly, when there are many.

        dp-accounting truncates at moments of orders up to 20 over the range of what it composes. The best
        order over many steps is smaller; blocks bring it into reach: less memory.
        """
        if self.num_steps <= 4096:
            return 1
        return max(2, int(0.6 * math.sqrt(self.num_steps) * self.step_sd / self.step_range))

    def composed_width(self, noise_floor: float) -> float:
        """Return the width of the composed distribution in the wider direction."""
        return max(
            loss.composed_width(self.num_steps, block=self.block, noise_floor=noise_floor)
            for loss in self.losses
        )

    def first_interval(self) -> float:
        """Return the widest grid interval that is tried."""
        return max(
            self.step_sd / _COARSEST,
            self.step_range / _FIRST_STEP_POINTS,
            self.composed_width(1e-300) / _FIRST_COMPOSED_POINTS,
        )

    def is_large(self, interval: float) -> bool:
        """Return whether a grid is so large that a finer one takes seconds."""
        return self.composed_width(1e-300) > interval * _LARGE_COMPOSED_POINTS

    def fits(self, interval: float) -> bool:
        """Return whether a grid stays within the bounds on time and memory, counting rounding's own mass."""
        noise_floor = 1e-16 * self.step_range / interval**2
        return (
            self.step_range <= interval * _MAX_STEP_POINTS
            and self.num_steps * noise_floor <= 2
            and self.composed_width(noise_floor) <= interval * _MAX_COMPOSED_POINTS
        )


def smallest_delta(num_steps: int) -> float:
    """Return the smallest delta at which rounding in the composition stays below a fiftieth of delta."""
    return max(1e-12, 50 * rounding_allowance(num_steps))


def pld_epsilon(*, noise_multiplier: float, delta: float, num_steps: int, sampling_rate: float) -> float:
    """Return the smallest epsilon over the grids tried: each gives an upper bound, so the least one is.

    Inputs are validated by the caller; `sampling_rate` < 1 and `delta` >= `smallest_delta`. Raises
    `UnresolvedError` if the grids do not agree to 0.1 % within the bounds on their size.
    """
    run = make_run(noise_multiplier, num_steps=num_steps, sampling_rate=sampling_rate)
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
    *, epsilon: float, delta: float, num_steps: int, sampling_rate: float, start: float
) -> float:
    """Return the noise multiplier whose delta at `epsilon` is `delta`, refining until it moves below 0.1 %.

    `start` is the central-limit value; inputs are validated by the caller. Raises `UnresolvedError` if no
    noise multiplier from `MIN_NOISE` up with a grid of bounded size reaches the target.
    """
    usable = delta - rounding_allowance(num_steps)

    def excess(log_noise: float, halvings: int) -> float:
        run = make_run(math.exp(log_noise), num_steps=num_steps, sampling_rate=sampling_rate)
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
    return float(2e-20 * num_steps**1.6)


def compose_steps(run: SubsampledRun, interval: float) -> Any:
    """Return dp-accounting's loss distribution of all steps, for both add and remove."""
    from dp_accounting.pld import privacy_loss_distribution

    # Far tails under- and overflow to the right limits.
    with np.errstate(all="ignore"):
        one_step = privacy_loss_distribution.from_gaussian_mechanism(
            run.noise_multiplier,
            sampling_prob=run.sampling_rate,
            value_discretization_interval=interval,
            use_connect_dots=True,
            neighboring_relation=privacy_loss_distribution.NeighborRel.ADD_OR_REMOVE_ONE,
        )
        if run.block == 1:
            return one_step.self_compose(run.num_steps, _TAIL_MASS)
        blocks, rest = divmod(run.num_steps, run.block)
        composed = one_step.self_compose(run.block, 0.0).self_compose(blocks, _TAIL_MASS)
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


def make_run(noise_multiplier: float, *, num_steps: int, sampling_rate: float) -> SubsampledRun:
    """Return a run with its losses, on points of the mechanism's output x.

    With densities f0 = N(0, sigma^2) without the record and f1 = N(-1, sigma^2) with it, the output has
    density (1 - q) f0 + q f1; removing has the loss log(1 - q + q f1(x) / f0(x)), adding its negative.
    """
    sigma, log_q, log_rest = noise_multiplier, math.log(sampling_rate), math.log1p(-sampling_rate)
    x = np.linspace(-1 - _TRUNCATION * sigma, 1 + _TRUNCATION * sigma, int(500 + 50 / sigma))
    loss = np.logaddexp(log_rest, log_q - (x + 0.5) / sigma**2)
    without = -0.5 * (x / sigma) ** 2
    mixed = np.logaddexp(log_rest + without, log_q - 0.5 * ((x + 1) / sigma) ** 2)
    return SubsampledRun(
        noise_multiplier=noise_multiplier,
        num_steps=num_steps,
        sampling_rate=sampling_rate,
        losses=(
            _Loss(values=loss - loss.min(), log_weight=mixed - logsumexp(mixed)),
            _Loss(values=loss.max() - loss, log_weight=without - logsumexp(without)),
        ),
    )
