"""Where the mass of each coordinate lies: the range of x, and first panels in v, from modes and contours."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.mode import Modes
from nadpvi.gradient_model.precisions import marginal_sd
from nadpvi.gradient_model.quadrature.columns import Columns, log_density_on_grid, slope_terms
from nadpvi.gradient_model.slopes import estimated_v, information_on_v, slope_precision

__all__ = ["Landmarks", "Layout", "has_density", "make_landmarks", "make_layout"]

FloatArray = NDArray[np.float64]

# Log density below its maximum at which a range ends; a normal density has 3e-10 of its mass beyond 20.
_OUTER_DROP = 20.0
# The same for the inner edges of panels: at 1.2 and 3.5 sds of a normal density.
_INNER_DROPS = (6.0, 0.7)
_ZOOM_NODES = 17
_SETTLED = 0.75
# Share of a step of the zoom that is kept beyond a chord's crossing.
_RESERVE = 0.25
_RIDGE_NODES = 9
_MAX_ZOOMS = 40
_MAX_DOUBLINGS = 200
_BISECTIONS = 4
# Prior sds, and sds of the residuals, beyond which nothing is looked for.
_TAU_REACH = 8.0
# A panel much longer than this does not see the bend of softplus at 0, which is a few units long.
_BEND_LENGTH = 40.0
_BEND_END = 4.0
# Size of a log density beyond which its last digits are worth more than the mass may be off by.
_LARGEST_LOG = 1e13
# Share of the slope's smallest scale below which it is as good as 0.
_NO_SLOPE = 1e-5


class Landmarks(NamedTuple):
    """Points in v to look from, shape (D, C), the likeliest mode first, and its sd, shape (D,)."""

    points: FloatArray
    modes: FloatArray
    sd: FloatArray

    def take(self, index: NDArray[np.intp] | slice) -> "Landmarks":
        """Return the landmarks of the coordinates at `index`."""
        return Landmarks(self.points[index], self.modes[index], self.sd[index])


class Layout(NamedTuple):
    """Range of x and edges of v's first panels.

    Attributes
    ----------
    x_low, x_high : ndarray, shape (D,)
        x_low is 0 exactly where the density at x = 0 counts.
    edges : ndarray, shape (D, E)
        Ascending; NaN where a coordinate has fewer.
    log_top : ndarray, shape (D,)
        About the largest log density.
    """

    x_low: FloatArray
    x_high: FloatArray
    edges: FloatArray
    log_top: FloatArray


def make_landmarks(columns: Columns, modes: Modes) -> Landmarks:
    """Return where to look for each coordinate's mass."""
    precision = slope_precision(
        s_pp=columns.s_pp, noise_std=columns.noise_std, sampling_rate=columns.sampling_rate
    )
    information = information_on_v(modes.v, precision=precision)
    fallback = 1.0 / np.sqrt(1.0 / np.square(columns.v_prior_sd) + information)
    sd = np.where(modes.has_converged, _marginal_sd(modes, fallback), fallback)
    v = modes.v
    around = [v + k * sd for k in (-6.0, -3.5, 3.5, 6.0)]
    starts = list(modes.from_starts)
    by_trace = estimated_v(columns.slope / columns.sampling_rate, precision=precision)
    points = np.stack([v, *around, *starts, columns.v_prior_mean, by_trace], axis=1)
    return Landmarks(points, np.stack([v, *starts], axis=1), sd)


def has_density(columns: Columns, landmarks: Landmarks) -> NDArray[np.bool_]:
    """Tell where the landmarks are finite and the density at the likeliest is one, shape (D,)."""
    x = np.zeros((columns.size, 1))
    if columns.use_tau:
        x = np.concatenate(
            [x, np.arcsinh(_residual_sd(columns, landmarks) / columns.noise_std)[:, None]], axis=1
        )
    values = log_density_on_grid(columns, v=landmarks.points, x=x)
    top = np.where(np.isnan(values), -np.inf, values).max(axis=(1, 2))
    is_finite = np.isfinite(landmarks.points).all(axis=1) & np.isfinite(landmarks.sd)
    return np.asarray(is_finite & (np.abs(top) < _LARGEST_LOG), dtype=np.bool_)


def _residual_sd(columns: Columns, landmarks: Landmarks) -> FloatArray:
    """Return the largest sd of the residuals at any of the landmarks, shape (D,)."""
    by_v = slope_terms(columns, landmarks.points)
    squares = columns.residual + (by_v.excess_squared + columns.num_steps * by_v.mean_squared).max(axis=1)
    return np.asarray(np.sqrt(squares / columns.num_steps))


def _marginal_sd(modes: Modes, fallback: FloatArray) -> FloatArray:
    """Return the sd of v under the normal approximation at the mode."""
    safe = np.where(modes.has_converged[:, None, None], modes.precision, np.eye(modes.precision.shape[1]))
    sd = marginal_sd(safe, index=0)
    return np.where(np.isfinite(sd) & (sd > 0), sd, fallback)


def make_layout(columns: Columns, landmarks: Landmarks) -> Layout:
    """Return the ranges and first panels of each coordinate."""
    x_low, x_high = _x_range(columns, landmarks)
    x = x_low[:, None] + (x_high - x_low)[:, None] * np.linspace(
        0.0, 1.0, _RIDGE_NODES if columns.use_tau else 1
    )
    heights = _ridge(columns, landmarks.points, x)
    best = np.argmax(heights, axis=1)[:, None]
    top = np.take_along_axis(heights, best, axis=1)
    outer = _OUTER_DROP + np.log1p(columns.v_prior_sd / landmarks.sd)
    counts = heights > top - outer[:, None]
    start = np.take_along_axis(landmarks.points, best, axis=1)
    left = np.where(counts, landmarks.points, np.inf).min(axis=1, keepdims=True)
    right = np.where(counts, landmarks.points, -np.inf).max(axis=1, keepdims=True)
    drops = np.broadcast_to(_INNER_DROPS, (columns.size, 2))
    edges = _contours(
        columns,
        x,
        start=np.concatenate([left, start, start, start, start, right], axis=1),
        floor=top - np.concatenate([outer[:, None], drops, drops[:, ::-1], outer[:, None]], axis=1),
        reach=landmarks.sd[:, None] * np.array([-6.5, -3.5, -1.2, 1.2, 3.5, 6.5]),
    )
    extra = _extra_edges(columns, edges, landmarks.modes)
    return Layout(x_low, x_high, np.sort(np.concatenate([edges, extra], axis=1), axis=1), top[:, 0])


def _extra_edges(columns: Columns, edges: FloatArray, modes: FloatArray) -> FloatArray:
    """Return further edges, NaN where not needed: modes apart from the main one, and the region about v = 0.

    There the density changes over the bend of softplus, and over the slopes at which phi_star's prior stops
    mattering; a panel that is long compared with both would show neither.
    """
    low, high = edges[:, :1], edges[:, -1:]
    is_apart = ((modes < edges[:, 2:3]) | (modes > edges[:, 3:4])) & (modes > low) & (modes < high)
    by_mean = columns.noise_std / (math.sqrt(columns.num_steps) * columns.phi_star_prior_sd)
    smallest = np.minimum(by_mean, columns.noise_std / np.sqrt(columns.s_pp)) / columns.sampling_rate
    points = np.stack(
        [
            np.minimum(np.log(_NO_SLOPE * smallest), -_BEND_END),
            np.zeros(columns.size),
            np.maximum(by_mean / columns.sampling_rate, _BEND_END),
        ],
        axis=1,
    )
    is_needed = (high - low > _BEND_LENGTH) & (points > low) & (points < high)
    return np.concatenate([np.where(is_apart, modes, np.nan), np.where(is_needed, points, np.nan)], axis=1)


def _ridge(columns: Columns, v: FloatArray, x: FloatArray) -> FloatArray:
    """Return the largest log density over x at each v, shape (D, P)."""
    ridge: FloatArray = log_density_on_grid(columns, v=v, x=x).max(axis=2)
    return ridge


def _x_range(columns: Columns, landmarks: Landmarks) -> tuple[FloatArray, FloatArray]:
    """Zoom onto the range of x that counts at any of the landmarks."""
    low = np.zeros(columns.size)
    if not columns.use_tau:
        return low, low
    # no tau is likely beyond both what its prior allows and what the trace asks for
    reach = columns.tau_prior_scale + _residual_sd(columns, landmarks)
    high = np.arcsinh(_TAU_REACH * reach / columns.noise_std)
    steps = np.linspace(0.0, 1.0, _ZOOM_NODES)
    for _ in range(_MAX_ZOOMS):
        x = low[:, None] + (high - low)[:, None] * steps
        envelope = log_density_on_grid(columns, v=landmarks.points, x=x).max(axis=1)
        excess = envelope - envelope.max(axis=1, keepdims=True) + _OUTER_DROP
        new_low, new_high = _crossing(x, excess), _crossing(x[:, ::-1], excess[:, ::-1])
        is_settled = new_high - new_low > _SETTLED * (high - low)
        low, high = new_low, new_high
        if is_settled.all():
            break
    return low, high


def _crossing(x: FloatArray, excess: FloatArray) -> FloatArray:
    """Return where the excess first turns positive along each row, by its chord; the row's start if there.

    The chord of a concave function turns positive too late, so some of the step is kept in reserve.
    """
    after = np.argmax(excess > 0, axis=1)[:, None]
    before = np.maximum(after - 1, 0)
    near, far = (np.take_along_axis(x, place, axis=1)[:, 0] for place in (after, before))
    up, down = (np.take_along_axis(excess, place, axis=1)[:, 0] for place in (after, before))
    share = np.divide(up, up - down, out=np.zeros_like(up), where=up > down)
    return near + np.minimum(share + _RESERVE, 1.0) * (far - near)


def _contours(
    columns: Columns, x: FloatArray, *, start: FloatArray, floor: FloatArray, reach: FloatArray
) -> FloatArray:
    """Return points just beyond where the ridge falls below `floor`, outward from `start`; shape (D, P)."""
    near, far = np.zeros_like(reach), reach
    for _ in range(_MAX_DOUBLINGS):
        is_inside = _ridge(columns, start + far, x) > floor
        if not is_inside.any():
            break
        near, far = np.where(is_inside, far, near), np.where(is_inside, 2.0 * far, far)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (near + far)
        is_inside = _ridge(columns, start + middle, x) > floor
        near, far = np.where(is_inside, middle, near), np.where(is_inside, far, middle)
    return start + far
