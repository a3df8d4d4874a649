"""The analyst's second call where clipping binds: a posterior in, one without its bias out. Public side."""

import dataclasses
import warnings
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.checks import check_positive
from nadpvi.clipping.inversion import Centre, WeightedDraws, find_centre, weigh_draws
from nadpvi.clipping.records import QuantileModel
from nadpvi.clipping.stationary import ClippedLoss
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.posterior_like import SPREAD
from nadpvi.containers.release import Release
from nadpvi.containers.variables import model_variables
from nadpvi.errors import ArgumentError, InferenceWarning
from nadpvi.privacy.randomness import check_seed

__all__ = ["correct_clipping"]

Array = NDArray[np.float64]

_SETTING = "clipping"
_LEAST_EFFECTIVE = 200.0  # draws
_MOST_ERROR = 0.1  # of the map, in sds of what records scatter


def correct_clipping(
    posterior: Posterior,
    release: Release,
    *,
    num_records: float | None = None,
    seed: int | None = None,
) -> Posterior:
    """Return a posterior of the parameters from which the bias of clipped gradients is taken out.

    Where a clip norm cuts gradients, a run comes to rest at the optimum of the clipped loss, and the guide
    around it is not about the parameters. Here the map from parameters to that optimum is computed from the
    model, and inverted with its uncertainty (indirect inference): draws of phi_star stay as they are, those
    of the parameters are drawn anew given phi_star's locations. Where nothing is clipped and the scales have
    settled, the result is that of ``infer(release, phi_star_prior="model")``, to Monte Carlo error.

    Correct where clipping binds, which `nadpvi.plan` foresees, not as a rule: where noise drowns the records
    and nothing is clipped, the result is narrower than before and no better (docs/method.md).

    It believes the model's likelihood more than `infer` does: whether the clipped part of the records is
    where the model says decides how far the optimum is moved back.

    Parameters
    ----------
    posterior : Posterior
        From `infer(release)` with a diagonal curvature ("nuts", "exact" or "laplace").
    release : Release
        The one it was inferred from. Its model has no predictors, and simulates its outcomes.
    num_records : float, optional
        A public number of records, or a guess. When omitted it is derived from the curvature that the trace
        shows, which the release gives away in any case. It fixes how far records scatter the optimum, and
        hardly where it is.
    seed : int, optional
        Makes the result reproducible; fresh entropy when omitted.

    Returns
    -------
    Posterior
        ``settings["clipping"]`` says that it was corrected, for how many records, by how much the locations
        had been moved, and how many independent draws the weighted ones are worth.

    Raises
    ------
    ArgumentError
        If the model has predictors or cannot simulate, the curvature is a matrix, or the two do not belong
        together.
    ModelError
        If no parameters explain where the run came to rest.

    Warns
    -----
    InferenceWarning
        If few of the draws carry the weight, or the map is not smooth enough.
    """
    loss = _loss_of(posterior, release)
    records = None if num_records is None else check_positive("num_records", num_records)
    if seed is not None:
        check_seed("seed", seed)
    rng = np.random.default_rng(seed)
    draws, size = posterior.groups["posterior"], len(loss.description.names)
    locations = draws["phi_star"].to_numpy()[..., :size]
    curvature = draws["curvature"].to_numpy()[..., :size]
    used = posterior.groups["constant_data"]
    centre = find_centre(
        loss, locations.reshape(-1, size), curvature=curvature.reshape(-1, size), num_records=records
    )
    weighed = weigh_draws(
        loss,
        locations.reshape(-1, size),
        centre=centre,
        prior_mean=used["phi_star_prior_mean"].to_numpy()[:size],
        prior_sd=used["phi_star_prior_sd"].to_numpy()[:size],
        rng=rng,
    )
    chosen, theta, effective = _resampled(weighed, shape=locations.shape, rng=rng)
    _warn(effective, error=weighed.response.error, total=locations[..., 0].size)
    settings = posterior.settings | {
        SPREAD: "records",
        _SETTING: _facts(centre, names=loss.description.names, is_given=records is not None)
        | {"effective_draws": round(effective, 1)},
    }
    groups = _regrouped(posterior, chosen)
    kept = groups["posterior"].drop_vars([block.name for block in loss.description.parameters])
    groups["posterior"] = kept.merge(model_variables(loss.description, theta))
    return dataclasses.replace(posterior, groups=groups, settings=settings)


def _loss_of(posterior: Posterior, release: Release) -> ClippedLoss:
    """Return what the run descended, or raise `ArgumentError` if it cannot be worked out."""
    if not isinstance(posterior, Posterior) or not isinstance(release, Release):
        raise ArgumentError("correct_clipping needs a Posterior and the Release that it was inferred from.")
    described, config = release.description, release.config
    if described is None or config is None:
        raise ArgumentError("clipping cannot be corrected: this release has no model, only a trace.")
    if posterior.description is None or posterior.description.to_dict() != described.to_dict():
        raise ArgumentError("posterior and release must belong together: their models differ.")
    if _SETTING in posterior.settings:
        raise ArgumentError("this posterior is corrected for clipping already.")
    if posterior.settings.get("curvature") != "diagonal":
        raise ArgumentError("clipping is corrected for method='nuts', 'exact' or 'laplace' only: infer so.")
    model: Any = described.model
    if described.design.predictors or not isinstance(model, QuantileModel):
        raise ArgumentError(
            f"clipping cannot be corrected for {described.model.kind}: it takes a model without predictors "
            "that can simulate its outcomes (the conjugate ones); raise clip_norm in the next run instead."
        )
    return ClippedLoss.of(
        model,
        described,
        clip_norm=release.clip_norm,
        preconditioner=release.preconditioner,
        num_draws=config.monte_carlo_samples,
        num_spread=config.num_records,
    )


def _resampled(
    weighed: WeightedDraws, *, shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[NDArray[np.intp], Array, float]:
    """Return which draws each chain keeps (C, M), their theta (C, M, K), and their effective number.

    Chains stay apart and in order, so that what they say of convergence stays true.
    """
    num_chains, num_draws, size = shape
    log_weights = weighed.log_weights.reshape(num_chains, -1)
    theta = weighed.theta.reshape(num_chains, -1, size)
    weights = np.exp(log_weights - log_weights.max())
    effective = float(weights.sum() ** 2 / np.square(weights).sum())
    places = (np.arange(num_draws) + rng.random((num_chains, 1))) / num_draws
    shares = np.cumsum(weights, axis=1)
    if not (shares[:, -1] > 0.0).all():
        raise ArgumentError("a chain has no draw that any parameters explain: infer with more draws.")
    shares /= shares[:, -1:]
    picked = np.array([np.searchsorted(own, place) for own, place in zip(shares, places, strict=True)])
    chosen = picked // (theta.shape[1] // num_draws)
    return chosen, np.take_along_axis(theta, picked[..., None], axis=1), effective


def _regrouped(posterior: Posterior, chosen: NDArray[np.intp]) -> dict[str, xr.Dataset]:
    """Return a posterior's groups with the chosen draws of each chain."""
    groups = dict(posterior.groups)
    for name in ("posterior", "sample_stats"):
        if name in groups:
            pick = xr.DataArray(chosen, dims=("chain", "draw"))
            own = xr.DataArray(np.arange(len(chosen)), dims="chain")
            group = groups[name]
            moved = group.drop_vars(["chain", "draw"], errors="ignore").isel(chain=own, draw=pick)
            groups[name] = moved.assign_coords({dim: group[dim] for dim in ("chain", "draw")})
    return groups


def _facts(centre: Centre, *, names: tuple[str, ...], is_given: bool) -> dict[str, Any]:
    """Return what a reader should know, as JSON types."""
    moved = (centre.location - centre.theta) / np.sqrt(np.diag(centre.spread @ centre.spread.T))
    return {
        "corrected": True,
        "num_records": round(centre.num_records, 1),
        "num_records_from": "given" if is_given else "curvature",
        "moved_by_sds": {name: round(float(move), 3) for name, move in zip(names, moved, strict=True)},
    }


def _warn(effective: float, *, error: float, total: int) -> None:
    """Warn of weights that few draws carry, and of a map that polynomials do not follow."""
    if effective < min(_LEAST_EFFECTIVE, 0.2 * total):
        warnings.warn(
            f"the correction for clipping rests on {effective:.0f} of {total} draws: infer with more, or "
            "with phi_star_prior='model'.",
            InferenceWarning,
            stacklevel=3,
        )
    if error > _MOST_ERROR:
        warnings.warn(
            f"the map that corrects clipping is known to {error:.2g} sds of the records' scatter only.",
            InferenceWarning,
            stacklevel=3,
        )
