"""Checkpoints: an interrupted run goes on once, on the same table, with fresh noise and honest counting."""

import dataclasses
import os
import shutil
import signal
import stat
import subprocess
import sys
import time

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest

import nadpvi as na
import nadpvi.private.checkpoint
import nadpvi.private.checkpoint_writer
import nadpvi.private.dpvi
from nadpvi.containers.storage import file_kind
from nadpvi.private.checkpoint import Checkpoint

MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=40, sampling_rate=0.2)


@pytest.fixture
def stop_at(monkeypatch):
    """Make the step of a given number raise KeyboardInterrupt, or none again."""
    original = nadpvi.private.dpvi.step

    def arm(number):
        def step(state, **arguments):
            if state.num_steps == number:
                raise KeyboardInterrupt
            return original(state, **arguments)

        monkeypatch.setattr(nadpvi.private.dpvi, "step", original if number is None else step)

    return arm


@pytest.fixture
def book(tmp_path):
    cap = na.PrivacyBudget(epsilon=1.001, delta=1e-5)
    return na.Ledger.create(tmp_path / "people.ledger", label="people", cap=cap)


@pytest.fixture
def interrupted(schema, table, stop_at, tmp_path):
    """Interrupt a run after 13 of its 40 steps; return its checkpoint's path and its partial release."""

    def make(**arguments):
        path = tmp_path / "people.checkpoint"
        stop_at(13)
        with pytest.raises(na.RunInterrupted) as stop:
            na.release(
                MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path, **arguments
            )
        stop_at(None)
        return path, stop.value.release

    return make


def test_the_whole_run_comes_out_with_the_guarantee_of_an_uninterrupted_one(schema, table, interrupted):
    path, partial = interrupted()
    made = na.resume(path, table)
    whole = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG)
    assert made.num_steps == made.guarantee.num_steps == 40
    assert made.guarantee.epsilon == whole.guarantee.epsilon
    assert made.noise_multiplier == whole.noise_multiplier
    np.testing.assert_array_equal(made.phi[:13], partial.phi)
    np.testing.assert_array_equal(made.noisy_gradient[:13], partial.noisy_gradient)
    # The first new iterate follows from the last old gradient.
    np.testing.assert_array_equal(made.phi[13], partial.final_phi)
    assert "interrupted" in " ".join(made.guarantee.assumed_public)
    assert "interrupted" not in " ".join(whole.guarantee.assumed_public)


def test_noise_of_the_steps_that_are_left_is_fresh(table, interrupted, tmp_path):
    path, _ = interrupted()
    copy = tmp_path / "copy"
    shutil.copy(path, copy)
    first = na.resume(path, table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NADPVI_STATE_DIR", str(tmp_path / "another user"))
        second = na.resume(copy, table)
    assert (first.noisy_gradient[13:] != second.noisy_gradient[13:]).all()


class TestOnce:
    def test_a_copy_of_a_resumed_checkpoint_is_refused(self, table, interrupted, tmp_path):
        path, _ = interrupted()
        copy = shutil.copy(path, tmp_path / "copy")
        na.resume(path, table)
        with pytest.raises(na.PrivacyError, match="twice"):
            na.resume(copy, table)

    def test_a_finished_run_is_refused_and_its_release_still_there(self, table, interrupted):
        path, _ = interrupted()
        made = na.resume(path, table)
        with pytest.raises(na.PrivacyError, match="twice"):
            na.resume(path, table)
        again = na.partial_release(path)
        np.testing.assert_array_equal(again.noisy_gradient, made.noisy_gradient)
        assert again.guarantee.epsilon == made.guarantee.epsilon

    def test_a_resumed_run_can_be_interrupted_and_resumed_again(self, table, interrupted, stop_at, tmp_path):
        path, _ = interrupted()
        early = shutil.copy(path, tmp_path / "early")
        stop_at(25)
        with pytest.raises(na.RunInterrupted, match="after 25 of 40"):
            na.resume(path, table)
        stop_at(None)
        with pytest.raises(na.PrivacyError, match="twice"):
            na.resume(early, table)
        assert na.resume(path, table).num_steps == 40

    def test_interrupted_before_a_new_step_it_is_as_it_was(self, table, interrupted, stop_at, book):
        path, partial = interrupted(ledger=book)
        stop_at(13)
        with pytest.raises(na.RunInterrupted, match="after 13 of 40") as stop:
            na.resume(path, table)
        np.testing.assert_array_equal(stop.value.release.noisy_gradient, partial.noisy_gradient)
        stop_at(None)
        made = na.resume(path, table)
        assert book.total() == pytest.approx(made.guarantee.epsilon, rel=2e-3)

    def test_a_run_that_is_going_on_is_not_resumed(self, schema, table, tmp_path, monkeypatch):
        path = tmp_path / "people.checkpoint"
        monkeypatch.setattr(nadpvi.private.checkpoint_writer, "_SECONDS_BETWEEN_WRITES", 0.0)
        original, seen = nadpvi.private.dpvi.step, []

        def step(state, **arguments):
            if state.num_steps == 20:
                code = (
                    "import sys, nadpvi as na\n"
                    "try: na.resume(*sys.argv[1:])\n"
                    "except na.PrivacyError as error: print(error)\n"
                )
                csv = tmp_path / "people.csv"
                table.to_csv(csv, index=False)
                seen.append(
                    subprocess.run([sys.executable, "-c", code, path, csv], capture_output=True, text=True)
                )
            return original(state, **arguments)

        monkeypatch.setattr(nadpvi.private.dpvi, "step", step)
        na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path)
        assert "still going on" in seen[0].stdout, seen[0].stderr


class Killed(BaseException):
    """Ends a process as abruptly as a test can: nothing is settled."""


def test_a_run_that_is_killed_again_and_again_counts_each_step_once(
    schema, table, tmp_path, book, monkeypatch
):
    original, path = nadpvi.private.dpvi.step, tmp_path / "people.checkpoint"
    monkeypatch.setattr(nadpvi.private.checkpoint_writer, "_SECONDS_BETWEEN_WRITES", 0.0)
    deadly = [13, 13, 25, 39]

    def step(state, **arguments):
        if deadly and state.num_steps == deadly[0]:
            del deadly[0]
            raise Killed
        return original(state, **arguments)

    monkeypatch.setattr(nadpvi.private.dpvi, "step", step)
    with pytest.raises(Killed):
        na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path, ledger=book)
    while deadly:
        with pytest.raises(Killed):
            na.resume(path, table)
    made = na.resume(path, table)
    assert made.num_steps == 40
    counted = [entry.num_steps for entry in book.entries() if entry.is_counted]
    assert counted == [13, 12, 14, 1]
    assert book.total() == pytest.approx(made.guarantee.epsilon, rel=2e-3)


class TestSameTable:
    def test_another_table_is_refused_and_nothing_is_spent(self, table, interrupted, book):
        path, _ = interrupted(ledger=book)
        spent = book.total()
        for other in (
            table.iloc[1:],
            table.assign(age=table.age.where(table.index != 7, 50.25)),
            table[::-1],
        ):
            with pytest.raises(na.PrivacyError, match="same table"):
                na.resume(path, other)
        assert book.total() == spent
        na.resume(path, table)

    def test_edited_settings_are_refused(self, table, interrupted, tmp_path):
        path, _ = interrupted()
        old = Checkpoint.load(path)
        for config in (
            na.DPVIConfig(num_steps=45, sampling_rate=0.2),
            na.DPVIConfig(num_steps=40, sampling_rate=0.1),
            na.DPVIConfig(num_steps=40, sampling_rate=0.2, learning_rate=0.01),
        ):
            edited = nadpvi.mechanism.make_mechanism(
                old.mechanism.description,
                privacy=BUDGET,
                config=config,
                noise_multiplier=old.mechanism.noise_multiplier,
                discreteness=old.mechanism.discreteness,
            )
            dataclasses.replace(old, mechanism=edited).save(tmp_path / "edited")
            with pytest.raises(na.PrivacyError, match=r"setting|budget"):
                na.resume(tmp_path / "edited", table)

    def test_a_row_s_person_is_part_of_the_table(self, table, schema, stop_at, tmp_path):
        owned = na.Schema(columns=schema.columns, person=nadpvi.schema.Person(column="id", max_rows=2))
        people = table.assign(id=np.arange(200) // 4)
        path = tmp_path / "people.checkpoint"
        stop_at(13)
        with pytest.raises(na.RunInterrupted):
            na.release(MODEL, people, schema=owned, privacy=BUDGET, config=CONFIG, checkpoint=path)
        stop_at(None)
        with pytest.raises(na.PrivacyError, match="same table"):
            na.resume(path, people.assign(id=np.arange(200) // 5))
        # The same rows of each person are chosen again, or this would be refused as well.
        assert na.resume(path, people).guarantee.unit == "one person"


class TestLedger:
    def test_each_step_counts_once(self, table, interrupted, book):
        path, partial = interrupted(ledger=book, label="first")
        assert book.total() == pytest.approx(partial.guarantee.epsilon, rel=2e-3)
        made = na.resume(path, table)
        assert [(entry.label, entry.num_steps) for entry in book.entries()] == [("first", 13), ("first", 27)]
        assert book.total() == pytest.approx(made.guarantee.epsilon, rel=2e-3)

    def test_a_copy_resumed_elsewhere_is_counted_or_refused(self, table, interrupted, book, tmp_path):
        path, _ = interrupted(ledger=book)
        copy = shutil.copy(path, tmp_path / "copy")
        na.resume(path, table)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NADPVI_STATE_DIR", str(tmp_path / "another machine"))
            with pytest.raises(na.PrivacyError, match="cap"):
                na.resume(copy, table)

    def test_budget_spent_meanwhile_is_not_there_any_more(self, schema, table, interrupted, book):
        path, _ = interrupted(ledger=book)
        na.release(
            MODEL,
            table,
            schema=schema,
            privacy=na.PrivacyBudget(epsilon=0.7, delta=1e-5),
            config=CONFIG,
            ledger=book,
        )
        with pytest.raises(na.PrivacyError, match="cap"):
            na.resume(path, table)

    def test_wrong_or_missing_ledger(self, table, interrupted, book, tmp_path):
        path, _ = interrupted(ledger=book)
        other = na.Ledger.create(tmp_path / "other.ledger", label="other")
        with pytest.raises(na.ArgumentError, match="its own ledger"):
            na.resume(path, table, ledger=other)
        moved = book.path.rename(tmp_path / "moved.ledger")
        with pytest.raises(na.FileError, match="does not exist"):
            na.resume(path, table)
        assert na.resume(path, table, ledger=na.Ledger.open(moved)).num_steps == 40

    def test_a_ledger_that_cannot_be_written_does_not_cost_the_trace(self, schema, table, book, monkeypatch):
        def fail(*_, **__):
            raise na.FileError("the disk is full.")

        monkeypatch.setattr(na.Ledger, "commit", fail)
        with pytest.warns(UserWarning, match="may count in full"):
            made = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, ledger=book)
        assert made.num_steps == 40
        assert book.total() > 0.9


class TestFile:
    def test_it_is_private_and_no_release(self, interrupted):
        path, partial = interrupted()
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert file_kind(path) == "checkpoint"
        with pytest.raises(na.FileError, match="holds a checkpoint"):
            na.Release.load(path)
        assert "secret" not in str(partial.to_dataset().attrs)
        assert repr(Checkpoint.load(path)) == "Checkpoint(private, 13 steps done, 27 left)"

    def test_fingerprint_is_keyed(self, schema, table, interrupted):
        path, _ = interrupted()
        first = Checkpoint.load(path)
        path.unlink()
        path, _ = interrupted()
        second = Checkpoint.load(path)
        assert first.fingerprint != second.fingerprint
        assert first.secret != second.secret

    def test_its_place_is_checked_before_the_table_is_opened(self, schema, tmp_path):
        arguments = {"schema": schema, "privacy": BUDGET, "config": CONFIG}
        (tmp_path / "taken").touch()
        with pytest.raises(na.FileError, match="exists"):
            na.release(MODEL, tmp_path / "none.csv", checkpoint=tmp_path / "taken", **arguments)
        with pytest.raises(na.ArgumentError, match="simulation"):
            na.release(
                MODEL, tmp_path / "none.csv", checkpoint=tmp_path / "new", insecure_seed=1, **arguments
            )

    def test_a_disk_that_fails_costs_the_checkpoint_and_not_the_run(
        self, schema, table, tmp_path, monkeypatch
    ):
        def fail(*_, **__):
            raise na.FileError("cannot write: No space left on device.")

        monkeypatch.setattr(nadpvi.private.checkpoint_writer, "_SECONDS_BETWEEN_WRITES", 0.0)
        monkeypatch.setattr(nadpvi.private.checkpoint, "write_bytes", fail)
        with pytest.warns(UserWarning, match=r"no checkpoint|was deleted") as caught:
            made = na.release(
                MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=tmp_path / "c"
            )
        assert made.num_steps == 40
        messages = [str(warning.message) for warning in caught]
        assert [text.split()[0] for text in messages] == ["no", f"{tmp_path / 'c'}"]

    def test_damaged(self, interrupted, table):
        path, _ = interrupted()
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(na.FileError):
            na.resume(path, table)


def run_cli(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "nadpvi", *map(str, arguments)], capture_output=True, text=True, **options
    )


class TestCommandLine:
    @pytest.fixture
    def files(self, tmp_path, table):
        """A table large enough for a run of some seconds, and a schema."""
        big = pd.concat([table] * 400, ignore_index=True)
        big.to_csv(tmp_path / "people.csv", index=False)
        (tmp_path / "people.toml").write_text(
            "[columns.age]\nkind = 'real'\nlower = 0\nupper = 100\n"
            "[columns.gain]\nkind = 'real'\nlower = 0\nupper = 99999\n"
            "[columns.job]\nkind = 'categorical'\nlevels = ['a', 'b', 'c']\n"
            "[columns.y]\nkind = 'binary'\nlevels = ['no', 'yes']\n"
        )
        return tmp_path

    @pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
    def test_a_killed_run_goes_on(self, files, kill):
        checkpoint, output = files / "c", files / "r.nc"
        book = na.Ledger.create(files / "l", label="people")
        code = (
            "import nadpvi.private.checkpoint_writer, nadpvi.cli.app\n"
            "nadpvi.private.checkpoint_writer._SECONDS_BETWEEN_WRITES = 0.2\n"
            "nadpvi.cli.app.main()\n"
        )
        settings = ["--schema", files / "people.toml", "--outcome", "y", "--epsilon", 1, "--delta", 1e-5]
        settings += ["--steps", 2000, "--ledger", files / "l", "--checkpoint", checkpoint, "-o", output]
        process = subprocess.Popen(
            [sys.executable, "-c", code, "release", *map(str, [files / "people.csv", *settings])],
            stderr=subprocess.PIPE,
            text=True,
        )
        while not checkpoint.exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        process.send_signal(kill)
        _, stderr = process.communicate(timeout=60)
        assert process.returncode != 0
        if kill == signal.SIGKILL:
            assert not output.exists()
            (entry,) = book.entries()
            assert entry.num_steps == 2000  # counts in full until it is known to be over
            partial = run_cli("resume", checkpoint, "--partial", "-o", output)
            assert partial.returncode == 0, partial.stderr
        else:
            assert "nadpvi resume" in stderr
        first = na.Release.load(output)
        assert 0 < first.num_steps < 2000
        assert first.guarantee.epsilon < 0.999
        (entry,) = book.entries()
        assert entry.num_steps == first.num_steps
        done = run_cli("resume", checkpoint, files / "people.csv", "-o", output, "--force")
        assert done.returncode == 0, done.stderr
        whole = na.Release.load(output)
        assert whole.num_steps == whole.guarantee.num_steps == 2000
        np.testing.assert_array_equal(whole.noisy_gradient[: first.num_steps], first.noisy_gradient)
        assert sum(entry.num_steps for entry in book.entries()) == 2000
        assert not checkpoint.exists()

    def test_usage(self, files):
        neither = run_cli("resume", files / "none", "-o", files / "r.nc")
        assert neither.returncode == 2
        assert "--partial" in neither.stderr
        missing = run_cli("resume", files / "none", files / "people.csv", "-o", files / "r.nc")
        assert missing.returncode == 1
        assert "cannot read" in missing.stderr


class TestWhatIsReadAgain:
    """A resumed run reads its table as the first part did, and gets a model's functions from its caller."""

    @pytest.fixture
    def halt_at(self, monkeypatch):
        def halt(number, call):
            original = nadpvi.private.dpvi.step

            def step(state, **parts):
                if state.num_steps == number:
                    raise KeyboardInterrupt
                return original(state, **parts)

            with monkeypatch.context() as patch:
                patch.setattr(nadpvi.private.dpvi, "step", step)
                with pytest.raises(na.RunInterrupted):
                    call()

        return halt

    @pytest.fixture
    def halted(self, tmp_path, halt_at):
        def make(model, table, schema, **how):
            config = na.DPVIConfig(num_steps=12, clip_norm=2.0)
            path = tmp_path / "halted.checkpoint"
            given = {"schema": schema, "privacy": BUDGET, "config": config, "checkpoint": path, **how}
            halt_at(6, lambda: na.release(model, table, **given))
            return path

        return make

    def test_collapsed_and_in_float32(self, schema, table, halted):
        model = na.models.LogisticRegression(outcome="y", predictors=["job"])
        path = halted(model, table, schema, collapse=True, storage="float32")
        assert na.resume(path, table).num_steps == 12

    @staticmethod
    def own(scale=1.0):
        return na.models.CustomModel(
            name="rate",
            outcome="age",
            parameters=[na.models.Parameter(name="rate", support="positive")],
            log_prior=lambda p: -p["rate"],
            log_likelihood=lambda p, x, y: anp.log(p["rate"]) - p["rate"] * y,
            prior_mean=0.0,
            prior_sd=scale,
        )

    def test_a_model_of_ones_own(self, schema, table, halted):
        path = halted(self.own(), table, schema)
        with pytest.raises(na.ArgumentError, match="holds no functions"):
            na.resume(path, table)
        with pytest.raises(na.ArgumentError, match="differ in prior_sd"):
            na.resume(path, table, model=self.own(2.0))
        assert na.partial_release(path).num_steps == 6
        assert na.resume(path, table, model=self.own()).num_steps == 12

    def test_twice_with_a_prior_that_differs_in_the_last_digits(self, schema, table, halted, halt_at):
        path = halted(self.own(), table, schema)
        halt_at(9, lambda: na.resume(path, table, model=self.own(1.0 + 1e-9)))
        assert na.resume(path, table, model=self.own(1.0 - 1e-9)).num_steps == 12
