"""What parts of the page are made of: figures with a text for those who do not see them, and tables."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from nadpvi.canvas import to_svg
from nadpvi.markup import shown_name, shown_number

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

__all__ = ["Cells", "Picture", "cells_of", "picture"]

_LONGEST = 120


class Picture(NamedTuple):
    """A figure as SVG, what it shows in words, and its caption."""

    svg: "Markup"
    alt: str
    caption: str


class Cells(NamedTuple):
    """A table of texts: the first of each row names it. `note` tells what was left out, or is empty."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def picture(figure: "Figure", *, name: str, alt: str, caption: str = "") -> Picture:
    """Return a figure for the page.

    Parameters
    ----------
    figure : Figure
    name : str
        Goes into its identifiers; unique in the page, letters and hyphens.
    alt, caption : str
        What it shows, for those who do not see it, and the line below it.
    """
    from markupsafe import Markup

    # Made by matplotlib, which escapes texts itself.
    return Picture(Markup(to_svg(figure, prefix=f"{name}-")), alt, caption)


def cells_of(
    frame: pd.DataFrame, *, headers: Sequence[str] | None = None, first: str, most_rows: int = 2000
) -> Cells:
    """Return a DataFrame's cells as texts.

    Parameters
    ----------
    frame : DataFrame
    headers : sequence of str, optional
        Of its columns, in words; their names when omitted.
    first : str
        Header of the column of row names.
    most_rows : int
        Rows beyond which the table is cut.
    """
    names = [str(name) for name in frame.columns]
    shown = frame.head(most_rows)
    rows = tuple(
        (
            shown_name(label, longest=_LONGEST),
            *(shown_number(value, name=name) for name, value in zip(names, cells, strict=True)),
        )
        for label, *cells in shown.itertuples(name=None)
    )
    note = "" if len(shown) == len(frame) else f"The first {len(shown):,} of {len(frame):,} rows."
    return Cells((first, *(names if headers is None else headers)), rows, note)
