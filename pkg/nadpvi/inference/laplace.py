"""Laplace's method: a Gaussian at the mode of the post-processing model's density (eqs. 18 and 19)."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.bijectors import softplus
from nadpvi.checks import check_count
from nadpvi.engines.base import MAX_SEED, check_storage
from nadpvi.engines.cmdstan import CmdStanEngine
from nadpvi.engines.programs import program_path
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model import GradientModel, ReleasedTrace
from nadpvi.gradient_model.mode import Modes, find_modes
from nadpvi.gradient_model.precisions import marginal_sd, unit_diagonal
from nadpvi.inference.draws import PostProcessingDraws, seed_sequence
from nadpvi.inference.stan_data import make_trace_data

__all__ = ["gaussian_moments", "sample_laplace", "sample_laplace_with_cmdstan"]

FloatArray = NDArray[np.float64]


def sample_laplace(
    model: GradientModel, *, draws: int, chains: int, seed: int | np.random.SeedSequence
) -> PostProcessingDraws:
    """Return independent draws from the Gaussian approximation of (v, phi_star[, log tau]), without Stan.

    Mean and precision are the mode and the negative Hessian of the log density of trace, v, phi_star[, log
    tau] (eqs. 18 and 19), coordinate by coordinate. The mode of log tau, unlike that of tau, is never at the
    boundary; but where the data leave room for tau = 0 the Gaussian is a poor picture of it.

    Parameters
    ----------
    model : GradientModel
    draws, chains : int
        At least 1 each. Chains are a way to arrange the draws: all of them are independent.
    seed : int or SeedSequence
        Non-negative. A SeedSequence is spawned from, so a second call with the same object gives other draws.

    Raises
    ------
    ArgumentError
        If a setting is out of range, or a coordinate has no mode with a negative definite Hessian.
    """
    num_draws, num_chains = check_count("draws", draws), check_count("chains", chains)
    use_tau = model.tau_prior_scale is not None
    check_storage(
        chains=num_chains, draws=num_draws, values_per_draw=(4 if use_tau else 3) * model.num_parameters
    )
    modes = find_modes(model)
    _check_converged(model, modes)
    rng = np.random.default_rng(seed_sequence(seed).spawn(1)[0])
    normals = rng.standard_normal((num_chains, num_draws, model.num_parameters, modes.precision.shape[1]))
    deviations = _correlated(modes.precision, normals)
    v = modes.v + deviations[..., 0]
    tau = None
    if modes.log_tau is not None:
        tau = np.exp(modes.log_tau + deviations[..., 2])
    return PostProcessingDraws(
        phi_star=modes.phi_star + deviations[..., 1],
        curvature=softplus(v),
        v=v,
        tau=tau,
        sample_stats={},
        engine_name="Newton in NumPy",
        engine_version=np.__version__,
    )


def sample_laplace_with_cmdstan(
    model: GradientModel,
    release: ReleasedTrace,
    *,
    engine: CmdStanEngine,
    draws: int,
    chains: int,
    seed: int | np.random.SeedSequence,
) -> PostProcessingDraws:
    """Return draws from the same Gaussian by Stan's own optimizer and Hessian: a check of `sample_laplace`.

    Runs CmdStan's laplace method on the row-by-row program, whose unconstrained scale is that of (v,
    phi_star[, log tau]) up to units; its time grows with the number of steps.

    Parameters
    ----------
    model : GradientModel
    release : ReleasedTrace
        The one that the model is of, with its trace.
    engine : CmdStanEngine
    draws, chains, seed
        As in `sample_laplace`.

    Raises
    ------
    ArgumentError
        If a setting is out of range, or the release holds sums only.
    EngineError
        If CmdStan fails or finds no proper mode.
    """
    num_draws, num_chains = check_count("draws", draws), check_count("chains", chains)
    found = engine.laplace(
        program_path("gradient_model_trace"),
        make_trace_data(model, release),
        draws=num_chains * num_draws,
        seed=int(seed_sequence(seed).spawn(1)[0].generate_state(1)[0]) & MAX_SEED,
        # the standardised parameters' prior is around 0, and so is the posterior
        init_radius=0.1,
    )

    def arranged(name: str) -> FloatArray:
        """Return a variable's draws as chains."""
        return found.variables[name].reshape(num_chains, num_draws, model.num_parameters)

    return PostProcessingDraws(
        phi_star=arranged("phi_star"),
        curvature=arranged("curvature"),
        v=arranged("v"),
        tau=None if model.tau_prior_scale is None else arranged("tau"),
        sample_stats={},
        engine_name=engine.name,
        engine_version=engine.version,
    )


def gaussian_moments(model: GradientModel) -> tuple[FloatArray, FloatArray]:
    """Return mean and sd of phi_star under the Gaussian at the mode, shape (D,) each.

    Raises
    ------
    ArgumentError
        If a coordinate has no mode with a negative definite Hessian.
    """
    modes = find_modes(model)
    _check_converged(model, modes)
    return modes.phi_star, marginal_sd(modes.precision, index=1)


def _correlated(precision: FloatArray, normals: FloatArray) -> FloatArray:
    """Return draws of normal(0, precision^-1), shape (..., D, k), from standard normals of that shape."""
    # units differ by orders of magnitude between coordinates and within one
    scaled, root = unit_diagonal(precision)
    factor = np.swapaxes(np.linalg.cholesky(scaled), 1, 2)
    result = np.empty_like(normals)
    size = factor.shape[1]
    for i in reversed(range(size)):
        rest = normals[..., i].copy()
        for j in range(i + 1, size):
            rest -= factor[:, i, j] * result[..., j]
        result[..., i] = rest / factor[:, i, i]
    result *= root
    return result


def _check_converged(model: GradientModel, modes: Modes) -> None:
    """Raise for the first coordinate that Newton's method did not bring to a mode."""
    bad = np.flatnonzero(~modes.has_converged)
    if bad.size:
        more = f" (and {bad.size - 1} more coordinates)" if bad.size > 1 else ""
        raise ArgumentError(
            "method='laplace' finds no mode with a negative definite Hessian for "
            f"{model.phi_labels[bad[0]]!r}{more}, ending at v = {modes.v[bad[0]]:.6g}: use method='exact'."
        )
