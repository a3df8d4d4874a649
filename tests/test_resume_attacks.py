"""Attempts to see a run's steps twice at the price of once, or to make its ledger count too little."""

import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import xarray as xr

import nadpvi as na
import nadpvi.attempts
import nadpvi.private.checkpoint_writer
import nadpvi.private.dpvi
import nadpvi.private.execution
import nadpvi.private.resume
from nadpvi.containers.storage import HEADER
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.checkpoint import Checkpoint
from nadpvi.schema import Person

MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=40, sampling_rate=0.2)


class Killed(BaseException):
    """Ends a process as abruptly as a test can: nothing is settled."""


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Write a checkpoint after every step."""
    monkeypatch.setattr(nadpvi.private.checkpoint_writer, "_SECONDS_BETWEEN_WRITES", 0.0)


@pytest.fixture
def at_step(monkeypatch):
    """Call a function before the step of a given number."""
    original, plan = nadpvi.private.dpvi.step, {}

    def step(state, **arguments):
        if state.num_steps in plan:
            plan.pop(state.num_steps)()
        return original(state, **arguments)

    monkeypatch.setattr(nadpvi.private.dpvi, "step", step)
    return plan


@pytest.fixture
def book(tmp_path):
    return na.Ledger.create(tmp_path / "people.ledger", label="people")


@pytest.fixture
def elsewhere(tmp_path):
    """Return a context in which this is another machine: it knows nothing of earlier runs."""

    @contextlib.contextmanager
    def context():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NADPVI_STATE_DIR", str(tmp_path / "another machine"))
            yield

    return context


def stop(kind):
    def raise_it():
        raise kind

    return raise_it


def counted(book):
    return sum(entry.num_steps for entry in book.entries() if entry.is_counted)


@pytest.fixture
def killed(schema, table, tmp_path, at_step):
    """Kill a run at step 30, with a copy of its checkpoint as it was at step 3; return both paths."""

    def make(**arguments):
        path, old = tmp_path / "people.checkpoint", tmp_path / "backup"
        at_step[3] = lambda: shutil.copy(path, old)
        at_step[30] = stop(Killed)
        with pytest.raises(Killed):
            na.release(
                MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path, **arguments
            )
        return path, old

    return make


class TestOlderCopies:
    def test_they_are_refused_where_the_run_is_known(self, table, killed, book):
        _, old = killed(ledger=book)
        with pytest.raises(na.PrivacyError, match=r"older copy of a checkpoint, with 3 steps .* has 30"):
            na.partial_release(old)
        with pytest.raises(na.PrivacyError, match="older copy"):
            na.resume(old, table)
        assert counted(book) == 40

    def test_elsewhere_they_leave_the_reservation_in_full(self, table, killed, book, elsewhere):
        path, old = killed(ledger=book)
        with elsewhere():
            assert na.partial_release(old).num_steps == 3
            assert counted(book) == 40
            na.resume(old, table)
            assert counted(book) == 40 + 37
        assert na.partial_release(path).num_steps == 30
        # The first run's 30 steps, and 37 others.
        assert counted(book) == 30 + 37

    def test_after_a_partial_release_of_more_steps(self, schema, table, tmp_path, at_step):
        path, old = tmp_path / "c", tmp_path / "backup"
        at_step[3] = lambda: shutil.copy(path, old)
        at_step[39] = stop(KeyboardInterrupt)
        with pytest.raises(na.RunInterrupted, match="39 of 40"):
            na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path)
        with pytest.raises(na.PrivacyError, match="older copy"):
            na.resume(old, table)

    def test_a_copy_taken_midway_is_refused_when_the_run_has_finished(self, schema, table, tmp_path, at_step):
        path, old = tmp_path / "c", tmp_path / "backup"
        at_step[39] = lambda: shutil.copy(path, old)
        na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path)
        with pytest.raises(na.PrivacyError, match="twice"):
            na.resume(old, table)

    def test_a_last_checkpoint_that_cannot_be_written_leaves_none(
        self, schema, table, tmp_path, at_step, monkeypatch
    ):
        path = tmp_path / "c"

        def fill_the_disk():
            def fail(*_, **__):
                raise na.FileError("No space left on device.")

            monkeypatch.setattr("nadpvi.private.checkpoint.write_bytes", fail)

        at_step[5] = fill_the_disk
        at_step[39] = stop(KeyboardInterrupt)
        with (
            pytest.warns(UserWarning, match=r"no checkpoint|was deleted") as warned,
            pytest.raises(na.RunInterrupted) as end,
        ):
            na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path)
        assert "older than the release" in str(warned[-1].message)
        assert end.value.release.num_steps == 39
        assert not path.exists()


class TestTwoAtOnce:
    def test_a_copy_resumed_elsewhere_while_the_run_goes_on(
        self, schema, table, tmp_path, at_step, book, elsewhere
    ):
        path, made = tmp_path / "c", []

        def resume_elsewhere():
            copy = shutil.copy(path, tmp_path / "copy")
            with elsewhere():
                made.append(na.resume(copy, table))

        at_step[3] = resume_elsewhere
        first = na.release(
            MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path, ledger=book
        )
        assert first.num_steps == made[0].num_steps == 40
        assert counted(book) == 40 + 37

    def test_a_file_that_changes_hands_while_it_is_waited_for(self, table, killed, monkeypatch):
        path, _ = killed()
        original, seen = Checkpoint.load, []

        def load(where):
            found = original(where)
            if not seen:
                seen.append(found)
                thread = threading.Thread(target=na.resume, args=(path, table))
                thread.start()
                thread.join()
            return found

        monkeypatch.setattr(Checkpoint, "load", staticmethod(load))
        with pytest.raises(na.PrivacyError, match="meanwhile"):
            na.resume(path, table)

    def test_an_attempt_is_spent_once(self):
        attempt = "0" * 31 + "a"
        nadpvi.attempts.mark_spent(attempt)
        with pytest.raises(na.PrivacyError, match="elsewhere"):
            nadpvi.attempts.mark_spent(attempt)

    @pytest.mark.parametrize("name", ["mark_spent", "note_steps"])
    def test_killed_while_it_changes_hands(self, table, killed, tmp_path, monkeypatch, name):
        """Whatever the moment, the old file and the new one are not both good for a continuation."""
        path, _ = killed()
        old = shutil.copy(path, tmp_path / "old")
        with monkeypatch.context() as patch:
            patch.setattr(nadpvi.private.resume, name, lambda *_: stop(Killed)())
            with pytest.raises(Killed):
                na.resume(path, table)
        resumed = 0
        for place in (path, old):
            with contextlib.suppress(na.PrivacyError):
                na.resume(place, table)
                resumed += 1
        assert resumed == (1 if name == "mark_spent" else 0)

    def test_a_partial_release_of_a_run_that_goes_on(self, schema, table, tmp_path, at_step):
        path, seen = tmp_path / "c", []
        code = (
            "import sys, nadpvi as na\n"
            "try: na.partial_release(sys.argv[1])\n"
            "except na.PrivacyError as error: print(error)\n"
        )
        at_step[20] = lambda: seen.append(
            subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
        )
        na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path)
        assert "still going on" in seen[0].stdout, seen[0].stderr


class TestLedger:
    def test_steps_that_come_to_light_later_are_counted(self, table, killed, book):
        path, _ = killed(ledger=book)
        (entry,) = book.entries()
        book.amend(entry.id, num_steps=3)  # as an older nadpvi, or a person, might have done
        assert na.partial_release(path).num_steps == 30
        assert counted(book) == 30
        na.resume(path, table)
        assert counted(book) == 40

    def test_a_voided_entry_comes_back(self, table, killed, book):
        path, _ = killed(ledger=book)
        (entry,) = book.entries()
        book.void(entry.id)
        na.partial_release(path)
        assert counted(book) == 30

    def test_the_cap_refuses_steps_that_would_come_to_light(self, killed, tmp_path):
        tight = na.Ledger.create(
            tmp_path / "tight", label="people", cap=na.PrivacyBudget(epsilon=1.001, delta=1e-5)
        )
        path, _ = killed(ledger=tight)
        (entry,) = tight.entries()
        tight.amend(entry.id, num_steps=3)
        tight.reserve(dataclasses.replace(entry.guarantee, num_steps=20), label="another")
        with pytest.raises(na.PrivacyError, match="cap"):
            na.partial_release(path)

    def test_a_run_whose_entry_was_settled_by_somebody_keeps_its_trace(
        self, schema, table, tmp_path, at_step, book
    ):
        at_step[20] = lambda: book.amend(book.entries()[0].id, num_steps=3)
        made = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, ledger=book)
        assert made.num_steps == 40
        assert counted(book) == 40

    def test_the_cap_is_asked_before_the_table_is_opened(self, killed, tmp_path):
        tight = na.Ledger.create(
            tmp_path / "tight", label="people", cap=na.PrivacyBudget(epsilon=1.001, delta=1e-5)
        )
        path, _ = killed(ledger=tight)
        na.partial_release(path)
        (entry,) = tight.entries()
        tight.reserve(dataclasses.replace(entry.guarantee, num_steps=10), label="another")
        with pytest.raises(na.PrivacyError, match="cap"):
            na.resume(path, tmp_path / "none.csv")

    def test_how_long_a_run_took_is_not_in_it(self, schema, table, tmp_path, book, at_step, monkeypatch):
        monkeypatch.setattr("nadpvi.privacy.ledger.now", lambda: "2026-01-01T00:00:00+00:00")
        at_step[1] = lambda: monkeypatch.setattr(
            "nadpvi.privacy.ledger.now", lambda: "2026-01-01T05:00:00+00:00"
        )
        na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, ledger=book)
        assert "05:00" not in book.path.read_text()


class TestRunsThatFail:
    def test_a_diverged_run_is_not_resumed_and_counts_in_full(self, schema, table, tmp_path, at_step, book):
        path = tmp_path / "c"
        at_step[30] = stop(na.DivergenceError("the run diverged"))
        with pytest.raises(na.DivergenceError):
            na.release(
                MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path, ledger=book
            )
        for use in (lambda: na.resume(path, table), lambda: na.partial_release(path)):
            with pytest.raises(na.PrivacyError, match="failed"):
                use()
        assert counted(book) == 40

    def test_a_state_folder_that_fails_does_not_cost_the_release(
        self, schema, table, tmp_path, at_step, monkeypatch
    ):
        def fail(*_):
            raise na.FileError("No space left on device.")

        at_step[39] = lambda: monkeypatch.setattr(nadpvi.private.checkpoint_writer, "mark_spent", fail)
        path = tmp_path / "c"
        with pytest.warns(UserWarning, match="was deleted"):
            made = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG, checkpoint=path)
        assert made.num_steps == 40
        assert not path.exists()


class TestEdits:
    @pytest.mark.parametrize(
        "edit",
        [
            lambda header: header["settings"].update(noise_multiplier=1e4),
            lambda header: header["settings"]["config"].update(sampling_rate=0.001),
            lambda header: header["settings"]["privacy"].update(epsilon=0.1),
            lambda header: header.update(entry_start=29),
            lambda header: header.update(attempt="0" * 32),
            lambda header: header.update(ledger="other.ledger", entry="00"),
            lambda header: header.update(was_interrupted=True),
        ],
    )
    def test_a_changed_header_is_seen(self, table, killed, edit):
        path, _ = killed()
        data = xr.load_dataset(path, engine="h5netcdf")
        header = json.loads(data.attrs[HEADER])
        edit(header)
        data.attrs[HEADER] = json.dumps(header)
        data.to_netcdf(path, engine="h5netcdf")
        for use in (lambda: na.resume(path, table), lambda: na.partial_release(path)):
            with pytest.raises(na.FileError, match="edited"):
                use()

    def test_a_shorter_trace_is_seen(self, table, killed):
        path, _ = killed()
        data = xr.load_dataset(path, engine="h5netcdf").isel(step=slice(0, 2))
        data.to_netcdf(path, engine="h5netcdf")
        with pytest.raises(na.FileError, match="edited"):
            na.resume(path, table)

    @pytest.mark.parametrize(
        "change",
        [
            {"privacy": na.PrivacyBudget(epsilon=2.0, delta=1e-5)},
            {"privacy": na.PrivacyBudget(epsilon=1.0, delta=2e-5)},
            {"privacy": na.PrivacyBudget(epsilon=4.0, delta=1e-5, neighbouring_relation="replace_one")},
            {"noise_multiplier": 50.0},
        ],
    )
    def test_the_fingerprint_covers_every_setting(self, table, killed, change):
        path, _ = killed()
        old = Checkpoint.load(path)
        edited = dataclasses.replace(old, mechanism=dataclasses.replace(old.mechanism, **change))
        edited.save(path)
        with pytest.raises(na.PrivacyError, match="setting"):
            na.resume(path, table)

    def test_the_fingerprint_covers_outcomes(self, table, killed):
        path, _ = killed()
        flipped = table.assign(y=table.y.where(table.index != 7, table.y.map({"no": "yes", "yes": "no"})))
        with pytest.raises(na.PrivacyError, match="same table"):
            na.resume(path, flipped)

    def test_the_fingerprint_covers_who_owns_a_row(self, schema, table, tmp_path, at_step):
        """The same rows in the same order, but of other persons."""
        owned = na.Schema(columns=schema.columns, person=Person(column="id", max_rows=5))
        at_step[10] = stop(Killed)
        with pytest.raises(Killed):
            na.release(
                MODEL,
                table.assign(id=np.arange(200) // 4),
                schema=owned,
                privacy=BUDGET,
                config=CONFIG,
                checkpoint=tmp_path / "c",
            )
        with pytest.raises(na.PrivacyError, match="same table"):
            na.resume(tmp_path / "c", table.assign(id=np.arange(200) // 2))


def test_the_secret_fixes_the_choice_of_rows_and_nothing_else():
    one, other = (make_streams(insecure_seed=None, secret=b"s" * 32) for _ in range(2))
    assert (one.rows.random(50) == other.rows.random(50)).all()
    assert (one.subsample.random(50) != other.subsample.random(50)).any()
    assert (one.monte_carlo.random(50) != other.monte_carlo.random(50)).any()


def test_an_interrupted_run_says_so_wherever_it_comes_out(table, killed):
    path, _ = killed()
    assert "interrupted" in " ".join(na.partial_release(path).guarantee.assumed_public)
    na.resume(path, table)
    assert "interrupted" in " ".join(na.partial_release(path).guarantee.assumed_public)


def test_a_model_that_cannot_be_read_back_has_no_checkpoint(schema, tmp_path):
    class Mine(na.models.LogisticRegression):
        kind = "mine"

    with pytest.raises(na.ArgumentError, match="mine"):
        na.release(
            Mine(outcome="y"),
            tmp_path / "none.csv",
            schema=schema,
            privacy=BUDGET,
            checkpoint=tmp_path / "c",
        )


def test_the_release_is_not_written_over_the_ledger(killed, book):
    path, _ = killed(ledger=book)
    before = book.path.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "nadpvi", "resume", path, "--partial", "-o", book.path, "--force"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "is an input" in done.stderr
    assert book.path.read_bytes() == before


@pytest.mark.parametrize("call", ["release", "resume", "partial_release"])
def test_a_ledger_is_given_opened(schema, table, killed, book, call):
    path, _ = killed(ledger=book)
    arguments = {
        "release": lambda: na.release(MODEL, table, schema=schema, privacy=BUDGET, ledger=str(book.path)),
        "resume": lambda: na.resume(path, table, ledger=str(book.path)),
        "partial_release": lambda: na.partial_release(path, ledger=str(book.path)),
    }
    with pytest.raises(na.ArgumentError, match=r"Ledger\.open"):
        arguments[call]()


def test_a_real_checkpoint_is_known_as_one(killed, schema, table, tmp_path):
    path, _ = killed()
    made = na.release(MODEL, table, schema=schema, privacy=BUDGET, config=CONFIG)
    with pytest.raises(na.FileError, match="is a checkpoint"):
        made.save(path, overwrite=True)
