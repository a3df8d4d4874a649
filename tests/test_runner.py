"""The runner of tasks on one machine: same numbers from any number of workers, and a kill costs nothing."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import runner_cases
from rich.console import Console
from runner_cases import (
    Lines,
    assert_same,
    die_after,
    draw,
    draw_and_note,
    draw_or_fail,
    give,
    interrupt,
    make_tasks,
    num_threads,
    warn,
)
from threadpoolctl import threadpool_info, threadpool_limits

import nadpvi
from nadpvi.containers.storage import package_versions
from nadpvi.errors import ArgumentError, FileError
from nadpvi.experiments import task_files
from nadpvi.experiments.runner import run_tasks
from nadpvi.experiments.tasks import Task, TasksInterrupted, WorkerError


def ends(pid):
    """Whether a process ends; the limit only ends a test that would hang."""
    for _ in range(600):
        with contextlib.suppress(FileNotFoundError):
            # A process that nobody has waited for yet has ended too.
            if Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text():
                return True
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


class TestNumbers:
    def test_any_number_of_workers_gives_the_same(self, tmp_path, monkeypatch):
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            monkeypatch.setenv(name, "2")
        notes = tmp_path / "notes"
        notes.mkdir()
        tasks = make_tasks(9, notes=str(notes))
        two = run_tasks(draw_and_note, tasks, folder=tmp_path / "two", workers=2)
        workers = {int(path.name.split(".")[1]) for path in notes.iterdir()}
        # None of them stays, and none was this process.
        assert os.getpid() not in workers
        assert all(ends(worker) for worker in workers)
        one = run_tasks(draw_and_note, tasks, folder=tmp_path / "one")
        backwards = run_tasks(draw_and_note, tasks[::-1], folder=tmp_path / "backwards")
        assert list(two.results) == [task.name for task in tasks]
        assert_same(one.results, two.results)
        assert_same(one.results, dict(reversed(backwards.results.items())))
        assert len({arrays["draws"].tobytes() for arrays in one.results.values()}) == 9
        assert {int(arrays["threads"]) for arrays in two.results.values()} == {1}
        for task in tasks:
            alone = {name: np.asarray(value) for name, value in draw(task).items()}
            assert_same({"": alone}, {"": {name: one.results[task.name][name] for name in alone}})

    def test_limits_of_threads_are_those_of_the_caller_again(self, tmp_path):
        with threadpool_limits(limits=2):
            before = threadpool_info()
            assert max(library["num_threads"] for library in before) == 2
            report = run_tasks(num_threads, make_tasks(2), folder=tmp_path)
            assert [int(arrays["threads"]) for arrays in report.results.values()] == [1, 1]
            assert threadpool_info() == before

    def test_filters_of_the_caller_do_not_reach_a_task(self, tmp_path):
        lines = Lines()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            report = run_tasks(warn, make_tasks(2), folder=tmp_path, console=lines.console)
        assert not report.failures
        assert report.warnings == {"RuntimeWarning": 2, "UserWarning": 2}
        assert "UserWarning in 2 of 2 tasks." in lines.text
        assert run_tasks(warn, make_tasks(2), folder=tmp_path).warnings == report.warnings

    def test_every_kind_of_array_comes_back_from_its_file(self, tmp_path):
        task = Task(name="a", settings={"what": "all kinds"}, seed=(1,))
        made = run_tasks(give, [task], folder=tmp_path)
        read = run_tasks(give, [task], folder=tmp_path)
        assert read.num_reused == 1
        assert_same(made.results, read.results)
        assert np.signbit(read.results["a"]["odd"][2])
        assert read.task_seconds == made.task_seconds


class TestSecondRun:
    @pytest.fixture
    def notes(self, tmp_path):
        folder = tmp_path / "notes"
        folder.mkdir()
        return folder

    @pytest.fixture
    def carried_out(self, notes):
        """The tasks that were carried out since the last call."""

        def names():
            found = sorted(path.name.partition(".")[0] for path in notes.iterdir())
            for path in notes.iterdir():
                path.unlink()
            return found

        return names

    @pytest.fixture
    def tasks(self, notes):
        return make_tasks(4, notes=str(notes))

    def test_only_what_is_missing_is_done(self, tmp_path, tasks, carried_out):
        folder, lines = tmp_path / "kept", Lines()
        run_tasks(draw_and_note, tasks[:2], folder=folder)
        assert carried_out() == ["task-000", "task-001"]
        whole = run_tasks(draw_and_note, tasks, folder=folder, console=lines.console)
        assert carried_out() == ["task-002", "task-003"]
        assert whole.num_reused == 2
        assert "2 of 4 results are in" in lines.text
        assert_same(run_tasks(draw_and_note, tasks, folder=tmp_path / "new").results, whole.results)

    @pytest.mark.parametrize(
        "change",
        [{"settings": {"size": 3}}, {"seed": (7, 1, 0)}, {"seed": (8, 1)}],
        ids=["size", "path", "root"],
    )
    def test_other_settings_or_seeds_are_done_again(self, tmp_path, notes, tasks, carried_out, change):
        run_tasks(draw_and_note, tasks, folder=tmp_path / "kept")
        carried_out()
        fields = {"name": "task-001", "settings": {"size": 20}, "seed": (7, 1), **change}
        fields["settings"] = {**fields["settings"], "notes": str(notes)}
        changed, lines = [tasks[0], Task(**fields)], Lines()
        run_tasks(draw_and_note, changed, folder=tmp_path / "kept", console=lines.console)
        assert carried_out() == ["task-001"]
        assert "results of other settings, seeds or versions in" in lines.text
        assert "made again: 1." in lines.text
        assert "results of no task of this run in" in lines.text
        assert "ignored: 2." in lines.text
        run_tasks(draw_and_note, changed, folder=tmp_path / "kept")
        assert carried_out() == []

    def test_what_other_versions_made_is_done_again(self, tmp_path, tasks, carried_out, monkeypatch):
        run_tasks(draw_and_note, tasks, folder=tmp_path)
        carried_out()
        newer = package_versions() | {"numpy": "99.0"}
        monkeypatch.setattr(task_files, "package_versions", lambda: newer)
        lines = Lines()
        run_tasks(draw_and_note, tasks[:2], folder=tmp_path, console=lines.console)
        assert carried_out() == ["task-000", "task-001"]
        assert "versions" in lines.text

    @pytest.mark.parametrize("kind", ["empty", "noise", "text", "half", "last byte", "flipped", "array"])
    def test_a_damaged_file_is_done_again(self, tmp_path, tasks, carried_out, kind):
        folder, lines = tmp_path / "kept", Lines()
        first = run_tasks(draw_and_note, tasks, folder=folder)
        carried_out()
        path = folder / "task-002.npz"
        whole = path.read_bytes()
        flipped = bytearray(whole)
        flipped[whole.index(first.results["task-002"]["draws"].tobytes()) + 3] ^= 1
        array = io.BytesIO()
        np.save(array, np.zeros(3))
        damaged = {
            "empty": b"",
            "noise": bytes(range(256)) * 9,
            "text": b"PK is not enough",
            "half": whole[: len(whole) // 2],
            "last byte": whole[:-1],
            "flipped": bytes(flipped),
            "array": array.getvalue(),
        }
        path.write_bytes(damaged[kind])
        second = run_tasks(draw_and_note, tasks, folder=folder, console=lines.console)
        assert carried_out() == ["task-002"]
        assert re.search(r"damaged result files in .*, made again: 1\.", lines.text)
        assert_same(first.results, second.results)

    def test_no_cut_or_flipped_bit_gives_other_numbers(self, tmp_path):
        task = Task(name="a", settings={"size": 2}, seed=(1,))
        good = run_tasks(draw, [task], folder=tmp_path).results["a"]
        path = tmp_path / "a.npz"
        whole = path.read_bytes()
        broken = [whole[:cut] for cut in range(0, len(whole), 7)]
        for place in range(0, len(whole), 5):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << (place % 8)
            broken.append(bytes(flipped))
        where = task_files.TaskFolder(path=tmp_path, experiment="", function="runner_cases.draw")
        num_damaged = 0
        for content in broken:
            path.write_bytes(content)
            try:
                kept = where.read([task])
            except FileError:
                # A name in the archive changed: not ours any more.
                continue
            num_damaged += kept.num_damaged
            for outcome in kept.outcomes.values():
                assert_same({"a": outcome.arrays}, {"a": good})
        assert num_damaged > 0.8 * len(broken)

    def test_results_of_another_experiment_or_function_are_refused_and_stay(self, tmp_path):
        tasks = make_tasks(2)
        run_tasks(draw, tasks, folder=tmp_path, experiment="first")
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        with pytest.raises(FileError, match="is a result of first, not of second; choose another folder"):
            run_tasks(draw, tasks, folder=tmp_path, experiment="second")
        with pytest.raises(FileError, match=r"a result of runner_cases\.draw, not of runner_cases\.warn"):
            run_tasks(warn, tasks, folder=tmp_path, experiment="first")
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before

    def test_an_archive_of_somebody_else_is_refused_and_stays(self, tmp_path):
        np.savez(tmp_path / "task-000.npz", phi=np.zeros(3))
        before = (tmp_path / "task-000.npz").read_bytes()
        with pytest.raises(FileError, match="is not a result that this version of nadpvi made"):
            run_tasks(draw, make_tasks(1), folder=tmp_path)
        assert (tmp_path / "task-000.npz").read_bytes() == before


class TestFailures:
    def test_bad_tasks_are_reported_kept_on_record_and_tried_again(self, tmp_path):
        lines = Lines()
        report = run_tasks(draw_or_fail, make_tasks(6), folder=tmp_path, console=lines.console)
        assert [(failure.name, failure.error) for failure in report.failures] == [
            ("task-001", "ValueError: two lines"),
            ("task-003", "SystemExit: 3"),
            ("task-005", "ValueError: two lines"),
        ]
        assert list(report.results) == ["task-000", "task-002", "task-004"]
        assert "task task-003 failed: SystemExit: 3\n" in lines.text
        assert 'raise ValueError("two' in (tmp_path / "task-001.failed.txt").read_text()
        assert run_tasks(draw_or_fail, make_tasks(6), folder=tmp_path).failures[0].name == "task-001"

    def test_the_record_of_a_failure_goes_when_the_task_succeeds(self, tmp_path, monkeypatch):
        run_tasks(draw_or_fail, make_tasks(2), folder=tmp_path)
        assert (tmp_path / "task-001.failed.txt").exists()
        # The same name in the same module, without its fault.
        mended = lambda task: draw(task)  # noqa: E731
        mended.__module__, mended.__qualname__ = draw_or_fail.__module__, draw_or_fail.__qualname__
        report = run_tasks(mended, make_tasks(2), folder=tmp_path)
        assert report.num_reused == 1
        assert not report.failures
        assert {path.name for path in tmp_path.iterdir()} == {"task-000.npz", "task-001.npz"}

    def test_of_many_failures_the_first_are_said(self, tmp_path):
        lines = Lines()
        tasks = [Task(name=f"t{index}", settings={"size": 2}, seed=(1,)) for index in range(25)]
        report = run_tasks(draw_or_fail, tasks, folder=tmp_path, console=lines.console)
        assert len(report.failures) == 25
        assert lines.text.count("failed: ValueError") == 20
        assert "and 5 more tasks failed." in lines.text

    @pytest.mark.parametrize(
        ("what", "message"),
        [
            ("objects", "ArgumentError: a task must return numbers or text (got object for a)."),
            ("bad name", "ArgumentError: a task must name its arrays by identifiers (got 'a b')."),
            ("no mapping", "ArgumentError: a task must return a mapping of names to arrays (got list)."),
            ("ragged", "ValueError: setting an array element"),
        ],
    )
    def test_what_a_file_cannot_hold_is_a_failure(self, tmp_path, what, message):
        task = Task(name="a", settings={"what": what}, seed=(1,))
        (failure,) = run_tasks(give, [task], folder=tmp_path).failures
        assert failure.error.startswith(message)

    def test_a_killed_worker_is_one_line_and_finished_files_stay(self, tmp_path):
        folder, mended = tmp_path / "kept", tmp_path / "mended"
        deadly = {"when": str(folder / "task-000.npz"), "unless": str(mended)}
        tasks = [*make_tasks(1), *make_tasks(2, **deadly)[1:], *make_tasks(6)[2:]]
        with pytest.raises(
            WorkerError, match=r"a worker process was killed, .* finished results are kept: run again"
        ):
            run_tasks(die_after, tasks, folder=folder, workers=2)
        assert (folder / "task-000.npz").exists()
        assert not (folder / "task-001.npz").exists()
        mended.touch()
        report = run_tasks(die_after, tasks, folder=folder)
        assert report.num_reused >= 1
        assert_same(report.results, run_tasks(draw, make_tasks(6), folder=tmp_path / "plain").results)

    def test_a_full_disk_keeps_what_is_finished(self, tmp_path, monkeypatch):
        original = task_files.write_bytes

        def write_bytes(content, path, **arguments):
            if path.name == "task-002.npz":
                raise FileError(f"cannot write {path}: No space left on device.")
            return original(content, path, **arguments)

        monkeypatch.setattr(task_files, "write_bytes", write_bytes)
        with pytest.raises(FileError, match="No space left"):
            run_tasks(draw, make_tasks(4), folder=tmp_path)
        assert {path.name for path in tmp_path.iterdir()} == {"task-000.npz", "task-001.npz"}


CODE = """
import sys
from nadpvi.cli.app import main
from nadpvi.cli import app
from nadpvi.experiments.runner import run_tasks
from rich.console import Console
import runner_cases

def command(**how):
    tasks = runner_cases.make_tasks(5, notes=sys.argv[1])
    run_tasks(runner_cases.wait_forever, tasks, folder=sys.argv[2], workers=2, console=Console(stderr=True))

if __name__ == "__main__":
    app.app = command
    main()
"""


class TestInterrupts:
    def test_what_is_finished_is_kept(self, tmp_path):
        lines = Lines()
        with pytest.raises(TasksInterrupted, match=r"interrupted: 2 of 4 tasks are done and kept in") as stop:
            run_tasks(interrupt, make_tasks(4), folder=tmp_path, console=lines.console)
        assert isinstance(stop.value, KeyboardInterrupt)
        assert (stop.value.num_done, stop.value.num_tasks, stop.value.folder) == (2, 4, tmp_path)
        assert str(stop.value) in lines.text
        assert {path.name for path in tmp_path.iterdir()} == {"task-000.npz", "task-001.npz"}

    @pytest.fixture
    def running(self, tmp_path):
        """A run in a process of its own: the first task is done, two workers are at the next ones."""
        (tmp_path / "run.py").write_text(CODE)
        (tmp_path / "notes").mkdir()
        roots = [str(Path(runner_cases.__file__).parent), str(Path(nadpvi.__file__).parents[1])]
        # Interrupts are ignored in what a shell starts in the background, and that is inherited.
        process = subprocess.Popen(
            [sys.executable, "run.py", "notes", "kept"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        try:
            for _ in range(1200):
                notes = list((tmp_path / "notes").iterdir())
                if (tmp_path / "kept" / "task-000.npz").exists() and len(notes) == 2:
                    break
                assert process.poll() is None, process.communicate()
                time.sleep(0.1)
            yield process, [int(note.name.rpartition(".")[2]) for note in notes]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    @pytest.mark.parametrize(
        ("number", "is_for_all"),
        [(signal.SIGINT, True), (signal.SIGTERM, False)],
        ids=["Ctrl-C", "SIGTERM"],
    )
    def test_a_signal_ends_all_processes_with_one_line(self, tmp_path, running, number, is_for_all):
        process, workers = running
        if is_for_all:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130, err
        assert out == ""
        assert "Traceback" not in err
        assert "Warning" not in err
        assert err.count("interrupted: 1 of 5 tasks are done and kept in kept; the same call goes on") == 1
        assert err.endswith("nadpvi: interrupted\n")
        assert [path.name for path in (tmp_path / "kept").iterdir()] == ["task-000.npz"]
        assert all(ends(worker) for worker in workers)

    def test_workers_do_not_outlive_a_parent_that_was_killed(self, tmp_path, running):
        process, workers = running
        process.kill()
        assert all(ends(worker) for worker in workers)
        assert [path.name for path in (tmp_path / "kept").iterdir()] == ["task-000.npz"]


class TestConsole:
    def test_lines_at_each_tenth_where_nobody_looks(self, tmp_path):
        lines = Lines()
        run_tasks(draw, make_tasks(20, size=2), folder=tmp_path, console=lines.console)
        done = re.findall(r"^(\d+) of 20 tasks are done, about .+ left\.$", lines.text, flags=re.MULTILINE)
        assert [int(number) for number in done] == list(range(2, 20, 2))

    def test_a_bar_with_time_left_on_a_terminal(self, tmp_path):
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=True, width=100, color_system=None)
        run_tasks(draw, make_tasks(3), folder=tmp_path, console=console)
        assert "3/3" in screen.getvalue()
        assert "0 s left" in screen.getvalue()
        assert "tasks are done" not in screen.getvalue()

    def test_silent_without_a_console(self, tmp_path, capfd):
        run_tasks(draw_or_fail, make_tasks(3), folder=tmp_path)
        assert capfd.readouterr() == ("", "")


class TestArguments:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"name": "../x"}, "name of a task must start"),
            ({"name": ""}, "name of a task must start"),
            ({"name": "a" * 129}, "name of a task must start"),
            ({"name": 3}, "name of a task must start"),
            ({"settings": {"a": float("nan")}}, "settings of task a must fit JSON"),
            ({"settings": {"a": np.zeros(1)}}, "settings of task a must fit JSON"),
            ({"settings": {1: 2}}, "must be a mapping with names as keys"),
            ({"settings": [1]}, "must be a mapping with names as keys"),
            ({"seed": ()}, "seed of task a must be whole numbers"),
            ({"seed": 3}, "seed of task a must be whole numbers"),
            ({"seed": (-1,)}, "seed of task a must be whole numbers"),
            ({"seed": (1.0,)}, "seed of task a must be whole numbers"),
            ({"seed": (True,)}, "seed of task a must be whole numbers"),
        ],
    )
    def test_a_bad_task_is_one_line(self, fields, message):
        with pytest.raises(ArgumentError, match=message):
            Task(**{"name": "a", "settings": {}, "seed": (1,), **fields})

    def test_settings_are_a_copy(self):
        given = {"a": {"b": (1, 2)}}
        task = Task(name="a", settings=given, seed=(1,))
        given["a"]["b"] = None
        assert task.settings == {"a": {"b": [1, 2]}}

    def test_the_fingerprint_has_everything_in_it(self):
        base = {"name": "a", "settings": {"x": 1, "y": 2}, "seed": (1,)}
        variants = [{}, {"name": "b"}, {"settings": {"x": 1, "y": 3}}, {"seed": (1, 0)}, {"seed": (2,)}]
        prints = [Task(**{**base, **variant}).fingerprint("f") for variant in variants]
        prints.append(Task(**base).fingerprint("g"))
        assert len(set(prints)) == 6
        turned = Task(name="a", settings={"y": 2, "x": 1}, seed=(np.int64(1),))
        assert turned.fingerprint("f") == prints[0]

    def test_seeds_on_the_same_path_of_another_length_differ(self):
        paths = [(7,), (7, 0), (7, 0, 0), (7, 1)]
        states = {
            Task(name="a", settings={}, seed=path).seed_sequence().generate_state(4).tobytes()
            for path in paths
        }
        assert len(states) == 4

    @pytest.mark.parametrize("names", [("a", "a"), ("a", "A")])
    def test_two_tasks_with_one_name(self, tmp_path, names):
        tasks = [Task(name=name, settings={}, seed=(1,)) for name in names]
        with pytest.raises(ArgumentError, match="two tasks are called"):
            run_tasks(draw, tasks, folder=tmp_path)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"workers": 0}, "workers must be a whole number of at least 1"),
            ({"workers": 1.5}, "workers must be a whole number of at least 1"),
            ({"workers": 2, "scheduler": "tcp://127.0.0.1:1"}, "give one of them"),
        ],
    )
    def test_bad_workers(self, tmp_path, arguments, message):
        with pytest.raises(ArgumentError, match=message):
            run_tasks(draw, make_tasks(1), folder=tmp_path / "never", **arguments)
        assert not (tmp_path / "never").exists()

    @pytest.mark.parametrize(
        "function", [lambda task: {}, Task.fingerprint, object()], ids=["lambda", "method", "object"]
    )
    def test_a_function_that_workers_cannot_find(self, tmp_path, function):
        with pytest.raises(ArgumentError, match="function must be defined by its own name"):
            run_tasks(function, make_tasks(1), folder=tmp_path)

    def test_a_folder_that_is_a_file(self, tmp_path):
        (tmp_path / "x").touch()
        with pytest.raises(FileError, match="cannot make folder"):
            run_tasks(draw, make_tasks(1), folder=tmp_path / "x")

    def test_no_tasks_are_no_work(self, tmp_path):
        report = run_tasks(draw, [], folder=tmp_path, workers=2)
        assert report.results == {}

    def test_a_file_says_what_made_it(self, tmp_path):
        run_tasks(draw, make_tasks(1), folder=tmp_path, experiment="gamma")
        with np.load(tmp_path / "task-000.npz") as archive:
            header = json.loads(archive["nadpvi-task"].tobytes())
        assert header["experiment"] == "gamma"
        assert header["function"] == "runner_cases.draw"
        assert header["settings"] == {"size": 20}
        assert header["seed"] == [7, 0]
        assert header["versions"]["numpy"] == np.__version__
