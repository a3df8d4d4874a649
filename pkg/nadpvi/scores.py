"""Scores of a posterior's predictions of a binary outcome."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.posterior_like import PosteriorLike
from nadpvi.encoding import encode_outcome
from nadpvi.errors import DataError
from nadpvi.tables import TableLike, to_table

__all__ = ["BinaryScores", "ScoredRows", "calibration_curve", "predict_rows", "score_binary"]

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


class ScoredRows(NamedTuple):
    """Rows that have both: predicted probability and observed outcome, each of shape (N,)."""

    predicted: Array
    observed: Array


def predict_rows(posterior: PosteriorLike, table: TableLike) -> ScoredRows:
    """Return predictions and outcomes of the rows of `table` that can be encoded.

    Raises
    ------
    ArgumentError
        If the posterior has no model.
    DataError
        If a column is missing, or no row has both.
    """
    rows = to_table(table)
    predicted = posterior.predict(rows)
    assert posterior.description is not None  # predict has checked it
    outcome = encode_outcome(posterior.description.design, rows, on_problem="incomplete")
    usable = np.isfinite(predicted) & outcome.is_complete
    if not usable.any():
        raise DataError("no row of the table is complete, so nothing can be scored.")
    return ScoredRows(predicted[usable], outcome.y[usable])


def score_binary(rows: ScoredRows) -> BinaryScores:
    """Return the scores of predicted probabilities of a binary outcome.

    Parameters
    ----------
    rows : ScoredRows
        From `predict_rows`.
    """
    predicted, observed = rows
    weight, mean, rate = calibration_curve(rows)
    with np.errstate(divide="ignore"):
        log_score = np.log(np.where(observed == 1.0, predicted, 1.0 - predicted)).mean()
    return BinaryScores(
        accuracy=float(((predicted >= 0.5) == (observed == 1.0)).mean()),
        log_score=float(log_score),
        brier=float(((predicted - observed) ** 2).mean()),
        calibration_error=float((weight * np.abs(mean - rate)).sum()),
    )


def calibration_curve(rows: ScoredRows, *, num_bins: int = 10) -> tuple[Array, Array, Array]:
    """Return (share of rows, mean prediction, observed rate) of each occupied bin of equal width.

    Each array has one entry for every one of the `num_bins` bins of [0, 1] that holds a row.
    """
    predicted, observed = rows
    bins = np.clip((predicted * num_bins).astype(int), 0, num_bins - 1)
    count = np.bincount(bins, minlength=num_bins)
    occupied = count > 0
    mean = np.bincount(bins, weights=predicted, minlength=num_bins)[occupied] / count[occupied]
    rate = np.bincount(bins, weights=observed, minlength=num_bins)[occupied] / count[occupied]
    return count[occupied] / len(predicted), mean, rate
