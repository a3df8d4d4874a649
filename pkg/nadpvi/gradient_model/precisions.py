"""Precision matrices of a few variables whose units differ by orders of magnitude, one a coordinate."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["marginal_sd", "unit_diagonal"]

FloatArray = NDArray[np.float64]


def unit_diagonal(precision: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return matrices (D, k, k) scaled to absolute diagonal 1, whatever their units, and the scales."""
    root: FloatArray = 1.0 / np.sqrt(np.abs(np.einsum("dii->di", precision)))
    return precision * root[:, :, None] * root[:, None, :], root


def marginal_sd(precision: FloatArray, *, index: int) -> FloatArray:
    """Return one variable's sd, shape (D,), under normal distributions with these precisions (D, k, k)."""
    scaled, root = unit_diagonal(precision)
    unit = np.zeros((*scaled.shape[:2], 1))
    unit[:, index] = 1.0
    variance = np.linalg.solve(scaled, unit)[:, index, 0]
    sd: FloatArray = root[:, index] * np.sqrt(np.abs(variance))
    return sd
