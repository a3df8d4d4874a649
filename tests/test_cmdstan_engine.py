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

from nadpvi.engines import csv_files
from nadpvi.engines.cmdstan import CmdStanEngine
from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.errors import ArgumentError, EngineError

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


# --- mode and Laplace's approximation -------------------------------------------------------------------


def bent_data():
    """A line with two sharp bends: prophet's prior of a bend has a kink at 0, where no search ends well."""
    data = prophet_data()
    t = data["t"]
    return data | {"tau": 10.0, "y": data["y"] + 4 * np.maximum(t - 0.3, 0) - 6 * np.maximum(t - 0.6, 0)}


def stanli_mode_and_precision(data):
    """Mode of prophet's density and the negative Hessian there, by finite differences of gradients."""
    import stanli

    plain = {name: np.asarray(value).tolist() for name, value in data.items()}
    model = stanli.Model(str(PROPHET / "prophet.stan"), data=plain)
    best = model.optimize(seed=1)
    for _ in range(5):
        best = model.optimize(seed=1, init=best.unconstrained)
    at, step = best.unconstrained, 1e-5
    columns = [
        (model.log_prob_grad(at + step * unit)[1] - model.log_prob_grad(at - step * unit)[1]) / (2 * step)
        for unit in np.eye(at.size)
    ]
    precision = -np.array(columns)
    return model, best, 0.5 * (precision + precision.T)


@needs_prophet
def test_genuine_cmdstan_finds_the_mode_that_stanli_finds(prophet_engine, capfd):
    data = bent_data()
    compiled = prophet_engine.optimize(PROPHET / "prophet.stan", data, seed=4)
    assert capfd.readouterr() == ("", "")
    interpreted = EmbeddedEngine().optimize(PROPHET / "prophet.stan", data, seed=4)
    shapes = {name: value.shape for name, value in compiled.variables.items()}
    assert shapes == {name: value.shape for name, value in interpreted.variables.items()}
    assert (shapes["k"], shapes["delta"], shapes["trend"]) == ((), (2,), (30,))
    assert {value.dtype for value in compiled.variables.values()} == {np.dtype(np.float64)}
    # Jacobian included, so it is the mode of what the sampler sees; each leaves out constants of its own
    _, best, precision = stanli_mode_and_precision(data)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    for found in (compiled, interpreted):
        gap = np.array([found.variables[name] - best[name] for name in ("k", "m")])
        assert np.abs(gap).max() < 0.05 * sd.min()
        assert found.variables["sigma_obs"] == pytest.approx(best["sigma_obs"], rel=1e-3)


@needs_prophet
def test_genuine_cmdstan_draws_laplace_s_normal(prophet_engine, capfd):
    data = bent_data()
    drawn = prophet_engine.laplace(PROPHET / "prophet.stan", data, draws=4000, seed=4)
    assert capfd.readouterr() == ("", "")
    assert drawn.variables["delta"].shape == (4000, 2)
    assert drawn.log_density.shape == drawn.log_approximation.shape == (4000,)
    model, best, precision = stanli_mode_and_precision(data)
    names = ["k", "m", "delta", "sigma_obs", "beta"]  # prophet.stan's parameters, in order
    values = [
        np.log(drawn.variables[name]) if name == "sigma_obs" else drawn.variables[name] for name in names
    ]
    theta = np.column_stack([value.reshape(4000, -1) for value in values])
    z = (theta - best.unconstrained) @ np.linalg.cholesky(precision)
    # 4,000 independent draws of 6 numbers: 5 standard errors, plus the finite differences' own 1 %
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(4000) + 0.01
    np.testing.assert_allclose(z.T @ z / 4000, np.eye(6), atol=5 * np.sqrt(2 / 4000) + 0.01)
    gap = drawn.log_density - np.array([model.log_prob_grad(point)[0] for point in theta])
    np.testing.assert_allclose(gap, gap[0], atol=1e-6 * np.abs(gap[0]))


@needs_prophet
def test_mode_and_laplace_are_reproducible(prophet_engine):
    program, data = PROPHET / "prophet.stan", bent_data()
    run = {"draws": 5, "seed": 2**31 - 1}
    first, again = (prophet_engine.laplace(program, data, **run).variables["k"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, prophet_engine.laplace(program, data, draws=5, seed=1).variables["k"])
    modes = [prophet_engine.optimize(program, data, seed=7).variables["k"] for _ in range(2)]
    assert modes[0] == modes[1]


@needs_prophet
@pytest.mark.parametrize("method", ["optimize", "laplace"])
def test_search_errors_of_genuine_cmdstan_are_short(prophet_engine, method):
    def search(changes, **settings):
        more = {"draws": 5} if method == "laplace" else {}
        run = {"seed": 1} | more | settings
        getattr(prophet_engine, method)(PROPHET / "prophet.stan", bent_data() | changes, **run)

    with pytest.raises(EngineError) as error:
        search({"y": np.zeros(3)})
    assert_short(error, r"^CmdStan could not run prophet\.stan: optimize ended with", r"\by\b", "full log")
    with pytest.raises(EngineError) as error:
        search({}, max_iterations=2)
    assert_short(error, r"found no mode of prophet\.stan in 2 iterations: raise max_iterations\.$")
    for settings, message in (
        ({"seed": -1}, "seed must be"),
        ({"max_iterations": 0}, "max_iterations must be"),
        ({"max_iterations": 2**32}, "max_iterations must be at most"),
        ({"init_radius": 0.0}, "init_radius must be"),
    ):
        with pytest.raises(ArgumentError, match=message):
            search({}, **settings)
    with pytest.raises(ArgumentError, match="'y' must be finite"):
        search({"y": np.full(30, np.nan)})


def test_draws_of_laplace_are_counted(stand_in, tmp_path):
    for draws in (0, 10**7 + 1, 2.5):
        with pytest.raises(ArgumentError, match="draws must be"):
            stand_in("exit 0").laplace(tmp_path / "m.stan", {}, draws=draws, seed=1)


@needs_prophet
@pytest.mark.parametrize("method", ["optimize", "laplace"])
def test_missing_output_of_a_search_is_an_error(tmp_path, method):
    wrapper = write_wrapper(tmp_path / "mute", f'case "$*" in *method={method}*) exit 0;; esac')
    engine = CmdStanEngine(executable=wrapper)
    more = {"draws": 5} if method == "laplace" else {}
    with pytest.raises(EngineError) as error:
        getattr(engine, method)(PROPHET / "prophet.stan", bent_data(), seed=1, **more)
    assert_short(error, f"CmdStan could not run prophet.stan: {method} ended without writing its draws")


# --- time limit -----------------------------------------------------------------------------------------


@needs_prophet
@pytest.mark.parametrize("method", ["sample", "optimize", "laplace"])
def test_genuine_cmdstan_is_ended_when_time_is_up(tmp_path, method):
    """A wrapper that waits first stands in for a program that takes its time; one in time goes through."""
    pids = tmp_path / "pids"
    wrapper = write_wrapper(tmp_path / "slow", f'[ "$1" = info ] || {{ echo $$ >> "{pids}"; sleep 600; }}')
    run = {"sample": SMALL, "optimize": {"seed": 1}, "laplace": {"seed": 1, "draws": 5}}[method]
    engine = CmdStanEngine(executable=wrapper, timeout=0.5)
    with pytest.raises(EngineError) as error:
        getattr(engine, method)(PROPHET / "prophet.stan", bent_data(), **run)
    assert_short(error, r"^CmdStan could not run prophet\.stan: not done within 0\.5 seconds")
    assert "\n" not in str(error.value)
    for pid in pids.read_text().split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    in_time = CmdStanEngine(executable=PROPHET_EXECUTABLE, timeout=300.0)
    getattr(in_time, method)(PROPHET / "prophet.stan", bent_data(), **run)


def test_time_limit_must_be_positive(tmp_path):
    for timeout in (0.0, -1.0, np.inf, "5"):
        with pytest.raises(ArgumentError, match="timeout must be finite and positive"):
            CmdStanEngine(executable=tmp_path / "none", timeout=timeout)


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

    monkeypatch.setattr("cmdstanpy.from_csv", interrupted)
    with caplog.at_level(logging.DEBUG), pytest.raises(KeyboardInterrupt):
        engine.sample(tmp_path / "m.stan", {}, **SMALL)
    assert caplog.text == ""
    assert not logging.getLogger("cmdstanpy").disabled


def test_quiet_logger_is_restored_after_overlapping_runs():
    logger = logging.getLogger("cmdstanpy")
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with csv_files.quiet_cmdstanpy:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(10)
    with csv_files.quiet_cmdstanpy:
        assert logger.disabled
        leave.set()
        thread.join()
        assert logger.disabled
    assert not logger.disabled
