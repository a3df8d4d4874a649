"""Known faults of neighbouring tools, part C: accounting and budget."""

import dataclasses
import json
import math
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import nadpvi as na
import nadpvi.mechanism

SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "y": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)
TABLE = pd.DataFrame({"age": np.linspace(0, 100, 20), "y": ["no", "yes"] * 10})
MODEL = na.models.LogisticRegression(outcome="y")
NAN, INF = math.nan, math.inf


def run_limited(code, *arguments):
    """Run code in a process that the system stops after 60 s of computing; return its JSON lines.

    CPU time, so that a busy machine is no failure: a search that never ends is.
    """
    guard = "import resource; resource.setrlimit(resource.RLIMIT_CPU, (60, 60))\n"
    done = subprocess.run(
        [sys.executable, "-c", guard + code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


SEARCHES = """
import json, os, resource, sys, tempfile
os.environ["NADPVI_CACHE_DIR"] = tempfile.mkdtemp()
import nadpvi as na
for settings in json.loads(sys.argv[1]):
    epsilon = settings.pop("epsilon")
    try:
        sigma = na.noise_multiplier(epsilon=epsilon, **settings)
        print(json.dumps([sigma, na.epsilon_spent(noise_multiplier=sigma, **settings)]))
    except na.ArgumentError as error:
        print(json.dumps(str(error)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


class TestC1SearchThatNeverEnds:
    """Every budget gets a noise multiplier that keeps it, or one line with the range, in bounded means."""

    CASES = (
        *[{"epsilon": e, "delta": 1e-5, "num_steps": 1000, "sampling_rate": 0.5} for e in (1e-4, 0.01, 1e3)],
        {"epsilon": 0.01, "delta": 1e-5, "num_steps": 1, "sampling_rate": 0.001},
        {"epsilon": 1e-4, "delta": 1e-9, "num_steps": 10, "sampling_rate": 1.0},
        {"epsilon": 0.5, "delta": 0.3, "num_steps": 50, "sampling_rate": 0.9},
    )
    REFUSED = (
        {"epsilon": 1e-6, "delta": 1e-5, "num_steps": 1000, "sampling_rate": 0.5},
        {"epsilon": 1e300, "delta": 1e-5, "num_steps": 1000, "sampling_rate": 0.5},
        {"epsilon": 1e300, "delta": 1e-5, "num_steps": 1, "sampling_rate": 1},
        {"epsilon": 1.0, "delta": 1e-300, "num_steps": 1000, "sampling_rate": 0.5},
    )

    def test_an_epsilon_of_nearly_zero_is_kept_or_refused(self):
        """At delta 1e-5 a noise multiplier of 630,800 has epsilon 0: rounding says whether it is found."""
        budget = {"delta": 1e-5, "num_steps": 1000, "sampling_rate": 0.5}
        try:
            sigma = na.noise_multiplier(epsilon=1e-300, **budget)
        except na.ArgumentError as error:
            assert re.search("epsilon must be at least", str(error))  # noqa: PT017
        else:
            assert na.epsilon_spent(noise_multiplier=sigma, **budget) == 0.0
            assert sigma > 0.5 * math.sqrt(1000) / (math.sqrt(2 * math.pi) * 1e-5)

    def test_finite_noise_whose_own_accounting_keeps_the_budget_or_the_range(self):
        *answers, peak = run_limited(SEARCHES, json.dumps(self.CASES + self.REFUSED))
        for case, answer in zip(self.CASES, answers, strict=False):
            sigma, spent = answer
            assert math.isfinite(sigma), case
            assert 0.97 * case["epsilon"] < spent <= case["epsilon"], case
        for answer in answers[len(self.CASES) :]:
            assert isinstance(answer, str), answer
            assert re.search(r"must be (at least|at most|below)", answer), answer  # the reachable range
            assert "\n" not in answer
        assert peak < 2e9

    def test_a_release_with_such_a_budget_is_refused_before_the_table_is_opened(self, tmp_path):
        with pytest.raises(na.ArgumentError, match="epsilon must be at least"):
            na.release(
                MODEL,
                tmp_path / "never-opened.csv",
                schema=SCHEMA,
                privacy=na.PrivacyBudget(epsilon=1e-6, delta=1e-5),
                config=na.DPVIConfig(num_steps=1000, sampling_rate=0.5),
            )

    def test_a_small_budget_reaches_the_end_of_a_release(self):
        made = na.release(
            MODEL,
            TABLE.head(8),
            schema=SCHEMA,
            privacy=na.PrivacyBudget(epsilon=0.01, delta=1e-5),
            config=na.DPVIConfig(num_steps=10, sampling_rate=0.5),
        )
        assert 0.0 < made.guarantee.epsilon <= 0.01
        assert np.isfinite(made.noisy_gradient).all()


class TestC3ExtremeDelta:
    """Epsilon is at least 0, is a number, falls as delta grows, and is exact where that is known."""

    @pytest.mark.parametrize(
        ("sigma", "delta", "exact"),
        [(100, 0.01, 0.0), (100, 1e-3, 0.009048), (1, 0.4, 0.0), (1, 0.39, 0.0)],
    )
    def test_known_values_of_one_step_at_full_batch(self, sigma, delta, exact):
        found = na.epsilon_spent(noise_multiplier=sigma, delta=delta, num_steps=1, sampling_rate=1)
        assert found == pytest.approx(exact, abs=5e-7)
        assert found >= 0.0
        assert math.copysign(1.0, found) == 1.0  # not -0.0

    def test_just_below_the_total_variation_something_is_spent(self):
        # Total variation of one step at sigma 1: 2 Phi(1/2) - 1 = 0.3829.
        assert na.epsilon_spent(noise_multiplier=1, delta=0.382, num_steps=1, sampling_rate=1) > 0.0

    def test_an_epsilon_of_zero_can_be_exact(self):
        settings = {"noise_multiplier": 1, "num_steps": 1, "sampling_rate": 0.00105}
        assert na.epsilon_spent(delta=1e-3, **settings) == 0.0  # delta exceeds q * 0.383
        assert na.epsilon_spent(delta=1e-4, **settings) > 0.0

    @pytest.mark.parametrize(
        "settings",
        [
            {"noise_multiplier": 1.0, "num_steps": 1, "sampling_rate": 1.0},
            {"noise_multiplier": 100.0, "num_steps": 1, "sampling_rate": 1.0},
            {"noise_multiplier": 0.3, "num_steps": 500, "sampling_rate": 0.05},
            {"noise_multiplier": 10.0, "num_steps": 300, "sampling_rate": 0.5},
        ],
    )
    def test_never_negative_never_nan_never_rising_with_delta(self, settings):
        deltas = (0.9, 0.4, 1e-2, 1e-3, 1e-5, 1e-10, 1e-15, 1e-300)
        if settings["sampling_rate"] < 1.0:
            deltas = deltas[1::2]  # about a second each
        found, refusals = [], []
        for delta in deltas:
            try:
                found.append(na.epsilon_spent(delta=delta, **settings))
            except na.ArgumentError as error:
                refusals.append(str(error))
                found.append(INF)
        # Out of the method's reach: it says so by name, and, as they are sorted, for every smaller delta.
        assert all(text.startswith("delta must be at least") for text in refusals)
        assert all(value >= 0.0 for value in found)
        assert not any(math.isnan(value) for value in found)
        assert found == sorted(found)
        assert math.isfinite(found[2])
        if settings["sampling_rate"] == 1.0:
            assert math.isfinite(found[-1])  # the closed form reaches everything

    def test_large_epsilon_is_answered(self):
        found = na.epsilon_spent(noise_multiplier=0.3, delta=1e-5, num_steps=500, sampling_rate=0.05)
        assert found == pytest.approx(164.53, rel=1e-3)


NONSENSE = [
    *[("epsilon", value) for value in (0, None, INF, NAN, -1, "1", True)],
    *[("delta", value) for value in (NAN, 0, 1, 2, -1e-5, "1e-5", None, INF)],
    *[("sampling_rate", value) for value in (0, 1.5, NAN, -0.1, "0.1", None)],
    *[("clip_norm", value) for value in (0, INF, NAN, -1, "2")],
    *[("num_steps", value) for value in (0, -1, 2.5, NAN, INF, None, "10", True)],
    *[("monte_carlo_samples", value) for value in (0, 1.5, NAN)],
    *[("learning_rate", value) for value in (0, NAN, INF, -1)],
    *[("preconditioner_u", value) for value in (0, NAN, INF, -1)],
    *[("initial_u", value) for value in (NAN, INF, -800)],
]


class TestC4NonsenseParameters:
    """Each is refused by name and range before the table, which does not exist, would be opened."""

    @pytest.fixture
    def attempt(self, tmp_path):
        def release(**changes):
            budget = {"epsilon": 1.0, "delta": 1e-5}
            budget |= {name: changes.pop(name) for name in list(changes) if name in budget}
            return na.release(
                MODEL,
                tmp_path / "never-opened.csv",
                schema=SCHEMA,
                privacy=na.PrivacyBudget(**budget),
                config=na.DPVIConfig(**{"num_steps": 10, **changes}),
            )

        return release

    @pytest.mark.parametrize(("name", "value"), NONSENSE)
    def test_the_parameter_is_named_and_its_range(self, attempt, name, value):
        with pytest.raises(ValueError, match=rf"^{name} must be ") as refused:
            attempt(**{name: value})
        assert isinstance(refused.value, na.ArgumentError)
        assert "never-opened" not in str(refused.value)
        assert "\n" not in str(refused.value)

    def test_a_sensible_call_would_have_opened_the_table(self, attempt):
        with pytest.raises(na.FileError, match="never-opened"):
            attempt()

    @pytest.mark.parametrize(("name", "value"), [case for case in NONSENSE if case[1] is not None])
    def test_numpy_values_json_and_replace_are_no_way_round(self, name, value):
        if isinstance(value, float):
            value = np.float64(value)
        if name in ("epsilon", "delta"):
            budget = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
            with pytest.raises(na.ArgumentError, match=name):
                dataclasses.replace(budget, **{name: value})
            return
        config = na.DPVIConfig(num_steps=10)
        with pytest.raises(na.ArgumentError, match=name):
            dataclasses.replace(config, **{name: value})
        with pytest.raises(na.ArgumentError, match=name):
            na.DPVIConfig.from_dict(config.to_dict() | {name: value})

    @pytest.mark.parametrize("name", ["batch_size", "expected_batch", "epochs", "noise_multiplier", "sigma"])
    def test_there_is_no_setting_that_could_contradict_the_sampling_rate(self, name):
        """An expected batch of 50 from 20 rows cannot be asked for: the rate is at most 1."""
        with pytest.raises(TypeError, match=name):
            na.DPVIConfig(num_steps=10, **{name: 50})
        with pytest.raises(na.ArgumentError, match=name):
            na.DPVIConfig.from_dict({"num_steps": 10, name: 50})

    @pytest.mark.parametrize("function", [na.noise_multiplier, na.epsilon_spent])
    @pytest.mark.parametrize(
        ("name", "value"),
        [case for case in NONSENSE if case[0] in ("delta", "sampling_rate", "num_steps")],
    )
    def test_the_accountant_refuses_them_too(self, function, name, value):
        settings = {"delta": 1e-5, "num_steps": 10, "sampling_rate": 0.1}
        first = {"epsilon": 1.0} if function is na.noise_multiplier else {"noise_multiplier": 1.0}
        with pytest.raises(na.ArgumentError, match=rf"^{name} must be "):
            function(**first, **(settings | {name: value}))

    @pytest.mark.parametrize("sigma", [0, -1, NAN, INF, 1e-9])
    def test_no_noise_is_not_a_small_noise(self, sigma):
        with pytest.raises(na.ArgumentError, match=r"noise_multiplier must be .*NonPrivate"):
            na.epsilon_spent(noise_multiplier=sigma, delta=1e-5, num_steps=10, sampling_rate=1)

    def test_no_noise_needs_the_explicit_switch_and_is_reported_as_infinite(self, tmp_path):
        arguments = {"schema": SCHEMA, "config": na.DPVIConfig(num_steps=10, learning_rate=1e-3)}
        for forgotten in (None, 0.0, INF, {"epsilon": INF, "delta": 0.0}):
            with pytest.raises(na.ArgumentError, match=r"^privacy must be"):
                na.release(MODEL, tmp_path / "never-opened.csv", privacy=forgotten, **arguments)
        made = na.release(MODEL, TABLE, privacy=na.NonPrivate(), **arguments)
        assert made.guarantee.epsilon == INF
        assert made.guarantee.to_dict()["epsilon"] == "infinity"
        assert not made.is_private
        assert made.guarantee.sentence().startswith("NOT PRIVATE")
        assert "epsilon is infinite" in made.guarantee.sentence()

    def test_the_command_line_refuses_before_it_opens_the_table(self, tmp_path):
        (tmp_path / "people.toml").write_text(
            '[columns.age]\nkind = "real"\nlower = 0\nupper = 100\n'
            '[columns.y]\nkind = "binary"\nlevels = ["no", "yes"]\n'
        )
        command = [
            sys.executable, "-m", "nadpvi", "release", "never-opened.csv", "--schema", "people.toml",
            "--outcome", "y", "--epsilon", "1", "--delta", "nan", "-o", "r.nc",
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr == "nadpvi: error: --delta must be in (0, 1) (got nan).\n"
        assert done.stdout == ""


class TestC6FewerStepsOrRunsThanHappened:
    """What is reported covers every noisy gradient drawn, and several runs can be added up."""

    @pytest.fixture
    def drawn(self, monkeypatch):
        """How many vectors of real noise each run drew."""
        counts = []
        original = nadpvi.mechanism.DiscreteGaussianNoise

        class Counting(original):
            def __init__(self, **arguments):
                super().__init__(**arguments)
                counts.append(0)

            def draw(self):
                counts[-1] += 1
                return super().draw()

        monkeypatch.setattr(nadpvi.mechanism, "DiscreteGaussianNoise", Counting)
        return counts

    @pytest.mark.parametrize(("num_steps", "rate"), [(1, 0.3), (200, 0.3), (7, 1.0)])
    def test_accounted_steps_are_the_noisy_gradients_drawn(self, drawn, num_steps, rate):
        made = na.release(
            MODEL,
            TABLE,
            schema=SCHEMA,
            privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
            config=na.DPVIConfig(num_steps=num_steps, sampling_rate=rate),
        )
        assert drawn == [num_steps]
        assert made.num_steps == made.guarantee.num_steps == num_steps
        spent = na.epsilon_spent(
            noise_multiplier=made.noise_multiplier, delta=1e-5, num_steps=num_steps, sampling_rate=rate
        )
        assert spent <= made.guarantee.epsilon <= 1.0
        assert f"{num_steps} noisy gradients" in made.guarantee.sentence()

    def test_one_epoch_at_rate_three_tenths_is_not_one_step(self):
        """Steps are what is asked for; there is no unit in which 3.33 could be taken for 1."""
        with pytest.raises(TypeError, match="epochs"):
            na.DPVIConfig(epochs=1, sampling_rate=0.3)
        with pytest.raises(na.ArgumentError, match="num_steps must be a whole number"):
            na.DPVIConfig(num_steps=1 / 0.3, sampling_rate=0.3)

    def test_burn_in_does_not_shrink_the_guarantee(self, tmp_path):
        made = na.release(
            MODEL,
            TABLE,
            schema=SCHEMA,
            privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
            config=na.DPVIConfig(num_steps=200, sampling_rate=0.3),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", na.InferenceWarning)  # of so few draws
            posterior = na.infer(made, burn_in=0.25, draws=50, chains=2, seed=1, engine="stanli")
        assert posterior.guarantee == made.guarantee
        assert posterior.guarantee.num_steps == 200
        saved = na.Posterior.load(posterior.save(tmp_path / "posterior.nc"))
        assert saved.guarantee == made.guarantee

    def test_three_tuning_runs_are_added_up_in_the_ledger(self, tmp_path):
        book = na.Ledger.create(
            tmp_path / "people.ledger", label="people", cap=na.PrivacyBudget(epsilon=2.0, delta=1e-5)
        )
        arguments = {"schema": SCHEMA, "privacy": na.PrivacyBudget(epsilon=1.0, delta=1e-5), "ledger": book}
        made = []
        for constant in (0.5, 1.0, 2.0):
            config = na.DPVIConfig(num_steps=30, sampling_rate=0.3, learning_rate_constant=constant)
            made.append(na.release(MODEL, TABLE, config=config, label=f"rate {constant}", **arguments))
        alone = [one.guarantee.epsilon for one in made]
        assert max(alone) < 0.9 * book.total()
        assert book.total() <= sum(alone)
        # All three as the one run that they are: 90 steps at the same rate and noise.
        together = na.epsilon_spent(
            noise_multiplier=made[0].noise_multiplier, delta=1e-5, num_steps=90, sampling_rate=0.3
        )
        assert book.total() == pytest.approx(together, rel=5e-3)
        for one in made:
            assert "this covers one run" in one.guarantee.sentence()
            assert "further runs on the same records add up" in one.guarantee.sentence()
        shown = subprocess.run(
            [sys.executable, "-m", "nadpvi", "ledger", "people.ledger", "--json"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(shown.stdout)["total"]["epsilon"] == pytest.approx(book.total())
        # A fourth would be too much: refused before the table is opened.
        with pytest.raises(na.PrivacyError, match="cap"):
            na.release(MODEL, tmp_path / "never-opened.csv", config=config, **arguments)
        assert len(book.entries()) == 3
