"""Marginal moments, quantiles and densities of a finished quadrature.

v and x have their marginals on the quadrature's own nodes. phi_star is a mixture of normals over every other
node in x and, for its mean and sd, all nodes in v: near a curvature of 0 the normals widen much faster than
their weights change. Its quantiles and density come from the Gauss nodes in v alone, half as many. Where
neighbouring normals hardly overlap (a mean gradient many standard errors from 0), its distribution function
comes from many more nodes in v.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from nadpvi.bijectors import softplus, softplus_derivative
from nadpvi.gradient_model.quadrature.columns import conditional_delta_moments, density_on_grid
from nadpvi.gradient_model.quadrature.groups import Quadrature
from nadpvi.gradient_model.quadrature.maps import (
    Quantiles,
    apply_map,
    knot_map,
    panel_quantiles,
    uniform_quantiles,
)
from nadpvi.gradient_model.quadrature.rules import panel_rule

__all__ = ["Marginal", "curvature_marginal", "phi_star_marginal", "tau_marginal"]

FloatArray = NDArray[np.float64]

# Numbers of a mixture held at once.
_BLOCK = 1 << 18
_MAX_NEWTON = 100
_PROBABILITY_TOLERANCE = 1e-10
# Density grids reach this many sds, or normal scores, to either side.
_GRID_REACH = 4.0
_LEAST_DENSITY = 1e-300
# Distance of neighbouring means, in their sds, from which more nodes are used; and how many, as normal
# scores.
_SHARP = 0.5
_SHARP_NODES = 385
_SHARP_REACH = 6.0
_NO_WEIGHT = 1e-6


class Marginal(NamedTuple):
    """One variable's marginal distributions; shape (d,), and (d, Q) or (d, G) for quantiles and grids."""

    mean: FloatArray
    sd: FloatArray
    quantiles: FloatArray
    grid: FloatArray
    density: FloatArray


def _moments(values: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of values with weights, both (d, M)."""
    total = weights.sum(axis=1)
    mean = (weights * values).sum(axis=1) / total
    variance = (weights * np.square(values - mean[:, None])).sum(axis=1) / total
    return mean, np.sqrt(variance)


def _at_scores(known: Quantiles, scores: FloatArray) -> FloatArray:
    """Return the quantiles at normal scores, shape (d, len(scores))."""
    rows = np.arange(known.z.shape[0])[:, None]
    return apply_map(knot_map(known), rows, np.broadcast_to(scores, (rows.size, scores.size)))


def curvature_marginal(group: Quadrature, *, probabilities: FloatArray, grid_size: int) -> Marginal:
    """Return the marginal of the curvature a = softplus(v)."""
    size = group.places.size
    weights = group.v_density * panel_rule().weights * group.half_width[:, :, None]
    mean, sd = _moments(softplus(group.v).reshape(size, -1), weights.reshape(size, -1))
    if not (probabilities.size or grid_size):
        return Marginal(mean, sd, *(np.empty((size, 0)),) * 3)
    known = panel_quantiles(group.low, group.half_width, group.v_density, is_fine=True)
    v = _at_scores(known, np.linspace(-_GRID_REACH, _GRID_REACH, grid_size))
    values = density_on_grid(group.columns, v=v, x=group.x, log_reference=group.log_reference)
    density = np.matmul(values, group.x_weights[:, :, None])[:, :, 0] / group.mass[:, None]
    return Marginal(
        mean,
        sd,
        softplus(_at_scores(known, ndtri(probabilities))),
        softplus(v),
        density / np.maximum(softplus_derivative(v), _LEAST_DENSITY),
    )


def tau_marginal(group: Quadrature, *, probabilities: FloatArray, grid_size: int) -> Marginal:
    """Return the marginal of tau = noise_std * sinh(x)."""
    noise_std = group.columns.noise_std[:, None]
    mean, sd = _tau_moments(group)
    if not (probabilities.size or grid_size):
        return Marginal(mean, sd, *(np.empty((mean.size, 0)),) * 3)
    known = uniform_quantiles(group.x, group.x_density)
    x = _at_scores(known, np.linspace(-_GRID_REACH, _GRID_REACH, grid_size))
    flat = (group.places.size, -1)
    values = density_on_grid(group.columns, v=group.v.reshape(flat), x=x, log_reference=group.log_reference)
    v_weights = (panel_rule().weights * group.half_width[:, :, None]).reshape(flat)
    density = np.matmul(v_weights[:, None, :], values)[:, 0] / group.mass[:, None]
    return Marginal(
        mean,
        sd,
        noise_std * np.sinh(_at_scores(known, ndtri(probabilities))),
        noise_std * np.sinh(x),
        density / (noise_std * np.cosh(x)),
    )


def _tau_moments(group: Quadrature) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of tau.

    Its square is even in x, but tau itself is odd, and the trapezoid rule from x = 0 on needs the first two
    terms of the Euler-Maclaurin formula.
    """
    step = group.x[:, 1] - group.x[:, 0]
    weights, density = group.x_weights, group.x_density
    mass = (weights * density).sum(axis=1)
    first = (weights * density * np.sinh(group.x)).sum(axis=1)
    start, bend = density[:, 0], 2.0 * (density[:, 1] - density[:, 0])
    term = np.square(step) / 12.0 * (start - (np.square(step) * start + 3.0 * bend) / 60.0)
    mean = (first + np.where(group.x[:, 0] == 0.0, term, 0.0)) / mass
    square = (weights * density * np.square(np.sinh(group.x) - mean[:, None])).sum(axis=1) / mass
    # the deviation's cross term is odd as well: E (t - mean)^2 = E t^2 - mean^2, without cancelling
    spurious = 2.0 * mean * (mean - first / mass)
    noise_std = group.columns.noise_std
    return noise_std * mean, noise_std * np.sqrt(square - spurious)


class _Mixture(NamedTuple):
    """Normal components of delta = phi_star - phi_bar, shape (d, M); weights add to 1."""

    weight: FloatArray
    mean: FloatArray
    root_precision: FloatArray


def _components(
    group: Quadrature, *, v: FloatArray, v_weights: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weights, means and root precisions at v (d, P) and every other x, shape (d, P, X).

    `v_weights` turn the density into the weight of a node; None stands for v at uniform normal scores, whose
    weights are known.
    """
    columns = group.columns
    x, x_weights = group.x[:, ::2], group.x_weights[:, ::2]
    weight = density_on_grid(columns, v=v, x=x, log_reference=group.log_reference)
    weight *= x_weights[:, None, :]
    if v_weights is None:
        scores = np.linspace(-_SHARP_REACH, _SHARP_REACH, v.shape[1])
        weight /= np.maximum(weight.sum(axis=2, keepdims=True), _LEAST_DENSITY)
        weight *= np.exp(-0.5 * np.square(scores))[:, None]
    else:
        weight *= v_weights[:, :, None]
    weight /= weight.sum(axis=(1, 2), keepdims=True)
    variance = np.square(columns.noise_std[:, None] * np.cosh(x))
    c = columns.sampling_rate * softplus(v)
    mean, precision = conditional_delta_moments(columns, c=c[:, :, None], variance=variance[:, None, :])
    return weight, mean, np.sqrt(precision)


def _components_at(
    group: Quadrature, *, weights: FloatArray, nodes: slice
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return `_components` at some nodes of every panel, with their weights on [-1, 1]."""
    v_weights = (weights * group.half_width[:, :, None]).reshape(group.places.size, -1)
    return _components(group, v=group.v[:, :, nodes].reshape(v_weights.shape), v_weights=v_weights)


def _flat(weight: FloatArray, mean: FloatArray, root: FloatArray) -> _Mixture:
    """Return the components of each coordinate in one row."""
    return _Mixture(*(value.reshape(value.shape[0], -1) for value in (weight, mean, root)))


def _is_sharp(weight: FloatArray, mean: FloatArray, root: FloatArray) -> NDArray[np.bool_]:
    """Tell where neighbouring nodes of v have normals that hardly overlap."""
    gaps = np.abs(np.diff(mean, axis=1)) * root[:, 1:]
    counts = weight[:, 1:] + weight[:, :-1] > _NO_WEIGHT
    return np.asarray((gaps * counts > _SHARP).any(axis=(1, 2)), dtype=np.bool_)


def _sharp_mixture(group: Quadrature) -> _Mixture:
    """Return the mixture over many nodes of v, no normal narrower than half the distance to the next."""
    known = panel_quantiles(group.low, group.half_width, group.v_density, is_fine=True)
    v = _at_scores(known, np.linspace(-_SHARP_REACH, _SHARP_REACH, _SHARP_NODES))
    weight, mean, root = _components(group, v=v, v_weights=None)
    gap = np.gradient(mean, axis=1)
    return _flat(weight, mean, 1.0 / np.sqrt(1.0 / np.square(root) + 0.25 * np.square(gap)))


def phi_star_marginal(group: Quadrature, *, probabilities: FloatArray, grid_size: int) -> Marginal:
    """Return the marginal of delta = phi_star - phi_bar, a mixture of normals."""
    size, panels = group.half_width.shape
    nodes = panels * 15 * ((group.x.shape[1] + 1) // 2)
    block = max(1, _BLOCK // (nodes * max(1, probabilities.size, grid_size)))
    parts = [
        _phi_star_block(group.take(slice(first, first + block)), probabilities, grid_size)
        for first in range(0, size, block)
    ]
    return Marginal(*(np.concatenate(values) for values in zip(*parts, strict=True)))


def _phi_star_block(group: Quadrature, probabilities: FloatArray, grid_size: int) -> Marginal:
    """Return moments, quantiles and densities of some coordinates."""
    weight, mean, root = _flat(*_components_at(group, weights=panel_rule().weights, nodes=slice(None)))
    centre = (weight * mean).sum(axis=1)
    spread = np.square(mean - centre[:, None]) + 1.0 / np.square(root)
    sd = np.sqrt((weight * spread).sum(axis=1))
    grid = centre[:, None] + sd[:, None] * np.linspace(-_GRID_REACH, _GRID_REACH, grid_size)
    result = Marginal(centre, sd, np.empty((centre.size, probabilities.size)), grid, np.empty_like(grid))
    if not (probabilities.size or grid_size):
        return result
    gauss = slice(1, None, 2)
    parts = _components_at(group, weights=panel_rule().gauss_weights[gauss], nodes=gauss)
    mixture, is_sharp = _flat(*parts), _is_sharp(*parts)
    for rows in (np.flatnonzero(~is_sharp), *np.flatnonzero(is_sharp)[:, None]):
        if rows.size:
            some = (
                _sharp_mixture(group.take(rows))
                if is_sharp[rows[0]]
                else _Mixture(*(m[rows] for m in mixture))
            )
            result.quantiles[rows] = _mixture_quantiles(some, centre[rows], sd[rows], probabilities)
            if grid_size:
                result.density[rows] = _mixture_density(some, grid[rows])
    return result


def _mixture_density(mixture: _Mixture, t: FloatArray) -> FloatArray:
    """Return the density of mixtures at t, shape (d, G)."""
    weight, mean, root = mixture
    z = (t[:, :, None] - mean[:, None, :]) * root[:, None, :]
    density: FloatArray = np.matmul(np.exp(-0.5 * np.square(z)), (weight * root)[:, :, None])[:, :, 0]
    return density / math.sqrt(2 * math.pi)


def _mixture_quantiles(
    mixture: _Mixture, centre: FloatArray, sd: FloatArray, probabilities: FloatArray
) -> FloatArray:
    """Solve for quantiles by Newton's method, kept inside a shrinking bracket."""
    weight, mean, root = mixture
    if probabilities.size == 0:
        return np.empty((centre.size, 0))
    reach = 10.0 / root
    shape = (centre.size, probabilities.size)
    low = np.broadcast_to((mean - reach).min(axis=1)[:, None], shape)
    high = np.broadcast_to((mean + reach).max(axis=1)[:, None], shape)
    t: FloatArray = centre[:, None] + sd[:, None] * ndtri(probabilities)
    for _ in range(_MAX_NEWTON):
        z = (t[:, :, None] - mean[:, None, :]) * root[:, None, :]
        excess = np.matmul(ndtr(z), weight[:, :, None])[:, :, 0] - probabilities
        if (np.abs(excess) < _PROBABILITY_TOLERANCE).all():
            break
        low, high = np.where(excess < 0, t, low), np.where(excess < 0, high, t)
        slope = np.maximum(_mixture_density(mixture, t), _LEAST_DENSITY)
        newton = t - excess / slope
        t = np.where((newton > low) & (newton < high), newton, 0.5 * (low + high))
    return t
