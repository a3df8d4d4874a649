"""The command line as a user meets it: real processes, streams and exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_cases import run_here

import nadpvi as na
from nadpvi.inference.methods import METHODS

TOML = """
[columns.age]
kind = "real"
lower = 0
upper = 100

[columns.job]
kind = "categorical"
levels = ["a", "b", "c"]

[columns.y]
kind = "binary"
levels = ["no", "yes"]
"""


def run(*arguments, cwd, **extra):
    environment = {**os.environ, **extra}
    return subprocess.run(
        [sys.executable, "-m", "nadpvi", *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def folder(tmp_path, table):
    """A folder with blanks and accents in its name, a table and its schema."""
    place = tmp_path / "my data (v2)+é"
    place.mkdir()
    table.drop(columns="gain").to_csv(place / "people.csv", index=False)
    (place / "people.toml").write_text(TOML)
    return place


BASE = ["people.csv", "--schema", "people.toml", "--outcome", "y", "--delta", "1e-5", "--steps", "60"]


@pytest.mark.smoke
def test_release_infer_summary(folder):
    made = run("release", *BASE, "--epsilon", "2", "-o", "release.nc", cwd=folder)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("Adding or removing one record")
    assert na.Release.load(folder / "release.nc").is_private

    fitted = run(
        "infer", "release.nc", "-o", "posterior.nc", "--draws", "100", "--chains", "2", "--json", cwd=folder
    )
    assert fitted.returncode == 0, fitted.stderr
    result = json.loads(fitted.stdout)
    assert [row["parameter"] for row in result["parameters"]][:2] == ["Intercept", "age"]
    assert result["interval"] == {"kind": "equal-tailed", "probability": 0.9}
    assert result["guarantee"]["epsilon"] <= 2

    shown = run("summary", "posterior.nc", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert "90 % equal-tailed interval" in shown.stdout
    assert "job[b]" in shown.stdout
    assert "divergences" in shown.stdout
    assert "noise_multiplier" in run("summary", "release.nc", cwd=folder).stdout


def test_fit_writes_both_and_never_overwrites(folder):
    command = ["fit", *BASE, "--epsilon", "2", "--release", "r.nc", "-o", "p.nc", "--draws", "50", "--quiet"]
    first = run(*command, cwd=folder)
    assert first.returncode == 0, first.stderr
    before = (folder / "r.nc").read_bytes()
    second = run(*command, cwd=folder)
    assert second.returncode == 1
    assert "r.nc exists" in second.stderr
    assert (folder / "r.nc").read_bytes() == before
    forced = run(*command, "--force", cwd=folder)
    assert forced.returncode == 0, forced.stderr
    assert (folder / "r.nc").read_bytes() != before


def test_fit_chooses_its_burn_in_as_infer_does(folder):
    command = ["fit", *BASE, "--epsilon", "2", "--method", "exact", "--burn-in", "auto"]
    done = run(*command, "--release", "r.nc", "-o", "p.nc", cwd=folder)
    assert done.returncode == 0, done.stderr
    share = na.Posterior.load(folder / "p.nc").settings["burn_in"]
    assert share == na.diagnose(na.Release.load(folder / "r.nc"), burn_in="auto").burn_in


def test_help_names_every_method(folder):
    for command in ("infer", "fit"):
        shown = run(command, "--help", cwd=folder, COLUMNS="200").stdout
        assert all(name in shown for name in METHODS), shown


def test_the_opacus_example_names_the_extra_that_it_needs(tmp_path):
    """Where Opacus is missing, as it is made to seem here."""
    hidden = (
        "import importlib.util as util, runpy, sys; found = util.find_spec; "
        "util.find_spec = lambda name: None if name == 'opacus' else found(name); "
        "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    example = Path(__file__).parents[1] / "examples" / "opacus_logistic.py"
    done = subprocess.run(
        [sys.executable, "-c", hidden, example], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'nadpvi[opacus]'" in done.stderr


def test_the_release_survives_a_failing_sampler(folder):
    """Post-processing that cannot start must not cost the trace: it is already on disk."""
    code = (
        "import sys; import nadpvi.inference.methods as methods\n"
        "def fail(*a, **k): raise __import__('nadpvi').EngineError('Stan broke.')\n"
        "methods.sample_nuts = fail\n"
        "from nadpvi.cli.app import main; sys.argv = ['nadpvi'] + sys.argv[1:]; main()"
    )
    arguments = ["fit", *BASE, "--epsilon", "2", "--release", "r.nc", "-o", "p.nc"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "nadpvi: error: Stan broke."
    assert na.Release.load(folder / "r.nc").num_steps == 60
    assert not (folder / "p.nc").exists()


@pytest.mark.parametrize(
    ("change", "code", "needle"),
    [
        (["--epsilon", "0"], 2, "epsilon"),
        (["--epsilon", "nan"], 2, "epsilon"),
        (["--epsilon", "2", "--delta", "1"], 2, "delta"),
        (["--epsilon", "two"], 2, "epsilon"),
        (["--epsilon", "2", "--sampling-rate", "1.5"], 2, "--sampling-rate"),
        (["--epsilon", "2", "--steps", "0"], 2, "--steps"),
        (["--epsilon", "2", "--clip-norm", "-1"], 2, "--clip-norm"),
        (["--epsilon", "2", "--predictor", "height"], 2, "height"),
        (["--epsilon", "2", "--outcome", "job"], 2, "job"),
        (["--epsilon", "2", "--model", "probit"], 2, "logistic_regression"),
        (["--epsilon", "2", "--schema", "absent.toml"], 1, "absent.toml"),
        (["--epsilon", "2", "--insecure-seed", "-1"], 2, "--insecure-seed"),
        (["--epsilon", "2", "--colour", "red"], 2, "--colour"),
        ([], 2, "--epsilon"),
    ],
)
def test_mistakes_are_one_line_and_spend_nothing(folder, monkeypatch, change, code, needle):
    monkeypatch.chdir(folder)
    done = run_here("release", *BASE, "-o", "release.nc", *change)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert needle in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if "rror" in line]) == 1
    assert not (folder / "release.nc").exists()


def test_mistakes_in_the_table(folder, monkeypatch):
    monkeypatch.chdir(folder)
    text = (folder / "people.csv").read_text().splitlines()
    for broken, needle in (
        ([text[0], "secret-77,a,yes", *text[1:]], "age"),
        ([text[0], "50,secret-77,yes", *text[1:]], "job"),
        ([text[0], ",a,yes", *text[1:]], "age"),
        (["age,job,other", *text[1:]], "y"),
        ([], "people.csv"),
    ):
        (folder / "people.csv").write_text("\n".join(broken) + ("\n" if broken else ""))
        done = run_here("release", *BASE, "--epsilon", "2", "-o", "release.nc")
        assert done.returncode == 1, done.stderr
        assert needle in done.stderr
        assert "secret-77" not in done.stderr + done.stdout
        assert not (folder / "release.nc").exists()


def test_missing_files(folder):
    assert "absent.nc" in run("summary", "absent.nc", cwd=folder).stderr
    done = run("infer", "people.csv", "-o", "p.nc", cwd=folder)
    assert done.returncode == 1
    assert "not a file that nadpvi wrote" in done.stderr
    done = run("release", "absent.csv", *BASE[1:], "--epsilon", "2", "-o", "r.nc", cwd=folder)
    assert done.returncode == 1
    assert "absent.csv" in done.stderr


def test_an_unsuitable_output_is_found_first(folder):
    done = run("release", *BASE, "--epsilon", "2", "-o", "no/such/place.nc", cwd=folder)
    assert done.returncode == 1
    assert "does not exist" in done.stderr


def test_missing_engine_is_found_before_the_table_is_read(folder):
    (folder / "people.csv").unlink()
    done = run(
        "fit", *BASE, "--epsilon", "2", "--release", "r.nc", "-o", "p.nc", "--engine", "cmdstan",
        cwd=folder, CMDSTAN="/nonexistent",
    )  # fmt: skip
    assert done.returncode == 1
    assert "/nonexistent" in done.stderr or "CmdStan" in done.stderr
    assert "people.csv" not in done.stderr


@pytest.mark.smoke
def test_doctor(folder):
    done = run("doctor", "--json", cwd=folder)
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert {row["name"] for row in result["engines"]} == {"cmdstan", "stanli"}
    assert result["chosen"] in ("cmdstan", "stanli")
    assert result["versions"]["nadpvi"]
    assert "stanli: found" in run("doctor", cwd=folder).stdout


def test_version_help_and_closed_pipe(folder):
    assert run("--version", cwd=folder).stdout.startswith("nadpvi ")
    shown = run("--help", cwd=folder)
    for command in ("demo", "release", "infer", "fit", "summary", "doctor"):
        assert command in shown.stdout
    piped = subprocess.run(
        f"{sys.executable} -m nadpvi --help | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in piped.stderr


def test_debug_shows_a_traceback(folder):
    done = run("--debug", "summary", "absent.nc", cwd=folder)
    assert done.returncode != 0
    assert "Traceback" in done.stderr


def test_rescued_release(monkeypatch, tmp_path, table, schema):
    """A place that fails after the budget was spent costs no trace."""
    from nadpvi.cli.saving import save_release

    made = na.release(
        na.models.LogisticRegression(outcome="y"),
        table,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=1, delta=1e-5),
        config=na.DPVIConfig(num_steps=3),
    )
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(na.FileError, match="written to") as error:
        save_release(made, tmp_path / "gone" / "release.nc", overwrite=False)
    rescued = str(error.value).split("written to ")[1].split(" instead")[0]
    assert na.Release.load(rescued).num_steps == 3


@pytest.mark.parametrize(
    "change",
    [
        ["--chains", "0"],
        ["--draws", "0"],
        ["--warmup", "-1"],
        ["--seed", "-1"],
        ["--adapt-delta", "2"],
        ["--burn-in", "1.5"],
        ["--phi-star-prior", "abc"],
        ["--engine", "jags"],
        ["--engine", "jags", "--method", "exact"],
        ["--burn-in", "most"],
        ["--steps", "2"],
        ["--prior-sd", "0.001"],
    ],
)
def test_fit_finds_bad_settings_before_it_spends(folder, monkeypatch, change):
    monkeypatch.chdir(folder)
    done = run_here("fit", *BASE, "--epsilon", "2", "--release", "r.nc", "-o", "p.nc", *change)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "r.nc").exists()


@pytest.mark.parametrize(
    "command",
    [
        ["release", *BASE, "--epsilon", "2", "-o", "people.csv"],
        ["release", *BASE, "--epsilon", "2", "-o", "./people.toml"],
        ["fit", *BASE, "--epsilon", "2", "--release", "r.nc", "-o", "people.csv"],
        ["fit", *BASE, "--epsilon", "2", "--release", "people.csv", "-o", "p.nc"],
        ["infer", "people.csv", "-o", "people.csv"],
    ],
)
def test_force_never_destroys_an_input(folder, monkeypatch, command):
    monkeypatch.chdir(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = run_here(*command, "--force")
    assert done.returncode == 2, done.stderr
    assert "is an input" in done.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_tables_are_never_cut_and_caches_never_needed(folder):
    """A narrow terminal, and no place for any cache: the numbers are all there."""
    run("release", *BASE, "--epsilon", "2", "-o", "r.nc", cwd=folder)
    nowhere = {"XDG_CACHE_HOME": "/proc/none", "HOME": "/proc/none", "NADPVI_CACHE_DIR": "/proc/none"}
    done = run("infer", "r.nc", "-o", "p.nc", "--draws", "150", cwd=folder, COLUMNS="40", **nowhere)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "\u2026" not in done.stdout
    row = next(line for line in done.stdout.splitlines() if "job[b]" in line)
    assert len([cell for cell in row.split("\u2502") if cell.strip()]) == 8


def test_a_full_stdout_is_one_line(folder):
    done = subprocess.run(
        f"{sys.executable} -m nadpvi doctor > /dev/full",
        shell=True,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "nadpvi: error: No space left on device\n"


def test_a_name_that_the_terminal_cannot_show(folder):
    done = run(
        "release", *BASE, "--epsilon", "2", "-o", "gr\u00f6\u00dfe.nc", cwd=folder, PYTHONIOENCODING="ascii"
    )
    assert done.returncode == 0, done.stderr
    assert "gr\\xf6\\xdfe.nc" in done.stdout


class TestFilesThatNothingReplaces:
    """A ledger and a checkpoint are what a count, or the end of a run, depends on; --force spares them."""

    def test_a_ledger(self, folder):
        made = run("ledger", "book", "--create", "--label", "people", cwd=folder)
        assert made.returncode == 0, made.stderr
        before = (folder / "book").read_bytes()
        spoilt = run("release", *BASE, "--epsilon", "2", "-o", "book", "--force", cwd=folder)
        assert spoilt.returncode == 1
        assert "book is a ledger, which nothing replaces" in spoilt.stderr
        assert (folder / "book").read_bytes() == before

    def test_a_checkpoint(self, folder):
        (folder / "c").write_bytes(b'\x89HDF\r\n\x1a\n ... {"kind": "checkpoint", "format_version": 1} ...')
        spoilt = run("release", *BASE, "--epsilon", "2", "-o", "c", "--force", cwd=folder)
        assert "c is a checkpoint, which nothing replaces" in spoilt.stderr
        again = run(
            "release", *BASE, "--epsilon", "2", "-o", "r9.nc", "--checkpoint", "c", "--force", cwd=folder
        )
        assert again.returncode == 1
        assert "resume it, or delete it" in again.stderr
