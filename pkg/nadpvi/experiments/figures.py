"""Figures of an experiment, drawn from its results file alone; matplotlib, without a display."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nadpvi.canvas import new_figure
from nadpvi.experiments.methods import LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_curves"]

_WIDTH, _HEIGHT = 4.2, 3.9
# One colour a method, so that a method looks alike in every figure; chosen to differ in brightness too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#8c564b", "#7f7f7f")


def draw_curves(curves: Sequence[Mapping[str, Any]], *, title: str) -> bytes:
    """Return an SVG with one panel for each arm.

    Where the truth is known a panel shows the error of joint coverage, coverage minus level, against the
    level, with the band that a perfect posterior keeps to; else the calibration curve on test rows.

    Parameters
    ----------
    curves : sequence of mapping
        From `nadpvi.experiments.tables.curves`.
    title : str
    """
    from matplotlib import rc_context

    # Arms of one name are drawn together, each method once.
    arms = list(dict.fromkeys(curve["settings"] for curve in curves))
    columns = min(3, len(arms))
    rows = -(-len(arms) // columns)
    figure = new_figure(_WIDTH * columns, _HEIGHT * rows)
    figure.suptitle(title, fontsize=11)
    panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for axes, arm in zip(panels, arms, strict=False):
        axes.set_title(arm, fontsize=9)
        mine: dict[str, Mapping[str, Any]] = {}
        for curve in curves:
            if curve["settings"] == arm:
                mine.setdefault(curve["method"], curve)
        _draw_arm(axes, mine)
    for axes in panels[len(arms) :]:
        axes.set_axis_off()
    image = io.BytesIO()
    # Text as text, and no date or random identifier, so that the same results are the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "nadpvi"}):
        figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    return image.getvalue()


def _draw_arm(axes: "Axes", curves: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the curves of one arm."""
    is_coverage = "level" in next(iter(curves.values()))
    names = list(LABELS)
    for method, curve in curves.items():
        style: dict[str, Any] = {
            "color": _COLOURS[names.index(method) % len(_COLOURS)],
            "label": LABELS[method],
            "linewidth": 1.4,
        }
        if is_coverage:
            level = np.array(curve["level"])
            axes.plot(level, np.array(curve["coverage"]) - level, **style)
        else:
            pairs = [
                (mean, rate)
                for mean, rate in zip(curve["bin_mean"], curve["bin_rate"], strict=True)
                if mean is not None
            ]
            axes.plot(*np.array(pairs).T, marker="o", markersize=3, **style)
    if is_coverage:
        widest = max(curves.values(), key=lambda curve: max(curve["band"][1], default=0.0))
        level, (low, high) = np.array(widest["level"]), np.array(widest["band"])
        axes.fill_between(level, low - level, high - level, color="0.88", label="perfect, 95 %")
        axes.axhline(0.0, color="0.5", linewidth=0.8)
        axes.set(xlabel="credible level", ylabel="coverage minus level", xlim=(0, 1))
    else:
        axes.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=0.8)
        axes.set(xlabel="predicted probability", ylabel="observed rate", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False, fontsize=7)
