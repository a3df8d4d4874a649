"""The report's part about the release: whether it is the right one, its trace, and its gradients."""

from typing import NamedTuple

import numpy as np

from nadpvi.canvas import new_figure
from nadpvi.containers.posterior_like import PosteriorLike
from nadpvi.containers.release import Release
from nadpvi.errors import ArgumentError
from nadpvi.figures import GradientFit, choose_coordinates, draw_fit, draw_trace, gradient_fit
from nadpvi.gradient_model.data import SUM_NAMES
from nadpvi.gradient_model.priors import window_sums
from nadpvi.gradient_model.sums import window_start
from nadpvi.markup import shown_name
from nadpvi.report.parts import Picture, picture

__all__ = ["TracePart", "check_belongs", "trace_part"]

_COUNT = 6
_PANEL = (3.6, 2.5)


class TracePart(NamedTuple):
    """What the page shows of the release.

    Attributes
    ----------
    reason : str
        Why there is no trace to show; "" where there is.
    window : str
        Which steps the posterior rests on, in words.
    traces, gradients : tuple of Picture
        One a coordinate.
    num_coordinates : int
        How many there are in all.
    is_partial, is_shifted : bool
        Whether other coordinates' parts were taken out of some gradients, or some lines moved to points.
    """

    reason: str
    window: str = ""
    traces: tuple[Picture, ...] = ()
    gradients: tuple[Picture, ...] = ()
    num_coordinates: int = 0
    is_partial: bool = False
    is_shifted: bool = False


def check_belongs(posterior: PosteriorLike, release: Release) -> None:
    """Raise `ArgumentError` unless a posterior was made of this release."""
    if not isinstance(release, Release):
        raise ArgumentError(f"release must be a Release (got {type(release).__name__}).")
    draws, observed = posterior.groups["posterior"], posterior.groups.get("observed_data")
    if "phi_star" not in draws or observed is None or "phi_bar" not in observed:
        raise ArgumentError(
            f"this posterior (method {posterior.settings.get('method')}) does not say which release it was "
            "made of; leave the release out."
        )
    labels = tuple(str(label) for label in observed["phi"].to_numpy())
    is_same = labels == tuple(release.phi_labels)
    if is_same:
        burn_in = None if release.sums is not None else posterior.settings.get("burn_in")
        sums = window_sums(release, burn_in=burn_in)
        is_same = all(
            np.allclose(getattr(sums, name), observed[name].to_numpy(), rtol=1e-9) for name in SUM_NAMES
        )
    if not is_same:
        raise ArgumentError(
            "this is not the release that the posterior was made of: their sums differ; give that one."
        )


def trace_part(posterior: PosteriorLike, release: Release) -> TracePart:
    """Return the trace of some coordinates, and the gradients that the posterior was fitted to."""
    if release.sums is not None:
        return TracePart(
            "The release keeps the sums of its window, not the steps, so there is no trace to show."
        )
    burn_in = float(posterior.settings["burn_in"])
    draws = posterior.groups["posterior"]
    named = [name for finding in posterior.findings for name in finding.coordinates]
    count = None if release.description is None else len(release.description.names)
    chosen = choose_coordinates(release.phi_labels, first=named, num_locations=count, count=_COUNT)
    first = window_start(release.num_steps, burn_in=burn_in)
    is_diagonal = posterior.settings.get("curvature") != "dense"
    fits = [
        gradient_fit(release, draws, label=label, burn_in=burn_in, is_diagonal=is_diagonal)
        for label in chosen
    ]
    return TracePart(
        reason="",
        window=f"kept steps {first + 1:,} to {release.num_steps:,} of {release.num_steps:,}",
        traces=tuple(_trace(posterior, release, label, number=number) for number, label in enumerate(chosen)),
        gradients=tuple(_fit(fit, number=number) for number, fit in enumerate(fits)),
        num_coordinates=release.dimension,
        is_partial=any(fit.is_partial for fit in fits),
        is_shifted=any(fit.offset != 0.0 for fit in fits),
    )


def _trace(posterior: PosteriorLike, release: Release, label: str, *, number: int) -> Picture:
    """Return one coordinate's iterates."""
    figure = new_figure(*_PANEL)
    place = release.phi_labels.index(label)
    phi_star = posterior.groups["posterior"]["phi_star"].to_numpy().reshape(-1, release.dimension)
    draw_trace(
        figure.add_subplot(), release, place, burn_in=posterior.settings.get("burn_in"), phi_star=phi_star
    )
    begin, end, middle = release.phi[0, place], release.phi[-1, place], phi_star[:, place].mean()
    alt = (
        f"Iterates of {shown_name(label)} from {begin:.3g} to {end:.3g}; its optimum has posterior mean "
        f"{middle:.3g}."
    )
    return picture(figure, name=f"trace-{number}", alt=alt)


def _fit(fit: GradientFit, *, number: int) -> Picture:
    """Return one coordinate's gradients and line."""
    figure = new_figure(*_PANEL)
    draw_fit(figure.add_subplot(), fit)
    alt = (
        f"Noisy gradients of {shown_name(fit.label)} against its iterates, and the fitted line of slope "
        f"{fit.slope:.3g} through 0 at {fit.phi_star:.3g}; standard deviation about it {fit.spread:.3g}."
    )
    return picture(figure, name=f"gradients-{number}", alt=alt)
