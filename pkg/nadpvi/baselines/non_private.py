"""The limit of no privacy noise: the posterior given the records themselves. Private side; never released."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from nadpvi.baselines.conjugate import draw_exact_posterior, has_exact_posterior
from nadpvi.checks import check_count
from nadpvi.containers.posterior import PROMISE, Posterior, model_variables
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError, NadpviError
from nadpvi.guides import MeanField
from nadpvi.inference import hamiltonian
from nadpvi.models import Model, RecordBatch
from nadpvi.privacy.randomness import check_seed
from nadpvi.private.inputs import Reading, read_records
from nadpvi.private.records import Records
from nadpvi.schema import Schema
from nadpvi.tables import TableLike

__all__ = ["non_private_posterior"]

Array = NDArray[np.float64]
NonPrivateMethod = Literal["auto", "exact", "laplace", "hmc"]

_METHODS = ("auto", "exact", "laplace", "hmc")
_WARMUP = 200
_MOST_RECORDS = 50_000_000
# As many chains as keep the records' predictors under each within so many numbers.
_CHAIN_NUMBERS, _FEWEST_CHAINS, _MOST_CHAINS = 2**24, 4, 32


def non_private_posterior(
    model: Model,
    table: TableLike | Records,
    *,
    schema: Schema,
    draws: int = 4000,
    seed: int | None = None,
    method: NonPrivateMethod = "auto",
) -> Posterior:
    """Return the posterior given the records. No privacy whatsoever: a reference, never to be released.

    Parameters
    ----------
    model : Model
        Prior and likelihood.
    table : DataFrame, mapping of columns, path, or Records
        The records.
    schema : Schema
        Their public description.
    draws : int
        How many, in one chain; with "hmc" in 4 to 32 chains, rounded up to a multiple of their number.
    seed : int, optional
        Makes the draws reproducible.
    method : {"auto", "exact", "laplace", "hmc"}
        "exact": independent draws in closed form, for the conjugate families and `LinearRegression`.
        "laplace": independent draws from the Gaussian at the mode of unconstrained theta, the mode by a
        quasi-Newton search on the exact log posterior and the covariance from its exact Hessian; with many
        records per parameter this is the posterior up to terms of order 1/N. "hmc": Hamiltonian Monte Carlo
        (`nadpvi.inference.hamiltonian`), chains of 200 warm-up transitions, in coordinates in which Laplace's
        Gaussian is standard; exact but for Monte Carlo error, and the dearest. "auto": "exact" where there is
        one, else "laplace".

    Raises
    ------
    ArgumentError
        If the method is unknown, or "exact" and the model is not conjugate.
    NadpviError
        If the search does not reach the mode; the message says where it stopped.
    """
    if method not in _METHODS:
        raise ArgumentError(f"method must be one of {', '.join(map(repr, _METHODS))} (got {method!r}).")
    check_count("draws", draws)
    description = ModelDescription(model=model, schema=schema, guide=MeanField())
    has_exact = has_exact_posterior(model)
    if method == "exact" and not has_exact:
        raise ArgumentError(f"method='exact' needs a conjugate model (got {model.kind}); use 'hmc'.")
    chosen = ("exact" if has_exact else "laplace") if method == "auto" else method
    records = read_records(table, description, reading=Reading(), rng=np.random.default_rng(0))
    batch = _written_out(records)
    rng = np.random.default_rng(None if seed is None else check_seed("seed", seed))
    if chosen == "exact":
        theta = draw_exact_posterior(model, batch, design=description.design, num_draws=draws, rng=rng)[None]
    else:
        mode, precision = _mode_and_precision(description, batch)
        factor = linalg.cholesky(precision, lower=True)
        if chosen == "laplace":
            theta = _coloured(rng.standard_normal((1, draws, len(mode))), mode=mode, factor=factor)
        else:
            theta = _chains(description, batch, mode=mode, factor=factor, draws=draws, rng=rng)
    return Posterior(
        groups={"posterior": model_variables(description, theta)},
        settings={
            "method": f"non_private_{chosen}",
            PROMISE: "NOT PRIVATE: it was computed from the records themselves.",
        },
        guarantee=None,
        description=description,
    )


def _written_out(records: Records) -> RecordBatch:
    """Return the records with each row as often as it counts."""
    if records.num_records > _MOST_RECORDS:
        raise ArgumentError(
            f"the table must stand for at most {_MOST_RECORDS} records; take a sample of them."
        )
    repeats = 1 if records.counts is None else records.counts
    return RecordBatch(
        x=np.repeat(records.x, repeats, axis=0).astype(np.float64),
        y=np.repeat(records.y, repeats).astype(np.float64),
    )


def _coloured(white: Array, *, mode: Array, factor: Array) -> Array:
    """Return the points, (..., K), whose standardised coordinates under Laplace's Gaussian are `white`."""
    turned = linalg.solve_triangular(factor, white.reshape(-1, len(mode)).T, lower=True, trans="T")
    points: Array = mode + turned.T.reshape(white.shape)
    return points


def _chains(
    description: ModelDescription,
    batch: RecordBatch,
    *,
    mode: Array,
    factor: Array,
    draws: int,
    rng: np.random.Generator,
) -> Array:
    """Return Hamiltonian Monte Carlo's draws of theta, shape (chain, draw, K)."""
    from autograd import make_vjp

    to_gradient = make_vjp(_loss(description, batch))

    def density(white: Array) -> tuple[Array, Array]:
        pull_back, values = to_gradient(_coloured(white, mode=mode, factor=factor))
        slopes = linalg.solve_triangular(factor, -pull_back(np.ones(len(white))).T, lower=True).T
        is_sound = np.isfinite(values) & np.isfinite(slopes).all(axis=1)
        return np.where(is_sound, -values, -np.inf), np.where(is_sound[:, None], slopes, 0.0)

    size = len(mode)
    chains = max(_FEWEST_CHAINS, min(_MOST_CHAINS, _CHAIN_NUMBERS // (len(batch.y) * size)))
    state = hamiltonian.init(rng.standard_normal((chains, size)), variances=np.ones(size), warmup=_WARMUP)
    kept = np.empty((chains, math.ceil(draws / chains), size))
    for index in range(-_WARMUP, kept.shape[1]):
        if index == 0:
            state = hamiltonian.freeze(state)
        state, _ = hamiltonian.step(rng, state, density)
        if index >= 0:
            kept[:, index] = state.position
    return _coloured(kept, mode=mode, factor=factor)


def _loss(description: ModelDescription, batch: RecordBatch) -> Callable[[Array], Array]:
    """Return minus the log posterior density up to a constant, theta (..., K) -> (...)."""
    model, design = description.model, description.design

    def loss(theta: Array) -> Array:
        likelihood = model.log_likelihood(theta[..., None, :], batch).sum(axis=-1)
        total: Array = -(likelihood + model.log_prior(theta, design))
        return total

    return loss


def _mode_and_precision(description: ModelDescription, batch: RecordBatch) -> tuple[Array, Array]:
    """Return the posterior mode, shape (K,), and the negative Hessian there, shape (K, K)."""
    from autograd import grad, jacobian

    loss = _loss(description, batch)
    gradient = grad(loss)
    start, _ = description.model.prior_moments(description.design)
    found = optimize.minimize(
        loss, start, jac=gradient, method="L-BFGS-B", options={"maxiter": 2000, "ftol": 1e-9, "gtol": 1e-6}
    )
    precision = np.asarray(jacobian(gradient)(found.x))
    # One Newton step from where the search stopped measures what its tolerance left, and removes it but for
    # terms of second order in that distance.
    shift = linalg.solve(precision, gradient(found.x), assume_a="pos")
    distance = math.sqrt(float(shift @ precision @ shift))
    if distance > 0.1:
        raise NadpviError(f"the search for the mode stopped {distance:.2g} posterior sds away from it.")
    return found.x - shift, precision
