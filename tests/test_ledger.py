"""The ledger: what counts, what a cap refuses, and what two writers, a kill and a full disk leave behind."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
from typing import ClassVar

import pytest

from nadpvi.errors import ArgumentError, FileError, PrivacyError
from nadpvi.privacy import ledger_file
from nadpvi.privacy.accounting import epsilon_spent
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.composition import Run, composed_epsilon
from nadpvi.privacy.guarantee_maker import make_guarantee
from nadpvi.privacy.ledger import EntryState, Ledger
from nadpvi.privacy.selection import Selection

DELTA = 1e-5


def plan(sigma=20.0, steps=100, **changes):
    """A planned full-batch run: accounted in closed form, so that tests are quick."""
    settings = {
        "budget": PrivacyBudget(epsilon=1e6, delta=DELTA),
        "noise_multiplier": sigma,
        "num_steps": steps,
        "sampling_rate": 1,
        "clip_norm": 1.0,
        "mechanism": "discrete Gaussian",
        "assumed_public": ("schema",),
    }
    return make_guarantee(**settings | changes)


def spent(*runs, delta=DELTA):
    """Composed epsilon of full-batch runs given as (sigma, steps)."""
    return composed_epsilon(
        [Run(noise_multiplier=sigma, num_steps=steps, sampling_rate=1) for sigma, steps in runs], delta=delta
    )


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "people.ledger", label="people")


@pytest.fixture
def capped(tmp_path):
    """A ledger whose cap admits three runs of `plan()` and not four."""
    cap = PrivacyBudget(epsilon=spent((20.0, 300)), delta=DELTA)
    return Ledger.create(tmp_path / "capped.ledger", label="people", cap=cap)


class TestWhatCounts:
    def test_an_empty_ledger_has_spent_nothing(self, ledger):
        assert ledger.entries() == ()
        assert (ledger.total(), ledger.total_delta()) == (0.0, None)
        assert (ledger.label, ledger.cap) == ("people", None)

    def test_runs_are_composed_and_not_added_up(self, ledger):
        ids = [ledger.reserve(plan(), label=f"run {i}") for i in range(4)]
        for entry_id in ids:
            ledger.commit(entry_id)
        assert ledger.total() == pytest.approx(4.377178, abs=1e-6)
        assert ledger.total() < 0.6 * sum(entry.epsilon for entry in ledger.entries())
        assert [entry.id for entry in ledger.entries()] == ids
        assert {entry.state for entry in ledger.entries()} == {EntryState.COMMITTED}
        assert Ledger.open(ledger.path).entries() == ledger.entries()

    def test_subsampled_and_full_batch_runs_compose(self, ledger):
        settings = {"noise_multiplier": 12.0, "num_steps": 100, "sampling_rate": 0.1}
        ledger.reserve(plan(**settings | {"sigma": 12.0, "steps": 100}), label="subsampled")
        ledger.reserve(plan(), label="full")
        runs = [Run(**settings), Run(noise_multiplier=20.0, num_steps=100, sampling_rate=1)]
        assert ledger.total() == composed_epsilon(runs, delta=DELTA)

    def test_a_reservation_counts_in_full_until_it_is_amended_or_void(self, ledger):
        first, second, third = (ledger.reserve(plan(), label="run") for _ in range(3))
        assert ledger.total() == spent((20.0, 300))
        ledger.commit(first)
        assert ledger.total() == spent((20.0, 300))
        ledger.amend(second, num_steps=30)
        assert ledger.total() == spent((20.0, 230))
        ledger.void(third)
        assert ledger.total() == spent((20.0, 130))
        assert [entry.num_steps for entry in ledger.entries()] == [100, 30, 0]
        assert [entry.is_counted for entry in ledger.entries()] == [True, True, False]
        amended = epsilon_spent(noise_multiplier=20.0, delta=DELTA, num_steps=30, sampling_rate=1)
        assert [entry.epsilon for entry in ledger.entries()] == [plan().epsilon, amended, 0.0]

    def test_an_interrupted_and_resumed_run_counts_every_step_once(self, ledger):
        ledger.amend(ledger.reserve(plan(), label="run"), num_steps=40)
        ledger.commit(ledger.reserve(plan(steps=60), label="run, resumed"))
        assert ledger.total() == plan().epsilon

    def test_runs_that_are_not_private_are_recorded_and_do_not_count(self, capped):
        simulated = plan(sigma=0.1, reason_not_private="its noise came from a seed")
        bare = plan(sigma=0.0, budget=NonPrivate())
        capped.commit(capped.reserve(simulated, label="simulation"))
        capped.commit(capped.reserve(bare, label="no noise"))
        assert capped.total() == 0.0
        assert [entry.is_counted for entry in capped.entries()] == [False, False]
        assert [entry.guarantee for entry in capped.entries()] == [simulated, bare]

    def test_the_total_is_at_the_caps_delta_else_at_the_smallest_of_the_runs(self, ledger, capped):
        for delta in (1e-5, 1e-7, 1e-6):
            ledger.reserve(plan(budget=PrivacyBudget(epsilon=100, delta=delta)), label="run")
        ledger.reserve(plan(sigma=0.0, budget=NonPrivate()), label="no noise")
        assert ledger.total_delta() == 1e-7
        assert ledger.total() == spent((20.0, 300), delta=1e-7)
        assert ledger.total(1e-4) == spent((20.0, 300), delta=1e-4)
        assert capped.total_delta() == DELTA
        with pytest.raises(ArgumentError, match="delta must be in"):
            ledger.total(0.0)


class TestRelationAndUnit:
    """A full-batch run with sigma under replace one is what one with sigma / 2 is under add or remove."""

    def replacing(self, **changes):
        budget = PrivacyBudget(epsilon=1e6, delta=DELTA, neighbouring_relation="replace_one")
        return plan(budget=budget, **changes)

    def test_the_caps_relation_decides_and_survives_the_file(self, tmp_path):
        cap = PrivacyBudget(epsilon=5.0, delta=DELTA, neighbouring_relation="replace_one")
        ledger = Ledger.create(tmp_path / "x.ledger", label="x", cap=cap)
        assert Ledger.open(ledger.path).cap == cap
        ledger.reserve(plan(), label="run")
        assert ledger.total_relation() == "replace_one"
        assert ledger.total() == pytest.approx(spent((10.0, 100)), rel=1e-12)
        with pytest.raises(PrivacyError, match="would bring it to"):
            ledger.check(plan())

    def test_a_cap_under_add_or_remove_accounts_replacing_runs_under_it(self, capped):
        for _ in range(3):
            capped.reserve(self.replacing(), label="run")
        assert capped.total_relation() == "add_or_remove_one"
        assert capped.total() == spent((20.0, 300))
        with pytest.raises(PrivacyError):
            capped.check(self.replacing())

    def test_without_a_cap_the_stricter_relation_that_counts_decides(self, ledger):
        assert ledger.total_relation() == "add_or_remove_one"
        ledger.reserve(plan(), label="run")
        assert ledger.total() == spent((20.0, 100))
        second = ledger.reserve(self.replacing(), label="run")
        assert ledger.total_relation() == "replace_one"
        assert ledger.total() == pytest.approx(spent((10.0, 200)), rel=1e-12)
        ledger.void(second)
        assert ledger.total_relation() == "add_or_remove_one"
        assert ledger.total() == spent((20.0, 100))

    def test_an_entrys_own_epsilon_is_under_its_own_relation_and_unit(self, ledger):
        first = ledger.reserve(self.replacing(unit="one person", records_per_unit=2), label="run")
        ledger.amend(first, num_steps=25)
        simulated = self.replacing(
            unit="one person", records_per_unit=2, reason_not_private="its noise came from a seed"
        )
        ledger.amend(ledger.reserve(simulated, label="simulation"), num_steps=25)
        for entry in ledger.entries():
            assert entry.epsilon == pytest.approx(spent((5.0, 25)), rel=1e-12)

    def test_people_with_several_records_count_in_full(self, ledger):
        ledger.reserve(plan(sigma=60.0, unit="one person", records_per_unit=3), label="run")
        ledger.reserve(plan(unit="one person"), label="run")
        assert ledger.total() == pytest.approx(spent((20.0, 200)), rel=1e-12)
        assert ledger.unit() == "one person"

    def test_unlike_units_need_a_ledger_each(self, ledger, capped):
        for held in (ledger, capped):
            assert held.unit() is None
            first = held.reserve(plan(), label="run")
            before = held.path.read_bytes()
            for refuse in (held.check, lambda guarantee, held=held: held.reserve(guarantee, label="run")):
                with pytest.raises(PrivacyError, match=r"protect one record and this run .* another ledger"):
                    refuse(plan(unit="one person"))
            assert held.path.read_bytes() == before
            # What does not count does not bind.
            held.reserve(plan(unit="one person", reason_not_private="its noise was seeded"), label="run")
            held.void(first)
            held.reserve(plan(unit="one person"), label="run")
            assert held.unit() == "one person"

    def test_a_ledger_from_before_relations_is_add_or_remove_one(self, tmp_path):
        path = tmp_path / "old.ledger"
        header = {
            "kind": "nadpvi ledger",
            "format_version": 1,
            "time": ledger_file.now(),
            "label": "old",
            "cap": {"epsilon": 3.0, "delta": DELTA},
        }
        line = ledger_file._encode(header, previous="")
        guarantee = plan().to_dict()
        del guarantee["records_per_unit"]
        event = {"event": "reserve", "id": "a", "time": "t", "label": "run", "guarantee": guarantee}
        path.write_bytes(line + ledger_file._encode(event, previous=json.loads(line)["check"]))
        old = Ledger.open(path)
        assert old.cap == PrivacyBudget(epsilon=3.0, delta=DELTA)
        assert old.total() == plan().epsilon
        old.reserve(plan(steps=10), label="new")
        assert old.total() == spent((20.0, 110))

    @pytest.mark.parametrize("steps_done", [1, 37, 99])
    @pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
    def test_a_resumed_run_fits_a_cap_of_exactly_its_budget(self, tmp_path, steps_done, relation):
        settings = {
            "sigma": 36.0,
            "sampling_rate": 0.1,
            "unit": "one person",
            "records_per_unit": 3,
            "budget": PrivacyBudget(epsilon=10.0, delta=DELTA, neighbouring_relation=relation),
        }
        planned = plan(**settings, discreteness=1e-3)
        cap = PrivacyBudget(epsilon=planned.epsilon, delta=DELTA, neighbouring_relation=relation)
        ledger = Ledger.create(tmp_path / "x.ledger", label="x", cap=cap)
        ledger.amend(ledger.reserve(planned, label="run"), num_steps=steps_done)
        steps_left = 100 - steps_done
        left = plan(**settings, steps=steps_left, discreteness=1e-3 * steps_left / 100)
        ledger.commit(ledger.reserve(left, label="run, resumed"))
        assert ledger.total() == pytest.approx(planned.epsilon, rel=1e-12)
        with pytest.raises(PrivacyError):
            ledger.check(plan(**settings, steps=1))


class TestChoice:
    """A choice among candidates in a ledger."""

    choice: ClassVar = {"selection": Selection(mean_runs=4, score_noise_multiplier=100.0), "sigma": 60.0}

    def test_it_counts_beside_single_runs(self, ledger):
        planned = plan(**self.choice)
        ledger.commit(ledger.reserve(planned, label="chosen"))
        assert ledger.total() == planned.epsilon
        ledger.reserve(plan(), label="single")
        assert ledger.total() == composed_epsilon(
            [Run.from_guarantee(planned), Run.from_guarantee(plan())], delta=DELTA
        )
        assert ledger.total() > planned.epsilon + plan().epsilon

    def test_it_is_committed_or_void_and_never_amended(self, ledger):
        entry = ledger.reserve(plan(**self.choice), label="chosen")
        with pytest.raises(ArgumentError, match="cannot be amended"):
            ledger.amend(entry, num_steps=50)
        ledger.void(entry)
        assert ledger.total() == 0.0

    def test_it_keeps_out_of_ledgers_under_replace_one(self, ledger, tmp_path):
        cap = PrivacyBudget(epsilon=90.0, delta=DELTA, neighbouring_relation="replace_one")
        with pytest.raises(PrivacyError, match="only"):
            Ledger.create(tmp_path / "x.ledger", label="x", cap=cap).reserve(plan(**self.choice), label="y")
        replacing = plan(budget=cap)
        entry = ledger.reserve(replacing, label="run")
        with pytest.raises(PrivacyError, match="keep another ledger"):
            ledger.check(plan(**self.choice))
        ledger.void(entry)
        ledger.reserve(plan(**self.choice), label="chosen")
        with pytest.raises(PrivacyError, match="keep another ledger"):
            ledger.check(replacing)


class TestCap:
    def test_a_run_above_the_cap_is_refused_with_the_numbers(self, capped):
        for _ in range(3):
            capped.reserve(plan(), label="run")
        before = capped.path.read_bytes()
        with pytest.raises(PrivacyError) as caught:
            capped.reserve(plan(), label="run")
        message = str(caught.value)
        for number in (capped.cap.epsilon, capped.total(), spent((20.0, 400))):
            assert f"{number:.6g}" in message
        assert "1e-05" in message
        assert "\n" not in message
        with pytest.raises(PrivacyError, match="would bring it to"):
            capped.check(plan())
        assert capped.path.read_bytes() == before

    def test_what_was_not_drawn_is_free_again(self, capped):
        ids = [capped.reserve(plan(), label="run") for _ in range(3)]
        capped.amend(ids[0], num_steps=50)
        capped.check(plan(steps=50))
        with pytest.raises(PrivacyError):
            capped.check(plan(steps=51))
        capped.void(ids[1])
        capped.reserve(plan(steps=150), label="run")

    def test_a_subsampled_run_calibrated_to_the_cap_fits_exactly_once(self, tmp_path):
        planned = plan(sigma=12.0, steps=100, sampling_rate=0.1)
        cap = PrivacyBudget(epsilon=planned.epsilon, delta=DELTA)
        ledger = Ledger.create(tmp_path / "once.ledger", label="people", cap=cap)
        ledger.reserve(planned, label="run")
        with pytest.raises(PrivacyError):
            ledger.reserve(plan(sigma=5000.0, steps=1), label="run")


class TestRefusals:
    def test_entries_are_settled_once_and_only_if_known(self, ledger):
        entry_id = ledger.reserve(plan(), label="run")
        with pytest.raises(ArgumentError, match="cannot commit entry 'abc': it is unknown"):
            ledger.commit("abc")
        with pytest.raises(ArgumentError, match="at most the 100 reserved"):
            ledger.amend(entry_id, num_steps=101)
        with pytest.raises(ArgumentError, match="num_steps"):
            ledger.amend(entry_id, num_steps=0)
        ledger.commit(entry_id)
        for settle in (ledger.commit, ledger.void, lambda name: ledger.amend(name, num_steps=1)):
            with pytest.raises(ArgumentError, match="it is committed already"):
                settle(entry_id)
        assert ledger.total() == plan().epsilon

    @pytest.mark.parametrize("label", ["", "  ", "two\nlines", "\x1b[2J", "x" * 201, None, 3])
    def test_labels_are_one_line_of_text(self, ledger, tmp_path, label):
        with pytest.raises(ArgumentError, match="label must be one line"):
            ledger.reserve(plan(), label=label)
        with pytest.raises(ArgumentError, match="label must be one line"):
            Ledger.create(tmp_path / "other", label=label)
        assert not (tmp_path / "other").exists()

    def test_wrong_types_are_named(self, ledger, tmp_path):
        with pytest.raises(ArgumentError, match="guarantee must be a Guarantee"):
            ledger.reserve({"epsilon": 1}, label="run")
        with pytest.raises(ArgumentError, match="cap must be a PrivacyBudget"):
            Ledger.create(tmp_path / "other", label="x", cap=3.0)

    def test_a_file_that_exists_is_never_replaced(self, ledger):
        before = ledger.path.read_bytes()
        with pytest.raises(FileError, match="never replaced"):
            Ledger.create(ledger.path, label="other")
        with pytest.raises(FileError, match="never replaced"):
            Ledger.create("/dev/full", label="other")
        assert ledger.path.read_bytes() == before

    def test_places_that_cannot_hold_a_ledger(self, tmp_path):
        with pytest.raises(FileError, match="cannot create"):
            Ledger.create(tmp_path / "none" / "x.ledger", label="x")
        with pytest.raises(FileError, match="does not exist"):
            Ledger.open(tmp_path / "none.ledger")
        with pytest.raises(FileError, match="cannot read"):
            Ledger.open(tmp_path)

    def test_two_names_of_one_file_share_its_lock(self, ledger, tmp_path):
        link = tmp_path / "link"
        link.symlink_to(ledger.path)
        assert Ledger.open(link).path == ledger.path


class TestDamage:
    @pytest.fixture
    def lines(self, ledger):
        """The whole lines of a ledger with one run of each state."""
        ledger.commit(ledger.reserve(plan(), label="run"))
        ledger.amend(ledger.reserve(plan(), label="run"), num_steps=30)
        ledger.void(ledger.reserve(plan(), label="run"))
        ledger.reserve(plan(), label="run")
        return ledger.path.read_bytes().splitlines(keepends=True)

    @pytest.mark.parametrize("last", ["reserve", "commit", "amend", "void"])
    def test_a_last_line_torn_anywhere_never_under_counts(self, ledger, last, monkeypatch):
        entry_id = ledger.reserve(plan(), label="run")
        if last == "reserve":
            ledger.reserve(plan(), label="run")
        else:
            getattr(ledger, last)(entry_id, **({"num_steps": 30} if last == "amend" else {}))
        whole = ledger.path.read_bytes()
        truth = ledger.total()
        # No other process writes here, so the second look under the lock is not what is tested.
        monkeypatch.setattr("nadpvi.privacy.ledger.hold_lock", no_lock)
        start = whole[:-1].rfind(b"\n") + 1
        for end in range(start + 1, len(whole) + 1):
            ledger.path.write_bytes(whole[:end])
            opened = Ledger.open(ledger.path)
            assert len(opened.entries()) >= 1
            if end >= len(whole) - 1:
                assert opened.total() == truth
                assert not opened.is_torn
                continue
            assert opened.is_torn
            with pytest.raises(FileError, match="--repair"):
                opened.total()
            with pytest.raises(FileError, match="--repair"):
                opened.reserve(plan(), label="x")
            with pytest.raises(FileError, match="--repair"):
                opened.void(entry_id)
            assert ledger.path.read_bytes() == whole[:end]

    def test_a_whole_last_line_without_its_end_is_continued(self, ledger):
        entry_id = ledger.reserve(plan(), label="run")
        ledger.path.write_bytes(ledger.path.read_bytes()[:-1])
        ledger.commit(entry_id)
        ledger.reserve(plan(), label="run")
        assert ledger.total() == spent((20.0, 200))

    def test_repair_closes_a_torn_line_and_keeps_every_byte(self, ledger):
        entry_id = ledger.reserve(plan(), label="run")
        for torn in (b"{", b'{"event": "void", "id"', b"\0\0\0", b"\xff\xfe"):
            with open(ledger.path, "ab") as file:
                file.write(torn)
            before = ledger.path.read_bytes()
            assert ledger.repair() == len(torn)
            assert ledger.path.read_bytes().startswith(before)
            assert ledger.total() == plan().epsilon
        ledger.commit(entry_id)
        ledger.reserve(plan(), label="run")
        assert Ledger.open(ledger.path).total() == spent((20.0, 200))
        with pytest.raises(ArgumentError, match="nothing to repair"):
            ledger.repair()

    def test_a_first_line_cut_off_is_named(self, ledger):
        whole = ledger.path.read_bytes()
        for end in range(len(whole) - 1):
            ledger.path.write_bytes(whole[:end])
            with pytest.raises(FileError, match=r"its creation was cut short|its first line was cut off"):
                Ledger.open(ledger.path)
        ledger.path.write_bytes(whole[:-1])
        ledger.reserve(plan(), label="run")
        assert ledger.total() == plan().epsilon

    def test_any_changed_byte_is_noticed(self, ledger, lines):
        whole = b"".join(lines)
        for position in range(0, len(whole), 23):
            changed = bytearray(whole)
            changed[position] = ord("7") if changed[position] != ord("7") else ord("8")
            ledger.path.write_bytes(changed)
            with pytest.raises(FileError) as caught:
                Ledger.open(ledger.path).total()
            assert "\n" not in str(caught.value)

    def test_lines_lost_repeated_or_moved_are_noticed(self, ledger, lines):
        for i in range(1, len(lines) - 1):
            for wrong in (
                lines[:i] + lines[i + 1 :],
                [*lines[:i], lines[i], *lines[i:]],
                [*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]],
                [*lines[:i], b"\n", *lines[i:]],
                [*lines[:i], b"half a line\n", *lines[i:]],
            ):
                ledger.path.write_bytes(b"".join(wrong))
                with pytest.raises(FileError, match=r"line \d+ is not what nadpvi wrote"):
                    Ledger.open(ledger.path)

    def test_an_edited_last_line_is_not_taken_for_a_torn_one(self, ledger, lines):
        ledger.path.write_bytes(
            b"".join(lines).replace(b'"noise_multiplier": 20.0', b'"noise_multiplier": 90.0')[:-1]
        )
        with pytest.raises(FileError, match="not what nadpvi wrote"):
            Ledger.open(ledger.path)
        ledger.path.write_bytes(b"".join(lines) + b'{"event": "void"}')
        with pytest.raises(FileError, match="not what nadpvi wrote"):
            ledger.repair()

    @pytest.mark.parametrize(
        ("event", "message"),
        [
            (
                {"event": "reserve", "id": "1", "time": "t", "label": "x", "guarantee": None},
                "the id is taken",
            ),
            ({"event": "reserve", "id": "2", "time": "t", "label": "x", "guarantee": {}}, "guarantee lacks"),
            ({"event": "amend", "id": "9", "time": "t", "num_steps": 3}, "it is unknown"),
            ({"event": "amend", "id": "1", "time": "t", "num_steps": 3000}, "at most the 100 reserved"),
            ({"event": "forget", "id": "1", "time": "t"}, "no such event"),
            ({"event": "commit", "id": ["1"], "time": "t"}, "must be texts"),
            ({"event": "commit", "id": "1"}, "no such event"),
            ({}, "no such event"),
        ],
    )
    def test_events_that_do_not_follow_are_refused(self, ledger, event, message):
        first = {"event": "reserve", "id": "1", "time": "t", "label": "x", "guarantee": plan().to_dict()}
        for record in (first, event):
            ledger_file.append_event(ledger.path, ledger_file.read_file(ledger.path), record)
        with pytest.raises(FileError, match=f"line 3: .*{message}"):
            Ledger.open(ledger.path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (b"hello\n", "not a ledger"),
            (b"\xff\xff\n", "not a ledger"),
            (b"[" * 100_000, "not a ledger"),
            (b'{"kind": "nadpvi ledger", "format_version": 3, "new": 1}\n', "Install a newer nadpvi"),
            (b'{"kind": "nadpvi ledger", "format_version": 1}\n', "line 1 is not what nadpvi wrote"),
            (b'{"kind": "nadpvi ledger", "format_version": "x"}\n', "line 1 is not what nadpvi wrote"),
        ],
    )
    def test_foreign_and_newer_files_are_refused_in_one_line(self, tmp_path, text, message):
        path = tmp_path / "x.ledger"
        path.write_bytes(text)
        with pytest.raises(FileError, match=message):
            Ledger.open(path)
        assert path.read_bytes() == text

    def test_a_header_that_says_too_little_is_refused(self, tmp_path):
        path = tmp_path / "x.ledger"
        path.write_bytes(ledger_file._encode({"kind": "nadpvi ledger", "format_version": 1}, previous=""))
        with pytest.raises(FileError, match="line 1 is not what nadpvi wrote"):
            Ledger.open(path)


def no_lock(path):
    import contextlib

    return contextlib.nullcontext()


class TestWriting:
    def test_a_reservation_is_flushed_before_its_id_is_given_out(self, ledger, monkeypatch):
        flushed = []
        sync = os.fsync

        def watched(handle):
            flushed.append(os.fstat(handle).st_size)
            sync(handle)

        monkeypatch.setattr(os, "fsync", watched)
        ledger.reserve(plan(), label="run")
        assert flushed == [ledger.path.stat().st_size]

    def test_a_flush_that_fails_stops_the_run_and_counts_it(self, ledger, monkeypatch):
        def failing(handle):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fsync", failing)
        with pytest.raises(FileError, match="Input/output error"):
            ledger.reserve(plan(), label="run")
        assert ledger.total() == plan().epsilon

    def test_a_lock_that_is_held_is_waited_for_and_named(self, ledger, monkeypatch):
        monkeypatch.setattr(ledger_file, "_LOCK_SECONDS", 0.05)
        with ledger_file.hold_lock(ledger.path), pytest.raises(FileError, match="locked by another process"):
            ledger.reserve(plan(), label="run")
        assert ledger.entries() == ()


WRITER = """
import sys, time
from nadpvi.errors import PrivacyError
from nadpvi.privacy import ledger
from nadpvi.privacy.guarantee import Guarantee
import json
guarantee = Guarantee.from_dict(json.loads(sys.argv[1]))
composed = ledger.composed_epsilon
def slow(*arguments, **options):  # as a long composition is: both writers are between reading and appending
    time.sleep(0.1)
    return composed(*arguments, **options)
ledger.composed_epsilon = slow
print("ready", flush=True)
for line in sys.stdin:
    try:
        ledger.Ledger.open(line.strip()).reserve(guarantee, label="run")
        print("reserved", flush=True)
    except PrivacyError:
        print("refused", flush=True)
"""


def start(script, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_cannot_both_slip_under_the_cap(tmp_path):
    cap = PrivacyBudget(epsilon=plan().epsilon, delta=DELTA)
    writers = [start(WRITER, json.dumps(plan().to_dict())) for _ in range(2)]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for i in range(5):
            ledger = Ledger.create(tmp_path / f"{i}.ledger", label="people", cap=cap)
            for writer in writers:
                writer.stdin.write(f"{ledger.path}\n")
                writer.stdin.flush()
            assert sorted(writer.stdout.readline() for writer in writers) == ["refused\n", "reserved\n"]
            assert len(ledger.entries()) == 1
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


RESERVER = """
import json, sys, time
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.ledger import Ledger
ledger = Ledger.open(sys.argv[2])
print(ledger.reserve(Guarantee.from_dict(json.loads(sys.argv[1])), label="run"), flush=True)
time.sleep(600)
"""


def test_a_killed_run_counts_in_full_and_leaves_no_lock_behind(ledger):
    process = start(RESERVER, json.dumps(plan().to_dict()), ledger.path)
    try:
        entry_id = process.stdout.readline().strip()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    (entry,) = ledger.entries()
    assert (entry.id, entry.state) == (entry_id, EntryState.RESERVED)
    assert ledger.total() == plan().epsilon
    ledger.commit(ledger.reserve(plan(), label="the next"))
    assert ledger.total() == spent((20.0, 200))


CRAMPED = """
import json, os, resource, sys
from nadpvi.errors import FileError
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.ledger import Ledger
ledger = Ledger.open(sys.argv[2])
for room in (0, 1, 300):
    limit = os.path.getsize(ledger.path) + room
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        ledger.reserve(Guarantee.from_dict(json.loads(sys.argv[1])), label="run")
    except FileError as error:
        print(error)
"""


def test_a_full_disk_leaves_the_ledger_as_it_was(ledger):
    ledger.reserve(plan(), label="run")
    before = ledger.path.read_bytes()
    out, err = start(CRAMPED, json.dumps(plan().to_dict()), ledger.path).communicate(timeout=120)
    assert err == ""
    assert out == f"cannot write to {ledger.path}: File too large.\n" * 3
    assert ledger.path.read_bytes() == before
    assert ledger.total() == plan().epsilon


def command(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "nadpvi", "ledger", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_command_line(tmp_path):
    name = "people é.ledger"
    made = command(
        name, "--create", "--label", "people [b]", "--cap-epsilon", "5", "--cap-delta", "1e-5", cwd=tmp_path
    )
    assert made.returncode == 0, made.stderr
    assert "left: 5" in made.stdout
    ledger = Ledger.open(tmp_path / name)
    ledger.commit(ledger.reserve(plan(), label="first [red] try"))
    ledger.amend(ledger.reserve(plan(), label="second"), num_steps=30)
    ledger.reserve(plan(sigma=0.0, budget=NonPrivate()), label="no noise")

    shown = command(name, cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    for text in (
        "people [b]",
        "first [red] try",
        "30 of 100 steps",
        "not private, not counted",
        f"total: epsilon {ledger.total():.6g} at delta 1e-05, 2 of 3 runs counted",
        "the total is for: adding or removing one record",
        "cap: epsilon 5 at delta 1e-05, add_or_remove_one;",
        f"left: {5 - ledger.total():.6g}",
    ):
        assert text in shown.stdout

    result = json.loads(command(name, "--json", cwd=tmp_path).stdout)
    kind = {"neighbouring_relation": "add_or_remove_one", "unit": "one record"}
    assert result["total"] == {"epsilon": ledger.total(), "delta": DELTA} | kind
    assert result["cap"] == {"epsilon": 5.0, "delta": DELTA, "neighbouring_relation": "add_or_remove_one"}
    assert [run["state"] for run in result["runs"]] == ["committed", "amended", "reserved"]
    assert result["runs"][2]["epsilon"] is None


def test_command_line_on_a_torn_ledger(ledger, tmp_path):
    ledger.reserve(plan(), label="whole")
    with open(ledger.path, "ab") as file:
        file.write(b'{"event": "res')
    shown = command(ledger.path.name, cwd=tmp_path)
    assert shown.returncode == 1
    assert "whole" in shown.stdout
    assert "total" not in shown.stdout
    assert shown.stderr.startswith("nadpvi: error: the last line of ")
    assert shown.stderr.count("\n") == 1
    repaired = command(ledger.path.name, "--repair", cwd=tmp_path)
    assert repaired.returncode == 0
    assert "14 bytes" in repaired.stderr
    assert "total: epsilon" in repaired.stdout


def test_command_line_of_replace_one(tmp_path):
    made = command(
        "x.ledger",
        "--create",
        "--label",
        "x",
        *CAPPED[3:],
        "--neighbouring-relation",
        "replace_one",
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    ledger = Ledger.open(tmp_path / "x.ledger")
    ledger.reserve(plan(sigma=50.0, unit="one person", records_per_unit=2), label="run")
    shown = command("x.ledger", cwd=tmp_path).stdout
    assert f"total: epsilon {spent((12.5, 100)):.6g} at delta 1e-05" in shown
    assert "the total is for: replacing one person by another" in shown
    assert "at delta 1e-05, replace_one; left:" in shown


CAPPED = ["--create", "--label", "x", "--cap-epsilon", "9", "--cap-delta", "1e-5"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 1, "does not exist"),
        (["--create"], 2, "--create needs --label"),
        (["--label", "x"], 2, "go with --create"),
        (["--create", "--repair", "--label", "x"], 2, "exclude each other"),
        (["--create", "--label", "x", "--cap-epsilon", "1"], 2, "go together"),
        (["--neighbouring-relation", "replace_one"], 2, "go with --create"),
        (["--create", "--label", "x", "--neighbouring-relation", "replace_one"], 2, "that of a cap"),
        ([*CAPPED, "--neighbouring-relation", "swap"], 2, "--neighbouring-relation must be"),
        (["--create", "--label", "x", "--cap-epsilon", "0", "--cap-delta", "1e-5"], 2, "epsilon must be"),
    ],
)
def test_command_line_refusals(tmp_path, monkeypatch, capsys, options, code, message):
    from nadpvi.cli.app import main

    monkeypatch.setattr(sys, "argv", ["nadpvi", "ledger", str(tmp_path / "x.ledger"), *options])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as stop:
            main()
    finally:
        signal.signal(signal.SIGTERM, handler)
    said = capsys.readouterr()
    assert stop.value.code == code
    assert message in said.err
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert not (tmp_path / "x.ledger").exists()


class TestStepsThatComeToLight:
    @pytest.fixture
    def entry(self, tmp_path):
        """Return a ledger and the entry of a run of 100 steps that was amended to 10."""
        book = Ledger.create(tmp_path / "light", label="people")
        entry = book.reserve(plan(), label="run")
        book.amend(entry, num_steps=10)
        return book, entry

    def test_they_count(self, entry):
        book, identity = entry
        before = book.total()
        book.extend(identity, num_steps=60)
        (one,) = Ledger.open(book.path).entries()
        assert (one.num_steps, one.state) == (60, EntryState.AMENDED)
        assert book.total() > before

    @pytest.mark.parametrize("num_steps", [10, 9, 101])
    def test_only_more_and_only_up_to_what_was_planned(self, entry, num_steps):
        book, identity = entry
        with pytest.raises(ArgumentError, match="above the 10 that count and at most the 100 planned"):
            book.extend(identity, num_steps=num_steps)

    def test_only_of_a_settled_run(self, tmp_path):
        book = Ledger.create(tmp_path / "open", label="people")
        identity = book.reserve(plan(), label="run")
        with pytest.raises(ArgumentError, match="cannot extend"):
            book.extend(identity, num_steps=5)
        with pytest.raises(ArgumentError, match="unknown"):
            book.extend("0000", num_steps=5)

    def test_the_cap_has_a_say_only_before_they_are_out(self, tmp_path):
        run = plan()
        cap = PrivacyBudget(epsilon=run.epsilon * 1.01, delta=DELTA)
        book = Ledger.create(tmp_path / "tight", label="people", cap=cap)
        first = book.reserve(run, label="first")
        book.amend(first, num_steps=10)
        book.commit(book.reserve(dataclasses.replace(run, num_steps=80), label="second"))
        with pytest.raises(PrivacyError, match="cap"):
            book.extend(first, num_steps=60)
        book.extend(first, num_steps=60, is_planned=False)
        assert book.total() > cap.epsilon
