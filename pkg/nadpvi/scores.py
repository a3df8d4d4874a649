"""Scores of a posterior's predictions of a binary outcome."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.posterior import Posterior
from nadpvi.encoding import encode_outcome
from nadpvi.errors import DataError
from nadpvi.tables import TableLike, to_table

__all__ = ["BinaryScores", "calibration_curve", "score_binary"]

Array = NDArray[np.float64]


class BinaryScores(NamedTuple):
    """Scores of predicted probabilities of a binary outcome.

    accuracy : share of rows where p >= 1/2 agrees with y. log_score : mean log probability of y, at most 0.
    brier : mean squared error. calibration_error : expected calibration error over 10 bins of equal width.
    """

    accuracy: float
    log_score: float
    brier: float
    calibration_error: float


def score_binary(posterior: Posterior, table: TableLike) -> BinaryScores:
    """Return the scores of a posterior's predictions on a table that holds the outcome.

    Rows that cannot be encoded are left out.

    Raises
    ------
    ArgumentError
        If the posterior has no model.
    DataError
        If a column is missing, or no row can be scored.
    """
    predicted, observed = _scored_rows(posterior, table)
    edges = np.clip((predicted * 10).astype(int), 0, 9)
    weight, mean, rate = _binned(predicted, observed, bins=edges, num_bins=10)
    occupied = weight > 0
    with np.errstate(divide="ignore"):
        log_score = np.log(np.where(observed == 1.0, predicted, 1.0 - predicted)).mean()
    return BinaryScores(
        accuracy=float(((predicted >= 0.5) == (observed == 1.0)).mean()),
        log_score=float(log_score),
        brier=float(((predicted - observed) ** 2).mean()),
        calibration_error=float((weight * np.abs(mean - rate))[occupied].sum()),
    )


def calibration_curve(
    posterior: Posterior, table: TableLike, *, num_bins: int = 10
) -> tuple[Array, Array, Array]:
    """Return (share of rows, mean prediction, observed rate) of each occupied bin of equal width.

    Each array has one entry for every one of the `num_bins` bins of [0, 1] that holds a row.
    """
    predicted, observed = _scored_rows(posterior, table)
    bins = np.clip((predicted * num_bins).astype(int), 0, num_bins - 1)
    weight, mean, rate = _binned(predicted, observed, bins=bins, num_bins=num_bins)
    occupied = weight > 0
    return weight[occupied], mean[occupied], rate[occupied]


def _scored_rows(posterior: Posterior, table: TableLike) -> tuple[Array, Array]:
    """Return predictions and outcomes of the rows that have both."""
    rows = to_table(table)
    predicted = posterior.predict(rows)
    assert posterior.description is not None  # predict has checked it
    outcome = encode_outcome(posterior.description.design, rows, on_problem="incomplete")
    usable = np.isfinite(predicted) & outcome.is_complete
    if not usable.any():
        raise DataError("no row of the table is complete, so nothing can be scored.")
    return predicted[usable], outcome.y[usable]


def _binned(
    predicted: Array, observed: Array, *, bins: NDArray[np.int64], num_bins: int
) -> tuple[Array, Array, Array]:
    """Return each bin's share, mean prediction and observed rate (0 where a bin is empty)."""
    count = np.bincount(bins, minlength=num_bins)
    safe = np.maximum(count, 1)
    mean = np.bincount(bins, weights=predicted, minlength=num_bins) / safe
    rate = np.bincount(bins, weights=observed, minlength=num_bins) / safe
    return count / len(predicted), mean, rate
