"""Privacy loss of one step of DP-SGD, and the grids that it asks for.

The output of a step is compared between neighbouring data sets, along the one direction in which they differ
most, in units of the clip norm. With q the sampling rate and f_m the density of Normal(m, sigma^2):

- add or remove one: (1 - q) f_0 + q f_-1 with the record, f_0 without it;
- replace one: (1 - q) f_0 + q f_-1 with the one record, (1 - q) f_0 + q f_1 with the other.

No other pair of data sets is easier to tell apart. For add or remove one this is Theorem 11 of [1]_. For
replace one, let u and v be what the two records add, |u|, |v| <= 1. Given which other records are in the
batch, the outputs are A_u and A_v with A_w = (1 - q) f_0 + q f_w, all shifted alike; by joint convexity the
worst such batch bounds them all. For alpha >= 1 the hockey-stick divergence of order alpha is

    integral of [q f_u - alpha q f_v - (alpha - 1)(1 - q) f_0]_+  =  q E[1 - c X - d Y]_+

with c = alpha, d = (alpha - 1)(1 - q)/q, and X, Y the ratios f_v/f_u and f_0/f_u under f_u: lognormals of
mean 1 whose logs have standard deviations |v - u|/sigma <= 2/sigma and |u|/sigma <= 1/sigma. The bracket is
convex in c X + d Y, so that its mean is largest if X and Y increase together, and then increases with
either standard deviation [2]_. All of this is attained by v = -u, |u| = 1. Orders alpha < 1 follow from
H_alpha(P, Q) = 1 - alpha + alpha H_1/alpha(Q, P), as that pair is its own mirror image. Pairs that dominate
each step dominate all steps together, even if later steps depend on what earlier ones released [1]_.

References
----------
.. [1] Zhu, Dong, Wang (2022). Optimal accounting of differential privacy via characteristic function.
   AISTATS.
.. [2] Dhaene, Denuit, Goovaerts, Kaas, Vyncke (2002). The concept of comonotonicity in actuarial science and
   finance: theory. Insurance: Mathematics and Economics 31.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from nadpvi.privacy.parameters import ADD_OR_REMOVE_ONE, REPLACE_ONE

__all__ = ["TAIL_MASS", "PrivacyLoss", "SubsampledRun", "make_run"]

TAIL_MASS = 1e-15  # dp-accounting's own: mass outside the composed range, counted as an infinite loss
_TRUNCATION = 9.745474864965935  # normal quantile of exp(-50)/2, dp-accounting's cut of one step
_COARSEST = 8.0  # grid points per standard deviation of one step's loss, first grid
_FIRST_STEP_POINTS, _MAX_STEP_POINTS = 2**12, 2**17
_FIRST_COMPOSED_POINTS, _MAX_COMPOSED_POINTS = 2**18, 2**22
_LARGE_COMPOSED_POINTS = 2**19


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyLoss:
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
        slack = math.log(2 / TAIL_MASS)
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
    """A run of DP-SGD as its accountant sees it: its losses, and grids for them.

    There are two losses, of removing and of adding a record, or the one of replacing it, equal both ways.
    """

    noise_multiplier: float
    num_steps: int
    sampling_rate: float
    neighbouring_relation: str
    losses: tuple[PrivacyLoss, ...]

    @property
    def step_sd(self) -> float:
        """Smaller standard deviation of one step's loss."""
        return min(loss.sd for loss in self.losses)

    @property
    def step_range(self) -> float:
        """Range of one step's loss, equal in all directions."""
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


def make_run(
    noise_multiplier: float,
    *,
    num_steps: int,
    sampling_rate: float,
    neighbouring_relation: str = ADD_OR_REMOVE_ONE,
) -> SubsampledRun:
    """Return a run with its losses, on points of the mechanism's output x.

    Removing has the loss r(x) = log(1 - q + q f_-1(x) / f_0(x)), adding -r(x), and replacing r(x) - r(-x).
    """
    sigma, log_q, log_rest = noise_multiplier, math.log(sampling_rate), math.log1p(-sampling_rate)
    x = np.linspace(-1 - _TRUNCATION * sigma, 1 + _TRUNCATION * sigma, int(500 + 50 / sigma))
    removing = np.logaddexp(log_rest, log_q - (x + 0.5) / sigma**2)
    without = -0.5 * (x / sigma) ** 2
    mixed = np.logaddexp(log_rest + without, log_q - 0.5 * ((x + 1) / sigma) ** 2)
    if neighbouring_relation == REPLACE_ONE:
        # The points are symmetric about 0.
        losses: tuple[PrivacyLoss, ...] = (_loss(removing - removing[::-1], mixed),)
    else:
        losses = (_loss(removing, mixed), _loss(-removing, without))
    return SubsampledRun(
        noise_multiplier=noise_multiplier,
        num_steps=num_steps,
        sampling_rate=sampling_rate,
        neighbouring_relation=neighbouring_relation,
        losses=losses,
    )


def _loss(values: npt.NDArray[np.float64], log_weight: npt.NDArray[np.float64]) -> PrivacyLoss:
    """Return a loss above its least value, with weights that sum to 1."""
    return PrivacyLoss(values=values - values.min(), log_weight=log_weight - logsumexp(log_weight))
