"""How far a run of tasks is: a bar where a person is looking, now and then a line where not."""

import time
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

from nadpvi.experiments.tasks import Outcome

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = ["say_to", "track_tasks"]

# Lines in a log, from the first task to the last.
_NUM_LINES = 10


def say_to(console: "Console | None", text: str) -> None:
    """Write one line to a console, if there is one; a bar on it stays below."""
    if console is not None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def track_tasks(
    outcomes: Iterable[Outcome], *, total: int, console: "Console | None"
) -> Generator[Outcome, None, None]:
    """Yield the outcomes, showing how many there are and the time left.

    Parameters
    ----------
    outcomes : iterable of Outcome
        What is finished.
    total : int
        How many there will be.
    console : rich.console.Console or None
        Where to show it; None is silent.
    """
    if console is None:
        yield from outcomes
    elif console.is_terminal:
        with _make_bar(console) as bar:
            task = bar.add_task("tasks", total=total)
            for outcome in outcomes:
                yield outcome
                bar.advance(task)
    else:
        yield from _with_lines(outcomes, total=total, console=console)


def _with_lines(
    outcomes: Iterable[Outcome], *, total: int, console: "Console"
) -> Generator[Outcome, None, None]:
    """Yield the outcomes, with a line after each tenth of them."""
    start = time.monotonic()
    for done, outcome in enumerate(outcomes, start=1):
        yield outcome
        if done * _NUM_LINES // total > (done - 1) * _NUM_LINES // total and done < total:
            left = (time.monotonic() - start) / done * (total - done)
            say_to(console, f"{done} of {total} tasks are done, about {_in_words(left)} left.")


def _make_bar(console: "Console") -> "Progress":
    """Return a bar with count and time left, which disappears when done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class TimeLeft(ProgressColumn):
        """Mean time of a finished task, over those to come: rich's own forgets tasks longer than 30 s."""

        def render(self, task: Task) -> Text:
            if not task.completed or task.elapsed is None or task.total is None:
                return Text("")
            left = task.elapsed / task.completed * (task.total - task.completed)
            return Text(f"{_in_words(left)} left")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeLeft())
    return Progress(*columns, console=console, transient=True)


def _in_words(seconds: float) -> str:
    """Return a duration to a minute, or to a second below two minutes.

    Examples
    --------
    >>> _in_words(42.2), _in_words(200), _in_words(7500)
    ('42 s', '3 min', '2 h 5 min')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
