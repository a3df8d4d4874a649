"""The report's part that checks predictions without data: on rows that the schema alone makes up.

Two things can be seen without a single record. What the posterior predicts, averaged over made-up rows,
beside what the prior did: a posterior that predicts what nobody believes is wrong whatever its diagnostics
say. And how predictions move when one column of a reference row is changed: signs and sizes that a subject
expert can judge.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.columns import CountColumn, RealColumn
from nadpvi.containers.posterior_like import PosteriorLike
from nadpvi.description import ModelDescription
from nadpvi.encoding import Design, encode_features
from nadpvi.errors import ArgumentError
from nadpvi.made_up import made_up_table, numbers_between, prior_draws
from nadpvi.report.parts import Cells, cells_of

__all__ = ["PredictionsPart", "predictions_part"]

Array = NDArray[np.float64]

_NUM_ROWS, _NUM_DRAWS = 200, 400
_MOST_PROFILES = 60
_MOST_LEVELS = 8
# Of the made-up rows and the prior's draws, so that the same posterior gives the same page.
_SEED = 20251130


class PredictionsPart(NamedTuple):
    """Tables of predictions, or why there are none.

    Attributes
    ----------
    reason : str
        Why there are none; "" where there are.
    outcome : str
        What is predicted.
    average : Cells or None
        Predicted mean over made-up rows, prior's and posterior's: median and 90 % interval over draws, one
        row an outcome or level.
    profiles : Cells or None
        One row a made-up row: the reference one, then those that differ from it in one column.
    reference : str
        The reference row, in words.
    """

    reason: str
    outcome: str = ""
    average: Cells | None = None
    profiles: Cells | None = None
    reference: str = ""


def predictions_part(posterior: PosteriorLike) -> PredictionsPart:
    """Return what a posterior predicts for rows that its schema makes up."""
    description = posterior.description
    if description is None:
        return PredictionsPart("This posterior has no model, so it predicts no outcome.")
    if description.design.outcome is None:
        return PredictionsPart("This model explains no outcome.")
    theta = posterior.theta().reshape(-1, len(description.names))
    theta = theta[np.linspace(0, len(theta) - 1, min(_NUM_DRAWS, len(theta))).round().astype(np.intp)]
    rng = np.random.default_rng(_SEED)
    has_rows = bool(description.design.predictors)
    try:
        return PredictionsPart(
            reason="",
            outcome=_outcome_words(description.design),
            average=cells_of(_average(description, theta, rng=rng), first="outcome"),
            profiles=cells_of(_profiles(description, theta), first="row") if has_rows else None,
            reference=_words(_reference_row(description.design)),
        )
    except ArgumentError as error:  # a custom model from a file has no functions
        return PredictionsPart(str(error))


def _outcome_words(design: Design) -> str:
    """Return what is predicted, in words."""
    name = str(design.outcome)
    if design.outcome_kind == "binary":
        return f"probability that {name} is {design.outcome_levels[1]}"
    if design.outcome_kind == "categorical":
        return f"probability of each level of {name}"
    return f"mean of {name}"


def _average(description: ModelDescription, theta: Array, *, rng: np.random.Generator) -> pd.DataFrame:
    """Return predicted means over made-up rows, before and after."""
    design = description.design
    table = made_up_table(design.schema, num_records=_NUM_ROWS, rng=rng)
    x = encode_features(design, table, on_problem="incomplete").x
    before = prior_draws(description.model, design, num_draws=_NUM_DRAWS, rng=rng)
    columns: dict[str, Array] = {}
    for name, draws in (("prior", before), ("posterior", theta)):
        means = _predict(description, draws, x).mean(axis=1)
        columns |= _quantiles(name, means.reshape(len(draws), -1))
    labels = design.outcome_levels if design.outcome_kind == "categorical" else (str(design.outcome),)
    return pd.DataFrame(columns, index=pd.Index(labels, name="outcome"))


def _profiles(description: ModelDescription, theta: Array) -> pd.DataFrame:
    """Return predictions for a reference row, and for those that differ from it in one column."""
    design = description.design
    reference = _reference_row(design)
    labels, rows = ["reference row"], [reference]
    for name in design.predictors:
        for value in _other_values(design, name, reference[name]):
            labels.append(f"{name} = {value:g}" if isinstance(value, float | int) else f"{name} = {value}")
            rows.append(reference | {name: value})
    labels, rows = labels[: _MOST_PROFILES + 1], rows[: _MOST_PROFILES + 1]
    x = encode_features(design, pd.DataFrame(rows), on_problem="incomplete").x
    predicted = _predict(description, theta, x)
    if predicted.ndim == 3:
        levels = design.outcome_levels[:_MOST_LEVELS]
        columns = {f"{level}, median": np.median(predicted[..., c], axis=0) for c, level in enumerate(levels)}
    else:
        columns = _quantiles("posterior", predicted)
    return pd.DataFrame(columns, index=pd.Index(labels, name="row"))


def _predict(description: ModelDescription, theta: Array, x: Array) -> Array:
    """Return E[y | theta, x], shape (draws, rows) or (draws, rows, levels); what overflows is infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(description.model.predict_mean(theta, x), dtype=np.float64)


def _quantiles(name: str, draws: Array) -> dict[str, Array]:
    """Return median and 90 % interval over draws, by column; infinite draws count as large."""
    finite = np.nan_to_num(draws, nan=np.inf, posinf=np.inf)
    low, middle, high = np.quantile(finite, [0.05, 0.5, 0.95], axis=0, method="closest_observation")
    return {f"{name} median": middle, f"{name} 5%": low, f"{name} 95%": high}


def _reference_row(design: Design) -> dict[str, object]:
    """Return one row by the schema alone: the middle of each range, the first of each list of levels."""
    row: dict[str, object] = {}
    for name in design.predictors:
        column = design.schema[name]
        if isinstance(column, CountColumn):
            row[name] = int((column.lower + column.upper) // 2)
        elif isinstance(column, RealColumn):
            row[name] = float(numbers_between(column, np.array(0.5)))
        else:
            row[name] = column.levels[0]
    return row


def _other_values(design: Design, name: str, reference: object) -> list[object]:
    """Return the values that a column takes in the rows that differ in it."""
    column = design.schema[name]
    if isinstance(column, CountColumn | RealColumn):
        return [column.lower, column.upper]
    return [level for level in column.levels if level != reference]


def _words(row: dict[str, object]) -> str:
    """Return a row as a list of its cells."""
    return ", ".join(
        f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}"
        for name, value in row.items()
    )
