"""Modes of the gradient model's density, one coordinate beside the other, by Newton's method.

The density is that of trace, v, phi_star[, log tau]: `log_density` plus the Jacobian log tau. Given (v, tau)
it is normal in phi_star, so phi_star is eliminated exactly and Newton runs on the profile in (v[, log tau]),
whose Hessian is the Schur complement of the joint one (eq. 18 of the paper).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.bijectors import softplus, softplus_derivative
from nadpvi.gradient_model.data import GradientModel
from nadpvi.gradient_model.precisions import unit_diagonal
from nadpvi.gradient_model.slopes import estimated_v, information_on_v, slope_precision

__all__ = ["JointDerivatives", "Modes", "find_modes", "joint_derivatives"]

FloatArray = NDArray[np.float64]

_MAX_ITERATIONS = 200
_MAX_HALVINGS = 50
# Half the squared distance to the mode, in posterior sds, at which Newton stops.
_DECREMENT = 1e-16
# The least curvature, in units of the information where it starts, that a step is computed with.
_LEAST_CURVATURE = 1e-6
_ROUNDING = 1e-13


class JointDerivatives(NamedTuple):
    """Log density per coordinate and its derivatives by v, phi_star and log tau; arrays of shape (..., D).

    Without tau the entries by log tau are 0.
    """

    value: FloatArray
    by_v: FloatArray
    by_phi_star: FloatArray
    by_log_tau: FloatArray
    by_v_v: FloatArray
    by_v_phi_star: FloatArray
    by_v_log_tau: FloatArray
    by_phi_star_phi_star: FloatArray
    by_phi_star_log_tau: FloatArray
    by_log_tau_log_tau: FloatArray


class Modes(NamedTuple):
    """The highest mode found for each coordinate, and the curvature there.

    Attributes
    ----------
    v, phi_star : ndarray, shape (D,)
    log_tau : ndarray, shape (D,), or None
    value : ndarray, shape (D,)
        Log density at the mode, less constants.
    precision : ndarray, shape (D, k, k)
        Negative Hessian in the order (v, phi_star[, log tau]).
    has_converged : ndarray of bool, shape (D,)
        Whether the gradient vanishes there and the Hessian is negative definite.
    from_starts : ndarray, shape (S, D)
        v at the end of each of the S searches.
    """

    v: FloatArray
    phi_star: FloatArray
    log_tau: FloatArray | None
    value: FloatArray
    precision: FloatArray
    has_converged: NDArray[np.bool_]
    from_starts: FloatArray


def joint_derivatives(
    model: GradientModel, *, v: FloatArray, delta: FloatArray, log_tau: FloatArray | None
) -> JointDerivatives:
    """Return the log density of trace, v, phi_star[, log tau], less constants, with two derivatives.

    Parameters
    ----------
    model : GradientModel
    v, delta : ndarray, shape (..., D)
        Unconstrained curvature, and phi_star - phi_bar.
    log_tau : ndarray, shape (..., D), or None
        Required exactly when the model has a prior for tau.
    """
    sums, count = model.sums, model.sums.num_steps
    c = model.sampling_rate * softplus(v)
    logistic = softplus_derivative(v)
    c_v = model.sampling_rate * logistic
    c_vv = c_v * softplus_derivative(-v)
    offset = sums.g_bar + c * delta
    excess = c - sums.slope
    squares = sums.residual + sums.s_pp * np.square(excess) + count * np.square(offset)
    by_c = 2.0 * (sums.s_pp * excess + count * offset * delta)
    by_cc = 2.0 * (sums.s_pp + count * np.square(delta))
    v_deviation = (v - model.v_prior_mean) / model.v_prior_sd
    delta_deviation = (delta - (model.phi_star_prior_mean - sums.phi_bar)) / model.phi_star_prior_sd
    value = -0.5 * (np.square(v_deviation) + np.square(delta_deviation))
    variance = np.square(model.noise_std)
    zero = np.zeros(np.shape(v))
    share, tau_terms = zero, (zero, zero)
    if log_tau is not None and model.tau_prior_scale is not None:
        ratio = np.square(np.exp(log_tau) / model.tau_prior_scale)
        extra = np.exp(2.0 * log_tau)
        variance = variance + extra
        share = extra / variance
        value = value - 0.5 * ratio + log_tau
        tau_terms = (1.0 - ratio, -2.0 * ratio)
    weighted = squares / variance
    return JointDerivatives(
        value=value - 0.5 * (count * np.log(variance) + weighted),
        by_v=-0.5 * c_v * by_c / variance - v_deviation / model.v_prior_sd,
        by_phi_star=-count * offset * c / variance - delta_deviation / model.phi_star_prior_sd,
        by_log_tau=share * (weighted - count) + tau_terms[0],
        by_v_v=-0.5 * (c_vv * by_c + np.square(c_v) * by_cc) / variance - 1.0 / np.square(model.v_prior_sd),
        by_v_phi_star=-count * c_v * (offset + c * delta) / variance,
        by_v_log_tau=share * c_v * by_c / variance,
        by_phi_star_phi_star=-count * np.square(c) / variance - 1.0 / np.square(model.phi_star_prior_sd),
        by_phi_star_log_tau=2.0 * share * count * offset * c / variance,
        by_log_tau_log_tau=2.0 * share * (1.0 - share) * (weighted - count)
        - 2.0 * np.square(share) * weighted
        + tau_terms[1],
    )


class _Profile(NamedTuple):
    """The profile in (v, log tau): phi_star at its conditional mean; gradient and Hessian."""

    value: FloatArray
    delta: FloatArray
    gradient: tuple[FloatArray, FloatArray]
    hessian: tuple[FloatArray, FloatArray, FloatArray]


def _best_delta(model: GradientModel, v: FloatArray, log_tau: FloatArray | None) -> FloatArray:
    """Return the delta that maximises the density given (v, tau)."""
    c = model.sampling_rate * softplus(v)
    variance = np.square(model.noise_std) + (0.0 if log_tau is None else np.exp(2.0 * log_tau))
    prior_precision = 1.0 / np.square(model.phi_star_prior_sd)
    weight = model.sums.num_steps * c / variance
    prior_mean = model.phi_star_prior_mean - model.sums.phi_bar
    best: FloatArray = (prior_mean * prior_precision - weight * model.sums.g_bar) / (
        prior_precision + weight * c
    )
    return best


def _profile(model: GradientModel, v: FloatArray, log_tau: FloatArray | None) -> _Profile:
    """Evaluate the profile density."""
    delta = _best_delta(model, v, log_tau)
    at = joint_derivatives(model, v=v, delta=delta, log_tau=log_tau)
    by_v, by_tau = (cross / at.by_phi_star_phi_star for cross in (at.by_v_phi_star, at.by_phi_star_log_tau))
    hessian = (
        at.by_v_v - by_v * at.by_v_phi_star,
        at.by_v_log_tau - by_v * at.by_phi_star_log_tau,
        at.by_log_tau_log_tau - by_tau * at.by_phi_star_log_tau,
    )
    return _Profile(at.value, delta, (at.by_v, at.by_log_tau), hessian)


def _newton_step(
    at: _Profile, scale: tuple[FloatArray, FloatArray]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return an ascent step in (v, log tau) and half the squared Newton decrement.

    Eigenvalues of the scaled Hessian are taken by absolute size, so that saddles and convex regions are left
    uphill.
    """
    a, b = scale
    h_vv, h_vt, h_tt = at.hessian[0] * a * a, at.hessian[1] * a * b, at.hessian[2] * b * b
    g_v, g_t = at.gradient[0] * a, at.gradient[1] * b
    middle, half = 0.5 * (h_vv + h_tt), 0.5 * (h_vv - h_tt)
    radius = np.hypot(half, h_vt)
    angle = 0.5 * np.arctan2(h_vt, half)
    cosine, sine = np.cos(angle), np.sin(angle)
    first, second = (
        np.maximum(np.abs(value), _LEAST_CURVATURE) for value in (middle + radius, middle - radius)
    )
    along = (cosine * g_v + sine * g_t) / first
    across = (cosine * g_t - sine * g_v) / second
    decrement = 0.5 * (first * np.square(along) + second * np.square(across))
    return a * (cosine * along - sine * across), b * (sine * along + cosine * across), decrement


def _starts(model: GradientModel) -> FloatArray:
    """Return where the searches start in v, shape (4, D): prior and trace weighted, either alone, and 0."""
    rate = model.sampling_rate
    precision = slope_precision(s_pp=model.sums.s_pp, noise_std=model.noise_std, sampling_rate=rate)
    by_trace = estimated_v(model.sums.slope / rate, precision=precision)
    prior = 1.0 / np.square(model.v_prior_sd)
    information = information_on_v(by_trace, precision=precision)
    both = (model.v_prior_mean * prior + by_trace * information) / (prior + information)
    return np.stack([both, model.v_prior_mean, by_trace, np.zeros_like(both)])


def _start_log_tau(model: GradientModel, v: FloatArray) -> FloatArray | None:
    """Return log tau at the residual variance that v leaves, or None for a model without tau."""
    if model.tau_prior_scale is None:
        return None
    sums = model.sums
    excess = model.sampling_rate * softplus(v) - sums.slope
    noise = np.square(model.noise_std)
    extra = (sums.residual + sums.s_pp * np.square(excess)) / sums.num_steps - noise
    least = noise / np.sqrt(sums.num_steps)
    most = np.square(model.tau_prior_scale)
    return np.asarray(0.5 * np.log(np.clip(extra, np.minimum(least, most), most)))


def _climb(
    model: GradientModel, v: FloatArray, log_tau: FloatArray | None
) -> tuple[FloatArray, FloatArray | None, _Profile, NDArray[np.bool_]]:
    """Run safeguarded Newton from every start at once."""
    precision = slope_precision(
        s_pp=model.sums.s_pp, noise_std=model.noise_std, sampling_rate=model.sampling_rate
    )
    at = _profile(model, v, log_tau)
    is_done = np.zeros(v.shape, dtype=bool)
    for _ in range(_MAX_ITERATIONS):
        information = information_on_v(v, precision=precision)
        scale = 1.0 / np.sqrt(1.0 / np.square(model.v_prior_sd) + information)
        step_v, step_t, decrement = _newton_step(at, (scale, np.ones_like(v)))
        is_done = is_done | (decrement < _DECREMENT)
        if is_done.all():
            break
        length = np.where(is_done, 0.0, 1.0)
        floor = at.value - _ROUNDING * np.abs(at.value)
        for _ in range(_MAX_HALVINGS):
            new_v = v + length * step_v
            new_t = None if log_tau is None else log_tau + length * step_t
            new = _profile(model, new_v, new_t)
            is_worse = ~(new.value >= floor)
            if not is_worse.any():
                break
            length = np.where(is_worse, 0.5 * length, length)
        v, log_tau, at = new_v, new_t, new
    return v, log_tau, at, is_done


def find_modes(model: GradientModel) -> Modes:
    """Return the highest mode of the density of v, phi_star[, log tau] for each coordinate.

    Four searches start from the prior's centre, the trace's least-squares slope, the two weighted by their
    precisions, and v = 0, where the curvature vanishes; the highest end counts. Nothing is raised where a
    search fails: `Modes.has_converged` says so.

    Parameters
    ----------
    model : GradientModel
    """
    v = _starts(model)
    log_tau = _start_log_tau(model, v)
    # a step too far is halved until it is finite, and `has_converged` tells of what never is
    with np.errstate(over="ignore", invalid="ignore"):
        ends, tau_ends, at, is_done = _climb(model, v, log_tau)
    best = np.argmax(np.where(is_done, at.value, at.value - 1e300), axis=0)[None]

    def pick(values: FloatArray) -> FloatArray:
        chosen: FloatArray = np.take_along_axis(values, best, axis=0)[0]
        return chosen

    mode_v, delta = pick(ends), pick(at.delta)
    mode_tau = None if tau_ends is None else pick(tau_ends)
    precision = _precision(joint_derivatives(model, v=mode_v, delta=delta, log_tau=mode_tau), mode_tau)
    is_definite = _is_definite(precision)
    return Modes(
        v=mode_v,
        phi_star=model.sums.phi_bar + delta,
        log_tau=mode_tau,
        value=pick(at.value),
        precision=precision,
        has_converged=np.take_along_axis(is_done, best, axis=0)[0] & is_definite,
        from_starts=ends,
    )


def _precision(at: JointDerivatives, log_tau: FloatArray | None) -> FloatArray:
    """Assemble the negative Hessian, shape (D, k, k)."""
    rows = [[at.by_v_v, at.by_v_phi_star], [at.by_v_phi_star, at.by_phi_star_phi_star]]
    if log_tau is not None:
        rows[0].append(at.by_v_log_tau)
        rows[1].append(at.by_phi_star_log_tau)
        rows.append([at.by_v_log_tau, at.by_phi_star_log_tau, at.by_log_tau_log_tau])
    return -np.moveaxis(np.array(rows), -1, 0)


def _is_definite(precision: FloatArray) -> NDArray[np.bool_]:
    """Tell which matrices are finite and positive definite."""
    is_finite = np.asarray(np.isfinite(precision).all(axis=(1, 2)), dtype=np.bool_)
    sound = np.where(is_finite[:, None, None], precision, np.eye(precision.shape[1]))
    return is_finite & (np.linalg.eigvalsh(unit_diagonal(sound)[0])[:, 0] > 0)
