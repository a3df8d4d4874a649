"""Predictions from draws of the parameters and the public encoding that belongs to them."""

import math

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
    encoded = encode_features(description.design, to_table(table), on_problem="incomplete")
    complete = np.flatnonzero(encoded.is_complete)
    model = description.model
    # One row tells whether there is a number a row or a chance a level.
    classes = model.predict_mean(theta[:1], np.zeros((1, encoded.x.shape[1]))).shape[2:]
    prediction = np.full((len(encoded.x), *classes), np.nan)
    block = max(1, _BLOCK_VALUES // (len(theta) * math.prod(classes)))
    for start in range(0, len(complete), block):
        rows = complete[start : start + block]
        prediction[rows] = model.predict_mean(theta, encoded.x[rows]).mean(axis=0)
    return prediction
