"""A figure that a notebook shows by itself. Imported where a figure is made: it loads matplotlib."""

import io

from matplotlib.figure import Figure

__all__ = ["ShownFigure"]


class ShownFigure(Figure):
    """A matplotlib figure that answers a notebook's question for a picture.

    IPython knows how to draw plain figures only after ``matplotlib.pyplot`` was imported, which nothing here
    does; until then it shows their name and size.
    """

    def _repr_png_(self) -> bytes:
        """Return the figure as PNG."""
        image = io.BytesIO()
        self.savefig(image, format="png")
        return image.getvalue()
