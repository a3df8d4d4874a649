"""Private choice among settings: the best of a secret number of runs leaves, under one guarantee."""

import dataclasses

import numpy as np
import pytest

import nadpvi as na
import nadpvi.private.choice
from nadpvi.description import ModelDescription
from nadpvi.privacy.noise import GRID_UNITS, NoNoise
from nadpvi.privacy.selection import Selection
from nadpvi.privacy.selection_accounting import selection_epsilon
from nadpvi.private.choice import choose
from nadpvi.private.keeping import Keeper
from nadpvi.private.records import Records, make_records
from nadpvi.private.score import private_score

MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=2.0, delta=1e-5)
SELECTION = Selection(mean_runs=3, score_noise_multiplier=20)
SLOW = na.DPVIConfig(num_steps=20, sampling_rate=0.2, learning_rate=1e-9)
FAST = dataclasses.replace(SLOW, learning_rate=0.003)


@pytest.fixture
def count_runs(monkeypatch):
    """Fix the number of runs, and return the list of the settings that ran."""

    def arm(number):
        ran, original = [], nadpvi.private.choice.run_steps
        monkeypatch.setattr(nadpvi.private.choice, "draw_num_runs", lambda rng, selection: number)

        def run_steps(part):
            ran.append(part.mechanism.config)
            return original(part)

        monkeypatch.setattr(nadpvi.private.choice, "run_steps", run_steps)
        return ran

    return arm


def test_the_guarantee_is_that_of_the_whole_choice(schema, table, tmp_path):
    book = na.Ledger.create(tmp_path / "l", label="people")
    made = choose(MODEL, table, [SLOW, FAST], schema=schema, privacy=BUDGET, selection=SELECTION, ledger=book)
    promised = made.guarantee
    assert made.is_private
    assert promised.selection == SELECTION
    assert promised.epsilon <= 2.0
    expected = selection_epsilon(
        noise_multiplier=made.noise_multiplier,
        delta=1e-5,
        num_steps=20,
        sampling_rate=0.2,
        selection=SELECTION,
    )
    assert promised.epsilon == pytest.approx(expected, rel=1e-6)
    one = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=SLOW)
    assert made.noise_multiplier > 1.5 * one.noise_multiplier
    assert "candidates" in " ".join(promised.assumed_public)
    assert made.config in (SLOW, FAST)
    (entry,) = book.entries()
    assert entry.guarantee.selection == SELECTION
    # A choice and other runs are composed at half of delta each, so that the total may be a little higher.
    assert promised.epsilon <= book.total() < 1.2 * promised.epsilon
    again = na.Release.load(made.save(tmp_path / "r.nc"))
    assert again.guarantee == promised


def test_the_best_score_wins(schema, table, count_runs, monkeypatch):
    ran = count_runs(6)
    scores = iter([3.0, 1.0, 7.5, -2.0, 7.0, 0.0])
    monkeypatch.setattr(nadpvi.private.choice, "private_score", lambda *_, **__: next(scores))
    made = choose(
        MODEL, table, [SLOW, FAST], schema=schema, privacy=BUDGET, selection=SELECTION, insecure_seed=2
    )
    assert len(ran) == 6
    assert made.config == ran[2]
    assert not made.is_private


def test_good_settings_beat_bad_ones(schema, table, count_runs):
    """On 40 copies of the table, the run that moves is found in spite of the noise on its score."""
    count_runs(12)
    big = {name: np.tile(table[name].to_numpy(), 40) for name in table}
    won = [
        choose(
            MODEL, big, [SLOW, FAST], schema=schema, privacy=BUDGET, selection=SELECTION, insecure_seed=seed
        ).config
        for seed in range(2)
    ]
    assert won == [FAST] * 2


def test_candidates_are_drawn_evenly(schema, table, count_runs, monkeypatch):
    ran = count_runs(60)
    monkeypatch.setattr(nadpvi.private.choice, "private_score", lambda *_, **__: 0.0)
    short = [dataclasses.replace(config, num_steps=1) for config in (SLOW, FAST)]
    choose(MODEL, table, short, schema=schema, privacy=BUDGET, selection=SELECTION, insecure_seed=2)
    assert 15 < sum(config == short[0] for config in ran) < 45


class TestNothingIsSpent:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"candidates": [FAST]}, "at least two"),
            ({"candidates": [FAST, dataclasses.replace(SLOW, num_steps=30)]}, "must share"),
            ({"candidates": [FAST, dataclasses.replace(SLOW, sampling_rate=0.1)]}, "must share"),
            ({"candidates": [FAST, "slow"]}, "DPVIConfig"),
            (
                {"candidates": [FAST, dataclasses.replace(SLOW, prior_term="per_record", num_records=200)]},
                "must share",
            ),
            ({"privacy": na.NonPrivate()}, "PrivacyBudget"),
            ({"selection": 3}, "Selection"),
            ({"score_bound": 0}, "score_bound"),
            ({"privacy": na.PrivacyBudget(epsilon=1e-3, delta=1e-5)}, "epsilon must be at least"),
        ],
    )
    def test_bad_arguments(self, schema, tmp_path, changes, message):
        arguments = {"candidates": [SLOW, FAST], "privacy": BUDGET, "selection": SELECTION} | changes
        with pytest.raises(na.ArgumentError, match=message):
            choose(
                MODEL,
                tmp_path / "none.csv",
                arguments.pop("candidates"),
                schema=schema,
                **arguments,
            )

    def test_replacement_is_not_accounted(self, schema, tmp_path):
        budget = na.PrivacyBudget(epsilon=2, delta=1e-5, neighbouring_relation="replace_one")
        with pytest.raises(na.PrivacyError, match="add_or_remove_one"):
            choose(
                MODEL,
                tmp_path / "none.csv",
                [SLOW, FAST],
                schema=schema,
                privacy=budget,
                selection=SELECTION,
            )


class TestOrder:
    """What must happen before what, and what must not leave."""

    def test_the_cap_is_asked_before_the_table_is_opened(self, schema, tmp_path):
        cap = na.PrivacyBudget(epsilon=0.5, delta=1e-5)
        tight = na.Ledger.create(tmp_path / "l", label="people", cap=cap)
        arguments = {"schema": schema, "privacy": BUDGET, "selection": SELECTION, "ledger": tight}
        with pytest.raises(na.PrivacyError, match="cap"):
            choose(MODEL, tmp_path / "none.csv", [SLOW, FAST], **arguments)

    def test_it_is_reserved_before_the_first_run(self, schema, table, tmp_path, monkeypatch):
        book = na.Ledger.create(tmp_path / "l", label="people")

        def fail(*_, **__):
            raise RuntimeError("stopped")

        monkeypatch.setattr(nadpvi.private.choice, "run_steps", fail)
        arguments = {"schema": schema, "privacy": BUDGET, "selection": SELECTION, "ledger": book}
        with pytest.raises(RuntimeError, match="stopped"):
            choose(MODEL, table, [SLOW, FAST], **arguments)
        (entry,) = book.entries()
        assert entry.state == "reserved"

    def test_an_interrupt_leaves_nothing(self, schema, table, count_runs, monkeypatch):
        ran = count_runs(3)
        original = nadpvi.private.choice.run_steps

        def run_steps(part):
            keeper, failure = original(part)
            if len(ran) == 2:
                keeper = Keeper(part.mechanism.settings)
            return keeper, failure

        monkeypatch.setattr(nadpvi.private.choice, "run_steps", run_steps)
        arguments = {"schema": schema, "privacy": BUDGET, "selection": SELECTION, "insecure_seed": 2}
        with pytest.raises(KeyboardInterrupt) as stop:
            choose(MODEL, table, [SLOW, FAST], **arguments)
        assert not isinstance(stop.value, na.RunInterrupted)
        assert len(ran) == 2

    def test_a_person_moves_the_score_as_one(self, schema, table, count_runs, monkeypatch):
        count_runs(1)
        seen = []

        def score(*_, **arguments):
            seen.append(arguments["records_per_unit"])
            return 0.0

        monkeypatch.setattr(nadpvi.private.choice, "private_score", score)
        owned = na.Schema(columns=schema.columns, person=na.Person(column="id", max_rows=3))
        people = table.assign(id=np.arange(200) // 4)
        arguments = {"schema": owned, "privacy": BUDGET, "selection": SELECTION, "insecure_seed": 2}
        made = choose(MODEL, people, [SLOW, FAST], **arguments)
        assert seen == [3]
        assert made.guarantee.records_per_unit == 3


class NoNoiseOnTheGrid(NoNoise):
    """Exact sums without noise, so that what comes out is the score itself."""

    def __init__(self):
        super().__init__(dimension=1)
        self.grid_units = GRID_UNITS


class TestScore:
    @pytest.fixture
    def score(self, schema, table):
        """Return the score of the first rows of the table, without noise."""
        description = ModelDescription(model=MODEL, schema=schema, guide=na.MeanField())
        records = make_records(table, description.design)
        phi = np.concatenate([np.full(6, 0.7), np.full(6, -1.0)])

        def of(rows, *, noise=None, bound=4.0, per_unit=1, at=phi):
            return private_score(
                Records(x=records.x[rows], y=records.y[rows]),
                description=description,
                phi=at,
                bound=bound,
                records_per_unit=per_unit,
                noise=noise or NoNoiseOnTheGrid(),
                rng=np.random.default_rng(3),
            )

        of.description, of.records, of.phi = description, records, phi
        return of

    def test_it_is_the_mean_log_likelihood_over_the_guide(self, score):
        draws = np.random.default_rng(3).standard_normal((10, 6))
        theta = score.description.guide.draw(score.phi, draws)
        eta = score.records.x @ theta.T
        expected = (score.records.y[:, None] * eta - np.logaddexp(0, eta)).mean(axis=1).clip(-4, 4).sum() / 4
        assert score(slice(None)) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("bound", [0.3, 4.0])
    @pytest.mark.parametrize("per_unit", [1, 3])
    def test_a_unit_moves_it_by_at_most_one(self, score, bound, per_unit):
        whole = score(slice(None), bound=bound, per_unit=per_unit)
        steps = [
            abs(whole - score(np.r_[0:i, i + per_unit : 200], bound=bound, per_unit=per_unit))
            for i in range(0, 100, 7)
        ]
        assert max(steps) <= 1.0
        assert max(steps) > (0.9 if bound == 0.3 else 0.1)

    def test_extreme_parameters_count_in_full_and_no_more(self, score):
        wild = np.concatenate([np.full(6, 1e300), np.full(6, 1e300)])
        assert abs(score(slice(None), at=wild)) <= 200

    def test_its_noise_has_the_stated_size(self, schema, table):
        mechanism = nadpvi.private.choice.make_mechanism(
            ModelDescription(model=MODEL, schema=schema, guide=na.MeanField()),
            privacy=BUDGET,
            config=SLOW,
            selection=SELECTION,
        )
        streams = nadpvi.private.choice.make_streams(insecure_seed=None)
        draws = [mechanism.score_noise(streams).draw()[0] / GRID_UNITS for _ in range(400)]
        assert 16 < np.std(draws) < 24  # 20, five standard errors either way
