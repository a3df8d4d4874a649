"""Sums of sufficient statistics and their noise: what noisy statistics release. Private side.

`release_statistics` reads a table and makes one release; `simulate_statistics` noises many simulated sums.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.baselines.sufficient_statistics.families import BeyondBounds
from nadpvi.baselines.sufficient_statistics.gibbs import NoiseKind
from nadpvi.baselines.sufficient_statistics.mechanism import StatisticsMechanism, make_statistics_mechanism
from nadpvi.baselines.sufficient_statistics.predictors import PredictorMoments
from nadpvi.baselines.sufficient_statistics.release import (
    StatisticsRelease,
    describe,
    make_statistics_family,
)
from nadpvi.checks import check_count
from nadpvi.design import Design
from nadpvi.errors import ArgumentError, DataError, PrivacyError, SchemaError
from nadpvi.models import Model
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.discreteness import discreteness_cost
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.guarantee_maker import make_guarantee
from nadpvi.privacy.laplace import draw_discrete_laplace
from nadpvi.privacy.ledger import Ledger
from nadpvi.privacy.noise import GRID_UNITS, DiscreteGaussianNoise
from nadpvi.privacy.parameters import REPLACE_ONE
from nadpvi.privacy.randomness import check_seed
from nadpvi.private.curator import check_ledger
from nadpvi.private.records import Records, make_records
from nadpvi.schema import Schema
from nadpvi.tables import TableLike

__all__ = ["release_statistics", "simulate_statistics", "true_statistics"]

Array = NDArray[np.float64]

_LARGEST_EXACT = 2**52
_CHUNK_VALUES = 2**20


def release_statistics(
    model: Model,
    table: TableLike,
    *,
    schema: Schema,
    privacy: PrivacyBudget,
    noise: NoiseKind = "laplace",
    num_records: int | None = None,
    beyond: BeyondBounds = "clamp",
    moments: PredictorMoments | None = None,
    insecure_seed: int | None = None,
    ledger: Ledger | None = None,
    label: str = "noisy statistics",
) -> StatisticsRelease:
    """Return one release of a table's sufficient statistics, noised once as a whole.

    Guarantees:

    - Each record's statistics are a function of the record and of public bounds; they are truncated to a grid
      of integers and summed exactly. Adding or removing one record changes the sums by at most the family's
      sensitivity; replacing one by at most that and a grid unit for each sum.
    - Every sum has a noise draw of its own: discrete Laplace, accounted exactly, or discrete Gaussian,
      accounted as continuous with a bound on the difference. Both come from the operating system's generator.
    - With "add_or_remove_one" nothing but noised sums is released, and the number of records is not.
    - With `insecure_seed` the noise is reproducible, and the release is stamped not private.

    Parameters
    ----------
    model : Model
        A conjugate model without predictors, or `LinearRegression`.
    table : DataFrame, mapping of columns, or path
        The records. Private.
    schema : Schema
        Without a person column: each record is protected by itself.
    privacy : PrivacyBudget
        What may be spent. Laplace noise leaves delta unspent.
    noise : "laplace" or "gaussian"
        The mechanism.
    num_records : int, optional
        N, public: needed with "replace_one" and refused otherwise.
    beyond : "drop" or "clamp"
        What a waiting time or count of at least its public upper bound adds to the sum.
    moments : PredictorMoments, optional
        Public moments of a regression's features.
    insecure_seed : int, optional
        For simulations.
    ledger : Ledger, optional
        The data set's ledger, in which the release is reserved before the table is read. For Gaussian noise
        alone: pure epsilon is not composed with other runs there.
    label : str
        Name of this release in the ledger.

    Raises
    ------
    ArgumentError, SchemaError
        If the model, the schema or a setting does not serve.
    PrivacyError
        If the ledger's cap does not allow it; `table` has not been opened.
    DataError
        If a cell is unusable, or the table does not hold `num_records` usable records.
    """
    if not isinstance(privacy, PrivacyBudget):
        raise ArgumentError(f"privacy must be a PrivacyBudget (got {type(privacy).__name__}).")
    family = make_statistics_family(
        model, schema, neighbouring_relation=privacy.neighbouring_relation, beyond=beyond, moments=moments
    )
    if schema.person is not None or schema.counts is not None:
        raise ArgumentError(
            "noisy statistics are of rows that are single records; the schema must have no person column and "
            "no counts."
        )
    mechanism = make_statistics_mechanism(family, privacy=privacy, noise=noise)
    if (num_records is None) == family.has_public_count:
        raise ArgumentError(f'num_records must be given with "{REPLACE_ONE}", and only then.')
    description = describe(model, schema)
    if num_records is not None:
        num_records = check_count("num_records", num_records)
        _refuse_dropped_rows(description.design)
    booked = _booking(mechanism, privacy=privacy, is_private=insecure_seed is None, ledger=ledger)
    records = make_records(table, description.design)
    if num_records is not None and num_records != records.num_records:
        raise DataError("num_records must be the number of usable records: it counts as public.")
    sums = _grid_sums(mechanism, records)
    entry = None if ledger is None or booked is None else ledger.reserve(booked, label=label)
    if insecure_seed is None:
        noisy, words = _private_noise(mechanism, sums)
    else:
        rng = np.random.default_rng(check_seed("insecure_seed", insecure_seed))
        noisy = simulate_statistics(mechanism, sums[None] / GRID_UNITS, rng=rng)[0]
        words = f"floating-point {noise} noise from a seeded generator"
    if ledger is not None and entry is not None:
        ledger.commit(entry)
    return StatisticsRelease(
        statistics=noisy,
        num_records=num_records,
        mechanism=mechanism,
        guarantee=mechanism.guarantee(is_private=insecure_seed is None, mechanism=words),
        description=description,
    )


def _refuse_dropped_rows(design: Design) -> None:
    """Refuse a schema that drops rows where N is public: one record's cell would then change it."""
    for name in design.schema.names:
        column = design.schema[name]
        if "drop" in (column.missing, getattr(column, "unknown", "")):
            raise SchemaError(
                f'column {name!r} drops rows, and with "{REPLACE_ONE}" the number of usable ones is public: '
                'declare missing = "refuse" (and unknown = "refuse").'
            )


def _booking(
    mechanism: StatisticsMechanism, *, privacy: PrivacyBudget, is_private: bool, ledger: Ledger | None
) -> Guarantee | None:
    """Return the release as a ledger sees it, a run of one full-batch step; checked against its cap."""
    check_ledger(ledger)
    if ledger is None:
        return None
    if mechanism.noise != "gaussian":
        raise ArgumentError(
            'a ledger composes Gaussian noise: take noise="gaussian", or leave the ledger out and keep count.'
        )
    sigma = mechanism.noise_scale / mechanism.sensitivity
    cost = _discreteness(mechanism) if is_private else 0.0
    booked = make_guarantee(
        budget=privacy,
        noise_multiplier=sigma,
        num_steps=1,
        sampling_rate=1.0,
        clip_norm=mechanism.sensitivity,
        mechanism=f"{'discrete' if is_private else 'simulated'} Gaussian noise on sums of statistics",
        assumed_public=mechanism.guarantee(is_private=is_private, mechanism="").assumed_public,
        discreteness=cost,
        reason_not_private=None if is_private else "its noise came from a seed, for simulation",
    )
    ledger.check(booked)
    return booked


def _discreteness(mechanism: StatisticsMechanism) -> float:
    """Return xi, the price of accounting this Gaussian noise as continuous."""
    return discreteness_cost(
        noise_multiplier=mechanism.noise_scale,
        grid_units=GRID_UNITS,
        num_steps=1,
        dimension=len(mechanism.family.labels),
        epsilon=mechanism.epsilon,
    )


def simulate_statistics(
    mechanism: StatisticsMechanism, sums: ArrayLike, *, rng: np.random.Generator
) -> Array:
    """Return R vectors of sums with simulated noise, (R, J) -> (R, J). Fast, and not private.

    Parameters
    ----------
    mechanism : StatisticsMechanism
        Gives law and scale of the noise.
    sums : array_like, shape (R, J)
        True sums, from `true_statistics`.
    rng : numpy.random.Generator
    """
    true = np.asarray(sums, dtype=np.float64)
    if true.ndim != 2 or true.shape[1] != len(mechanism.family.labels):
        raise ArgumentError(f"sums must have shape (R, {len(mechanism.family.labels)}) (got {true.shape}).")
    draw = rng.laplace if mechanism.noise == "laplace" else rng.normal
    noisy: Array = true + draw(0.0, mechanism.noise_scale, true.shape)
    return noisy


def true_statistics(mechanism: StatisticsMechanism, y: ArrayLike, *, x: ArrayLike | None = None) -> Array:
    """Return the true sums of R simulated tables, (R, J). Private wherever the tables are.

    Parameters
    ----------
    mechanism : StatisticsMechanism
        Says what is summed.
    y : array_like, shape (R, N)
        Encoded outcomes.
    x : array_like, shape (R, N, F), optional
        Features, for a regression.
    """
    outcomes = np.asarray(y, dtype=np.float64)
    features = None if x is None else np.asarray(x, dtype=np.float64)
    return np.stack(
        [
            mechanism.family.record_statistics(table, x=None if features is None else features[place]).sum(
                axis=0
            )
            for place, table in enumerate(outcomes)
        ]
    )


def _grid_sums(mechanism: StatisticsMechanism, records: Records) -> Array:
    """Return the exact sums of statistics truncated toward zero to the grid, whole numbers, shape (J,)."""
    number = len(mechanism.family.labels)
    if records.num_records * GRID_UNITS > _LARGEST_EXACT:
        raise DataError("there are too many records for sums on the grid to be exact.")
    step = max(1, _CHUNK_VALUES // number)
    total = np.zeros(number, dtype=np.int64)
    for start in range(0, len(records.y), step):
        rows = slice(start, start + step)
        y, x = records.y[rows].astype(np.float64), records.x[rows].astype(np.float64)
        total += (
            np.trunc(mechanism.family.record_statistics(y, x=x) * GRID_UNITS).astype(np.int64).sum(axis=0)
        )
    return total.astype(np.float64)


def _private_noise(mechanism: StatisticsMechanism, sums: Array) -> tuple[Array, str]:
    """Return noised sums and how the noise was drawn, or raise unless it keeps within the budget."""
    scale, number = mechanism.noise_scale, len(sums)
    grid = f"on a grid of 2^-{GRID_UNITS.bit_length() - 1} units (OpenDP)"
    if mechanism.noise == "laplace":
        spent = mechanism.sensitivity / scale
        noise, words = draw_discrete_laplace(scale, dimension=number), f"discrete Laplace noise {grid}"
    else:
        cost = _discreteness(mechanism)
        delta = mechanism.delta * (1.0 - 2.0 * cost)
        spent = gaussian_epsilon(mechanism.sensitivity / scale, delta) + 2.0 * cost
        source = DiscreteGaussianNoise(noise_multiplier=scale, dimension=number, num_steps=1)
        noise, words = source.draw(), f"discrete Gaussian noise {grid}"
    if spent > mechanism.epsilon:
        raise PrivacyError(f"the noise spends epsilon {spent:.6g}, above {mechanism.epsilon:.6g}.")
    # Both are whole numbers below 2^53, so that their sum is exact as well.
    return (sums + noise) / GRID_UNITS, words
