"""The benchmark's models once more, for JAX and PyTorch: only names that both libraries have."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["make_densities"]


def make_densities(model: dict[str, Any], xp: ModuleType) -> tuple[Callable, Callable]:
    """Return (log_likelihood(theta, x, y), log_prior(theta)) of one record and of theta (S, K), shapes (S,).

    Parameters
    ----------
    model : dict
        The package's description of the model.
    xp : module
        ``jax.numpy`` or ``torch``.
    """
    if model["kind"] == "logistic_regression":
        return _logistic(model, xp)
    if model["kind"] == "exponential_gamma":
        return _exponential(model, xp)
    if model["kind"] == "linear_regression":
        return _line(model, xp)
    raise ValueError(f"no densities for {model['kind']}")


def _logistic(model: dict[str, Any], xp: ModuleType) -> tuple[Callable, Callable]:
    def log_likelihood(theta, x, y):
        predictor = theta @ x
        return y * predictor - xp.logaddexp(xp.zeros_like(predictor), predictor)

    def log_prior(theta):
        return -0.5 * (theta**2).sum(-1) / model["prior_sd"] ** 2

    return log_likelihood, log_prior


def _exponential(model: dict[str, Any], xp: ModuleType) -> tuple[Callable, Callable]:
    def log_likelihood(theta, x, y):
        return theta[:, 0] - xp.exp(theta[:, 0]) * y

    def log_prior(theta):
        return model["prior_shape"] * theta[:, 0] - model["prior_rate"] * xp.exp(theta[:, 0])

    return log_likelihood, log_prior


def _line(model: dict[str, Any], xp: ModuleType) -> tuple[Callable, Callable]:
    def log_likelihood(theta, x, y):
        log_variance = theta[:, -1]
        return -0.5 * (y - theta[:, :-1] @ x) ** 2 * xp.exp(-log_variance) - 0.5 * log_variance

    def log_prior(theta):
        log_variance, size = theta[:, -1], theta.shape[1] - 1
        squares = (theta[:, :-1] ** 2).sum(-1) / model["prior_sd"] ** 2
        located = -0.5 * squares * xp.exp(-log_variance) - 0.5 * size * log_variance
        return located - model["prior_shape"] * log_variance - model["prior_scale"] * xp.exp(-log_variance)

    return log_likelihood, log_prior
