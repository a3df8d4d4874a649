"""Maps from a standard normal z to a distribution known on quadrature nodes: t = F^-1(Phi(z)).

The map of a nearly normal distribution is nearly linear, so cubic Hermite pieces between uniform z carry it
with little error and no search. Where they do not (a density with a gap), the quadrature's own nodes are
used, and a search finds the piece.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from nadpvi.gradient_model.quadrature.rules import fine_nodes, panel_rule

__all__ = [
    "NormalMap",
    "Quantiles",
    "apply_map",
    "knot_map",
    "map_error",
    "panel_quantiles",
    "take_rows",
    "uniform_map",
    "uniform_quantiles",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

# Phi leaves 2e-9 beyond; a draw from there is moved to the end of the map.
_REACH = 6.0
_STEP = 0.25
_FARTHEST = 9.0
_SMALLEST = 1e-300
_STENCIL = 6
_REFINEMENT = 8
_HALVINGS = 32
# A row's place in a flat sorted array is z plus this many times its number.
_ROW_OFFSET = 4.0 * _FARTHEST


class Quantiles(NamedTuple):
    """Points of the map t(z), one row a distribution; arrays of shape (R, M).

    Attributes
    ----------
    z : ndarray
        Ascending, in [-9, 9].
    t : ndarray
        The distribution's quantile at probability Phi(z).
    density : ndarray
        Normalised density at t.
    """

    z: FloatArray
    t: FloatArray
    density: FloatArray


class NormalMap(NamedTuple):
    """Cubic pieces of R maps, K pieces each.

    Attributes
    ----------
    coefficients : tuple of 4 ndarrays, shape (R, K)
        Of f^0 to f^3, where f in [0, 1] runs along the piece.
    knots : ndarray, shape (R, K + 1), or None
        Ends of the pieces; None stands for uniform pieces of [-6, 6].
    """

    coefficients: tuple[FloatArray, FloatArray, FloatArray, FloatArray]
    knots: FloatArray | None


def _normal_scores(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Return z with Phi(z) = lower / (lower + upper), accurate in both tails."""
    total = lower + upper
    smaller = np.minimum(lower, upper) / total
    score = -ndtri(np.maximum(smaller, _SMALLEST))
    signed = np.where(lower < upper, -score, score)
    return np.maximum.accumulate(np.clip(signed, -_FARTHEST, _FARTHEST), axis=-1)


def panel_quantiles(
    low: FloatArray, half_width: FloatArray, density: FloatArray, *, is_fine: bool = False
) -> Quantiles:
    """Return the quantiles of densities known at the nodes of panels.

    Parameters
    ----------
    low, half_width : ndarray, shape (R, P)
        Lower end and half the length of each panel.
    density : ndarray, shape (R, P, 15)
    is_fine : bool
        Whether to add points towards the panels' ends, where z runs away if the density stops there.
    """
    rule, fine = panel_rule(), fine_nodes()
    nodes, running = (fine.nodes, fine.running) if is_fine else (rule.nodes, rule.running)
    mass = half_width * (density @ rule.weights)
    before = np.cumsum(mass, axis=-1) - mass
    after = np.cumsum(mass[..., ::-1], axis=-1)[..., ::-1] - mass
    lower = before[..., None] + half_width[..., None] * (density @ running.T)
    # the points are symmetric: what is left of one, seen from the other end, is what is right of its mirror
    upper = after[..., None] + half_width[..., None] * (density @ running[::-1, ::-1].T)
    t = low[..., None] + half_width[..., None] * (1.0 + nodes)
    height = np.maximum(density @ fine.values.T, 0.0) if is_fine else density
    shape = (*mass.shape[:-1], -1)
    return Quantiles(
        _normal_scores(np.maximum(lower, 0.0).reshape(shape), np.maximum(upper, 0.0).reshape(shape)),
        t.reshape(shape),
        height.reshape(shape) / mass.sum(axis=-1)[..., None],
    )


@cache
def _refining(size: int) -> FloatArray:
    """Return the matrix that interpolates values at `size` uniform nodes to a grid 8 times finer."""
    fine = np.arange((size - 1) * _REFINEMENT + 1) / _REFINEMENT
    first = np.clip(np.floor(fine).astype(np.intp) - _STENCIL // 2 + 1, 0, size - _STENCIL)
    matrix = np.zeros((fine.size, size))
    offsets = np.arange(_STENCIL)
    for i in offsets:
        others = offsets[offsets != i]
        weight = np.prod((fine[:, None] - first[:, None] - others) / (i - others), axis=1)
        matrix[np.arange(fine.size), first + i] = weight
    return matrix


def uniform_quantiles(x: FloatArray, density: FloatArray) -> Quantiles:
    """Return the quantiles of densities known on uniform grids, x and density (R, X), from x's first node on.

    The logarithm is interpolated, which is nearly quadratic, and Simpson's rule integrates.
    """
    log_density = np.log(np.maximum(density, _SMALLEST)) @ _refining(x.shape[1]).T
    fine = np.exp(log_density)
    ends, middles = fine[:, ::2], fine[:, 1::2]
    step = (x[:, -1:] - x[:, :1]) / (ends.shape[1] - 1)
    pieces = step / 6.0 * (ends[:, :-1] + 4.0 * middles + ends[:, 1:])
    lower = np.cumsum(pieces, axis=1)
    upper = np.cumsum(pieces[:, ::-1], axis=1)[:, ::-1]
    upper = np.concatenate([upper[:, 1:], np.zeros((x.shape[0], 1))], axis=1)
    # towards the first node z runs to -infinity, so points get closer there; the density is even about 0
    part = 0.5 ** np.arange(_HALVINGS, 0, -1)
    start, change = fine[:, :1], ends[:, 1:2] - fine[:, :1]
    near = step * part * (start + change * np.square(part) / 3.0)
    z = _normal_scores(
        np.concatenate([near, lower], axis=1), np.concatenate([lower[:, -1:] - near, upper], axis=1)
    )
    place = np.concatenate([part, np.arange(1.0, ends.shape[1])])
    density = np.concatenate([start + change * np.square(part), ends[:, 1:]], axis=1)
    return Quantiles(z, x[:, :1] + step * place, density / lower[:, -1:])


def _pieces(known: Quantiles) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the coefficients of cubic Hermite pieces between the points, kept monotone.

    Slopes are d t / d z = phi(z) / density, at most three times the neighbouring chords'.
    """
    dz, dt = np.diff(known.z, axis=1), np.maximum(np.diff(known.t, axis=1), 0.0)
    normal = np.exp(-0.5 * np.square(known.z)) / np.sqrt(2 * np.pi)
    slope = normal / np.maximum(known.density, _SMALLEST)
    first = np.minimum(slope[:, :-1] * dz, 3.0 * dt)
    last = np.minimum(slope[:, 1:] * dz, 3.0 * dt)
    return known.t[:, :-1], first, 3.0 * dt - 2.0 * first - last, first + last - 2.0 * dt


def _find(knots: FloatArray, row: IntArray, z: FloatArray) -> IntArray:
    """Return which piece of its row each z lies on."""
    shift = _ROW_OFFSET * np.arange(knots.shape[0])
    flat = (knots + shift[:, None]).ravel()
    place = np.searchsorted(flat, z + shift[row], side="right") - 1
    return np.asarray(np.clip(place - row * knots.shape[1], 0, knots.shape[1] - 2), dtype=np.intp)


def knot_map(known: Quantiles) -> NormalMap:
    """Return the map on the known points themselves."""
    return NormalMap(_pieces(known), known.z)


def uniform_map(known: Quantiles) -> NormalMap:
    """Return the map on uniform pieces; `map_error` tells whether they suffice."""
    z = np.linspace(-_REACH, _REACH, round(2 * _REACH / _STEP) + 1)
    rows = np.arange(known.z.shape[0])[:, None]
    place = _find(known.z, rows, np.broadcast_to(z, (rows.size, z.size)))
    start = np.take_along_axis(known.z, place, axis=1)
    length = np.take_along_axis(known.z, place + 1, axis=1) - start
    along = np.divide(z - start, length, out=np.zeros_like(start), where=length > 0)
    along = np.clip(along, 0.0, 1.0)
    c0, c1, c2, c3 = (np.take_along_axis(c, place, axis=1) for c in _pieces(known))
    value = c0 + along * (c1 + along * (c2 + along * c3))
    rise = c1 + along * (2.0 * c2 + along * 3.0 * c3)
    slope = _STEP * np.divide(rise, length, out=np.zeros_like(rise), where=length > 0)
    dt = np.diff(value, axis=1)
    first, last = np.minimum(slope[:, :-1], 3.0 * dt), np.minimum(slope[:, 1:], 3.0 * dt)
    pieces = (value[:, :-1], first, 3.0 * dt - 2.0 * first - last, first + last - 2.0 * dt)
    return NormalMap(pieces, None)


def take_rows(made: NormalMap, rows: IntArray) -> NormalMap:
    """Return the maps of some rows."""
    c0, c1, c2, c3 = (c[rows] for c in made.coefficients)
    return NormalMap((c0, c1, c2, c3), None if made.knots is None else made.knots[rows])


def map_error(made: NormalMap, known: Quantiles) -> FloatArray:
    """Return the largest error of a map at the known points, as a probability, shape (R,)."""
    rows = np.broadcast_to(np.arange(known.z.shape[0])[:, None], known.z.shape)
    off = np.abs(apply_map(made, rows, known.z) - known.t) * known.density
    error: FloatArray = np.where(np.abs(known.z) < _REACH, off, 0.0).max(axis=1)
    return error


def apply_map(made: NormalMap, row: IntArray, z: FloatArray) -> FloatArray:
    """Return t(z) under the map of each row; `row` broadcasts against z."""
    size = made.coefficients[0].shape[1]
    if made.knots is None:
        along = np.clip((z + _REACH) * (1.0 / _STEP), 0.0, size * (1.0 - 1e-15))
        place = along.astype(np.intp)
        along -= place
    else:
        row = np.broadcast_to(row, z.shape)
        place = _find(made.knots, row, z)
        start, end = made.knots[row, place], made.knots[row, place + 1]
        along = np.clip(np.divide(z - start, end - start, out=np.zeros_like(z), where=end > start), 0.0, 1.0)
    place += row * size
    c0, c1, c2, c3 = made.coefficients
    value = c3.ravel().take(place)
    for c in (c2, c1, c0):
        value *= along
        value += c.ravel().take(place)
    return value
