"""Panels of many coordinates as one list, and finished quadratures as rectangular arrays."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.quadrature.columns import Columns
from nadpvi.gradient_model.quadrature.rules import panel_rule

__all__ = ["Finished", "Panels", "Quadrature", "by_panel_count", "panel_nodes"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

# So few coordinates cost less padded than apart.
_FEW = 48


class Quadrature(NamedTuple):
    """The collapsed density of some coordinates at its nodes, divided by exp(log_reference).

    Panels beyond a coordinate's own have length 0.

    Attributes
    ----------
    columns : Columns
        The D coordinates.
    places : ndarray, shape (D,)
        Which coordinates of the model they are.
    v, v_density : ndarray, shape (D, P, 15)
        Nodes in P panels, and the marginal density of v there.
    half_width : ndarray, shape (D, P)
        Half the length of each panel.
    x, x_weights, x_density : ndarray, shape (D, X)
        Nodes in x = asinh(tau / noise_std), their weights, and the marginal density of x there.
    log_reference, mass, error : ndarray, shape (D,)
        Log of the scale, total mass, and the estimated error of the mass relative to it.
    """

    columns: Columns
    places: IntArray
    v: FloatArray
    v_density: FloatArray
    half_width: FloatArray
    x: FloatArray
    x_weights: FloatArray
    x_density: FloatArray
    log_reference: FloatArray
    mass: FloatArray
    error: FloatArray

    @property
    def low(self) -> FloatArray:
        """Lower end of each panel, shape (D, P)."""
        middle: FloatArray = self.v[:, :, self.v.shape[2] // 2]
        return middle - self.half_width

    def take(self, rows: IntArray | slice) -> "Quadrature":
        """Return some of the coordinates."""
        rest = (value[rows] for value in self[2:])
        return Quadrature(self.columns.take(rows), self.places[rows], *rest)


class Panels(NamedTuple):
    """Panels of all coordinates in one list; arrays of length I, and (I, 15) or (I, X) for values."""

    owner: IntArray
    low: FloatArray
    high: FloatArray
    v_density: FloatArray
    x_density: FloatArray
    mass: FloatArray
    error: FloatArray

    def take(self, index: IntArray | NDArray[np.bool_]) -> "Panels":
        """Return the panels at `index`."""
        return Panels(self.owner[index], *(value[index] for value in self[1:]))

    def join(self, other: "Panels") -> "Panels":
        """Return both lists as one."""
        rest = (np.concatenate(pair) for pair in zip(self[1:], other[1:], strict=True))
        return Panels(np.concatenate([self.owner, other.owner]), *rest)


def panel_nodes(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the nodes of panels, shape (..., 15)."""
    half, middle = 0.5 * (high - low), 0.5 * (high + low)
    return middle[..., None] + half[..., None] * panel_rule().nodes


class Finished(NamedTuple):
    """What is known of each coordinate once its panels are final; arrays with D rows."""

    x: FloatArray
    x_weights: FloatArray
    x_density: FloatArray
    log_reference: FloatArray
    mass: FloatArray
    error: FloatArray


def by_panel_count(
    columns: Columns, places: IntArray, panels: Panels, finished: Finished, is_ready: NDArray[np.bool_]
) -> list[Quadrature]:
    """Return the ready coordinates as rectangular arrays, those of similar panel counts together."""
    count = np.bincount(panels.owner, minlength=columns.size)
    starts = np.searchsorted(panels.owner, np.arange(columns.size))
    # counts are rounded up to 5, 6, 8, 12, 16, 24, ...: few groups, and at most a third of a group is padding
    power = 2 ** np.floor(np.log2(np.maximum(count, 4) - 0.5)).astype(np.intp)
    rounded = np.where(count <= power + power // 2, power + power // 2, 2 * power)
    rounded = np.where(count <= 5, 5, rounded)
    if is_ready.sum() <= _FEW:
        rounded = np.full_like(rounded, rounded[is_ready].max())
    found = []
    for width in np.unique(rounded[is_ready]):
        rows = np.flatnonzero(is_ready & (rounded == width))
        place = np.minimum(np.arange(width), count[rows, None] - 1)
        at = starts[rows, None] + place
        is_own = np.arange(width) < count[rows, None]
        low = np.where(is_own, panels.low[at], panels.high[at])
        found.append(
            Quadrature(
                columns.take(rows),
                places[rows],
                panel_nodes(low, panels.high[at]),
                panels.v_density[at],
                0.5 * (panels.high[at] - low),
                *(value[rows] for value in finished),
            )
        )
    return found
