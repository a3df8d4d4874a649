"""Figures of matplotlib on a canvas that needs no display, and their files."""

import io
import os
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from nadpvi.containers.storage import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["new_figure", "to_svg", "write_png"]

_IDENTIFIER = re.compile(r'(id="|url\(#|xlink:href="#)')
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of so many inches; matplotlib is imported here and not before."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from nadpvi.shown_figure import ShownFigure

    figure = ShownFigure(figsize=(width, height), layout="constrained")
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


def to_svg(figure: "Figure", *, prefix: str) -> str:
    """Return a figure as an SVG element to stand inside a page: no size of its own, no outside reference.

    Texts stay texts, in whatever font the page has. The same figure is the same text.

    Parameters
    ----------
    figure : Figure
    prefix : str
        Goes before every identifier, so that those of several figures in one page differ.
    """
    from matplotlib import rc_context

    image = io.StringIO()
    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none", "svg.hashsalt": "nadpvi"}):
        # A letter that matplotlib's own font lacks is drawn by the browser.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(image, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = image.getvalue()
    text = _METADATA.sub("", text[text.index("<svg") :])
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return _IDENTIFIER.sub(lambda found: found.group(1) + prefix, text).strip()
