"""Predictions from a posterior and its own public encoding, and scores of such predictions."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.posterior import Posterior
from nadpvi.encoding import encode_features, encode_outcome
from nadpvi.errors import ArgumentError, DataError
from nadpvi.tables import TableLike, to_table

__all__ = ["BinaryScores", "calibration_curve", "predict_mean", "score_binary"]

Array = NDArray[np.float64]

# Draws times rows of one block of predictions: 64 MB.
_BLOCK_VALUES = 8_000_000


class BinaryScores(NamedTuple):
    """Scores of predicted probabilities of a binary outcome.

    accuracy : share of rows where p >= 1/2 agrees with y. log_score : mean log probability of y, at most 0.
    brier : mean squared error. calibration_error : expected calibration error over 10 bins of equal width.
    """

    accuracy: float
    log_score: float
    brier: float
    calibration_error: float


def predict_mean(posterior: Posterior, table: TableLike) -> Array:
    """Return E[y | x] averaged over the posterior's draws (Eq. 16), one number a row.

    Rows are encoded by the release's own schema; a row with a missing or unknown value in a used column
    gets NaN, so that the result always has one entry a row.

    Parameters
    ----------
    posterior : Posterior
        With a model.
    table : DataFrame, mapping of columns, or path
        New rows; the outcome column is not needed.

    Returns
    -------
    ndarray, shape (N,)

    Raises
    ------
    ArgumentError
        If the posterior has no model.
    DataError
        If a used column is missing.
    """
    if posterior.description is None:
        raise ArgumentError("this posterior has no model, so it cannot predict.")
    model, design = posterior.description.model, posterior.description.design
    encoded = encode_features(design, to_table(table), on_problem="incomplete")
    theta = posterior.theta().reshape(-1, encoded.x.shape[1])
    prediction = np.full(len(encoded.x), np.nan)
    complete = np.flatnonzero(encoded.is_complete)
    for start in range(0, len(complete), max(1, _BLOCK_VALUES // len(theta))):
        rows = complete[start : start + max(1, _BLOCK_VALUES // len(theta))]
        prediction[rows] = model.predict_mean(theta, encoded.x[rows]).mean(axis=0)
    return prediction


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
    predicted = predict_mean(posterior, rows)
    assert posterior.description is not None  # predict_mean has checked it
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
