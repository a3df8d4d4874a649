"""Calibration of several sets of predictions in one figure, which the demo writes."""

import os
from collections.abc import Mapping
from pathlib import Path

from nadpvi.canvas import new_figure, write_png
from nadpvi.scores import ScoredRows, calibration_curve

__all__ = ["write_calibration"]


def write_calibration(
    scored: Mapping[str, ScoredRows],
    *,
    path: str | os.PathLike[str],
    overwrite: bool = False,
) -> Path:
    """Write a calibration plot of several sets of predictions, and return its path.

    Parameters
    ----------
    scored : mapping
        Label to predictions and outcomes, from `nadpvi.scores.predict_rows`.
    path : path
        A PNG file.
    overwrite : bool
        Whether an existing file may be replaced.
    """
    figure = new_figure(5.5, 5.0)
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="perfect")
    markers = "osD^v"
    for index, (label, rows) in enumerate(scored.items()):
        _, predicted, observed = calibration_curve(rows)
        axes.plot(predicted, observed, marker=markers[index % len(markers)], markersize=4, label=label)
    axes.set(xlabel="predicted probability", ylabel="observed rate", xlim=(0, 1), ylim=(0, 1))
    axes.set_title("Calibration on test rows, 10 bins of equal width", fontsize=10)
    axes.legend(frameon=False)
    return write_png(figure, path, overwrite=overwrite)
