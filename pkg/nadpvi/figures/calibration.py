"""Predictions against what was observed, in bins, never single rows."""

from typing import TYPE_CHECKING

from numpy.typing import NDArray

from nadpvi.canvas import new_figure
from nadpvi.figures.style import DATA, FAINT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["calibration_figure"]


def calibration_figure(predicted: NDArray, observed: NDArray, *, is_probability: bool) -> "Figure":  # type: ignore[type-arg]
    """Return the observed mean of each bin of test rows against the mean prediction there.

    Parameters
    ----------
    predicted, observed : ndarray, shape (bins,)
    is_probability : bool
        Whether both lie in [0, 1].
    """
    figure = new_figure(4.2, 3.8)
    axes = figure.add_subplot()
    low = 0.0 if is_probability else float(min(predicted.min(), observed.min()))
    high = 1.0 if is_probability else float(max(predicted.max(), observed.max()))
    axes.plot([low, high], [low, high], color=FAINT, linestyle="--", linewidth=1, label="perfect")
    axes.plot(predicted, observed, "o-", color=DATA, markersize=4, label="test rows, binned")
    what = (
        ("predicted probability", "observed rate") if is_probability else ("predicted mean", "observed mean")
    )
    axes.set_xlabel(what[0], fontsize=9)
    axes.set_ylabel(what[1], fontsize=9)
    axes.tick_params(labelsize=8)
    axes.legend(frameon=False, fontsize=8)
    return figure
