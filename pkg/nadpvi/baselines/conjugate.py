"""Exact posteriors in closed form, where prior and likelihood are conjugate. Public side: array functions."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nadpvi.encoding import Design
from nadpvi.errors import ArgumentError
from nadpvi.models import (
    BernoulliBeta,
    CategoricalDirichlet,
    ExponentialGamma,
    LinearRegression,
    Model,
    Normal,
    PoissonGamma,
)
from nadpvi.models.base import RecordBatch
from nadpvi.models.exponential_family import draw_log_gamma

__all__ = ["draw_exact_posterior", "has_exact_posterior", "posterior_as_prior"]

Array = NDArray[np.float64]


def has_exact_posterior(model: Model) -> bool:
    """Return whether `draw_exact_posterior` knows the model; a subclass, which may differ, it does not."""
    return type(model) in _UPDATES or type(model) is LinearRegression


def draw_exact_posterior(
    model: Model, batch: RecordBatch, *, design: Design, num_draws: int, rng: np.random.Generator
) -> Array:
    """Return independent draws of unconstrained theta given the records, shape (`num_draws`, K).

    Parameters
    ----------
    model : Model
        A conjugate family, or `LinearRegression` with its normal-inverse-gamma prior.
    batch : RecordBatch
        All records, encoded.
    design : Design
        Of the model.
    num_draws : int
        At least 1.
    rng : numpy.random.Generator

    Raises
    ------
    ArgumentError
        If the model's posterior has no closed form here.
    """
    if type(model) is LinearRegression:
        return _linear_draws(model, batch, design=design, num_draws=num_draws, rng=rng)
    num_levels = len(design.outcome_levels) if design.outcome_kind == "categorical" else 0
    conditioned: Any = posterior_as_prior(model, batch.y, num_levels=num_levels)
    draws: Array = conditioned.draw_prior(design, num_draws=num_draws, rng=rng)
    return draws


def posterior_as_prior(model: Model, outcomes: Array, *, num_levels: int = 0) -> Model:
    """Return the model whose prior is the posterior of `model` given encoded outcomes, shape (N,).

    Parameters
    ----------
    model : Model
        One of the conjugate families.
    outcomes : ndarray, shape (N,)
        Encoded: levels as 0, 1, ...
    num_levels : int
        C, of a categorical outcome.

    Raises
    ------
    ArgumentError
        If the model is none of them.

    Examples
    --------
    >>> given = posterior_as_prior(BernoulliBeta(outcome="heads"), np.array([1.0, 0.0, 1.0]))
    >>> given.prior_alpha, given.prior_beta
    (3.0, 2.0)
    """
    update = _UPDATES.get(type(model))
    if update is None:
        known = ", ".join(sorted(kind.__name__ for kind in _UPDATES))
        raise ArgumentError(f"the posterior of {model.kind} has no closed form here; that of {known} has.")
    return dataclasses.replace(model, **update(model, outcomes, num_levels))  # type: ignore[type-var]


def _coin(model: BernoulliBeta, outcomes: Array, _: int) -> dict[str, Any]:
    """Count records with outcome 1 and with outcome 0."""
    above = float(outcomes.sum())
    return {
        "prior_alpha": model.prior_alpha + above,
        "prior_beta": model.prior_beta + len(outcomes) - above,
    }


def _die(model: CategoricalDirichlet, outcomes: Array, num_levels: int) -> dict[str, Any]:
    """Count the records of each level."""
    counts = np.bincount(outcomes.astype(np.int64), minlength=num_levels)
    return {"concentration": tuple(float(value) for value in np.asarray(model.concentration) + counts)}


def _waits(model: ExponentialGamma, outcomes: Array, _: int) -> dict[str, Any]:
    """Count waits, and the time that they took."""
    return {
        "prior_shape": model.prior_shape + len(outcomes),
        "prior_rate": model.prior_rate + float(outcomes.sum()),
    }


def _counts(model: PoissonGamma, outcomes: Array, _: int) -> dict[str, Any]:
    """Add counts up, and the records that they are of."""
    return {
        "prior_shape": model.prior_shape + float(outcomes.sum()),
        "prior_rate": model.prior_rate + len(outcomes),
    }


def _measurements(model: Normal, outcomes: Array, _: int) -> dict[str, Any]:
    """Combine the records' mean and squares around it with the prior's; sums around 0 would cancel."""
    count = len(outcomes)
    worth = model.prior_precision_factor
    mean = float(outcomes.mean()) if count else model.prior_mean
    away = mean - model.prior_mean
    squares = float(np.square(outcomes - mean).sum()) + worth * count / (worth + count) * away**2
    return {
        "prior_mean": model.prior_mean + count / (worth + count) * away,
        "prior_precision_factor": worth + count,
        "prior_shape": model.prior_shape + 0.5 * count,
        "prior_scale": model.prior_scale + 0.5 * squares,
    }


_UPDATES: dict[type[Any], Callable[[Any, Array, int], dict[str, Any]]] = {
    BernoulliBeta: _coin,
    CategoricalDirichlet: _die,
    ExponentialGamma: _waits,
    Normal: _measurements,
    PoissonGamma: _counts,
}


def _linear_draws(
    model: LinearRegression, batch: RecordBatch, *, design: Design, num_draws: int, rng: np.random.Generator
) -> Array:
    """Return draws of (w, log s2) by the normal-inverse-gamma update."""
    x, y = batch
    size = x.shape[1]
    mean, sd = (np.broadcast_to(v, size) for v in model.coefficient_prior(design, num_coefficients=size))
    # In residuals of the prior mean, so that its own square need not cancel.
    residual = y - x @ mean
    factor = linalg.cholesky(x.T @ x + np.diag(1.0 / sd**2), lower=True)
    shift = linalg.cho_solve((factor, True), x.T @ residual)
    squares = float(np.square(residual - x @ shift).sum() + np.square(shift / sd).sum())
    shape, scale = model.prior_shape + 0.5 * len(y), model.prior_scale + 0.5 * squares
    log_variance = np.log(scale) - draw_log_gamma(shape, size=num_draws, rng=rng)
    noise = linalg.solve_triangular(factor, rng.standard_normal((size, num_draws)), lower=True, trans="T")
    coefficients = (mean + shift)[:, None] + np.exp(0.5 * log_variance) * noise
    return np.column_stack([coefficients.T, log_variance])
