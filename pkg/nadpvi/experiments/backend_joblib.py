"""Tasks in the processes of one machine."""

import functools
import os
import signal
import threading
import time
import warnings
from collections.abc import Generator, Sequence
from concurrent.futures.process import BrokenProcessPool

from nadpvi.experiments.tasks import Outcome, Task, TaskFunction, WorkerError, carry_out

__all__ = ["run_here"]


def run_here(
    function: TaskFunction, tasks: Sequence[Task], *, workers: int
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of tasks as they are finished, in any order.

    Parameters
    ----------
    function : callable
        What a task runs.
    tasks : sequence of Task
        What is to be done.
    workers : int
        How many processes; with 1, all is done in this one.

    Raises
    ------
    WorkerError
        If a process was killed, or could not be started.
    """
    if workers == 1 or len(tasks) <= 1:
        yield from (carry_out(task, function) for task in tasks)
        return
    from joblib import Parallel, delayed, parallel_config

    # In batches of one: what a batch had finished would be lost with its process.
    jobs = (delayed(_carry_out_in_worker)(task, function, parent=os.getpid()) for task in tasks)
    try:
        with parallel_config("loky", n_jobs=min(workers, len(tasks)), inner_max_num_threads=1):
            outcomes = Parallel(return_as="generator_unordered", batch_size=1, max_nbytes=None)(jobs)
        try:
            yield from outcomes
        finally:
            with warnings.catch_warnings():
                # That tasks are left undone when a run is ended early is known.
                warnings.simplefilter("ignore", UserWarning)
                outcomes.close()
    except BrokenProcessPool as error:
        raise WorkerError(
            "a worker process was killed, perhaps for want of memory; finished results are kept: run again "
            "for the rest, with fewer workers if it was memory."
        ) from error
    finally:
        _stop_workers()


def _carry_out_in_worker(task: Task, function: TaskFunction, *, parent: int) -> Outcome:
    """Return the outcome of one task in a process that leaves Ctrl-C to its parent, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _follow(parent)
    return carry_out(task, function)


@functools.cache
def _follow(parent: int) -> None:
    """Let this process end soon after its parent, which may be killed without a chance to say so."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="follow-parent", daemon=True).start()


def _stop_workers() -> None:
    """End the pool that joblib would keep waiting for more."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)
