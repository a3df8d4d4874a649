"""What a posterior is told about its release and its draws: findings, warned of once and kept with it."""

from collections.abc import Mapping
from typing import Any

import xarray as xr

from nadpvi.containers.release import Release
from nadpvi.diagnostics.chains import chain_findings, tau_finding
from nadpvi.diagnostics.findings import Finding, warn_of
from nadpvi.diagnostics.release import diagnose_with
from nadpvi.gradient_model import GradientModel

__all__ = ["with_findings"]

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
        is_model_prior=settings.get("phi_star_prior") == "model",
        has_tau=model.tau_prior_scale is not None,
        is_diagonal=settings.get("curvature") == "diagonal",
    )
    findings = [*diagnostics.findings, *_draw_findings(settings, groups, has_chains=has_chains)]
    warn_of((item for item in findings if item.check not in _WARNED_ALREADY), stacklevel=stacklevel + 1)
    kept = diagnostics.to_dict() | {"findings": [item.to_dict() for item in findings]}
    return settings | {"diagnostics": kept}


def _draw_findings(
    settings: Mapping[str, Any], groups: Mapping[str, xr.Dataset], *, has_chains: bool
) -> list[Finding]:
    """Return what the draws say about themselves."""
    draws = groups["posterior"]
    if has_chains:
        # Entries of a matrix may be fixed at 0, and a chain that never moves is a failure elsewhere.
        checked = (
            ("phi_star", "curvature", "tau") if settings.get("curvature") == "diagonal" else ("phi_star",)
        )
        names = [name for name in checked if name in draws]
        return chain_findings(draws, names=names, sample_stats=groups.get("sample_stats"))
    if settings.get("method") == "laplace" and "tau" in draws:
        labels = [str(label) for label in draws["phi"].to_numpy()]
        found = tau_finding(draws["tau"].to_numpy(), labels=labels)
        return [] if found is None else [found]
    return []
