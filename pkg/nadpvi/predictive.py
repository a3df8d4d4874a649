"""Predictions from draws of the parameters and the public encoding that belongs to them."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.checks import check_probability
from nadpvi.columns import BinaryColumn, CategoricalColumn
from nadpvi.description import ModelDescription
from nadpvi.design import Design
from nadpvi.encoding import encode_features
from nadpvi.tables import TableLike, to_table

__all__ = ["Predictions", "predict_intervals", "predict_mean", "predictions_frame"]

Array = NDArray[np.float64]

# Draws times rows of one block of predictions: 64 MB.
_BLOCK_VALUES = 8_000_000


class Predictions(NamedTuple):
    """Mean of E[y | x] over the draws and an equal-tailed interval of it, each shape (N,) or (N, C)."""

    mean: Array
    lower: Array
    upper: Array


def predict_mean(description: ModelDescription, *, theta: Array, table: TableLike) -> Array:
    """Return E[y | x] averaged over draws (Eq. 16): one number a row, or the chance of each level.

    Rows are encoded by the release's own schema; a row with a missing or unknown value in a used column
    gets NaN, so that the result always has one entry a row. A real outcome is predicted on the scale of its
    column's transform.

    Parameters
    ----------
    description : ModelDescription
        Model and schema.
    theta : ndarray, shape (M, K)
        Draws of the model's parameters.
    table : DataFrame, mapping of columns, or path
        New rows; the outcome column is not needed.

    Returns
    -------
    ndarray, shape (N,), or (N, C) where the model explains a categorical outcome of C levels

    Raises
    ------
    DataError
        If a used column is missing.
    """
    mean: Array = _over_draws(description, theta, table, lambda found: found.mean(axis=0)[None], num=1)[0]
    return mean


def predict_intervals(
    description: ModelDescription, *, theta: Array, table: TableLike, probability: float = 0.9
) -> Predictions:
    """Return what `predict_mean` does, with the interval that holds E[y | x] with a probability.

    It is the uncertainty of the mean, from data and privacy noise, and not where a single outcome falls.

    Parameters
    ----------
    description, theta, table
        As for `predict_mean`.
    probability : float
        Content of the equal-tailed interval, in (0, 1).

    Raises
    ------
    ArgumentError
        If `probability` is out of range.
    DataError
        If a used column is missing.
    """
    level = check_probability("probability", probability)
    tails = (0.5 * (1.0 - level), 0.5 * (1.0 + level))

    def summarise(found: Array) -> Array:
        return np.concatenate([found.mean(axis=0)[None], np.quantile(found, tails, axis=0)])

    return Predictions(*_over_draws(description, theta, table, summarise, num=3))


def predictions_frame(predictions: Predictions, *, design: Design) -> pd.DataFrame:
    """Return predictions as a table of a row each: ``mean``, ``lower`` and ``upper``, or those of each level.

    Parameters
    ----------
    predictions : Predictions
    design : Design
        Whose outcome they are of; its levels name the chances.
    """
    parts = predictions._asdict()
    if predictions.mean.ndim == 1:
        return pd.DataFrame(parts)
    return pd.DataFrame(
        {
            f"{part}[{name}]": values[:, place]
            for place, name in enumerate(_class_names(design, predictions.mean.shape[1]))
            for part, values in parts.items()
        }
    )


def _class_names(design: Design, num_classes: int) -> tuple[str, ...]:
    """Return what chances belong to: the outcome's levels, or places where a model has its own."""
    column = None if design.outcome is None else design.schema[design.outcome]
    levels = column.levels if isinstance(column, BinaryColumn | CategoricalColumn) else ()
    return levels if len(levels) == num_classes else tuple(str(place) for place in range(num_classes))


def _over_draws(
    description: ModelDescription,
    theta: Array,
    table: TableLike,
    summarise: Callable[[Array], Array],
    *,
    num: int,
) -> Array:
    """Return summaries over draws of each row's predictions, in blocks: shape (num, N), or (num, N, C)."""
    encoded = encode_features(description.design, to_table(table), on_problem="incomplete")
    complete = np.flatnonzero(encoded.is_complete)
    model = description.model
    # One row tells whether there is a number a row or a chance a level.
    classes = model.predict_mean(theta[:1], np.zeros((1, encoded.x.shape[1]))).shape[2:]
    summaries = np.full((num, len(encoded.x), *classes), np.nan)
    block = max(1, _BLOCK_VALUES // (len(theta) * math.prod(classes)))
    for start in range(0, len(complete), block):
        rows = complete[start : start + block]
        summaries[:, rows] = summarise(model.predict_mean(theta, encoded.x[rows]))
    return summaries
