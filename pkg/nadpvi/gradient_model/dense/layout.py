"""Coordinates of a pattern's margins: from unconstrained numbers to w, m, F, and back with gradients.

Every array has a leading axis for chains. The coordinates are, in this order: log w; per group its own; the
entries of R that associate two groups, over association_scale and the typical size of their pair; the logs
of these sizes, one a pair, where the prior has finite degrees of freedom. Shares of a column
of levels break a stick, the largest level first, in logits: each is then determined by data of its own
size, and a sampler with one scale per coordinate mixes well.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit

from nadpvi.gradient_model.dense.prior import DensePrior, Group, GroupKind

__all__ = ["Layout", "Margins", "make_layout", "margins", "margins_gradient", "start_coordinates"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_COORDINATES = {GroupKind.CONSTANT: 0, GroupKind.BINARY: 1, GroupKind.NUMBER: 2}
_LARGEST_SHARE = 0.98  # a start from a regression estimate must not sit on the boundary


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Where each part of a curvature sits among the coordinates.

    Attributes
    ----------
    prior : DensePrior
    centre : ndarray, shape (M,)
        A positive guess of H's diagonal: centre of the prior of log w and of log scales, order of the levels.
    slices : tuple of slice
        The coordinates of each group.
    order : tuple of ndarray
        Per group its columns, largest guess first.
    rows, cols : ndarray, shape (E,)
        Entries of R above the diagonal that are free.
    pair : ndarray, shape (E,)
        Which pair of groups each entry belongs to, 0, 1, ...
    num_pairs : int
        Number of pairs of groups.
    num_margins, num_inner, size : int
        Number of coordinates before the entries of R, before the sizes of pairs, and in all.
    membership : ndarray, shape (M, G)
        1 where a column is a level of a group of levels; G counts those groups alone.
    feature_map : ndarray, shape (M, M), or None
        What takes numbers in [0, 1] to the features; None where they are the features.
    """

    prior: DensePrior
    centre: FloatArray
    slices: tuple[slice, ...]
    order: tuple[IntArray, ...]
    rows: IntArray
    cols: IntArray
    pair: IntArray
    num_pairs: int
    num_margins: int
    num_inner: int
    size: int
    membership: FloatArray
    feature_map: FloatArray | None

    @property
    def weight_centre(self) -> float:
        """Centre of the prior of log w: the first group's guess, an intercept's where there is one."""
        return float(np.log(self.centre[self.prior.groups[0].columns].sum()))


class Margins(NamedTuple):
    """Parts of H = w m m' + F R F' and the log prior of the coordinates that make them; C chains.

    Attributes
    ----------
    weight : ndarray, shape (C,)
        w.
    mean : ndarray, shape (C, M)
        m.
    diagonal, left, right : ndarray, shape (C, M)
        F = diag(diagonal) - left right' within each group of levels; left and right are 0 elsewhere.
    log_prior : ndarray, shape (C,)
        Log density of the coordinates before R's entries, Jacobians included, up to a constant.
    log_prior_gradient : ndarray, shape (C, num_margins)
    """

    weight: FloatArray
    mean: FloatArray
    diagonal: FloatArray
    left: FloatArray
    right: FloatArray
    log_prior: FloatArray
    log_prior_gradient: FloatArray


def _num_coordinates(group: Group) -> int:
    """Return how many coordinates a group's margins have."""
    return group.size - 1 if group.kind is GroupKind.LEVELS else _COORDINATES[group.kind]


def make_layout(prior: DensePrior, *, centre: FloatArray) -> Layout:
    """Return the layout of a prior's coordinates around a positive guess of H's diagonal, shape (M,)."""
    size = prior.num_parameters
    at, slices, owner = 1, [], np.zeros(size, dtype=np.intp)
    for index, group in enumerate(prior.groups):
        width = _num_coordinates(group)
        slices.append(slice(at, at + width))
        at += width
        owner[group.columns] = index if group.kind is not GroupKind.CONSTANT else -1
    rows, cols = np.triu_indices(size, 1)
    is_free = (owner[rows] != owner[cols]) & (owner[rows] >= 0) & (owner[cols] >= 0)
    rows, cols = rows[is_free], cols[is_free]
    pairs, pair = np.unique(owner[rows] * len(prior.groups) + owner[cols], return_inverse=True)
    of_levels = [group for group in prior.groups if group.kind is GroupKind.LEVELS]
    membership = np.zeros((size, len(of_levels)))
    for index, group in enumerate(of_levels):
        membership[group.columns, index] = 1.0
    order = tuple(g.start + np.argsort(-centre[g.columns], kind="stable") for g in prior.groups)
    return Layout(
        prior=prior,
        centre=centre,
        slices=tuple(slices),
        order=order,
        rows=rows,
        cols=cols,
        pair=pair,
        num_pairs=pairs.size,
        num_margins=at,
        num_inner=at + rows.size,
        size=at + rows.size + (pairs.size if np.isfinite(prior.association_df) else 0),
        membership=membership,
        feature_map=_feature_map(prior),
    )


def _feature_map(prior: DensePrior) -> FloatArray | None:
    """Return the matrix of x = a + (b - a) u, the constant being the intercept's coordinate, or None."""
    if all((group.low, group.high) == (0.0, 1.0) for group in prior.groups):
        return None
    matrix = np.eye(prior.num_parameters)
    constant = [group.start for group in prior.groups if group.kind is GroupKind.CONSTANT]
    for group in prior.groups:
        if group.kind is GroupKind.NUMBER:
            matrix[group.start, group.start] = group.high - group.low
            matrix[group.start, constant] = group.low
    return matrix


def start_coordinates(layout: Layout) -> FloatArray:
    """Return coordinates at the guess of H's diagonal, with independent columns, shape (size,)."""
    x = np.zeros(layout.size)
    weight = np.exp(layout.weight_centre)
    x[0] = layout.weight_centre
    for group, at, order in zip(layout.prior.groups, layout.slices, layout.order, strict=True):
        guess = layout.centre[order]
        if group.kind is GroupKind.LEVELS:
            left = np.cumsum(guess[::-1])[::-1]
            x[at] = logit(guess[:-1] / left[:-1])
        elif (group.low, group.high) != (0.0, 1.0):
            x[at] = _start_of_number(group, square=guess[0] / weight)
        elif group.kind is not GroupKind.CONSTANT:
            x[at.start] = logit(min(guess[0] / weight, _LARGEST_SHARE))
    return x


def _start_of_number(group: Group, *, square: float) -> FloatArray:
    """Return the logits of a number's mean share, and of its variance's part of the largest, shape (2,).

    `square` is a guess of the feature's mean square: its variance where its mean can be 0, else the square
    of its mean.
    """
    width, smallest = group.high - group.low, 1.0 - _LARGEST_SHARE
    if group.low < 0.0 < group.high:
        mean = np.clip(-group.low / width, smallest, _LARGEST_SHARE)
        part = square / width**2 / (mean * (1.0 - mean))
        return np.asarray(logit(np.clip([mean, part], 0.001, _LARGEST_SHARE)), dtype=np.float64)
    ends = np.sort(np.abs([group.low, group.high]))
    size = (np.sqrt(square) - ends[0]) / width
    share = np.clip(size if group.low >= 0.0 else 1.0 - size, smallest, _LARGEST_SHARE)
    return np.array([logit(share), 0.0])


def margins(layout: Layout, x: FloatArray) -> Margins:
    """Return w, m and F at coordinates of shape (C, size), with their log prior."""
    prior, chains, size = layout.prior, x.shape[0], layout.prior.num_parameters
    mean, diagonal, left, right = (np.zeros((chains, size)) for _ in range(4))
    log_prior, gradient = np.zeros(chains), np.zeros((chains, layout.num_margins))
    weight = np.exp(x[:, 0])
    root = np.sqrt(weight)

    def add_beta(at: slice, a: float, b: FloatArray | float) -> None:
        log_prior[:] += (a * log_expit(x[:, at]) + b * log_expit(-x[:, at])).sum(axis=1)
        gradient[:, at] = a * expit(-x[:, at]) - b * expit(x[:, at])

    z = (x[:, 0] - layout.weight_centre) / prior.log_scale_std
    log_prior -= 0.5 * np.square(z)
    gradient[:, 0] = -z / prior.log_scale_std
    for group, at, order in zip(prior.groups, layout.slices, layout.order, strict=True):
        j = group.start
        if group.kind is GroupKind.CONSTANT:
            mean[:, j] = 1.0
        elif group.kind is GroupKind.LEVELS:
            share = _break_stick(x[:, at])
            mean[:, order], right[:, order] = share, np.sqrt(share)
            concentration = prior.share_concentration
            add_beta(at, concentration, concentration * np.arange(group.size - 1, 0, -1.0))
            diagonal[:, order] = root[:, None] * right[:, order]
            left[:, order] = root[:, None] * share
        else:
            mean[:, j] = expit(x[:, at.start])
            add_beta(slice(at.start, at.start + 1), prior.share_concentration, prior.share_concentration)
            log_variance = log_expit(x[:, at.start]) + log_expit(-x[:, at.start])
            if group.kind is GroupKind.NUMBER:
                log_variance = log_variance + log_expit(x[:, at.start + 1])
                add_beta(slice(at.start + 1, at.stop), 1.0, 1.0)
            diagonal[:, j] = root * np.exp(0.5 * log_variance)
    return Margins(weight, mean, diagonal, left, right, log_prior, gradient)


def _break_stick(x: FloatArray) -> FloatArray:
    """Return L shares from L - 1 logits, shape (C, L): each takes its part of what the former left."""
    chains = x.shape[0]
    log_left = np.concatenate([np.zeros((chains, 1)), np.cumsum(log_expit(-x), axis=1)], axis=1)
    log_part = np.concatenate([log_expit(x), np.zeros((chains, 1))], axis=1)
    shares: FloatArray = np.exp(log_left + log_part)
    return shares


class PartsGradient(NamedTuple):
    """Derivatives of a scalar with respect to the parts of H, shapes as in `Margins`."""

    log_weight: FloatArray  # through w m m' alone, F held fixed
    mean: FloatArray
    diagonal: FloatArray
    left: FloatArray
    right: FloatArray


def margins_gradient(layout: Layout, x: FloatArray, parts: Margins, by: PartsGradient) -> FloatArray:
    """Return the derivative with respect to the coordinates before R's entries, shape (C, num_margins)."""
    gradient = np.zeros((x.shape[0], layout.num_margins))
    root = np.sqrt(parts.weight)
    by_log_weight = by.log_weight.copy()
    for group, at, order in zip(layout.prior.groups, layout.slices, layout.order, strict=True):
        j = group.start
        if group.kind is GroupKind.LEVELS:
            share, q = parts.mean[:, order], parts.right[:, order]
            by_diagonal, by_left = by.diagonal[:, order], by.left[:, order]
            by_log_weight += 0.5 * root * (by_diagonal * q + by_left * share).sum(axis=1)
            by_q = root[:, None] * by_diagonal + by.right[:, order]
            by_share = by.mean[:, order] + root[:, None] * by_left
            by_log_share = by_share * share + 0.5 * by_q * q
            tail = np.cumsum(by_log_share[:, ::-1], axis=1)[:, ::-1]
            logits = x[:, at]
            gradient[:, at] = by_log_share[:, :-1] * expit(-logits) - tail[:, 1:] * expit(logits)
        elif group.kind is not GroupKind.CONSTANT:
            mean, by_log_sd = parts.mean[:, j], by.diagonal[:, j] * parts.diagonal[:, j]
            by_log_weight += 0.5 * by_log_sd
            gradient[:, at.start] = by.mean[:, j] * mean * (1.0 - mean) + by_log_sd * (0.5 - mean)
            if group.kind is GroupKind.NUMBER:
                gradient[:, at.start + 1] = 0.5 * by_log_sd * expit(-x[:, at.start + 1])
    gradient[:, 0] = by_log_weight
    return gradient
