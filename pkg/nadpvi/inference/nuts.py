"""The NUTS method: `stan/gradient_model.stan` sampled by a Stan engine."""

import warnings

import numpy as np
from numpy.typing import NDArray

from nadpvi.engines.base import MAX_SEED, SAMPLER_COLUMNS, Engine, SamplerSettings, check_storage
from nadpvi.engines.programs import program_path
from nadpvi.errors import SamplerWarning
from nadpvi.gradient_model import GradientModel
from nadpvi.inference.draws import PostProcessingDraws, seed_sequence
from nadpvi.inference.stan_data import make_stan_data

__all__ = ["make_stan_data", "prepare_nuts", "sample_nuts", "warn_of_trouble"]

PROGRAM = "gradient_model"


def _stan_seed(seed: int | np.random.SeedSequence) -> int:
    """Return a seed for Stan drawn from a spawned child of the caller's seed."""
    return int(seed_sequence(seed).spawn(1)[0].generate_state(1)[0]) & MAX_SEED


def warn_of_trouble(
    sample_stats: dict[str, NDArray[np.generic]], *, max_treedepth: int, stacklevel: int = 2
) -> None:
    """Issue one typed warning for each kind of trouble that the sampler reports.

    Warns
    -----
    SamplerWarning
        On divergences and on transitions that reached the tree depth limit.
    """
    diverging = sample_stats["diverging"]
    count = int(np.count_nonzero(diverging))
    if count:
        warnings.warn(
            f"{count} of {diverging.size} NUTS transitions diverged, so parts of the posterior may be "
            "missing: raise adapt_delta.",
            SamplerWarning,
            stacklevel=stacklevel + 1,
        )
    saturated = int(np.count_nonzero(sample_stats["tree_depth"].astype(np.int64) >= max_treedepth))
    if saturated:
        warnings.warn(
            f"{saturated} of {diverging.size} NUTS transitions reached the tree depth limit of "
            f"{max_treedepth}, so draws are more correlated than they need to be: run more warm-up.",
            SamplerWarning,
            stacklevel=stacklevel + 1,
        )


def prepare_nuts(engine: Engine) -> None:
    """Let an engine compile the program of `sample_nuts`; to be called before a privacy budget is spent.

    Raises
    ------
    EngineError
        If it cannot; the message holds the remedy.
    """
    engine.prepare(program_path(PROGRAM))


def sample_nuts(
    model: GradientModel,
    *,
    engine: Engine,
    draws: int,
    chains: int,
    warmup: int,
    seed: int | np.random.SeedSequence,
    adapt_delta: float = 0.8,
    max_treedepth: int = 10,
) -> PostProcessingDraws:
    """Return NUTS draws of (phi_star, curvature[, tau]) given the trace.

    Parameters
    ----------
    model : GradientModel
    engine : Engine
        From `nadpvi.engines.discover.find_engine`.
    draws, chains, warmup : int
        At least 1 each; draws and warmup count per chain. At most 10**7 draws, 10**7 warm-up iterations and
        1,000 chains, and together no more draws than 16 GiB hold.
    seed : int or SeedSequence
        Non-negative. One seed and one engine give one result. A SeedSequence is spawned from, so a second
        call with the same object gives other draws.
    adapt_delta : float
        Target acceptance rate in (0, 1).
    max_treedepth : int
        1 to 30.

    Raises
    ------
    ArgumentError
        If a setting is out of range.
    EngineError
        If a chain fails; fewer chains than asked for are never returned.

    Warns
    -----
    SamplerWarning
        On divergences and on transitions that reach the tree depth limit.
    """
    settings = SamplerSettings(
        chains=chains,
        warmup=warmup,
        draws=draws,
        seed=_stan_seed(seed),
        adapt_delta=adapt_delta,
        max_treedepth=max_treedepth,
    )
    # phi_star, curvature, v and tau
    num_vectors = 3 if model.tau_prior_scale is None else 4
    values_per_draw = len(SAMPLER_COLUMNS) + num_vectors * model.num_parameters
    check_storage(chains=settings.chains, draws=settings.draws, values_per_draw=values_per_draw)
    result = engine.sample(
        program_path(PROGRAM),
        make_stan_data(model),
        chains=settings.chains,
        warmup=settings.warmup,
        draws=settings.draws,
        seed=settings.seed,
        adapt_delta=settings.adapt_delta,
        max_treedepth=settings.max_treedepth,
    )
    warn_of_trouble(result.sample_stats, max_treedepth=max_treedepth, stacklevel=2)
    variables = result.variables
    return PostProcessingDraws(
        phi_star=variables["phi_star"],
        curvature=variables["curvature"],
        v=variables["v"],
        tau=None if model.tau_prior_scale is None else variables["tau"],
        sample_stats=result.sample_stats,
        engine_name=engine.name,
        engine_version=engine.version,
    )
