"""The posteriors that an experiment compares, each as draws of theta for every table of a block."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.baselines import (
    DPVImRelease,
    dpvim_posterior,
    dpvim_release,
    last_iterate_posterior,
    make_statistics_family,
    make_statistics_mechanism,
    non_private_posterior,
    sample_statistics,
    simulate_dpvim_releases,
    simulate_statistics,
    true_statistics,
)
from nadpvi.baselines.sufficient_statistics.gibbs import NoiseKind
from nadpvi.containers.posterior import Posterior
from nadpvi.errors import InferenceWarning
from nadpvi.experiments.blocks import Block
from nadpvi.inference.api import infer
from nadpvi.inference.many import exact_theta
from nadpvi.models.base import ExponentialFamily

__all__ = ["LABELS", "METHODS", "Method"]

Array = NDArray[np.float64]
Draw = Callable[[Block, int], Array]


class Method(NamedTuple):
    """A way to a posterior.

    ``label`` names it in tables and figures. ``draw`` gives draws of theta, shape (R, S, K), for a block and
    the method's ``child``, the one of each replicate's seeds that it draws from. ``reads_release`` says
    whether it is given the release: reference points of TARP may be any function of what a posterior is
    given. Those around the release's mean iterate show a method that ignores its data; a rival with a
    mechanism of its own is not given that iterate, which knows more of the truth than it does.
    """

    label: str
    child: int
    draw: Draw
    reads_release: bool = True


def _thinned(posterior: Posterior, draws: int) -> Array:
    """Return `draws` draws of theta, evenly spread over the chains laid end to end, shape (S, K)."""
    theta = posterior.theta()
    theta = theta.reshape(-1, theta.shape[-1])
    chosen: Array = theta[np.linspace(0, len(theta) - 1, draws).astype(int)]
    return chosen


def _inferred(method: str) -> Draw:
    """Return a method that calls `nadpvi.infer` on one release after the other."""

    def draws(block: Block, child: int) -> Array:
        found = []
        releases = block.releases if method == "dense" else block.summed_releases
        for number, release in enumerate(releases):
            with warnings.catch_warnings():
                # What is diagnosed of one run is no news in a study of thousands.
                warnings.simplefilter("ignore", InferenceWarning)
                posterior = infer(
                    release,
                    method=method,  # type: ignore[arg-type]
                    draws=block.draws,
                    chains=1 if method == "laplace" else 4,
                    warmup=block.warmup,
                    seed=block.draw_seed(number, child=child),
                    **block.inference_of(releases),
                )
            found.append(_thinned(posterior, block.draws))
        return np.array(found)

    return draws


def _exact(block: Block, child: int) -> Array:
    """Return draws of the exact method, all releases at once."""
    releases = block.summed_releases
    seed = np.random.SeedSequence(block.seeds[0], spawn_key=(2**31, child))
    return exact_theta(releases, draws=block.draws, seed=seed, **block.inference_of(releases))


def _last_iterate(block: Block, child: int) -> Array:
    """Return draws of the guide at the last iterate."""
    seeds = [block.draw_seed(number, child=child) for number in range(len(block.seeds))]
    return np.array(
        [
            last_iterate_posterior(release, draws=block.draws, seed=seed).theta()[0]
            for release, seed in zip(block.summed_releases, seeds, strict=True)
        ]
    )


def _non_private(block: Block, child: int) -> Array:
    """Return draws of the posterior given the records themselves."""
    return np.array(
        [
            non_private_posterior(
                block.setting.model,
                table.records,
                schema=block.setting.schema,
                draws=block.draws,
                seed=block.draw_seed(number, child=child),
            ).theta()[0]
            for number, table in enumerate(block.tables)
        ]
    )


def _dpvim(block: Block, child: int) -> Array:
    """Return draws of DPVIm's posterior, from runs of its own on the same tables and budget.

    Its clip norm bounds the location's gradient alone: it is the model's own bound where there is one.
    """
    setting = block.setting
    bound = setting.model.gradient_bound(setting.model.design(setting.schema))
    changes = {"monte_carlo_samples": 1, **({} if bound is None else {"clip_norm": None})}
    shared: dict[str, Any] = {
        "schema": setting.schema,
        "privacy": block.budget,
        "config": block.config(**changes),
    }
    runs: Iterable[DPVImRelease]
    if isinstance(setting.model, ExponentialFamily):
        outcomes = [table.records.y for table in block.tables]
        runs = simulate_dpvim_releases(setting.model, outcomes, seeds=block.seeds, **shared)
    else:
        runs = (
            dpvim_release(setting.model, table.records, insecure_seed=seed, **shared)
            for table, seed in zip(block.tables, block.seeds, strict=True)
        )
    found = []
    for number, run in enumerate(runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InferenceWarning)
            seed = block.draw_seed(number, child=child)
            found.append(dpvim_posterior(run, draws=block.draws, seed=seed).theta()[0])
    return np.array(found)


def _noisy_statistics(noise: NoiseKind) -> Draw:
    """Return Bernstein and Sheldon's method: all sufficient statistics released once, then Gibbs sampling.

    Records are clamped to the source's own bounds for it; a regression's predictors have known moments.
    """

    def draws(block: Block, child: int) -> Array:
        setting = block.setting
        family = make_statistics_family(
            setting.model,
            setting.statistics_schema or setting.schema,
            neighbouring_relation=block.budget.neighbouring_relation,
            moments=setting.moments,
        )
        mechanism = make_statistics_mechanism(family, privacy=block.budget, noise=noise)
        rng = block.generator(0, child=child)
        has_features = bool(block.tables[0].records.x.shape[1])
        sums = [
            true_statistics(
                mechanism, table.records.y[None], x=table.records.x[None] if has_features else None
            )[0]
            for table in block.tables
        ]
        found = sample_statistics(
            family,
            simulate_statistics(mechanism, sums, rng=rng),
            noise=noise,
            noise_scale=mechanism.noise_scale,
            num_records=None,
            draws=block.draws,
            rng=rng,
            thin=3,
        )
        return found.theta

    return draws


METHODS = {
    "exact": Method("NA-DPVI, exact", 5, _exact),
    "nuts": Method("NA-DPVI, NUTS", 0, _inferred("nuts")),
    "laplace": Method("NA-DPVI, Laplace", 1, _inferred("laplace")),
    "dense": Method("NA-DPVI, dense", 2, _inferred("dense")),
    "last_iterate": Method("last iterate (naive)", 3, _last_iterate),
    "dpvim": Method("DPVIm", 6, _dpvim, reads_release=False),
    "statistics_laplace": Method(
        "noisy statistics, Laplace", 7, _noisy_statistics("laplace"), reads_release=False
    ),
    "statistics_gaussian": Method(
        "noisy statistics, Gaussian", 8, _noisy_statistics("gaussian"), reads_release=False
    ),
    # Given the records, and with them all that the release's iterates could tell of the truth.
    "non_private": Method("non-private", 4, _non_private),
}

LABELS = {name: method.label for name, method in METHODS.items()}
