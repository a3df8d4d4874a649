"""CmdStan's draws of an exported release, back in the container that `infer` returns."""

import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.bijectors import softplus, softplus_derivative
from nadpvi.containers.release import Release
from nadpvi.containers.storage import package_versions
from nadpvi.diagnostics.burn_in import choose_burn_in
from nadpvi.engines.csv_files import ChainFiles, read_chains
from nadpvi.errors import ArgumentError, FileError
from nadpvi.gradient_model import GradientModel, conditional_delta, make_gradient_model
from nadpvi.inference.draws import PostProcessingDraws, seed_sequence
from nadpvi.inference.groups import make_groups, used_burn_in
from nadpvi.inference.health import with_findings
from nadpvi.inference.nuts import warn_of_trouble

__all__ = ["FilePosterior", "read_posterior"]

FloatArray = NDArray[np.float64]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# CmdStan's default, where the file does not say how many digits it was written with.
_DEFAULT_FIGURES = 6
_MAX_TREEDEPTH = 10
_TINY = np.finfo(np.float64).tiny


class FilePosterior(NamedTuple):
    """What a posterior is made of, besides what its release tells."""

    groups: dict[str, xr.Dataset]
    settings: dict[str, Any]


def read_posterior(
    files: Paths,
    *,
    release: Release,
    burn_in: float | Literal["auto"] | None,
    phi_star_prior: Literal["trace", "model"],
    curvature_prior: Literal["trace", "weak", "model"],
    seed: int | None,
    stacklevel: int = 2,
) -> FilePosterior:
    """Return what is in CmdStan's CSV files; see `Posterior.from_cmdstan`."""
    if not isinstance(release, Release):
        raise ArgumentError(f"release must be a Release (got {type(release).__name__}).")
    generator = np.random.default_rng() if seed is None else np.random.default_rng(seed_sequence(seed))
    if isinstance(burn_in, str) and burn_in == "auto":
        burn_in = choose_burn_in(release)
    paths = [files] if isinstance(files, str | os.PathLike) else list(files)
    found = read_chains(paths)
    variables = found.draws.variables
    _check_variables(variables, release, name=str(paths[0]))
    model = make_gradient_model(
        release,
        burn_in=burn_in,
        phi_star_prior=phi_star_prior,
        curvature_prior=curvature_prior,
        subsampling_noise="tau" in variables,
    )
    _check_origin(model, found, name=str(paths[0]))
    max_treedepth = int(found.settings.get("max_depth", _MAX_TREEDEPTH))
    warn_of_trouble(found.draws.sample_stats, max_treedepth=max_treedepth, stacklevel=stacklevel + 1)
    settings: dict[str, Any] = {
        "method": "nuts",
        "curvature": "diagonal",
        "engine": f"cmdstan {found.version}",
        "warmup": found.settings.get("num_warmup"),
        "adapt_delta": found.settings.get("delta"),
        "burn_in": burn_in if burn_in is not None else used_burn_in(release),
        "phi_star_prior": phi_star_prior,
        "curvature_prior": curvature_prior,
        "subsampling_noise": "tau" in variables,
        "versions": package_versions(),
        "release_versions": release.versions,
    }
    fitted = PostProcessingDraws(
        phi_star=variables["phi_star"],
        curvature=variables["curvature"],
        v=variables["v"],
        tau=variables.get("tau"),
        sample_stats=found.draws.sample_stats,
        engine_name="cmdstan",
        engine_version=found.version,
    )
    groups = make_groups(release, model=model, fitted=fitted, rng=generator, theta=variables.get("theta"))
    settings = with_findings(
        settings,
        groups=groups,
        release=release,
        model=model,
        burn_in=burn_in,
        has_chains=True,
        stacklevel=stacklevel + 1,
    )
    return FilePosterior(groups, settings)


def _check_variables(variables: dict[str, FloatArray], release: Release, *, name: str) -> None:
    """Raise unless the files hold what our programs write, of the release's size, all of it finite."""
    standardised = "z_delta" if "z_delta" in variables else "z_phi_star"
    needed = ("phi_star", "curvature", "v", "z_v", standardised)
    missing = [key for key in needed if key not in variables]
    if missing:
        raise FileError(f"{name} is not of a program that nadpvi exported: it lacks {', '.join(missing)}.")
    sizes = dict.fromkeys(needed, release.dimension)
    if "tau" in variables:
        sizes["tau"] = release.dimension
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


def _check_origin(model: GradientModel, found: ChainFiles, *, name: str) -> None:
    """Raise unless the draws follow from their standardised values by this model, to the digits written."""
    figures = int(found.settings.get("sig_figs", -1))
    rounding = 10.0 ** (1 - (figures if figures > 0 else _DEFAULT_FIGURES)) + 1e-12
    draws = found.draws.variables
    v, tau = draws["v"], draws.get("tau")
    spread = model.v_prior_sd * draws["z_v"]
    is_right = _agree(v, (model.v_prior_mean, spread), rounding)
    # how far rounding v moves softplus(v), in units of softplus(v)
    slack = rounding * (10.0 + np.abs(v) * softplus_derivative(v) / np.maximum(softplus(v), _TINY))
    is_right &= _agree(draws["curvature"], (softplus(v),), slack)
    terms: tuple[FloatArray, ...]
    if "z_delta" in draws:
        mean, precision = conditional_delta(model, v=v, tau=tau)
        terms = (model.sums.phi_bar, mean, draws["z_delta"] / np.sqrt(precision))
    else:
        terms = (model.phi_star_prior_mean, model.phi_star_prior_sd * draws["z_phi_star"])
    is_right &= _agree(draws["phi_star"], terms, slack)
    if not is_right.all():
        raise FileError(
            f"{name} is not of this release with these settings: give the release, burn_in, phi_star_prior "
            "and curvature_prior that the data were exported with."
        )


def _agree(
    values: FloatArray, terms: tuple[FloatArray, ...], tolerance: float | FloatArray
) -> NDArray[np.bool_]:
    """Tell where values are the sum of terms, up to a share of the largest."""
    size = sum((np.abs(term) for term in terms), start=np.abs(values))
    agree: NDArray[np.bool_] = np.abs(values - sum(terms)) <= tolerance * size
    return agree
