"""The examples run, at small size, and find what is there to be found; R files name what export writes.

R itself: tests/test_r.py.
"""

import csv
import importlib.util
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nadpvi as na

EXAMPLES = Path(__file__).parents[1] / "examples"
R_FILES = sorted(EXAMPLES.glob("r/*.R"))


def run_example(name: str, *arguments: str):
    """Return an example and what its `main` returns. Diagnoses of real releases are chance, and allowed."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", na.InferenceWarning)
        return module, module.main(arguments)


def distances(posterior: na.Posterior, truth) -> np.ndarray:
    """How many posterior sds each parameter's mean is from the truth."""
    found = posterior.summary()
    return np.abs(found["mean"].to_numpy() - np.asarray(truth)) / found["sd"].to_numpy()


# Eight sds: more than what any honest posterior is off by chance, and less than a wrong scale or order is.


def test_coin(capsys):
    module, posterior = run_example("coin", "--tosses", "2000", "--epsilon", "0.5")
    assert (distances(posterior, module.TRUTH) < 8).all()
    assert posterior.summary()["sd"].iloc[0] < 0.05
    assert "noise-aware" in capsys.readouterr().out


def test_disease_counts():
    module, posterior = run_example("disease_counts", "--epsilon", "1")
    assert (distances(posterior, module.TRUTH) < 8).all()
    assert list(posterior.summary().index) == [f"probabilities[{name}]" for name in module.DIAGNOSES]
    assert module.to_records(module.make_table(1000)).num_records == 1000


@pytest.mark.slow
def test_custom_model():
    module, posterior = run_example("custom_model", "--parts", "5000")
    assert (distances(posterior, list(module.TRUTH.values())) < 8).all()


@pytest.mark.slow
def test_wide_regression(capsys):
    module, posteriors = run_example("wide_regression", "--predictors", "3", "--records", "5000")
    truth = module.make_table(5000, 3).truth
    assert (distances(posteriors["dense"], truth) < 8).all()
    assert set(posteriors) == {"dense", "exact"}
    assert "dense: 90 % intervals hold" in capsys.readouterr().out


@pytest.mark.slow
def test_income(capsys):
    _, posterior = run_example("income", "--predictors", "2")
    assert posterior.guarantee.is_private
    assert "P(income > 50K)" in capsys.readouterr().out


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """What `nadpvi export` writes of a release of the tutorial's model."""
    page = (EXAMPLES.parent / "docs" / "tutorial.md").read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("exported")
    (folder / "people.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL).group(1))
    people = pd.DataFrame(
        {
            "age": [30, 40, 50],
            "education": ["primary"] * 3,
            "city": ["no"] * 3,
            "employed": ["yes", "no", "yes"],
        }
    )
    release = na.release(
        na.models.LogisticRegression(outcome="employed"),
        people,
        schema=na.Schema.from_toml(folder / "people.toml"),
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=20),
    )
    na.export_stan(release, data=folder / "data.json", folder=folder / "stan-program")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", na.InferenceWarning)
        na.infer(release, method="exact", draws=10, chains=2).save(folder / "posterior.nc")
    return folder


@pytest.fixture(scope="module")
def labels(exported):
    """labels.csv: variable to label."""
    with (exported / "stan-program" / "labels.csv").open(newline="") as file:
        return {row["variable"]: row["label"] for row in csv.DictReader(file)}


class TestR:
    """Whether R is here or not: every file, variable and label that the R files name."""

    @pytest.mark.parametrize("path", R_FILES, ids=lambda path: path.name)
    def test_files_that_are_read_are_those_that_are_written(self, path, exported):
        text = path.read_text(encoding="utf-8")
        named = set(re.findall(r'"((?:stan-program/)?[\w.]+\.(?:stan|json|csv|nc))"', text))
        assert named, "no file is named"
        assert {name for name in named if not (exported / name).is_file()} == set()

    def test_variables_are_the_programs_own(self, exported, labels):
        text = (EXAMPLES / "r" / "posterior.R").read_text(encoding="utf-8")
        asked = re.findall(r'"(\w+)"', re.search(r"fit\$summary\(c\((.*?)\)\)", text).group(1))
        program = (exported / "stan-program" / "gradient_model.stan").read_text(encoding="utf-8")
        assert len(asked) == 3
        for name in asked:
            assert re.search(rf"\b{name}\b\s*(=|;)", program), f"{name} is not in the program"
            assert f"{name}[1]" in labels, f"{name} has no label"

    @pytest.mark.parametrize("name", ["predict.R", "read_posterior.R"])
    def test_labels_are_those_of_the_tutorials_release(self, name, labels):
        text = (EXAMPLES / "r" / name).read_text(encoding="utf-8")
        used = re.findall(r'^  "(.+?)" = ', text, re.MULTILINE)
        assert len(used) == 4
        ours = [label for variable, label in labels.items() if variable.startswith("model_parameters[")]
        assert set(used) <= set(ours)
        assert len(set(ours)) == len(ours)
