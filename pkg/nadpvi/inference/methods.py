"""The methods of `infer` by name: the one place where a method is added."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from nadpvi.containers.release import Release
from nadpvi.engines.base import Engine
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model import GradientModel
from nadpvi.inference.dense import sample_dense
from nadpvi.inference.draws import PostProcessingDraws
from nadpvi.inference.exact import sample_exact
from nadpvi.inference.laplace import sample_laplace
from nadpvi.inference.nuts import sample_nuts

__all__ = ["METHODS", "Method", "Task", "find_method", "resolve_method"]


class Task(NamedTuple):
    """What a method is given: the release, its diagonal model, and checked settings.

    `engine` is None for a method that does not use Stan.
    """

    release: Release
    model: GradientModel
    draws: int
    chains: int
    warmup: int
    adapt_delta: float
    burn_in: float | None
    seed: np.random.SeedSequence
    engine: Engine | None
    phi_star_prior: str


class Method(NamedTuple):
    """How a method samples, and what must be known about it.

    Attributes
    ----------
    sample : callable
        Takes a `Task`, returns the draws.
    uses_stan : bool
        Whether it needs an engine and `adapt_delta`.
    has_chains : bool
        Whether its draws depend on each other, so that chains can disagree.
    curvature : str
        What it takes the curvature to be.
    """

    sample: Callable[[Task], PostProcessingDraws]
    uses_stan: bool
    has_chains: bool
    curvature: str


def _nuts(task: Task) -> PostProcessingDraws:
    """Sample with Stan's NUTS."""
    if task.engine is None:
        raise ArgumentError("method='nuts' needs a Stan engine.")
    return sample_nuts(
        task.model,
        engine=task.engine,
        draws=task.draws,
        chains=task.chains,
        warmup=task.warmup,
        seed=task.seed,
        adapt_delta=task.adapt_delta,
    )


def _exact(task: Task) -> PostProcessingDraws:
    """Draw independently from the quadrature of the collapsed density."""
    return sample_exact(task.model, draws=task.draws, chains=task.chains, seed=task.seed)


def _laplace(task: Task) -> PostProcessingDraws:
    """Draw independently from the Gaussian at the mode."""
    return sample_laplace(task.model, draws=task.draws, chains=task.chains, seed=task.seed)


def _dense(task: Task) -> PostProcessingDraws:
    """Sample with a curvature matrix for the coordinates that may interact."""
    return sample_dense(
        task.model,
        release=task.release,
        burn_in=task.burn_in,
        draws=task.draws,
        chains=task.chains,
        warmup=task.warmup,
        seed=task.seed,
        is_predictive=task.phi_star_prior == "model",
    )


METHODS: Mapping[str, Method] = {
    "nuts": Method(_nuts, uses_stan=True, has_chains=True, curvature="diagonal"),
    "exact": Method(_exact, uses_stan=False, has_chains=False, curvature="diagonal"),
    "laplace": Method(_laplace, uses_stan=False, has_chains=False, curvature="diagonal"),
    "dense": Method(_dense, uses_stan=False, has_chains=True, curvature="dense"),
}


def find_method(name: object) -> Method:
    """Return the method of that name.

    Raises
    ------
    ArgumentError
        If there is none; the known names are listed.

    Examples
    --------
    >>> find_method("exact").uses_stan
    False
    """
    if not isinstance(name, str) or name not in METHODS:
        raise ArgumentError(f"method must be one of {', '.join(map(repr, METHODS))} (got {name!r}).")
    return METHODS[name]


def resolve_method(
    method: object, *, phi_star_prior: str | None, has_curvature: bool, engine: object = "auto"
) -> tuple[str, str]:
    """Return the method that "auto" stands for, and the prior of phi_star that goes with it.

    Parameters
    ----------
    method : str
        "auto" is "dense" with a curvature that was released, unless a Stan engine is asked for; else "nuts".
    phi_star_prior : str or None
        None is "model" where "auto" became "dense", which leaves weak directions to the prior, else "trace".
    has_curvature : bool
        Whether the release holds a curvature.
    engine : str
        As for `infer`.

    Examples
    --------
    >>> resolve_method("auto", phi_star_prior=None, has_curvature=True)
    ('dense', 'model')
    >>> resolve_method("dense", phi_star_prior=None, has_curvature=True)
    ('dense', 'trace')
    """
    if isinstance(method, str) and method == "auto":
        if has_curvature and engine == "auto":
            return "dense", "model" if phi_star_prior is None else phi_star_prior
        method = "nuts"
    if not isinstance(method, str) or method not in METHODS:
        known = ", ".join(map(repr, ("auto", *METHODS)))
        raise ArgumentError(f"method must be one of {known} (got {method!r}).")
    return method, "trace" if phi_star_prior is None else phi_star_prior
