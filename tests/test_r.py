"""R itself: it parses every R file and block, and reads a posterior file as Python does.

R is Debian's (``apt-get install r-base-core r-cran-ncdf4 r-cran-posterior``). Without it tests are skipped
and say so, except where NADPVI_TEST_R=1 promises that it is there, as in CI. cmdstanr is on no package index,
so that its lines are parsed and no more.
"""

import functools
import os
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from page_runner import blocks

import nadpvi as na

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "examples" / "r").glob("*.R"))
PERSON = pd.DataFrame({"age": [60], "education": ["tertiary"], "city": ["no"]})


def run_r(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Rscript, without what a user's own profile does."""
    return subprocess.run(
        ["Rscript", "--vanilla", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@functools.cache
def missing() -> str:
    """Say what is missing, or nothing."""
    if shutil.which("Rscript") is None:
        return "R is not installed"
    found = run_r("-e", 'stopifnot(requireNamespace("ncdf4"), requireNamespace("posterior"))')
    return "" if found.returncode == 0 else "R lacks ncdf4 or posterior"


pytestmark = pytest.mark.skipif(
    bool(missing()) and os.environ.get("NADPVI_TEST_R") != "1", reason=f"{missing()}: its part is not tried"
)


def parses(path: Path) -> subprocess.CompletedProcess[str]:
    return run_r("-e", "invisible(parse(commandArgs(TRUE)[1], keep.source = FALSE))", path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_parses(path):
    done = parses(path)
    assert done.returncode == 0, done.stderr


def r_blocks() -> list[str]:
    page = (ROOT / "docs" / "stan.md").read_text(encoding="utf-8")
    return [block.text for block in blocks(page) if block.language == "r"]


def test_every_block_parses_and_a_broken_one_does_not(tmp_path):
    assert len(r_blocks()) == 2
    for number, text in enumerate([*r_blocks(), "f <- function(x) {"]):
        path = tmp_path / f"{number}.R"
        path.write_text(text, encoding="utf-8")
        assert (parses(path).returncode == 0) == (number < 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """posterior.nc of a simulated release of the tutorial's model."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    path = tmp_path_factory.mktemp("r")
    (path / "people.toml").write_text(next(b.text for b in blocks(page) if b.language == "toml"))
    rng = np.random.default_rng(1)
    people = pd.DataFrame(
        {
            "age": rng.integers(18, 91, 500),
            "education": rng.choice(["primary", "secondary", "tertiary"], 500),
            "city": rng.choice(["no", "yes"], 500),
            "employed": rng.choice(["no", "yes"], 500),
        }
    )
    release = na.release(
        na.models.LogisticRegression(outcome="employed"),
        people,
        schema=na.Schema.from_toml(path / "people.toml"),
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        insecure_seed=1,
        config=na.DPVIConfig(num_steps=100),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", na.InferenceWarning)
        na.infer(release, method="exact", draws=250, chains=3, seed=1).save(path / "posterior.nc")
    return path


def printed(folder: Path, code: str) -> str:
    done = run_r("-e", code, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_draws_of_the_block_are_those_of_the_file(folder):
    """Every draw, with its chain, place and label."""
    posterior = na.Posterior.load(folder / "posterior.nc")
    write = 'write.csv(as_draws_df(draws), "draws.csv", row.names = FALSE)'
    table = (
        "found <- summarise_draws(as_draws_array(draws))\n"
        "plain <- lapply(found[c('variable', 'mean', 'sd')], vctrs::vec_data)\n"
        "write.csv(as.data.frame(plain), 'table.csv', row.names = FALSE)"
    )
    printed(folder, f"{r_blocks()[0]}\n{write}\n{table}")
    draws = pd.read_csv(folder / "draws.csv")
    ours = posterior.to_datatree()["posterior"]["coefficients"]
    for label in ours["coefficient"].values:
        for chain in range(3):
            theirs = draws.loc[draws[".chain"] == chain + 1].sort_values(".iteration")[label]
            np.testing.assert_allclose(theirs, ours.sel(coefficient=label, chain=chain), rtol=1e-12)
    table = pd.read_csv(folder / "table.csv", index_col="variable")
    summary = posterior.summary()
    assert list(table.index) == list(summary.index)
    np.testing.assert_allclose(table[["mean", "sd"]], summary[["mean", "sd"]], rtol=1e-9)


def test_the_example_predicts_what_python_predicts(folder):
    done = run_r(ROOT / "examples" / "r" / "read_posterior.R", cwd=folder)
    assert done.returncode == 0, done.stderr
    chance = float(done.stdout.rsplit("P(employed):", 1)[1])
    ours = na.Posterior.load(folder / "posterior.nc").predict(PERSON)
    assert chance == pytest.approx(float(np.ravel(ours)[0]), rel=1e-6)
