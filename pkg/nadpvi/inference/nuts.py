"""The NUTS method: `stan/gradient_model.stan` sampled by a Stan engine."""

import warnings

import numpy as np
from numpy.typing import NDArray

from nadpvi.engines.base import MAX_SEED, SAMPLER_COLUMNS, Engine, SamplerSettings, check_storage
from nadpvi.engines.programs import program_path
from nadpvi.errors import ArgumentError, InferenceWarning
from nadpvi.gradient_model import GradientModel
from nadpvi.inference.draws import PostProcessingDraws, seed_sequence

__all__ = ["make_stan_data", "prepare_nuts", "sample_nuts"]

FloatArray = NDArray[np.float64]

PROGRAM = "gradient_model"


def make_stan_data(
    model: GradientModel, *, num_model_parameters: int = 0, scale: str = "sd"
) -> dict[str, int | float | FloatArray]:
    """Return the data of `stan/gradient_model.stan`, under the names that the program declares.

    Parameters
    ----------
    model : GradientModel
    num_model_parameters : int
        K, where phi = (mu, u) is a mean-field Gaussian guide with D = 2 K and the program should also draw
        theta from it; 0 leaves theta out.
    scale : {"sd", "variance"}
        Which of the two softplus(u) is.

    Raises
    ------
    ArgumentError
        If K does not fit D, or `scale` is unknown.
    """
    size = model.num_parameters
    if num_model_parameters not in (0, size / 2):
        raise ArgumentError(
            f"num_model_parameters must be 0 or D / 2 = {size / 2:g} (got {num_model_parameters})."
        )
    if scale not in ("sd", "variance"):
        raise ArgumentError(f"scale must be one of 'sd', 'variance' (got {scale!r}).")
    sums, tau_scale = model.sums, model.tau_prior_scale
    return {
        "D": size,
        "num_steps": sums.num_steps,
        "phi_bar": sums.phi_bar,
        "g_bar": sums.g_bar,
        "s_pp": sums.s_pp,
        "s_gp": sums.s_gp,
        "s_gg": sums.s_gg,
        "sampling_rate": model.sampling_rate,
        "noise_std": model.noise_std,
        "phi_star_prior_mean": model.phi_star_prior_mean,
        "phi_star_prior_sd": model.phi_star_prior_sd,
        "v_prior_mean": model.v_prior_mean,
        "v_prior_sd": model.v_prior_sd,
        "use_tau": int(tau_scale is not None),
        "tau_prior_scale": np.zeros(0) if tau_scale is None else tau_scale,
        "K": int(num_model_parameters),
        "scale_is_sd": int(scale == "sd"),
    }


def _stan_seed(seed: int | np.random.SeedSequence) -> int:
    """Return a seed for Stan drawn from a spawned child of the caller's seed."""
    return int(seed_sequence(seed).spawn(1)[0].generate_state(1)[0]) & MAX_SEED


def _warn_of_trouble(sample_stats: dict[str, NDArray[np.generic]], max_treedepth: int) -> None:
    """Issue one typed warning for each kind of trouble that the sampler reports."""
    diverging = sample_stats["diverging"]
    count = int(np.count_nonzero(diverging))
    if count:
        warnings.warn(
            f"{count} of {diverging.size} NUTS transitions diverged, so parts of the posterior may be "
            "missing: raise adapt_delta.",
            InferenceWarning,
            stacklevel=3,
        )
    saturated = int(np.count_nonzero(sample_stats["tree_depth"].astype(np.int64) >= max_treedepth))
    if saturated:
        warnings.warn(
            f"{saturated} of {diverging.size} NUTS transitions reached the tree depth limit of "
            f"{max_treedepth}, so draws are more correlated than they need to be: run more warm-up.",
            InferenceWarning,
            stacklevel=3,
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
    InferenceWarning
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
    _warn_of_trouble(result.sample_stats, max_treedepth)
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
