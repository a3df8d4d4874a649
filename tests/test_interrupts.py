"""Ctrl-C, termination and the ledger: what a run that does not end by itself leaves behind."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import nadpvi as na
import nadpvi.private.dpvi

MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=40, sampling_rate=0.2)


@pytest.fixture
def interrupt_at(monkeypatch):
    """Make the step of a given number raise KeyboardInterrupt."""
    original = nadpvi.private.dpvi.step

    def arm(number):
        def step(state, **arguments):
            if state.num_steps == number:
                raise KeyboardInterrupt
            return original(state, **arguments)

        monkeypatch.setattr(nadpvi.private.dpvi, "step", step)

    return arm


@pytest.fixture
def book(tmp_path):
    return na.Ledger.create(
        tmp_path / "people.ledger", label="people", cap=na.PrivacyBudget(epsilon=1.3, delta=1e-5)
    )


@pytest.mark.parametrize("secure", [True, False])
def test_partial_release_is_accounted_for_the_steps_drawn(schema, table, interrupt_at, secure):
    interrupt_at(13)
    seed = None if secure else 5
    with pytest.raises(na.RunInterrupted, match="after 13 of 40 steps") as stop:
        na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, insecure_seed=seed)
    partial = stop.value.release
    assert partial.num_steps == partial.guarantee.num_steps == 13
    assert np.isfinite(partial.noisy_gradient).all()
    assert (partial.noisy_gradient != 0).all()
    assert partial.guarantee.epsilon < 0.95
    expected = na.epsilon_spent(
        noise_multiplier=partial.noise_multiplier, delta=1e-5, num_steps=13, sampling_rate=0.2
    )
    assert partial.guarantee.epsilon == pytest.approx(expected, rel=1e-3)
    assert partial.is_private is secure


def test_partial_trace_is_the_start_of_the_whole_one(schema, table, interrupt_at):
    arguments = {"schema": schema, "privacy": BUDGET, "config": CONFIG, "insecure_seed": 5}
    whole = na.release(MODEL, table, **arguments)
    interrupt_at(13)
    with pytest.raises(na.RunInterrupted) as stop:
        na.release(MODEL, table, **arguments)
    np.testing.assert_array_equal(stop.value.release.noisy_gradient, whole.noisy_gradient[:13])


def test_before_the_first_step_there_is_nothing(schema, table, interrupt_at, book):
    interrupt_at(0)
    with pytest.raises(KeyboardInterrupt) as stop:
        na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, ledger=book)
    assert not isinstance(stop.value, na.RunInterrupted)
    assert book.total() == 0


class TestLedger:
    def test_a_whole_run_is_committed(self, schema, table, book):
        made = na.release(
            MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, ledger=book, label="first"
        )
        (entry,) = book.entries()
        assert entry.label == "first"
        assert entry.guarantee == made.guarantee
        assert book.total() == pytest.approx(made.guarantee.epsilon, rel=2e-3)

    def test_a_run_above_the_cap_is_refused_before_the_table_is_opened(self, schema, table, book, tmp_path):
        arguments = {"schema": schema, "privacy": BUDGET, "config": CONFIG, "ledger": book}
        na.release(MODEL, table, **arguments)
        with pytest.raises(na.PrivacyError, match="cap"):
            na.release(MODEL, tmp_path / "never-opened.csv", **arguments)
        assert len(book.entries()) == 1

    def test_an_interrupted_run_counts_its_steps(self, schema, table, book, interrupt_at):
        interrupt_at(13)
        with pytest.raises(na.RunInterrupted) as stop:
            na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, ledger=book)
        assert book.entries()[0].num_steps == 13
        assert book.total() == pytest.approx(stop.value.release.guarantee.epsilon, rel=2e-3)

    def test_a_failing_run_counts_in_full(self, schema, table, book, monkeypatch):
        def broken(*args, **kwargs):
            raise RuntimeError("power cut")

        monkeypatch.setattr(nadpvi.private.dpvi, "step", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, ledger=book)
        assert book.total() > 0.9

    def test_a_bad_table_costs_nothing(self, schema, table, book):
        with pytest.raises(na.DataError):
            na.release(MODEL, table.drop(columns="age"), schema=schema, privacy=BUDGET, ledger=book)
        assert book.entries() == ()


TOML = """
[columns.age]
kind = "real"
lower = 0
upper = 100

[columns.y]
kind = "binary"
levels = ["no", "yes"]
"""


def ignore_interrupts():
    """What nohup, and a shell's background jobs, do to a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("number", "prepare"),
    [(signal.SIGINT, None), (signal.SIGTERM, None), (signal.SIGTERM, ignore_interrupts)],
    ids=["SIGINT", "SIGTERM", "SIGTERM under nohup"],
)
def test_signals_leave_a_partial_release(tmp_path, table, number, prepare):
    table[["age", "y"]].to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "people.toml").write_text(TOML)
    command = [
        sys.executable, "-m", "nadpvi", "release", "people.csv", "--schema", "people.toml", "--outcome", "y",
        "--epsilon", "1", "--delta", "1e-5", "--steps", "500000", "-o", "release.nc",
        "--ledger", "book.jsonl",
    ]  # fmt: skip
    na.Ledger.create(tmp_path / "book.jsonl", label="people")
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )
    try:
        # The reservation is written right before the first step.
        for _ in range(1200):
            if na.Ledger.open(tmp_path / "book.jsonl").entries():
                break
            time.sleep(0.05)
        time.sleep(1.0)
        process.send_signal(number)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)  # a second one must not cost the trace
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert "partial release: release.nc" in err
    partial = na.Release.load(tmp_path / "release.nc")
    assert 0 < partial.num_steps < 500_000
    assert partial.is_private
    assert na.Ledger.open(tmp_path / "book.jsonl").entries()[0].num_steps == partial.num_steps
