"""Seeds of replicates, and tables simulated from a model's prior. No private data."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count
from nadpvi.errors import ArgumentError
from nadpvi.made_up import prior_draws
from nadpvi.models.base import SimulatingModel
from nadpvi.privacy.randomness import check_seed
from nadpvi.schema import Schema

__all__ = ["SimulatedTables", "replicate_seed", "replicate_seeds", "simulate_tables"]

Array = NDArray[np.float64]

# A run's own streams are the first children of its seed (`nadpvi.privacy.randomness.make_streams`); its table
# comes from one that those never reach.
_TABLE_CHILD = 2**32 - 1


class SimulatedTables(NamedTuple):
    """Parameters drawn from the prior, unconstrained (R, K), and one table of outcomes for each (R, N)."""

    theta: Array
    outcomes: Array


def replicate_seeds(seed: int, *, num_replicates: int) -> NDArray[np.uint64]:
    """Return one seed for each replicate, shape (R,).

    Seed r depends on `seed` and r alone, so a longer list starts with a shorter one's, and any part of it
    can be worked on anywhere.

    Parameters
    ----------
    seed : int
        In [0, 2^64).
    num_replicates : int
        R >= 1.

    Examples
    --------
    >>> bool((replicate_seeds(1, num_replicates=3) == replicate_seeds(1, num_replicates=9)[:3]).all())
    True
    """
    root = check_seed("seed", seed)
    numbers = range(check_count("num_replicates", num_replicates))
    return np.array([replicate_seed(root, number) for number in numbers], dtype=np.uint64)


def replicate_seed(seed: int, number: int) -> int:
    """Return the seed of one replicate, counted from 0, without those before it.

    Examples
    --------
    >>> replicate_seed(7, 3) == int(replicate_seeds(7, num_replicates=4)[3])
    True
    """
    child = np.random.SeedSequence(seed, spawn_key=(number,))
    return int(child.generate_state(1, np.uint64)[0])


def simulate_tables(
    model: SimulatingModel,
    *,
    schema: Schema,
    num_records: int,
    seeds: Sequence[int] | NDArray[np.uint64],
    clamp: bool = True,
) -> SimulatedTables:
    """Return R draws from a model's prior and a table of N records simulated from each.

    Table r depends on ``seeds[r]`` alone, and shares no random number with the run that
    `nadpvi.private.replicates.simulate_releases` makes of it under the same seed.

    Parameters
    ----------
    model : SimulatingModel
        Without predictors.
    schema : Schema
        Describes the outcome.
    num_records : int
        N >= 1.
    seeds : sequence of int
        One for each replicate, from `replicate_seeds`.
    clamp : bool
        Whether outcomes are held to the public bounds of their column, as real ones are.

    Raises
    ------
    ArgumentError
        If the model cannot simulate or has predictors, or an argument is out of range.
    """
    if not isinstance(model, SimulatingModel):
        raise ArgumentError(f"model must be able to simulate (got {type(model).__name__}); give it simulate.")
    design = model.design(schema)
    if design.predictors:
        raise ArgumentError("model must have no predictors: their values would have to come from somewhere.")
    x = np.empty((check_count("num_records", num_records), 0))
    thetas, outcomes = [], []
    for seed in seeds:
        root = np.random.SeedSequence(check_seed("seeds", seed), spawn_key=(_TABLE_CHILD,))
        rng = np.random.default_rng(root)
        theta = prior_draws(model, design, num_draws=1, rng=rng)[0]
        thetas.append(theta)
        y = np.asarray(model.simulate(theta, x, rng=rng), dtype=np.float64)
        outcomes.append(np.clip(y, *design.outcome_bounds) if clamp else y)
    return SimulatedTables(np.array(thetas), np.array(outcomes))
