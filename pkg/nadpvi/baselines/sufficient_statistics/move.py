"""A move of theta with the true sums integrated out, for Gibbs chains that would hardly move. Public side.

Where the noise is k times as wide as the sums' own spread given theta, drawing sums and theta in turn moves
theta by a k-th of its posterior's width, and takes k^2 sweeps: hundreds, and for a regression in ten
dimensions tens of thousands. Bernstein and Sheldon's sampler has this trouble. Between its sweeps theta moves
here by a Metropolis step on

    p(theta) normal(y; N m(theta), N V(theta) + diag(v)),

which leaves the posterior as it is. The proposal is autoregressive in the family's standard coordinates z,
z' = sqrt(1 - step^2) z + step * normal(0, 1), and so keeps a standard normal prior [1]_: where the data are
weak a coordinate's step may be 1, where they are strong it is a random walk. Each chain's steps follow the
spread of its own coordinates during warmup, and are then fixed. Blocks of coordinates take turns.

References
----------
.. [1] Cotter, Roberts, Stuart and White (2013). MCMC methods for functions: modifying old algorithms to make
   them faster. Statistical Science 28(3).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.baselines.sufficient_statistics.families import (
    NoisySums,
    Proposal,
    RecordMoments,
    StatisticsFamily,
)
from nadpvi.baselines.sufficient_statistics.linear_algebra import solve, total_covariance

__all__ = ["Moved", "Steps", "adapted", "first_steps", "move_theta"]

Array = NDArray[np.float64]

_FIRST_STEP = 0.5
_AIM = 0.35
_LEAST_STEP, _LARGEST_FACTOR = 1e-5, 20.0
_LEAST_SEEN = 20
# Sweeps after which early values are forgotten.
_FORGET = frozenset(25 * 2**power for power in range(12))


class Moved(NamedTuple):
    """Theta (R, K) after a move, the moments of a record there, and where the proposal was taken (R,)."""

    theta: Array
    moments: RecordMoments
    is_accepted: NDArray[np.bool_]


def move_theta(
    family: StatisticsFamily,
    theta: Array,
    *,
    given: NoisySums,
    steps: "Steps",
    block: int,
    rng: np.random.Generator,
) -> Moved:
    """Return R chains after one Metropolis step of a block of theta each.

    Parameters
    ----------
    family : StatisticsFamily
        Moments of the statistics given theta, the prior, and perhaps a proposal of its own.
    theta : ndarray, shape (R, K)
        Where the chains are.
    given : NoisySums
        What is observed and held fixed.
    steps : Steps
        Step sizes, where the family has no proposal.
    block : int
        Which of ``family.blocks`` moves.
    rng : numpy.random.Generator
    """
    now = family.standardise(theta)
    proposed = family.propose(now, block=block, given=given, rng=rng)
    if proposed is None:
        size = steps.sizes(family.blocks[block], block=block)
        moved = np.sqrt(1.0 - size**2) * now + size * rng.standard_normal(now.shape)
        proposed = Proposal(moved, np.zeros(len(now)))
    there = family.from_standard(proposed.standard)
    moments, moments_there = family.moments(theta), family.moments(there)

    def log_density(standard: Array, of: RecordMoments) -> Array:
        residual = given.observed - of.mean * given.num_records[:, None]
        solved, log_det = solve(total_covariance(of.covariance, given.variance, given.num_records), residual)
        density: Array = family.log_tilt(standard) - 0.5 * (log_det + (residual * solved).sum(axis=1))
        return density

    log_ratio = log_density(proposed.standard, moments_there) - log_density(now, moments)
    is_accepted = np.log1p(-rng.random(len(now))) < log_ratio + proposed.log_correction
    chosen = RecordMoments(
        *(
            np.where(is_accepted.reshape(-1, *[1] * (old.ndim - 1)), new, old)
            for new, old in zip(moments_there, moments, strict=True)
        )
    )
    return Moved(np.where(is_accepted[:, None], there, theta), chosen, is_accepted)


class Steps(NamedTuple):
    """Steps of R chains and how they came about: factors (R, blocks), mean and squares (R, K) of z."""

    factor: Array
    mean: Array
    squares: Array
    num_seen: int

    def sizes(self, place: slice, *, block: int) -> Array:
        """Return the step of each coordinate (R, K), zero outside the block that moves."""
        sizes = np.zeros_like(self.mean)
        factor = self.factor[:, block, None]
        spread = np.ones_like(self.mean[:, place])
        if self.num_seen >= _LEAST_SEEN:
            spread = np.sqrt(self.squares[:, place] / self.num_seen)
        sizes[:, place] = np.clip(_FIRST_STEP * factor * spread, _LEAST_STEP, 1.0)
        return sizes


def first_steps(shape: tuple[int, ...], *, num_blocks: int) -> Steps:
    """Return the steps that R chains of K coordinates begin with."""
    return Steps(np.ones((shape[0], num_blocks)), np.zeros(shape), np.zeros(shape), 0)


def adapted(
    steps: Steps, *, standard: Array, is_accepted: NDArray[np.bool_], sweep: int, block: int
) -> Steps:
    """Return steps that follow the spread of `standard` and aim at an acceptance of 0.35; for warmup only.

    The spread is that of the second half of what was seen, roughly: early values are forgotten.
    """
    factor = steps.factor.copy()
    factor[:, block] *= np.exp((is_accepted - _AIM) * 2.0 / (sweep + 1.0) ** 0.5)
    seen, squares = steps.num_seen + 1, steps.squares
    if sweep in _FORGET:
        # Keep the mean, and let the spread count as few values.
        squares, seen = squares * (_LEAST_SEEN / seen), _LEAST_SEEN
    difference = standard - steps.mean
    mean = steps.mean + difference / seen
    squares = squares + difference * (standard - mean)
    return Steps(np.clip(factor, _LEAST_STEP, _LARGEST_FACTOR), mean, squares, seen)
