"""What is summed and released of each conjugate model, and its law given the parameters. Public side.

Every record contributes J numbers, the statistics, scaled by public bounds. Module `mechanism` of this
package says how their sums are noised, and `gibbs` how a posterior is drawn.

With the number of records N public (neighbours replace a record), sums of scaled outcomes are released. Where
a record may be added or removed, N is as private as all else, and is counted in the release: the J numbers of
a record are then shares, not negative and with sum 1, so that the sums add up to N and adding or removing a
record changes the whole vector by exactly 1 in the L1 norm and by at most 1 in the L2 norm. (A bounded
outcome and a count side by side would cost 2 and sqrt(2).)
"""

from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["BeyondBounds", "NoisySums", "Norm", "Proposal", "RecordMoments", "StatisticsFamily"]

Array = NDArray[np.float64]
BeyondBounds = Literal["drop", "clamp"]
Norm = Literal["l1", "l2"]


class RecordMoments(NamedTuple):
    """Mean (R, J) and covariance (R, J, J) of one record's statistics given theta, R replicates."""

    mean: Array
    covariance: Array


class NoisySums(NamedTuple):
    """What theta is drawn from where the true sums are integrated out.

    Noisy sums `observed` (R, J), N `num_records` (R,), the noise's `variance` (R, J), and `reference` (R, K),
    standard coordinates near the posterior mean that do not depend on where the chain is.
    """

    observed: Array
    num_records: Array
    variance: Array
    reference: Array


class Proposal(NamedTuple):
    """Proposed standard coordinates (R, K), and what they add to the log of the Metropolis ratio (R,)."""

    standard: Array
    log_correction: Array


class StatisticsFamily(Protocol):
    """One model's released statistics: their sensitivity, their law given theta, and theta given them.

    Everything is an array over R replicates: theta (R, K) unconstrained, statistics (R, J), counts (R,).
    """

    @property
    def has_public_count(self) -> bool:
        """Whether N is public, that is, neighbours replace a record."""
        ...

    @property
    def labels(self) -> tuple[str, ...]:
        """The J released sums."""
        ...

    @property
    def blocks(self) -> tuple[slice, ...]:
        """Which coordinates of theta move together in `nadpvi.baselines.sufficient_statistics.move`."""
        ...

    def record_statistics(self, y: Array, *, x: Array | None = None) -> Array:
        """Return the statistics of records: outcomes (...) and, if there are any, features -> (..., J)."""
        ...

    def sensitivity(self, norm: Norm) -> float:
        """Return what one record, added, removed or replaced, can change the whole vector of sums by."""
        ...

    def estimate_count(self, noisy: Array) -> Array:
        """Return a rough N >= 1 from the noisy sums (R, J), where it is private: (R,)."""
        ...

    def start(self, noisy: Array, *, num_records: Array) -> tuple["StatisticsFamily", Array, Array]:
        """Return the family ready for these data, and first values of theta and of the true sums."""
        ...

    def moments(self, theta: Array) -> RecordMoments:
        """Return the moments of one record's statistics given theta."""
        ...

    def draw_deviation(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return normal deviations (R, J) with the covariance that `moments` gives, singular or not."""
        ...

    def standardise(self, theta: Array) -> Array:
        """Return theta (R, K) in coordinates whose prior is near a standard normal."""
        ...

    def from_standard(self, standard: Array) -> Array:
        """Return theta from standard coordinates, both (R, K)."""
        ...

    def log_tilt(self, standard: Array) -> Array:
        """Return the log prior density of standard coordinates over a standard normal's; no constants."""
        ...

    def propose(
        self, standard: Array, *, block: int, given: NoisySums, rng: np.random.Generator
    ) -> Proposal | None:
        """Return a proposal of its own for one block of standard coordinates, or None to have a step made."""
        ...

    def is_possible(self, sums: Array, *, num_records: Array) -> NDArray[np.bool_]:
        """Return which sums (R, J) records can have."""
        ...

    def draw_theta(self, theta: Array, sums: Array, *, num_records: Array, rng: np.random.Generator) -> Array:
        """Return theta (R, K) drawn from its conjugate conditional given the true sums."""
        ...
