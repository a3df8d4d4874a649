"""Known faults of neighbouring tools, part D: leaks outside the noise."""

import json
import os
import random
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import nadpvi as na
from nadpvi.containers.storage import HEADER

BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
MODEL = na.models.LogisticRegression(outcome="y")
COLUMNS = {
    "age": {"kind": "real", "lower": 0, "upper": 100},
    "job": {"kind": "categorical", "levels": ["clerk", "nurse", "rare"]},
    "y": {"kind": "binary", "levels": ["no", "yes"]},
}
SCHEMA = na.Schema.from_dict({"columns": COLUMNS})
TOML = """
[columns.age]
kind = "real"
lower = 0
upper = 100
[columns.job]
kind = "categorical"
levels = ["clerk", "nurse", "rare"]
[columns.y]
kind = "binary"
levels = ["no", "yes"]
"""
ROWS = pd.DataFrame({"age": [31.0, 64.0, 87.0], "job": ["clerk", "nurse", "rare"], "y": ["no", "yes", "yes"]})
SEED = 918273645546372819
TRACE = ["iterates", "noisy_gradient", "final_phi"]  # the last follows from the others


def start(*arguments, cwd):
    return subprocess.Popen(
        [sys.executable, "-m", "nadpvi", *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def header_of(release):
    return json.loads(release.to_dataset().attrs[HEADER])


class Run:
    """A process that makes a release in a folder of its own, the same command whatever the table holds."""

    def __init__(self, folder, table, *extra):
        folder.mkdir()
        self.folder = folder
        table.to_csv(folder / "people.csv", index=False)
        (folder / "people.toml").write_text(TOML)
        na.Ledger.create(folder / "people.ledger", label="people")
        self.process = start(
            "release", "people.csv", "--schema", "people.toml", "--outcome", "y", "--epsilon", "1",
            "--delta", "1e-5", "--steps", "300", "--sampling-rate", "1", "--ledger", "people.ledger",
            "-o", "release.nc", *extra, cwd=folder,
        )  # fmt: skip

    def finish(self):
        self.stdout, self.stderr = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, self.stderr
        self.release = na.Release.load(self.folder / "release.nc")
        self.ledger = (self.folder / "people.ledger").read_text()
        return self


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Releases of three, two and one rows, two of them started at once, and a simulation from a seed."""
    root = tmp_path_factory.mktemp("runs")
    waves = (
        {"three": ROWS, "three again": ROWS},
        {"two": ROWS.iloc[:2], "one": ROWS.iloc[:1], "seeded": ROWS},
    )
    made = {}
    for wave in waves:
        started = {
            name: Run(root / name, table, *(("--insecure-seed", SEED) if name == "seeded" else ()))
            for name, table in wave.items()
        }
        made |= {name: run.finish() for name, run in started.items()}
    return made


class TestD1SizeTreatedAsPublic:
    """The number of rows is in nothing that leaves: not in a number, a log line, or a file's size."""

    PAIRS = (("three", "two"), ("two", "one"), ("three", "three again"))

    @pytest.mark.parametrize(("first", "second"), PAIRS)
    def test_streams_sizes_and_names_are_those_of_the_neighbour(self, runs, first, second):
        one, other = runs[first], runs[second]
        assert one.stdout == other.stdout
        assert one.stderr == other.stderr
        assert sorted(os.listdir(one.folder)) == sorted(os.listdir(other.folder))
        for name in os.listdir(one.folder):
            if name != "people.csv":
                assert os.path.getsize(one.folder / name) == os.path.getsize(other.folder / name), name

    @pytest.mark.parametrize(("first", "second"), PAIRS)
    def test_every_saved_number_but_the_trace_is_that_of_the_neighbour(self, runs, first, second):
        one, other = runs[first].release.to_dataset(), runs[second].release.to_dataset()
        assert one.attrs == other.attrs
        xr_one, xr_other = one.drop_vars(TRACE), other.drop_vars(TRACE)
        assert xr_one.identical(xr_other)
        assert not one.identical(other)

    @pytest.mark.parametrize(("first", "second"), PAIRS[:2])
    def test_the_ledger_differs_by_time_and_id_alone(self, runs, first, second):
        def stripped(run):
            events = [json.loads(line) for line in run.ledger.splitlines()]
            assert len(events) == 3  # opened, reserved, committed
            volatile = ("id", "time", "check", "ledger", "previous", "sha256", "hash", "lock")
            return [{key: value for key, value in event.items() if key not in volatile} for event in events]

        assert stripped(runs[first]) == stripped(runs[second])

    @pytest.mark.parametrize(("first", "second"), PAIRS[:2])
    def test_the_traces_differ_by_no_more_than_noise(self, runs, first, second):
        """False-alarm rate 2e-7 each: 300 steps of 10 coordinates, signal within one clip norm."""
        one, other = runs[first].release, runs[second].release
        z = (one.noisy_gradient - other.noisy_gradient) / (np.sqrt(2) * one.noise_std)
        assert (z != 0).all()
        quantiles = stats.chi2.ppf([1e-7, 1 - 1e-7], z.size)
        assert quantiles[0] < (z**2).sum() < quantiles[1]
        assert abs(z.mean(axis=0) * np.sqrt(len(z))).max() < 6.5
        # Half the noise in one of them would show.
        assert (z**2).sum() * (1 + 0.25) / 2 < quantiles[0]

    def test_the_neighbouring_relation_is_stated(self, runs):
        run = runs["three"]
        assert run.release.guarantee.neighbouring_relation == "add_or_remove_one"
        assert run.release.guarantee.unit == "one record"
        assert run.stdout.startswith("Adding or removing one record")
        assert not any("number of records" in item for item in run.release.guarantee.assumed_public)

    def test_a_public_number_of_records_comes_from_the_user_and_is_said(self, tmp_path):
        with pytest.raises(na.ArgumentError, match="needs num_records"):
            na.DPVIConfig(prior_term="per_record")
        config = na.DPVIConfig(num_steps=5, prior_term="per_record", num_records=1000)
        arguments = {"schema": SCHEMA, "privacy": BUDGET, "config": config}
        made = [na.release(MODEL, ROWS.head(n), **arguments) for n in (3, 2, 1)]
        for release in made:
            assert any("number of records" in item for item in release.guarantee.assumed_public)
            assert "number of records" in release.guarantee.sentence()
            assert header_of(release) == header_of(made[0])
            path = release.save(tmp_path / "release.nc", overwrite=True)
            assert path.stat().st_size == (tmp_path / "release.nc").stat().st_size
            # Whoever declares another number than the table's gets neither a warning nor a refusal from it.
            assert release.num_steps == 5

    def test_the_step_size_does_not_follow_the_table(self):
        arguments = {"schema": SCHEMA, "privacy": BUDGET, "config": na.DPVIConfig(num_steps=5)}
        few, many = (na.release(MODEL, pd.concat([ROWS] * n), **arguments) for n in (1, 50))
        for name in ("learning_rate", "preconditioner", "noise_std", "model_prior_mean", "model_prior_sd"):
            np.testing.assert_array_equal(getattr(few, name), getattr(many, name))
        assert header_of(few) == header_of(many)


class TestD2PreprocessingLearnsFromPrivateRows:
    """Scaling and level lists come from the schema; a rare row changes no name and no dimension."""

    def test_a_rare_level_changes_no_name_no_shape_no_size(self, tmp_path):
        others = ROWS.iloc[[0, 1] * 10]
        arguments = {"schema": SCHEMA, "privacy": BUDGET, "config": na.DPVIConfig(num_steps=5)}
        sizes, releases = [], []
        for name, table in (("with", pd.concat([others, ROWS.iloc[2:]])), ("without", others)):
            table.to_csv(tmp_path / f"{name}.csv", index=False)
            releases.append(na.release(MODEL, tmp_path / f"{name}.csv", **arguments))
            sizes.append(releases[-1].save(tmp_path / f"{name}.nc").stat().st_size)
        assert releases[0].phi_labels == releases[1].phi_labels
        assert "mu[job[rare]]" in releases[0].phi_labels
        assert releases[0].phi.shape == releases[1].phi.shape
        assert header_of(releases[0]) == header_of(releases[1])
        assert sizes[0] == sizes[1]

    def test_an_outlier_moves_no_other_row(self):
        """Bounds are the schema's: with rows that would set a new minimum, maximum, mean or sd."""
        settings = {"num_steps": 2, "sampling_rate": 1.0, "learning_rate": 1e-9, "clip_norm": 1e3}
        arguments = {
            "schema": SCHEMA,
            "privacy": na.NonPrivate(),
            "config": na.DPVIConfig(**settings),
            "insecure_seed": 1,
        }
        alone = na.release(MODEL, ROWS.iloc[:2], **arguments).noisy_gradient
        outlier, clamped = ROWS.iloc[[2]].assign(age=1e9), ROWS.iloc[[2]].assign(age=100.0)
        far = na.release(MODEL, pd.concat([ROWS.iloc[:2], outlier]), **arguments).noisy_gradient
        near = na.release(MODEL, pd.concat([ROWS.iloc[:2], clamped]), **arguments).noisy_gradient
        np.testing.assert_array_equal(far, near)
        # Without noise gradients add up: what the outlier adds is its own row's, and no other row moved.
        prior = na.release(MODEL, ROWS.iloc[:1], **arguments).noisy_gradient
        second = na.release(MODEL, ROWS.iloc[[1]], **arguments).noisy_gradient
        third = na.release(MODEL, clamped, **arguments).noisy_gradient
        both = na.release(MODEL, pd.concat([ROWS.iloc[:1], clamped]), **arguments).noisy_gradient
        public = prior + third - both
        np.testing.assert_allclose(far, prior + second + third - 2 * public, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(alone, prior + second - public, rtol=1e-9, atol=1e-9)

    @pytest.mark.parametrize(
        "expression",
        ["scale(age)", "center(age)", "bs(age, df=4)", "poly(age, 2)", "y ~ scale(age)", "C(job)"],
    )
    def test_transforms_that_learn_are_no_columns(self, expression, tmp_path):
        model = na.models.LogisticRegression(outcome="y", predictors=[expression])
        with pytest.raises(na.ArgumentError, match="is not in the schema"):
            na.release(model, tmp_path / "never-opened.csv", schema=SCHEMA, privacy=BUDGET)

    @pytest.mark.parametrize(
        ("column", "missing"),
        [
            ({"kind": "real"}, "lower"),
            ({"kind": "real", "lower": 0}, "upper"),
            ({"kind": "categorical"}, "levels"),
            ({"kind": "binary"}, "levels"),
        ],
    )
    def test_nothing_is_read_off_the_table_that_was_not_declared(self, column, missing):
        with pytest.raises(na.SchemaError, match=missing):
            na.Schema.from_dict({"columns": {"x": column}})
        with pytest.raises(na.SchemaError):
            na.Schema.from_dict({"columns": {"x": {**column, "transform": "scale"}}})

    @pytest.mark.parametrize("policy", ["refuse", "drop", "clerk"])
    def test_a_level_that_was_not_declared_follows_the_declared_policy(self, policy):
        columns = {**COLUMNS, "job": {**COLUMNS["job"], "levels": ["clerk", "nurse"], "unknown": policy}}
        schema = na.Schema.from_dict({"columns": columns})
        arguments = {"schema": schema, "privacy": BUDGET, "config": na.DPVIConfig(num_steps=5)}
        if policy == "refuse":
            with pytest.raises(na.DataError, match='"job"') as refused:
                na.release(MODEL, ROWS, **arguments)
            assert "rare" not in str(refused.value)
            return
        with_rare, without = (na.release(MODEL, table, **arguments) for table in (ROWS, ROWS.iloc[:2]))
        assert with_rare.phi_labels == without.phi_labels
        assert header_of(with_rare) == header_of(without)


def seeded(table):
    """Return in this process what the simulation on the command line returned."""
    config = na.DPVIConfig(num_steps=300, sampling_rate=1.0)
    return na.release(MODEL, table, schema=SCHEMA, privacy=BUDGET, config=config, insecure_seed=SEED)


class TestD4NoiseThatCanBeReproduced:
    """Real noise comes from the operating system; a seed makes a simulation and is stored nowhere."""

    def test_two_runs_started_at_once_differ(self, runs):
        one, other = runs["three"].release, runs["three again"].release
        assert one.is_private
        assert other.is_private
        assert (one.noisy_gradient != other.noisy_gradient).all()

    def test_global_seeds_have_no_say(self, monkeypatch):
        monkeypatch.setenv("PYTHONHASHSEED", "0")
        made = []
        for _ in range(2):
            random.seed(1)
            np.random.seed(1)
            made.append(
                na.release(
                    MODEL, ROWS, schema=SCHEMA, privacy=BUDGET, config=na.DPVIConfig(num_steps=20)
                ).noisy_gradient
            )
        assert (made[0] != made[1]).all()

    def test_a_seeded_run_repeats_itself_and_is_labelled_everywhere(self, runs, tmp_path):
        run = runs["seeded"]
        again = seeded(ROWS)
        np.testing.assert_array_equal(run.release.noisy_gradient, again.noisy_gradient)
        assert not run.release.is_private
        assert run.stdout.startswith("NOT PRIVATE")
        assert "NOT PRIVATE" in repr(run.release)
        assert header_of(run.release)["guarantee"]["is_private"] is False
        entry = na.Ledger.open(run.folder / "people.ledger").entries()[0]
        assert not entry.is_counted
        shown = [start("summary", "release.nc", *json_, cwd=run.folder) for json_ in ((), ("--json",))]
        plain, as_json = (process.communicate(timeout=300)[0] for process in shown)
        assert plain.startswith("NOT PRIVATE")
        assert json.loads(as_json)["guarantee"]["is_private"] is False
        with pytest.warns(na.InferenceWarning):
            posterior = na.infer(again, draws=20, chains=2, warmup=50, seed=1, engine="stanli")
        saved = na.Posterior.load(posterior.save(tmp_path / "posterior.nc"))
        for stamped in (posterior, saved):
            assert stamped.guarantee.is_private is False
            assert stamped.guarantee.sentence().startswith("NOT PRIVATE")

    def test_the_seed_is_stored_nowhere(self, runs):
        run = runs["seeded"]
        needles = [str(SEED).encode(), hex(SEED)[2:].encode()]
        needles += [SEED.to_bytes(8, order) for order in ("little", "big")]
        found = [run.stdout.encode(), run.stderr.encode()]
        found += [path.read_bytes() for path in run.folder.iterdir()]
        for needle in needles:
            assert not any(needle in content for content in found)

    def test_the_seed_is_no_word_of_the_header(self, runs):
        def keys(content):
            if isinstance(content, dict):
                return set(content) | {key for value in content.values() for key in keys(value)}
            return set()

        for name in ("three", "seeded"):
            assert not any("seed" in key for key in keys(header_of(runs[name].release)))

    def test_what_a_seed_would_give_away_is_why_it_is_not_private(self, runs):
        """Equal seeds on neighbours cancel the noise: the difference is one record's bare contribution."""
        one, other = runs["seeded"].release, seeded(ROWS.iloc[:2])
        first = (one.noisy_gradient[0] - other.noisy_gradient[0]) / one.noise_std
        assert np.linalg.norm(first) < 2.0 / one.noise_multiplier
        real = (
            runs["three"].release.noisy_gradient[0] - runs["two"].release.noisy_gradient[0]
        ) / one.noise_std
        assert np.linalg.norm(real) > 0.2  # ten coordinates of noise: smaller with probability below 1e-8
        for release in (one, other):
            assert "seed" in release.guarantee.reason_not_private

    def test_the_way_noise_is_drawn_is_on_record(self, runs):
        assert "discrete Gaussian" in runs["three"].release.guarantee.mechanism
        assert "OpenDP" in runs["three"].release.guarantee.mechanism
        assert "floating-point" in runs["seeded"].release.guarantee.mechanism


FORKS = """
import json, os, sys
import numpy as np
import nadpvi as na

schema = na.Schema.from_dict({"columns": {
    "age": {"kind": "real", "lower": 0, "upper": 100}, "y": {"kind": "binary", "levels": ["no", "yes"]}}})
table = {"age": [10.0, 20.0, 90.0], "y": ["no", "no", "yes"]}

def make(seed):
    made = na.release(
        na.models.LogisticRegression(outcome="y"), table, schema=schema, insecure_seed=seed,
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=3, sampling_rate=0.5))
    return made.noisy_gradient.ravel().tolist()

def entered(_):
    # Who entered which step of an unseeded run, seen without noise: each row owns a feature.
    columns = {f"c{i}": {"kind": "real", "lower": 0, "upper": 1} for i in range(8)}
    tagged = {name: row.tolist() for name, row in zip(columns, np.eye(8))}
    outcome = {"y": {"kind": "binary", "levels": ["no", "yes"]}}
    made = na.release(
        na.models.LogisticRegression(outcome="y", intercept=False, prior_sd=1e6), tagged | {"y": ["no"] * 8},
        schema=na.Schema.from_dict({"columns": columns | outcome}), privacy=na.NonPrivate(),
        config=na.DPVIConfig(
            num_steps=20, sampling_rate=0.5, learning_rate=1e-9, initial_u=-25.0, clip_norm=9.0))
    return (made.noisy_gradient[:, :8] > 0.25).astype(int).ravel().tolist()

def forked(seeds, make=make):
    pipes = []
    for seed in seeds:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, json.dumps(make(seed)).encode())
            os._exit(0)
        os.close(writer)
        pipes.append((child, reader))
    answers = []
    for child, reader in pipes:
        with os.fdopen(reader) as file:
            answers.append(json.loads(file.read()))
        assert os.waitpid(child, 0)[1] == 0
    return answers

parent = make(None)  # every generator there is exists before the forks
children = [int(seed.generate_state(1, np.uint64)[0]) for seed in np.random.SeedSequence(7).spawn(4)]
print(json.dumps({
    "unseeded": [parent, *forked([None] * 4)],
    "entered": [entered(None), *forked([None] * 4, make=entered)],
    "four": forked(children),
    "two": [*forked(children[:2]), *forked(children[2:])],
    "none": [make(seed) for seed in children],
}))
"""


@pytest.fixture(scope="module")
def traces():
    """Traces of a parent and of the children it forked, unseeded and by spawned seeds."""
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return {name: np.array(values) for name, values in json.loads(done.stdout).items()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
class TestD5ForkedWorkersDrawIdenticalNoise:
    """A forked child has noise of its own, and a seeded child's does not depend on who else there is."""

    def test_unseeded_children_and_their_parent_all_differ(self, traces):
        unseeded = traces["unseeded"]
        for i in range(5):
            for j in range(i):
                assert (unseeded[i] != unseeded[j]).all()

    def test_unseeded_children_and_their_parent_sample_anew(self, traces):
        """160 fair draws each; two alike have probability 1e-48."""
        entered = traces["entered"]
        assert 0.3 < entered.mean() < 0.7
        assert len({tuple(row) for row in entered}) == 5

    def test_spawned_seeds_give_distinct_streams(self, traces):
        four = traces["four"]
        for i in range(4):
            for j in range(i):
                assert (four[i] != four[j]).all()

    def test_the_number_of_workers_does_not_matter(self, traces):
        np.testing.assert_array_equal(traces["two"], traces["four"])
        np.testing.assert_array_equal(traces["none"], traces["four"])


class TestD7ConfigStringRunsCode:
    """There is no formula language: what is not a column's name is refused, and nothing runs."""

    @staticmethod
    def hostile(place):
        return [
            f"{{open('{place}', 'w').write('x')}}",
            f"y ~ {{open('{place}', 'w').write('x')}}",
            f"I(open('{place}', 'w').write('x'))",
            "{__import__('os').getpid()}",
            f"__import__('os').system('touch {place}')",
            f"$(touch {place})",
            f"`touch {place}`",
            "{0.__class__}",
            "%(age)s",
        ]

    def test_as_names_through_the_library(self, tmp_path):
        place = tmp_path / "pwned"
        for text in self.hostile(place):
            for model in (
                na.models.LogisticRegression(outcome="y", predictors=["age", text]),
                na.models.LogisticRegression(outcome=text),
            ):
                with pytest.raises(na.ArgumentError, match="is not in the schema"):
                    na.release(model, tmp_path / "never-opened.csv", schema=SCHEMA, privacy=BUDGET)
        assert not place.exists()

    def test_as_names_through_the_command_line(self, tmp_path):
        place = tmp_path / "pwned"
        ROWS.to_csv(tmp_path / "people.csv", index=False)
        (tmp_path / "people.toml").write_text(TOML)
        base = ["people.csv", "--schema", "people.toml", "--epsilon", "1", "--delta", "1e-5", "-o", "p.nc"]
        text = self.hostile(place)[0]
        attempts = (
            ["release", *base, "--outcome", "y", "--predictor", text],
            ["fit", *base, "--outcome", text, "--release", "r.nc"],
            ["fit", *base, "--outcome", "y", "--release", "r.nc", "--formula", f"y ~ {text}"],
        )
        errors = []
        for pair in (attempts[:2], attempts[2:]):
            started = [start(*arguments, cwd=tmp_path) for arguments in pair]
            for process in started:
                out, err = process.communicate(timeout=300)
                assert process.returncode == 2, err
                assert out == ""
                errors.append(err)
        assert "is not in the schema" in errors[0]
        assert "is not in the schema" in errors[1]
        assert "names columns and calls a few functions" in errors[2]
        assert sorted(os.listdir(tmp_path)) == ["people.csv", "people.toml"]

    def test_in_a_schema_file_and_in_a_table(self, tmp_path):
        """There they are texts like any other: a column may be called so, and nothing happens."""
        place = tmp_path / "pwned"
        for text in self.hostile(place):
            columns = {text: {"kind": "categorical", "levels": [text, "b"]}, "y": COLUMNS["y"]}
            toml = "".join(
                f"[columns.{json.dumps(name)}]\n"
                + "".join(f"{key} = {json.dumps(value)}\n" for key, value in column.items())
                for name, column in columns.items()
            )
            (tmp_path / "people.toml").write_text(toml)
            schema = na.Schema.from_toml(tmp_path / "people.toml")
            pd.DataFrame({text: [text, "b"], "y": ["no", "yes"]}).to_csv(tmp_path / "p.csv", index=False)
            made = na.release(
                MODEL,
                tmp_path / "p.csv",
                schema=schema,
                privacy=na.NonPrivate(),
                config=na.DPVIConfig(num_steps=1, learning_rate=1e-3),
            )
            assert f"mu[{text}[b]]" in made.phi_labels
            path = made.save(tmp_path / "release.nc", overwrite=True)
            assert na.Release.load(path).phi_labels == made.phi_labels
            # As a cell that no level lists, it is refused and not shown.
            with pytest.raises(na.DataError) as refused:
                na.release(MODEL, ROWS.assign(job=text), schema=SCHEMA, privacy=BUDGET)
            assert text not in str(refused.value)
        assert not place.exists()

    def test_a_setting_is_no_code(self, tmp_path):
        place = tmp_path / "pwned"
        for text in self.hostile(place):
            with pytest.raises(na.ArgumentError):
                na.DPVIConfig.from_dict({"num_steps": text})
            with pytest.raises(na.ArgumentError):
                na.DPVIConfig.from_dict({text: 1})
            with pytest.raises(na.SchemaError):
                na.Schema.from_dict({"columns": {"x": {"kind": "real", "lower": text, "upper": 1}}})
        assert not place.exists()

    def test_columns_called_like_helpers_are_columns(self):
        names = ["C", "center", "scale", "np", "Intercept2", "import", "y ~ x"]
        schema = na.Schema.from_dict(
            {
                "columns": {name: {"kind": "real", "lower": 0, "upper": 1} for name in names}
                | {"y": COLUMNS["y"]}
            }
        )
        table = pd.DataFrame({name: [0.0, 1.0] for name in names} | {"y": ["no", "yes"]})
        made = na.release(
            MODEL, table, schema=schema, privacy=BUDGET, config=na.DPVIConfig(num_steps=2, sampling_rate=1)
        )
        assert made.phi_labels[1 : len(names) + 1] == tuple(f"mu[{name}]" for name in names)


class TestD9OnePersonOwnsManyRows:
    """A guarantee says whose row it protects; with an id column it protects persons, or refuses."""

    @staticmethod
    def crowd():
        """100 rows: ten identical ones of one person, and 90 people whose rows say nothing (x = 0)."""
        return pd.DataFrame(
            {
                "pid": ["p"] * 10 + [f"q{i}" for i in range(90)],
                "age": [100.0] * 10 + [0.0] * 90,
                "y": "no",
            }
        )

    @staticmethod
    def schema(**person):
        columns = {name: COLUMNS[name] for name in ("age", "y")}
        return na.Schema.from_dict({"columns": columns, **({"person": person} if person else {})})

    def contributions(self, schema, *, rate, num_steps):
        """Return by how many rows the person moves each step, without noise."""
        made = na.release(
            na.models.LogisticRegression(outcome="y", intercept=False, prior_sd=1e6),
            self.crowd(),
            schema=schema,
            privacy=na.NonPrivate(),
            config=na.DPVIConfig(
                num_steps=num_steps, sampling_rate=rate, learning_rate=1e-9, initial_u=-25.0, clip_norm=1e3
            ),
        )
        return made.noisy_gradient[:, 0] / 0.5

    def test_without_an_id_column_one_row_is_what_is_said(self):
        made = na.release(
            MODEL,
            self.crowd(),
            schema=self.schema(),
            privacy=BUDGET,
            config=na.DPVIConfig(num_steps=3, sampling_rate=1),
        )
        assert (made.guarantee.unit, made.guarantee.records_per_unit) == ("one record", 1)
        assert made.guarantee.sentence().startswith("Adding or removing one record ")
        assert "protected only record by record" in made.guarantee.sentence()
        np.testing.assert_allclose(self.contributions(self.schema(), rate=1, num_steps=2), 10.0, atol=1e-6)

    @pytest.mark.parametrize("max_rows", [1, 3])
    def test_an_id_column_bounds_the_rows_and_accounts_for_them(self, max_rows):
        schema = self.schema(column="pid", max_rows=max_rows)
        np.testing.assert_allclose(self.contributions(schema, rate=1, num_steps=2), max_rows, atol=1e-6)
        made = na.release(
            MODEL,
            self.crowd(),
            schema=schema,
            privacy=BUDGET,
            config=na.DPVIConfig(num_steps=3, sampling_rate=1),
        )
        assert (made.guarantee.unit, made.guarantee.records_per_unit) == ("one person", max_rows)
        assert made.guarantee.sentence().startswith("Adding or removing one person ")
        # Up to max_rows clipped gradients move together: that many times the noise of a single row.
        spent = na.epsilon_spent(
            noise_multiplier=made.noise_multiplier / max_rows, delta=1e-5, num_steps=3, sampling_rate=1
        )
        assert spent == pytest.approx(made.guarantee.epsilon, rel=1e-3)
        assert 0.99 < spent <= 1.0

    def test_a_persons_rows_enter_a_step_together_or_not_at_all(self):
        """Independent entries of the three rows would show as ones and twos in nearly every step."""
        found = self.contributions(self.schema(column="pid", max_rows=3), rate=0.5, num_steps=60)
        assert set(np.round(found, 6)) == {0.0, 3.0}

    def test_an_id_column_that_is_absent_or_in_use_is_refused(self, tmp_path):
        with pytest.raises(na.DataError, match="pid"):
            na.release(
                MODEL,
                self.crowd().drop(columns="pid"),
                schema=self.schema(column="pid", max_rows=1),
                privacy=BUDGET,
            )
        with pytest.raises(na.SchemaError, match="person column"):
            self.schema(column="age", max_rows=1)
        model = na.models.LogisticRegression(outcome="y", predictors=["pid"])
        with pytest.raises(na.ArgumentError, match="pid"):
            na.release(
                model,
                tmp_path / "never-opened.csv",
                schema=self.schema(column="pid", max_rows=1),
                privacy=BUDGET,
            )

    def test_ids_are_in_nothing_that_leaves(self, tmp_path):
        table = self.crowd().assign(pid=lambda frame: "ID-plum-93157-" + frame["pid"])
        made = na.release(
            MODEL,
            table,
            schema=self.schema(column="pid", max_rows=2),
            privacy=BUDGET,
            config=na.DPVIConfig(num_steps=3, sampling_rate=1),
        )
        assert b"ID-plum" not in made.save(tmp_path / "release.nc").read_bytes()
        assert "ID-plum" not in repr(made)
