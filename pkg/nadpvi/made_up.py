"""Made-up records: what a table could look like by its schema alone. Public side; no private data.

Levels are equally frequent, numbers are uniform on the scale on which they enter linearly, and predictors are
independent of each other. They serve to try a model before the real table is opened, and to foresee what a
run will cost; they say nothing about how real records are distributed.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.columns import Column, CountColumn, RealColumn, listed
from nadpvi.encoding import Design, encode_features, encode_outcome
from nadpvi.errors import ArgumentError
from nadpvi.models.base import Model, RecordBatch, SimulatingModel
from nadpvi.schema import Schema

__all__ = [
    "Covariates",
    "check_covariates",
    "edge_records",
    "evenly_spread_table",
    "made_up_records",
    "made_up_table",
    "numbers_between",
    "prior_draws",
]

Array = NDArray[np.float64]

_LOG2_EVEN_ROWS = 12

# A public table to draw rows from, or a function of their number and a generator that returns such a table.
Covariates = pd.DataFrame | Callable[[int, np.random.Generator], pd.DataFrame]


def made_up_table(schema: Schema, *, num_records: int, rng: np.random.Generator) -> pd.DataFrame:
    """Return a table that follows a schema: every column independent, with no missing cell.

    Parameters
    ----------
    schema : Schema
        Every one of its columns is filled.
    num_records : int
        Rows.
    rng : numpy.random.Generator

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {"sex": {"kind": "binary", "levels": ["f", "m"]}}})
    >>> made_up_table(schema, num_records=4, rng=np.random.default_rng(0))["sex"].tolist()
    ['m', 'm', 'm', 'f']
    """
    return pd.DataFrame(
        {column.name: _cells(column, num_records=num_records, rng=rng) for column in schema.columns}
    )


def evenly_spread_table(schema: Schema) -> pd.DataFrame:
    """Return a table that follows a schema, as `made_up_table`, but spread evenly and always the same.

    Its 4,096 rows are a Sobol sequence, which no version of a generator changes: what is derived from them
    can be checked wherever a release is opened.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {"sex": {"kind": "binary", "levels": ["f", "m"]}}})
    >>> evenly_spread_table(schema)["sex"].value_counts().tolist()
    [2048, 2048]
    """
    from scipy.stats import qmc

    shares = qmc.Sobol(len(schema.columns), scramble=False).random_base2(_LOG2_EVEN_ROWS)
    return pd.DataFrame(
        {column.name: _even_cells(column, shares[:, i]) for i, column in enumerate(schema.columns)}
    )


def made_up_records(
    model: Model,
    design: Design,
    *,
    theta: Array,
    num_records: int,
    rng: np.random.Generator,
    clamp: bool = True,
    covariates: Covariates | None = None,
) -> RecordBatch:
    """Return made-up records in encoded form, so that one-hot groups are one-hot and constants constant.

    Parameters
    ----------
    model : Model
        Where it is a `SimulatingModel` it draws the outcomes; else their column is filled like any other.
    design : Design
        The encoding.
    theta : ndarray, shape (K,) or (`num_records`, K)
        Unconstrained parameters behind the outcomes.
    num_records : int
        B.
    rng : numpy.random.Generator
    clamp : bool
        Whether drawn outcomes are held to the public bounds of their column, as real ones are.
    covariates : DataFrame or callable, optional
        Where predictors come from instead: rows drawn, with replacement, from a table that is public, or what
        a simulator ``covariates(num_records, rng)`` returns. They have a column for each predictor.
    """
    table = made_up_table(design.schema, num_records=num_records, rng=rng)
    if covariates is not None:
        table = _with_covariates(table, covariates, design, num_records=num_records, rng=rng)
    x, is_complete = encode_features(design, table)
    if covariates is not None and not is_complete.all():
        raise ArgumentError(
            "covariates have rows that the schema drops (missing or unknown): leave them out."
        )
    if design.outcome is None or not isinstance(model, SimulatingModel):
        return RecordBatch(x=x, y=encode_outcome(design, table).y)
    y = np.asarray(model.simulate(theta, x, rng=rng), dtype=np.float64)
    return RecordBatch(x=x, y=np.clip(y, *design.outcome_bounds) if clamp else y)


def edge_records(design: Design, *, num_records: int, rng: np.random.Generator) -> Iterator[RecordBatch]:
    """Yield made-up records whose numbers all are at one of their bounds, where clamping puts real ones.

    One batch for each bound of the predictors and of the outcome; levels are made up as ever.
    """
    for bound in ("lower", "upper"):
        table = made_up_table(design.schema, num_records=num_records, rng=rng)
        for column in design.schema.columns:
            if isinstance(column, RealColumn | CountColumn):
                table[column.name] = getattr(column, bound)
        x = encode_features(design, table).x
        if design.outcome is None:
            yield RecordBatch(x=x, y=encode_outcome(design, table).y)
        else:
            for y in design.outcome_bounds:
                yield RecordBatch(x=x, y=np.full(num_records, y))


def prior_draws(model: Model, design: Design, *, num_draws: int, rng: np.random.Generator) -> Array:
    """Return draws of unconstrained theta from the prior, shape (`num_draws`, K).

    They are the model's own where it has `draw_prior`, else normal with the prior's mean and sd.
    """
    own: Callable[..., Array] | None = getattr(model, "draw_prior", None)
    if own is not None:
        return own(design, num_draws=num_draws, rng=rng)
    mean, sd = model.prior_moments(design)
    draws: Array = mean + sd * rng.standard_normal((num_draws, len(mean)))
    return draws


def check_covariates(covariates: object) -> None:
    """Refuse what is neither a table nor a simulator of one."""
    if not (covariates is None or isinstance(covariates, pd.DataFrame) or callable(covariates)):
        raise ArgumentError(
            "covariates must be a public DataFrame of predictors, or a function (num_records, rng) that "
            f"returns one (got {type(covariates).__name__})."
        )
    if isinstance(covariates, pd.DataFrame) and not len(covariates):
        raise ArgumentError("covariates must have rows; leave it out for predictors made up by the schema.")


def _with_covariates(
    table: pd.DataFrame,
    covariates: Covariates,
    design: Design,
    *,
    num_records: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return a made-up table with its predictors replaced by those of another source."""
    if isinstance(covariates, pd.DataFrame):
        found = covariates.iloc[rng.integers(len(covariates), size=num_records)]
    else:
        found = covariates(num_records, rng)
        if not isinstance(found, pd.DataFrame) or len(found) != num_records:
            raise ArgumentError(f"covariates must return a DataFrame of the {num_records} rows asked for.")
    if missing := [name for name in design.predictors if name not in found.columns]:
        raise ArgumentError(f"covariates lack the predictors {listed(missing)}.")
    replaced = {name: found[name].to_numpy() for name in design.predictors}
    return table.assign(**replaced)


def _cells(column: Column, *, num_records: int, rng: np.random.Generator) -> "NDArray[np.generic]":
    """Return a column's cells: numbers within its bounds, or its levels."""
    if isinstance(column, CountColumn):
        return rng.integers(column.lower, column.upper, size=num_records, endpoint=True)
    if not isinstance(column, RealColumn):
        chosen = rng.integers(len(column.levels), size=num_records)
        return np.asarray(np.array(column.levels, dtype=object)[chosen])
    return numbers_between(column, rng.random(num_records))


def _even_cells(column: Column, share: Array) -> "NDArray[np.generic]":
    """Return a column's cells, each the value below which so much of the column is."""
    if isinstance(column, CountColumn):
        return np.asarray(column.lower + np.floor(share * (column.upper - column.lower + 1)))
    if isinstance(column, RealColumn):
        return numbers_between(column, share)
    levels = np.array(column.levels, dtype=object)
    return np.asarray(levels[np.floor(share * len(levels)).astype(np.intp)])


def numbers_between(column: RealColumn, share: Array) -> Array:
    """Return numbers that far between a column's bounds, on the scale on which it enters linearly."""
    if column.transform is not None:
        low, high = column.bounds
        inverse = np.expm1 if column.transform == "log1p" else np.exp
        return np.asarray(inverse(low + share * (high - low)))
    return column.lower + share * (column.upper - column.lower)
