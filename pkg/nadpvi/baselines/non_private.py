"""The limit of no privacy noise: the posterior given the records themselves. Private side; never released."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from nadpvi.containers.posterior import Posterior, model_variables
from nadpvi.description import ModelDescription
from nadpvi.errors import NadpviError
from nadpvi.guides import MeanField
from nadpvi.models import Model, RecordBatch
from nadpvi.privacy.randomness import check_seed
from nadpvi.private.records import make_records
from nadpvi.schema import Schema
from nadpvi.tables import TableLike

__all__ = ["non_private_posterior"]

Array = NDArray[np.float64]


def non_private_posterior(
    model: Model, table: TableLike, *, schema: Schema, draws: int = 4000, seed: int | None = None
) -> Posterior:
    """Return the posterior given the records, by Laplace's approximation at the mode. Not private.

    The mode comes from a quasi-Newton search on the exact log posterior, the covariance from its exact
    Hessian. With many records per parameter this is the posterior up to terms of order 1/N.

    Parameters
    ----------
    model : Model
        Prior and likelihood.
    table : DataFrame, mapping of columns, or path
        The records.
    schema : Schema
        Their public description.
    draws : int
        Independent draws, in one chain.
    seed : int, optional
        Makes the draws reproducible.

    Raises
    ------
    NadpviError
        If the search does not reach the mode; the message says where it stopped.
    """
    description = ModelDescription(model=model, schema=schema, guide=MeanField())
    records = make_records(table, description.design)
    batch = RecordBatch(x=records.x.astype(np.float64), y=records.y.astype(np.float64))
    mode, precision = _mode_and_precision(description, batch)
    rng = np.random.default_rng(None if seed is None else check_seed("seed", seed))
    factor = linalg.cholesky(precision, lower=True)
    noise = rng.standard_normal((draws, len(mode)))
    theta = mode + linalg.solve_triangular(factor, noise.T, lower=True, trans="T").T
    return Posterior(
        groups={"posterior": model_variables(description, theta[None])},
        settings={"method": "non_private_laplace"},
        guarantee=None,
        description=description,
    )


def _mode_and_precision(description: ModelDescription, batch: RecordBatch) -> tuple[Array, Array]:
    """Return the posterior mode, shape (K,), and the negative Hessian there, shape (K, K)."""
    from autograd import grad, jacobian

    model, design = description.model, description.design

    def loss(theta: Array) -> Array:
        total: Array = -(model.log_likelihood(theta[None, :], batch).sum() + model.log_prior(theta, design))
        return total

    gradient = grad(loss)
    start, _ = model.prior_moments(design)
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
