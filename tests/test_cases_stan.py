"""Faults that users met around Stan in neighbouring tools: a missing engine, awkward paths, buried errors,
wrong kinds of number, trouble that nobody sees. What one engine does about them is in test_engines,
test_cmdstan_engine and test_toolchain; here the whole road is taken.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from engine_checks import assert_short
from test_cli import BASE, TOML, run
from test_toolchain import make_cmdstan

import nadpvi as na
from nadpvi.engines import toolchain
from nadpvi.errors import ArgumentError, EngineError, InferenceWarning

DATA = Path(__file__).parent / "data" / "cmdstan"
STANC = sorted(
    Path(os.environ.get("NADPVI_PROPHET_DIR", "/nonexistent")).glob("prophet/stan_model/cmdstan-*/bin/stanc")
)
NO_STANLI = 'raise ImportError("no stanli here")\n'
# Warm-up that aims at this acceptance takes steps that diverge.
CARELESS = "0.03"


SHORT_RUNS_MAY_WARN = pytest.mark.filterwarnings("ignore::nadpvi.errors.InferenceWarning")
NEEDS_CMDSTAN = pytest.mark.skipif(
    not (Path(os.environ.get("CMDSTAN", "/nonexistent")) / "makefile").is_file(),
    reason="no CmdStan to compile with: set CMDSTAN to its folder",
)


@pytest.fixture
def folder(tmp_path, table):
    """A folder with a table, its schema and a release."""
    table.drop(columns="gain").to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "people.toml").write_text(TOML)
    shutil.copy(DATA / "release.nc", tmp_path / "release.nc")
    return tmp_path


@pytest.fixture(scope="module")
def release():
    return na.Release.load(DATA / "release.nc")


def error_lines(done):
    return [line for line in done.stderr.splitlines() if line.startswith("nadpvi: error:")]


FIT = ["fit", *BASE, "--epsilon", "2", "--release", "r.nc", "-o", "p.nc"]

# --- F1: Stan missing, found out too late ---------------------------------------------------------------


def test_without_any_stan_nothing_is_spent_and_exact_still_works(folder):
    """The trace that is there already can be post-processed without Stan, at no cost."""
    (folder / "empty" / "stanli").mkdir(parents=True)
    (folder / "empty" / "stanli" / "__init__.py").write_text(NO_STANLI)
    where = os.pathsep.join([str(folder / "empty"), *sys.path])
    bare = {"PYTHONPATH": where, "CMDSTAN": "/nonexistent"}
    refused = run(*FIT, "--ledger", "no-such-ledger", cwd=folder, **bare)
    assert refused.returncode == 1
    assert refused.stdout == ""
    (line,) = error_lines(refused)
    for part in ("no Stan engine is usable", "/nonexistent", "pip install 'stanli"):
        assert part in line
    assert len(refused.stderr.splitlines()) == 1
    assert not (folder / "r.nc").exists()

    exact = run("infer", "release.nc", "-o", "p.nc", "--method", "exact", "--quiet", cwd=folder, **bare)
    assert exact.returncode == 0, exact.stderr
    assert na.Posterior.load(folder / "p.nc").settings["method"] == "exact"


def test_broken_cmdstan_is_passed_over_unless_it_was_asked_for(release, monkeypatch):
    monkeypatch.setenv("CMDSTAN", "/nonexistent")
    with pytest.warns(InferenceWarning):  # 20 draws are few
        fitted = na.infer(release, draws=20, warmup=100, chains=2, seed=1)
    assert fitted.settings["engine"].startswith("stanli")
    with pytest.raises(EngineError, match=r"CMDSTAN names /nonexistent.*engine='stanli'"):
        na.infer(release, draws=20, warmup=100, chains=2, seed=1, engine="cmdstan")


def test_compiler_that_fails_is_found_before_the_table_is_read(folder):
    """CmdStan is complete, but make cannot build our program with it."""
    cmdstan = make_cmdstan(folder / "stan")
    make = folder / "make"
    make.write_text('#!/bin/sh\necho "x.hpp:1:2: fatal error: no space in the compiler" >&2; exit 2\n')
    (cmdstan / "bin" / "stanc").write_text("#!/bin/sh\nexit 0\n")
    for script in (make, cmdstan / "bin" / "stanc"):
        script.chmod(0o755)
    (folder / "people.csv").unlink()
    tools = {"CMDSTAN": str(cmdstan), "MAKE": str(make), "NADPVI_CACHE_DIR": str(folder / "cache")}
    done = run(*FIT, "--engine", "cmdstan", cwd=folder, **tools)
    assert done.returncode == 1
    assert "no space in the compiler" in done.stderr
    assert "--engine stanli" in done.stderr
    assert "people.csv" not in done.stderr
    assert not (folder / "r.nc").exists()


# --- F2: awkward paths ----------------------------------------------------------------------------------


def test_same_numbers_from_awkward_places(folder):
    awkward = folder / "my data (v2)+é\\n"
    for place in (awkward, awkward / "results ö", awkward / "tmp é (2) x"):
        place.mkdir()
    for name in ("people.csv", "people.toml"):
        shutil.copy(folder / name, awkward / name)
    odd = {"TMPDIR": str(awkward / "tmp é (2) x"), "LC_ALL": "C", "LANG": "C"}
    places = [(folder, "r.nc", "p.nc", {}), (awkward, "results ö/out 1.nc", "results ö/p+[1].nc", odd)]
    for place, made, fitted, environment in places:
        steps = (
            ["release", *BASE, "--epsilon", "2", "--insecure-seed", "3", "-o", made],
            ["infer", made, "-o", fitted, "--seed", "4", "--draws", "50", "--engine", "stanli"],
            ["export", made, "--stan-data", f"{fitted}.json", "--program", "stan program (é)"],
        )
        for step in steps:
            done = run(*step, cwd=place, **environment)
            assert done.returncode == 0, done.stderr
            assert "Traceback" not in done.stderr
    plain, other = (na.Posterior.load(place / fitted).groups["posterior"] for place, _, fitted, _ in places)
    for name in plain.data_vars:
        np.testing.assert_array_equal(plain[name], other[name])
    assert (folder / "p.nc.json").read_bytes() == (awkward / "results ö" / "p+[1].nc.json").read_bytes()
    assert list((awkward / "tmp é (2) x").iterdir()) == []


@pytest.mark.stan
@NEEDS_CMDSTAN
@SHORT_RUNS_MAY_WARN
def test_genuine_cmdstan_compiles_once_from_awkward_places(release, tmp_path, monkeypatch):
    awkward = tmp_path / "cache é (v2) x"
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(awkward))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run_settings = {"draws": 500, "warmup": 500, "chains": 2, "seed": 1, "engine": "cmdstan"}
    first = na.infer(release, **run_settings)
    (built,) = awkward.rglob("program")
    stamp = built.stat().st_mtime_ns
    again = na.infer(release, **run_settings)
    assert built.stat().st_mtime_ns == stamp
    for name in ("phi_star", "coefficients"):
        np.testing.assert_array_equal(first.groups["posterior"][name], again.groups["posterior"][name])


# --- F3: Stan's error buried in a long log --------------------------------------------------------------


@pytest.mark.skipif(
    not STANC, reason="no stanc: set NADPVI_PROPHET_DIR to the --target folder of prophet==1.5.0"
)
@pytest.mark.parametrize(
    ("text", "patterns"),
    [
        ("parameters {\n  real x\n}\nmodel { x ~ std_normal(); }\n", [r"line 3, column 0", "';'|\";\""]),
        ("parameters { real x; }\nmodel { x ~ normal(0, foo); }\n", [r"line 2, column 22", "foo"]),
        ("data { int N; }\n#include parts/none.stan\n", ["none.stan"]),
    ],
    ids=["semicolon", "unknown variable", "include"],
)
def test_genuine_stanc_complains_briefly_with_line_and_column(tmp_path, monkeypatch, text, patterns):
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path / "cache"))
    cmdstan = make_cmdstan(tmp_path / "stan")
    (cmdstan / "bin" / "stanc").unlink()
    (cmdstan / "bin" / "stanc").symlink_to(STANC[0])
    program = tmp_path / "a bad (program).stan"
    program.write_text(text)
    installation = toolchain.CmdStanInstallation(path=cmdstan, version="2.37.0")
    with pytest.raises((EngineError, na.FileError)) as error:
        toolchain.build_program(program, installation)
    assert_short(error, *patterns)
    assert "github.com" not in str(error.value)
    if isinstance(error.value, EngineError):
        log = Path(re.search("full log: (.*)", str(error.value)).group(1))
        assert log.stat().st_size > 0


# --- F4: wrong kinds of number handed to Stan -----------------------------------------------------------


def test_trace_that_is_not_finite_is_refused_with_its_step():
    rng = np.random.default_rng(0)
    for name in ("phi", "noisy_gradient"):
        trace = {"phi": rng.normal(size=(40, 2)), "noisy_gradient": rng.normal(0, 9, (40, 2))}
        trace[name][17] = np.nan
        with pytest.raises(ArgumentError, match=rf"{name} is not finite at step 17"):
            na.Release.from_arrays(**trace, noise_multiplier=2.0, clip_norm=2.0, sampling_rate=0.5)


@SHORT_RUNS_MAY_WARN
def test_one_seed_rule_stated_in_the_message(release):
    few = {"draws": 5, "chains": 1, "method": "exact"}

    def draws(seed, **more):
        return na.infer(release, seed=seed, **(few | more)).groups["posterior"]["phi_star"]

    np.testing.assert_array_equal(draws(3), draws(np.int64(3)))
    for seed in (0, np.uint8(7), 2**40):
        for method in ("exact", "laplace", "nuts"):
            assert draws(seed, method=method, warmup=20, engine="stanli").shape == (1, 5, 4)
    for seed in (-1, 1.5, 3.0, "7", True, np.float64(3)):
        for method in ("exact", "laplace", "nuts"):
            with pytest.raises(ArgumentError, match=r"seed must be .*integer|seed must be .*whole"):
                na.infer(release, seed=seed, **(few | {"method": method}))


@pytest.mark.parametrize("method", ["exact", "laplace", "dense", "nuts"])
def test_settings_that_a_method_ignores_are_checked_all_the_same(release, method):
    for settings, message in (
        ({"engine": "foo"}, "engine must be one of 'auto', 'cmdstan', 'stanli' \\(got 'foo'\\)"),
        ({"engine": None}, "engine must be one of"),
        ({"adapt_delta": 2}, "adapt_delta must be"),
        ({"subsampling_noise": "no"}, "subsampling_noise must be True or False \\(got 'no'\\)"),
        ({"subsampling_noise": 1}, "subsampling_noise must be True or False"),
    ):
        with pytest.raises(na.ArgumentError, match=message):
            na.infer(release, method=method, **settings)


@SHORT_RUNS_MAY_WARN
def test_counts_may_be_whole_floats_and_nothing_else(release):
    for value in (5, 5.0, np.float64(5), np.int32(5)):
        for method in ("exact", "laplace"):
            fitted = na.infer(release, method=method, draws=value, chains=value, seed=1)
            assert fitted.groups["posterior"].sizes["draw"] == 5
    for value in (5.5, "5", None, np.nan, True, 0, -3):
        with pytest.raises(ArgumentError, match="draws must be"):
            na.infer(release, method="exact", draws=value, seed=1)


# --- F5: sampler trouble not shown ----------------------------------------------------------------------


@pytest.mark.parametrize("chains", [1, 4])
def test_divergences_are_seen_everywhere(folder, chains):
    done = run(
        "infer", "release.nc", "-o", "p.nc", "--draws", "100", "--warmup", "50", "--seed", "2",
        "--chains", chains, "--adapt-delta", CARELESS, "--engine", "stanli", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    posterior = na.Posterior.load(folder / "p.nc")
    diverging = posterior.groups["sample_stats"]["diverging"]
    assert diverging.dtype == bool
    assert diverging.shape == (chains, 100)
    count = int(diverging.sum())
    assert count == posterior.num_divergences > 0
    assert not any(str(name).endswith("__") for name in posterior.groups["sample_stats"])
    warning = next(line for line in done.stderr.splitlines() if "diverged" in line)
    assert warning.startswith(f"nadpvi: warning: {count} of {chains * 100} NUTS transitions diverged")
    assert f"divergences: {count} of {chains * 100} draws" in done.stdout
    shown = run("summary", "p.nc", cwd=folder)
    assert f"divergences: {count} of {chains * 100} draws" in shown.stdout
    arviz = posterior.to_arviz()
    assert int(arviz["sample_stats"]["diverging"].sum()) == count


@pytest.mark.stan
@NEEDS_CMDSTAN
def test_a_chain_that_is_killed_is_an_error_of_infer(folder):
    """One of four chains of a genuine run is killed: no posterior of three chains is written."""
    driver = (
        "import os, signal, subprocess, sys, threading, time\n"
        "def kill():\n"
        "    while True:\n"
        "        found = subprocess.run(['pgrep', '-P', str(os.getpid()), '-f', 'id=3 '],"
        " capture_output=True, text=True)\n"
        "        for pid in found.stdout.split():\n"
        "            os.kill(int(pid), signal.SIGKILL); return\n"
        "        time.sleep(0.005)\n"
        "threading.Thread(target=kill, daemon=True).start()\n"
        "from nadpvi.cli.app import main; sys.argv = ['nadpvi'] + sys.argv[1:]; main()"
    )
    arguments = ["infer", "release.nc", "-o", "p.nc", "--draws", "100000", "--engine", "cmdstan"]
    done = subprocess.run(
        [sys.executable, "-c", driver, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "chain 3 was ended by SIGKILL" in done.stderr
    assert not (folder / "p.nc").exists()
