"""What runs meet under the prior predictive distribution, table by table. Public side; no private data.

Parameters are drawn from the prior, and for each a sample of made-up records (`nadpvi.made_up`) stands for
its table. Averages over the prior (`nadpvi.planning.curvature`) say what to expect; choices that must hold
for nearly every table need to know how it varies.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nadpvi.description import ModelDescription
from nadpvi.guides import MeanField
from nadpvi.guides.antithetic import draw_antithetic
from nadpvi.made_up import Covariates, made_up_records, prior_draws
from nadpvi.models.base import Model, RecordBatch
from nadpvi.planning.curvature import scale_optimum, theta_gradient

__all__ = ["Predictive", "predict_gradients", "predict_information"]

Array = NDArray[np.float64]

_LEAST_RECORDS, _MOST_RECORDS, _RECORDS_PER_PARAMETER = 2000, 8000, 4
_LEAST_TABLES, _MOST_TABLES = 8, 200
_MOST_INFORMED, _MOST_INFORMED_VALUES = 101, 5_000_000  # of tables whose information alone is asked
_MOST_VALUES = 2_000_000  # of all tables' gradients
_MOST_DRAWN_VALUES = 2_000_000  # of one table's gradients at every draw of the guide
_LEAST_DRAWN_RECORDS = 50
_MOST_CLAMPED = 0.01  # share of a table's outcomes


class Predictive(NamedTuple):
    """Curvatures and gradients of M made-up tables of N records, of which R stand for all.

    Attributes
    ----------
    num_records : int
        N.
    prior_sd : ndarray, shape (K,)
    curvature : ndarray, shape (M, K, K)
        Of the negative ELBO in the locations: N times the mean of score score' over records, which is their
        expected information, plus the prior's precision.
    gradients : ndarray, shape (M, R, K)
        Of each record in the locations, at the table's own parameters and the scales' optimum.
    scale_norms : ndarray, shape (M, R)
        Norms of each record's gradient in the scales, before the preconditioner.
    """

    num_records: int
    prior_sd: Array
    curvature: Array
    gradients: Array
    scale_norms: Array

    @property
    def diagonal(self) -> Array:
        """The curvature of each location by itself, shape (M, K)."""
        diagonal: Array = np.einsum("mkk->mk", self.curvature)
        return diagonal

    @property
    def typical(self) -> Array:
        """Its geometric mean over the tables, shape (K,)."""
        mean: Array = np.exp(np.log(self.diagonal).mean(axis=0))
        return mean


def predict_gradients(
    description: ModelDescription,
    *,
    num_records: int,
    num_draws: int,
    rng: np.random.Generator,
    covariates: Covariates | None = None,
) -> Predictive:
    """Return what tables drawn from the prior look like to a run near its optimum.

    Parameters
    ----------
    description : ModelDescription
        Its model can simulate. Scales are those of a mean-field guide.
    num_records : int
        N.
    num_draws : int
        S, draws of the guide a step.
    rng : numpy.random.Generator
    covariates : DataFrame or callable, optional
        Where predictors come from, as in `nadpvi.made_up.made_up_records`.

    Raises
    ------
    ModelError
        If a gradient is not finite.
    """
    model, design, guide = description.model, description.design, MeanField()
    num_params = len(description.names)
    _, prior_sd = model.prior_moments(design)
    rows = int(np.clip(_RECORDS_PER_PARAMETER * num_params, _LEAST_RECORDS, _MOST_RECORDS))
    tables = int(np.clip(_MOST_VALUES // (rows * num_params), _LEAST_TABLES, _MOST_TABLES))
    drawn = int(np.clip(_MOST_DRAWN_VALUES // (num_draws * num_params), _LEAST_DRAWN_RECORDS, rows))
    precision = np.diag(prior_sd**-2.0)
    curvature, gradients, scale_norms, clamped = [], [], [], []
    for theta in prior_draws(model, design, num_draws=tables, rng=rng):
        batch = made_up_records(
            model, design, theta=theta, num_records=rows, rng=rng, clamp=False, covariates=covariates
        )
        scores = _scores(model, theta, batch)
        curvature.append(num_records / rows * (scores.T @ scores) + precision)
        batch, share = _clamped(batch, *design.outcome_bounds)
        clamped.append(share)
        phi = np.concatenate([theta, scale_optimum(guide, np.diag(curvature[-1]))])
        noise = draw_antithetic(rng, num_draws=num_draws, size=num_params)
        at = guide.draw(np.broadcast_to(phi, (drawn, len(phi))), noise[:, None, :])
        moved = theta_gradient(model, at, x=batch.x[:drawn], y=batch.y[:drawn])
        pulled = guide.pull_back(phi, theta_gradient=moved, standard_normal=noise)
        gradients.append(pulled[:, :num_params])
        scale_norms.append(linalg.norm(pulled[:, num_params:], axis=1))
    chosen = _within_bounds(np.array(clamped))
    return Predictive(
        num_records=num_records,
        prior_sd=prior_sd,
        curvature=np.array(curvature)[chosen],
        gradients=np.array(gradients)[chosen],
        scale_norms=np.array(scale_norms)[chosen],
    )


def predict_information(description: ModelDescription, *, rng: np.random.Generator) -> Array:
    """Return the information of a record in each parameter by itself, of each of M made-up tables, (M, K).

    Parameters
    ----------
    description : ModelDescription
        Its model can simulate.
    rng : numpy.random.Generator

    Raises
    ------
    ModelError
        If a gradient is not finite.
    """
    model, design = description.model, description.design
    num_params = len(description.names)
    tables = int(
        np.clip(_MOST_INFORMED_VALUES // (_LEAST_RECORDS * num_params), _LEAST_TABLES, _MOST_INFORMED)
    )
    found, clamped = [], []
    for theta in prior_draws(model, design, num_draws=tables, rng=rng):
        batch = made_up_records(model, design, theta=theta, num_records=_LEAST_RECORDS, rng=rng, clamp=False)
        found.append((_scores(model, theta, batch) ** 2).mean(axis=0))
        clamped.append(_clamped(batch, *design.outcome_bounds)[1])
    return np.array(found)[_within_bounds(np.array(clamped))]


def _scores(model: Model, theta: Array, batch: RecordBatch) -> Array:
    """Return the scores of a table's records, all at its own theta, shape (B, K)."""
    return theta_gradient(model, np.broadcast_to(theta, (len(batch.y), len(theta))), x=batch.x, y=batch.y)


def _clamped(batch: RecordBatch, low: float, high: float) -> tuple[RecordBatch, float]:
    """Return records with their outcomes held to their column's bounds, and the share that this changes."""
    y = np.clip(batch.y, low, high)
    return RecordBatch(x=batch.x, y=y), float((y != batch.y).mean())


def _within_bounds(clamped: Array) -> NDArray[np.intp]:
    """Return the tables that the outcome's public bounds allow for; the likeliest few where hardly any are.

    A prior may be far wider than what the schema says can happen. A table of which much was clamped is not
    the model's own any more: its gradients do not vanish at its parameters.
    """
    allowed = np.flatnonzero(clamped <= _MOST_CLAMPED)
    fewest = min(_LEAST_TABLES, len(clamped))
    return allowed if len(allowed) >= fewest else np.argsort(clamped, kind="stable")[:fewest]
