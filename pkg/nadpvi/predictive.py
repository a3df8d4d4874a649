"""Predictions from draws of the parameters and the public encoding that belongs to them."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.encoding import encode_features
from nadpvi.tables import TableLike, to_table

__all__ = ["predict_mean"]

Array = NDArray[np.float64]

# Draws times rows of one block of predictions: 64 MB.
_BLOCK_VALUES = 8_000_000


def predict_mean(description: ModelDescription, *, theta: Array, table: TableLike) -> Array:
    """Return E[y | x] averaged over draws (Eq. 16), one number a row.

    Rows are encoded by the release's own schema; a row with a missing or unknown value in a used column
    gets NaN, so that the result always has one entry a row.

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
    ndarray, shape (N,)

    Raises
    ------
    DataError
        If a used column is missing.
    """
    encoded = encode_features(description.design, to_table(table), on_problem="incomplete")
    prediction = np.full(len(encoded.x), np.nan)
    complete = np.flatnonzero(encoded.is_complete)
    for start in range(0, len(complete), max(1, _BLOCK_VALUES // len(theta))):
        rows = complete[start : start + max(1, _BLOCK_VALUES // len(theta))]
        prediction[rows] = description.model.predict_mean(theta, encoded.x[rows]).mean(axis=0)
    return prediction
