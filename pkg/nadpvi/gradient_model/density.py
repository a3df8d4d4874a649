"""The gradient model and its log density in NumPy: the Python twin of `stan/gradient_model.stan`.

Within the window each variational parameter has its own regression of noisy gradient on iterate,

    noisy_gradient[t] ~ normal(kappa * a * (phi[t] - phi_star), s),   s^2 = noise_std^2 + tau^2,

with sampling rate kappa, curvature a = softplus(v), optimum phi_star and subsampling noise tau (eq. 59 of
the paper, with the exponents that its appendix misprints corrected). Coordinates are independent given the
trace, so every function returns one value per coordinate and none of them sums over D.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.bijectors import softplus
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.data import GradientModel, TraceSums

__all__ = [
    "ConditionalNormal",
    "DensityGradient",
    "conditional_delta",
    "grad_log_collapsed",
    "grad_log_density",
    "log_collapsed",
    "log_density",
    "log_density_trace",
]

FloatArray = NDArray[np.float64]

_LOG_2PI = math.log(2 * math.pi)


class ConditionalNormal(NamedTuple):
    """Normal distribution of delta = phi_star - phi_bar given the curvature; arrays of shape (..., D)."""

    mean: FloatArray
    precision: FloatArray


class DensityGradient(NamedTuple):
    """Derivatives of a log density per coordinate, shape (..., D); None for a variable it does not have."""

    v: FloatArray
    phi_star: FloatArray | None
    log_tau: FloatArray | None


class _Point(NamedTuple):
    """Quantities that every density shares: slope c = kappa * a, dc/dv, s^2 and tau."""

    v: FloatArray
    expected_slope: FloatArray
    slope_per_v: FloatArray
    variance: FloatArray
    tau: FloatArray | None


def _point(model: GradientModel, v: ArrayLike, tau: ArrayLike | None) -> _Point:
    """Evaluate the transforms at (v, tau), after checking that tau fits the model."""
    values = np.asarray(v, dtype=np.float64)
    variance = np.square(model.noise_std)
    checked_tau = None
    if model.tau_prior_scale is None:
        if tau is not None:
            raise ArgumentError("tau must be None: this model was made with subsampling_noise=False.")
    elif tau is None:
        raise ArgumentError("tau is required: this model was made with subsampling_noise=True.")
    else:
        checked_tau = np.asarray(tau, dtype=np.float64)
        if not (checked_tau >= 0).all():
            raise ArgumentError("tau must not be negative.")
        variance = variance + np.square(checked_tau)
    rate = model.sampling_rate
    return _Point(values, rate * softplus(values), rate * np.exp(-softplus(-values)), variance, checked_tau)


def _log_normal(x: FloatArray, mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the log density of normal(mean, sqrt(variance)) at x."""
    return -0.5 * (_LOG_2PI + np.log(variance) + np.square(x - mean) / variance)


def _log_prior(model: GradientModel, point: _Point) -> FloatArray:
    """Return the log prior of v and, where the model has it, of tau."""
    total = _log_normal(point.v, model.v_prior_mean, np.square(model.v_prior_sd))
    if point.tau is not None and model.tau_prior_scale is not None:
        total = total + math.log(2.0) + _log_normal(point.tau, np.zeros(()), np.square(model.tau_prior_scale))
    return total


def _log_phi_star_prior(model: GradientModel, phi_star: FloatArray) -> FloatArray:
    """Return the log prior of phi_star."""
    return _log_normal(phi_star, model.phi_star_prior_mean, np.square(model.phi_star_prior_sd))


def _within(sums: TraceSums, point: _Point) -> FloatArray:
    """Return sum of (g - g_bar - c (phi - phi_bar))^2, written so that it cannot cancel."""
    return sums.residual + sums.s_pp * np.square(point.expected_slope - sums.slope)


def log_density(
    model: GradientModel, *, v: ArrayLike, phi_star: ArrayLike, tau: ArrayLike | None = None
) -> FloatArray:
    """Return log p(trace, v, phi_star[, tau]) per coordinate, from the sums, all constants included.

    Parameters
    ----------
    model : GradientModel
    v, phi_star : array_like, broadcastable to (..., D)
        Unconstrained curvature, and the optimum in units of phi.
    tau : array_like, broadcastable to (..., D), or None
        Subsampling noise >= 0; required exactly when the model has a prior for it. The density is one of
        tau itself, not of its logarithm.

    Returns
    -------
    ndarray, shape (..., D)
    """
    point = _point(model, v, tau)
    sums, optimum = model.sums, np.asarray(phi_star, dtype=np.float64)
    offset = sums.g_bar + point.expected_slope * (optimum - sums.phi_bar)
    squares = _within(sums, point) + sums.num_steps * np.square(offset)
    log_likelihood: FloatArray = -0.5 * (
        sums.num_steps * (_LOG_2PI + np.log(point.variance)) + squares / point.variance
    )
    return log_likelihood + _log_prior(model, point) + _log_phi_star_prior(model, optimum)


def log_density_trace(
    model: GradientModel,
    *,
    phi: ArrayLike,
    noisy_gradient: ArrayLike,
    v: ArrayLike,
    phi_star: ArrayLike,
    tau: ArrayLike | None = None,
) -> FloatArray:
    """Return what `log_density` returns, row by row from the window of the trace itself.

    Parameters
    ----------
    phi, noisy_gradient : array_like, shape (n, D)
        The window, burn-in already dropped.
    v, phi_star, tau : array_like, broadcastable to (..., D)
        As in `log_density`.
    """
    point = _point(model, v, tau)
    optimum = np.asarray(phi_star, dtype=np.float64)
    total = _log_prior(model, point) + _log_phi_star_prior(model, optimum)
    rows = zip(np.asarray(phi, dtype=np.float64), np.asarray(noisy_gradient, dtype=np.float64), strict=True)
    for iterate, gradient in rows:
        total = total + _log_normal(gradient, point.expected_slope * (iterate - optimum), point.variance)
    return total


def conditional_delta(
    model: GradientModel, *, v: ArrayLike, tau: ArrayLike | None = None
) -> ConditionalNormal:
    """Return the normal distribution of delta = phi_star - phi_bar given the trace, v[, tau].

    Precision 1 / w^2 + n (kappa a / s)^2, with w the prior sd of phi_star.
    """
    point = _point(model, v, tau)
    prior_precision = 1.0 / np.square(model.phi_star_prior_sd)
    prior_mean = model.phi_star_prior_mean - model.sums.phi_bar
    weight = model.sums.num_steps * point.expected_slope / point.variance
    precision = prior_precision + weight * point.expected_slope
    return ConditionalNormal(
        (prior_mean * prior_precision - weight * model.sums.g_bar) / precision, precision
    )


class _MeanGradient(NamedTuple):
    """g_bar's deviation from its mean, and its variance, once phi_star is integrated out."""

    deviation: FloatArray
    variance: FloatArray


def _mean_gradient(model: GradientModel, point: _Point) -> _MeanGradient:
    """Return the moments of g_bar given v[, tau] alone."""
    prior_mean = model.phi_star_prior_mean - model.sums.phi_bar
    spread = np.square(point.expected_slope * model.phi_star_prior_sd)
    return _MeanGradient(
        model.sums.g_bar + point.expected_slope * prior_mean, spread + point.variance / model.sums.num_steps
    )


def log_collapsed(model: GradientModel, *, v: ArrayLike, tau: ArrayLike | None = None) -> FloatArray:
    """Return log p(trace, v[, tau]) per coordinate: `log_density` with phi_star integrated out.

    Uses g_bar | a ~ normal(-kappa a delta0, sqrt((kappa a w)^2 + s^2 / n)) for phi_star's prior
    normal(phi_bar + delta0, w). Arguments and shapes as in `log_density`.
    """
    point, sums = _point(model, v, tau), model.sums
    degrees = sums.num_steps - 1
    within = -0.5 * (
        degrees * (_LOG_2PI + np.log(point.variance))
        + math.log(sums.num_steps)
        + _within(sums, point) / point.variance
    )
    deviation, variance = _mean_gradient(model, point)
    return within + _log_normal(deviation, np.zeros(()), variance) + _log_prior(model, point)


def _grad_log_prior(model: GradientModel, point: _Point) -> tuple[FloatArray, FloatArray | None]:
    """Return the derivatives of the log prior with respect to v and log tau."""
    by_v = (model.v_prior_mean - point.v) / np.square(model.v_prior_sd)
    if point.tau is None or model.tau_prior_scale is None:
        return by_v, None
    return by_v, -np.square(point.tau / model.tau_prior_scale)


def grad_log_density(
    model: GradientModel, *, v: ArrayLike, phi_star: ArrayLike, tau: ArrayLike | None = None
) -> DensityGradient:
    """Return the derivatives of `log_density` by v, phi_star and (with tau) log tau; no Jacobian is added."""
    point, sums = _point(model, v, tau), model.sums
    optimum = np.asarray(phi_star, dtype=np.float64)
    delta = optimum - sums.phi_bar
    offset = sums.num_steps * (sums.g_bar + point.expected_slope * delta)
    excess = sums.s_pp * (point.expected_slope - sums.slope)
    prior_by_v, prior_by_log_tau = _grad_log_prior(model, point)
    by_v = prior_by_v - point.slope_per_v * (excess + offset * delta) / point.variance
    by_phi_star = (model.phi_star_prior_mean - optimum) / np.square(model.phi_star_prior_sd) - (
        offset * point.expected_slope / point.variance
    )
    if point.tau is None or prior_by_log_tau is None:
        return DensityGradient(by_v, by_phi_star, None)
    squares = (_within(sums, point) + np.square(offset) / sums.num_steps) / point.variance
    share = np.square(point.tau) / point.variance
    return DensityGradient(by_v, by_phi_star, prior_by_log_tau + share * (squares - sums.num_steps))


def grad_log_collapsed(
    model: GradientModel, *, v: ArrayLike, tau: ArrayLike | None = None
) -> DensityGradient:
    """Return the derivatives of `log_collapsed` by v and (with tau) log tau; no Jacobian is added."""
    point, sums = _point(model, v, tau), model.sums
    deviation, variance = _mean_gradient(model, point)
    scaled = deviation / variance
    prior_mean = model.phi_star_prior_mean - sums.phi_bar
    spread_per_slope = point.expected_slope * np.square(model.phi_star_prior_sd)
    by_slope = (
        -sums.s_pp * (point.expected_slope - sums.slope) / point.variance
        - scaled * prior_mean
        + spread_per_slope * (np.square(scaled) - 1.0 / variance)
    )
    prior_by_v, prior_by_log_tau = _grad_log_prior(model, point)
    by_v = prior_by_v + point.slope_per_v * by_slope
    if point.tau is None or prior_by_log_tau is None:
        return DensityGradient(by_v, None, None)
    by_variance = 0.5 * (
        (_within(sums, point) / point.variance - (sums.num_steps - 1)) / point.variance
        + (np.square(scaled) - 1.0 / variance) / sums.num_steps
    )
    return DensityGradient(by_v, None, prior_by_log_tau + 2.0 * np.square(point.tau) * by_variance)
