"""From draws of the post-processing model to the groups of a posterior."""

from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.containers.variables import model_variables
from nadpvi.gradient_model import SUM_NAMES, GradientModel
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN
from nadpvi.inference.draws import PostProcessingDraws

__all__ = ["make_groups", "used_burn_in"]

Array = NDArray[np.float64]


def used_burn_in(release: Release) -> float:
    """Return the burn-in that a release's window has where none is asked for."""
    is_fixed = release.sums is not None and release.config is not None
    return release.config.burn_in if is_fixed else DEFAULT_BURN_IN  # type: ignore[union-attr]


def make_groups(
    release: Release,
    *,
    model: GradientModel,
    fitted: PostProcessingDraws,
    rng: np.random.Generator,
    theta: Array | None = None,
) -> dict[str, xr.Dataset]:
    """Return ArviZ's groups for draws of (phi_star, curvature): the guide mixed over phi_star (Eq. 21).

    `theta`, shape (chain, draw, K), is given where the guide has been drawn from already.
    """
    phi = ("chain", "draw", "phi")
    variables: dict[str, Any] = {
        "phi_star": (phi, fitted.phi_star),
        "curvature": (phi, fitted.curvature),
    }
    if fitted.tau is not None:
        variables["tau"] = (phi, fitted.tau)
    labels = np.array(release.phi_labels, dtype=object)
    coords = {"phi": labels}
    if fitted.hessian is not None:
        variables["hessian"] = (("chain", "draw", "phi_row", "phi_column"), fitted.hessian)
        coords |= dict.fromkeys(("phi_row", "phi_column"), labels[: fitted.hessian.shape[-1]])
    num_chains, num_draws = fitted.phi_star.shape[:2]
    chain_coords = {"chain": np.arange(num_chains), "draw": np.arange(num_draws)}
    posterior = xr.Dataset(variables, coords={**chain_coords, **coords})
    description = release.description
    if description is not None:
        if theta is None:
            size = description.guide.num_noise(len(description.names))
            noise = rng.standard_normal((num_chains, num_draws, size))
            theta = description.guide.draw(fitted.phi_star, noise)
            if fitted.theta is not None:
                theta[..., : fitted.theta.shape[-1]] = fitted.theta
        posterior = posterior.merge(model_variables(description, theta))
    groups = {"posterior": posterior}
    if fitted.sample_stats:
        stats = {name: (("chain", "draw"), value) for name, value in fitted.sample_stats.items()}
        groups["sample_stats"] = xr.Dataset(stats, coords=chain_coords)
    groups["observed_data"] = _observed(model, labels=labels)
    groups["constant_data"] = _constant(model, release=release, labels=labels)
    return groups


def _observed(model: GradientModel, *, labels: NDArray[Any]) -> xr.Dataset:
    """Return the sums of the window, which are all that the likelihood sees."""
    sums = model.sums
    variables: dict[str, Any] = {name: ("phi", getattr(sums, name)) for name in SUM_NAMES}
    variables["num_steps"] = ((), sums.num_steps)
    return xr.Dataset(variables, coords={"phi": labels})


def _constant(model: GradientModel, *, release: Release, labels: NDArray[Any]) -> xr.Dataset:
    """Return the known constants: noise, priors, and the settings that fixed them."""
    names = ("noise_std", "phi_star_prior_mean", "phi_star_prior_sd", "v_prior_mean", "v_prior_sd")
    variables: dict[str, Any] = {name: ("phi", getattr(model, name)) for name in names}
    variables["sampling_rate"] = ((), release.sampling_rate)
    if model.tau_prior_scale is not None:
        variables["tau_prior_scale"] = ("phi", model.tau_prior_scale)
    return xr.Dataset(variables, coords={"phi": labels})
