"""The iterates of a release: how they moved, and which of them the posterior rests on."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.errors import ArgumentError
from nadpvi.figures.style import DATA, FAINT, PRIVACY, name_panel, panels, share_legend
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, window_start

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "check_has_trace",
    "check_known",
    "choose_coordinates",
    "draw_trace",
    "spread_steps",
    "trace_figure",
]

Array = NDArray[np.float64]

_PANEL = (3.4, 2.3)
_MOST_POINTS = 500


def choose_coordinates(
    labels: Sequence[str], *, first: Iterable[str] = (), num_locations: int | None = None, count: int = 6
) -> tuple[str, ...]:
    """Return at most `count` coordinates worth a look: those of `first`, then some spread over all.

    Parameters
    ----------
    labels : sequence of str
        All D coordinates.
    first : iterable of str
        Names that a check has named; those that are no coordinate are passed over.
    num_locations : int, optional
        How many of the first coordinates are locations; a third of the rest comes from behind them.
    count : int

    Examples
    --------
    >>> labels = ["mu[a]", "mu[b]", "mu[c]", "u[a]", "u[b]", "u[c]"]
    >>> choose_coordinates(labels, first=["u[b]"], num_locations=3, count=3)
    ('u[b]', 'mu[a]', 'mu[c]')
    """
    chosen = list(dict.fromkeys(name for name in first if name in set(labels)))[:count]
    size = len(labels) if num_locations is None else min(num_locations, len(labels))
    left = count - len(chosen)
    of_scales = min(left // 3, len(labels) - size)
    for start, stop, wanted in ((0, size, left - of_scales), (size, len(labels), of_scales)):
        rest = [label for label in labels[start:stop] if label not in chosen]
        if rest and wanted > 0:
            places = np.linspace(0, len(rest) - 1, min(wanted, len(rest))).round().astype(int)
            chosen += [rest[place] for place in dict.fromkeys(places.tolist())]
    return tuple(chosen)


def trace_figure(
    release: Release,
    *,
    burn_in: float | None = None,
    coordinates: Sequence[str] | None = None,
    phi_star: Array | None = None,
) -> "Figure":
    """Return a panel a coordinate: the iterates, with the steps of the window shaded.

    Parameters
    ----------
    release : Release
        With its trace.
    burn_in : float, optional
        Share of the first steps left out of the window; 0.2 when omitted.
    coordinates : sequence of str, optional
        Which, by label; some of them all when omitted.
    phi_star : ndarray, shape (S, D), optional
        Draws of the optimum; their 90 % interval is shown as a band.

    Raises
    ------
    ArgumentError
        If the release keeps sums only, or has no such coordinate.
    """
    check_has_trace(release)
    names = choose_coordinates(release.phi_labels) if coordinates is None else tuple(coordinates)
    places = check_known(release, names)
    figure, made = panels(len(names), columns=2, size=_PANEL)
    for axes, place in zip(made, places, strict=True):
        draw_trace(axes, release, place, burn_in=burn_in, phi_star=phi_star)
    share_legend(figure, made[0])
    return figure


def draw_trace(
    axes: "Axes", release: Release, place: int, *, burn_in: float | None, phi_star: Array | None
) -> None:
    """Draw one coordinate's iterates."""
    count = release.num_steps
    first = window_start(count, burn_in=DEFAULT_BURN_IN if burn_in is None else burn_in)
    spacing = 1 if release.config is None else release.config.thin
    steps = spread_steps(0, count)
    axes.axvspan(first * spacing, (count - 1) * spacing, color="0.9", linewidth=0, label="window")
    if phi_star is not None:
        low, high = np.quantile(phi_star[:, place], [0.05, 0.95])
        axes.axhspan(low, high, color=PRIVACY, alpha=0.25, linewidth=0, label="optimum, 90 %")
    axes.plot(steps * spacing, release.phi[steps, place], color=DATA, linewidth=0.9, label="iterate")
    axes.axvline(first * spacing, color=FAINT, linewidth=0.8)
    name_panel(axes, release.phi_labels[place])
    axes.tick_params(labelsize=8)
    axes.set_xlabel("step", fontsize=8)


def spread_steps(first: int, stop: int, *, most: int = _MOST_POINTS) -> NDArray[np.intp]:
    """Return at most so many steps from `first` to before `stop`, evenly spread, both ends among them."""
    return np.unique(np.linspace(first, stop - 1, min(most, stop - first)).round().astype(np.intp))


def check_has_trace(release: Release) -> None:
    """Raise `ArgumentError` if only sums of the window were kept."""
    if release.sums is not None:
        raise ArgumentError(
            'this release keeps sums of the window, not its steps; make it with keep="trace" to see them.'
        )


def check_known(release: Release, names: Sequence[str]) -> list[int]:
    """Return the places of coordinates, or raise `ArgumentError` for one that is not there."""
    places = {label: place for place, label in enumerate(release.phi_labels)}
    if not names:
        raise ArgumentError("coordinates must name at least one.")
    for name in names:
        if name not in places:
            raise ArgumentError(
                f"the release has no coordinate {name!r}; it has {', '.join(release.phi_labels[:5])}, ..."
            )
    return [places[name] for name in names]
