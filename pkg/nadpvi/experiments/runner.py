"""Thousands of tasks, on one machine or on a cluster, with one file per finished task."""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from nadpvi.checks import check_count
from nadpvi.errors import ArgumentError
from nadpvi.experiments.backend_dask import run_on_cluster
from nadpvi.experiments.backend_joblib import run_here
from nadpvi.experiments.task_files import Kept, TaskFolder
from nadpvi.experiments.task_progress import say_to, track_tasks
from nadpvi.experiments.tasks import (
    Outcome,
    RunReport,
    Task,
    TaskFailure,
    TaskFunction,
    TasksInterrupted,
    check_tasks,
    function_name,
)

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run_tasks"]

# More lines than this of failures that are said to a person; all are in the report and in the folder.
_MOST_FAILURES = 20


def run_tasks(
    function: TaskFunction,
    tasks: Iterable[Task],
    *,
    folder: str | os.PathLike[str],
    experiment: str = "",
    workers: int = 1,
    scheduler: str | None = None,
    console: "Console | None" = None,
) -> RunReport:
    """Return the arrays of all tasks, computing those that `folder` does not hold yet.

    The same numbers come from any number of workers and from a cluster, as long as `function` draws from its
    task's seed alone and the machines have the same libraries. Each result is put in ``folder/NAME.npz`` by
    this process as soon as it arrives, so that a kill costs the tasks that were under way; the next call
    reads what is there and does the rest. A result counts only if it is whole and was made by the same
    function from the same settings and seed. A changed *body* of the function does not show: name another
    folder after one.

    Parameters
    ----------
    function : callable
        Pure function of a task, defined by its own name in a module that workers can import; returns a
        mapping of identifiers to small arrays of numbers or text.
    tasks : iterable of Task
        What is to be done. Names are unique, capitals aside.
    folder : path
        Where results are kept; made where missing. The reason of a failure is in ``NAME.failed.txt`` there.
    experiment : str
        Whose results these are. A folder with those of another experiment is refused.
    workers : int
        Processes on this machine; 1 works in this one.
    scheduler : str, optional
        Address of a Dask scheduler, in place of `workers`; needs the extra ``distributed``.
    console : rich.console.Console, optional
        Where progress, failures and warnings are shown; None is silent.

    Raises
    ------
    ArgumentError
        If an argument is not as described, or the cluster cannot be used.
    FileError
        If the folder is not usable, holds results of another experiment, or a result cannot be written.
    WorkerError
        If a worker process of this machine was killed or the scheduler went away; finished results are kept.
    TasksInterrupted
        On Ctrl-C; finished results are kept.
    """
    start = time.monotonic()
    checked = check_tasks(tasks)
    if scheduler is not None and workers != 1:
        raise ArgumentError(
            "workers are processes of this machine; a scheduler has its own: give one of them."
        )
    count = check_count("workers", workers)
    where = TaskFolder(path=Path(folder), experiment=experiment, function=function_name(function))
    kept = where.read(checked)
    _say_kept(kept, num_tasks=len(checked), folder=where.path, console=console)
    todo = tuple(task for task in checked if task.name not in kept.outcomes)
    made: Generator[Outcome, None, None]
    if scheduler is None or not todo:
        made = run_here(function, todo, workers=count)
    else:
        made = run_on_cluster(function, todo, scheduler=scheduler, say=lambda line: say_to(console, line))
    outcomes = dict(kept.outcomes)
    try:
        _keep(made, todo, where=where, outcomes=outcomes, console=console)
    except KeyboardInterrupt:
        num_done = sum(not outcome.error for outcome in outcomes.values())
        stop = TasksInterrupted(num_done=num_done, num_tasks=len(checked), folder=where.path)
        say_to(console, str(stop))
        raise stop from None
    report = _to_report(checked, outcomes, num_reused=len(kept.outcomes), seconds=time.monotonic() - start)
    _say_trouble(report, folder=where.path, console=console)
    return report


def _keep(
    made: Generator[Outcome, None, None],
    todo: tuple[Task, ...],
    *,
    where: TaskFolder,
    outcomes: dict[str, Outcome],
    console: "Console | None",
) -> None:
    """Write each outcome as it arrives, and add it to `outcomes`, which an interrupt leaves as they are."""
    by_name = {task.name: task for task in todo}
    shown = track_tasks(made, total=len(todo), console=console)
    # The bar goes first, then the workers.
    with contextlib.closing(made), contextlib.closing(shown):
        for outcome in shown:
            where.write(by_name[outcome.name], outcome)
            outcomes[outcome.name] = outcome


def _to_report(
    tasks: tuple[Task, ...], outcomes: dict[str, Outcome], *, num_reused: int, seconds: float
) -> RunReport:
    """Return the report, in the order of the tasks, not of their completion."""
    ordered = [outcomes[task.name] for task in tasks]
    good = [outcome for outcome in ordered if not outcome.error]
    caught: Counter[str] = Counter()
    for outcome in ordered:
        caught.update({line.partition(":")[0] for line in outcome.caught})
    return RunReport(
        results={outcome.name: outcome.arrays for outcome in good},
        failures=tuple(
            TaskFailure(name=outcome.name, error=outcome.error, details=outcome.details)
            for outcome in ordered
            if outcome.error
        ),
        seconds=seconds,
        task_seconds={outcome.name: outcome.seconds for outcome in good},
        num_reused=num_reused,
        warnings=dict(sorted(caught.items())),
    )


def _say_kept(kept: Kept, *, num_tasks: int, folder: Path, console: "Console | None") -> None:
    """Say what the folder holds, if anything."""
    if kept.outcomes:
        say_to(console, f"{len(kept.outcomes)} of {num_tasks} results are in {folder} already.")
    if kept.num_damaged:
        say_to(console, f"damaged result files in {folder}, made again: {kept.num_damaged}.")
    if kept.num_outdated:
        say_to(
            console,
            f"results of other settings, seeds or versions in {folder}, made again: {kept.num_outdated}.",
        )
    if kept.num_others:
        say_to(console, f"results of no task of this run in {folder}, ignored: {kept.num_others}.")


def _say_trouble(report: RunReport, *, folder: Path, console: "Console | None") -> None:
    """Say which tasks failed, one line each, and which warnings were given."""
    for category, count in report.warnings.items():
        say_to(console, f"{category} in {count} of {len(report.task_seconds) + len(report.failures)} tasks.")
    for failure in report.failures[:_MOST_FAILURES]:
        say_to(console, str(failure))
    if len(report.failures) > _MOST_FAILURES:
        say_to(console, f"and {len(report.failures) - _MOST_FAILURES} more tasks failed.")
    if report.failures:
        say_to(console, f"tracebacks are in {folder}/*.failed.txt; the next run tries these tasks again.")
