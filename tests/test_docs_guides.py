"""Every code block of the guides, run at small size.

A guide is a session of its own: its setup (`GUIDES`) makes what it takes to be there already, since guides
begin in the middle of the road. Commands are run in this process. What cannot be run here is checked as far
as it goes: CmdStan's command line by a shell's parser and a genuine CmdStan's own help, the Opacus loop
against the example that tests/test_opacus_example.py runs, R by tests/test_r.py.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from cli_cases import run_here
from page_runner import blocks, calls, chance_allowed, run_page

import nadpvi as na
import nadpvi.private.dpvi
from nadpvi.tuning import api as tuning_api

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
DATA = Path(__file__).parent / "data" / "cmdstan"
PROPHET = Path(os.environ.get("NADPVI_PROPHET_DIR", "/nonexistent")) / "prophet" / "stan_model"
SUGGESTED = ("--outcome", "employed", "--epsilon", "1", "--delta", "1e-6", "--num-records", "1000")


def tutorials_schema() -> str:
    """The schema of the tutorial's people."""
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    return next(block.text for block in blocks(page) if block.language == "toml")


def scripts(name: str, language: str) -> list[str]:
    """The blocks of one language on a page."""
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    return [block.text for block in blocks(page) if block.language == language]


@pytest.fixture(scope="module")
def road(tmp_path_factory) -> Path:
    """A folder in which somebody has gone the road of the tutorial, with few people."""
    folder = tmp_path_factory.mktemp("road")
    (folder / "people.toml").write_text(tutorials_schema(), encoding="utf-8")
    rng = np.random.default_rng(3)
    rows = zip(
        rng.integers(18, 91, 1000),
        rng.choice(["primary", "secondary", "tertiary"], 1000),
        rng.choice(["no", "yes"], 1000),
        rng.choice(["no", "yes"], 1000),
        strict=True,
    )
    lines = ["age,education,city,employed", *(",".join(map(str, row)) for row in rows)]
    (folder / "people.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    schema = na.Schema.from_toml(folder / "people.toml")
    with chance_allowed():
        release = na.release(
            na.models.LogisticRegression(outcome="employed", predictors=["city"]),
            folder / "people.csv",
            schema=schema,
            privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-6),
            num_records=1000,
        )
        release.save(folder / "release.nc")
        na.infer(release, method="exact", draws=200, chains=2, seed=1).save(folder / "posterior.nc")
    return folder


def run_in(folder: Path, *arguments: str) -> None:
    """Run a command in this process; the folder is the current one."""
    done = run_here(*arguments)
    assert done.returncode == 0, f"nadpvi {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"


def people(folder: Path) -> dict[str, object]:
    """What a Python block about the tutorial's people takes to be there."""
    return {
        "na": na,
        "model": na.models.BernoulliBeta(outcome="employed", prior_alpha=10.0, prior_beta=10.0),
        "schema": na.Schema.from_toml(folder / "people.toml"),
        "table": folder / "people.csv",
        "budget": na.PrivacyBudget(epsilon=1.0, delta=1e-6),
        "release": na.Release.load(folder / "release.nc"),
    }


def nothing(folder: Path) -> dict[str, object]:
    """A page that begins at the beginning."""
    return {}


def a_run_file(folder: Path) -> dict[str, object]:
    """`run.toml`, as `plan --write-config` writes it."""
    run_in(folder, "plan", "--schema", "people.toml", *SUGGESTED, "--write-config", "run.toml")
    (folder / "release.nc").unlink()
    return {}


def only_a_release(folder: Path) -> dict[str, object]:
    """As the receiver begins."""
    (folder / "posterior.nc").unlink()
    return {}


def only_a_table(folder: Path) -> dict[str, object]:
    """As the curator begins."""
    (folder / "release.nc").unlink()
    return {}


def draws_of_cmdstan(folder: Path) -> dict[str, object]:
    """A release, and the files that CmdStan drew from it."""
    (folder / "posterior.nc").unlink()
    for path in [*DATA.glob("output_*.csv"), DATA / "release.nc"]:
        shutil.copy(path, folder)
    return {}


def a_trace_of_another_program(folder: Path) -> dict[str, object]:
    """DP-SGD on a quadratic loss, averaged over an expected batch of 1,000, as Opacus would record it."""
    sigma = na.noise_multiplier(epsilon=1.0, delta=1e-5, num_steps=200, sampling_rate=0.05)
    rng, phi, noisy_gradient = np.random.default_rng(1), [np.zeros(5)], []
    for _ in range(200):
        noise = sigma * np.sqrt(5) * rng.standard_normal(5)
        noisy_gradient.append(0.1 * (phi[-1] - 1.0) + noise / 1000)
        phi.append(phi[-1] - 1.5 * noisy_gradient[-1])
    return {
        "na": na,
        "phi": np.array(phi),
        "noisy_gradient": np.array(noisy_gradient),
        "sigma": sigma,
        "CLIP_NORM": np.sqrt(5),
    }


class Guide(NamedTuple):
    """What a guide needs, and how many blocks of each language it has."""

    counted: dict[str, int]
    setup: Callable[[Path], dict[str, object]] = nothing
    not_run: tuple[str, ...] = ()


GUIDES = {
    "budget": Guide({"console": 1}),
    "coverage": Guide({"console": 1, "text": 1}),
    "dense": Guide({"python": 1}),
    "diagnostics": Guide({"python": 1}),
    "giving": Guide({"python": 1, "console": 1}, only_a_release),
    "models": Guide({"python": 3}),
    "own_trace": Guide({"python": 2, "text": 1}, a_trace_of_another_program, ("GradSampleModule",)),
    "privacy": Guide({"python": 1, "console": 2, "toml": 1}, a_run_file),
    "report": Guide({"python": 1, "console": 1}),
    "schema": Guide({"console": 1, "toml": 1}),
    "settings": Guide({"python": 1, "console": 1}, only_a_table),
    "speed": Guide({"bash": 1}),
    "stan": Guide({"python": 1, "console": 2, "text": 1, "bash": 2, "r": 2}, draws_of_cmdstan),
    "tuning": Guide({"python": 2, "console": 1}, people),
}


@pytest.fixture
def stop_a_run(monkeypatch) -> Callable[[Path], None]:
    """Leave a checkpoint of a run that Ctrl-C stopped after 13 steps."""

    def stop(folder: Path) -> None:
        whole_step = nadpvi.private.dpvi.step

        def step(state, **arguments):
            if state.num_steps == 13:
                raise KeyboardInterrupt
            return whole_step(state, **arguments)

        with monkeypatch.context() as patch:
            patch.setattr(nadpvi.private.dpvi, "step", step)
            with pytest.raises(na.RunInterrupted):
                na.release(
                    na.models.LogisticRegression(outcome="employed"),
                    folder / "people.csv",
                    schema=na.Schema.from_toml(folder / "people.toml"),
                    privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-6),
                    config=na.DPVIConfig(num_steps=40),
                    checkpoint=folder / "people.checkpoint",
                )
        (folder / "release.nc").unlink(missing_ok=True)

    return stop


@pytest.mark.slow
@pytest.mark.parametrize("name", GUIDES)
def test_blocks_run_as_written(name, road, tmp_path, monkeypatch, stop_a_run):
    guide = GUIDES[name]
    shutil.copytree(road, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tuning_api, "_RUNGS", ((4, 30), (2, 60)))

    def run(arguments, folder):
        if arguments[0] == "resume":
            stop_a_run(folder)
        if "init" in arguments:
            (folder / "people.toml").unlink()
        run_in(folder, *arguments)

    counted = run_page(
        DOCS / f"{name}.md",
        tmp_path,
        run=run,
        namespace=guide.setup(tmp_path),
        columns={"age": {"kind": "real", "lower": 0, "upper": 100}},
        not_run=guide.not_run,
    )
    assert counted == guide.counted


def test_every_page_with_blocks_is_run():
    """The README and the pages that tests/test_docs_code.py runs as a newcomer would are the others."""
    with_blocks = {
        page.stem
        for page in DOCS.glob("*.md")
        if any(not block.language.startswith("{") for block in blocks(page.read_text(encoding="utf-8")))
    }
    assert with_blocks == {*GUIDES, "tutorial", "cli"}


def test_indented_blocks_hold_equations_alone():
    """What a reader copies is fenced, so that it is run."""
    for page in [*DOCS.glob("*.md"), ROOT / "README.md"]:
        indented = re.findall(r"(?:^|\n)\n    (\S.*)", page.read_text(encoding="utf-8"))
        copied = [line for line in indented if re.match(r"nadpvi |import |from |pip |make |python ", line)]
        assert copied == [], page.name


def test_a_model_of_ones_own_as_the_page_has_it_runs():
    """docs/models.md only writes the model down; here it gets waiting times and a posterior."""
    namespace: dict[str, object] = {}
    exec(next(text for text in scripts("models", "python") if "CustomModel" in text), namespace)  # noqa: S102
    days = np.random.default_rng(1).weibull(1.5, 500) * 10
    with chance_allowed():
        release = na.release(
            namespace["weibull"],
            {"days": days.clip(0.1, 60)},
            schema=na.Schema.from_dict({"columns": {"days": {"kind": "real", "lower": 0.1, "upper": 60}}}),
            privacy=na.PrivacyBudget(epsilon=5.0, delta=1e-4),
            insecure_seed=1,
            config=na.DPVIConfig(num_steps=300, sampling_rate=0.5, clip_norm=5.0),
        )
        found = na.infer(release, method="exact", draws=200, chains=2, seed=1).summary()
    assert list(found.index) == ["shape", "scale"]
    assert abs(found.loc["shape", "mean"] - 1.5) < 0.5


def test_the_opacus_loop_is_that_of_the_example():
    """Opacus is no dependency of the tests: what the page shows of it is what the example does."""
    page = (DOCS / "own_trace.md").read_text(encoding="utf-8")
    shown = next(block.text for block in blocks(page) if "GradSampleModule" in block.text)
    example = (ROOT / "examples" / "opacus_logistic.py").read_text(encoding="utf-8")
    assert {("DPOptimizer", "max_grad_norm"), ("torch.optim.SGD", "weight_decay")} < calls(shown)
    assert calls(shown) <= calls(example)
    recorded = re.search(r"noisy_gradient\.append\(.*\)", shown).group()
    assert recorded in example
    assert "register_step_pre_hook(before_step)" in shown
    assert "register_step_pre_hook(before_step)" in example


class TestCmdStan:
    """The command line of docs/stan.md; tests/test_export.py runs it where CmdStan is."""

    def test_a_shell_can_parse_it(self):
        for script in scripts("stan", "bash") + scripts("speed", "bash"):
            done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.skipif(
        not (PROPHET / "prophet_model.bin").is_file(),
        reason="no CmdStan 2.37 executable: set NADPVI_PROPHET_DIR to the --target folder of prophet==1.5.0",
    )
    def test_a_genuine_cmdstan_knows_every_argument(self):
        text = "\n".join(scripts("stan", "bash")).replace("\\\n", " ")
        told = subprocess.run([PROPHET / "prophet_model.bin", "help-all"], capture_output=True, text=True)
        known = set(re.findall(r"^\s*(\w+)(?:=|$)", told.stdout, re.MULTILINE))
        methods = []
        for line in text.splitlines():
            if "gradient_model " in line:
                method, *rest = line.split("gradient_model ")[1].removesuffix("&").split()
                methods.append(method)
                assert {method, *(word.split("=")[0] for word in rest)} <= known
        assert methods == ["sample", "optimize", "laplace"]
