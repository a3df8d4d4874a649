"""What a task of an experiment is, how one is carried out, and what a run of many gives back."""

import hashlib
import json
import re
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# Its BLAS is another one than NumPy's: loaded before a limit is set on the threads of what is loaded.
import scipy.linalg  # noqa: F401
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nadpvi.errors import ArgumentError, NadpviError

__all__ = [
    "Array",
    "Outcome",
    "RunReport",
    "Task",
    "TaskFailure",
    "TaskFunction",
    "TasksInterrupted",
    "WorkerError",
    "carry_out",
    "check_tasks",
    "function_name",
    "one_line",
]

Array = NDArray[Any]

# Safe as the stem of a file on every system.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

# Filters of warnings and limits of threads belong to a process, not to a thread: one task at a time.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One pure computation of an experiment.

    Attributes
    ----------
    name : str
        Unique among the tasks of a run; stem of the file that keeps the result. Letters, digits, ``.``, ``_``
        and ``-``, at most 128 of them.
    settings : mapping
        What the function is told, as JSON can hold it; kept as a copy, with tuples as lists.
    seed : tuple of int
        Entropy of the root `numpy.random.SeedSequence`, then the path of children that leads to this task.

    Raises
    ------
    ArgumentError
        If one of them is not as described.

    Examples
    --------
    >>> task = Task(name="replicate-2", settings={"epsilon": 0.1}, seed=(7, 2))
    >>> child = np.random.SeedSequence(7).spawn(3)[2]
    >>> bool((task.seed_sequence().generate_state(4) == child.generate_state(4)).all())
    True
    """

    name: str
    settings: Mapping[str, Any]
    seed: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ArgumentError(
                "name of a task must start with a letter or digit and hold only letters, digits, '.', '_' "
                f"and '-', at most 128 (got {self.name!r})."
            )
        if not isinstance(self.settings, Mapping) or not all(isinstance(key, str) for key in self.settings):
            raise ArgumentError(f"settings of task {self.name} must be a mapping with names as keys.")
        try:
            settings = json.loads(json.dumps(dict(self.settings), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise ArgumentError(f"settings of task {self.name} must fit JSON: {error}.") from error
        is_seed = isinstance(self.seed, tuple | list) and len(self.seed) > 0
        if not is_seed or any(not _is_natural(part) for part in self.seed):
            raise ArgumentError(f"seed of task {self.name} must be whole numbers from 0 (got {self.seed!r}).")
        object.__setattr__(self, "settings", settings)
        object.__setattr__(self, "seed", tuple(int(part) for part in self.seed))

    def seed_sequence(self) -> np.random.SeedSequence:
        """Return the seed of this task; children are spawned from it, and nothing else draws from them."""
        return np.random.SeedSequence(self.seed[0], spawn_key=self.seed[1:])

    def fingerprint(self, function: str) -> str:
        """Return a digest of all that decides the result: the function's name, the settings and the seed."""
        text = json.dumps([function, self.name, self.settings, self.seed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _is_natural(value: object) -> bool:
    """Return whether a value is a whole number from 0."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


TaskFunction = Callable[[Task], Mapping[str, Any]]


class Outcome(NamedTuple):
    """What came of one task, in a form that any process can send to any other.

    ``error`` is empty for a task that succeeded, else one line; ``details`` is its traceback. ``caught``
    holds the distinct warnings as ``Category: message``.
    """

    name: str
    arrays: dict[str, Array]
    seconds: float
    caught: tuple[str, ...] = ()
    error: str = ""
    details: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFailure:
    """A task that failed: its name, the reason in one line, and the traceback where there is one."""

    name: str
    error: str
    details: str = ""

    def __str__(self) -> str:
        return f"task {self.name} failed: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunReport:
    """Results of a run.

    Attributes
    ----------
    results : dict
        Arrays of every task that has them, by name, in the order of the tasks.
    failures : tuple of TaskFailure
        Tasks that failed in this run, in the order of the tasks. The next run tries them again.
    seconds : float
        How long this run took.
    task_seconds : dict
        How long each task took where it ran, also of those that an earlier run did.
    num_reused : int
        How many results were read instead of made.
    warnings : dict
        In how many tasks a warning of each category was given.
    """

    results: dict[str, dict[str, Array]]
    failures: tuple[TaskFailure, ...]
    seconds: float
    task_seconds: dict[str, float] = field(default_factory=dict)
    num_reused: int = 0
    warnings: dict[str, int] = field(default_factory=dict)


class WorkerError(NadpviError, RuntimeError):
    """The processes that carry out tasks are gone; what was finished is kept."""


class TasksInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a run of tasks; what was finished is kept.

    Attributes
    ----------
    num_done, num_tasks : int
        How many tasks have their result, and how many there are.
    folder : Path
        Where the results are.
    """

    def __init__(self, *, num_done: int, num_tasks: int, folder: Path) -> None:
        super().__init__(
            f"interrupted: {num_done} of {num_tasks} tasks are done and kept in {folder}; "
            "the same call goes on from there."
        )
        self.num_done, self.num_tasks, self.folder = num_done, num_tasks, folder


def function_name(function: TaskFunction) -> str:
    """Return ``module.name`` of a function that other processes can import, or raise `ArgumentError`."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not module or not name or module == "__main__" or not name.isidentifier():
        raise ArgumentError(
            "function must be defined by its own name in an importable module, so that workers can find it "
            f"(got {name or function!r} of {module})."
        )
    return f"{module}.{name}"


def check_tasks(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Return the tasks, or raise `ArgumentError` if two of them would share a file on some system."""
    checked = tuple(tasks)
    seen: set[str] = set()
    for task in checked:
        if not isinstance(task, Task):
            raise ArgumentError(f"tasks must be nadpvi.experiments.tasks.Task (got {type(task).__name__}).")
        if task.name.casefold() in seen:
            raise ArgumentError(f"two tasks are called {task.name} (capitals aside); give each its own name.")
        seen.add(task.name.casefold())
    return checked


def carry_out(task: Task, function: TaskFunction) -> Outcome:
    """Return the outcome of one task, whatever it raises; runs where the worker is.

    Linear algebra has one thread and every warning is caught, so that neither the number of workers nor the
    caller's filters can change a number.
    """
    with (
        _ONE_AT_A_TIME,
        threadpool_limits(limits=1),
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always")
        start = time.perf_counter()
        arrays: dict[str, Array] = {}
        error = details = ""
        try:
            arrays = _to_arrays(function(task))
        except (Exception, SystemExit) as failure:  # a task may raise anything
            error = one_line(failure)
            details = traceback.format_exc()
        seconds = time.perf_counter() - start
    lines = dict.fromkeys(f"{given.category.__name__}: {given.message}" for given in caught)
    return Outcome(task.name, arrays, seconds, tuple(lines), error, details)


def _to_arrays(result: object) -> dict[str, Array]:
    """Return what a task gave as plain arrays, or raise `ArgumentError`."""
    if not isinstance(result, Mapping):
        raise ArgumentError(f"a task must return a mapping of names to arrays (got {type(result).__name__}).")
    arrays = {}
    for name, value in result.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ArgumentError(f"a task must name its arrays by identifiers (got {name!r}).")
        array = np.asarray(value)
        if array.dtype.kind not in "biufcU":
            raise ArgumentError(f"a task must return numbers or text (got {array.dtype} for {name}).")
        arrays[name] = array
    return arrays


def one_line(failure: BaseException) -> str:
    """Return the kind and the message of an exception in one line."""
    text = " ".join(str(failure).split())
    kind = type(failure).__name__
    return f"{kind}: {text}" if text else kind
