"""One differentially private gradient: sample, clip, sum exactly, add noise. Private side.

This is the only place where per-record gradients become something that may be released.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import PrivacyError
from nadpvi.privacy.noise import NoiseSource
from nadpvi.private.gradients import PerRecordGradients
from nadpvi.private.routes.rows import squared_lengths

__all__ = ["check_exact_sums", "clip_weights", "clipped_sum", "exact_sum", "release_gradient"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# A product of whole numbers whose terms add up to less than this is exact in float64, and BLAS does it; half
# of what float64 could hold.
_EXACT_FLOATS = 2**52
# What the sum of all records, with noise below 2^52 added, may reach in int64.
_EXACT_INTEGERS = 2**62

# The clip aims this far below the bound, and the check on the grid allows half of it: both far above what
# rounding can move a norm, about D * 1e-16.
_MARGIN = 1e-9


def clip_weights(gradients: PerRecordGradients, *, clip_norm: float) -> Array:
    """Return the factor that scales each record's gradient to a norm of at most `clip_norm`.

    Guarantees
    ----------
    - The weighted row's norm is at most ``clip_norm * (1 - 1e-9)`` up to float64 rounding.
    - A zero gradient gets a finite factor and stays zero.
    - A row with a non-finite entry gets factor zero; a finite row whose square overflows is still clipped.

    Parameters
    ----------
    gradients : PerRecordGradients
        Gradients of B records. Private.
    clip_norm : float
        L2 bound C > 0, in units of the preconditioned gradient.

    Returns
    -------
    ndarray, shape (B,)
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _weights(gradients, clip_norm=clip_norm, units=clip_norm)


def _weights(gradients: PerRecordGradients, *, clip_norm: float, units: float) -> Array:
    """Return `clip_weights` in other units, `units` per clip norm; NumPy's warnings are off already."""
    norms = gradients.squared_norms()
    np.sqrt(norms, out=norms)
    limit, scaled = clip_norm * (1.0 - _MARGIN), units * (1.0 - _MARGIN)
    # One number tells that all of them are finite, at a fraction of the cost of asking each.
    if math.isfinite(norms.dot(norms)):
        # max(norm, limit) never divides by zero.
        np.maximum(norms, limit, out=norms)
        return np.divide(scaled, norms, out=norms)
    unusable = ~np.isfinite(norms)
    norms[unusable] = _robust_norms(gradients)[unusable]
    weights: Array = np.divide(scaled, np.maximum(norms, limit))
    weights[~np.isfinite(norms)] = 0.0
    return weights


def _robust_norms(gradients: PerRecordGradients) -> Array:
    """Return norms whose squares may overflow: each row is divided by its largest entry first."""
    ones = np.ones(len(gradients.squared_norms()))
    rows = np.abs(gradients.weighted_rows(ones))
    largest = rows.max(axis=1)
    finite = np.isfinite(largest)
    shrunk = rows[finite] / np.maximum(largest[finite], 1.0)[:, None]
    norms = np.full(len(rows), np.nan)
    norms[finite] = np.maximum(largest[finite], 1.0) * np.linalg.norm(shrunk, axis=1)
    return norms


def clipped_sum(
    gradients: PerRecordGradients,
    *,
    clip_norm: float,
    grid_units: int | None,
    num_records: int | None = None,
    multiplicities: Array | None = None,
) -> Integers | Array:
    """Return the sum of clipped gradients, in grid units or, without a grid, in clip norms.

    Guarantees
    ----------
    - Adding or removing one record changes the result by a vector of L2 norm at most `grid_units` (or 1):
      with a grid, a record's clipped gradient is truncated toward zero coordinate by coordinate, which
      cannot lengthen it, the truncated vector's norm is checked, and sums of integers are exact
      (`exact_sum`, `check_exact_sums`).
    - A row that stands for several identical records is clipped, truncated and checked as one of them and
      then counts so many times, as integers exactly: one record more or less changes one multiplicity by one.
    - A record whose gradient is not finite, or whose vector fails the check, contributes zero.
    - Rows of padding contribute zero.
    - No records give zeros. Nothing is divided by the number of records.

    Parameters
    ----------
    gradients : PerRecordGradients
        Gradients of B rows. Private.
    clip_norm : float
        L2 bound C > 0, in units of the preconditioned gradient.
    grid_units : int or None
        Grid units per clip norm; None sums in floating point (simulation only).
    num_records : int, optional
        How many rows count, from the first on; the others are padding. All of them when omitted.
    multiplicities : ndarray, shape (B,), optional
        How many records of each row are summed, whole numbers >= 0. One each when omitted.

    Returns
    -------
    ndarray, shape (D,)
        int64 on a grid, float64 without.
    """
    units = grid_units or 1
    with np.errstate(over="ignore", invalid="ignore"):
        weights = _weights(gradients, clip_norm=clip_norm, units=units)
        if num_records is not None:
            weights[num_records:] = 0.0
        if grid_units is None:
            total = gradients.weighted_sum(weights if multiplicities is None else weights * multiplicities)
            if math.isfinite(total.dot(total)):
                return total
        parts = gradients.weighted_parts(weights)
        squares = np.zeros(len(weights))
        for _, rows in parts:
            if num_records is not None:
                # A model may give anything for padding, which zero times a number need not remove.
                rows[num_records:] = 0.0
            if grid_units is not None:
                np.trunc(rows, out=rows)
            squares += squared_lengths(rows)
        # Measured on what is summed, so that no rounding, overflow or underflow on the way can matter. The
        # limit leaves room for the rounding of this very sum; the clip's own margin keeps sound rows below.
        sound = squares <= units**2 * (1.0 - _MARGIN)
    is_sound = bool(sound.all())
    times = _ones(len(weights)) if multiplicities is None else multiplicities
    total = np.empty(sum(rows.shape[1] for _, rows in parts), np.float64 if grid_units is None else np.int64)
    for columns, rows in parts:
        if not is_sound:
            rows[~sound] = 0.0
        total[columns] = times @ rows if grid_units is None else exact_sum(times, rows, largest=grid_units)
    return total


@cache
def _ones(size: int) -> Array:
    """Return how often each row of a block counts where each is one record; read-only."""
    ones = np.ones(size)
    ones.setflags(write=False)
    return ones


def exact_sum(times: Array, rows: Array, *, largest: int) -> Integers:
    """Return ``times @ rows`` for whole numbers, exactly.

    Parameters
    ----------
    times : ndarray, shape (B,)
        Whole numbers >= 0; their sum times `largest` is below 2^63.
    rows : ndarray, shape (B,) or (B, D)
        Whole numbers of size at most `largest`.
    largest : int
        At least 1.
    """
    if times.sum() * largest < _EXACT_FLOATS:
        return np.asarray(times @ rows).astype(np.int64)
    total: Integers = times.astype(np.int64) @ rows.astype(np.int64)
    return total


def release_gradient(
    total: Integers | Array, *, noise: NoiseSource, clip_norm: float, preconditioner: Array
) -> Array:
    """Return the noisy gradient sum, (total + noise) * C / beta: what may be seen by anyone (Eq. 58).

    Guarantees
    ----------
    - The noise's standard deviation is noise_multiplier times the sensitivity of `total`, in the same
      units: both are counted in the grid of `noise`.
    - Every coordinate gets noise of its own: a source of another length is refused, never broadcast.
    - Whole numbers are added as such; rounding to float64 and scaling afterwards are post-processing.

    Parameters
    ----------
    total : ndarray, shape (D,)
        Clipped sum of the whole batch. Private.
    noise : NoiseSource
        Draws one vector of noise.
    clip_norm : float
        C.
    preconditioner : ndarray, shape (D,)
        beta.

    Returns
    -------
    ndarray, shape (D,)
        Noisy sum in units of the loss gradient.

    Raises
    ------
    PrivacyError
        If the noise has another shape than the sum.
    """
    unit = clip_norm / (noise.grid_units or 1)
    drawn = noise.draw()
    if drawn.shape != total.shape:
        raise PrivacyError(f"noise of shape {drawn.shape} cannot cover a sum of shape {total.shape}.")
    if total.dtype.kind == "i":
        drawn = drawn.astype(np.int64)
    released: Array = (total + drawn) * (unit / preconditioner)
    return released


def check_exact_sums(*, num_records: int, grid_units: int | None) -> None:
    """Raise `PrivacyError` if a sum over all records, with noise, could leave the integers of 64 bits.

    `num_records` is N, a row with a count being so many records.
    """
    if grid_units is not None and num_records * grid_units >= _EXACT_INTEGERS:
        raise PrivacyError("too many records to be summed exactly on this grid; split the table.")
