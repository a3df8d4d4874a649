"""The curvature that a run may release after its last step: sum_i W_i (x) x_i x_i', with noise. Private side.

W_i is what record i is expected to tell of its linear predictors, a number where there is one, averaged over
the guide at the mean iterate of the trace's window, which is public. The sum of these Kronecker products is
the records' part of the negative ELBO's Hessian in the coefficients, in expectation over the outcomes. Its
upper triangle is released once, by the Gaussian mechanism.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.curvature_share import (
    CurvatureBounds,
    curvature_bounds,
    curvature_moments,
    num_coefficients,
    predictor_moments,
    weight_norms,
)
from nadpvi.description import ModelDescription
from nadpvi.mechanism import Mechanism
from nadpvi.models.base import CurvatureModel
from nadpvi.privacy.noise import NoiseSource
from nadpvi.private.dpsgd import check_exact_sums
from nadpvi.private.records import Records

__all__ = ["on_grid", "release_curvature"]

Array = NDArray[np.float64]

_BLOCK_VALUES = 2**20
# Above what rounding can add to an entry; squares of so many entries of this size still fit into 64 bits.
_SLACK = 1e-6


def release_curvature(
    made: Release, records: Records, *, mechanism: Mechanism, noise: NoiseSource
) -> tuple[Array, Array]:
    """Return the noisy curvature at the trace's mean iterate, and the sd of each entry's noise.

    Guarantees
    ----------
    - Besides the records, whatever this depends on has been released.
    - A record's entries are scaled by public bounds to a norm of at most 1. Truncated to the grid their norm
      is checked again in whole numbers, and a row that exceeds it, or is not finite, counts as zero: adding
      or removing a record moves the exact integer sum by at most the grid units of one.
    - The noise is that of ``mechanism.curvature_noise``, per what one record may add.

    Parameters
    ----------
    made : Release
        The trace of all steps.
    records : Records
        Those that the steps ran on. Private.
    mechanism : Mechanism
        A run with a share of its budget left for this.
    noise : NoiseSource
        From ``mechanism.curvature_noise``.

    Returns
    -------
    pair of ndarray, shape (J F, J F)
        Symmetric; one draw of noise for each pair of coefficients.
    """
    description = mechanism.description
    assert isinstance(description.model, CurvatureModel)  # checked with the settings
    assert mechanism.curvature_noise_multiplier is not None
    check_exact_sums(num_records=records.num_records, grid_units=noise.grid_units)
    size = num_coefficients(description)
    bounds = curvature_bounds(description, made.phi)
    moments = curvature_moments(description, made.phi)
    blocks = _scaled_products(records, description, moments=moments, bounds=bounds)
    if noise.grid_units is None:
        noisy = noise.draw() + sum((rows * counts[:, None]).sum(axis=0) for rows, counts in blocks)
    else:
        total = np.zeros(size * (size + 1) // 2, dtype=np.int64)
        for rows, counts in blocks:
            total += (on_grid(rows, grid_units=noise.grid_units) * counts[:, None]).sum(axis=0)
        noisy = (total + noise.draw().astype(np.int64)) / noise.grid_units
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = noisy * bounds.sensitivity
    matrix = matrix + np.triu(matrix, 1).T
    return matrix, np.full((size, size), mechanism.curvature_noise_multiplier * bounds.sensitivity)


def _scaled_products(
    records: Records,
    description: ModelDescription,
    *,
    moments: tuple[Array, Array],
    bounds: CurvatureBounds,
) -> Iterator[tuple[Array, NDArray[np.int64]]]:
    """Yield blocks of rows: upper triangles of W (x) x x' over the sensitivity, (B, E), and counts, (B,).

    Weights of a norm above the cap are shortened to it. Every operation is elementwise. A product of BLAS
    would round a row by its place in a block, which other records decide; on the grid that is a whole unit.
    """
    model, num_features = description.model, description.design.num_features
    assert isinstance(model, CurvatureModel)
    first, second = np.triu_indices(num_coefficients(description))
    (block, feature), (other_block, other) = (divmod(index, num_features) for index in (first, second))
    low, high = (np.array(ends) for ends in description.design.feature_bounds)
    cap, sensitivity = bounds
    step = max(1, _BLOCK_VALUES // len(first))
    for start in range(0, len(records.y), step):
        # Stored as float32 a feature may lie beyond its bound by what rounding adds.
        x = np.clip(records.x[start : start + step].astype(np.float64), low, high)
        mean, sd, extras = predictor_moments(description, moments, x=x)
        weights = model.curvature_weights(mean, sd, extras=extras)
        norms = weight_norms(weights)
        with np.errstate(invalid="ignore"):
            weights = weights * (np.minimum(norms, cap) / np.where(norms > 0.0, norms, 1.0)) / sensitivity
        counts = np.ones(len(x), dtype=np.int64)
        if records.counts is not None:
            counts = records.counts[start : start + step]
        yield x[:, feature] * x[:, other] * weights[block, other_block].T, counts


def on_grid(rows: Array, *, grid_units: int) -> NDArray[np.int64]:
    """Return rows truncated toward zero to whole grid units; those beyond a norm of 1 are zero, (B, E).

    Guarantees
    ----------
    - The norm of every row is at most `grid_units`, compared in whole numbers.

    Examples
    --------
    >>> on_grid(np.array([[0.6, 0.8], [0.6, 0.81], [np.nan, 0.0], [-0.26, 0.0]]), grid_units=4).tolist()
    [[2, 3], [2, 3], [0, 0], [-1, 0]]
    """
    with np.errstate(invalid="ignore"):
        # Nothing that whole numbers could not hold; NaN is not in range either.
        is_bounded = np.asarray((np.abs(rows) <= 1.0 + _SLACK).all(axis=1))
    bounded = np.where(is_bounded[:, None], rows, 0.0)
    units: NDArray[np.int64] = np.trunc(bounded * grid_units).astype(np.int64)
    is_short = (units * units).sum(axis=1) <= grid_units**2
    units[~is_short] = 0
    return units
