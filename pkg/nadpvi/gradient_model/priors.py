"""The post-processing model of a release: its priors as named choices.

Everything here is computed from the release alone, so nothing in it costs privacy.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.certain_precision import certain_prior_sd
from nadpvi.gradient_model.curvature_priors import CURVATURE_PRIORS, curvature_prior_of
from nadpvi.gradient_model.data import GradientModel, TraceSums
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, make_trace_sums
from nadpvi.guides import Guide

__all__ = [
    "CURVATURE_PRIORS",
    "PHI_STAR_PRIORS",
    "ReleasedTrace",
    "check_priors",
    "make_gradient_model",
    "window_sums",
]

FloatArray = NDArray[np.float64]

PHI_STAR_PRIORS = ("trace", "model")

# Of the prior of tau, in privacy noise sds.
_LEAST_TAU_SCALE = 2.0


class ReleasedTrace(Protocol):
    """What the post-processing model reads from a release."""

    @property
    def phi(self) -> FloatArray:
        """Iterates, shape (T, D)."""

    @property
    def noisy_gradient(self) -> FloatArray:
        """Noisy summed gradients, shape (T, D); row t belongs to row t of phi."""

    @property
    def sums(self) -> TraceSums | None:
        """Sums of the window, where the trace itself was not kept."""

    @property
    def noise_multiplier(self) -> float:
        """Sigma, in units of the clip norm."""

    @property
    def clip_norm(self) -> float:
        """L2 bound C on a preconditioned per-record gradient."""

    @property
    def sampling_rate(self) -> float:
        """Poisson inclusion probability kappa."""

    @property
    def preconditioner(self) -> FloatArray:
        """Beta, shape (D,)."""

    @property
    def phi_labels(self) -> tuple[str, ...]:
        """Names of the D variational parameters."""

    @property
    def model_prior_mean(self) -> FloatArray:
        """Prior mean of phi_star by the model, shape (D,); NaN where the model says nothing."""

    @property
    def model_prior_sd(self) -> FloatArray:
        """Prior sd of phi_star by the model, shape (D,); NaN where the model says nothing."""

    @property
    def description(self) -> ModelDescription | None:
        """Model, schema and guide, where known."""

    @property
    def guide(self) -> Guide | None:
        """What phi are the parameters of; None where phi is itself the parameter of interest."""


def check_priors(*, phi_star_prior: str, curvature_prior: str) -> None:
    """Raise `ArgumentError` unless both names are known."""
    _check_choice("phi_star_prior", phi_star_prior, PHI_STAR_PRIORS)
    _check_choice("curvature_prior", curvature_prior, CURVATURE_PRIORS)


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raise unless `value` is one of the known names."""
    if value not in known:
        raise ArgumentError(f"{name} must be one of {', '.join(map(repr, known))} (got {value!r}).")


def window_sums(release: ReleasedTrace, *, burn_in: float | None) -> TraceSums:
    """Return the sums of a release's window: those that it holds, or else those of its trace.

    Raises
    ------
    ArgumentError
        If `burn_in` is given though the release holds sums, or leaves too short a window.
    """
    if release.sums is None:
        return make_trace_sums(
            release.phi, release.noisy_gradient, burn_in=DEFAULT_BURN_IN if burn_in is None else burn_in
        )
    if burn_in is not None:
        raise ArgumentError("burn_in was fixed when the release was made, which holds sums; leave it out.")
    return release.sums


def _noise_std(release: ReleasedTrace, size: int) -> FloatArray:
    """Return sigma * C / beta per coordinate."""
    preconditioner = np.asarray(release.preconditioner, dtype=np.float64)
    if preconditioner.shape != (size,) or not (preconditioner > 0).all():
        raise ArgumentError(f"preconditioner must be {size} positive numbers, one a coordinate of phi.")
    with np.errstate(over="ignore", invalid="ignore"):  # GradientModel refuses what is not finite, by label
        return release.noise_multiplier * release.clip_norm / preconditioner


def _phi_star_prior(release: ReleasedTrace, choice: str, sums: TraceSums) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of phi_star's prior under the named choice."""
    mean, sd = sums.phi_bar, np.ones_like(sums.phi_bar)
    if choice == "trace":
        return mean, sd
    model_mean = np.asarray(release.model_prior_mean, dtype=np.float64)
    model_sd = np.asarray(release.model_prior_sd, dtype=np.float64)
    if model_mean.shape != mean.shape or model_sd.shape != mean.shape:
        raise ArgumentError(f"model_prior_mean and model_prior_sd must have shape {mean.shape}.")
    is_silent = np.isnan(model_mean) | np.isnan(model_sd)
    return np.where(is_silent, mean, model_mean), np.where(is_silent, sd, model_sd)


def _tau_prior_scale(sums: TraceSums, *, noise_std: FloatArray, multiple: float | None) -> FloatArray:
    """Return the scale of tau's half-normal prior: so many noise sds, or one that is wide enough."""
    if multiple is not None:
        return multiple * noise_std
    return np.maximum(_LEAST_TAU_SCALE * noise_std, sums.residual_sd)


def make_gradient_model(
    release: ReleasedTrace,
    *,
    burn_in: float | None = None,
    phi_star_prior: str = "trace",
    curvature_prior: str = "trace",
    subsampling_noise: bool = False,
    subsampling_scale: float | None = None,
) -> GradientModel:
    """Return the post-processing model of a release: its window as sums, and priors.

    Parameters
    ----------
    release : ReleasedTrace
        Anything with the attributes of `ReleasedTrace`, a `Release` above all.
    burn_in : float, optional
        Share of the steps to drop, in [0, 1); 0.2 when omitted. A release that holds sums has its window
        fixed.
    phi_star_prior : {"trace", "model"}
        "trace": normal(phi_bar, 1), as published (appendix 13.3). "model": the model's own prior of theta
        where it has one, so that a coordinate drowned in noise returns to its prior.
    curvature_prior : {"trace", "weak", "model"}
        As in `nadpvi.gradient_model.curvature_priors`.
    subsampling_noise : bool
        Infer tau, the sd that subsampling adds to a noisy gradient; otherwise tau = 0.
    subsampling_scale : float, optional
        tau ~ half-normal(subsampling_scale * noise_std), > 0. When omitted the scale is empirical: the larger
        of 2 * noise_std and the sd of the residuals, since tau over the privacy noise grows with the root of
        the number of records, which is not public. Either costs next to nothing: a window of n steps
        determines the total variance to a factor 1 +- sqrt(2 / n), and a scale that equals tau pulls it by
        1 / (2 n) of itself.

    Raises
    ------
    ArgumentError
        If a setting is out of range, the trace is not finite, or a coordinate never moved or has no noise.
    """
    check_priors(phi_star_prior=phi_star_prior, curvature_prior=curvature_prior)
    if subsampling_scale is not None and not (np.isfinite(subsampling_scale) and subsampling_scale > 0):
        raise ArgumentError(f"subsampling_scale must be finite and positive (got {subsampling_scale}).")
    if not 0.0 < release.sampling_rate <= 1.0:
        raise ArgumentError(f"sampling_rate must be in (0, 1] (got {release.sampling_rate}).")
    sums = window_sums(release, burn_in=burn_in)
    noise_std = _noise_std(release, sums.num_parameters)
    phi_star_mean, phi_star_sd = _phi_star_prior(release, phi_star_prior, sums)
    v_prior = curvature_prior_of(
        curvature_prior,
        sums=sums,
        noise_std=noise_std,
        sampling_rate=release.sampling_rate,
        guide=release.guide,
        prior_sd=certain_prior_sd(release.description, prior_sd=release.model_prior_sd, center=sums.phi_bar),
        has_tau=subsampling_noise,
    )
    tau_scale = None
    if subsampling_noise:
        tau_scale = _tau_prior_scale(sums, noise_std=noise_std, multiple=subsampling_scale)
    return GradientModel(
        sums=sums,
        sampling_rate=float(release.sampling_rate),
        noise_std=noise_std,
        phi_star_prior_mean=phi_star_mean,
        phi_star_prior_sd=phi_star_sd,
        v_prior_mean=v_prior.mean,
        v_prior_sd=v_prior.sd,
        tau_prior_scale=tau_scale,
        phi_labels=tuple(release.phi_labels),
    )
