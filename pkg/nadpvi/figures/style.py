"""How all figures look: colours that differ in brightness too, names as plain text, a grid of panels."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from nadpvi.canvas import new_figure
from nadpvi.markup import shown_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DATA", "FAINT", "PRIVACY", "label_rows", "name_panel", "panels", "share_legend"]

DATA, PRIVACY, FAINT = "#0072b2", "#d55e00", "#767676"

_LONGEST = 28


def panels(count: int, *, columns: int, size: tuple[float, float]) -> tuple["Figure", list["Axes"]]:
    """Return a figure with so many panels of `size` inches each, row by row."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = new_figure(size[0] * columns, size[1] * rows)
    made = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    for axes in made[count:]:
        axes.set_axis_off()
    return figure, made[:count]


def share_legend(figure: "Figure", axes: "Axes") -> None:
    """Put one legend over a figure whose panels all mean the same."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=len(labels), loc="outside upper center")


def name_panel(axes: "Axes", name: str) -> None:
    """Put a name over a panel; dollar signs in it are dollar signs."""
    axes.set_title(shown_name(name, longest=2 * _LONGEST), fontsize=9, parse_math=False)


def label_rows(axes: "Axes", names: Sequence[str]) -> None:
    """Name the rows of a panel from the top down."""
    shown = [shown_name(name, longest=_LONGEST) for name in names]
    axes.set_yticks(np.arange(len(names)), labels=shown, fontsize=8, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
