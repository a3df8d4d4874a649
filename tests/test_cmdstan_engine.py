"""The CmdStan engine on a genuine CmdStan executable, the one in prophet's wheel."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from engine_checks import assert_short

from nadpvi.engines import cmdstan
from nadpvi.engines.cmdstan import CmdStanEngine
from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.errors import EngineError

SMALL = {"chains": 2, "warmup": 200, "draws": 100, "seed": 1}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path / "cache"))


PROPHET = Path(os.environ.get("NADPVI_PROPHET_DIR", "/nonexistent")) / "prophet" / "stan_model"
PROPHET_EXECUTABLE = PROPHET / "prophet_model.bin"
needs_prophet = pytest.mark.skipif(
    not PROPHET_EXECUTABLE.is_file(),
    reason="no CmdStan executable: set NADPVI_PROPHET_DIR to the --target folder of prophet==1.5.0",
)


def prophet_data(num_times=30):
    """A straight line with noise, in prophet's own terms: linear trend, one predictor."""
    rng = np.random.default_rng(0)
    t = np.linspace(0, 1, num_times)
    x = np.sin(7 * t)
    return {
        "T": num_times,
        "K": 1,
        "t": t,
        "cap": np.zeros(num_times),
        "y": 0.2 + 0.5 * t + 0.3 * x + 0.05 * rng.standard_normal(num_times),
        "S": 2,
        "t_change": np.array([0.3, 0.6]),
        "X": x[:, None],
        "sigmas": np.array([10.0]),
        "tau": 0.05,
        "trend_indicator": 0,
        "s_a": np.array([1.0]),
        "s_m": np.array([0.0]),
    }


@pytest.fixture
def prophet_engine():
    return CmdStanEngine(executable=PROPHET_EXECUTABLE)


@needs_prophet
def test_genuine_cmdstan_samples_what_stanli_samples(prophet_engine, capfd, caplog):
    run = {"chains": 4, "warmup": 500, "draws": 500, "seed": 3, "adapt_delta": 0.9}
    with caplog.at_level(logging.DEBUG):
        compiled = prophet_engine.sample(PROPHET / "prophet.stan", prophet_data(), **run)
    assert capfd.readouterr() == ("", "")
    assert caplog.text == ""
    assert not logging.getLogger("cmdstanpy").disabled
    interpreted = EmbeddedEngine().sample(PROPHET / "prophet.stan", prophet_data(), **run)
    shapes = {name: value.shape for name, value in compiled.variables.items()}
    assert shapes == {name: value.shape for name, value in interpreted.variables.items()}
    assert shapes["delta"] == (4, 500, 2)
    for name, value in interpreted.sample_stats.items():
        assert compiled.sample_stats[name].dtype == value.dtype
        assert compiled.sample_stats[name].shape == (4, 500)
    for name in ("k", "m", "beta", "sigma_obs"):
        a, b = compiled.variables[name], interpreted.variables[name]
        # effective sizes above 400 each: 5 standard errors of a difference are 0.36 sd
        assert abs(a.mean() - b.mean()) < 0.36 * b.std()
        assert a.std() == pytest.approx(b.std(), rel=0.3)


@needs_prophet
def test_genuine_cmdstan_is_reproducible_to_the_last_bit(prophet_engine):
    run = {"chains": 2, "warmup": 100, "draws": 20, "seed": 2**31 - 1}
    first, again = (prophet_engine.sample(PROPHET / "prophet.stan", prophet_data(), **run) for _ in range(2))
    np.testing.assert_array_equal(first.variables["k"], again.variables["k"])
    assert not np.array_equal(first.variables["k"][0], first.variables["k"][1])
    mantissas = first.variables["k"].ravel() * 1e8
    assert (mantissas != np.round(mantissas)).any()  # more digits than CmdStan writes by default


@needs_prophet
def test_genuine_cmdstan_reports_its_version(prophet_engine):
    assert (prophet_engine.name, prophet_engine.version) == ("cmdstan", "2.37.0")


@needs_prophet
def test_genuine_cmdstan_runs_from_awkward_folders(prophet_engine, tmp_path, monkeypatch):
    awkward = tmp_path / "tmp (é) x"
    awkward.mkdir()
    monkeypatch.setenv("TMPDIR", str(awkward))
    monkeypatch.setattr("tempfile.tempdir", None)
    result = prophet_engine.sample(
        PROPHET / "prophet.stan", prophet_data(), chains=1, warmup=50, draws=5, seed=1
    )
    assert result.variables["beta"].shape == (1, 5, 1)
    assert list(awkward.iterdir()) == []


@needs_prophet
@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"y": np.zeros(3)}, r"\by\b"),
        ({"T": 30.0}, r"\bT\b"),
        ({"tau": -1.0}, r"\btau\b"),
    ],
)
def test_genuine_cmdstan_errors_are_short(prophet_engine, change, pattern):
    with pytest.raises(EngineError) as error:
        prophet_engine.sample(PROPHET / "prophet.stan", prophet_data() | change, **SMALL)
    assert_short(error, r"^CmdStan could not run prophet\.stan", pattern)
    log = Path(re.search("full log: (.*)", str(error.value)).group(1))
    assert log.stat().st_size > 0


@needs_prophet
def test_missing_data_is_named_by_genuine_cmdstan(prophet_engine):
    data = prophet_data()
    del data["cap"]
    with pytest.raises(EngineError, match="cap"):
        prophet_engine.sample(PROPHET / "prophet.stan", data, **SMALL)


def write_wrapper(path, body):
    path.write_text(f'#!/bin/sh\n{body}\nexec "{PROPHET_EXECUTABLE}" "$@"\n')
    path.chmod(0o755)
    return path


@needs_prophet
def test_dead_chain_is_an_error_not_fewer_chains(tmp_path):
    wrapper = write_wrapper(tmp_path / "dies", 'case "$*" in *id=3*) kill -9 $$;; esac')
    engine = CmdStanEngine(executable=wrapper)
    with pytest.raises(EngineError) as error:
        engine.sample(PROPHET / "prophet.stan", prophet_data(), chains=4, warmup=50, draws=20, seed=1)
    assert_short(error, "CmdStan could not run")


@needs_prophet
def test_missing_output_is_an_error(tmp_path):
    wrapper = write_wrapper(tmp_path / "mute", 'case "$*" in *id=2*) exit 0;; esac')
    engine = CmdStanEngine(executable=wrapper)
    with pytest.raises(EngineError) as error:
        engine.sample(PROPHET / "prophet.stan", prophet_data(), chains=2, warmup=50, draws=20, seed=1)
    assert_short(error, "CmdStan could not run")


@needs_prophet
def test_incomplete_cmdstan_of_a_wheel_is_recognised(monkeypatch):
    (folder,) = PROPHET.glob("cmdstan-*")
    monkeypatch.setenv("CMDSTAN", str(folder))
    with pytest.raises(EngineError, match="incomplete"):
        CmdStanEngine()


def test_executable_must_exist_and_be_one(tmp_path):
    with pytest.raises(EngineError, match="does not exist"):
        CmdStanEngine(executable=tmp_path / "none")
    impostor = tmp_path / "impostor"
    impostor.write_text("#!/bin/sh\nexit 0\n")
    impostor.chmod(0o755)
    with pytest.raises(EngineError, match="does not run as a CmdStan executable"):
        CmdStanEngine(executable=impostor)


# --- failures and interrupts, with a script standing in for the chains ---------------------------------

STAND_IN = """#!/bin/sh
if [ "$1" = info ]; then
  for part in major minor patch; do echo "stan_version_$part = 2"; done
  exit 0
fi
for last; do case "$last" in id=*) id=${last#id=};; file=*.json) data=${last#file=};; esac; done
"""
HEALTHY_NOISE = """cat <<'END'
method = sample (Default)
  sample
    num_samples = 100
id = 1 (Default)

Informational Message: The current Metropolis proposal is about to be rejected because of this issue:
Exception: harmless (in 'm.stan', line 1)
If this warning occurs sporadically, then the sampler is fine,
but if this warning occurs often then your model may be misspecified.

Iteration:   1 / 200 [  0%]  (Warmup)
END
"""


@pytest.fixture
def stand_in(tmp_path):
    """Write a script that answers `info` as CmdStan does, and return an engine that runs it."""

    def make_engine(body):
        path = tmp_path / "chain"
        path.write_text(STAND_IN + body)
        path.chmod(0o755)
        return CmdStanEngine(executable=path)

    return make_engine


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[ $id = 2 ] && kill -9 $$; exec sleep 60", "chain 2 was ended by SIGKILL."),
        ("exit 0", "chain 1 ended without writing its draws."),
        (
            "echo \"Exception: y is odd (in 'm.stan', line 3)\"; exit 70",
            "chain 1 ended with exit code 70.\nException: y is odd (in 'm.stan', line 3)",
        ),
        (
            'echo "libtbb.so.2: cannot open shared object file" >&2; exit 127',
            "chain 1 ended with exit code 127.\nlibtbb.so.2: cannot open shared object file",
        ),
        (
            'echo "Error: cannot parse $data"; exit 1',
            "chain 1 ended with exit code 1.\nError: cannot parse data.json",
        ),
    ],
)
def test_failure_names_the_chain_and_its_own_words(stand_in, tmp_path, body, message):
    engine = stand_in(HEALTHY_NOISE + body)
    with pytest.raises(EngineError) as error:
        engine.sample(tmp_path / "m.stan", {}, **SMALL)
    text, log = str(error.value).split("\nfull log: ")
    assert text == f"CmdStan could not run m.stan: {message}"
    assert "Exception: harmless" in Path(log).read_text()


def test_long_failure_is_cut_to_15_lines(stand_in, tmp_path):
    engine = stand_in("for i in 1 2 3 4 5 6 7 8 9 a b c d e f g h; do echo Error $i; done; exit 1")
    with pytest.raises(EngineError) as error:
        engine.sample(tmp_path / "m.stan", {}, **SMALL)
    assert_short(error, "Error 1\n", r"\[\.\.\.\]", "full log")


def test_unreadable_draws_name_no_deleted_file(stand_in, tmp_path):
    engine = stand_in('for last; do case "$last" in file=*.csv) echo rubbish > "${last#file=}";; esac; done')
    with pytest.raises(EngineError) as error:
        engine.sample(tmp_path / "m.stan", {}, **SMALL)
    assert_short(error, r"^CmdStan ran m\.stan, but its output cannot be read: ")
    assert "nadpvi-" not in str(error.value)
    assert "show_console" not in str(error.value)


def test_executable_of_another_machine_is_one_line(stand_in, tmp_path):
    engine = stand_in("exit 0")
    (tmp_path / "chain").write_bytes(b"\x7fELF of another machine")
    with pytest.raises(EngineError) as error:
        engine.sample(tmp_path / "m.stan", {}, **SMALL)
    assert "\n" not in str(error.value)
    assert_short(error, "chain does not start", "Exec format error", "--engine stanli")


INTERRUPTED = """
import signal, sys
from pathlib import Path
from nadpvi.engines.cmdstan import CmdStanEngine
# a shell that starts this in the background has SIGINT ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.argv[2] == "cli":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
engine = CmdStanEngine(executable=Path(sys.argv[1]))
try:
    engine.sample(Path("m.stan"), {}, chains=int(sys.argv[3]), warmup=10, draws=10, seed=1)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("is_stubborn", [False, True])
@pytest.mark.parametrize(
    ("number", "handling", "status"),
    [
        (signal.SIGINT, "plain", 130),
        (signal.SIGTERM, "plain", 143),
        (signal.SIGHUP, "plain", 129),
        (signal.SIGTERM, "cli", 130),
    ],
)
def test_no_chain_outlives_an_interrupted_python(stand_in, tmp_path, number, handling, status, is_stubborn):
    pids, temporary = tmp_path / "pids", tmp_path / "tmp"
    temporary.mkdir()
    deaf = "trap '' TERM INT HUP\n" if is_stubborn else ""
    stand_in(f'{deaf}echo $$ >> "{pids}"\nexec sleep 600')
    num_running = os.cpu_count() or 1
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "chain"), handling, str(num_running + 2)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    while not pids.exists() or len(pids.read_text().splitlines()) < num_running:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (status, b"")
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == num_running  # none of the waiting chains was started after the signal
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list(temporary.iterdir()) == []


def test_handler_of_the_caller_is_obeyed_and_handlers_are_put_back(stand_in, tmp_path):
    class Stop(BaseException):
        pass

    def handler(*_):
        raise Stop

    pids = tmp_path / "pids"
    engine = stand_in(f'echo $$ >> "{pids}"\nsleep 0.3; kill -USR1 {os.getpid()}\nexec sleep 600')
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    earlier = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Stop):
            engine.sample(tmp_path / "m.stan", {}, **(SMALL | {"chains": 1}))
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert {number: signal.getsignal(number) for number in before} == before
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)
    assert not logging.getLogger("cmdstanpy").disabled


def test_cmdstanpy_stays_silent_while_an_interrupt_leaves(stand_in, tmp_path, monkeypatch, caplog):
    engine = stand_in('for last; do case "$last" in file=*.csv) : > "${last#file=}";; esac; done')

    def interrupted(*_, **__):
        try:
            raise KeyboardInterrupt
        finally:
            logging.getLogger("cmdstanpy").error("noise on the way out")

    monkeypatch.setattr(engine._cmdstanpy, "from_csv", interrupted)
    with caplog.at_level(logging.DEBUG), pytest.raises(KeyboardInterrupt):
        engine.sample(tmp_path / "m.stan", {}, **SMALL)
    assert caplog.text == ""
    assert not logging.getLogger("cmdstanpy").disabled


def test_quiet_logger_is_restored_after_overlapping_runs():
    logger = logging.getLogger("cmdstanpy")
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with cmdstan._quiet_cmdstanpy:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(10)
    with cmdstan._quiet_cmdstanpy:
        assert logger.disabled
        leave.set()
        thread.join()
        assert logger.disabled
    assert not logger.disabled
