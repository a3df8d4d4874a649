"""Coordinates of a pattern's margins: from unconstrained numbers to w, m, F, and back with gradients.

Every array has a leading axis for chains. The coordinates are, in this order: log w; per group its own; the
entries of R that associate two groups, over association_scale and the typical size of their pair; the logs
of these sizes, one a pair, where the prior has finite degrees of freedom. Shares of a column
of levels break a stick, the largest level first, in logits: each is then determined by data of its own
size, and a sampler with one scale per coordinate mixes well.
"""

from collections.abc import Sequence
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
    beta_shapes : ndarray, shape (2, num_margins)
        Shapes of the beta prior of each coordinate's expit; 0 for log w, which has another prior.
    binary, number : Singles
        The columns that are groups by themselves, without and with a variance of their own.
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
    beta_shapes: FloatArray
    binary: "Singles"
    number: "Singles"
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


class Singles(NamedTuple):
    """Columns that are groups by themselves, and the first coordinate of each, both shape (G,)."""

    column: IntArray
    at: IntArray


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
    shapes = [np.zeros((2, 1))]
    for index, group in enumerate(prior.groups):
        width = _num_coordinates(group)
        slices.append(slice(at, at + width))
        shapes.append(_beta_shapes(group, prior.share_concentration))
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
        beta_shapes=np.concatenate(shapes, axis=1),
        binary=_singles(prior.groups, slices, GroupKind.BINARY),
        number=_singles(prior.groups, slices, GroupKind.NUMBER),
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


def _beta_shapes(group: Group, concentration: float) -> FloatArray:
    """Return the shapes of the beta priors of a group's coordinates, shape (2, width)."""
    if group.kind is GroupKind.LEVELS:
        left = np.arange(group.size - 1, 0, -1.0)
        return concentration * np.array([np.ones_like(left), left])
    return np.array([[concentration, 1.0]] * 2)[:, : _num_coordinates(group)]


def _singles(groups: Sequence[Group], slices: Sequence[slice], kind: GroupKind) -> Singles:
    """Return the columns of one kind and where their coordinates are."""
    found = [(g.start, at.start) for g, at in zip(groups, slices, strict=True) if g.kind is kind]
    columns, at = np.array(found, dtype=np.intp).reshape(-1, 2).T
    return Singles(columns, at)


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
    x = x[:, : layout.num_margins]
    a, b = layout.beta_shapes
    share, log_share, log_rest = expit(x), log_expit(x), log_expit(-x)
    z = (x[:, 0] - layout.weight_centre) / prior.log_scale_std
    log_prior = log_share @ a + log_rest @ b - 0.5 * np.square(z)
    gradient = a * (1.0 - share) - b * share
    gradient[:, 0] = -z / prior.log_scale_std
    weight = np.exp(x[:, 0])
    root = np.sqrt(weight)
    for singles in (layout.binary, layout.number):
        column, first = singles
        mean[:, column] = share[:, first]
        log_variance = log_share[:, first] + log_rest[:, first]
        if singles is layout.number:
            log_variance += log_share[:, first + 1]
        diagonal[:, column] = root[:, None] * np.exp(0.5 * log_variance)
    for group, at, order in zip(prior.groups, layout.slices, layout.order, strict=True):
        if group.kind is GroupKind.CONSTANT:
            mean[:, group.start] = 1.0
        elif group.kind is GroupKind.LEVELS:
            shares = _break_stick(log_share[:, at], log_rest[:, at])
            mean[:, order], right[:, order] = shares, np.sqrt(shares)
            diagonal[:, order] = root[:, None] * right[:, order]
            left[:, order] = root[:, None] * shares
    return Margins(weight, mean, diagonal, left, right, log_prior, gradient)


def _break_stick(log_share: FloatArray, log_rest: FloatArray) -> FloatArray:
    """Return L shares from the logs of L - 1 parts and of their complements, shape (C, L).

    Each takes its part of what the former left.
    """
    nothing = np.zeros((log_share.shape[0], 1))
    log_left = np.concatenate([nothing, np.cumsum(log_rest, axis=1)], axis=1)
    shares: FloatArray = np.exp(log_left + np.concatenate([log_share, nothing], axis=1))
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
    for singles in (layout.binary, layout.number):
        column, first = singles
        mean, by_log_sd = parts.mean[:, column], by.diagonal[:, column] * parts.diagonal[:, column]
        by_log_weight += 0.5 * by_log_sd.sum(axis=1)
        gradient[:, first] = by.mean[:, column] * mean * (1.0 - mean) + by_log_sd * (0.5 - mean)
        if singles is layout.number:
            gradient[:, first + 1] = 0.5 * by_log_sd * expit(-x[:, first + 1])
    for group, at, order in zip(layout.prior.groups, layout.slices, layout.order, strict=True):
        if group.kind is not GroupKind.LEVELS:
            continue
        share, q = parts.mean[:, order], parts.right[:, order]
        by_diagonal, by_left = by.diagonal[:, order], by.left[:, order]
        by_log_weight += 0.5 * root * (by_diagonal * q + by_left * share).sum(axis=1)
        by_q = root[:, None] * by_diagonal + by.right[:, order]
        by_share = by.mean[:, order] + root[:, None] * by_left
        by_log_share = by_share * share + 0.5 * by_q * q
        tail = np.cumsum(by_log_share[:, ::-1], axis=1)[:, ::-1]
        logits = x[:, at]
        gradient[:, at] = by_log_share[:, :-1] * expit(-logits) - tail[:, 1:] * expit(logits)
    gradient[:, 0] = by_log_weight
    return gradient
