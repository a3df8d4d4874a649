"""Priors of the curvature a = softplus(v) as named choices, each normal on v. Public side.

"trace" and "weak" are centred where the regression of the window puts the curvature, with the error that it
has there, so they use the trace a second time; "weak" counts it a ninth of a time more. "model" uses where
the scales of the guide settled. "tighter" is, for each coordinate, the one of "trace" and "model" that can
tell it better.
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

__all__ = ["CURVATURE_PRIORS", "CurvaturePrior", "curvature_prior_of", "resolve_curvature_prior"]

Array = NDArray[np.float64]

CURVATURE_PRIORS = ("auto", "trace", "weak", "model", "tighter")

_WEAKER = 3.0
# How far records that were clipped, and a posterior that is not Gaussian, leave the curvature from the one
# that the optimum of a Gaussian implies: relative sd, of locations and of scales.
_LOCATION_SLACK, _SCALE_SLACK = 0.1, 0.15
# How far log h may be from what the scales' place alone says, by their gradient and by their scatter; more
# than any run that has settled needs.
_FARTHEST = 2.0


class CurvaturePrior(NamedTuple):
    """v ~ normal(mean, sd), each of shape (D,)."""

    mean: Array
    sd: Array


def resolve_curvature_prior(choice: str, *, is_suggested: bool, guide: Guide | None) -> str:
    """Return what "auto" stands for: "tighter" with suggested settings, else "trace", as published.

    Suggested settings start the guide's scales where the prior predictive distribution expects them, so that
    they tell the curvature from the first step on; with others they may still be on their way.

    Examples
    --------
    >>> resolve_curvature_prior("auto", is_suggested=True, guide=MeanField())
    'tighter'
    >>> resolve_curvature_prior("weak", is_suggested=True, guide=MeanField())
    'weak'
    """
    if choice != "auto":
        return choice
    return "tighter" if is_suggested and isinstance(guide, MeanField) else "trace"


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
    choice : {"trace", "weak", "model", "tighter"}
        "trace": mean m = |s_gp| / (kappa s_pp) and sd r = s / (kappa sqrt(s_pp)) of the curvature, s the sd
        of a gradient about the line. Where tau is fixed at 0 that is noise_std, as published (appendix 13.3;
        it prints the square of r, and compares v, not softplus(v), with m, which is the same to 1 % from a =
        3.5 on); otherwise it is the residuals' sd, if that is larger: the regression errs by all the noise
        that there is. "weak": three times that sd. "model": where the scales of a mean-field guide settled,
        each of its locations has the curvature sd^-2 and each scale ``2 (d log sd / d u)^2``, whatever the
        model and the records are, as long as few of them are clipped (Opper and Archambeau 2009, The
        variational Gaussian approximation revisited, Eq. 9). "tighter": for each coordinate "model" where its
        relative error is below that of the regression, both as the noise implies them, else "trace".
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
    regressed = _regressed(sums, noise=noise, sampling_rate=sampling_rate)
    if choice in ("model", "tighter"):
        if not isinstance(guide, MeanField):
            raise ArgumentError(
                f"curvature_prior={choice!r} needs a release of a MeanField guide; use 'weak' or 'trace'."
            )
        settled = _settled(guide, sums=sums, noise=noise, sampling_rate=sampling_rate, prior_sd=prior_sd)
        if choice == "model":
            return settled.prior
        # In units of the curvature at the scales' place: an estimate's own value would favour those that
        # chance made small.
        is_tighter = settled.relative_error < regressed.spread / settled.place
        own, other = settled.prior, regressed.prior()
        return CurvaturePrior(
            np.where(is_tighter, own.mean, other.mean), np.where(is_tighter, own.sd, other.sd)
        )
    if choice not in ("trace", "weak"):
        raise ArgumentError(f"curvature_prior must be resolved by now (got {choice!r}).")
    return regressed.prior(_WEAKER if choice == "weak" else 1.0)


class _Regressed(NamedTuple):
    """The curvature as the window's regression has it, with its error; each of shape (D,)."""

    estimate: Array
    spread: Array

    def prior(self, wider: float = 1.0) -> CurvaturePrior:
        """Return the prior around it, whose sd is `wider` times the error."""
        # What is estimated to be far below its own error could be anything up to it; v needs a finite centre.
        centre = np.maximum(self.estimate, np.minimum(self.spread, 1.0))
        slope = -np.expm1(-np.maximum(self.estimate, self.spread))
        return CurvaturePrior(inverse_softplus(centre), wider * self.spread / slope)


def _regressed(sums: TraceSums, *, noise: Array, sampling_rate: float) -> _Regressed:
    """Return the regression's estimate; its error is NaN for a coordinate that never moved."""
    root = np.sqrt(sums.s_pp)
    spread = np.divide(noise, sampling_rate * root, out=np.full_like(root, np.nan), where=root > 0)
    return _Regressed(np.abs(sums.slope) / sampling_rate, spread)


class _Settled(NamedTuple):
    """What the scales say of the curvature; each of shape (D,)."""

    prior: CurvaturePrior
    place: Array  # the curvature at which the scales' place would be the optimum
    relative_error: Array


def _settled(
    guide: MeanField, *, sums: TraceSums, noise: Array, sampling_rate: float, prior_sd: Array
) -> _Settled:
    """Return the prior that the scales imply.

    The negative ELBO's gradient in u is ``(h sd(u)^2 - 1) d log sd / d u``: its mean over the window is
    linear in h, however far the iterates are scattered, and E[sd(u)^2] follows from their variance. Where u
    is scattered by s, its mean alone would put log h off by ``2 s^2``.
    """
    num_params = len(sums.phi_bar) // 2
    _, u = guide.split(sums.phi_bar)
    _, gradient = guide.split(sums.g_bar)
    _, noise_of_scales = guide.split(noise)
    _, squares = guide.split(sums.s_pp)
    slope = scale_log_derivative(u, scale=guide.scale)
    error = noise_of_scales / (sampling_rate * slope * math.sqrt(sums.num_steps))
    told = np.clip(1.0 + gradient / (sampling_rate * slope), math.exp(-_FARTHEST), math.exp(_FARTHEST))
    log_square = 2.0 * np.log(guide.standard_deviation(sums.phi_bar))
    log_square += np.minimum(2.0 * slope**2 * squares / sums.num_steps, _FARTHEST)
    least = np.where(np.isnan(prior_sd[:num_params]), np.inf, prior_sd[:num_params]) ** -2.0
    with np.errstate(over="ignore"):  # of a run that diverged; GradientModel refuses it, by label
        place = np.exp(-log_square)
        of_locations = np.maximum(told * place, least)
    of_scales = guide.scale_curvature(u)
    curvature = np.concatenate([of_locations, of_scales])
    # The error is that of a sum, so that it weighs more where the sum came out small.
    errors = [np.hypot(error / told, _LOCATION_SLACK), np.full(num_params, _SCALE_SLACK)]
    prior = CurvaturePrior(
        inverse_softplus(curvature), np.concatenate(errors) * curvature / -np.expm1(-curvature)
    )
    return _Settled(
        prior,
        np.concatenate([place, of_scales]),
        np.concatenate([np.hypot(error, _LOCATION_SLACK), np.full(num_params, _SCALE_SLACK)]),
    )
