"""The report's part about test rows: scores and calibration. They are not covered by the guarantee."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.posterior_like import PosteriorLike
from nadpvi.encoding import encode_outcome
from nadpvi.errors import ArgumentError, DataError
from nadpvi.figures import calibration_figure
from nadpvi.markup import shown_number
from nadpvi.report.parts import Picture, picture
from nadpvi.scores import ScoredRows, calibration_curve, score_binary
from nadpvi.tables import TableLike, to_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CalibrationPart", "calibration_part", "plot_test_calibration"]

Array = NDArray[np.float64]

_BINS = 10
_NAMES = {"brier": "Brier score"}


class ScoredTable(NamedTuple):
    """Complete test rows: predictions (N,) or (N, C), outcomes (N,), kind of outcome, and rows in all."""

    predicted: Array
    observed: Array
    outcome_kind: str
    num_rows: int


def read_test_rows(posterior: PosteriorLike, table: TableLike) -> ScoredTable:
    """Return predictions and outcomes of the rows that have both.

    Raises
    ------
    ArgumentError
        If there is no model, or it has no outcome.
    DataError
        If a column is missing, or no row has both.
    """
    description = posterior.description
    if description is None or description.design.outcome is None:
        raise ArgumentError(
            "this posterior predicts no outcome, so test rows cannot be scored; leave them out."
        )
    rows = to_table(table)
    predicted = posterior.predict(rows)
    outcome = encode_outcome(description.design, rows, on_problem="incomplete")
    usable = np.isfinite(predicted.reshape(len(predicted), -1)).all(axis=1) & outcome.is_complete
    if not usable.any():
        raise DataError("no row of the table is complete, so nothing can be scored.")
    return ScoredTable(
        predicted[usable], outcome.y[usable], str(description.design.outcome_kind), len(predicted)
    )


def score_test_rows(rows: ScoredTable) -> tuple[tuple[str, str], ...]:
    """Return the scores of predictions by name."""
    counts = [("complete test rows", f"{len(rows.observed):,} of {rows.num_rows:,}")]
    predicted, observed = rows.predicted, rows.observed
    if rows.outcome_kind == "binary":
        scores: dict[str, float] = dict(score_binary(ScoredRows(predicted, observed))._asdict())
    elif rows.outcome_kind == "categorical":
        chance = predicted[np.arange(len(observed)), observed.astype(np.intp)]
        with np.errstate(divide="ignore"):
            log_score = float(np.log(chance).mean())
        scores = {
            "accuracy": float((predicted.argmax(axis=1) == observed).mean()),
            "log_score": log_score,
        }
    else:
        error = predicted - observed
        scores = {
            "mean_error": float(error.mean()),
            "mean_absolute_error": float(np.abs(error).mean()),
            "root_mean_square_error": float(np.sqrt(np.square(error).mean())),
        }
    return (
        *counts,
        *((_NAMES.get(name, name.replace("_", " ")), shown_number(value)) for name, value in scores.items()),
    )


def has_curve(rows: ScoredTable) -> bool:
    """Return whether a calibration curve can be drawn: there is one prediction a row."""
    return rows.predicted.ndim == 1


def draw_calibration(rows: ScoredTable) -> "Figure":
    """Return the calibration figure: bins of equal width of a probability, of equal count of a number."""
    if rows.outcome_kind == "binary":
        _, predicted, observed = calibration_curve(ScoredRows(rows.predicted, rows.observed), num_bins=_BINS)
        return calibration_figure(predicted, observed, is_probability=True)
    order = np.argsort(rows.predicted, kind="stable")
    parts = [part for part in np.array_split(order, _BINS) if part.size]
    predicted, observed = (
        np.array([values[part].mean() for part in parts]) for values in (rows.predicted, rows.observed)
    )
    return calibration_figure(predicted, observed, is_probability=False)


def plot_test_calibration(posterior: PosteriorLike, table: TableLike) -> "Figure":
    """Return the calibration figure of test rows, or raise what `read_test_rows` raises."""
    rows = read_test_rows(posterior, table)
    if not has_curve(rows):
        raise ArgumentError("a categorical outcome has no one calibration curve; see the report's scores.")
    return draw_calibration(rows)


class CalibrationPart(NamedTuple):
    """Scores by name, and the calibration curve where there is one."""

    scores: tuple[tuple[str, str], ...]
    curve: Picture | None


def calibration_part(posterior: PosteriorLike, table: TableLike) -> CalibrationPart:
    """Return what test rows say about a posterior's predictions."""
    rows = read_test_rows(posterior, table)
    curve = None
    if has_curve(rows):
        alt = "Observed against predicted outcomes of the test rows, in ten bins, beside the diagonal."
        curve = picture(draw_calibration(rows), name="calibration", alt=alt)
    return CalibrationPart(score_test_rows(rows), curve)
