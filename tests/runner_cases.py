"""Functions of tasks for the tests of the runner, in a module that worker processes can import."""

import io
import os
import signal
import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console

from nadpvi.experiments.tasks import Task


def draw(task):
    """Numbers that follow from settings and seed alone, with linear algebra in them."""
    rng = np.random.default_rng(task.seed_sequence())
    square = rng.normal(size=(task.settings["size"],) * 2)
    return {
        "draws": rng.normal(size=3),
        "eigenvalues": np.linalg.eigvals(square @ square.T + np.eye(len(square))),
        "count": np.int64(len(square)),
        "label": task.settings.get("label", "none"),
    }


def draw_and_note(task):
    """As `draw`, with the number of threads, and leave a trace that this task was carried out."""
    with open(Path(task.settings["notes"]) / f"{task.name}.{os.getpid()}.{time.monotonic_ns()}", "x"):
        pass
    return {**draw(task), **num_threads(task)}


def draw_or_fail(task):
    """As `draw`, but odd tasks raise, each in its own way."""
    if task.seed[-1] % 4 == 1:
        raise ValueError("two\nlines")
    if task.seed[-1] % 4 == 3:
        raise SystemExit(3)
    return draw(task)


def draw_or_die(task):
    """As `draw`, but the process of a task that is told so is killed, as happens when memory runs out."""
    if task.settings.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    return draw(task)


def draw_or_die_once(task):
    """As `draw`, but the first worker that has the task that is told so is killed."""
    if task.settings.get("dies_once"):
        try:
            Path(task.settings["dies_once"]).touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return draw(task)


def wait_forever(task):
    """Say that this task has begun, and do not end by itself unless it is the first."""
    if task.seed[-1] == 0:
        return draw(task)
    (Path(task.settings["notes"]) / f"{task.name}.{os.getpid()}").touch()
    while True:
        time.sleep(0.05)


def interrupt(task):
    """Raise what Ctrl-C raises at the third task."""
    if task.seed[-1] == 2:
        raise KeyboardInterrupt
    return draw(task)


def give(task):
    """What a test wants a task to give."""
    return {
        "objects": {"a": np.array([{}])},
        "bad name": {"a b": np.zeros(1)},
        "no mapping": [1.0],
        "ragged": {"a": [[1.0], [1.0, 2.0]]},
        "all kinds": {
            "file": np.arange(3),
            "allow": np.array([True, False]),
            "text": np.array(["a", "bc"]),
            "complex": np.array([1 + 2j]),
            "nothing": np.zeros((0, 3)),
            "odd": np.array([np.nan, np.inf, -0.0]),
        },
    }[task.settings["what"]]


def warn(task):
    """Give two warnings, one of them twice, and a floating-point one."""
    for _ in range(2):
        warnings.warn("beware", UserWarning, stacklevel=2)
    return {"ratio": np.float64(1.0) / np.zeros(1)}


def num_threads(task):
    """The largest number of threads of any library for linear algebra."""
    from threadpoolctl import threadpool_info

    return {"threads": max(library["num_threads"] for library in threadpool_info())}


def make_tasks(number, **settings):
    """So many tasks with seeds from one root."""
    settings = {"size": 20, **settings}
    return [Task(name=f"task-{index:03d}", settings=settings, seed=(7, index)) for index in range(number)]


def wait_until(path):
    """Wait for a file that another process makes."""
    while not Path(path).exists():
        time.sleep(0.01)


def die_after(task):
    """As `draw`, but a task that is told so is killed once a file is there, unless told not to."""
    if task.settings.get("when") and not Path(task.settings["unless"]).exists():
        wait_until(task.settings["when"])
        os.kill(os.getpid(), signal.SIGKILL)
    return draw(task)


def kill_scheduler(task):
    """As `draw`, but a task that is told so kills the scheduler once a file is there."""
    if task.settings.get("kills"):
        wait_until(task.settings["when"])
        os.kill(task.settings["kills"], signal.SIGKILL)
        time.sleep(0.5)
    return draw(task)


class Lines(io.TextIOBase):
    """A console without a terminal; `then` is called at the first line that holds `when`."""

    def __init__(self, *, when=None, then=None):
        self.text = ""
        self.when, self.then = when, then
        self.console = Console(file=self, width=300)

    def write(self, text):
        self.text += text
        if self.when is not None and self.when in self.text:
            self.when = None
            self.then()
        return len(text)

    def writable(self):
        return True


def assert_same(first, second):
    """The same tasks in the same order, with the same bits."""
    assert list(first) == list(second)
    for name, arrays in first.items():
        assert set(arrays) == set(second[name])
        for key, array in arrays.items():
            assert array.dtype == second[name][key].dtype
            np.testing.assert_array_equal(array, second[name][key])
