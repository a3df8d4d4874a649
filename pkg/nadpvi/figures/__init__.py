"""Figures of posteriors and releases as matplotlib Figures, without pyplot and without a display."""

from nadpvi.figures.calibration import calibration_figure
from nadpvi.figures.forest import MOST_ROWS, forest_figure
from nadpvi.figures.gradients import GradientFit, draw_fit, gradient_fit, gradients_figure
from nadpvi.figures.prior import prior_figure
from nadpvi.figures.trace import choose_coordinates, draw_trace, trace_figure

__all__ = [
    "MOST_ROWS",
    "GradientFit",
    "calibration_figure",
    "choose_coordinates",
    "draw_fit",
    "draw_trace",
    "forest_figure",
    "gradient_fit",
    "gradients_figure",
    "prior_figure",
    "trace_figure",
]
