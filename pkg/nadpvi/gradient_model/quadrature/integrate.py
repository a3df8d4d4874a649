"""Integrals of the collapsed density to a stated error: panels in v, the trapezoid rule in x.

Each coordinate gets panels in v, halved where the Gauss and Kronrod rules disagree, and a uniform grid in x,
made finer where its even and odd nodes disagree. Coordinates that need the same number of x nodes are kept
together.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.quadrature.columns import Columns, density_on_grid
from nadpvi.gradient_model.quadrature.groups import (
    Finished,
    Panels,
    Quadrature,
    by_panel_count,
    panel_nodes,
)
from nadpvi.gradient_model.quadrature.layout import Landmarks, Layout, make_layout
from nadpvi.gradient_model.quadrature.rules import panel_rule

__all__ = ["MASS_TOLERANCE", "integrate"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

MASS_TOLERANCE = 1e-6
_FIRST_X_NODES = 27
_MAX_X_NODES = 2000
_MAX_SPLITS = 80
_MAX_PANELS = 2000
_MAX_WIDENINGS = 6
# Numbers in one block of the product grid: several such arrays fit the second-level cache.
_BLOCK = 1 << 16


class _Errors(NamedTuple):
    """Estimated errors of the mass relative to it, shape (D,)."""

    by_v: FloatArray
    by_x: FloatArray
    outside: FloatArray

    @property
    def total(self) -> FloatArray:
        """Sum of the three, shape (D,)."""
        return self.by_v + self.by_x + self.outside


def _x_grid(layout: Layout, size: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights in x; at x = 0 half a weight, because the density is even there."""
    if size == 1:
        return np.zeros((layout.x_low.size, 1)), np.ones((layout.x_low.size, 1))
    step = (layout.x_high - layout.x_low) / (size - 1)
    nodes = layout.x_low[:, None] + step[:, None] * np.arange(size)
    weights = np.repeat(step[:, None], size, axis=1)
    weights[:, 0] = np.where(layout.x_low == 0.0, 0.5 * step, step)
    return nodes, weights


def _evaluate(
    columns: Columns,
    grid: tuple[FloatArray, FloatArray],
    reference: FloatArray,
    *,
    panels: tuple[IntArray, FloatArray, FloatArray],
) -> Panels:
    """Evaluate a list of panels, in blocks."""
    owner, low, high = panels
    rule, (x, weights) = panel_rule(), grid
    v_density = np.empty((owner.size, rule.nodes.size))
    x_density = np.empty((owner.size, x.shape[1]))
    block = max(1, _BLOCK // (rule.nodes.size * x.shape[1]))
    for first in range(0, owner.size, block):
        part = slice(first, first + block)
        who = owner[part]
        v = panel_nodes(low[part], high[part])
        values = density_on_grid(columns.take(who), v=v, x=x[who], log_reference=reference[who])
        half = 0.5 * (high[part] - low[part])
        v_density[part] = np.matmul(values, weights[who][:, :, None])[:, :, 0]
        x_density[part] = half[:, None] * np.matmul(rule.weights, values)
    half = 0.5 * (high - low)
    mass = half * (v_density @ rule.weights)
    error = np.abs(mass - half * (v_density @ rule.gauss_weights))
    return Panels(owner, low, high, v_density, x_density, mass, error)


def _adapt(
    columns: Columns, layout: Layout, grid: tuple[FloatArray, FloatArray], *, tolerance: float
) -> Panels:
    """Evaluate the first panels and halve those that fall short, until the errors in v add up to little."""
    lows, highs = layout.edges[:, :-1], layout.edges[:, 1:]
    owner, column = np.nonzero(highs > lows)
    todo = (owner, lows[owner, column], highs[owner, column])
    kept = _evaluate(columns, grid, layout.log_top, panels=todo)
    for _ in range(_MAX_SPLITS):
        mass, error, count = (
            np.bincount(kept.owner, weights=values, minlength=columns.size)
            for values in (kept.mass, kept.error, np.ones(kept.owner.size))
        )
        is_short = (error > tolerance * mass) & (count < _MAX_PANELS)
        share = tolerance * mass / (2.0 * count)
        middle = 0.5 * (kept.low + kept.high)
        can_halve = (kept.low < middle) & (middle < kept.high)
        to_halve = is_short[kept.owner] & (kept.error > share[kept.owner]) & can_halve
        if not to_halve.any():
            break
        old, middle = kept.take(to_halve), middle[to_halve]
        halves = (
            np.concatenate([old.owner, old.owner]),
            np.concatenate([old.low, middle]),
            np.concatenate([middle, old.high]),
        )
        kept = kept.take(~to_halve).join(_evaluate(columns, grid, layout.log_top, panels=halves))
    return kept.take(np.lexsort((kept.low, kept.owner)))


def _errors(
    columns: Columns, layout: Layout, grid: tuple[FloatArray, FloatArray], panels: Panels
) -> tuple[FloatArray, FloatArray, _Errors]:
    """Return mass, marginal density of x, and the three parts of the error."""
    size, (x, weights) = columns.size, grid
    starts = np.searchsorted(panels.owner, np.arange(size))
    mass = np.add.reduceat(panels.mass, starts)
    by_v = np.add.reduceat(panels.error, starts)
    x_density = np.add.reduceat(panels.x_density, starts, axis=0)
    length = panels.high - panels.low
    last = np.append(starts[1:], panels.owner.size) - 1
    # a density that falls log-concavely has less mass beyond an end than one panel of that height
    outside = panels.v_density[starts, 0] * length[starts] + panels.v_density[last, -1] * length[last]
    by_x = np.zeros(size)
    if columns.use_tau:
        weighted = weights * x_density
        by_x = np.abs(weighted[:, ::2].sum(axis=1) - weighted[:, 1::2].sum(axis=1))
        step = (layout.x_high - layout.x_low) / (x.shape[1] - 1)
        ends = x_density[:, -1] + np.where(layout.x_low == 0.0, 0.0, x_density[:, 0])
        outside = outside + 4.0 * step * ends
    return mass, x_density, _Errors(by_v / mass, by_x / mass, outside / mass)


def _widened(layout: Layout, is_outside: NDArray[np.bool_]) -> Layout:
    """Return a layout with ranges that reach half as far again for the marked coordinates."""
    room = np.where(is_outside, 0.25 * (layout.x_high - layout.x_low), 0.0)
    edges = layout.edges.copy()
    high = np.nanmax(edges, axis=1)
    spread = np.where(is_outside, 0.25 * (high - edges[:, 0]), 0.0)
    further = np.where(is_outside[:, None], np.stack([edges[:, 0] - spread, high + spread], axis=1), np.nan)
    return layout._replace(
        x_low=np.maximum(layout.x_low - room, 0.0),
        x_high=layout.x_high + room,
        edges=np.sort(np.concatenate([edges, further], axis=1), axis=1),
    )


def integrate(
    columns: Columns, landmarks: Landmarks, *, places: IntArray, tolerance: float = MASS_TOLERANCE
) -> list[Quadrature]:
    """Return the quadratures of all coordinates, those of equal size together, but of those without a mass.

    Parameters
    ----------
    columns : Columns
    landmarks : Landmarks
    places : ndarray, shape (D,)
        Which coordinates of the model they are; kept with the result.
    tolerance : float
        Largest estimated error of the total mass, relative to it. `Quadrature.error` exceeds it where a
        coordinate cannot be resolved.
    """
    layout = make_layout(columns, landmarks)
    size = _FIRST_X_NODES if columns.use_tau else 1
    found: list[Quadrature] = []
    todo = [(np.arange(columns.size), layout, size, 0)]
    while todo:
        rows, layout, size, tries = todo.pop()
        part = columns.take(rows)
        grid = _x_grid(layout, size)
        panels = _adapt(part, layout, grid, tolerance=0.5 * tolerance)
        mass, x_density, errors = _errors(part, layout, grid, panels)
        is_outside = (errors.outside > 0.2 * tolerance) & (tries < _MAX_WIDENINGS)
        is_coarse = (errors.by_x > 0.2 * tolerance) & (_finer(size) <= _MAX_X_NODES) & ~is_outside
        is_ready = ~is_outside & ~is_coarse & np.isfinite(mass) & (mass > 0)
        if is_ready.any():
            finished = Finished(*grid, x_density, layout.log_top, mass, errors.total)
            found += by_panel_count(part, places[rows], panels, finished, is_ready)
        if is_outside.any():
            wider = _widened(layout, is_outside)
            todo.append((rows[is_outside], _take_layout(wider, is_outside), size, tries + 1))
        if is_coarse.any():
            todo.append((rows[is_coarse], _take_layout(layout, is_coarse), _finer(size), tries))
    return found


def _finer(size: int) -> int:
    """Return the next number of x nodes, half as many again and odd."""
    return (size + size // 2) | 1


def _take_layout(layout: Layout, index: NDArray[np.bool_]) -> Layout:
    """Return the layout of the coordinates at `index`."""
    return Layout(*(value[index] for value in layout))
