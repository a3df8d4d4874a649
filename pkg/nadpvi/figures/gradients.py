"""What the post-processing model is fitted to: noisy gradients against iterates (the paper's figure 2)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.figures.style import DATA, PRIVACY, name_panel, panels, share_legend
from nadpvi.figures.trace import check_has_trace, check_known, choose_coordinates, spread_steps
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, window_start

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["GradientFit", "draw_fit", "gradient_fit", "gradients_figure"]

Array = NDArray[np.float64]

_PANEL = (3.4, 2.6)


class GradientFit(NamedTuple):
    """One coordinate's window and its fitted line ``slope * (phi - phi_star)``.

    Attributes
    ----------
    label : str
    phi, noisy_gradient : ndarray, shape (n,)
        Some of the window's steps. With a curvature matrix, what the other coordinates contribute is taken
        out of the gradient.
    slope, phi_star : float
        Posterior means of sampling rate times curvature, and of the optimum.
    spread : float
        Standard deviation of a gradient about the line: the privacy noise, with what subsampling adds.
    offset : float
        Added to the line. Not 0 where a curvature matrix was too large to be kept with the draws: what
        the other coordinates contribute is not known here, so the line goes through the points' mean.
    is_partial : bool
        Whether other coordinates' parts were taken out.
    """

    label: str
    phi: Array
    noisy_gradient: Array
    slope: float
    phi_star: float
    spread: float
    offset: float
    is_partial: bool


def gradient_fit(
    release: Release,
    posterior: xr.Dataset,
    *,
    label: str,
    burn_in: float | None,
    is_diagonal: bool = True,
) -> GradientFit:
    """Return the fit of one coordinate.

    Parameters
    ----------
    release : Release
        With its trace.
    posterior : xarray.Dataset
        Draws of ``phi_star``, ``curvature`` and, where there are any, ``tau`` and ``hessian``.
    label : str
    burn_in : float or None
        Of the window; 0.2 when None.
    is_diagonal : bool
        Whether the posterior took the curvature as diagonal.

    Raises
    ------
    ArgumentError
        If the release keeps sums only, or has no such coordinate.
    """
    check_has_trace(release)
    (place,) = check_known(release, [label])
    means = {
        name: posterior[name].mean(("chain", "draw")).to_numpy()
        for name in ("phi_star", "curvature", "hessian")
        if name in posterior
    }
    share = DEFAULT_BURN_IN if burn_in is None else burn_in
    steps = spread_steps(window_start(release.num_steps, burn_in=share), release.num_steps)
    gradient = release.noisy_gradient[steps, place].copy()
    hessian, rate = means.get("hessian"), release.sampling_rate
    is_partial = hessian is not None and place < len(hessian)
    if hessian is not None and is_partial:
        row = hessian[place].copy()
        row[place] = 0.0
        gradient -= rate * (release.phi[steps, : len(row)] - means["phi_star"][: len(row)]) @ row
    variance = release.noise_std[place] ** 2
    if "tau" in posterior:
        variance += float(np.square(posterior["tau"].to_numpy()[..., place]).mean())
    phi, phi_star = release.phi[steps, place], float(means["phi_star"][place])
    slope, offset = float(rate * means["curvature"][place]), 0.0
    if not (is_diagonal or is_partial or _is_scale(release, place)):
        offset = float(gradient.mean() - slope * (phi.mean() - phi_star))
    return GradientFit(
        label=label,
        phi=phi,
        noisy_gradient=gradient,
        slope=slope,
        phi_star=phi_star,
        spread=float(np.sqrt(variance)),
        offset=offset,
        is_partial=is_partial,
    )


def _is_scale(release: Release, place: int) -> bool:
    """Return whether a coordinate is behind the guide's locations, where every curvature is diagonal."""
    return release.description is not None and place >= len(release.description.names)


def gradients_figure(
    release: Release,
    posterior: xr.Dataset,
    *,
    burn_in: float | None = None,
    coordinates: Sequence[str] | None = None,
    is_diagonal: bool = True,
) -> "Figure":
    """Return a panel a coordinate: the window's noisy gradients, the fitted line and its band.

    Parameters
    ----------
    release, posterior, burn_in, is_diagonal
        As in `gradient_fit`.
    coordinates : sequence of str, optional
        Which, by label; some of them all when omitted.
    """
    names = choose_coordinates(release.phi_labels) if coordinates is None else tuple(coordinates)
    check_known(release, names)
    fits = [
        gradient_fit(release, posterior, label=name, burn_in=burn_in, is_diagonal=is_diagonal)
        for name in names
    ]
    figure, made = panels(len(fits), columns=2, size=_PANEL)
    for axes, fit in zip(made, fits, strict=True):
        draw_fit(axes, fit)
    share_legend(figure, made[0])
    return figure


def draw_fit(axes: "Axes", fit: GradientFit) -> None:
    """Draw one coordinate's noisy gradients, the fitted line, and two standard deviations about it."""
    ends = np.array([fit.phi.min(), fit.phi.max()])
    line = fit.offset + fit.slope * (ends - fit.phi_star)
    axes.plot(fit.phi, fit.noisy_gradient, ".", color="0.5", markersize=2.5, label="noisy gradients")
    axes.fill_between(ends, line - 2 * fit.spread, line + 2 * fit.spread, color=DATA, alpha=0.12, linewidth=0)
    axes.plot(ends, line, color=DATA, linewidth=1.6, label="fitted line, ±2 sd")
    if ends[0] <= fit.phi_star <= ends[1] and fit.offset == 0.0:
        axes.plot([fit.phi_star], [0.0], "D", color=PRIVACY, markersize=5, label="optimum")
    name_panel(axes, fit.label)
    axes.tick_params(labelsize=8)
    axes.set_xlabel("iterate", fontsize=8)
    axes.set_ylabel("noisy gradient", fontsize=8)
