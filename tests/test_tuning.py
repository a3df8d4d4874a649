"""Tuning: what is tried, what is chosen, and that nothing private can reach it."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

import nadpvi as na
from nadpvi import tuning
from nadpvi.errors import ArgumentError
from nadpvi.models import BernoulliBeta, LogisticRegression
from nadpvi.tuning import api, tune
from nadpvi.tuning.candidates import make_candidates

BUDGET = na.PrivacyBudget(epsilon=0.3, delta=1e-5)
COLUMNS = {
    "coin": {"kind": "binary", "levels": ["no", "yes"]},
    "die": {"kind": "categorical", "levels": ["1", "2", "3"]},
    "wait": {"kind": "real", "lower": 0, "upper": 10},
}
SCHEMA = na.Schema.from_dict({"columns": COLUMNS})
COIN = BernoulliBeta(outcome="coin", prior_alpha=10.0, prior_beta=10.0)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(api, "_RUNGS", ((9, 30), (3, 60), (2, 150)))


def test_candidates_fill_the_space_around_what_is_suggested():
    base = na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=5000)
    configs = make_candidates(base, count=48, seed=3)
    assert configs[0] == base
    assert configs == make_candidates(base, count=48, seed=3)
    assert configs != make_candidates(base, count=48, seed=4)
    ratios = np.array([config.clip_norm / base.clip_norm for config in configs[1:]])
    assert 0.74 < ratios.min() < 0.8
    assert 1.4 < ratios.max() < 1.51
    assert {config.num_steps for config in configs} == {300, 900}


def test_three_times_the_steps_are_a_third_of_the_size():
    """The scatter of the iterates, n lambda kappa h / 2, goes by what the space says, whatever the steps."""
    base = na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=5000)
    for config in make_candidates(base, count=30, seed=1)[1:]:
        for kind in ("mu", "u"):
            label = f"{kind}[probability]"
            relaxed = [
                each.num_steps
                * each.learning_rate
                * each.learning_rate_factors[label]
                * (each.preconditioner_u if kind == "u" else 1.0)
                for each in (config, base)
            ]
            assert 0.49 < relaxed[0] / relaxed[1] < 2.02


def test_it_is_deterministic_keeps_what_it_tried_and_says_so(quick, tmp_path):
    shared = {"schema": SCHEMA, "num_records": 2000}
    first = tune(COIN, BUDGET, folder=tmp_path / "a", **shared)
    files = sorted((tmp_path / "a").glob("*.npz"))
    assert len(files) == len(first.table) == 9 + 3 + 2
    times = [file.stat().st_mtime_ns for file in files]
    again = tune(COIN, BUDGET, folder=tmp_path / "a", **shared)
    assert [file.stat().st_mtime_ns for file in files] == times
    fresh = tune(COIN, BUDGET, folder=tmp_path / "b", workers=2, **shared)
    for other in (again, fresh):
        assert other.config == first.config
        assert other.table.equals(first.table)
    last = first.table[first.table["rung"] == 2]
    assert last.iloc[0]["clip_norm"] == first.config.clip_norm
    assert f"{len(first.table)} trials" in repr(first)
    # The best third of each rung is what the next one holds, in order of merit.
    ranked = first.table[first.table["rung"] == 0].sort_values("rank").head(3)
    assert set(first.table[first.table["rung"] == 1]["clip_norm"]) == set(ranked["clip_norm"])


@pytest.mark.slow
def test_what_it_chooses_is_calibrated_and_better_than_the_default(tmp_path, monkeypatch):
    """On tables that the search has not seen; z sd within 0.9 to 1.1, 4 standard errors of 900 tables."""
    monkeypatch.setattr(api, "_RUNGS", ((24, 60), (8, 240), (3, 900)))
    budget = na.PrivacyBudget(epsilon=0.1, delta=1e-5)
    found = tune(COIN, budget, schema=SCHEMA, num_records=5000, folder=tmp_path)
    assert found.is_calibrated
    fresh = {}
    for name, config in (("tuned", found.config), ("default", na.DPVIConfig())):
        task = api.Task(
            name=name,
            settings={
                "model": COIN.to_dict(),
                "schema": SCHEMA.to_dict(),
                "privacy": {"epsilon": 0.1, "delta": 1e-5, "neighbouring_relation": "add_or_remove_one"},
                "num_records": 5000,
                "config": config.to_dict(),
                "replicates": 900,
            },
            seed=(99,),
        )
        fresh[name] = api.run_trial(task)
    assert 0.9 < fresh["tuned"]["z"].std() < 1.1
    # The same tables and random numbers, so that the difference has a standard error of its own.
    gain = fresh["default"]["crps"] - fresh["tuned"]["crps"]
    assert gain.mean() > 2.0 * gain.std() / np.sqrt(gain.size)


def test_nothing_private_can_reach_it():
    """It takes no table, and of the private side it uses what makes and runs simulated ones alone."""
    assert not {"table", "records", "path"} & set(inspect.signature(tune).parameters)
    for file in Path(tuning.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("nadpvi.private"):
                assert node.module == "nadpvi.private.replicates", file.name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": LogisticRegression(outcome="coin")}, "conjugate model without predictors"),
        ({"model": BernoulliBeta}, "conjugate model"),
        ({"privacy": na.NonPrivate()}, "PrivacyBudget"),
        ({"schema": None}, "Schema"),
        ({"num_records": 0}, "num_records"),
        ({"seed": -1}, "seed"),
        (
            {"schema": na.Schema.from_dict({"columns": COLUMNS, "person": {"column": "id", "max_rows": 2}})},
            "unit of privacy",
        ),
    ],
)
def test_misuse_is_named(changes, message, tmp_path):
    call = {"model": COIN, "privacy": BUDGET, "schema": SCHEMA, "num_records": 100, "folder": tmp_path}
    call |= changes
    with pytest.raises(ArgumentError, match=message):
        tune(call.pop("model"), call.pop("privacy"), **call)
    assert not list(tmp_path.iterdir())
