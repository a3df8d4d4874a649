"""Figures of matplotlib on a canvas that needs no display, and their files."""

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from nadpvi.containers.storage import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "write_png"]


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of so many inches; matplotlib is imported here and not before."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write_png(figure: "Figure", path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Write a figure as PNG and return its path.

    Raises
    ------
    FileError
        If the file exists and `overwrite` is false, or cannot be written.
    """
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=150)
    return write_bytes(image.getvalue(), path, overwrite=overwrite)
