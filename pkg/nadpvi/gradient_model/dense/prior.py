"""What is known of a dense curvature before its trace: which parts it has, and how they may vary.

The curvature of M coordinates that may interact is A = P + H, with P the diagonal precision of the model's
own prior and H what the records add. For a generalised linear model H = sum_b w_b x_b x_b', and the schema
says much about it: its rows add up. Write w = sum_b w_b, m for the weighted means of the features, and

    H = w (m m' + F R F'),    F F' the weighted covariance within each column, R associations between columns.

A column of L levels has shares m that sum to 1 and F F' = diag(m) - m m', so that levels never meet and the
levels of a column add up to the intercept; a binary column has variance m (1 - m); a number in [0, 1] has a
variance of at most that, and a number in [a, b] is a + (b - a) u for such a u. R has an identity block for
each column; off it, whatever associates two columns. With R = I columns are independent. Where no such
pattern is known, H has scales of any size and associations between all coordinates (`matrix`).
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count, check_positive
from nadpvi.errors import ArgumentError

__all__ = ["DensePrior", "Group", "GroupKind", "MatrixEstimate"]

FloatArray = NDArray[np.float64]


class GroupKind(Enum):
    """What the coordinates of a group are."""

    CONSTANT = "constant"  # the intercept
    LEVELS = "levels"  # all levels of a categorical column
    BINARY = "binary"  # the positive level of a binary column
    NUMBER = "number"  # a number between public bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Consecutive coordinates that belong together.

    Attributes
    ----------
    kind : GroupKind
    start, size : int
        The coordinates start, ..., start + size - 1; more than one only for LEVELS.
    low, high : float
        Of a NUMBER, the least and the largest value of the feature, low < high.
    """

    kind: GroupKind
    start: int
    size: int = 1
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.low >= self.high or (
            self.kind is not GroupKind.NUMBER and (self.low, self.high) != (0.0, 1.0)
        ):
            raise ArgumentError(
                f"a group of kind {self.kind.value!r} cannot have features in [{self.low:g}, {self.high:g}]."
            )
        if self.start < 0 or self.size < 1 or (self.size > 1) != (self.kind is GroupKind.LEVELS):
            raise ArgumentError(
                f"a group of kind {self.kind.value!r} cannot start at {self.start} with size {self.size}."
            )

    @property
    def columns(self) -> slice:
        """The group's coordinates."""
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatrixEstimate:
    """A noisy public statement about H, such as a second moment released beside the trace.

    Attributes
    ----------
    matrix : ndarray, shape (M, M)
        Estimate of H: the records' part of the curvature, without the prior's precision. Symmetric.
    noise_std : ndarray, shape (M, M)
        Sd of each entry's normal noise, > 0, symmetric; infinite where nothing is said. Entry (i, j) and
        its mirror image are one number with one noise.
    log_scale_std : float
        Sd >= 0 of the logarithm of an unknown factor between the matrix and the H that the trace follows:
        clipping shrinks the gradients' slope, and weights move with the iterate.
    """

    matrix: FloatArray
    noise_std: FloatArray
    log_scale_std: float = 0.0

    def __post_init__(self) -> None:
        matrix = np.array(self.matrix, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
            raise ArgumentError("matrix must be square, with finite entries.")
        noise = np.array(np.broadcast_to(np.asarray(self.noise_std, dtype=np.float64), matrix.shape))
        if not (noise > 0).all():
            raise ArgumentError("noise_std must be positive in every entry; np.inf says nothing of one.")
        if not (np.allclose(matrix, matrix.T) and np.array_equal(noise, noise.T)):
            raise ArgumentError("matrix and noise_std must be symmetric.")
        if not (np.isfinite(self.log_scale_std) and self.log_scale_std >= 0):
            raise ArgumentError(f"log_scale_std must be finite and not negative (got {self.log_scale_std}).")
        for name, array in (("matrix", matrix), ("noise_std", noise)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DensePrior:
    """Prior of a dense curvature A = P + H.

    Attributes
    ----------
    precision : ndarray, shape (M,)
        Diagonal of P >= 0, the curvature that the model's own prior contributes for certain.
    groups : tuple of Group
        A partition of the M coordinates, in order; empty where no pattern is known.
    log_scale_std : float
        Sd > 0 of the normal prior of log w and of the logarithms of scales, around the trace's own regression
        estimate: wide, because that one is badly off where coordinates interact.
    association_scale : float
        Of a pattern: scale > 0 of R's entries. Those that associate two groups are together multivariate t
        with `association_df` degrees of freedom: levels of unrelated columns associate little, and each pair
        of groups finds its own typical size by the trace. The sum of their squares is the pair's mean-square
        contingency. A factor |R| keeps the whole positive definite.
    association_df : float
        Of a pattern: degrees of freedom > 0; infinite for a normal prior.
    share_concentration : float
        Of a pattern: concentration > 0 of the Dirichlet prior of a column's shares; below 1, shares may be
        tiny.
    num_directions : int, optional
        Without a pattern: nu >= M + 1, so that an entry of R has sd c = 1 / sqrt(nu). By default M + 1, with
        which every correlation matrix is alike.
    estimate : MatrixEstimate, optional
        What is known of H besides.

    Raises
    ------
    ArgumentError
        If the groups are no partition in order, or a number is out of range.
    """

    precision: FloatArray
    groups: tuple[Group, ...]
    log_scale_std: float = 2.0
    association_scale: float = 0.05
    association_df: float = 5.0
    share_concentration: float = 0.5
    num_directions: int = 0
    estimate: MatrixEstimate | None = None

    def __post_init__(self) -> None:
        precision = np.array(self.precision, dtype=np.float64)
        if precision.ndim != 1 or not np.isfinite(precision).all() or (precision < 0).any():
            raise ArgumentError("precision must be a vector of finite numbers that are not negative.")
        precision.setflags(write=False)
        object.__setattr__(self, "precision", precision)
        _check_groups(self.groups, precision.size)
        for name in ("association_scale", "share_concentration", "log_scale_std"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        if not self.association_df > 0:
            raise ArgumentError(f"association_df must be positive (got {self.association_df}).")
        least = precision.size + 1
        object.__setattr__(
            self, "num_directions", check_count("num_directions", self.num_directions or least)
        )
        if self.num_directions < least:
            raise ArgumentError(f"num_directions must be at least {least} (got {self.num_directions}).")
        if self.estimate is not None and self.estimate.matrix.shape != (precision.size,) * 2:
            raise ArgumentError(f"the estimate must be a matrix of shape {(precision.size,) * 2}.")

    @property
    def num_parameters(self) -> int:
        """M, the number of coordinates that may interact."""
        return int(self.precision.size)


def _check_groups(groups: tuple[Group, ...], size: int) -> None:
    """Raise unless groups partition the coordinates in order, or there are none."""
    at = 0
    for group in groups:
        if group.start != at:
            raise ArgumentError(f"groups must cover the coordinates in order (one starts at {group.start}).")
        at += group.size
    if groups and at != size:
        raise ArgumentError(f"groups must cover all {size} coordinates (they cover {at}).")
    num_constants = sum(group.kind is GroupKind.CONSTANT for group in groups)
    if num_constants > 1:
        raise ArgumentError("groups must not hold two constants.")
    if num_constants == 0 and any(group.low != 0.0 for group in groups):
        raise ArgumentError("a number whose least value is not 0 needs a constant among the groups.")
