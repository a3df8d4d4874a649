"""The forest plot: each parameter's interval, and whose uncertainty it is."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nadpvi.canvas import new_figure
from nadpvi.figures.style import DATA, FAINT, PRIVACY, label_rows, name_panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["MOST_ROWS", "forest_figure"]

# Rows beyond which a figure is no longer read.
MOST_ROWS = 100
_ROW_INCHES, _FRAME_INCHES, _WIDTH = 0.21, 0.75, 6.4


def forest_figure(blocks: Mapping[str, pd.DataFrame], *, shares: pd.DataFrame | None) -> "Figure":
    """Return one panel a parameter block: a dot at each mean, a line over its interval.

    Parameters
    ----------
    blocks : mapping of str to DataFrame
        Rows of `Posterior.summary`, by the parameter they are entries of; the first `MOST_ROWS` are drawn.
    shares : DataFrame or None
        From `nadpvi.uncertainty.uncertainty_shares`. If given, bars beside the intervals show which part of
        the variance is the data's and which came with the privacy, where a row has a parameter of its name.
    """
    cut, left = {}, MOST_ROWS
    for name, table in blocks.items():
        if left > 0:
            cut[name] = table.head(left)
        left -= len(table)
    heights = [_FRAME_INCHES + _ROW_INCHES * len(table) for table in cut.values()]
    figure = new_figure(_WIDTH, sum(heights))
    columns = 1 if shares is None else 2
    grid = figure.add_gridspec(
        len(cut), columns, height_ratios=heights, width_ratios=[3.2, 1][:columns], wspace=0.02
    )
    for row, (name, table) in enumerate(cut.items()):
        axes = figure.add_subplot(grid[row, 0])
        _draw_intervals(axes, table)
        if len(blocks) > 1:
            name_panel(axes, name)
        if shares is not None:
            _draw_shares(figure.add_subplot(grid[row, 1], sharey=axes), table, shares, has_legend=row == 0)
    return figure


def _draw_intervals(axes: "Axes", table: pd.DataFrame) -> None:
    """Draw means and intervals, the first entry on top."""
    rows = np.arange(len(table))
    low, high = (table.iloc[:, column].to_numpy() for column in (2, 3))
    axes.hlines(rows, low, high, color=DATA, linewidth=2)
    axes.plot(table["mean"].to_numpy(), rows, "o", color=DATA, markersize=4)
    if low.min() <= 0.0 <= high.max():
        axes.axvline(0.0, color=FAINT, linewidth=0.8, linestyle="--", zorder=0)
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    label_rows(axes, [str(label) for label in table.index])
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel(f"mean and {table.columns[2]} to {table.columns[3]} interval", fontsize=8)


def _draw_shares(axes: "Axes", table: pd.DataFrame, shares: pd.DataFrame, *, has_legend: bool) -> None:
    """Draw each row's two parts of the variance as one bar of length 1."""
    aligned = shares.reindex(table.index)
    rows = np.arange(len(table))
    of_data, of_privacy = (aligned[name].to_numpy() for name in ("share_data", "share_privacy"))
    known = np.isfinite(of_data)
    axes.barh(rows[known], of_data[known], color=DATA, height=0.55, label="data")
    axes.barh(
        rows[known],
        of_privacy[known],
        left=of_data[known],
        color=PRIVACY,
        height=0.55,
        hatch="////",
        edgecolor="white",
        linewidth=0,
        label="privacy",
    )
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], labels=["0", "50 %", "100 %"], fontsize=8)
    axes.set_xlabel("share of variance", fontsize=8)
    axes.tick_params(axis="y", length=0, labelleft=False)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if has_legend:
        axes.legend(
            frameon=False,
            fontsize=8,
            ncols=2,
            loc="lower center",
            bbox_to_anchor=(0.5, 1.0),
            handlelength=1.2,
            columnspacing=0.8,
            borderaxespad=0.1,
        )
