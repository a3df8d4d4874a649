"""What is released of a model's records by noisy statistics, and the posterior of a release. Public side."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.baselines.sufficient_statistics.counts import count_statistics
from nadpvi.baselines.sufficient_statistics.families import BeyondBounds, StatisticsFamily
from nadpvi.baselines.sufficient_statistics.gibbs import sample_statistics
from nadpvi.baselines.sufficient_statistics.mechanism import StatisticsGuarantee, StatisticsMechanism
from nadpvi.baselines.sufficient_statistics.predictors import PredictorMoments
from nadpvi.baselines.sufficient_statistics.regression import RegressionStatistics
from nadpvi.baselines.sufficient_statistics.regression_settings import RegressionSettings
from nadpvi.baselines.sufficient_statistics.sums import sum_statistics
from nadpvi.checks import check_count
from nadpvi.containers.posterior import PROMISE, Posterior, model_variables
from nadpvi.description import ModelDescription
from nadpvi.design import Design
from nadpvi.errors import ArgumentError
from nadpvi.guides import MeanField
from nadpvi.models import (
    BernoulliBeta,
    CategoricalDirichlet,
    ExponentialGamma,
    LinearRegression,
    Model,
    PoissonGamma,
)
from nadpvi.privacy.parameters import REPLACE_ONE, check_neighbouring_relation
from nadpvi.privacy.randomness import check_seed
from nadpvi.schema import Schema

__all__ = ["StatisticsRelease", "describe", "make_statistics_family", "statistics_posterior"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StatisticsRelease:
    """Noisy sums of sufficient statistics: all that leaves the records. Public.

    Parameters
    ----------
    statistics : ndarray, shape (J,)
        Noisy sums, in the order of ``mechanism.family.labels``.
    num_records : int or None
        N, where neighbours replace a record; None where it is private.
    mechanism : StatisticsMechanism
        What was summed, and the noise.
    guarantee : StatisticsGuarantee
        What is promised.
    description : ModelDescription
        The model and the schema.
    """

    statistics: Array
    num_records: int | None
    mechanism: StatisticsMechanism
    guarantee: StatisticsGuarantee
    description: ModelDescription

    def __post_init__(self) -> None:
        values = np.array(self.statistics, dtype=np.float64)
        number = len(self.mechanism.family.labels)
        if values.shape != (number,) or not np.isfinite(values).all():
            raise ArgumentError(f"statistics must be finite with shape ({number},).")
        if (self.num_records is None) == self.mechanism.family.has_public_count:
            raise ArgumentError("num_records must be given exactly if neighbours replace a record.")
        values.setflags(write=False)
        object.__setattr__(self, "statistics", values)


def make_statistics_family(
    model: Model,
    schema: Schema,
    *,
    neighbouring_relation: str,
    beyond: BeyondBounds = "clamp",
    moments: PredictorMoments | None = None,
) -> StatisticsFamily:
    """Return what is released of a model: `CountStatistics`, `SumStatistics` or `RegressionStatistics`.

    Parameters
    ----------
    model : Model
        A conjugate model without predictors, or `LinearRegression`.
    schema : Schema
        Gives levels and public bounds.
    neighbouring_relation : str
        "add_or_remove_one" or "replace_one".
    beyond : "drop" or "clamp"
        For waiting times and counts.
    moments : PredictorMoments, optional
        Public moments of a regression's encoded features; by default those of the noisy release.

    Raises
    ------
    ArgumentError
        If the model is another one, or bounds do not serve.
    """
    if isinstance(model, type) or not isinstance(model, Model) or not isinstance(schema, Schema):
        raise ArgumentError(
            "model must be a nadpvi model, an object and not its class, and schema a Schema "
            f"(got {type(model).__name__} and {type(schema).__name__})."
        )
    design = model.design(schema)
    is_public = check_neighbouring_relation(neighbouring_relation) == REPLACE_ONE
    if beyond not in ("drop", "clamp"):
        raise ArgumentError(f'beyond must be "drop" or "clamp" (got {beyond!r}).')
    if not isinstance(moments, PredictorMoments | None):
        raise ArgumentError(f"moments must be PredictorMoments (got {type(moments).__name__}).")
    if isinstance(model, BernoulliBeta | CategoricalDirichlet):
        return count_statistics(model, design, has_public_count=is_public)
    if isinstance(model, ExponentialGamma | PoissonGamma):
        return sum_statistics(model, design, has_public_count=is_public, beyond=beyond)
    if isinstance(model, LinearRegression):
        return _regression(model, design, has_public_count=is_public, moments=moments)
    raise ArgumentError(
        "model must have sufficient statistics that this baseline releases: BernoulliBeta, "
        "CategoricalDirichlet, ExponentialGamma, PoissonGamma or LinearRegression "
        f"(got {type(model).__name__})."
    )


def _regression(
    model: LinearRegression, design: Design, *, has_public_count: bool, moments: PredictorMoments | None
) -> RegressionStatistics:
    """Return the statistics of encoded features and of the outcome in its own unit."""
    size = design.num_features
    mean, sd = model.coefficient_prior(design, num_coefficients=size)
    x_lower, x_upper = design.feature_bounds
    y_lower, y_upper = design.outcome_bounds
    settings = RegressionSettings(
        x_lower=np.array(x_lower),
        x_upper=np.array(x_upper),
        y_lower=y_lower,
        y_upper=y_upper,
        prior_mean=np.full(size, mean),
        prior_sd=np.full(size, sd),
        prior_shape=model.prior_shape,
        prior_scale=model.prior_scale,
        has_public_count=has_public_count,
        moments=moments,
    )
    return RegressionStatistics(settings=settings)


def statistics_posterior(
    release: StatisticsRelease,
    *,
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 1000,
    thin: int = 5,
    seed: int | None = None,
) -> Posterior:
    """Return Gibbs draws of the model's parameters given noisy statistics.

    Parameters
    ----------
    release : StatisticsRelease
        From `nadpvi.baselines.release_statistics`. Without public moments a regression's gives intervals that
        are too narrow where the budget is small: the predictors' second moments, read off the same noisy
        sums, are then taken for true (with three predictors, epsilon 4 and N = 1,500, 90 % intervals held 80
        to 85 %). So do counts of few records under sparse priors.
    draws, chains : int
        Kept draws a chain, and chains.
    warmup, thin : int
        Sweeps thrown away first, and sweeps for each kept draw.
    seed : int, optional
        Makes the draws reproducible.

    Returns
    -------
    Posterior
        Its settings hold the guarantee, which is not one of a DP-SGD run.
    """
    if not isinstance(release, StatisticsRelease):
        raise ArgumentError(
            f"release must be a StatisticsRelease, from release_statistics (got {type(release).__name__})."
        )
    chains = check_count("chains", chains)
    rng = np.random.default_rng(None if seed is None else check_seed("seed", seed))
    found = sample_statistics(
        release.mechanism.family,
        np.tile(release.statistics, (chains, 1)),
        noise=release.mechanism.noise,
        noise_scale=release.mechanism.noise_scale,
        num_records=release.num_records,
        draws=draws,
        warmup=warmup,
        thin=thin,
        rng=rng,
    )
    settings: dict[str, Any] = {
        "method": "noisy_statistics",
        "noise": release.mechanism.noise,
        "warmup": warmup,
        "thin": thin,
        "statistics_guarantee": dataclasses.asdict(release.guarantee),
        PROMISE: release.guarantee.sentence(),
    }
    settings["statistics_guarantee"]["assumed_public"] = list(release.guarantee.assumed_public)
    return Posterior(
        groups={"posterior": model_variables(release.description, found.theta)},
        settings=settings,
        guarantee=None,
        description=release.description,
    )


def describe(model: Model, schema: Schema) -> ModelDescription:
    """Return the public description of a model whose release has no variational family of its own."""
    return ModelDescription(model=model, schema=schema, guide=MeanField())
