"""Many simulated releases of one model as one array program. Private side, never private."""

import itertools
import math
from collections.abc import Iterator, Sequence
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
from nadpvi.models.base import ExponentialFamily, RecordBatch
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.randomness import check_seed, make_streams
from nadpvi.private.keeping import Trace
from nadpvi.private.replicates.randomness import RandomBlocks
from nadpvi.private.replicates.rows import CountedRows, LooseRows, SampledRows
from nadpvi.private.replicates.runs import GroupResult, run_group
from nadpvi.schema import Schema
from nadpvi.settings import Settings

__all__ = ["ReplicateTraces", "simulate_releases"]

Array = NDArray[np.float64]

# Replicates that run together: as many as leave a step's arrays in the cache of a core.
_GROUP_VALUES = 32_768
_LARGEST_GROUP = 1024
_SMALLEST_GROUP = 3


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
    tables, checked_seeds = _check_tables(outcomes, seeds)
    if not isinstance(model, ExponentialFamily):
        raise ArgumentError(
            f"model must be an exponential family with statistics and natural_gradient (got "
            f"{type(model).__name__}); simulate others one by one with release(..., insecure_seed=)."
        )
    description = ModelDescription(model=model, schema=schema, guide=settings.guide)
    if description.design.predictors or schema.person is not None:
        raise ArgumentError("model and schema must have no predictors and no person column.")
    mechanism = make_mechanism(description, privacy=privacy, config=settings)
    noise = mechanism.noise_source(make_streams(insecure_seed=checked_seeds[0]), num_steps=settings.num_steps)
    guarantee = mechanism.guarantee(noise, num_steps=settings.num_steps)
    if is_counted is None:
        is_counted = description.design.outcome_kind != "real"
    make_groups = _counted_groups if is_counted else _loose_groups
    num_replicates = len(tables)
    if num_replicates == 1:
        # With a twin: NumPy adds up a single column in another order than several, so that the last bit of
        # a replicate would depend on whether it runs alone.
        tables, checked_seeds = tables * 2, checked_seeds * 2
    num_kept = len(mechanism.settings.kept_steps(settings.num_steps))
    shape = (len(tables), num_kept, mechanism.dimension)
    trace, results, start = Trace(np.empty(shape), np.empty(shape)), [], 0
    for rows in make_groups(model, tables, settings=mechanism.settings):
        group = slice(start, start + rows.num_replicates)
        random = RandomBlocks(
            [make_streams(insecure_seed=seed) for seed in checked_seeds[group]],
            rows=rows,
            settings=mechanism.settings,
            noise_multiplier=mechanism.noise_multiplier,
        )
        into = Trace(trace.phi[group], trace.noisy_gradient[group])
        results.append(run_group(random, model=model, settings=mechanism.settings, into=into))
        start = group.stop
    joined = _joined(results, num_replicates=num_replicates)
    return ReplicateTraces(
        mechanism=mechanism,
        guarantee=guarantee,
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


def _statistics(model: ExponentialFamily, outcomes: Array, *, settings: Settings) -> Array:
    """Return the sufficient statistics of outcomes (N,), shape (P, N)."""
    batch = RecordBatch(x=np.empty((len(outcomes), 0)), y=outcomes)
    statistics = model.statistics(batch, num_params=len(settings.description.names))
    return np.ascontiguousarray(statistics.T)


def _counted_groups(
    model: ExponentialFamily, tables: list[Array], *, settings: Settings
) -> Iterator[SampledRows]:
    """Yield groups of replicates whose outcomes are counted."""
    # One after the other, since their union is small where counting pays.
    distinct = np.unique(np.concatenate([np.unique(table) for table in tables]))
    statistics = _statistics(model, distinct, settings=settings)
    for group in _groups(tables, num_slots=len(distinct)):
        counts = [np.bincount(np.searchsorted(distinct, table), minlength=len(distinct)) for table in group]
        yield CountedRows(statistics, counts=np.array(counts), sampling_rate=settings.sampling_rate)


def _loose_groups(
    model: ExponentialFamily, tables: list[Array], *, settings: Settings
) -> Iterator[SampledRows]:
    """Yield groups of replicates whose records are sampled one by one."""
    largest = max(len(table) for table in tables)
    for group in _groups(tables, num_slots=math.ceil(settings.sampling_rate * largest)):
        statistics = [_statistics(model, table, settings=settings) for table in group]
        yield LooseRows(statistics, sampling_rate=settings.sampling_rate)


def _groups(tables: list[Array], *, num_slots: int) -> Iterator[list[Array]]:
    """Yield runs of at least 2 tables, as many as the cache holds with `num_slots` slots each."""
    largest = min(max(_GROUP_VALUES // num_slots, _SMALLEST_GROUP), _LARGEST_GROUP)
    # Of nearly equal size, so that no single one is left over.
    bounds = np.linspace(0, len(tables), math.ceil(len(tables) / largest) + 1).astype(int)
    for start, stop in itertools.pairwise(bounds):
        yield tables[start:stop]


def _joined(results: list[GroupResult], *, num_replicates: int) -> GroupResult:
    """Return the first `num_replicates` of groups of replicates, one after the other."""
    sums = None
    parts = [result.sums for result in results if result.sums is not None]
    if parts:
        columns = zip(*(part[1:] for part in parts), strict=True)
        sums = RunningSums(
            parts[0].num_steps, *(np.concatenate(column)[:num_replicates] for column in columns)
        )
    return GroupResult(
        final_phi=np.concatenate([result.final_phi for result in results])[:num_replicates],
        sums=sums,
        is_finite=np.concatenate([result.is_finite for result in results])[:num_replicates],
    )
