"""Priors of the curvature a = softplus(v) as named choices, each normal on v. Public side.

"trace" and "weak" are centred where the regression of the window puts the curvature, with the error that it
has there, so they use the trace a second time; "weak" counts it a ninth of a time more. "model" uses where
the scales of the guide settled.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.bijectors import inverse_softplus
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.data import TraceSums
from nadpvi.guides import Guide, MeanField
from nadpvi.guides.scales import scale_log_derivative

__all__ = ["CURVATURE_PRIORS", "CurvaturePrior", "curvature_prior_of"]

Array = NDArray[np.float64]

CURVATURE_PRIORS = ("trace", "weak", "model")

_WEAKER = 3.0
# How far records that were clipped, and a posterior that is not Gaussian, leave the curvature from the one
# that the optimum of a Gaussian implies: relative sd, of locations and of scales.
_LOCATION_SLACK, _SCALE_SLACK = 0.1, 0.15
# Where a scale may settle, from the window's mean; far more than any run that has settled needs.
_FARTHEST = 1.0
_NEWTON_STEPS = 20


class CurvaturePrior(NamedTuple):
    """v ~ normal(mean, sd), each of shape (D,)."""

    mean: Array
    sd: Array


def curvature_prior_of(
    choice: str,
    *,
    sums: TraceSums,
    noise_std: Array,
    sampling_rate: float,
    guide: Guide | None,
    prior_sd: Array,
    has_tau: bool = False,
) -> CurvaturePrior:
    """Return the prior of v under a named choice.

    Parameters
    ----------
    choice : {"trace", "weak", "model"}
        "trace": mean m = |s_gp| / (kappa s_pp) and sd r = s / (kappa sqrt(s_pp)) of the curvature, s the sd
        of a gradient about the line. Where tau is fixed at 0 that is noise_std, as published (appendix 13.3;
        it prints the square of r, and compares v, not softplus(v), with m, which is the same to 1 % from a =
        3.5 on); otherwise it is the residuals' sd, if that is larger: the regression errs by all the noise
        that there is. "weak": three times that sd. "model": where the scales of a mean-field guide settled,
        each of its locations has the curvature sd^-2 and each scale ``2 (d log sd / d u)^2``, whatever the
        model and the records are, as long as few of them are clipped (Opper and Archambeau 2009, The
        variational Gaussian approximation revisited, Eq. 9).
    sums : TraceSums
        The window.
    noise_std : ndarray, shape (D,)
        Sd of the privacy noise in a gradient.
    sampling_rate : float
        kappa.
    guide : Guide or None
        What phi are the parameters of, for "model".
    prior_sd : ndarray, shape (D,)
        The model's own prior sd of each location, NaN where there is none: with a log-concave likelihood no
        location's curvature is below its prior's precision.
    has_tau : bool
        Whether more noise than the privacy noise is allowed for.

    Raises
    ------
    ArgumentError
        If "model" is asked of a release without a mean-field guide.
    """
    noise = np.maximum(noise_std, sums.residual_sd) if has_tau else noise_std
    if choice == "model":
        if not isinstance(guide, MeanField):
            raise ArgumentError(
                "curvature_prior='model' needs a release of a MeanField guide; use 'weak' or 'trace'."
            )
        return _settled(guide, sums=sums, noise=noise, sampling_rate=sampling_rate, prior_sd=prior_sd)
    root = np.sqrt(sums.s_pp)
    spread = np.divide(noise, sampling_rate * root, out=np.full_like(root, np.nan), where=root > 0)
    estimate = np.abs(sums.slope) / sampling_rate
    # What is estimated to be far below its own error could be anything up to it; v needs a finite centre.
    centre = np.maximum(estimate, np.minimum(spread, 1.0))
    slope = -np.expm1(-np.maximum(estimate, spread))
    return CurvaturePrior(inverse_softplus(centre), (_WEAKER if choice == "weak" else 1.0) * spread / slope)


def _settled(
    guide: MeanField, *, sums: TraceSums, noise: Array, sampling_rate: float, prior_sd: Array
) -> CurvaturePrior:
    """Return the prior that the scales imply, from where a Newton step says they settle."""
    _, start = guide.split(sums.phi_bar)
    _, gradient = guide.split(sums.g_bar)
    _, noise_of_scales = guide.split(noise)
    u = start
    for _ in range(_NEWTON_STEPS):
        step = gradient / (sampling_rate * guide.scale_curvature(u))
        u = np.clip(start - step, start - _FARTHEST, start + _FARTHEST)
    of_scales = guide.scale_curvature(u)
    error = noise_of_scales / (sampling_rate * of_scales * math.sqrt(sums.num_steps))
    settled = np.concatenate([sums.phi_bar[: len(u)], u])
    sd = guide.standard_deviation(settled)
    least = np.where(np.isnan(prior_sd[: len(u)]), np.inf, prior_sd[: len(u)]) ** -2.0
    with np.errstate(over="ignore"):  # of a run that diverged; GradientModel refuses it, by label
        of_locations = np.maximum(sd**-2.0, least)
    log_derivative = scale_log_derivative(u, scale=guide.scale)
    curvature = np.concatenate([of_locations, of_scales])
    relative = np.concatenate(
        [np.hypot(2.0 * log_derivative * error, _LOCATION_SLACK), np.full(len(u), _SCALE_SLACK)]
    )
    return CurvaturePrior(inverse_softplus(curvature), relative * curvature / -np.expm1(-curvature))
