"""Where an experiment's tables come from: parameters drawn from a prior, records simulated from them.

A source is a mapping with a ``kind`` and its arguments. Every table depends on the source and its own seed
alone. Nothing here is private.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.baselines.sufficient_statistics.predictors import PredictorMoments, gaussian_moments
from nadpvi.checks import check_count
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.encoding import encode_features, encode_outcome
from nadpvi.errors import ArgumentError, NadpviError
from nadpvi.made_up import Covariates, prior_draws
from nadpvi.models import (
    BernoulliBeta,
    CategoricalDirichlet,
    ExponentialGamma,
    LinearRegression,
    LogisticRegression,
    PoissonGamma,
)
from nadpvi.models.base import SimulatingModel
from nadpvi.private.records import Records
from nadpvi.private.replicates import simulate_tables
from nadpvi.schema import Schema

__all__ = ["SOURCES", "Setting", "SimulatedTable", "check_source", "make_setting", "simulate"]

Array = NDArray[np.float64]

# A run takes the first children of its seed, `simulate_tables` the last; this one is for tables with
# predictors.
_TABLE_CHILD = 2**32 - 2


class SimulatedTable(NamedTuple):
    """One table with its truth: unconstrained theta (K,), None for real data, and encoded records."""

    theta: Array | None
    records: Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The public half of a source: model and schema.

    Attributes
    ----------
    model : Model
    schema : Schema
    num_records : int
        N of every table.
    make : callable
        (setting, seeds) -> tables, one a seed.
    optimum_upper : float, optional
        Public bound of a summed outcome for the noisy statistics that a posterior is held against:
        `nadpvi.coverage.clamping.choose_upper` finds a good one for a prior, N and a budget. Without it sums
        are bounded as the schema says, and no optimum is worked out.
    statistics_schema : Schema, optional
        Tighter public bounds for noisy statistics, to which records are clamped; `schema` when omitted.
    moments : PredictorMoments, optional
        The moments of a regression's features, known because they are simulated; public for its rivals.
    covariates : callable, optional
        A simulator of the predictors, where it is public, for settings that are suggested.
    """

    model: Any
    schema: Schema
    num_records: int
    make: Callable[["Setting", Sequence[int]], list[SimulatedTable]]
    optimum_upper: float | None = None
    statistics_schema: Schema | None = None
    moments: PredictorMoments | None = None
    covariates: Covariates | None = None


def _schema(name: str, **column: Any) -> Schema:
    """Return a schema of one column."""
    return Schema.from_dict({"columns": {name: column}})


def _conjugate(setting: Setting, seeds: Sequence[int]) -> list[SimulatedTable]:
    """Return tables of a model without predictors."""
    tables = simulate_tables(
        setting.model, schema=setting.schema, num_records=setting.num_records, seeds=seeds
    )
    empty = np.empty((setting.num_records, 0))
    return [
        SimulatedTable(theta, Records(x=empty, y=y))
        for theta, y in zip(tables.theta, tables.outcomes, strict=True)
    ]


def _generator(seed: int) -> np.random.Generator:
    """Return the generator of a table with predictors."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_TABLE_CHILD,)))


def _regression_tables(
    setting: Setting, seeds: Sequence[int], *, features: Callable[[np.random.Generator], Array]
) -> list[SimulatedTable]:
    """Return tables whose parameters come from the prior and whose features from `features`."""
    model: SimulatingModel = setting.model
    design = model.design(setting.schema)
    low, high = design.outcome_bounds
    tables = []
    for seed in seeds:
        rng = _generator(seed)
        theta = prior_draws(model, design, num_draws=1, rng=rng)[0]
        x = features(rng)
        y = np.clip(np.asarray(model.simulate(theta, x, rng=rng), dtype=np.float64), low, high)
        tables.append(SimulatedTable(theta, Records(x=x, y=y)))
    return tables


def _bernoulli(*, num_records: int = 5000, prior_alpha: float = 10.0, prior_beta: float = 10.0) -> Setting:
    model = BernoulliBeta(outcome="coin", prior_alpha=prior_alpha, prior_beta=prior_beta)
    schema = _schema("coin", kind="binary", levels=["0", "1"])
    return Setting(model=model, schema=schema, num_records=num_records, make=_conjugate)


def _categorical(*, num_records: int = 5000, concentration: Sequence[float] = (5.0, 5.0, 5.0)) -> Setting:
    model = CategoricalDirichlet(outcome="class", concentration=tuple(concentration))
    levels = [str(i) for i in range(len(concentration))]
    schema = _schema("class", kind="categorical", levels=levels)
    return Setting(model=model, schema=schema, num_records=num_records, make=_conjugate)


def _exponential(
    *,
    num_records: int = 5000,
    prior_shape: float = 8.0,
    prior_rate: float = 2.0,
    upper: float = 10.0,
    optimum_upper: float | None = None,
) -> Setting:
    model = ExponentialGamma(outcome="wait", prior_shape=prior_shape, prior_rate=prior_rate)
    return Setting(
        model=model,
        schema=_schema("wait", kind="real", lower=0.0, upper=upper),
        num_records=num_records,
        make=_conjugate,
        optimum_upper=_checked_upper(optimum_upper, upper=upper),
        statistics_schema=(
            None if optimum_upper is None else _schema("wait", kind="real", lower=0.0, upper=optimum_upper)
        ),
    )


def _poisson(
    *,
    num_records: int = 5000,
    prior_shape: float = 8.0,
    prior_rate: float = 2.0,
    upper: int = 40,
    optimum_upper: int | None = None,
) -> Setting:
    model = PoissonGamma(outcome="visits", prior_shape=prior_shape, prior_rate=prior_rate)
    return Setting(
        model=model,
        schema=_schema("visits", kind="count", upper=upper),
        num_records=num_records,
        make=_conjugate,
        optimum_upper=_checked_upper(optimum_upper, upper=upper),
        statistics_schema=(
            None if optimum_upper is None else _schema("visits", kind="count", upper=optimum_upper)
        ),
    )


def _checked_upper(optimum_upper: float | None, *, upper: float) -> float | None:
    """Return the bound of the noisy statistics, or raise where records cannot reach it."""
    if optimum_upper is not None and not 0.0 < optimum_upper <= upper:
        raise ArgumentError(
            f"optimum_upper must be above 0 and at most upper, {upper:g} (got {optimum_upper:g})."
        )
    return optimum_upper


def _linear(
    *,
    num_records: int = 5000,
    num_predictors: int = 10,
    bound: float = 6.0,
    outcome_bound: float = 10.0,
    prior_shape: float = 20.0,
    prior_scale: float = 0.5,
    prior_sd: float = 2.0,
    statistics_bound: float | None = None,
    statistics_outcome_bound: float | None = None,
) -> Setting:
    """Return the regression of the paper's section 4.3: standard normal predictors, in their own unit.

    Its rivals that release noisy statistics know the predictors' moments, and clamp to bounds of their own.
    """
    names = [f"x{i}" for i in range(1, num_predictors + 1)]

    def schema_of(bound: float, outcome_bound: float) -> Schema:
        predictor = {"kind": "real", "lower": -bound, "upper": bound, "feature_range": [-bound, bound]}
        outcome = {"kind": "real", "lower": -outcome_bound, "upper": outcome_bound}
        return Schema.from_dict({"columns": {**dict.fromkeys(names, predictor), "y": outcome}})

    is_random = np.append(0.0, np.ones(num_predictors))

    def features(rng: np.random.Generator) -> Array:
        x = np.ones((num_records, num_predictors + 1))
        x[:, 1:] = np.clip(rng.standard_normal((num_records, num_predictors)), -bound, bound)
        return x

    def covariates(num_records: int, rng: np.random.Generator) -> pd.DataFrame:
        x = np.clip(rng.standard_normal((num_records, num_predictors)), -bound, bound)
        return pd.DataFrame(x, columns=names)

    return Setting(
        model=LinearRegression(
            outcome="y", prior_shape=prior_shape, prior_scale=prior_scale, prior_sd=prior_sd
        ),
        schema=schema_of(bound, outcome_bound),
        num_records=num_records,
        make=functools.partial(_regression_tables, features=features),
        statistics_schema=schema_of(statistics_bound or bound, statistics_outcome_bound or outcome_bound),
        moments=gaussian_moments(1.0 - is_random, np.diag(is_random)),
        covariates=covariates,
    )


@functools.cache
def _adult_records(part: str) -> Records:
    """Return UCI Adult, encoded."""
    table = load_adult(part)  # type: ignore[arg-type]
    design = _adult_model().design(adult_schema())
    return Records(x=encode_features(design, table).x, y=encode_outcome(design, table).y)


def _adult_model() -> LogisticRegression:
    return LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)


def _semi_synthetic() -> Setting:
    """Return Adult's covariates, with coefficients from the prior and outcomes from the model."""
    x = np.asarray(_adult_records("train").x, dtype=np.float64)
    return Setting(
        model=_adult_model(),
        schema=adult_schema(),
        num_records=len(x),
        make=functools.partial(_regression_tables, features=lambda rng: x),
    )


def _adult() -> Setting:
    """Return the genuine table: nobody knows its parameters, so predictions are scored on its test rows."""
    records = _adult_records("train")

    def make(setting: Setting, seeds: Sequence[int]) -> list[SimulatedTable]:
        return [SimulatedTable(None, records) for _ in seeds]

    return Setting(model=_adult_model(), schema=adult_schema(), num_records=len(records.y), make=make)


SOURCES: dict[str, Callable[..., Setting]] = {
    "bernoulli-beta": _bernoulli,
    "categorical-dirichlet": _categorical,
    "exponential-gamma": _exponential,
    "poisson-gamma": _poisson,
    "linear-regression": _linear,
    "semi-synthetic-adult": _semi_synthetic,
    "adult": _adult,
}


def check_source(source: Mapping[str, Any]) -> None:
    """Raise unless a source names a kind and arguments that it has.

    Raises
    ------
    ArgumentError
    """
    kind = source.get("kind")
    if not isinstance(kind, str) or kind not in SOURCES:
        raise ArgumentError(f"source needs a kind among {sorted(SOURCES)} (got {kind!r}).")
    known = SOURCES[kind].__kwdefaults__ or {}
    unknown = sorted(set(source) - {"kind", *known})
    if unknown:
        raise ArgumentError(f"a source of kind {kind!r} has no {unknown[0]!r}: it knows {sorted(known)}.")
    if "num_records" in source:
        check_count("num_records", source["num_records"])
    if not kind.endswith("adult"):  # those have no arguments, and a file to read
        try:
            make_setting(source)
        except NadpviError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise ArgumentError(f"a source of kind {kind!r} cannot be made: {error}.") from None


def make_setting(source: Mapping[str, Any]) -> Setting:
    """Return model and schema of a source that `check_source` takes."""
    arguments = {key: value for key, value in source.items() if key != "kind"}
    return SOURCES[source["kind"]](**arguments)


def simulate(setting: Setting, seeds: Sequence[int]) -> list[SimulatedTable]:
    """Return one table for each seed."""
    return setting.make(setting, seeds)
