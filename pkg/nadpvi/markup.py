"""Numbers, names and tables as HTML: everything that came from a file or a user is escaped here."""

import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import pandas as pd

__all__ = [
    "column_content",
    "html_frame",
    "html_note",
    "html_pairs",
    "html_table",
    "shown_name",
    "shown_number",
]

_LONGEST_NAME = 120
_LEVELS_SHOWN = 12
_SPECIAL = {"ess_bulk": ".0f", "ess_tail": ".0f", "r_hat": ".3f"}


def shown_number(value: object, *, name: str = "") -> str:
    """Return a number as tables show it: three decimals, or three digits where those would not do.

    Parameters
    ----------
    value : object
        Whole numbers are written in full, what is no number as text; NaN is n/a, not available.
    name : str
        The column it stands in; ESS and R-hat have formats of their own.

    Examples
    --------
    >>> [shown_number(value) for value in (0.12345, 12345.6, 1.2e-5, 0.0, 40, float("nan"))]
    ['0.123', '1.23e+04', '1.2e-05', '0.000', '40', 'n/a']
    """
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return str(value)
    number = float(value)
    if math.isnan(number):
        return "n/a"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    if name in _SPECIAL:
        return format(number, _SPECIAL[name])
    if not isinstance(value, float) and number == int(number):
        return str(int(number))
    return f"{number:.3f}" if number == 0 or 0.001 <= abs(number) < 1e4 else f"{number:.3g}"


def shown_name(name: object, *, longest: int = _LONGEST_NAME) -> str:
    r"""Return a name on one line whatever it holds, cut where it is very long. Not escaped.

    Examples
    --------
    >>> shown_name("age"), shown_name("two\nlines"), shown_name("a" * 9, longest=5)
    ('age', '"two\\nlines"', 'aaaa…')
    """
    text = str(name)
    text = text if text.isprintable() else json.dumps(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def column_content(column: Any) -> str:
    """Return what a schema column's cells may hold: its bounds, or its levels, a dozen of them.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> column_content(SimpleNamespace(lower=0.0, upper=5.0))
    '0 to 5'
    >>> column_content(SimpleNamespace(levels=("a", "b")))
    'a, b'
    """
    levels = getattr(column, "levels", None)
    if levels is None:
        return f"{column.lower:g} to {column.upper:g}"
    more = len(levels) - _LEVELS_SHOWN
    names = ", ".join(shown_name(level, longest=40) for level in levels[:_LEVELS_SHOWN])
    return f"{names} and {more} more" if more > 0 else names


def html_table(caption: str, *, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first column names its rows; all texts are escaped.

    Examples
    --------
    >>> html_table("Ages", header=["who", "age"], rows=[["<b>", "3"]])[:53]
    '<table><caption>Ages</caption><thead><tr><th scope="c'
    """
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in header)
    body = "".join(
        f'<tr><th scope="row">{escape(shown_name(name))}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    caption = f"<caption>{escape(caption)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_note(stamp: str, text: str = "", *, is_good: bool) -> str:
    """Return a paragraph that starts with a stamp in bold, with a green or a red bar beside it."""
    colour = "#1d6b3a" if is_good else "#a11212"
    return (
        f'<p style="border-left:4px solid {colour};padding-left:8px"><strong>{escape(stamp)}</strong> '
        f"{escape(text)}</p>"
    )


def html_pairs(caption: str, pairs: Iterable[tuple[str, object]]) -> str:
    """Return a table of names and values."""
    return html_table(caption, header=["", "value"], rows=[(name, shown_number(v)) for name, v in pairs])


def html_frame(caption: str, frame: pd.DataFrame, *, most_rows: int = 60) -> str:
    """Return a DataFrame as a table, its first rows where it has many."""
    columns = [str(name) for name in frame.columns]
    shown = frame.head(most_rows)
    rows = [
        [str(label), *(shown_number(value, name=name) for name, value in zip(columns, cells, strict=True))]
        for label, *cells in shown.itertuples(name=None)
    ]
    if len(frame) > len(shown):
        caption = f"{caption} (first {len(shown)} of {len(frame):,} rows)"
    return html_table(caption, header=[str(frame.index.name or ""), *columns], rows=rows)
