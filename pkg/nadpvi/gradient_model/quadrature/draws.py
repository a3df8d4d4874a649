"""Independent draws of (phi_star, v, x) from a finished quadrature, in place of standard normal numbers.

x = asinh(tau / noise_std) comes from its marginal, v from its conditional at one of the two nodes of x beside
it, phi_star from its normal conditional. Maps and the spacing of the nodes keep the distribution functions of
the draws within 2e-4 of the posterior's, which shows only beyond some 10**6 draws.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.bijectors import softplus
from nadpvi.gradient_model.quadrature.columns import conditional_delta_moments, density_on_grid
from nadpvi.gradient_model.quadrature.groups import Quadrature
from nadpvi.gradient_model.quadrature.maps import (
    NormalMap,
    Quantiles,
    apply_map,
    knot_map,
    map_error,
    panel_quantiles,
    take_rows,
    uniform_map,
    uniform_quantiles,
)

__all__ = [
    "DrawArrays",
    "NoiseNodes",
    "conditional_v",
    "draw_group",
    "fill_random",
    "needs_knots",
    "noise_nodes",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

# Numbers drawn together.
_BLOCK = 1 << 15
# Nodes of log s at which the conditional of v is tabulated: from normal score -4 of x to 4, the 6e-5 of the
# draws beyond take the last; at most this far apart, while there are no more than 129.
_SCORE_REACH = 4.0
_SPACING = 0.04
_MOST_PIECES = 128
# Largest error of a map, as a probability, that uniform pieces may have.
_MAP_TOLERANCE = 3e-5
# Between normal scores -4 and 4, the largest distance of points on which a map may rest.
_BULK = 4.0
_MAX_GAP = 0.75


class DrawArrays(NamedTuple):
    """Draws of all coordinates, shape (D, N), made in place from random numbers: one row a coordinate.

    Attributes
    ----------
    phi_star, v, tau : ndarray
        Standard normal at first. Without tau, `tau` is empty.
    curvature : ndarray
        With tau, uniform at first: it chooses the node of x.
    """

    phi_star: FloatArray
    curvature: FloatArray
    v: FloatArray
    tau: FloatArray

    def take(self, index: IntArray | slice) -> "DrawArrays":
        """Return the rows at `index`: views for a slice, else copies."""
        return DrawArrays(self.phi_star[index], self.curvature[index], self.v[index], self.tau[index])


def fill_random(streams: tuple[np.random.Generator, ...], drawn: DrawArrays) -> None:
    """Fill in the next coordinates' random numbers: each stream row after row, whatever the chunks are."""
    for_v, for_delta, for_x, for_node = streams
    for_v.standard_normal(out=drawn.v)
    for_delta.standard_normal(out=drawn.phi_star)
    if drawn.tau.size:
        for_x.standard_normal(out=drawn.tau)
        for_node.random(out=drawn.curvature)


class NoiseNodes(NamedTuple):
    """K nodes of log cosh(x) = log(s / noise_std), uniform from `low` in steps of `step`, shape (d,).

    v is drawn from the conditional at one of the two nodes beside x, chosen at random with the weights of
    linear interpolation. Given x, v's distribution changes with log s through its width, which is at most
    proportional to s; so the choice moves the distribution function by less than step**2 / 20, which is below
    1e-4.
    """

    low: FloatArray
    step: FloatArray
    size: int

    @property
    def x(self) -> FloatArray:
        """The nodes as x, shape (d, K)."""
        log_s = self.low[:, None] + self.step[:, None] * np.arange(self.size)
        return np.arccosh(np.exp(np.maximum(log_s, 0.0)))


def noise_nodes(x_map: NormalMap) -> list[tuple[IntArray, NoiseNodes]]:
    """Return the nodes of each coordinate, those that need about equally many together."""
    rows = np.arange(x_map.coefficients[0].shape[0])[:, None]
    ends = apply_map(x_map, rows, np.broadcast_to([-_SCORE_REACH, _SCORE_REACH], (rows.size, 2)))
    # log(cosh(x)) without overflow
    low, high = (np.abs(ends) + np.log1p(np.exp(-2.0 * np.abs(ends))) - math.log(2.0)).T
    wanted = np.clip((high - low) / _SPACING, 1.0, _MOST_PIECES)
    pieces = 2 ** np.ceil(np.log2(wanted)).astype(np.intp)
    step = np.maximum((high - low) / pieces, np.finfo(np.float64).eps)
    found = []
    for count in np.unique(pieces):
        some = np.flatnonzero(pieces == count)
        found.append((some, NoiseNodes(low[some], step[some], int(count) + 1)))
    return found


def conditional_v(group: Quadrature, x: FloatArray, *, is_fine: bool) -> Quantiles:
    """Return the quantiles of v given each x (d, K), d * K rows."""
    (size, panels), count = group.half_width.shape, x.shape[1]
    values = density_on_grid(
        group.columns, v=group.v.reshape(size, -1), x=x, log_reference=group.log_reference
    )
    density = np.moveaxis(values, 2, 1).reshape(size, count, panels, -1)
    low, half = (
        np.broadcast_to(value[:, None], (size, count, panels)) for value in (group.low, group.half_width)
    )
    known = panel_quantiles(low, half, density, is_fine=is_fine)
    return Quantiles(*(value.reshape(size * count, -1) for value in known))


def needs_knots(known: Quantiles, made: NormalMap) -> NDArray[np.bool_]:
    """Tell which distributions uniform pieces do not serve: known points missed, or far apart."""
    is_bulk = (known.z[:, :-1] < _BULK) & (known.z[:, 1:] > -_BULK)
    has_gap = (np.diff(known.z, axis=1) * is_bulk).max(axis=1) > _MAX_GAP
    return np.asarray(has_gap | (map_error(made, known) > _MAP_TOLERANCE), dtype=np.bool_)


def draw_group(group: Quadrature, drawn: DrawArrays) -> None:
    """Turn random numbers into the draws of one group of coordinates."""
    known = panel_quantiles(group.low, group.half_width, group.v_density)
    made = uniform_map(known)
    is_hard = needs_knots(known, made)
    for rows, is_fine in ((np.flatnonzero(~is_hard), False), (np.flatnonzero(is_hard), True)):
        if not rows.size:
            continue
        part = group.take(rows)
        if group.columns.use_tau:
            _draw_with_tau(part, drawn, is_fine=is_fine)
        elif is_fine:
            fine = panel_quantiles(part.low, part.half_width, part.v_density, is_fine=True)
            _fill(part, drawn, v_map=knot_map(fine), x_map=None, nodes=None)
        else:
            _fill(part, drawn, v_map=take_rows(made, rows), x_map=None, nodes=None)


def _draw_with_tau(group: Quadrature, drawn: DrawArrays, *, is_fine: bool) -> None:
    """Draw the coordinates of a group that has tau, through one kind of map."""
    x_map = uniform_map(uniform_quantiles(group.x, group.x_density))
    make = knot_map if is_fine else uniform_map
    for rows, nodes in noise_nodes(x_map):
        part = group.take(rows)
        v_map = make(conditional_v(part, nodes.x, is_fine=is_fine))
        _fill(part, drawn, v_map=v_map, x_map=take_rows(x_map, rows), nodes=nodes)


def _fill(
    group: Quadrature,
    drawn: DrawArrays,
    *,
    v_map: NormalMap,
    x_map: NormalMap | None,
    nodes: NoiseNodes | None,
) -> None:
    """Turn random numbers into draws, a block of coordinates at a time."""
    block = max(1, _BLOCK // drawn.v.shape[1])
    for first in range(0, group.places.size, block):
        rows = np.arange(first, min(first + block, group.places.size))
        columns, target = group.columns.take(rows), group.places[rows]
        is_run = target[-1] - target[0] == target.size - 1
        where = slice(target[0], target[-1] + 1) if is_run else target
        mine = drawn.take(where)
        place = rows[:, None]
        s_squared = np.square(columns.noise_std)[:, None]
        if x_map is not None and nodes is not None:
            x = apply_map(x_map, place, mine.tau)
            np.multiply(columns.noise_std[:, None], np.sinh(x, out=x), out=mine.tau)
            ratio = 1.0 + np.square(x)
            s_squared = s_squared * ratio
            place = place * nodes.size + _choose(nodes, rows, ratio=ratio, uniform=mine.curvature)
        v = apply_map(v_map, place, mine.v)
        curvature = softplus(v)
        mean, precision = conditional_delta_moments(
            columns, c=columns.sampling_rate * curvature, variance=s_squared
        )
        deviation = mine.phi_star
        deviation /= np.sqrt(precision, out=precision)
        deviation += mean
        mine.v[...], mine.curvature[...] = v, curvature
        if not is_run:
            for whole, some in zip(drawn, mine, strict=True):
                whole[where] = some


def _choose(nodes: NoiseNodes, rows: IntArray, *, ratio: FloatArray, uniform: FloatArray) -> IntArray:
    """Return one of the two nodes beside each (s / noise_std)^2, by linear weights."""
    position = np.log(ratio)
    position *= (0.5 / nodes.step[rows])[:, None]
    position -= (nodes.low / nodes.step)[rows][:, None]
    position += uniform
    np.clip(position, 0.0, nodes.size - 1.0, out=position)
    return position.astype(np.intp)
