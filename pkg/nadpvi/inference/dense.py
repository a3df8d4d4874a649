"""The dense method: a curvature matrix that is not diagonal, with the schema's pattern as its prior.

Coordinates that may interact are sampled together (`dense_block`); the others, a guide's scales above all,
are drawn by the exact method beside.
"""

import warnings

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nadpvi.bijectors import inverse_softplus
from nadpvi.checks import check_count
from nadpvi.containers.release import Release
from nadpvi.engines.base import check_storage
from nadpvi.errors import ArgumentError, InferenceWarning
from nadpvi.gradient_model import GradientModel
from nadpvi.gradient_model.dense.prior import DensePrior
from nadpvi.gradient_model.dense.setup import make_dense_model
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN
from nadpvi.inference.dense_block import sample_dense_block
from nadpvi.inference.draws import PostProcessingDraws, seed_sequence
from nadpvi.inference.exact import sample_exact

__all__ = ["sample_dense"]

_MOST_HESSIAN_NUMBERS = 1 << 22  # 32 MiB; beyond that the matrices would dwarf all else in a posterior's file


def sample_dense(
    model: GradientModel,
    *,
    release: Release,
    draws: int,
    chains: int,
    warmup: int,
    seed: int | np.random.SeedSequence,
    burn_in: float | None = None,
    prior: DensePrior | None = None,
    is_predictive: bool = False,
) -> PostProcessingDraws:
    """Return draws of (phi_star, diagonal of the curvature[, tau]) under a curvature that is not diagonal.

    Parameters
    ----------
    model : GradientModel
        The diagonal model of the release: noise, and the priors of phi_star and tau.
    release : Release
        Its trace gives the matrix sums, its description the schema's pattern, its curvature a prior mean.
    draws, chains, warmup : int
        At least 1 each; draws and warmup count per chain. A few hundred of warmup are needed, and more the
        more coordinates interact.
    seed : int or SeedSequence
        Non-negative.
    burn_in : float, optional
        The share of steps that `model` dropped; 0.2 when omitted.
    prior : DensePrior, optional
        Of the curvature; `make_dense_prior`'s when omitted.
    is_predictive : bool
        Whether `model` has the parameters' own prior, so that phi_star gets the law which that implies.

    Returns
    -------
    PostProcessingDraws
        With the curvature's matrices where all of them together are at most 2**22 numbers.

    Raises
    ------
    ArgumentError
        If a setting is out of range, the release holds sums instead of a trace, or more than 200 coordinates
        may interact.

    Warns
    -----
    InferenceWarning
        If transitions diverge.
    """
    for name, value in (("draws", draws), ("chains", chains), ("warmup", warmup)):
        check_count(name, value)
    if release.sums is not None:
        raise ArgumentError(
            "method='dense' needs the trace, and this release holds sums of single coordinates: make it with "
            "keep=\"trace\", or use method='exact'."
        )
    vectors = 3 if model.tau_prior_scale is None else 4
    check_storage(chains=chains, draws=draws, values_per_draw=vectors * model.num_parameters)
    block_seed, rest_seed = seed_sequence(seed).spawn(2)
    dense = make_dense_model(
        release,
        model=model,
        burn_in=DEFAULT_BURN_IN if burn_in is None else burn_in,
        prior=prior,
        is_predictive=is_predictive,
    )
    size = dense.sums.num_parameters
    # Threads of BLAS wait for each other on matrices this small: five coefficients took seven times as long.
    with threadpool_limits(limits=1, user_api="blas"):
        block = sample_dense_block(
            dense,
            draws=draws,
            chains=chains,
            warmup=warmup,
            rng=np.random.default_rng(block_seed),
            keep_hessian=chains * draws * size**2 <= _MOST_HESSIAN_NUMBERS,
        )
    phi_star, curvature, tau = block.phi_star, block.curvature, block.tau
    if size < model.num_parameters:
        rest = sample_exact(model.take(slice(size, None)), draws=draws, chains=chains, seed=rest_seed)
        phi_star = np.concatenate([phi_star, rest.phi_star], axis=2)
        curvature = np.concatenate([curvature, rest.curvature], axis=2)
        if tau is not None and rest.tau is not None:
            tau = np.concatenate([tau, rest.tau], axis=2)
    _warn_of_divergences(block.sample_stats["diverging"])
    return PostProcessingDraws(
        phi_star=phi_star,
        curvature=curvature,
        v=inverse_softplus(curvature),
        tau=tau,
        sample_stats=block.sample_stats,
        engine_name="Hamiltonian Monte Carlo in NumPy",
        engine_version=np.__version__,
        hessian=block.hessian,
        theta=block.theta,
    )


def _warn_of_divergences(diverging: NDArray[np.generic]) -> None:
    """Warn where trajectories left the density."""
    count = int(np.count_nonzero(diverging))
    if count:
        warnings.warn(
            f"{count} of {diverging.size} transitions diverged, so parts of the posterior may be missing: "
            "raise warmup.",
            InferenceWarning,
            stacklevel=3,
        )
