"""The collapsed density of many coordinates on product grids of (v, x), with s = noise_std * cosh(x).

The subsampling noise is tau = noise_std * sinh(x). In x the density is even and smooth at tau = 0 and
analytic in a strip of width pi whatever the scales, so that the trapezoid rule converges exponentially.
phi_star is integrated out as in `log_collapsed`, which a test holds this against; here terms in v alone and
in x alone are kept apart, so that a node of the grid costs one exponential, one root and one division.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.bijectors import softplus
from nadpvi.gradient_model.data import GradientModel

__all__ = [
    "Columns",
    "NoiseTerms",
    "SlopeTerms",
    "conditional_delta_moments",
    "density_on_grid",
    "log_density_on_grid",
    "make_columns",
    "slope_terms",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

_LOG_2PI = math.log(2 * math.pi)


class Columns(NamedTuple):
    """What the density of each coordinate depends on; arrays of shape (D,)."""

    slope: FloatArray
    s_pp: FloatArray
    residual: FloatArray
    g_bar: FloatArray
    delta_prior_mean: FloatArray
    phi_star_prior_sd: FloatArray
    v_prior_mean: FloatArray
    v_prior_sd: FloatArray
    noise_std: FloatArray
    tau_prior_scale: FloatArray
    sampling_rate: float
    num_steps: int
    use_tau: bool

    def take(self, index: IntArray | slice) -> "Columns":
        """Return the coordinates at `index`."""
        return Columns(
            self.slope[index],
            self.s_pp[index],
            self.residual[index],
            self.g_bar[index],
            self.delta_prior_mean[index],
            self.phi_star_prior_sd[index],
            self.v_prior_mean[index],
            self.v_prior_sd[index],
            self.noise_std[index],
            self.tau_prior_scale[index],
            self.sampling_rate,
            self.num_steps,
            self.use_tau,
        )

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return int(self.slope.size)


class SlopeTerms(NamedTuple):
    """Terms in v, shape (D, P): expected slope c, squares, and the log prior."""

    c: FloatArray
    excess_squared: FloatArray
    mean_squared: FloatArray
    spread: FloatArray
    log_prior: FloatArray


class NoiseTerms(NamedTuple):
    """Terms in x, shape (D, X): variance s^2, and all that depends on it alone."""

    variance: FloatArray
    log_terms: FloatArray


def make_columns(model: GradientModel) -> Columns:
    """Return the columns of a model."""
    sums, scale = model.sums, model.tau_prior_scale
    return Columns(
        slope=sums.slope,
        s_pp=sums.s_pp,
        residual=sums.residual,
        g_bar=sums.g_bar,
        delta_prior_mean=model.phi_star_prior_mean - sums.phi_bar,
        phi_star_prior_sd=model.phi_star_prior_sd,
        v_prior_mean=model.v_prior_mean,
        v_prior_sd=model.v_prior_sd,
        noise_std=model.noise_std,
        tau_prior_scale=np.ones_like(sums.slope) if scale is None else scale,
        sampling_rate=model.sampling_rate,
        num_steps=sums.num_steps,
        use_tau=scale is not None,
    )


def slope_terms(columns: Columns, v: FloatArray) -> SlopeTerms:
    """Return the terms in v at v of shape (D, P)."""
    c = columns.sampling_rate * softplus(v)
    deviation = (v - columns.v_prior_mean[:, None]) / columns.v_prior_sd[:, None]
    return SlopeTerms(
        c=c,
        excess_squared=columns.s_pp[:, None] * np.square(c - columns.slope[:, None]),
        mean_squared=np.square(columns.g_bar[:, None] + c * columns.delta_prior_mean[:, None]),
        spread=np.square(c * columns.phi_star_prior_sd[:, None]),
        log_prior=-0.5 * (_LOG_2PI + np.square(deviation)) - np.log(columns.v_prior_sd)[:, None],
    )


def noise_terms(columns: Columns, x: FloatArray) -> NoiseTerms:
    """Return the terms in x at x of shape (D, X); a model without tau has x = 0 only.

    Holds the half-normal prior of tau and the Jacobian d tau / d x = noise_std * cosh(x) = s.
    """
    s = columns.noise_std[:, None] * np.cosh(x)
    variance, log_s = np.square(s), np.log(s)
    degrees = columns.num_steps - 1
    log_terms = -degrees * log_s - 0.5 * columns.residual[:, None] / variance
    log_terms = log_terms - 0.5 * ((degrees + 1) * _LOG_2PI + math.log(columns.num_steps))
    if columns.use_tau:
        scale = columns.tau_prior_scale[:, None]
        tau = columns.noise_std[:, None] * np.sinh(x)
        log_terms = log_terms - 0.5 * np.square(tau / scale) + log_s - np.log(scale)
        log_terms = log_terms + 0.5 * (math.log(4.0) - _LOG_2PI)
    return NoiseTerms(variance, log_terms)


def log_density_on_grid(columns: Columns, *, v: FloatArray, x: FloatArray) -> FloatArray:
    """Return log p(trace, v, x) at v (D, P) and x (D, X), shape (D, P, X)."""
    exponent, precision = _exponent(columns, slope_terms(columns, v), noise_terms(columns, x))
    return exponent + 0.5 * np.log(precision)


def density_on_grid(
    columns: Columns, *, v: FloatArray, x: FloatArray, log_reference: FloatArray
) -> FloatArray:
    """Return p(trace, v, x) / exp(log_reference) at v (D, P) and x (D, X), shape (D, P, X)."""
    by_v, by_x = slope_terms(columns, v), noise_terms(columns, x)
    by_v = by_v._replace(log_prior=by_v.log_prior - log_reference[:, None])
    exponent, precision = _exponent(columns, by_v, by_x)
    np.exp(exponent, out=exponent)
    np.sqrt(precision, out=precision)
    exponent *= precision
    return exponent


def _exponent(columns: Columns, by_v: SlopeTerms, by_x: NoiseTerms) -> tuple[FloatArray, FloatArray]:
    """Return all of the log density but log(precision) / 2, and g_bar's precision, shape (D, P, X)."""
    precision = by_v.spread[:, :, None] + (by_x.variance / columns.num_steps)[:, None, :]
    np.reciprocal(precision, out=precision)
    total = by_v.mean_squared[:, :, None] * precision
    total += by_v.excess_squared[:, :, None] * (1.0 / by_x.variance)[:, None, :]
    total *= -0.5
    total += by_v.log_prior[:, :, None]
    total += by_x.log_terms[:, None, :]
    return total, precision


def conditional_delta_moments(
    columns: Columns, *, c: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and precision of delta given expected slope c and variance s^2, both (D, ...)."""
    lift = (slice(None), *(None,) * (np.ndim(c) - 1))
    prior_precision = (1.0 / np.square(columns.phi_star_prior_sd))[lift]
    weight = columns.num_steps * c / variance
    precision = weight * c
    precision += prior_precision
    weight *= -columns.g_bar[lift]
    weight += columns.delta_prior_mean[lift] * prior_precision
    weight /= precision
    return weight, precision
