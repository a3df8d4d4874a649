"""What a linear regression releases: products of bounded predictors and outcome, each once. Public side."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.baselines.sufficient_statistics.families import Norm
from nadpvi.baselines.sufficient_statistics.predictors import PredictorMoments, pair_indices
from nadpvi.checks import check_positive
from nadpvi.errors import ArgumentError

__all__ = ["RegressionSettings"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegressionSettings:
    """Public bounds, prior and moments of a linear regression, and which sums it releases.

    Theta is w and then log s2, K = F + 1, in the units of x and y. With a constant first predictor, and only
    then, neighbours may add or remove a record: the constant's square counts the records. If N is public that
    entry is not released.

    Parameters
    ----------
    x_lower, x_upper : array_like, shape (F,)
        Public bounds of the predictors, finite; 1 and 1 for the constant, which comes first if there is one.
    y_lower, y_upper : float
        Public bounds of the outcome. Records beyond a bound are clamped to it.
    prior_mean, prior_sd : array_like, shape (F,)
        w_k given s2 is normal(prior_mean, s2 * prior_sd^2).
    prior_shape, prior_scale : float
        s2 is inverse gamma.
    moments : PredictorMoments or None
        Public moments of x; None takes them from the noisy release.
    has_public_count : bool
        Whether N is public, that is, neighbours replace a record.
    """

    x_lower: Array
    x_upper: Array
    y_lower: float
    y_upper: float
    prior_mean: Array
    prior_sd: Array
    prior_shape: float
    prior_scale: float
    has_public_count: bool
    moments: PredictorMoments | None = None

    def __post_init__(self) -> None:
        lower, upper, mean, sd = _checked(self.x_lower, self.x_upper, self.prior_mean, self.prior_sd)
        for name, array in (("x_lower", lower), ("x_upper", upper), ("prior_mean", mean), ("prior_sd", sd)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        for name in ("prior_shape", "prior_scale"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        if not (math.isfinite(self.y_lower) and math.isfinite(self.y_upper) and self.y_lower < self.y_upper):
            raise ArgumentError("y_lower and y_upper must be finite, the first below the second.")
        if not (self._has_constant or (self.has_public_count and self.moments is not None)):
            raise ArgumentError(
                "the first predictor must be the constant 1: it counts the records and gives the means."
            )

    @property
    def _has_constant(self) -> bool:
        """Whether the first predictor is the constant 1."""
        return bool(self.x_lower[0] == 1.0 == self.x_upper[0])

    @property
    def x_scale(self) -> Array:
        """What predictors are divided by, (F,)."""
        scale: Array = np.maximum(np.abs(self.x_lower), np.abs(self.x_upper))
        return scale

    @property
    def y_scale(self) -> float:
        """What the outcome is divided by."""
        return max(abs(self.y_lower), abs(self.y_upper))

    @property
    def skips_count(self) -> bool:
        """Whether the constant's square, which is N, is left out."""
        return self.has_public_count and self._has_constant

    @property
    def labels(self) -> tuple[str, ...]:
        """The released products, in order: those of predictors, those with the outcome, its square."""
        size = len(self.x_lower)
        pairs = [f"x{i} * x{j}" for i, j in zip(*pair_indices(size), strict=True)]
        every = [*pairs, *(f"x{i} * y" for i in range(size)), "y * y"]
        return tuple(every[1:] if self.skips_count else every)

    def sensitivity(self, norm: Norm) -> float:
        """Return the sensitivity of the whole vector, from the bounds alone.

        Adding or removing a record changes each sum by at most the largest size of its product. Replacing
        one changes it by at most the product's range, and no norm by more than twice what adding one does.
        """
        low = np.append(self.x_lower / self.x_scale, self.y_lower / self.y_scale)
        high = np.append(self.x_upper / self.x_scale, self.y_upper / self.y_scale)
        size = len(self.x_lower)
        rows, columns = pair_indices(size)
        first = np.concatenate([rows, np.arange(size), [size]])[int(self.skips_count) :]
        second = np.concatenate([columns, np.full(size + 1, size)])[int(self.skips_count) :]
        corners = np.stack([a[first] * b[second] for a in (low, high) for b in (low, high)])
        least, most = corners.min(axis=0), corners.max(axis=0)
        is_square = first == second
        least[is_square & (low[first] < 0.0) & (high[first] > 0.0)] = 0.0
        least[is_square] = np.maximum(least[is_square], 0.0)
        sizes, ranges = np.maximum(np.abs(least), np.abs(most)), most - least

        def measured(values: Array) -> float:
            return float(values.sum() if norm == "l1" else np.sqrt((values**2).sum()))

        return min(measured(ranges), 2.0 * measured(sizes)) if self.has_public_count else measured(sizes)

    def record_statistics(self, x: Array, y: Array) -> Array:
        """Return the scaled products of each record: x (..., F) and y (...) -> (..., J)."""
        scaled = np.clip(x, self.x_lower, self.x_upper) / self.x_scale
        outcome = np.clip(y, self.y_lower, self.y_upper) / self.y_scale
        rows, columns = pair_indices(len(self.x_lower))
        parts = [
            scaled[..., rows] * scaled[..., columns],
            scaled * outcome[..., None],
            outcome[..., None] ** 2,
        ]
        return np.concatenate(parts, axis=-1)[..., int(self.skips_count) :]

    def matrix(self, sums: Array, num_records: Array) -> Array:
        """Return sums (R, J) as symmetric matrices of scaled (x, y), shape (R, F + 1, F + 1)."""
        size = len(self.x_lower)
        full = np.concatenate([num_records[:, None], sums], axis=1) if self.skips_count else sums
        rows, columns = pair_indices(size)
        matrix = np.zeros((len(sums), size + 1, size + 1))
        matrix[:, rows, columns] = matrix[:, columns, rows] = full[:, : len(rows)]
        matrix[:, size, :] = matrix[:, :, size] = full[:, len(rows) :]
        return matrix


def _checked(*settings: ArrayLike) -> tuple[Array, Array, Array, Array]:
    """Return the settings of the predictors as arrays of one shape (F,), or raise."""
    lower, upper, mean, sd = (np.array(value, dtype=np.float64) for value in settings)
    shapes = {array.shape for array in (lower, upper, mean, sd)}
    if len(shapes) > 1 or lower.ndim != 1 or not len(lower):
        raise ArgumentError("x_lower, x_upper, prior_mean and prior_sd must have one shape (F,).")
    if not all(np.isfinite(array).all() for array in (lower, upper, mean, sd)) or (lower > upper).any():
        raise ArgumentError("x_lower and x_upper must be finite and in order, and the priors finite.")
    if (sd <= 0.0).any() or (np.maximum(np.abs(lower), np.abs(upper)) == 0.0).any():
        raise ArgumentError("prior_sd must be positive, and no predictor's bounds both 0.")
    return lower, upper, mean, sd
