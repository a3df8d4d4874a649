"""CmdStan's draws of an exported release, back in the container that `infer` returns."""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from nadpvi.containers.release import Release
from nadpvi.containers.storage import package_versions
from nadpvi.diagnostics.burn_in import choose_burn_in
from nadpvi.diagnostics.chains import MAX_TREEDEPTH
from nadpvi.engines.csv_files import read_chains
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model import make_gradient_model
from nadpvi.inference.curvature_prior import curvature_prior_for
from nadpvi.inference.draws import PostProcessingDraws
from nadpvi.inference.file_checks import check_density, check_origin, check_theta, check_variables
from nadpvi.inference.groups import make_groups, used_burn_in
from nadpvi.inference.health import with_findings
from nadpvi.inference.nuts import warn_of_trouble
from nadpvi.privacy.randomness import check_seed

__all__ = ["FilePosterior", "read_posterior"]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


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
    curvature_prior: str,
    seed: int | None,
    stacklevel: int = 2,
) -> FilePosterior:
    """Return what is in CmdStan's CSV files; see `Posterior.from_cmdstan`."""
    if not isinstance(release, Release):
        raise ArgumentError(f"release must be a Release (got {type(release).__name__}).")
    generator = np.random.default_rng(None if seed is None else check_seed("seed", seed))
    if isinstance(burn_in, str) and burn_in == "auto":
        burn_in = choose_burn_in(release)
    curvature_prior = curvature_prior_for(release, curvature_prior)
    paths = _paths(files)
    found = read_chains(paths)
    variables, name = found.draws.variables, str(paths[0])
    check_variables(found, release, name=name)
    model = make_gradient_model(
        release,
        burn_in=burn_in,
        phi_star_prior=phi_star_prior,
        curvature_prior=curvature_prior,
        subsampling_noise="tau" in variables,
    )
    check_origin(model, found, name=name)
    check_density(model, found, release, name=name)
    check_theta(found, release, name=name)
    max_treedepth = int(found.number("max_depth", default=MAX_TREEDEPTH, name=name) or MAX_TREEDEPTH)
    warn_of_trouble(found.draws.sample_stats, max_treedepth=max_treedepth, stacklevel=stacklevel + 1)
    settings: dict[str, Any] = {
        "method": "nuts",
        "curvature": "diagonal",
        "engine": f"cmdstan {found.version}",
        "warmup": found.settings.get("num_warmup"),
        "adapt_delta": found.number("delta", default=None, name=name),
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
        max_treedepth=max_treedepth,
        stacklevel=stacklevel + 1,
    )
    return FilePosterior(groups, settings)


def _paths(files: object) -> list[str | os.PathLike[str]]:
    """Return the files as a list of paths."""
    if isinstance(files, str | os.PathLike):
        return [files]
    is_listed = isinstance(files, Iterable) and not isinstance(files, bytes | Mapping)
    paths: list[Any] = list(files) if is_listed else [files]  # type: ignore[call-overload]
    wrong = [path for path in paths if not isinstance(path, str | os.PathLike)]
    if wrong:
        raise ArgumentError(
            "files must be the paths of CmdStan's CSV files, one a chain (got type "
            f"{type(wrong[0]).__name__})."
        )
    return paths
