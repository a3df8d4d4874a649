"""The CmdStan engine on a genuine CmdStan executable, the one in prophet's wheel."""

import logging
import os
import re
import threading
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
