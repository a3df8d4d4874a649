"""The window of a release, and its numbers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.diagnostics.window import WindowNumbers, numbers_of_sums, numbers_of_trace
from nadpvi.gradient_model.priors import window_sums
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, make_trace_sums, window_start

__all__ = ["ReleaseWindow", "released_window", "window_numbers"]

FloatArray = NDArray[np.float64]

# How far a kept step may be from the one that the learning rate implies, over the size of a step.
_MOVE_TOLERANCE = 1e-3


class ReleaseWindow(NamedTuple):
    """The window of a release, and how its kept steps follow each other.

    Attributes
    ----------
    phi, noisy_gradient : ndarray, shape (n, D), or None
        None where only sums were kept.
    spacing : int
        Steps from one kept gradient to the next.
    is_plain : bool
        Whether each kept iterate is the one before less lambda times its gradient.
    burn_in : float or None
    """

    phi: FloatArray | None
    noisy_gradient: FloatArray | None
    spacing: int
    is_plain: bool
    burn_in: float | None


def released_window(release: Release, *, burn_in: float | None) -> ReleaseWindow:
    """Return the steps of a release's window, where it has them."""
    config = release.config
    if release.sums is not None:
        window_sums(release, burn_in=burn_in)  # refuses a burn_in
        is_plain = config is not None and config.box_mu is None and config.box_u is None
        first = None if config is None else window_start(config.num_steps, burn_in=config.burn_in)
        is_plain = is_plain and first is not None and first >= config.early_steps  # type: ignore[union-attr]
        return ReleaseWindow(None, None, 1, is_plain, None if config is None else config.burn_in)
    share = DEFAULT_BURN_IN if burn_in is None else burn_in
    first = window_start(release.num_steps, burn_in=share)
    phi, gradient = release.phi[first:], release.noisy_gradient[first:]
    spacing = 1 if config is None else config.thin
    moves, expected = np.diff(phi, axis=0), -release.learning_rate * gradient[:-1]
    with np.errstate(invalid="ignore"):
        error = np.abs(moves - expected).max(axis=0)
        is_plain = bool((error <= _MOVE_TOLERANCE * np.abs(expected).max(axis=0)).all())
    return ReleaseWindow(phi, gradient, spacing, is_plain, share)


def window_numbers(
    release: Release, window: ReleaseWindow, *, prior_sd: FloatArray | None = None, has_pairs: bool = True
) -> WindowNumbers:
    """Measure a window.

    Parameters
    ----------
    release : Release
    window : ReleaseWindow
        From `released_window`.
    prior_sd : ndarray, shape (D,), optional
        Of phi_star; when omitted that of the model, and 1 where it says nothing.
    has_pairs : bool
        Whether coordinates are compared with each other, which takes most of the time.
    """
    if prior_sd is None:
        prior_sd = np.where(np.isnan(release.model_prior_sd), 1.0, release.model_prior_sd)
    rate, noise_std, spacing = release.learning_rate, release.noise_std, window.spacing
    if window.phi is None or window.noisy_gradient is None:
        return numbers_of_sums(
            window_sums(release, burn_in=None),
            learning_rate=rate,
            noise_std=noise_std,
            prior_sd=prior_sd,
            final_phi=release.final_phi if window.is_plain else None,
        )
    return numbers_of_trace(
        window.phi,
        window.noisy_gradient,
        sums=make_trace_sums(window.phi, window.noisy_gradient, burn_in=0.0),
        learning_rate=rate,
        noise_std=noise_std,
        prior_sd=prior_sd,
        spacing=spacing,
        is_plain=window.is_plain,
        has_pairs=has_pairs,
    )
