"""Experiments: their files, their tasks, and that a task's numbers are its own."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import nadpvi as na
from nadpvi.cli.app import app
from nadpvi.coverage import coverage_test
from nadpvi.errors import ArgumentError, FileError
from nadpvi.experiments.api import run_experiment, write_result
from nadpvi.experiments.blocks import Block
from nadpvi.experiments.configuration import load_experiment
from nadpvi.experiments.finding import experiment_names, find_experiment
from nadpvi.experiments.methods import LABELS, METHODS
from nadpvi.experiments.tasks import Task
from nadpvi.experiments.work import run_block
from nadpvi.gradient_model import join_models, make_gradient_model
from nadpvi.inference.many import exact_theta

TINY = """
title = "Tiny"
seed = 5
draws = 100
[source]
kind = "bernoulli-beta"
num_records = 300
[settings.plain]
num_steps = 120
clip_norm = 2.0
[[arms]]
settings = "plain"
epsilon = [0.5, 2.0]
methods = ["exact", "last_iterate", "non_private"]
replicates = 24
block = 8
[small]
replicates = 12
epsilon = [0.5]
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def test_every_experiment_that_comes_with_nadpvi_is_sound():
    assert {"beta-bernoulli", "linear-regression", "adult", "semi-synthetic-adult"} <= set(experiment_names())
    for name in experiment_names():
        for is_small in (False, True):
            experiment = load_experiment(name, is_small=is_small)
            names = [task.name for task in experiment.tasks()]
            assert len(set(names)) == len(names) > 0
            assert experiment.expected


@pytest.mark.smoke
def test_the_command_finds_the_experiments_wherever_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["coverage"])
    assert {"beta-bernoulli", "adult"} <= set(result.stdout.splitlines())


def test_every_method_has_a_label_for_tables_and_figures():
    assert set(LABELS) == set(METHODS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seed = 5", "sed = 5"), "no entry 'sed'"),
        (('kind = "bernoulli-beta"', 'kind = "bernoulli"'), "kind among"),
        (("num_records = 300", "records = 300"), "has no 'records'"),
        (('settings = "plain"', 'settings = "plan"'), "'plan' are not defined"),
        (("num_steps = 120", "steps = 120"), "no entry 'steps'"),
        (("num_steps = 120", "num_steps = 0"), "num_steps"),
        (('"last_iterate"', '"last"'), "methods must be among"),
        (("epsilon = [0.5, 2.0]", "epsilon = [0.0]"), "epsilon"),
        (("replicates = 24", "replicates = 0"), "replicates"),
        (("replicates = 24", ""), "needs 'replicates'"),
        (('title = "Tiny"', ""), "needs 'title'"),
        (("epsilon = [0.5, 2.0]", "epsilon = 0.5"), "epsilon must be a list of numbers"),
        (("epsilon = [0.5, 2.0]", "epsilon = []"), "epsilon must hold at least one"),
        (("[[arms]]", "[arms]"), r"arms must be a list of tables, each under \[\[arms\]\]"),
        (('settings = "plain"', 'settings = ["plain"]'), "settings must be the name"),
        (
            ('methods = ["exact", "last_iterate", "non_private"]', 'methods = "exact"'),
            "methods must be a list",
        ),
        (('"last_iterate"', '"exact"'), "methods must each be named once"),
        (("block = 8", 'block = 8\ninfer = "x"'), "infer must be a table"),
        (("block = 8", "block = 8\ninfer = { seed = 1 }"), "infer has no entry 'seed'"),
        (("block = 8", "block = 8\nsource = 3"), "source must be a table"),
        (("draws = 100", "draws = 10"), "draws must be at least 50"),
        (("num_records = 300", "num_records = -3"), "num_records"),
    ],
)
def test_a_mistake_in_a_file_is_named(tiny, change, message):
    tiny.write_text(TINY.replace(*change))
    with pytest.raises(ArgumentError, match=message) as caught:
        load_experiment(str(tiny))
    assert str(caught.value).startswith("tiny.toml: ")
    assert "\n" not in str(caught.value)


def test_an_unknown_experiment_is_named_with_those_that_are_known(tiny):
    with pytest.raises(FileError, match=r"no experiment is called 'betta'.*beta-bernoulli"):
        find_experiment("betta")
    with pytest.raises(FileError, match="no such experiment file"):
        find_experiment("betta.toml")
    tiny.write_text("title = ")
    with pytest.raises(FileError, match="cannot be read as TOML"):
        load_experiment(str(tiny))


def test_the_small_version_replaces_what_it_names(tiny):
    small, whole = load_experiment(str(tiny), is_small=True), load_experiment(str(tiny))
    assert [arm.epsilon for arm in whole.arms] == [0.5, 2.0]
    assert [arm.replicates for arm in small.arms] == [12]
    assert small.arms[0].draws == whole.arms[0].draws == 100


def without_times(arrays):
    return {name: value for name, value in arrays.items() if not name.endswith("__seconds")}


def test_a_replicate_depends_on_its_number_alone(tiny):
    experiment = load_experiment(str(tiny))
    task = experiment.tasks()[1]
    assert (task.settings["first"], task.settings["count"]) == (8, 8)
    assert Block({**task.settings, "infer": {"burn_in": 0.5}}, seed=5).summed_releases[0].sums.num_steps == 60
    first, again = without_times(run_block(task)), without_times(run_block(task))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    # Alone or with others, and under another budget, a replicate has the same table and truth.
    alone = Task(name="alone", settings={**task.settings, "first": 10, "count": 1, "epsilon": 2.0}, seed=(5,))
    one = run_block(alone)
    np.testing.assert_array_equal(one["exact__truth"], first["exact__truth"][2:3])
    np.testing.assert_array_equal(one["non_private__mean"], first["non_private__mean"][2:3])
    seeds = na.replicate_seeds(5, num_replicates=16)
    assert Block(task.settings, seed=5).seeds == [int(seed) for seed in seeds[8:]]


def test_exact_draws_of_many_are_those_of_each(tiny):
    task = load_experiment(str(tiny)).tasks()[0]
    block = Block({**task.settings, "count": 3}, seed=5)
    together = exact_theta(block.releases, draws=20_000, seed=1)
    from_sums = exact_theta(block.summed_releases, draws=20_000, seed=1)
    np.testing.assert_allclose(together, from_sums, rtol=1e-9)
    for number, release in enumerate(block.releases):
        alone = na.infer(release, method="exact", draws=20_000, chains=1, seed=2).theta()[0]
        # Quantiles: tails are heavy where the window is short, and the sd of draws then varies by itself.
        levels = np.linspace(0.1, 0.9, 9)
        ours, theirs = (np.quantile(draws, levels, axis=0) for draws in (together[number], alone))
        width = theirs[-1] - theirs[0]
        assert (abs(ours - theirs) < 0.03 * width).all()


def test_releases_that_do_not_belong_together_are_refused(tiny):
    task = load_experiment(str(tiny)).tasks()[0]
    release = Block({**task.settings, "count": 2}, seed=5).releases[0]
    short = make_gradient_model(release, burn_in=0.5)
    with pytest.raises(ArgumentError, match="window length"):
        join_models([make_gradient_model(release), short])
    with pytest.raises(ArgumentError, match="one or more"):
        exact_theta([], draws=10, seed=1)


def test_the_results_files_hold_what_the_table_says(tiny, tmp_path):
    experiment = load_experiment(str(tiny))
    result = run_experiment(experiment, folder=tmp_path / "tasks")
    again = run_experiment(experiment, folder=tmp_path / "tasks")
    assert again.report.num_reused == len(experiment.tasks())
    pd.testing.assert_frame_equal(result.table, again.table)
    files = {path.suffix: path for path in write_result(result, tmp_path / "out")}
    kept = json.loads(files[".json"].read_text())
    table = pd.read_csv(files[".csv"])
    assert len(kept["rows"]) == len(table) == len(kept["curves"]) == 6
    assert kept["experiment"]["seed"] == 5
    assert kept["experiment"]["arms"][0]["settings"] == {"num_steps": 120, "clip_norm": 2.0}
    np.testing.assert_allclose(table["rmse"], [row["rmse"] for row in kept["rows"]], rtol=1e-4)
    assert files[".svg"].read_bytes().startswith(b"<?xml")
    assert "nadpvi coverage " in files[".md"].read_text()
    # The naive rival is far outside the null band even here, the noise-aware posterior is not.
    rows = table[table["settings"] == "plain, epsilon 0.5, 24 tables"].set_index("method")
    assert rows.loc["last_iterate", "rmse"] > rows.loc["last_iterate", "null_95"]
    assert rows.loc["exact", "rmse"] < rows.loc["exact", "null_95"]
    # The ratios are of medians on the same tables.
    ratio = rows.loc["exact", "sd_over_non_private"]
    assert ratio == pytest.approx(
        rows.loc["exact", "median_sd"] / rows.loc["non_private", "median_sd"], rel=0.2
    )


def test_the_command_runs_writes_and_goes_on(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call = ["coverage", "tiny.toml", "--small", "--output", "out", "--json"]
    first = CliRunner().invoke(app, call)
    assert first.exit_code == 0, first.output
    (folder,) = (tmp_path / "nadpvi-coverage").iterdir()
    assert folder.name.startswith("tiny-")
    assert folder.name.endswith("-small")
    # Beside the whole version's results and not over them, with the command that makes it again.
    assert "nadpvi coverage tiny.toml --small" in (tmp_path / "out" / "tiny-small.md").read_text()
    rows = json.loads(first.stdout)["rows"]
    assert [row["method"] for row in rows] == ["exact", "last_iterate", "non_private"]
    assert rows == json.loads(CliRunner().invoke(app, call).stdout)["rows"]
    table = CliRunner().invoke(app, call[:3])
    assert "last_iterate" in table.stdout


def test_the_command_names_the_experiments_when_none_is_given():
    result = CliRunner().invoke(app, ["coverage"])
    assert result.exit_code == 0
    assert "beta-bernoulli" in result.stdout.splitlines()


def test_a_file_is_no_folder_for_results(tiny, tmp_path):
    result = CliRunner().invoke(app, ["coverage", str(tiny), "--output", str(tiny)])
    assert isinstance(result.exception, FileError)


def test_a_window_of_one_s_own_serves_every_method(tiny, tmp_path):
    tiny.write_text(TINY.replace("block = 8", "block = 8\ninfer = { burn_in = 0.5 }"))
    result = run_experiment(load_experiment(str(tiny), is_small=True), folder=tmp_path / "tasks")
    assert result.report.failures == ()


def test_failed_tasks_are_told_and_the_rest_is_written(tiny, tmp_path, monkeypatch):
    # Diverges at once in one of the two arms.
    text = TINY.replace(
        "[[arms]]", "[settings.wild]\nnum_steps = 120\nclip_norm = 2.0\nlearning_rate = 1e9\n[[arms]]", 1
    )
    tiny.write_text(
        text + '[[arms]]\nsettings = "wild"\nepsilon = [0.5]\nmethods = ["exact"]\nreplicates = 8\n'
    )
    shutil.copy(tiny, tmp_path / "wild.toml")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["coverage", "wild.toml", "--json"])
    kept = json.loads(result.stdout)
    assert result.exit_code == 1
    assert len(kept["failures"]) == 1
    assert "must diverge" in kept["failures"][0]
    assert len(kept["rows"]) == 6


def test_a_rival_s_reference_points_do_not_know_what_it_is_not_given(tiny):
    """Noisy statistics are calibrated; around an iterate that knows more they would not seem so."""
    text = TINY.replace('"exact", "last_iterate", "non_private"', '"statistics_gaussian", "non_private"')
    tiny.write_text(text.replace("replicates = 24\nblock = 8", "replicates = 600\nblock = 200"))
    experiment = load_experiment(str(tiny))
    joint = np.concatenate([run_block(task)["statistics_gaussian__joint"] for task in experiment.tasks()[:3]])
    assert not coverage_test(joint, seed=1).is_rejected


def test_a_method_that_fails_costs_itself_alone(tiny, tmp_path, monkeypatch):
    """On the second of three blocks; the others keep all tables, and ratios are of the tables in common."""
    exact = METHODS["exact"]

    def fail_on_some(block, child):
        if block.settings["first"] == 8:
            raise ArgumentError("no\nposterior here")
        return exact.draw(block, child)

    monkeypatch.setitem(METHODS, "exact", exact._replace(draw=fail_on_some))
    result = run_experiment(load_experiment(str(tiny)), folder=tmp_path / "tasks")
    assert result.report.failures == ()
    assert [line.partition(":")[0] for line in result.failures] == [
        "task 00-000008, method exact",
        "task 01-000008, method exact",
    ]
    rows = result.table.set_index(["settings", "method"])
    name = "plain, epsilon 0.5, 24 tables"
    assert rows.loc[(name, "exact"), ["tables", "failed"]].tolist() == [16, 8]
    assert rows.loc[(name, "non_private"), ["tables", "failed"]].tolist() == [24, 0]
    monkeypatch.setitem(METHODS, "exact", exact)
    whole = run_experiment(load_experiment(str(tiny)), folder=tmp_path / "others")
    sds = [
        np.concatenate([one.report.results[f"00-{k:06d}"][f"{method}__sd"] for k in (0, 16)])
        for one, method in ((result, "exact"), (whole, "non_private"))
    ]
    assert rows.loc[(name, "exact"), "sd_over_non_private"] == pytest.approx(np.median(sds[0] / sds[1]))


def test_settings_that_keep_sums_have_results_and_a_figure(tiny, tmp_path):
    tiny.write_text(TINY.replace("clip_norm = 2.0", 'clip_norm = 2.0\nkeep = "sums"\nburn_in = 0.3'))
    result = run_experiment(load_experiment(str(tiny)), folder=tmp_path / "tasks")
    assert result.failures == ()
    assert len(result.fits) == 2


def test_files_of_one_stem_have_folders_of_their_own(tmp_path):
    names = []
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "mine.toml").write_text(TINY)
        for is_small in (False, True):
            experiment = load_experiment(str(tmp_path / place / "mine.toml"), is_small=is_small)
            names.append(experiment.folder)
    assert len(set(names)) == 4
    assert load_experiment("beta-bernoulli").folder == "beta-bernoulli"


def test_arms_that_differ_in_their_source_need_labels(tiny):
    arm = '[[arms]]\nsettings = "plain"\nepsilon = [0.5]\nmethods = ["exact"]\nreplicates = 24\n'
    arm += "source = { num_records = 5000 }\n"
    tiny.write_text(TINY.replace("[small]", arm + "[small]"))
    with pytest.raises(ArgumentError, match="differ in source or infer"):
        load_experiment(str(tiny))
    tiny.write_text(TINY.replace("[small]", arm + 'label = "many"\n[small]'))
    assert load_experiment(str(tiny)).arms[-1].name == "plain, many, epsilon 0.5, 24 tables"


def test_a_source_of_another_kind_takes_nothing_from_the_common_one(tiny):
    arm = '[[arms]]\nsettings = "plain"\nlabel = "x"\nepsilon = [0.5]\nmethods = ["exact"]\nreplicates = 24\n'
    arm += 'source = { kind = "linear-regression" }\n'
    text = TINY.replace("num_records = 300", "num_records = 300\nprior_alpha = 3.0")
    tiny.write_text(text.replace("[small]", arm + "[small]"))
    assert load_experiment(str(tiny)).arms[-1].source == {"kind": "linear-regression"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("num_records = 300", "num_records = 300\nprior_alpha = -1.0"), "prior_alpha"),
        (("num_records = 300", 'num_records = 300\nprior_alpha = "x"'), "prior_alpha"),
        (('kind = "bernoulli-beta"', 'kind = ["bernoulli-beta"]'), "kind among"),
        (('kind = "bernoulli-beta"', 'kind = "linear-regression"\nnum_predictors = "3"'), "cannot be made"),
        (('kind = "bernoulli-beta"', 'kind = "exponential-gamma"\noptimum_upper = 100.0'), "optimum_upper"),
        (("replicates = 24", 'replicates = 24\ninfer = { burn_in = "auto" }'), "burn_in must be a number"),
        (("replicates = 24", "replicates = 24\ninfer = { burn_in = 2.0 }"), "burn_in"),
        (("replicates = 24", 'replicates = 24\ninfer = { curvature_prior = "x" }'), "curvature_prior"),
        (("replicates = 24", "replicates = 24\nlabel = 3"), "label must be a text"),
    ],
)
def test_values_are_checked_before_anything_runs(tiny, change, message):
    tiny.write_text(TINY.replace(*change))
    with pytest.raises(ArgumentError, match=message):
        load_experiment(str(tiny))


def test_small_counts_are_checked_and_a_byte_order_mark_is_read(tiny):
    tiny.write_text(TINY.replace("replicates = 12", 'replicates = "x"'))
    with pytest.raises(ArgumentError, match="replicates"):
        load_experiment(str(tiny), is_small=True)
    tiny.write_text(TINY, encoding="utf-8-sig")
    assert load_experiment(str(tiny)).seed == 5


def test_a_folder_for_results_that_cannot_be_made_is_found_before_the_run(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["coverage", "tiny.toml", "--output", "file/out"])
    assert isinstance(result.exception, FileError)
    assert "cannot make file" in str(result.exception)
    assert not (tmp_path / "nadpvi-coverage").exists()
