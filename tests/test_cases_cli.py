"""Cases J1 to J4 on the command line: interrupts, full disks, streams and exit codes, start methods."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from cli_cases import contents, run_here

import nadpvi as na

SCHEMA = """
[columns.age]
kind = "real"
lower = 0
upper = 100

[columns.y]
kind = "binary"
levels = ["no", "yes"]
"""
SHARED = ["people.csv", "--schema", "people.toml", "--outcome", "y", "--epsilon", "1", "--delta", "1e-5"]
SHARED += ["--steps", "60"]
RELEASE = ["release", *SHARED, "-o", "new.nc"]
FIT = ["fit", *SHARED, "--release", "new.nc", "-o", "new_posterior.nc"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a table, a schema, a release of it and a posterior."""
    place = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"age": rng.uniform(0, 100, 200), "y": rng.choice(["no", "yes"], 200)})
    frame.to_csv(place / "people.csv", index=False)
    (place / "people.toml").write_text(SCHEMA)
    with contextlib.chdir(place):
        for words in (
            [*RELEASE[:-1], "release.nc"],
            ["infer", "release.nc", "-o", "posterior.nc", "--method", "exact", "--draws", "50"],
        ):
            done = run_here(*words)
            assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def folder(whole, tmp_path, monkeypatch):
    place = tmp_path / "study"
    shutil.copytree(whole, place)
    monkeypatch.chdir(place)
    return place


def shell(command):
    """Run a line of bash in which nadpvi is this one's."""
    whole = f'nadpvi() {{ "{sys.executable}" -m nadpvi "$@"; }}; set -o pipefail; {command}'
    return subprocess.run(["bash", "-c", whole], capture_output=True, text=True, timeout=300, check=False)


class TestStreams:
    """J3."""

    @pytest.mark.parametrize(
        "words",
        [
            FIT,
            RELEASE,
            ["infer", "release.nc", "-o", "p.nc", "--method", "exact"],
            ["summary", "release.nc"],
            ["summary", "posterior.nc"],
            ["plan", *SHARED[1:], "--num-records", "200"],
            ["export", "release.nc", "--stan-data", "d.json", "--program", "stan"],
            ["schema", "check", "people.toml"],
            ["doctor"],
        ],
        ids=" ".join,
    )
    def test_with_json_stdout_is_json_and_nothing_else(self, folder, words):
        done = run_here(*words, "--json")
        assert done.returncode == 0, done.stderr
        assert isinstance(json.loads(done.stdout), dict)

    def test_what_native_code_prints_does_not_reach_stdout(self, folder):
        done = shell(
            f"nadpvi {' '.join(FIT)} --method nuts --engine stanli --draws 50 --json | "
            f"{sys.executable} -m json.tool"
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["method"] == "nuts"

    @pytest.mark.parametrize(
        "words",
        [RELEASE, FIT, ["infer", "release.nc", "-o", "p.nc", "--method", "exact"]],
        ids=lambda words: words[0],
    )
    def test_quiet_leaves_warnings_alone(self, folder, words):
        loud = run_here(*words)
        quiet = run_here(*words, "--quiet", "--force")
        assert [loud.returncode, quiet.returncode] == [0, 0]
        assert all(line.startswith("nadpvi: warning: ") for line in quiet.stderr.splitlines())
        if words[0] != "release":
            assert len(loud.stderr.splitlines()) > len(quiet.stderr.splitlines())

    @pytest.mark.parametrize("words", ["summary posterior.nc", "summary posterior.nc --json", "--help"])
    def test_a_reader_that_has_seen_enough(self, folder, words):
        done = shell(f"nadpvi {words} | head -1")
        assert done.stdout.count("\n") == 1
        assert done.stderr == ""

    def test_a_failure_anywhere_is_no_success(self, folder):
        (folder / "release.nc").write_bytes(b"no release")
        for words in (["infer", "release.nc", "-o", "p.nc"], ["summary", "release.nc"]):
            done = run_here(*words)
            assert (done.returncode, done.stdout) == (1, "")


class TestInterrupts:
    """J1, of what costs no privacy; `test_interrupts` has the private run."""

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
    def test_stan_stops_at_once_and_leaves_nothing(self, folder, number):
        before = contents(folder)
        process = subprocess.Popen(
            [sys.executable, "-m", "nadpvi", "infer", "release.nc", "-o", "p.nc", "--method", "nuts",
             "--engine", "stanli", "--draws", "4000000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            assert process.stderr.readline() == "sampling the post-processing model ...\n"
            time.sleep(2.0)
            assert process.poll() is None
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
        assert process.returncode == 130
        assert out == ""
        assert err.splitlines()[-1] == "nadpvi: interrupted"
        assert "Traceback" not in err
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)  # no child is left in its session
        assert contents(folder) == before


class TestFullDisks:
    """J2."""

    def test_a_limit_on_files_leaves_no_half_file(self, folder):
        before = contents(folder)
        for words, needle in (
            (" ".join(RELEASE), "new.nc"),
            ("infer release.nc -o p.nc --method exact -q", "p.nc"),
        ):
            # Blocks of 1024 bytes; the temporary folder is no way out.
            done = shell(f"ulimit -f 8; nadpvi {words}")
            assert done.returncode == 1, done.stderr
            assert done.stdout == ""
            assert "Traceback" not in done.stderr
            assert needle in done.stderr.splitlines()[-1]
            assert "File too large" in done.stderr.splitlines()[-1]
            assert contents(folder) == before

    def test_a_device_is_no_output(self, folder):
        done = run_here(*RELEASE[:-1], "/dev/full")
        assert done.returncode == 1
        assert "not a regular file" in done.stderr

    def test_a_folder_that_goes_away_costs_no_trace(self, folder, monkeypatch):
        """The release was paid for, so it is kept elsewhere, and the message says where."""
        import nadpvi.private.dpvi

        (folder / "out").mkdir()
        (folder / "rescue").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(folder / "rescue"))
        original = nadpvi.private.dpvi.step

        def step(state, **parts):
            if (folder / "out").exists():
                (folder / "out").rmdir()
            return original(state, **parts)

        monkeypatch.setattr(nadpvi.private.dpvi, "step", step)
        done = run_here(*RELEASE[:-1], "out/new.nc", "-q")
        assert done.returncode == 1
        kept = done.stderr.split("written to ")[1].split(" instead")[0]
        assert na.Release.load(kept).num_steps == 60


class TestStartMethods:
    """J4."""

    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    def test_a_plain_script_runs_once(self, folder, method):
        """Without a main guard, as the README has it: nothing here starts processes of its own."""
        (folder / "script.py").write_text(
            f"import multiprocessing\nmultiprocessing.set_start_method({method!r})\nprint('started')\n"
            "import warnings\nwarnings.simplefilter('ignore')\n"
            "import nadpvi as na\n"
            "release = na.release(\n"
            "    na.models.LogisticRegression(outcome='y'), 'people.csv',\n"
            "    schema=na.Schema.from_toml('people.toml'),\n"
            "    privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5), config=na.DPVIConfig(num_steps=60))\n"
            "print(len(na.infer(release, method='nuts', draws=50, chains=4).predict('people.csv')))\n"
        )
        done = subprocess.run(
            [sys.executable, "script.py"], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["started", "200"]


def test_predictions_are_of_the_rows_that_were_given(folder):
    """The pipe of a whole analysis: what `predict` prints is a table that pandas reads back."""
    done = shell(f"nadpvi predict posterior.nc people.csv | {sys.executable} -c "
                 "'import pandas, sys; print(pandas.read_csv(sys.stdin)[\"mean\"].mean())'")  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = na.Posterior.load("posterior.nc").predict("people.csv").mean()
    np.testing.assert_allclose(float(done.stdout), expected, rtol=1e-9)
