"""Progress on stderr, only where a person is looking."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["track"]

_T = TypeVar("_T")


def track(items: Iterable[_T], *, total: int, description: str, enabled: bool) -> Iterator[_T]:
    """Yield the items, showing a bar with rate and time left while stderr is a terminal.

    Parameters
    ----------
    items : iterable
        What is worked through.
    total : int
        How many items there are.
    description : str
        Text before the bar.
    enabled : bool
        False is silent; True still is when stderr is not a terminal.
    """
    if not enabled or not sys.stderr.isatty():
        yield from items
        return
    with _make_bar() as bar:
        task = bar.add_task(description, total=total)
        for item in items:
            yield item
            bar.advance(task)


def _make_bar() -> "Progress":
    """Return a bar that shows count, rate and time left, and disappears when done."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Finished items per second."""

        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(stderr=True), transient=True)
