"""Loss distributions of several runs on one grid: how runs of unlike noise are composed.

Subsampled runs are composed step by step on grids of their own (`nadpvi.privacy.accounting_pld`), moved to
one common grid, and composed there by dp-accounting. Moving splits each atom of the loss between the two
grid points around it so that its mass under both neighbours is kept. Merging the halves gives the atom back,
so what has been split dominates it [1]_, and every number here stays an upper bound. Two grids, one half as
wide as the other, have to agree.

References
----------
.. [1] Doroshenko, Ghazi, Kamath, Kumar, Manurangsi (2022). Connect the dots: tighter discrete
   approximations of privacy loss distributions. https://arxiv.org/abs/2207.04380
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting_loss import SubsampledRun, make_run
from nadpvi.privacy.accounting_pld import compose_steps, rounding_allowance, smallest_epsilon
from nadpvi.privacy.parameters import ADD_OR_REMOVE_ONE

__all__ = ["PART_STEPS", "compose_runs"]

PART_STEPS = 2**16  # longer runs are composed of parts: rounding grows faster than the number of steps

_PIECE_ROUNDING = 2e-14  # allowance on delta for each convolution on the common grid; far above any measured
_TAIL_MASS = 1e-15
_POINTS_PER_SPREAD = 256  # of the common grid, first one
_FIRST_POINTS, _MAX_POINTS = 2**17, 2**22
_MAX_PIECES = 10**5
_MAX_LEVELS = 10
_AIM, _TOLERANCE = 3e-4, 5e-3  # relative change of epsilon between the last two grids: wanted, and accepted


class _TooLargeError(Exception):
    """A grid exceeds the bound on its size, or is too fine for its rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Some steps of subsampled runs with one noise multiplier and rate, and how often they happened."""

    steps: SubsampledRun
    copies: int
    width: float
    first_interval: float

    @property
    def variance(self) -> float:
        """Variance of the loss of one copy."""
        return self.steps.num_steps * self.steps.step_sd**2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Together:
    """All runs together: the subsampled parts, and the one Gaussian mechanism that the others add up to."""

    parts: tuple[_Part, ...]
    gaussian_mu: float

    @property
    def spread(self) -> float:
        """Standard deviation of the loss of everything."""
        return math.sqrt(self.gaussian_mu**2 + sum(part.copies * part.variance for part in self.parts))

    @property
    def num_pieces(self) -> int:
        """Number of distributions that are convolved on the common grid."""
        return sum(part.copies for part in self.parts) + (self.gaussian_mu > 0)

    @property
    def allowance(self) -> float:
        """Allowance on delta for rounding."""
        own = sum(part.copies * rounding_allowance(part.steps.num_steps) for part in self.parts)
        return own + self.num_pieces * _PIECE_ROUNDING

    def first_interval(self) -> float:
        """Return the widest interval of the common grid: its pieces may each add a variance of its square."""
        width = 16 * self.gaussian_mu + sum(math.sqrt(part.copies) * part.width for part in self.parts)
        fineness = max(_POINTS_PER_SPREAD, 16 * math.sqrt(self.num_pieces))
        return max(self.spread / fineness, width / _FIRST_POINTS)

    def first_part_interval(self, part: _Part) -> float:
        """Return the widest interval for one part: no finer than its share of the whole asks for.

        A step of standard deviation s on a grid of interval h gains a variance of at most min(h^2, s h).
        """
        share = 1e-3 * self.spread**2 / (sum(other.copies for other in self.parts) * part.steps.num_steps)
        enough = min(max(share / part.steps.step_sd, math.sqrt(share)), self.spread / 8)
        return max(part.first_interval, enough)


def _parts(sigma: float, rate: float, num_steps: int, *, relation: str) -> list[_Part]:
    """Return a group of steps as parts that the accountant can resolve."""
    size = min(num_steps, PART_STEPS)
    copies, rest = divmod(num_steps, size)
    pieces = [(size, copies), (rest, 1)] if rest else [(size, copies)]
    parts = []
    for number, times in pieces:
        steps = make_run(sigma, num_steps=number, sampling_rate=rate, neighbouring_relation=relation)
        # Kept, as both take longer than composing on the first grids.
        width, interval = steps.composed_width(1e-300), steps.first_interval()
        parts.append(_Part(steps=steps, copies=times, width=width, first_interval=interval))
    return parts


def compose_runs(
    groups: Sequence[tuple[float, float, int]],
    *,
    gaussian_mu: float,
    delta: float,
    neighbouring_relation: str = ADD_OR_REMOVE_ONE,
) -> float:
    """Return the epsilon at `delta` of everything: the least over grids, each of which gives an upper bound.

    Parameters
    ----------
    groups : sequence of (noise multiplier, sampling rate, number of steps)
        Subsampled runs, one group for each noise multiplier and rate below 1.
    gaussian_mu : float
        Sensitivity over noise of all other runs together, >= 0.
    delta : float
        In (0, 1).
    neighbouring_relation : str
        "add_or_remove_one" or "replace_one".

    Raises
    ------
    ArgumentError
        If that is out of the accountant's reach.
    """
    if sum(1 + number // PART_STEPS for _, _, number in groups) > _MAX_PIECES:
        most = f"about {_MAX_PIECES * PART_STEPS:.2g}"
        raise ArgumentError(f"the runs have too many steps to be accounted together: at most {most}.")
    everything = _Together(
        parts=tuple(part for group in groups for part in _parts(*group, relation=neighbouring_relation)),
        gaussian_mu=gaussian_mu,
    )
    least = max(1e-12, 50 * everything.allowance)
    if delta < least:
        raise ArgumentError(
            f"delta must be at least {least:.2g} for these {len(groups)} kinds of runs together "
            f"(got {delta:.3g}): a smaller one drowns in rounding."
        )
    usable, floor = delta - everything.allowance, 1e-2 * everything.spread
    found: list[float] = []
    changes = [math.inf, math.inf]
    for level in range(_MAX_LEVELS):
        try:
            total = _total(everything, level)
        except _TooLargeError:
            break
        found.append(smallest_epsilon(total, usable, scale=floor))
        if len(found) > 1:
            changes.append((found[-2] - found[-1]) / max(min(found), floor))
        # Grid error falls fourfold with each halving while rounding error grows.
        if min(found) == 0.0 or (len(found) > 2 and changes[-1] <= _AIM):
            break
    # Two small changes in a row cannot come from grid and rounding errors that cancel.
    if found and (
        min(found) == 0.0 or (abs(changes[-1]) <= _TOLERANCE and abs(changes[-2]) <= 4 * _TOLERANCE)
    ):
        return min(found)
    raise ArgumentError(
        "the runs cannot be accounted together to 0.5 %: their noise multipliers are too small or too "
        "unlike; take fewer steps or less noise in the next run."
    )


def _total(everything: _Together, level: int) -> Any:
    """Return the loss distribution of all runs on the grid of this level."""
    from dp_accounting.pld import privacy_loss_distribution

    interval = everything.first_interval() / 2**level
    pieces = []
    if everything.gaussian_mu > 0:
        with np.errstate(all="ignore"):
            gaussian = privacy_loss_distribution.from_gaussian_mechanism(
                1 / everything.gaussian_mu, value_discretization_interval=interval, use_connect_dots=True
            )
        pieces.append(gaussian)
    for part in everything.parts:
        own = _part_distribution(part.steps, widest=everything.first_part_interval(part), level=level)
        pieces.append(_power(_on_grid(own, interval), part.copies))
    return functools.reduce(_convolved, pieces)


def _part_distribution(steps: SubsampledRun, *, widest: float, level: int) -> Any:
    """Return a part's own loss distribution on the grid of this level, or on the finest that fits."""
    for halvings in range(level, -1, -1):
        if steps.fits(widest / 2**halvings):
            return compose_steps(steps, widest / 2**halvings)
    raise _TooLargeError


def _convolved(first: Any, second: Any) -> Any:
    """Return the composition of two distributions on one grid."""
    if max(pld._pmf_remove.size + pld._pmf_add.size for pld in (first, second)) > _MAX_POINTS:
        raise _TooLargeError
    with np.errstate(all="ignore"):
        return first.compose(second, _TAIL_MASS)


def _power(pld: Any, copies: int) -> Any:
    """Return the composition of `copies` equal distributions."""
    if copies == 1:
        return pld
    half = _power(pld, copies // 2)
    doubled = _convolved(half, half)
    return _convolved(doubled, pld) if copies % 2 else doubled


def _on_grid(pld: Any, interval: float) -> Any:
    """Return a loss distribution moved to multiples of `interval`."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    moved = []
    # dp-accounting has no public way to read a distribution; its version is pinned.
    for pmf in (pld._pmf_remove.to_dense_pmf(), pld._pmf_add.to_dense_pmf()):
        losses = (np.arange(pmf.size) + pmf._lower_loss) * pmf._discretization
        below = np.floor(losses / interval)
        if below[-1] - below[0] + 2 > _MAX_POINTS:
            raise _TooLargeError
        # FFT leaves tiny negative masses; raising them to zero errs on the safe side.
        mass = np.maximum(pmf._probs, 0.0)
        upper = mass * np.clip(np.expm1(below * interval - losses) / math.expm1(-interval), 0.0, 1.0)
        index = (below - below[0]).astype(np.int64)
        length = int(index[-1]) + 2
        probabilities = np.bincount(index, mass - upper, length) + np.bincount(index + 1, upper, length)
        moved.append(DensePLDPmf(interval, int(below[0]), probabilities, pmf._infinity_mass, True))
    return PrivacyLossDistribution(*moved)
