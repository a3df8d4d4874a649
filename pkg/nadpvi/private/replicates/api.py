"""Many simulated releases of one model as one array program. Private side, never private."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError, DivergenceError
from nadpvi.gradient_model.running import RunningSums
from nadpvi.mechanism import Mechanism, make_mechanism
from nadpvi.models.base import ExponentialFamily
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.randomness import check_seed, make_streams
from nadpvi.private.keeping import Trace
from nadpvi.private.replicates.groups import joined_results, make_groups
from nadpvi.private.replicates.randomness import RandomBlocks
from nadpvi.private.replicates.runs import GroupStep, run_group
from nadpvi.private.replicates.steps import step
from nadpvi.schema import Schema

__all__ = ["ReplicateTraces", "check_simulated", "simulate_mechanism", "simulate_releases"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplicateTraces:
    """R simulated releases of one mechanism. Make them with `simulate_releases`.

    Attributes
    ----------
    mechanism : Mechanism
        Model, settings and noise that all share.
    guarantee : Guarantee
        What each carries: stamped not private.
    phi, noisy_gradient : ndarray, shape (R, T', D)
        The steps that ``config.keep`` and ``config.thin`` keep; only the last one with keep="sums".
    final_phi : ndarray, shape (R, D)
        The iterates after the last step.
    sums : RunningSums or None
        Of the window, with keep="sums"; arrays of shape (R, D).
    is_finite : ndarray of bool, shape (R,)
        False where a run diverged; its numbers are NaN.
    """

    mechanism: Mechanism
    guarantee: Guarantee
    phi: Array
    noisy_gradient: Array
    final_phi: Array
    sums: RunningSums | None
    is_finite: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.phi)

    def release(self, index: int) -> Release:
        """Return one replicate as a release like any other, stamped not private.

        Raises
        ------
        DivergenceError
            If that run diverged.
        """
        if not self.is_finite[index]:
            raise DivergenceError(
                f"simulated run {index} diverged: lower learning_rate_constant, or set box_mu and box_u."
            )
        sums = self.sums
        if sums is not None:
            sums = RunningSums(sums.num_steps, *(values[index] for values in sums[1:]))
        return self.mechanism.to_release(
            (self.phi[index], self.noisy_gradient[index]),
            guarantee=self.guarantee,
            sums=None if sums is None else sums.result(),
            final_phi=self.final_phi[index],
        )


def simulate_releases(
    model: ExponentialFamily,
    outcomes: ArrayLike | Sequence[Array],
    *,
    schema: Schema,
    privacy: PrivacyBudget | NonPrivate,
    seeds: Sequence[int] | NDArray[np.uint64],
    config: DPVIConfig | None = None,
    is_counted: bool | None = None,
) -> ReplicateTraces:
    """Return R simulated releases, one for each table of outcomes, by one array program.

    Replicate r is the run that `nadpvi.release` makes of table r with ``insecure_seed=seeds[r]``: the same
    step, the same draws of the guide and the same noise; only the subsample is drawn in another order. It
    depends on ``outcomes[r]`` and ``seeds[r]`` alone, whatever runs beside it, so that the replicates may be
    shared out among workers in any way. Nothing here is private: all randomness comes from the seeds.

    Parameters
    ----------
    model : ExponentialFamily
        Without predictors.
    outcomes : array_like, shape (R, N), or sequence of R arrays (N_r,)
        Encoded outcomes, as `nadpvi.encoding.encode_outcome` gives them; simulated, not private.
    schema : Schema
        Describes the outcome.
    privacy : PrivacyBudget or NonPrivate
        Fixes the noise, as in `nadpvi.release`.
    seeds : sequence of int
        R different ones, from `replicate_seeds`.
    config : DPVIConfig, optional
        Settings of the runs; ``keep`` and ``thin`` say what is kept.
    is_counted : bool, optional
        Whether equal outcomes are held once, with a count: fast where they are few. By default where the
        outcome is not a real number.

    Returns
    -------
    ReplicateTraces

    Raises
    ------
    ArgumentError, SchemaError
        If the model is no exponential family or has predictors, the schema has a person column, tables and
        seeds do not match, or a setting is out of range.

    Examples
    --------
    >>> from nadpvi.models import BernoulliBeta
    >>> from nadpvi.private.replicates import replicate_seeds, simulate_tables
    >>> schema = Schema.from_dict({"columns": {"heads": {"kind": "binary", "levels": ["no", "yes"]}}})
    >>> model, seeds = BernoulliBeta(outcome="heads"), replicate_seeds(1, num_replicates=20)
    >>> tables = simulate_tables(model, schema=schema, num_records=100, seeds=seeds)
    >>> traces = simulate_releases(
    ...     model, tables.outcomes, schema=schema, privacy=NonPrivate(), seeds=seeds,
    ...     config=DPVIConfig(num_steps=50, learning_rate=0.01))
    >>> traces.phi.shape, traces.release(3).is_private
    ((20, 50, 2), False)
    """
    settings = config if config is not None else DPVIConfig()
    description = check_simulated(model, schema=schema, config=settings)
    mechanism = make_mechanism(description, privacy=privacy, config=settings)
    return simulate_mechanism(mechanism, outcomes, seeds=seeds, is_counted=is_counted)


def check_simulated(model: object, *, schema: Schema, config: DPVIConfig) -> ModelDescription:
    """Return the description of a model that can be simulated with a replicate axis.

    Raises
    ------
    ArgumentError, SchemaError
        If it is no exponential family or has predictors, or the schema has a person column.
    """
    if not isinstance(model, ExponentialFamily):
        raise ArgumentError(
            f"model must be an exponential family with statistics and natural_gradient (got "
            f"{type(model).__name__}); simulate others one by one with release(..., insecure_seed=)."
        )
    description = ModelDescription(model=model, schema=schema, guide=config.guide)
    if description.design.predictors or schema.person is not None or schema.counts is not None:
        raise ArgumentError("model and schema must have no predictors, no person column and no counts.")
    return description


def simulate_mechanism(
    mechanism: Mechanism,
    outcomes: ArrayLike | Sequence[Array],
    *,
    seeds: Sequence[int] | NDArray[np.uint64],
    is_counted: bool | None = None,
    take_step: GroupStep = step,
) -> ReplicateTraces:
    """Return R simulated runs of one mechanism, whose model `check_simulated` has passed.

    Parameters
    ----------
    mechanism : Mechanism
        What runs.
    outcomes, seeds, is_counted
        As in `simulate_releases`.
    take_step : callable
        How a step is taken.
    """
    tables, checked_seeds = _check_tables(outcomes, seeds)
    settings = mechanism.settings
    noise = mechanism.noise_source(make_streams(insecure_seed=checked_seeds[0]), num_steps=settings.num_steps)
    if is_counted is None:
        is_counted = settings.description.design.outcome_kind != "real"
    num_replicates = len(tables)
    if num_replicates == 1:
        # With a twin: NumPy adds up a single column in another order than several, so that the last bit of
        # a replicate would depend on whether it runs alone.
        tables, checked_seeds = tables * 2, checked_seeds * 2
    num_kept = len(settings.kept_steps(settings.num_steps))
    shape = (len(tables), num_kept, mechanism.dimension)
    trace, results, start = Trace(np.empty(shape), np.empty(shape)), [], 0
    for rows in make_groups(tables, settings=settings, is_counted=is_counted):
        group = slice(start, start + rows.num_replicates)
        random = RandomBlocks(
            [make_streams(insecure_seed=seed) for seed in checked_seeds[group]],
            rows=rows,
            settings=settings,
            noise_multiplier=mechanism.noise_multiplier,
            noise_dimension=mechanism.noise_dimension,
        )
        into = Trace(trace.phi[group], trace.noisy_gradient[group])
        results.append(run_group(random, settings=settings, into=into, take_step=take_step))
        start = group.stop
    joined = joined_results(results, num_replicates=num_replicates)
    return ReplicateTraces(
        mechanism=mechanism,
        guarantee=mechanism.guarantee(noise, num_steps=settings.num_steps),
        phi=trace.phi[:num_replicates],
        noisy_gradient=trace.noisy_gradient[:num_replicates],
        final_phi=joined.final_phi,
        sums=joined.sums,
        is_finite=joined.is_finite,
    )


def _check_tables(outcomes: Any, seeds: Any) -> tuple[list[Array], list[int]]:
    """Return the tables as float arrays and the seeds as ints, one a table, or raise."""
    tables = [np.asarray(table, dtype=np.float64) for table in outcomes]
    checked = [check_seed("seeds", seed) for seed in seeds]
    if not tables or len(tables) != len(checked):
        raise ArgumentError(
            f"outcomes and seeds must be as many, at least one (got {len(tables)} and {len(checked)})."
        )
    if any(table.ndim != 1 or not len(table) or not np.isfinite(table).all() for table in tables):
        raise ArgumentError("outcomes must be tables of shape (N,) with N >= 1 and finite entries.")
    if len(set(checked)) < len(checked):
        raise ArgumentError("seeds must differ: runs of one seed share their noise.")
    return tables, checked
