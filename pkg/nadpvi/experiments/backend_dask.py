"""Tasks on a Dask cluster: any number of machines, which one scheduler knows."""

import contextlib
import functools
import secrets
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from nadpvi.containers.storage import package_versions
from nadpvi.errors import ArgumentError
from nadpvi.experiments.tasks import Outcome, Task, TaskFunction, WorkerError, carry_out

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["check_versions", "run_on_cluster"]

# How long a scheduler may take to answer.
_PATIENCE = "10s"

# Seconds between looks at whether any worker is left.
_WATCH_EVERY = 10.0

# What random streams and arithmetic depend on.
_MUST_AGREE = ("nadpvi", "numpy", "scipy")


def run_on_cluster(
    function: TaskFunction, tasks: Sequence[Task], *, scheduler: str, say: Callable[[str], None]
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of tasks as they are finished, in any order.

    Dask gives the tasks of a worker that died to another one, and gives up a task that saw several die.

    Parameters
    ----------
    function : callable
        What a task runs; the workers import it.
    tasks : sequence of Task
        What is to be done.
    scheduler : str
        Address such as ``tcp://host:8786``, as ``dask scheduler`` prints it.
    say : callable
        Takes a line for the user.

    Raises
    ------
    ArgumentError
        If `distributed` is not installed, nothing answers at the address, or the workers have other versions.
    WorkerError
        If the scheduler went away.
    """
    client = _connect(scheduler)
    try:
        _check_workers(client, function, scheduler=scheduler, say=say)
        with _watch_workers(client, scheduler=scheduler, say=say):
            yield from _collect(client, function, tasks)
    except (CancelledError, OSError) as error:
        raise WorkerError(
            f"the scheduler at {scheduler} went away; finished results are kept: start it and run again."
        ) from error
    finally:
        client.close()


def _collect(
    client: "Client", function: TaskFunction, tasks: Sequence[Task]
) -> Generator[Outcome, None, None]:
    """Hand out the tasks and yield what comes back."""
    from distributed import as_completed

    # A name of its own for every run: a scheduler answers a name it has seen with the result that it has.
    run = secrets.token_hex(8)
    names = {f"{task.name}-{run}": task.name for task in tasks}
    work = functools.partial(carry_out, function=function)
    futures = client.map(work, tasks, key=list(names), pure=False)
    finished = as_completed(futures, loop=client.loop)
    # Only what is still to come is held, so that the cluster can forget each result that has arrived.
    del futures
    for future in finished:
        yield _to_outcome(future, names[future.key])


def _to_outcome(future: "Future[Any]", name: str) -> Outcome:
    """Return what a task gave, or why Dask gave it up."""
    from distributed import KilledWorker

    if future.status == "error":
        error = future.exception()
        if isinstance(error, KilledWorker):
            return Outcome(
                name, {}, 0.0, error="its worker process died, and so did those that tried it again"
            )
        text = " ".join(str(error).split())
        return Outcome(name, {}, 0.0, error=f"{type(error).__name__}: {text}")
    outcome: Outcome = future.result()
    return outcome


def _connect(scheduler: str) -> "Client":
    """Return a client of the scheduler, or raise `ArgumentError`."""
    try:
        from distributed import Client
    except ImportError:
        raise ArgumentError(
            "scheduler: a Dask cluster needs the package distributed; pip install 'nadpvi[distributed]', or "
            "leave scheduler out to work on this machine."
        ) from None
    try:
        return Client(scheduler, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise ArgumentError(
            f"scheduler: no Dask scheduler answers at {scheduler!r}; start one by `dask scheduler` and "
            "give the address that it prints, such as tcp://host:8786."
        ) from error


def _check_workers(
    client: "Client", function: TaskFunction, *, scheduler: str, say: Callable[[str], None]
) -> None:
    """Wait for a worker, and raise `ArgumentError` unless all can import what this process has.

    A worker ends without a word when it is sent something that it cannot import, hence questions that
    Python's own functions answer.
    """
    if not client.nthreads():
        say(f"{scheduler} has no workers yet; waiting. Start one by: dask worker {scheduler} --nthreads 1")
        client.wait_for_workers(1)
    for module in (Task.__module__, function.__module__):
        for address, found in client.run(find_spec, module, on_error="return").items():
            if found is None or isinstance(found, Exception):
                raise ArgumentError(
                    f"scheduler: worker {address} cannot import {module}; install it there, or put it on the "
                    "worker's PYTHONPATH."
                )
    versions: dict[str, dict[str, str]] = {}
    for package in _MUST_AGREE:
        for address, found in client.run(version, package, on_error="return").items():
            if isinstance(found, str):
                versions.setdefault(address, {})[package] = found
    check_versions(versions, ours=package_versions())
    if any(count > 1 for count in client.nthreads().values()):
        say("a worker does one task at a time whatever its threads; start more workers with --nthreads 1.")


@contextlib.contextmanager
def _watch_workers(client: "Client", *, scheduler: str, say: Callable[[str], None]) -> Iterator[None]:
    """Say so when no worker is left, which Dask waits out in silence."""
    is_over = threading.Event()

    def watch() -> None:
        has_workers = True
        while not is_over.wait(_WATCH_EVERY):
            # Whatever ends the connection is reported where results are collected.
            with contextlib.suppress(Exception):
                had_workers, has_workers = has_workers, bool(client.nthreads())
                if had_workers and not has_workers:
                    say(
                        f"{scheduler} has no workers left; waiting. "
                        f"Start one by: dask worker {scheduler} --nthreads 1"
                    )

    watcher = threading.Thread(target=watch, name="watch-workers", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def check_versions(found: Mapping[str, Mapping[str, str]], *, ours: Mapping[str, str]) -> None:
    """Raise `ArgumentError` unless every worker, by address, has the packages that numbers depend on."""
    for address, versions in sorted(found.items()):
        for package in _MUST_AGREE:
            if versions.get(package) != ours.get(package):
                raise ArgumentError(
                    f"scheduler: worker {address} has {package} {versions.get(package)}, this process has "
                    f"{ours.get(package)}; install the same version, or numbers may differ."
                )
