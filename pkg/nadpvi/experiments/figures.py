"""Figures of an experiment, drawn from its results file alone; matplotlib, without a display."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nadpvi.canvas import new_figure
from nadpvi.experiments.methods import LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_figures"]

Curve = Mapping[str, Any]

_WIDTH, _HEIGHT = 4.2, 3.9
_COLUMNS = 3
# One colour a method, so that a method looks alike in every figure; chosen to differ in brightness too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9", "#8c564b", "#7f7f7f")
_WITH_MARGINALS = ("exact", "dense")


def draw_figures(curves: Sequence[Curve], fits: Sequence[Curve], *, title: str) -> dict[str, bytes]:
    """Return figures as SVG, by what their files are called behind the experiment's name.

    - ``""``: a column for each arm. Where the truth is known, joint coverage against the credible level, and
      below it their difference, with the band that a perfect posterior keeps to; else the calibration curve
      on test rows.
    - ``"-marginals"``: the difference for each parameter by itself, of the noise-aware posteriors; where the
      truth is known and there are a few parameters.
    - ``"-gradients"``: noisy gradients of one release against its iterates, and the line fitted to them.

    Parameters
    ----------
    curves : sequence of mapping
        From `nadpvi.experiments.tables.curves`.
    fits : sequence of mapping
        From `nadpvi.experiments.fits.gradient_fits`.
    title : str
    """
    figures = {"": _curves_figure(_by_arm(curves), title=title)}
    with_marginals = [c for c in curves if c["method"] in _WITH_MARGINALS and c.get("marginals")]
    if with_marginals:
        figures["-marginals"] = _marginals_figure(with_marginals, title=title)
    if fits:
        figures["-gradients"] = _fits_figure(fits, title=title)
    return {name: _svg(figure) for name, figure in figures.items()}


def _svg(figure: "Figure") -> bytes:
    """Return a figure as SVG; the same figure is the same file."""
    from matplotlib import rc_context

    image = io.BytesIO()
    # Text as text, and no date or random identifier.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "nadpvi"}):
        figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    return image.getvalue()


def _panels(num_panels: int, *, title: str, columns: int = _COLUMNS) -> tuple["Figure", list["Axes"]]:
    """Return a figure with so many panels, row by row."""
    columns = min(columns, num_panels)
    rows = -(-num_panels // columns)
    figure = new_figure(_WIDTH * columns, _HEIGHT * rows)
    figure.suptitle(title, fontsize=11)
    panels = list(np.ravel(figure.subplots(rows, columns, squeeze=False)))
    for axes in panels[num_panels:]:
        axes.set_axis_off()
    return figure, panels[:num_panels]


def _by_arm(curves: Sequence[Curve]) -> dict[str, dict[str, Curve]]:
    """Return curves by arm and method; arms of one name are drawn together, each method once."""
    arms: dict[str, dict[str, Curve]] = {}
    for curve in curves:
        arms.setdefault(curve["settings"], {}).setdefault(curve["method"], curve)
    return arms


def _style(method: str) -> dict[str, Any]:
    """Return how a method's line looks."""
    colour = _COLOURS[list(LABELS).index(method) % len(_COLOURS)]
    return {"color": colour, "label": LABELS[method], "linewidth": 1.4}


def _curves_figure(arms: Mapping[str, Mapping[str, Curve]], *, title: str) -> "Figure":
    """Return the figure of coverage or of calibration."""
    is_coverage = all("level" in curve for arm in arms.values() for curve in arm.values())
    if not is_coverage:
        figure, panels = _panels(len(arms), title=title)
        for axes, (name, curves) in zip(panels, arms.items(), strict=True):
            axes.set_title(name, fontsize=9)
            _draw_calibration(axes, curves)
        return figure
    figure, panels = _panels(2 * len(arms), title=title, columns=len(arms))
    for column, (name, curves) in enumerate(arms.items()):
        panels[column].set_title(name, fontsize=9)
        _draw_coverage(panels[column], curves, is_error=False)
        _draw_coverage(panels[len(arms) + column], curves, is_error=True)
    return figure


def _draw_coverage(axes: "Axes", curves: Mapping[str, Curve], *, is_error: bool) -> None:
    """Draw joint coverage, or how far it is from the level."""
    for method, curve in curves.items():
        level = np.array(curve["level"])
        axes.plot(level, np.array(curve["coverage"]) - is_error * level, **_style(method))
    _draw_perfect(axes, list(curves.values()), is_error=is_error)
    axes.legend(frameon=False, fontsize=7)


def _draw_perfect(axes: "Axes", curves: Sequence[Curve], *, is_error: bool) -> None:
    """Draw what a perfect posterior keeps to, and name the axes."""
    widest = max(curves, key=lambda curve: max(curve["band"][1], default=0.0))
    level, (low, high) = np.array(widest["level"]), np.array(widest["band"])
    axes.fill_between(
        level, low - is_error * level, high - is_error * level, color="0.88", label="perfect, 95 %"
    )
    axes.plot([0, 1], [0, 1 - is_error], color="0.5", linewidth=0.8)
    axes.set(xlabel="credible level", ylabel="coverage minus level" if is_error else "coverage", xlim=(0, 1))


def _draw_calibration(axes: "Axes", curves: Mapping[str, Curve]) -> None:
    """Draw the observed rate against the predicted probability."""
    for method, curve in curves.items():
        known = [
            (mean, rate)
            for mean, rate in zip(curve["bin_mean"], curve["bin_rate"], strict=True)
            if mean is not None
        ]
        axes.plot(*np.array(known).T, marker="o", markersize=3, **_style(method))
    axes.plot([0, 1], [0, 1], color="0.5", linestyle="--", linewidth=0.8)
    axes.set(xlabel="predicted probability", ylabel="observed rate", xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False, fontsize=7)


def _marginals_figure(curves: Sequence[Curve], *, title: str) -> "Figure":
    """Return the figure of single parameters' coverage."""
    figure, panels = _panels(len(curves), title=f"{title}: single parameters")
    for axes, curve in zip(panels, curves, strict=True):
        axes.set_title(f"{curve['settings']}: {LABELS[curve['method']]}", fontsize=8)
        level = np.array(curve["level"])
        for number, marginal in enumerate(curve["marginals"]):
            label = f"parameter {number + 1}" if len(curve["marginals"]) <= 3 else None
            axes.plot(level, np.array(marginal) - level, linewidth=1.0, label=label)
        _draw_perfect(axes, [curve], is_error=True)
        axes.legend(frameon=False, fontsize=7)
    return figure


def _fits_figure(fits: Sequence[Curve], *, title: str) -> "Figure":
    """Return the figure of gradients against iterates: a row a release, a panel a coordinate."""
    columns = max(len(fit["coordinates"]) for fit in fits)
    figure, panels = _panels(
        columns * len(fits), title=f"{title}: what the model is fitted to", columns=columns
    )
    for row, fit in enumerate(fits):
        for column in range(columns):
            axes = panels[row * columns + column]
            if column >= len(fit["coordinates"]):
                axes.set_axis_off()
                continue
            _draw_fit(axes, fit["coordinates"][column])
            axes.set_title(f"{fit['settings']}: {fit['coordinates'][column]['label']}", fontsize=8)
    return figure


def _draw_fit(axes: "Axes", fit: Curve) -> None:
    """Draw one coordinate's noisy gradients, the fitted line, and twice the known noise about it."""
    phi = np.array(fit["phi"])
    ends = np.array([phi.min(), phi.max()])
    line = fit["slope"] * (ends - fit["phi_star"])
    axes.plot(phi, fit["noisy_gradient"], ".", color="0.45", markersize=3, label="noisy gradients")
    axes.fill_between(
        ends,
        line - 2 * fit["noise_std"],
        line + 2 * fit["noise_std"],
        color="#0072b2",
        alpha=0.12,
        label="2 sds of privacy noise",
    )
    axes.plot(ends, line, color="#0072b2", linewidth=1.4, label="fitted line")
    axes.set(xlabel="iterate", ylabel="noisy gradient")
    axes.legend(frameon=False, fontsize=7)
