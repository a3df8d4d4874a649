"""Coordinates of a curvature with a schema's pattern: margins of columns, and associations between them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.dense.coordinates import Expansion, factor
from nadpvi.gradient_model.dense.layout import (
    Layout,
    Margins,
    PartsGradient,
    margins,
    margins_gradient,
    start_coordinates,
)

__all__ = ["PatternCoordinates"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PatternCoordinates:
    """Coordinates of H = w (m m' + F R F'), as `layout` lays them out, and of its image for other bounds."""

    layout: Layout

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.layout.size

    def start(self) -> FloatArray:
        """Return coordinates at a guess of H's diagonal, with independent columns."""
        return start_coordinates(self.layout)

    def dispersion(self) -> FloatArray:
        """Return the sd of starts: a third in each logit and logarithm."""
        sd = np.zeros(self.layout.size)
        sd[: self.layout.num_margins] = 0.3
        return sd

    def expand(self, x: FloatArray) -> Expansion:
        """Return H at coordinates of shape (C, size)."""
        layout = self.layout
        parts = margins(layout, x)
        entries = _steps(layout, x) * x[:, layout.num_margins : layout.num_inner]
        association = _associations(layout, entries)
        half = _times_f(layout, parts, association)
        root = np.sqrt(parts.weight)[:, None] * parts.mean
        records = _times_f(layout, parts, half.transpose(0, 2, 1)) + root[:, :, None] * root[:, None, :]
        if layout.feature_map is not None:
            records = layout.feature_map @ records @ layout.feature_map.T
        records = 0.5 * (records + records.transpose(0, 2, 1))
        of_r = factor(association)
        log_prior = parts.log_prior + of_r.log_det + _association_prior(layout, x)

        def pull_back(by: FloatArray) -> FloatArray:
            gradient = np.empty_like(x)
            if layout.feature_map is not None:
                by = layout.feature_map.T @ by @ layout.feature_map
            by_parts = _parts_gradient(layout, parts, by, half)
            gradient[:, : layout.num_margins] = parts.log_prior_gradient + margins_gradient(
                layout, x, parts, by_parts
            )
            by_half = _times_f(layout, parts, by, transpose=True).transpose(0, 2, 1)
            by_r = _times_f(layout, parts, by_half, transpose=True) + of_r.inverse
            by_entries = 2.0 * by_r[:, layout.rows, layout.cols]
            gradient[:, layout.num_margins :] = _association_gradient(layout, x, entries, by_entries)
            return gradient

        return Expansion(records, log_prior, of_r.is_definite, pull_back)


def _times_f(layout: Layout, parts: Margins, matrix: FloatArray, *, transpose: bool = False) -> FloatArray:
    """Return F @ matrix, or F' @ matrix, in a number of operations like the matrix's size."""
    left, right = (parts.right, parts.left) if transpose else (parts.left, parts.right)
    product = parts.diagonal[:, :, None] * matrix
    if layout.membership.shape[1]:
        sums = layout.membership.T @ (right[:, :, None] * matrix)
        product -= left[:, :, None] * (layout.membership @ sums)
    return product


def _steps(layout: Layout, x: FloatArray) -> FloatArray | float:
    """Return what an entry of R is per unit of its coordinate: one number, or shape (C, E)."""
    scale = layout.prior.association_scale
    if layout.size == layout.num_inner:
        return scale
    steps: FloatArray = scale * np.exp(x[:, layout.num_inner :])[:, layout.pair]
    return steps


def _associations(layout: Layout, entries: FloatArray) -> FloatArray:
    """Return R, shape (C, M, M)."""
    size = layout.prior.num_parameters
    matrix = np.zeros((entries.shape[0], size, size))
    matrix[:, layout.rows, layout.cols] = entries
    matrix[:, layout.cols, layout.rows] = entries
    matrix[:, range(size), range(size)] = 1.0
    return matrix


def _parts_gradient(layout: Layout, parts: Margins, by: FloatArray, half: FloatArray) -> PartsGradient:
    """Return the gradient in w, m and F, given that in A and F R."""
    of_mean = (by @ parts.mean[:, :, None])[:, :, 0]
    by_f = 2.0 * (by @ half)
    diagonal = np.diagonal(by_f, axis1=1, axis2=2)
    left, right = np.zeros_like(parts.mean), np.zeros_like(parts.mean)
    if layout.membership.shape[1]:
        within = layout.membership @ layout.membership.T
        by_f = by_f * within
        left = -(by_f @ parts.right[:, :, None])[:, :, 0]
        right = -(parts.left[:, None, :] @ by_f)[:, 0]
    return PartsGradient(
        log_weight=parts.weight * (of_mean * parts.mean).sum(axis=1),
        mean=2.0 * parts.weight[:, None] * of_mean,
        diagonal=diagonal,
        left=left,
        right=right,
    )


def _association_prior(layout: Layout, x: FloatArray) -> FloatArray:
    """Return the log prior of R's coordinates, shape (C,), without |R|.

    Entries are normal given the sizes of their pairs. The square of a size is inverse-gamma with shape and
    scale df / 2, so that a pair's entries together are multivariate t.
    """
    inner, log_size = x[:, layout.num_margins : layout.num_inner], x[:, layout.num_inner :]
    log_prior: FloatArray = -0.5 * np.square(inner).sum(axis=1)
    if log_size.shape[1]:
        log_prior -= layout.prior.association_df * (log_size + 0.5 * np.exp(-2.0 * log_size)).sum(axis=1)
    return log_prior


def _association_gradient(
    layout: Layout, x: FloatArray, entries: FloatArray, by_entries: FloatArray
) -> FloatArray:
    """Return the gradient in R's coordinates, given R's free entries and the gradient in them, (C, E)."""
    inner, log_size = x[:, layout.num_margins : layout.num_inner], x[:, layout.num_inner :]
    by_inner = _steps(layout, x) * by_entries - inner
    by_size = layout.prior.association_df * np.expm1(-2.0 * log_size) if log_size.size else log_size
    for index in range(x.shape[0] if log_size.size else 0):
        weights = by_entries[index] * entries[index]
        by_size[index] += np.bincount(layout.pair, weights, minlength=layout.num_pairs)
    return np.concatenate([by_inner, by_size], axis=1)
