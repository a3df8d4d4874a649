"""What the commands share: where text goes, and how warnings and tables look."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pandas as pd

from nadpvi.cli.wording import in_flags

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_frame", "print_json", "print_text", "say", "warnings_as_lines"]


def say(text: str, *, quiet: bool = False) -> None:
    """Write one line to stderr, where everything that is not the result goes."""
    if not quiet:
        sys.stderr.write(f"{text}\n")


def print_json(data: Any) -> None:
    """Write a result to stdout as strict JSON; NaN and infinity become null."""
    sys.stdout.write(json.dumps(_strict(data), indent=2, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Write a line of a result to stdout."""
    sys.stdout.write(f"{text}\n")


def print_frame(frame: pd.DataFrame, *, title: str, formats: dict[str, str]) -> None:
    """Write a table to stdout, one row an index entry.

    Parameters
    ----------
    frame : DataFrame
        What to show; its index becomes the first column.
    title : str
        Line above the table.
    formats : dict
        Format specification of each column, such as ``".3f"``.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", title_style="")
    table.add_column(str(frame.index.name or ""), no_wrap=True)
    for name in frame.columns:
        table.add_column(str(name), justify="right", no_wrap=True)
    for label, row in frame.iterrows():
        cells = [format(row[name], formats[str(name)]) for name in frame.columns]
        table.add_row(Text(str(label)), *cells)
    console = _console()
    # A table wider than the terminal wraps there and stays readable; cut-off numbers would not.
    unlimited = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(table, options=unlimited).maximum)
    console.print(table)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show each distinct warning as one line on stderr instead of Python's two."""

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        sys.stderr.write(f"nadpvi: warning: {in_flags(message)}\n")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.showwarning = show
        yield


def _console() -> "Console":
    """Return a console on stdout."""
    from rich.console import Console

    return Console()


def _strict(value: Any) -> Any:
    """Return `value` with non-finite numbers as None and NumPy scalars as Python's."""
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
