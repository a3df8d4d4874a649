"""The distribution of a record given the parameters, as weighted points. Public side; no private data.

Outcomes are the quantiles of evenly spaced shares. The score has mean zero under the model's own outcomes;
the points' weights are moved from 1 / n, by least squares, until theirs has too. Averages that are linear in
the score are then exact: whatever is not clipped, and everything for outcomes of two levels.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.models.base import ExponentialFamily, RecordBatch

__all__ = ["QuantileModel", "WeightedRecords", "weighted_records"]

Array = NDArray[np.float64]


@runtime_checkable
class QuantileModel(ExponentialFamily, Protocol):
    """A model without predictors whose outcomes are simulated by their quantiles."""

    def outcome_quantile(self, theta: Array, share: Array) -> Array:
        """Return the outcome that so large a share of outcomes is at most: (..., K) and (...) -> (...)."""
        ...


class WeightedRecords(NamedTuple):
    """Records at G parameters: n points for each.

    Attributes
    ----------
    statistics : ndarray, shape (G, n, P + 1)
        Sufficient statistics of outcomes held to their public bounds, and 1.
    weights : ndarray, shape (G, n)
        They add up to 1.
    information : ndarray, shape (G, K)
        Of one record about each parameter: the variance of its score.
    """

    statistics: Array
    weights: Array
    information: Array


def weighted_records(
    model: QuantileModel, description: ModelDescription, theta: Array, *, num_points: int
) -> WeightedRecords:
    """Return records as a run meets them if theta, shape (G, K), are the parameters."""
    num_params = theta.shape[-1]
    share = (np.arange(num_points) + 0.5) / num_points
    y = model.outcome_quantile(theta[:, None, :], share)
    slopes = model.natural_gradient(theta)
    scores = _with_one(model, y, num_params) @ slopes
    low, high = description.design.outcome_bounds
    mean = scores.mean(axis=1)
    centred = scores - mean[:, None, :]
    moments = np.einsum("gni,gnj->gij", centred, centred)
    # A score that does not vary among the points has no say in their weights.
    pull = np.einsum("gij,gj->gi", np.linalg.pinv(moments, hermitian=True), mean)
    weights = 1.0 / num_points - np.einsum("gni,gi->gn", centred, pull)
    return WeightedRecords(
        statistics=_with_one(model, np.clip(y, low, high), num_params),
        weights=weights,
        information=np.einsum("gii->gi", moments) / num_points,
    )


def _with_one(model: QuantileModel, y: Array, num_params: int) -> Array:
    """Return sufficient statistics and 1, (G, n) -> (G, n, P + 1)."""
    batch = RecordBatch(x=np.empty((*y.shape, 0)), y=y)
    statistics = model.statistics(batch, num_params=num_params)
    return np.concatenate([statistics, np.ones((*y.shape, 1))], axis=-1)
