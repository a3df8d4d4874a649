"""Tasks on a real Dask cluster of separate processes on this machine."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runner_cases import (
    Lines,
    assert_same,
    draw,
    draw_or_die,
    draw_or_die_once,
    draw_or_fail,
    kill_scheduler,
    make_tasks,
)

import nadpvi
from nadpvi.errors import ArgumentError
from nadpvi.experiments.backend_dask import check_versions
from nadpvi.experiments.runner import run_tasks
from nadpvi.experiments.tasks import TasksInterrupted, WorkerError

distributed = pytest.importorskip("distributed")


def wait_for(condition, *, what, log=None):
    """Wait for another process; the limit only ends a test that would hang."""
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen" + ("" if log is None else f":\n{log.read_text()}"))


def names_of_tasks(dask_scheduler):
    return list(dask_scheduler.tasks)


class Cluster:
    """A scheduler and its workers, each a process with a session of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = []
        self.log = folder / "cluster.log"
        self.file = folder / "scheduler.json"
        roots = [str(Path(__file__).parent), str(Path(nadpvi.__file__).parents[1])]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*roots, os.environ.get("PYTHONPATH", "")]),
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
        }
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        wait_for(
            lambda: self.file.exists() and self.file.read_text().endswith("}"), what="start", log=self.log
        )
        with distributed.Client(scheduler_file=str(self.file), set_as_default=False) as client:
            self.address = client.scheduler.address

    def start(self, part, *options):
        command = [sys.executable, "-m", "dask", part, *options, "--scheduler-file", str(self.file)]
        with open(self.log, "ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start_worker(self):
        # Without a nanny, which would start a killed one anew.
        return self.start(
            "worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1",
            "--local-directory", str(self.folder),
        )  # fmt: skip

    def stop(self):
        for process in reversed(self.processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def cluster(tmp_path_factory):
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield started
    finally:
        started.stop()


def test_two_workers_one_killed_midway_give_the_numbers_of_one_machine(cluster, tmp_path):
    workers = [cluster.start_worker(), cluster.start_worker()]
    plain = make_tasks(24)
    tasks = [*plain[:9], *make_tasks(10, dies_once=str(tmp_path / "died"))[9:], *plain[10:]]
    far = run_tasks(draw_or_die_once, tasks, folder=tmp_path / "far", scheduler=cluster.address)
    wait_for(lambda: any(worker.poll() is not None for worker in workers), what="death of a worker")
    assert sorted(worker.poll() or 0 for worker in workers) == [-signal.SIGKILL, 0]
    assert (tmp_path / "died").exists()
    assert not far.failures
    assert list(far.results) == [task.name for task in tasks]
    for count in (1, 2):
        here = run_tasks(draw, plain, folder=tmp_path / f"here-{count}", workers=count)
        assert_same(far.results, here.results)
    again = run_tasks(draw_or_die_once, tasks, folder=tmp_path / "far")
    assert again.num_reused == 24
    assert_same(far.results, again.results)


def test_bad_tasks_are_reported_and_the_rest_is_done(cluster, tmp_path):
    for _ in range(3):
        cluster.start_worker()
    lines = Lines()
    tasks = [*make_tasks(4), *make_tasks(5, dies=True)[4:]]
    with distributed.Client(cluster.address, set_as_default=False) as client:
        client.wait_for_workers(3)
    report = run_tasks(draw_or_die, tasks, folder=tmp_path, scheduler=cluster.address, console=lines.console)
    assert [failure.name for failure in report.failures] == ["task-004"]
    assert "task task-004 failed: its worker process died" in lines.text
    assert list(report.results) == [task.name for task in tasks[:4]]
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.npz" for name in report.results} | {
        "task-004.failed.txt"
    }
    # The last worker is alive, and goes on to a run whose tasks raise.
    raising = run_tasks(draw_or_fail, make_tasks(4), folder=tmp_path / "raise", scheduler=cluster.address)
    assert [failure.error for failure in raising.failures] == ["ValueError: two lines", "SystemExit: 3"]
    assert "runner_cases.py" in raising.failures[0].details


def test_a_run_waits_for_workers_and_says_so(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("nadpvi.experiments.backend_dask._WATCH_EVERY", 0.2)
    first = Lines(when="has no workers yet; waiting. Start one by: dask worker", then=cluster.start_worker)
    arguments = {"folder": tmp_path / "kept", "scheduler": cluster.address}
    tasks = make_tasks(3, dies_once=str(tmp_path / "died"))
    second = Lines(when="has no workers left; waiting. Start one by: dask worker", then=cluster.start_worker)
    run_tasks(draw_or_die_once, make_tasks(1), **arguments, console=first.console)
    assert first.when is None
    report = run_tasks(draw_or_die_once, tasks, **arguments, console=second.console)
    assert second.when is None
    assert (tmp_path / "died").exists()
    assert_same(report.results, run_tasks(draw, make_tasks(3), folder=tmp_path / "here").results)


def test_an_interrupt_keeps_what_is_finished_and_takes_the_rest_off_the_cluster(cluster, tmp_path):
    cluster.start_worker()

    def stop():
        raise KeyboardInterrupt

    lines = Lines(when="1 of 10 tasks are done", then=stop)
    with pytest.raises(TasksInterrupted, match="1 of 10 tasks are done and kept"):
        run_tasks(draw, make_tasks(10), folder=tmp_path, scheduler=cluster.address, console=lines.console)
    assert len(list(tmp_path.iterdir())) == 1
    with distributed.Client(cluster.address, set_as_default=False) as client:
        wait_for(
            lambda: not client.run_on_scheduler(names_of_tasks), what="end of all tasks", log=cluster.log
        )


def test_a_function_that_a_worker_cannot_import_is_one_line(cluster, tmp_path):
    cluster.environment["PYTHONPATH"] = str(Path(nadpvi.__file__).parents[1])
    cluster.start_worker()
    with pytest.raises(ArgumentError, match=r"worker tcp://.* cannot import runner_cases; install it there"):
        run_tasks(draw, make_tasks(1), folder=tmp_path, scheduler=cluster.address)


def test_a_scheduler_that_goes_away_keeps_what_is_finished(cluster, tmp_path):
    cluster.start_worker()
    tasks = [
        *make_tasks(1),
        *make_tasks(3, kills=cluster.scheduler.pid, when=str(tmp_path / "task-000.npz"))[1:],
    ]
    with pytest.raises(WorkerError, match=f"the scheduler at {cluster.address} went away; finished results"):
        run_tasks(kill_scheduler, tasks, folder=tmp_path, scheduler=cluster.address)
    assert [path.name for path in tmp_path.iterdir()] == ["task-000.npz"]


def test_nothing_is_asked_of_the_cluster_when_all_is_there(tmp_path):
    first = run_tasks(draw, make_tasks(2), folder=tmp_path)
    second = run_tasks(draw, make_tasks(2), folder=tmp_path, scheduler="tcp://127.0.0.1:1")
    assert_same(first.results, second.results)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x", "tcp://"])
def test_an_address_where_nothing_answers_is_one_line(tmp_path, address, monkeypatch):
    monkeypatch.setattr("nadpvi.experiments.backend_dask._PATIENCE", "1s")
    with pytest.raises(ArgumentError, match=f"no Dask scheduler answers at '{address}'"):
        run_tasks(draw, make_tasks(1), folder=tmp_path, scheduler=address)


def test_the_extra_is_named_where_distributed_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ArgumentError, match=r"pip install 'nadpvi\[distributed\]'"):
        run_tasks(draw, make_tasks(1), folder=tmp_path, scheduler="tcp://127.0.0.1:1")


def test_workers_with_other_versions_are_refused():
    ours = {"nadpvi": "1", "numpy": "2.4", "scipy": "1.17", "xarray": "3"}
    check_versions({"tcp://a": ours, "tcp://b": {**ours, "xarray": "2"}}, ours=ours)
    with pytest.raises(ArgumentError, match=r"worker tcp://b has numpy 2\.3, this process has 2\.4"):
        check_versions({"tcp://a": ours, "tcp://b": {**ours, "numpy": "2.3"}}, ours=ours)
