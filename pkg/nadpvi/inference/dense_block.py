"""Draws for the coordinates that may interact: three blocks take turns.

The curvature given the variances, by Hamiltonian Monte Carlo with phi_star integrated out; phi_star given
both, from its normal conditional; the variances given both, by slice sampling.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.dense.density import (
    DenseModel,
    conditional_phi_star,
    dense_curvature,
    evaluate,
    squares,
)
from nadpvi.gradient_model.dense.mode import find_start
from nadpvi.gradient_model.dense.optimum import OptimumDraw, draw_optimum
from nadpvi.inference import hamiltonian

__all__ = ["DenseBlock", "draw_tau", "sample_dense_block"]

FloatArray = NDArray[np.float64]

# Where tau's range ends: in its prior's scales, where that has a mass of 1e-88; and for a prior that the
# trace contradicts, in sums of that scale and the residuals' sd, as far as the quadrature looks.
_WIDEST_TAU, _TAU_REACH = 20.0, 8.0


class DenseBlock(NamedTuple):
    """Draws of the coordinates that may interact.

    Attributes
    ----------
    phi_star, curvature : ndarray, shape (chain, draw, M)
        The optimum, and the diagonal of A.
    tau : ndarray, shape (chain, draw, M), or None
    hessian : ndarray, shape (chain, draw, M, M), or None
        The whole of A, where it was to be kept.
    theta : ndarray, shape (chain, draw, M), or None
        Parameters about phi_star with precision A, where phi_star has the law that the model's prior implies.
    sample_stats : dict of str to ndarray, shape (chain, draw)
    """

    phi_star: FloatArray
    curvature: FloatArray
    tau: FloatArray | None
    hessian: FloatArray | None
    theta: FloatArray | None
    sample_stats: dict[str, NDArray[np.generic]]


def sample_dense_block(
    model: DenseModel,
    *,
    draws: int,
    chains: int,
    warmup: int,
    rng: np.random.Generator,
    keep_hessian: bool = False,
    start: FloatArray | None = None,
) -> DenseBlock:
    """Return draws for the coordinates that may interact alone; arguments as in `sample_dense`.

    Chains move together: while warming up they share the step size and the metric that they adapt, and always
    the number of steps of a transition. With `start`, shape (chains, size), they start there in the model's
    own coordinates; that is for a simulation study in which each chain has a trace of its own.
    """
    if start is None:
        start = np.tile(find_start(model), (chains, 1))
        inner = model.coordinates.size
        start[:, :inner] += model.coordinates.dispersion() * rng.standard_normal((chains, inner))
    size = model.sums.num_parameters
    state = hamiltonian.init(start, variances=np.ones(model.size), warmup=warmup)
    tau = None if model.tau_prior_scale is None else np.tile(model.noise_std, (chains, 1)) * 0.1
    shape = (chains, draws, size)
    kept_phi, kept_a = np.empty(shape), np.empty(shape)
    kept_tau = None if tau is None else np.empty(shape)
    kept_hessian = np.empty((*shape, size)) if keep_hessian else None
    kept_theta = np.empty(shape) if model.is_predictive else None
    infos = []
    for index in range(-warmup, draws):
        if index == 0:
            state = hamiltonian.freeze(state)
        variance = _variance(model, tau, chains)

        def density(x: FloatArray, variance: FloatArray = variance) -> tuple[FloatArray, FloatArray]:
            return evaluate(model, x, variance=variance)

        state, info = hamiltonian.step(rng, state, density)
        curvature = dense_curvature(model, state.position)
        drawn = _draw(rng, model, curvature=curvature, variance=variance)
        phi_star = drawn.phi_star
        if tau is not None:
            tau = draw_tau(rng, model, squares(model, curvature=curvature, phi_star=phi_star), tau)
        if index >= 0:
            kept_phi[:, index], kept_a[:, index] = phi_star, np.diagonal(curvature, axis1=1, axis2=2)
            infos.append(info)
            if kept_hessian is not None:
                kept_hessian[:, index] = curvature
            if kept_tau is not None and tau is not None:
                kept_tau[:, index] = tau
            if kept_theta is not None:
                kept_theta[:, index] = drawn.theta
    return DenseBlock(kept_phi, kept_a, kept_tau, kept_hessian, kept_theta, _stack(infos, chains))


def _variance(model: DenseModel, tau: FloatArray | None, chains: int) -> FloatArray:
    """Return s^2, shape (C, M)."""
    known = np.square(model.noise_std)
    return np.tile(known, (chains, 1)) if tau is None else known + np.square(tau)


def _draw(
    rng: np.random.Generator, model: DenseModel, *, curvature: FloatArray, variance: FloatArray
) -> OptimumDraw:
    """Return a draw of phi_star given curvature and variances, and of theta where it has its own law."""
    if model.is_predictive:
        return draw_optimum(rng, model, curvature=curvature, variance=variance)
    mean, precision = conditional_phi_star(model, curvature=curvature, variance=variance)
    lower = np.linalg.cholesky(precision)
    normal = rng.standard_normal(mean.shape)
    phi_star: FloatArray = mean + np.linalg.solve(lower.transpose(0, 2, 1), normal[:, :, None])[:, :, 0]
    return OptimumDraw(phi_star, phi_star)


def draw_tau(rng: np.random.Generator, model: DenseModel, total: FloatArray, tau: FloatArray) -> FloatArray:
    """Return tau after one slice-sampling update given the sums of squares `total`, shape (C, M).

    The density in tau has one mode, so that shrinking an interval from the whole range towards the present
    value finds the slice (Neal 2003).
    """
    if model.tau_prior_scale is None:
        raise ArgumentError("tau is fixed at 0 in this model.")
    scale, known, n = model.tau_prior_scale, np.square(model.noise_std), model.sums.num_steps

    def log_density(value: FloatArray) -> FloatArray:
        variance = known + np.square(value)
        result: FloatArray = -0.5 * (n * np.log(variance) + total / variance + np.square(value / scale))
        return result

    level = log_density(tau) - rng.exponential(size=tau.shape)
    low, high = np.zeros_like(tau), np.maximum(_WIDEST_TAU * scale, _TAU_REACH * (scale + np.sqrt(total / n)))
    proposal = low + (high - low) * rng.random(tau.shape)
    is_out = log_density(proposal) < level
    while is_out.any():
        low = np.where(is_out & (proposal < tau), proposal, low)
        high = np.where(is_out & (proposal >= tau), proposal, high)
        proposal = np.where(is_out, low + (high - low) * rng.random(tau.shape), proposal)
        is_out = log_density(proposal) < level
    return proposal


def _stack(infos: list[hamiltonian.Info], chains: int) -> dict[str, NDArray[np.generic]]:
    """Return the transitions' statistics, shape (chain, draw)."""
    stats: dict[str, NDArray[np.generic]] = {
        name: np.stack([getattr(info, name) for info in infos], axis=1)
        for name in ("acceptance_rate", "diverging", "lp", "energy")
    }
    for name in ("step_size", "n_steps"):
        stats[name] = np.tile(np.array([getattr(info, name) for info in infos]), (chains, 1))
    return stats
