"""Figures of coverage tests, drawn without a display."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from nadpvi.canvas import new_figure, write_png
from nadpvi.coverage.calibration import CalibrationTest
from nadpvi.coverage.tarp import CoverageTest
from nadpvi.errors import ArgumentError

__all__ = ["plot_coverage", "plot_ranks"]


def plot_coverage(
    tests: Mapping[str, CoverageTest],
    *,
    path: str | os.PathLike[str],
    title: str = "Expected coverage",
    overwrite: bool = False,
) -> Path:
    """Write coverage curves and their errors with the null's band, and return the file's path.

    Parameters
    ----------
    tests : mapping
        Label to test. The band drawn is that of the fewest replicates, the widest.
    path : path
        A PNG file.
    title : str
        Above the figure.
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    ArgumentError
        If there is no test.
    """
    if not tests:
        raise ArgumentError("tests must hold at least one coverage test.")
    figure = new_figure(9.0, 4.2)
    curves, errors = figure.subplots(1, 2)
    widest = min(tests.values(), key=lambda test: test.num_replicates)
    level = 1.0 - widest.alphas
    note = f"95 % band, {widest.num_replicates} replicates"
    for axes, offset in ((curves, 0.0), (errors, level)):
        edges = widest.band - offset
        axes.fill_between(level, edges[0], edges[1], color="0.88", linewidth=0, label=note)
        axes.plot(level, level - offset, color="0.4", linestyle="--", linewidth=1)
        axes.set(xlabel="credible level", xlim=(0, 1))
    for label, test in tests.items():
        level = 1.0 - test.alphas
        (line,) = curves.plot(level, test.coverage, linewidth=1.2, label=f"{label}: RMSE {test.rmse:.3f}")
        error = test.coverage - level
        errors.plot(level, error, linewidth=1.2, color=line.get_color())
        low, high = error - 2.0 * test.coverage_sd, error + 2.0 * test.coverage_sd
        errors.fill_between(level, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    curves.set(ylabel="expected coverage", ylim=(0, 1))
    errors.set(ylabel="coverage error, ± 2 bootstrap sds")
    curves.legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    return write_png(figure, path, overwrite=overwrite)


def plot_ranks(
    test: CalibrationTest,
    *,
    labels: Sequence[str],
    path: str | os.PathLike[str],
    overwrite: bool = False,
) -> Path:
    """Write the ranks' distribution functions less the uniform one, with their band, and return the path.

    ArviZ 0.23 has such a figure; 1.x gives up its band, so that this one is drawn here, the same with both.

    Parameters
    ----------
    test : CalibrationTest
        Of K parameters.
    labels : sequence of str
        Their names.
    path : path
        A PNG file.
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    ArgumentError
        If there is not one label for each parameter.
    """
    if len(labels) != len(test.ecdf):
        raise ArgumentError(f"labels must be {len(test.ecdf)} names, one a parameter (got {len(labels)}).")
    num_columns = min(len(labels), 4)
    num_rows = -(-len(labels) // num_columns)
    figure = new_figure(1.0 + 2.6 * num_columns, 0.6 + 2.4 * num_rows)
    panels = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, label, ecdf, p_value in zip(panels, labels, test.ecdf, test.p_value, strict=False):
        edges = test.band - test.levels
        axes.fill_between(test.levels, edges[0], edges[1], color="0.88", linewidth=0)
        axes.axhline(0.0, color="0.4", linestyle="--", linewidth=1)
        axes.plot(test.levels, ecdf - test.levels, linewidth=1.2)
        # A dollar sign would start a formula.
        axes.set_title(f"{label}: p = {p_value:.2g}".replace("$", r"\$"), fontsize=9)
        axes.set(xlim=(0, 1))
    for axes in panels[len(labels) :]:
        axes.remove()
    figure.supxlabel("rank of the truth, 0 to 1", fontsize=10)
    figure.supylabel("share below, less rank", fontsize=10)
    figure.suptitle(
        f"Ranks of {test.num_replicates} truths and the band of 95 % of uniform ones", fontsize=10
    )
    return write_png(figure, path, overwrite=overwrite)
