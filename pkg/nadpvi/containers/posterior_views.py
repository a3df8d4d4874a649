"""How a posterior is looked at: in a notebook, as figures, as a report."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from nadpvi.containers.posterior_like import PROMISE, PosteriorLike
from nadpvi.containers.release import Release
from nadpvi.errors import ArgumentError
from nadpvi.figures import (
    choose_coordinates,
    forest_figure,
    gradients_figure,
    prior_figure,
    trace_figure,
)
from nadpvi.markup import html_frame, html_note
from nadpvi.prior_comparison import prior_against_posterior
from nadpvi.report.calibration import plot_test_calibration
from nadpvi.report.page import write_report
from nadpvi.report.parameters import shares_of, summary_blocks
from nadpvi.report.trace import check_belongs
from nadpvi.tables import TableLike

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["PosteriorViews"]


class PosteriorViews:
    """The methods of `nadpvi.Posterior` that show it. Figures are matplotlib's, made without pyplot."""

    __slots__ = ()

    def _repr_html_(self: PosteriorLike) -> str:
        if self.guarantee is not None:
            promise = self.guarantee._repr_html_()
        else:
            promise = html_note(str(self.settings.get(PROMISE, "No guarantee on record.")), is_good=False)
        doubts = [finding for finding in self.findings if finding.severity == "warning"]
        sizes = self.groups["posterior"].sizes
        caption = (
            f"Posterior: {sizes['chain']} chains of {sizes['draw']} draws, method "
            f"{self.settings.get('method')}; 90 % equal-tailed intervals"
        )
        notes = "".join(html_note("Warning:", finding.sentence(), is_good=False) for finding in doubts)
        return promise + notes + html_frame(caption, self.summary())

    def uncertainty_shares(self: PosteriorLike) -> pd.DataFrame:
        """Return which part of each parameter's variance is the data's, and which came with the privacy.

        On the unconstrained scale, one row an unconstrained parameter; see
        `nadpvi.uncertainty.uncertainty_shares` for what each part holds.

        Raises
        ------
        ArgumentError
            If there is no model with a guide, or no draws of phi_star.
        """
        return shares_of(self)

    def report(
        self: PosteriorLike,
        path: str | os.PathLike[str],
        *,
        release: Release | None = None,
        table: TableLike | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write one self-contained HTML page about this posterior, and return its path.

        Parameters
        ----------
        path : path
            An HTML file, written whole or not at all.
        release : Release, optional
            The one this posterior was made of: adds its trace and its gradients to the page.
        table : DataFrame, mapping of columns, or path, optional
            Test rows with the outcome: adds scores and calibration. They are computed from these rows
            without noise, so they are **not** covered by the guarantee.
        overwrite : bool
            Whether an existing file may be replaced.

        Raises
        ------
        FileError
            If the file exists and `overwrite` is false, or cannot be written.
        ArgumentError
            If the release is another one, or the guarantee on record does not hold.
        DataError
            If the table lacks a column, or no row of it is complete.
        """
        return write_report(self, path, release=release, table=table, overwrite=overwrite)

    def plot_forest(self: PosteriorLike, *, probability: float = 0.9) -> "Figure":
        """Return the forest plot: each parameter's mean and interval, and whose uncertainty it is.

        Parameters
        ----------
        probability : float
            Content of the equal-tailed interval, in (0, 1).
        """
        try:
            shares: pd.DataFrame | None = shares_of(self)
        except ArgumentError:
            shares = None
        return forest_figure(summary_blocks(self, probability=probability), shares=shares)

    def plot_prior(self: PosteriorLike) -> "Figure":
        """Return each unconstrained parameter's prior beside its posterior, mean and two sds.

        Raises
        ------
        ArgumentError
            If there is no model.
        """
        theta = self.theta()
        assert self.description is not None  # theta() has checked it
        return prior_figure(prior_against_posterior(self.description, theta))

    def plot_trace(
        self: PosteriorLike, release: Release, *, coordinates: Sequence[str] | None = None
    ) -> "Figure":
        """Return the release's iterates with this posterior's window shaded and its optimum as a band.

        Parameters
        ----------
        release : Release
            The one this posterior was made of, with its trace.
        coordinates : sequence of str, optional
            Which of phi, by label; some of them all when omitted.

        Raises
        ------
        ArgumentError
            If the release is another one or keeps sums only, or has no such coordinate.
        """
        check_belongs(self, release)
        phi_star = self.groups["posterior"]["phi_star"].to_numpy()
        return trace_figure(
            release,
            burn_in=self.settings.get("burn_in"),
            coordinates=_chosen(self, release, coordinates),
            phi_star=phi_star.reshape(-1, phi_star.shape[-1]),
        )

    def plot_gradients(
        self: PosteriorLike, release: Release, *, coordinates: Sequence[str] | None = None
    ) -> "Figure":
        """Return noisy gradients against iterates with the fitted line: what the posterior is made of.

        Arguments and errors are those of `plot_trace`.
        """
        check_belongs(self, release)
        return gradients_figure(
            release,
            self.groups["posterior"],
            burn_in=self.settings.get("burn_in"),
            coordinates=_chosen(self, release, coordinates),
            is_diagonal=self.settings.get("curvature") != "dense",
        )

    def plot_calibration(self: PosteriorLike, table: TableLike) -> "Figure":
        """Return observed against predicted outcomes of test rows, in bins. Not covered by the guarantee.

        Parameters
        ----------
        table : DataFrame, mapping of columns, or path
            Test rows with the outcome.

        Raises
        ------
        ArgumentError
            If there is no model, or its outcome is categorical.
        DataError
            If the table lacks a column, or no row of it is complete.
        """
        return plot_test_calibration(self, table)


def _chosen(posterior: PosteriorLike, release: Release, coordinates: Sequence[str] | None) -> tuple[str, ...]:
    """Return the coordinates asked for, or those that checks named and some others."""
    if coordinates is not None:
        return tuple(coordinates)
    named = [name for finding in posterior.findings for name in finding.coordinates]
    count = None if release.description is None else len(release.description.names)
    return choose_coordinates(release.phi_labels, first=named, num_locations=count)
