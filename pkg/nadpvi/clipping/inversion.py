"""From draws of the stationary locations to draws of the parameters, by importance sampling. Public side.

A trace says of the parameters what it says of the stationary locations mu: with L its likelihood,

    p(theta | trace)  is proportional to  p(theta) * integral L(mu) normal(mu; mu0(theta), S(theta)) d mu

The draws of mu are from L times a prior of mu, which is divided out. For each, some thetas are drawn from a
Gaussian that the linearised map gives, and weighted by the quotient of target and proposal.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.clipping.response import Response, fit_response
from nadpvi.clipping.stationary import ClippedLoss, StationaryPoints, stationary_points
from nadpvi.errors import ModelError

__all__ = ["Centre", "WeightedDraws", "find_centre", "weigh_draws"]

Array = NDArray[np.float64]

_RADIUS = 5.0  # of the map, in sds of the posterior
_PROPOSALS = 8  # of theta for each draw of the locations
_WIDER = 1.2  # sds of the proposals over those of the linearised posterior
_MOST_ITERATIONS = 30
_STEP = 0.02  # of finite differences, in prior sds
_LONGEST_MOVE = 2.0  # of an iteration, in prior sds
_TOLERANCE = 0.05  # of the last one, in posterior sds, and of log N
_SHRINKS = 0.7  # a move that is not this much shorter than the one before is halved
_NORMAL_SHARES = (0.15865525, 0.84134475)  # one sd to either side


class Centre(NamedTuple):
    """About where the posterior of theta is, with the map there as linear.

    Attributes
    ----------
    theta : ndarray, shape (K,)
    location : ndarray, shape (K,)
        mu0(theta).
    slope : ndarray, shape (K, K)
        Its Jacobian in theta.
    covariance : ndarray, shape (K, K)
        S(theta).
    spread : ndarray, shape (K, K)
        Cholesky factor of the posterior's covariance.
    num_records : float
        N.
    """

    theta: Array
    location: Array
    slope: Array
    covariance: Array
    spread: Array
    num_records: float


class WeightedDraws(NamedTuple):
    """R proposals for each of M draws of the locations: theta (M, R, K), log weights (M, R); the map."""

    theta: Array
    log_weights: Array
    response: Response


def find_centre(
    loss: ClippedLoss, locations: Array, *, curvature: Array, num_records: float | None
) -> Centre:
    """Return the centre, by Gauss-Newton steps.

    Parameters
    ----------
    loss : ClippedLoss
    locations, curvature : ndarray, shape (M, K)
        Draws of the stationary locations and of the loss's curvature in them.
    num_records : float or None
        N; None derives it from the curvature.

    Raises
    ------
    ModelError
        If it is not found.
    """
    target = np.median(locations, axis=0)
    variance = np.square(np.diff(np.quantile(locations, _NORMAL_SHARES, axis=0), axis=0)[0] / 2.0)
    mean, sd = loss.model.prior_moments(loss.description.design)
    theta = np.clip(target, mean - 3.0 * sd, mean + 3.0 * sd)
    total = _first_count(curvature, sd) if num_records is None else num_records
    damping, previous = 1.0, np.inf
    for _ in range(_MOST_ITERATIONS):
        steps = _STEP * sd
        found = stationary_points(loss, theta + np.vstack([0.0 * steps, np.diag(steps)]), num_records=total)
        location = found.phi[:, : len(theta)]
        slope = ((location[1:] - location[0]) / steps[:, None]).T
        covariance = found.covariance[0, : len(theta), : len(theta)]
        weighted = np.linalg.solve(covariance + np.diag(variance), slope).T
        posterior = np.linalg.inv(weighted @ slope + np.diag(sd**-2.0))
        move = posterior @ (weighted @ (target - location[0]) - (theta - mean) / sd**2)
        ratio = 1.0 if num_records is not None else _count_ratio(found, curvature, sd)
        length = float((np.abs(move) / np.sqrt(np.diag(posterior))).max())
        if length < _TOLERANCE and abs(ratio - 1.0) < _TOLERANCE:
            spread = np.linalg.cholesky(posterior)
            return Centre(theta, location[0], slope, covariance, spread, total)
        damping, previous = damping / 2.0 if length > _SHRINKS * previous else 1.0, length
        theta = theta + damping * np.clip(move, -_LONGEST_MOVE * sd, _LONGEST_MOVE * sd)
        total = max(total * ratio, 1.0)
    raise ModelError("clipping cannot be corrected: no parameters explain where this run came to rest.")


def weigh_draws(
    loss: ClippedLoss,
    locations: Array,
    *,
    centre: Centre,
    prior_mean: Array,
    prior_sd: Array,
    rng: np.random.Generator,
) -> WeightedDraws:
    """Return proposals of theta for each draw of the locations, with their weights.

    Parameters
    ----------
    loss : ClippedLoss
    locations : ndarray, shape (M, K)
        Draws of the stationary locations given the trace.
    centre : Centre
    prior_mean, prior_sd : ndarray, shape (K,)
        Of the normal prior with which the locations were drawn.
    rng : numpy.random.Generator
    """
    design, num_params = loss.description.design, locations.shape[1]
    mean, sd = loss.model.prior_moments(design)
    response = fit_response(
        loss, centre=centre.theta, spread=centre.spread, radius=_RADIUS, num_records=centre.num_records
    )
    weighted = np.linalg.solve(centre.covariance, centre.slope).T
    posterior = np.linalg.inv(weighted @ centre.slope + np.diag(sd**-2.0))
    pull = (locations - centre.location) @ weighted.T - (centre.theta - mean) / sd**2
    normals = rng.standard_normal((len(locations), _PROPOSALS, num_params))
    width = _WIDER * np.linalg.cholesky(posterior)
    theta = (centre.theta + pull @ posterior)[:, None, :] + normals @ width.T
    flat = theta.reshape(-1, num_params)
    repeated = np.repeat(locations, _PROPOSALS, axis=0)
    target = response.log_density(repeated, theta=flat) + loss.model.log_prior(flat, design)
    proposal = -0.5 * np.square(normals).sum(axis=-1)
    used = -0.5 * np.square((locations - prior_mean) / prior_sd).sum(axis=1)
    log_weights = target.reshape(len(locations), _PROPOSALS) - proposal - used[:, None]
    return WeightedDraws(theta, log_weights, response)


def _first_count(curvature: Array, prior_sd: Array) -> float:
    """Return a first guess of N: as if a record told each parameter as much as one of unit information."""
    return float(max(np.median(curvature - prior_sd**-2.0), 1.0))


def _count_ratio(found: StationaryPoints, curvature: Array, prior_sd: Array) -> float:
    """Return by how much N must grow for the curvature to be that of the trace.

    A geometric mean over the locations, each by how well its curvature is known.
    """
    precision = prior_sd**-2.0
    expected = np.diag(found.jacobian[0])[: len(prior_sd)] - precision
    seen = np.maximum(np.median(curvature, axis=0) - precision, 1e-3 * expected)
    known = np.square(np.median(curvature, axis=0)) / np.maximum(curvature.var(axis=0), 1e-12)
    return float(np.exp(np.average(np.log(seen / expected), weights=np.maximum(known, 1e-12))))
