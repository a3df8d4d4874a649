"""Prior against posterior: where the data were heard through the noise, and where they were not."""

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from nadpvi.canvas import new_figure
from nadpvi.figures.style import DATA, FAINT, label_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["prior_figure"]

_MOST_ROWS = 100


def prior_figure(table: pd.DataFrame) -> "Figure":
    """Return two bars a parameter on the unconstrained scale: mean and two sds of prior and of posterior.

    Parameters
    ----------
    table : DataFrame
        Columns ``prior_mean``, ``prior_sd``, ``posterior_mean``, ``posterior_sd``; the first 100 rows are
        drawn.
    """
    shown = table.head(_MOST_ROWS)
    figure = new_figure(6.0, 0.8 + 0.24 * len(shown))
    axes = figure.add_subplot()
    rows = np.arange(len(shown))
    for name, colour, shift, width in (("prior", FAINT, -0.16, 5.0), ("posterior", DATA, 0.16, 2.5)):
        mean, sd = shown[f"{name}_mean"].to_numpy(), shown[f"{name}_sd"].to_numpy()
        alpha = 0.4 if name == "prior" else 1.0
        axes.hlines(
            rows + shift, mean - 2 * sd, mean + 2 * sd, color=colour, linewidth=width, alpha=alpha, label=name
        )
        axes.plot(mean, rows + shift, "o", color=colour, markersize=3)
    label_rows(axes, [str(label) for label in shown.index])
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("mean ± 2 sd, unconstrained scale", fontsize=8)
    axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure
