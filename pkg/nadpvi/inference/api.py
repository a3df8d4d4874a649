"""The analyst's one call: a `Release` in, a `Posterior` out. Costs no privacy, however often it is made."""

from typing import Literal

import numpy as np

from nadpvi.containers.posterior import Posterior
from nadpvi.containers.posterior_like import SPREAD
from nadpvi.containers.release import Release
from nadpvi.containers.storage import package_versions
from nadpvi.diagnostics.burn_in import choose_burn_in
from nadpvi.engines.base import Engine, SamplerSettings
from nadpvi.engines.discover import ENGINE_NAMES, find_engine
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model import check_priors, make_gradient_model, window_start
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN
from nadpvi.inference.curvature_prior import curvature_prior_for
from nadpvi.inference.groups import make_groups, used_burn_in
from nadpvi.inference.health import with_findings
from nadpvi.inference.methods import Task, find_method, resolve_method
from nadpvi.inference.nuts import prepare_nuts
from nadpvi.privacy.randomness import check_seed

__all__ = ["check_inference", "infer"]


def infer(
    release: Release,
    *,
    method: Literal["auto", "nuts", "exact", "laplace", "dense"] = "auto",
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 1000,
    seed: int | None = None,
    burn_in: float | Literal["auto"] | None = None,
    phi_star_prior: Literal["trace", "model"] | None = None,
    curvature_prior: Literal["auto", "trace", "weak", "model", "tighter"] = "auto",
    subsampling_noise: bool = True,
    engine: Literal["auto", "cmdstan", "stanli"] = "auto",
    adapt_delta: float = 0.8,
) -> Posterior:
    """Return the noise-aware posterior that a release determines.

    Fits the post-processing model (Eq. 59), "noisy gradient = sampling rate * curvature * (phi - phi_star) +
    noise of known size", then mixes the guide over the draws of phi_star (Eqs. 13 and 21).

    Parameters
    ----------
    release : Release
        From `nadpvi.release`, a file, or `Release.from_arrays`.
    method : {"auto", "nuts", "exact", "laplace", "dense"}
        How the post-processing model is sampled. "auto": "dense" for a release that holds a curvature, unless
        an `engine` is named, and "nuts" for any other. "nuts": Stan's NUTS on ``gradient_model.stan``.
        "exact": independent draws of the same posterior from quadrature, coordinate by coordinate, in a
        fraction of the time and without Stan. "laplace": independent draws from a Gaussian at the mode (Eqs.
        18 and 19), an approximation. "dense": a curvature matrix for the guide's locations instead of a
        diagonal, which correlated or one-hot predictors need, by Hamiltonian Monte Carlo without Stan; with
        the pattern that the schema implies, and with a curvature that was released beside the trace where
        there is one.
    draws, chains, warmup : int
        Kept draws per chain, number of chains, and warm-up iterations per chain; each at least 1. Without
        chains ("exact", "laplace") `warmup` is ignored, and `chains` only arranges the draws.
    seed : int, optional
        Makes the result reproducible on one engine; fresh entropy when omitted. This is post-processing:
        the seed is no secret.
    burn_in : float or "auto", optional
        Share of the first steps left out of the window, in [0, 1); 0.2 when omitted. "auto" takes the
        shortest whose window is stationary: `nadpvi.diagnostics.choose_burn_in`. The window of a release
        that holds sums is fixed.
    phi_star_prior : {"trace", "model"}
        Normal prior around the window's mean (13.3), or the model's own prior where it has one. When omitted
        "trace", or "model" where "auto" stands for "dense".
    curvature_prior : {"auto", "trace", "weak", "model", "tighter"}
        Normal prior of v, the curvature before softplus: around its regression estimate with the estimate's
        own sd (13.3), with three times that sd, around what the guide's scales imply where they settled, or,
        for each coordinate, the one of "trace" and "model" that tells it better. "auto" is "tighter" for a
        release with suggested settings, else "trace".
        "dense" has its own for the coordinates that its matrix holds.
    subsampling_noise : bool
        Whether to infer the extra variance that subsampling adds to each gradient. It also takes up what the
        guide's Monte Carlo draws and a curvature that is not diagonal add. Without it intervals are too
        narrow unless the privacy noise is far larger than all of these.
    engine : {"auto", "cmdstan", "stanli"}
        Which Stan runs; "auto" takes CmdStan when one is installed, else the embedded stanli. Ignored by
        methods that need no Stan.
    adapt_delta : float
        NUTS's target acceptance rate, in (0, 1); raise it when transitions diverge. Ignored by the others.

    Returns
    -------
    Posterior
        Its `findings` are what `nadpvi.diagnose` and the chains say, as far as it concerns this method.

    Raises
    ------
    ArgumentError
        If an argument is out of range, or the trace does not determine the model.
    EngineError
        If no Stan engine is available, or it fails.

    Warns
    -----
    StationarityWarning, GradientModelWarning, PriorWeightWarning
        If the release does not bear out what the method takes for granted: see `nadpvi.diagnose`.
    SamplerWarning
        If the chains disagree or hold too few effective draws.
    InferenceWarning
        If the chains diverged or were cut short, or the quadrature fell short.
    """
    if not isinstance(release, Release):
        raise ArgumentError(f"release must be a Release (got {type(release).__name__}).")
    if isinstance(burn_in, str) and burn_in == "auto":
        burn_in = choose_burn_in(release)
    name, optimum_prior = resolve_method(
        method,
        phi_star_prior=phi_star_prior,
        has_curvature=release.curvature is not None,
        engine=engine,
    )
    resolved_prior = curvature_prior_for(release, curvature_prior)
    ready = check_inference(
        num_steps=release.num_steps if release.sums is None else release.sums.num_steps,
        method=name,
        draws=draws,
        chains=chains,
        warmup=warmup,
        seed=seed,
        burn_in=burn_in,
        phi_star_prior=optimum_prior,
        curvature_prior=resolved_prior,
        subsampling_noise=subsampling_noise,
        engine=engine,
        adapt_delta=adapt_delta,
    )
    sampler_seed, mixture_seed = np.random.SeedSequence(seed).spawn(2)
    model = make_gradient_model(
        release,
        burn_in=burn_in,
        phi_star_prior=optimum_prior,
        curvature_prior=resolved_prior,
        subsampling_noise=subsampling_noise,
    )
    chosen = find_method(name)
    fitted = chosen.sample(
        Task(
            release=release,
            model=model,
            draws=int(draws),
            chains=int(chains),
            warmup=int(warmup),
            adapt_delta=adapt_delta,
            burn_in=burn_in,
            seed=sampler_seed,
            engine=ready,
            phi_star_prior=optimum_prior,
        )
    )
    settings = {
        "method": name,
        "curvature": chosen.curvature,
        **({SPREAD: "curvature"} if fitted.theta is not None else {}),
        "engine": f"{fitted.engine_name} {fitted.engine_version}",
        **({"warmup": warmup} if chosen.has_chains else {}),
        **({"adapt_delta": adapt_delta} if chosen.uses_stan else {}),
        "burn_in": burn_in if burn_in is not None else used_burn_in(release),
        "phi_star_prior": optimum_prior,
        "curvature_prior": resolved_prior,
        "subsampling_noise": bool(subsampling_noise),
        "versions": package_versions(),
        "release_versions": release.versions,
    }
    groups = make_groups(release, model=model, fitted=fitted, rng=np.random.default_rng(mixture_seed))
    return Posterior(
        groups=groups,
        settings=with_findings(
            settings,
            groups=groups,
            release=release,
            model=model,
            burn_in=burn_in,
            has_chains=chosen.has_chains,
            stacklevel=2,
        ),
        guarantee=release.guarantee,
        description=release.description,
    )


def check_inference(
    *,
    num_steps: int,
    method: str = "nuts",
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 1000,
    seed: int | None = None,
    burn_in: float | str | None = None,
    phi_star_prior: str = "trace",
    curvature_prior: str = "auto",
    subsampling_noise: bool = True,
    engine: str = "auto",
    adapt_delta: float = 0.8,
) -> Engine | None:
    """Return the engine that `infer` would use, if any, after checking every setting that needs no release.

    Called before a budget is spent, it finds a missing engine or a bad setting in time; a CmdStan engine
    compiles the program here.

    Parameters
    ----------
    num_steps : int
        Steps that the release has or will have.
    method, draws, chains, warmup, seed, burn_in, phi_star_prior, curvature_prior
        As in `infer`.
    subsampling_noise, engine, adapt_delta
        As in `infer`; what a method ignores must be in its range all the same.

    Raises
    ------
    ArgumentError
        If a setting is out of range, or the window would be too short.
    EngineError
        If no engine is available, or it cannot compile the program.
    """
    chosen = find_method(method)
    if seed is not None:
        check_seed("seed", seed)
    if not isinstance(subsampling_noise, bool | np.bool_):
        raise ArgumentError(f"subsampling_noise must be True or False (got {subsampling_noise!r}).")
    if not isinstance(engine, str) or engine not in ENGINE_NAMES:
        raise ArgumentError(f"engine must be one of {', '.join(map(repr, ENGINE_NAMES))} (got {engine!r}).")
    check_priors(phi_star_prior=phi_star_prior, curvature_prior=curvature_prior)
    # "auto" is resolved once there is a release.
    share = DEFAULT_BURN_IN if burn_in is None or burn_in == "auto" else burn_in
    window_start(num_steps, burn_in=share)  # type: ignore[arg-type]
    SamplerSettings(chains=chains, warmup=warmup, draws=draws, seed=0, adapt_delta=adapt_delta)
    if not chosen.uses_stan:
        return None
    found = find_engine(engine)
    prepare_nuts(found)
    return found
