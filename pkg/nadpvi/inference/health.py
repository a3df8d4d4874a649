"""What a posterior is told about its release and its draws: findings, warned of once and kept with it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.diagnostics.chains import (
    MAX_TREEDEPTH,
    approximation_finding,
    chain_findings,
    tau_finding,
)
from nadpvi.diagnostics.findings import Finding, warn_of
from nadpvi.diagnostics.release import diagnose_with
from nadpvi.gradient_model import GradientModel
from nadpvi.inference.exact import phi_star_moments
from nadpvi.inference.laplace import gaussian_moments

__all__ = ["with_findings"]

FloatArray = NDArray[np.float64]

# Draws that show a variance to 15 %.
_LEAST_DRAWS = 100

# The sampler's own adapter has warned of these.
_WARNED_ALREADY = {"divergences", "tree_depth"}


def with_findings(
    settings: dict[str, Any],
    *,
    groups: Mapping[str, xr.Dataset],
    release: Release,
    model: GradientModel,
    burn_in: float | None,
    has_chains: bool,
    max_treedepth: int = MAX_TREEDEPTH,
    stacklevel: int = 2,
) -> dict[str, Any]:
    """Return a posterior's settings with what the checks of its release and its draws find, and warn of it.

    Parameters
    ----------
    settings : dict
        How the posterior was made.
    groups : mapping of str to xarray.Dataset
        Its draws and their statistics.
    release, model
        What it was made of.
    burn_in : float or None
        As `infer` was given it, resolved to a number.
    has_chains : bool
        Whether its draws depend on each other.
    max_treedepth : int
        The limit that a sampler with trees ran with; Stan's own when omitted.
    stacklevel : int
        As in `warnings.warn`.

    Warns
    -----
    StationarityWarning, GradientModelWarning, PriorWeightWarning, SamplerWarning
        One for each finding of severity "warning".
    """
    diagnostics = diagnose_with(
        release,
        burn_in=burn_in,
        prior_sd=model.phi_star_prior_sd,
        prior_weight=_prior_weight(groups["posterior"], model),
        is_model_prior=settings.get("phi_star_prior") == "model",
        has_tau=model.tau_prior_scale is not None,
        is_diagonal=settings.get("curvature") == "diagonal",
    )
    of_draws = _draw_findings(
        settings, groups, model=model, has_chains=has_chains, max_treedepth=max_treedepth
    )
    findings = [*diagnostics.findings, *of_draws]
    warn_of((item for item in findings if item.check not in _WARNED_ALREADY), stacklevel=stacklevel + 1)
    kept = diagnostics.to_dict() | {"findings": [item.to_dict() for item in findings]}
    return settings | {"diagnostics": kept}


def _prior_weight(draws: xr.Dataset, model: GradientModel) -> FloatArray | None:
    """Return the variance of phi_star's draws over that of its prior, at most 1; None of too few draws.

    Unlike the regression's error it holds what the curvature's own uncertainty adds.
    """
    phi_star = draws["phi_star"]
    if phi_star.sizes["chain"] * phi_star.sizes["draw"] < _LEAST_DRAWS:
        return None
    variance = phi_star.to_numpy().reshape(-1, model.num_parameters).var(axis=0, ddof=1)
    share: FloatArray = np.minimum(variance / np.square(model.phi_star_prior_sd), 1.0)
    return share


def _draw_findings(
    settings: Mapping[str, Any],
    groups: Mapping[str, xr.Dataset],
    *,
    model: GradientModel,
    has_chains: bool,
    max_treedepth: int,
) -> list[Finding]:
    """Return what the draws say about themselves."""
    draws = groups["posterior"]
    if has_chains:
        # Entries of a matrix may be fixed at 0, and a chain that never moves is a failure elsewhere.
        checked = (
            ("phi_star", "curvature", "tau") if settings.get("curvature") == "diagonal" else ("phi_star",)
        )
        names = [name for name in checked if name in draws]
        stats = groups.get("sample_stats")
        return chain_findings(draws, names=names, sample_stats=stats, max_treedepth=max_treedepth)
    return _laplace_findings(draws, model) if settings.get("method") == "laplace" else []


def _laplace_findings(draws: xr.Dataset, model: GradientModel) -> list[Finding]:
    """Return how far Laplace's Gaussian is from the posterior by quadrature, which is as fast."""
    mean, sd = gaussian_moments(model)
    exact_mean, exact_sd = phi_star_moments(model)
    found = [
        approximation_finding(
            mean=mean, sd=sd, exact_mean=exact_mean, exact_sd=exact_sd, labels=model.phi_labels
        )
    ]
    if "tau" in draws:
        found.append(tau_finding(draws["tau"].to_numpy(), labels=model.phi_labels))
    return [item for item in found if item is not None]
