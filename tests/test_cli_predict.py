"""nadpvi predict: a line a row, the numbers of Posterior.predict_table, and files that nothing spoils."""

import io
import warnings

import numpy as np
import pandas as pd
import pytest
from cli_cases import contents, run_here
from test_custom_model import logistic

import nadpvi as na

SCHEMA = """
[columns.age]
kind = "real"
lower = 0
upper = 100

[columns.job]
kind = "categorical"
levels = ["a", "b", "c, or more"]

[columns.ill]
kind = "binary"
levels = ["no", "yes"]
"""
ROWS = 'job,age,note\na,30,x\nb,,y\nd,50,z\nb,40,\n"c, or more",999,w\n'


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a posterior of a chance and one of three levels."""
    folder = tmp_path_factory.mktemp("predict")
    (folder / "s.toml").write_text(SCHEMA)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.uniform(0, 100, 300),
            "job": rng.choice(["a", "b", "c, or more"], 300),
            "ill": rng.choice(["no", "yes"], 300),
        }
    )
    table.to_csv(folder / "t.csv", index=False)
    shared = ["--schema", folder / "s.toml", "--epsilon", 1, "--delta", "1e-5", "--steps", 60, "-q"]
    for name, outcome, model in (
        ("ill", "ill", "logistic_regression"),
        ("job", "job", "multinomial_logistic_regression"),
    ):
        released = run_here(
            "fit", folder / "t.csv", *shared, "--outcome", outcome, "--model", model, "--method", "exact",
            "--release", folder / f"{name}.release.nc", "-o", folder / f"{name}.nc", "--draws", 50,
        )  # fmt: skip
        assert released.returncode == 0, released.stderr
    (folder / "new.csv").write_text(ROWS)
    return folder


def test_a_line_a_row_on_stdout(made):
    done = run_here("predict", made / "ill.nc", made / "new.csv")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "mean,lower,upper"
    assert len(lines) == 6
    assert lines[2] == lines[3] == ",,"
    posterior = na.Posterior.load(made / "ill.nc")
    found = pd.read_csv(io.StringIO(done.stdout))
    np.testing.assert_allclose(found["mean"], posterior.predict(made / "new.csv"), rtol=1e-12)
    assert (found["lower"] < found["mean"]).sum() == (found["mean"] < found["upper"]).sum() == 3
    narrow = pd.read_csv(
        io.StringIO(run_here("predict", made / "ill.nc", made / "new.csv", "--probability", "0.5").stdout)
    )
    assert (narrow["upper"] - narrow["lower"] < found["upper"] - found["lower"]).sum() == 3


def test_rows_of_one_column_keep_their_places(tmp_path, made):
    """CASES E1: there an empty cell is a blank line."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(0, 100, 60), "ill": rng.choice(["no", "yes"], 60)})
    schema, model = (
        na.Schema.from_toml(made / "s.toml"),
        na.models.LogisticRegression(outcome="ill", predictors=["age"]),
    )
    with warnings.catch_warnings(action="ignore"):
        released = na.release(
            model, table, schema=schema, privacy=na.PrivacyBudget(epsilon=1, delta=1e-5),
            config=na.DPVIConfig(num_steps=30),
        )  # fmt: skip
        na.infer(released, method="exact", draws=20).save(tmp_path / "p.nc")
    (tmp_path / "new.csv").write_text("age\n20\n\n60\n")
    lines = run_here("predict", tmp_path / "p.nc", tmp_path / "new.csv").stdout.splitlines()
    assert [line == ",," for line in lines] == [False, False, True, False]


def test_levels_have_columns(made):
    done = run_here("predict", made / "job.nc", made / "new.csv")
    assert done.returncode == 1
    assert '"ill"' in done.stderr
    text = ROWS.replace("note", "ill").replace(",x", ",no").replace(",w", ",yes")
    (made / "ill.csv").write_text(text)
    done = run_here("predict", made / "job.nc", made / "ill.csv")
    found = pd.read_csv(io.StringIO(done.stdout))
    assert list(found)[:3] == ["mean[a]", "lower[a]", "upper[a]"]
    assert list(found)[-1] == "upper[c, or more]"
    assert found.isna().any(axis=1).tolist() == [False, True, True, True, False]
    np.testing.assert_allclose(found.filter(like="mean").sum(axis=1).iloc[[0, 4]], 1.0)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".pq", ".txt"])
def test_files_hold_the_same(made, tmp_path, suffix):
    output = tmp_path / f"predictions{suffix}"
    done = run_here("predict", made / "ill.nc", made / "new.csv", "-o", output)
    assert (done.returncode, done.stdout) == (0, "")
    assert str(output) in done.stderr
    read = pd.read_parquet if suffix in (".parquet", ".pq") else pd.read_csv
    expected = na.Posterior.load(made / "ill.nc").predict_table(made / "new.csv")
    pd.testing.assert_frame_equal(read(output), expected)


def test_nothing_is_overwritten_unasked(made, tmp_path):
    output = tmp_path / "p.csv"
    output.write_text("mine")
    done = run_here("predict", made / "ill.nc", made / "new.csv", "-o", output)
    assert done.returncode == 1
    assert "--force" in done.stderr
    assert output.read_text() == "mine"
    assert run_here("predict", made / "ill.nc", made / "new.csv", "-o", output, "--force").returncode == 0
    assert output.read_text().startswith("mean,")
    before = contents(made)
    done = run_here("predict", made / "ill.nc", made / "new.csv", "-o", made / "new.csv", "--force")
    assert "is an input" in done.stderr
    assert contents(made) == before
    assert not list(tmp_path.glob(".nadpvi*"))


def test_a_run_file(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = run_here(
        "predict", made / "ill.nc", made / "new.csv", "-o", "p.csv", "--probability", "0.5",
        "--write-config", "run.toml",
    )  # fmt: skip
    assert first.returncode == 0, first.stderr
    before = (tmp_path / "p.csv").read_text()
    assert run_here("predict", "--config", "run.toml", "--force").returncode == 0
    assert (tmp_path / "p.csv").read_text() == before


def test_a_custom_model_is_for_python(tmp_path):
    from test_custom_model import SCHEMA as COLUMNS

    model = logistic(predict=lambda p, x: 1 / (1 + np.exp(-np.sum(x * p["coefficients"], axis=-1))))
    table = pd.DataFrame({"age": [30.0, 40.0], "job": ["a", "b"], "ill": ["no", "yes"]})
    budget = na.PrivacyBudget(epsilon=1, delta=1e-5)
    config = na.DPVIConfig(num_steps=30, curvature_share=0.0)
    released = na.release(model, table, schema=COLUMNS, privacy=budget, config=config)
    with warnings.catch_warnings(action="ignore"):
        na.infer(released, method="exact", draws=20).save(tmp_path / "p.nc")
    table.to_csv(tmp_path / "new.csv", index=False)
    done = run_here("predict", tmp_path / "p.nc", tmp_path / "new.csv")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "custom model logit" in done.stderr
    assert "with_model" in done.stderr
