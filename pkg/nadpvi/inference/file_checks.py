"""Whether draws in files are of a release under given settings: all that their own numbers can show.

Every variable but three follows from the standardised ones by the gradient model, theta is normal given
phi_star, and lp__ is the density of trace and draws, constants included, so that it knows the whole release.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from nadpvi.bijectors import softplus, softplus_derivative
from nadpvi.containers.release import Release
from nadpvi.engines.csv_files import ChainFiles
from nadpvi.errors import FileError
from nadpvi.gradient_model import (
    GradientModel,
    conditional_delta,
    grad_log_collapsed,
    grad_log_density,
    log_collapsed,
    log_density,
)

__all__ = ["check_density", "check_origin", "check_theta", "check_variables"]

FloatArray = NDArray[np.float64]

_LEAST_FIGURES = 4
_TINY = np.finfo(np.float64).tiny
_HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)
# Honest draws of theta are refused once in 10^9.
_FALSE_ALARM = 1e-9


def check_variables(found: ChainFiles, release: Release, *, name: str) -> None:
    """Raise unless the files hold what our programs write, of the release's size, all of it finite."""
    variables = found.draws.variables
    standardised = "z_delta" if "z_delta" in variables else "z_phi_star"
    needed = ["phi_star", "curvature", "v", "z_v", standardised]
    if "tau" in variables:
        needed += ["tau", "z_tau"]
    missing = [key for key in needed if key not in variables]
    if missing:
        raise FileError(f"{name} is not of a program that nadpvi exported: it lacks {', '.join(missing)}.")
    sizes = dict.fromkeys(needed, release.dimension)
    if "theta" in variables:
        sizes["theta"] = 0 if release.description is None else len(release.description.names)
    for key, size in sizes.items():
        values = variables[key]
        if values.shape[2:] != (size,):
            raise FileError(
                f"{name} is not of this release: {key} has {values[0, 0].size} entries, not {size}."
            )
        if not np.isfinite(values).all():
            raise FileError(f"{name}, or a file of the same run, holds a {key} that is not a finite number.")
    if "tau" in variables and not ((variables["tau"] >= 0) & (variables["z_tau"] >= 0)).all():
        raise FileError(f"{name}, or a file of the same run, holds a tau below 0.")
    if found.figures < _LEAST_FIGURES:
        raise FileError(
            f"{name} is written with {found.figures} significant digits, too few to tell what it is of: "
            "sample again with sig_figs=17."
        )


def check_origin(model: GradientModel, found: ChainFiles, *, name: str) -> None:
    """Raise unless the draws follow from their standardised values by this model, to the digits written."""
    rounding, draws = _rounding(found), found.draws.variables
    v, tau = draws["v"], draws.get("tau")
    is_right = _agree(v, (model.v_prior_mean, model.v_prior_sd * draws["z_v"]), rounding)
    # how far rounding v moves softplus(v), in units of softplus(v)
    slack = rounding * (10.0 + np.abs(v) * softplus_derivative(v) / np.maximum(softplus(v), _TINY))
    is_right &= _agree(draws["curvature"], (softplus(v),), slack)
    if tau is not None and model.tau_prior_scale is not None:
        is_right &= _agree(tau, (model.tau_prior_scale * draws["z_tau"],), rounding)
    terms: tuple[FloatArray, ...]
    if "z_delta" in draws:
        mean, precision = conditional_delta(model, v=v, tau=tau)
        terms = (model.sums.phi_bar, mean, draws["z_delta"] / np.sqrt(precision))
    else:
        terms = (model.phi_star_prior_mean, model.phi_star_prior_sd * draws["z_phi_star"])
    is_right &= _agree(draws["phi_star"], terms, slack)
    if not is_right.all():
        _refuse(name, "its variables do not follow from each other")


class _Density(NamedTuple):
    """What lp__ should be, shape (chain, draw), and how far rounding numbers by their own size moves it."""

    log_density: FloatArray
    size: FloatArray
    sensitivity: FloatArray


def check_density(model: GradientModel, found: ChainFiles, release: Release, *, name: str) -> None:
    """Raise unless lp__ is the log density of this trace and the standardised draws, as far as digits go."""
    lp = found.draws.sample_stats["lp"].astype(np.float64)
    with np.errstate(divide="ignore"):  # a tau of 0, which Stan never draws
        of_draws = _density(model, found.draws.variables)
    tolerance = 3.0 * _rounding(found) * (np.abs(lp) + of_draws.sensitivity)
    tolerance = tolerance + 1e-9 * (np.abs(lp) + of_draws.size) + 1e-7
    excess = lp - of_draws.log_density
    expected = [0.0]
    if "z_delta" not in found.draws.variables and np.isfinite(release.learning_rate).all():
        # parameter_model is the density of iterates instead of gradients
        expected.append(-model.sums.num_steps * float(np.log(release.learning_rate).sum()))
    if not any((np.abs(excess - value) <= tolerance + 1e-9 * abs(value)).all() for value in expected):
        _refuse(name, "its lp__ is not the density of that")


def _density(model: GradientModel, draws: Mapping[str, FloatArray]) -> _Density:
    """Return the log density of trace and standardised variables, on the scale that the sampler works on."""
    z_v, tau = draws["z_v"], None
    v = model.v_prior_mean + model.v_prior_sd * z_v
    terms, moved = np.log(model.v_prior_sd) * np.ones_like(v), np.zeros_like(v)
    if model.tau_prior_scale is not None:
        tau = model.tau_prior_scale * draws["z_tau"]
        terms = terms + np.log(model.tau_prior_scale) + np.log(draws["z_tau"])
    if "z_delta" in draws:
        slopes = grad_log_collapsed(model, v=v, tau=tau)
        squares = np.square(draws["z_delta"])
        terms = terms + log_collapsed(model, v=v, tau=tau) - 0.5 * squares - _HALF_LOG_2PI
        moved = moved + squares
    else:
        away = model.phi_star_prior_sd * draws["z_phi_star"]
        optimum = model.phi_star_prior_mean + away
        slopes = grad_log_density(model, v=v, tau=tau, phi_star=optimum)
        terms = terms + log_density(model, v=v, tau=tau, phi_star=optimum) + np.log(model.phi_star_prior_sd)
        if slopes.phi_star is not None:
            moved = moved + np.abs(away * slopes.phi_star)
    moved = moved + np.abs(model.v_prior_sd * z_v * slopes.v)
    if slopes.log_tau is not None:
        moved = moved + 1.0 + np.abs(slopes.log_tau)
    return _Density(terms.sum(axis=-1), np.abs(terms).sum(axis=-1), moved.sum(axis=-1))


def check_theta(found: ChainFiles, release: Release, *, name: str) -> None:
    """Raise unless theta is spread about phi_star as the guide says: normal, with known mean and sd."""
    theta, description = found.draws.variables.get("theta"), release.description
    if theta is None or description is None:
        return
    phi_star = found.draws.variables["phi_star"]
    location, sd = phi_star[..., : theta.shape[-1]], description.guide.standard_deviation(phi_star)
    away = (theta - location).reshape(-1, theta.shape[-1])
    sd = np.broadcast_to(sd, theta.shape).reshape(away.shape)
    rounded = _rounding(found) * (np.abs(theta) + np.abs(location)).reshape(away.shape)
    count, level = len(away), _FALSE_ALARM / (3 * away.shape[1])
    z = away / (sd + rounded)
    is_wide = stats.chi2.sf(np.square(z).sum(axis=0), count) < level
    is_narrow = stats.chi2.cdf(np.square((np.abs(away) + rounded) / sd).sum(axis=0), count) < level
    is_aside = 2.0 * stats.norm.sf(np.abs(z.sum(axis=0)) / np.sqrt(count)) < level
    if (is_wide | is_narrow | is_aside).any():
        _refuse(name, "its theta is not spread about phi_star as the guide is")


def _rounding(found: ChainFiles) -> float:
    """Return the largest relative error of a number with so many digits."""
    return 10.0 ** (1 - found.figures) + 1e-12


def _refuse(name: str, reason: str) -> None:
    """Raise the one error that draws of something else end in."""
    raise FileError(
        f"{name} is not of this release with these settings ({reason}): give the release, burn_in, "
        "phi_star_prior and curvature_prior that the data were exported with."
    )


def _agree(
    values: FloatArray, terms: tuple[FloatArray, ...], tolerance: float | FloatArray
) -> NDArray[np.bool_]:
    """Tell where values are the sum of terms, up to a share of the largest."""
    size = sum((np.abs(term) for term in terms), start=np.abs(values))
    agree: NDArray[np.bool_] = np.abs(values - sum(terms)) <= tolerance * size
    return agree
