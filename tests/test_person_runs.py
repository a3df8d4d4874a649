"""Runs that protect persons: all rows of one enter a step together, and the noise covers them all."""

import numpy as np
import pytest

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.guides.antithetic import draw_antithetic
from nadpvi.privacy.noise import GRID_UNITS, NoNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.privacy.sampling import poisson_sample
from nadpvi.private.dpvi import State, public_gradient, step
from nadpvi.private.records import Records, make_records
from nadpvi.schema import Person
from nadpvi.settings import make_settings

MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=20, sampling_rate=0.3, clip_norm=0.5)


@pytest.fixture
def owned(schema):
    """Return the schema with a person column and so many rows a person."""
    return lambda rows: na.Schema(columns=schema.columns, person=Person(column="id", max_rows=rows))


@pytest.fixture
def people(table):
    """The table with 50 persons of four rows each, mixed."""
    return table.assign(id=np.random.default_rng(4).permutation(np.arange(200) % 50))


class NoNoiseOnTheGrid(NoNoise):
    """Exact sums without noise, so that what is released is the sum itself."""

    def __init__(self, *, dimension):
        super().__init__(dimension=dimension)
        self.grid_units = GRID_UNITS


def sums(records, settings, *, seed=5):
    """Return the clipped integer sum of one step."""
    noise = NoNoiseOnTheGrid(dimension=len(settings.initial_phi))
    _, noisy = step(
        State(0, settings.initial_phi),
        records=records,
        settings=settings,
        noise=noise,
        streams=make_streams(insecure_seed=seed),
    )
    rng = make_streams(insecure_seed=seed).monte_carlo
    draws = draw_antithetic(rng, num_draws=10, size=len(noisy) // 2)
    public = public_gradient(settings.description, phi=settings.initial_phi, standard_normal=draws)
    total = (noisy - settings.sampling_rate * public) * settings.preconditioner
    return np.round(total * GRID_UNITS / settings.clip_norm)


def prepare(schema, table, config=CONFIG):
    description = ModelDescription(model=MODEL, schema=schema, guide=config.guide)
    settings = make_settings(description, config, noise_multiplier=3.0)
    rng = np.random.default_rng(8)
    return settings, make_records(table, description.design, person=schema.person, rng=rng)


@pytest.mark.parametrize("rows", [1, 3])
def test_the_guarantee_is_a_person_s(schema, people, owned, rows):
    made = na.release(MODEL, people, schema=owned(rows), privacy=BUDGET, config=CONFIG)
    one = na.release(MODEL, people.drop(columns="id"), schema=schema, privacy=BUDGET, config=CONFIG)
    assert (made.guarantee.unit, made.guarantee.records_per_unit) == ("one person", rows)
    assert (one.guarantee.unit, one.guarantee.records_per_unit) == ("one record", 1)
    assert made.noise_multiplier == pytest.approx(rows * one.noise_multiplier, rel=1e-5)
    np.testing.assert_allclose(made.noise_std, made.noise_multiplier * 0.5 / made.preconditioner)
    assert made.guarantee.epsilon <= 1.0
    assert "person" in made.guarantee.sentence()
    assert made.description.schema.person == Person(column="id", max_rows=rows)


def test_the_rows_of_a_person_enter_together(people, owned):
    settings, records = prepare(owned(4), people)
    drawn = poisson_sample(make_streams(insecure_seed=5).subsample, num_records=50, sampling_rate=0.3)
    starts = records.unit_starts
    rows = np.concatenate([np.arange(starts[unit], starts[unit + 1]) for unit in drawn])
    assert len(rows) == 4 * len(drawn)
    whole = na.DPVIConfig(num_steps=20, sampling_rate=1.0, clip_norm=0.5)
    chosen = Records(x=records.x[rows], y=records.y[rows])
    full, _ = prepare(owned(4), people, whole)
    # The order of rows plays no part: integers add up exactly.
    np.testing.assert_array_equal(sums(records, settings), sums(chosen, full))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_one_person_moves_the_sum_by_at_most_their_rows(people, owned, rows):
    config = na.DPVIConfig(num_steps=20, sampling_rate=1.0, clip_norm=0.5)
    settings, records = prepare(owned(rows), people, config)
    all_of_them = sums(records, settings)
    largest = 0.0
    for unit in range(50):
        start, end = records.unit_starts[unit : unit + 2]
        kept = np.r_[0:start, end : len(records.y)]
        others = sums(Records(x=records.x[kept], y=records.y[kept]), settings)
        largest = max(largest, float(np.linalg.norm(all_of_them - others)))
    assert largest <= rows * GRID_UNITS
    # The bound is not idle: rows that are alike add up.
    assert largest > 0.4 * rows * GRID_UNITS


def test_without_a_person_column_each_row_is_its_own(people, schema, owned):
    _, by_person = prepare(owned(4), people)
    _, by_row = prepare(schema, people.drop(columns="id"))
    assert (by_person.num_units, by_row.num_units) == (50, 200)


def test_seeded_runs_repeat(people, owned):
    arguments = {"schema": owned(2), "privacy": BUDGET, "config": CONFIG}
    first, second = (na.release(MODEL, people, insecure_seed=7, **arguments) for _ in range(2))
    np.testing.assert_array_equal(first.noisy_gradient, second.noisy_gradient)
    other = na.release(MODEL, people, insecure_seed=8, **arguments)
    assert (first.noisy_gradient != other.noisy_gradient).all()


def test_the_release_reads_back(people, owned, tmp_path):
    made = na.release(MODEL, people, schema=owned(2), privacy=BUDGET, config=CONFIG)
    again = na.Release.load(made.save(tmp_path / "r.nc"))
    assert again.guarantee == made.guarantee
    assert again.description == made.description
