"""Groups of replicates that run together, and their results put side by side. Private side, never private."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.running import RunningSums
from nadpvi.models.base import RecordBatch
from nadpvi.private.replicates.rows import CountedRows, LooseRows, SampledRows
from nadpvi.private.replicates.runs import GroupResult
from nadpvi.settings import Settings

__all__ = ["joined_results", "make_groups"]

Array = NDArray[np.float64]

# Replicates that run together: as many as leave a step's arrays in the cache of a core.
_GROUP_VALUES = 32_768
_LARGEST_GROUP = 1024
_SMALLEST_GROUP = 3


def make_groups(tables: list[Array], *, settings: Settings, is_counted: bool) -> Iterator[SampledRows]:
    """Yield the records of at least 2 replicates, group by group, in their order.

    Parameters
    ----------
    tables : list of ndarray, each of shape (N_r,)
        Outcomes.
    settings : Settings
        Of the runs; the model is an exponential family.
    is_counted : bool
        Whether equal outcomes are held once, with a count.
    """
    return (_counted_groups if is_counted else _loose_groups)(tables, settings=settings)


def _statistics(outcomes: Array, *, settings: Settings) -> Array:
    """Return the sufficient statistics of outcomes (N,), shape (P, N)."""
    model: Any = settings.description.model
    batch = RecordBatch(x=np.empty((len(outcomes), 0)), y=outcomes)
    statistics = model.statistics(batch, num_params=len(settings.description.names))
    return np.ascontiguousarray(statistics.T)


def _counted_groups(tables: list[Array], *, settings: Settings) -> Iterator[SampledRows]:
    """Yield groups of replicates whose outcomes are counted."""
    # One after the other, since their union is small where counting pays.
    distinct = np.unique(np.concatenate([np.unique(table) for table in tables]))
    statistics = _statistics(distinct, settings=settings)
    for group in _groups(tables, num_slots=len(distinct)):
        counts = [np.bincount(np.searchsorted(distinct, table), minlength=len(distinct)) for table in group]
        yield CountedRows(statistics, counts=np.array(counts), sampling_rate=settings.sampling_rate)


def _loose_groups(tables: list[Array], *, settings: Settings) -> Iterator[SampledRows]:
    """Yield groups of replicates whose records are sampled one by one."""
    largest = max(len(table) for table in tables)
    for group in _groups(tables, num_slots=math.ceil(settings.sampling_rate * largest)):
        statistics = [_statistics(table, settings=settings) for table in group]
        yield LooseRows(statistics, sampling_rate=settings.sampling_rate)


def _groups(tables: list[Array], *, num_slots: int) -> Iterator[list[Array]]:
    """Yield runs of at least 2 tables, as many as the cache holds with `num_slots` slots each."""
    largest = min(max(_GROUP_VALUES // num_slots, _SMALLEST_GROUP), _LARGEST_GROUP)
    # Of nearly equal size, so that no single one is left over.
    bounds = np.linspace(0, len(tables), math.ceil(len(tables) / largest) + 1).astype(int)
    for start, stop in itertools.pairwise(bounds):
        yield tables[start:stop]


def joined_results(results: list[GroupResult], *, num_replicates: int) -> GroupResult:
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
