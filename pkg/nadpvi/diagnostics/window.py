"""Numbers about a window of a release, one a coordinate: what the checks compare with their thresholds.

Of n kept steps, ``r = g - g_bar - c (phi - phi_bar)`` are the residuals of the regression of gradient on
iterate, c = s_gp / s_pp its slope, an estimate of kappa * a, and s^2 = sum r^2 / (n - 2).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nadpvi.diagnostics.dynamics import Dynamics, contrast_variance, fitted_dynamics, known_dynamics
from nadpvi.gradient_model.data import TraceSums

__all__ = ["WindowNumbers", "numbers_of_sums", "numbers_of_trace", "split_means", "start_score"]

FloatArray = NDArray[np.float64]

# n * D * D beyond which all pairs of coordinates would take longer than the rest together, some seconds.
_MOST_PRODUCTS = 2e10
# Share of squares that rounding leaves of a fit without error.
_EXACT_FIT = 1e-15


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WindowNumbers:
    """What was measured, arrays of shape (D,); NaN throughout where a release does not show it.

    Attributes
    ----------
    num_kept : int
        n, the noisy gradients in the window.
    step : ndarray
        lambda * c: the share of the way to phi_star that one step goes.
    relaxation_times : ndarray
        How many times the window holds 1 / (lambda * c) steps.
    drift, start : ndarray
        First third less last third, and the window's first iterate less its mean, in standard errors of a
        stationary AR(1).
    drift_freedom, start_freedom : ndarray
        Degrees of freedom of those.
    quadratic : ndarray
        t of a quadratic term of the residuals, with n - 3 degrees of freedom; NaN where that is 0.
    quadratic_shift : ndarray
        By how much that term would move phi_star.
    variance_ratio : ndarray
        s^2 over the variance of the privacy noise.
    autocorrelation : ndarray
        Of the residuals, one kept step apart.
    cross : ndarray
        Largest t of another coordinate's iterate beside the own, with n - 3 degrees of freedom.
    cross_correlation : ndarray
        That slope over the root of both own slopes, NaN where either is not positive.
    cross_with : ndarray of int
        Which other coordinate; -1 for none.
    prior_weight : ndarray
        Share in [0, 1] of the precision of phi_star that comes from its prior.
    phi_star_sd : ndarray
        Approximate posterior standard deviation of phi_star.
    """

    num_kept: int
    step: FloatArray
    relaxation_times: FloatArray
    drift: FloatArray
    drift_freedom: FloatArray
    start: FloatArray
    start_freedom: FloatArray
    quadratic: FloatArray
    quadratic_shift: FloatArray
    variance_ratio: FloatArray
    autocorrelation: FloatArray
    cross: FloatArray
    cross_correlation: FloatArray
    cross_with: NDArray[np.int64]
    prior_weight: FloatArray
    phi_star_sd: FloatArray


def numbers_of_sums(
    sums: TraceSums,
    *,
    learning_rate: FloatArray,
    noise_std: FloatArray,
    prior_sd: FloatArray,
    spacing: int = 1,
    final_phi: FloatArray | None = None,
) -> WindowNumbers:
    """Return what the sums of a window show.

    Parameters
    ----------
    sums : TraceSums
    learning_rate : ndarray, shape (D,)
        lambda; NaN where it is not known.
    noise_std, prior_sd : ndarray, shape (D,)
        Sd of the privacy noise in a gradient, and of phi_star's prior.
    spacing : int
        Steps from one kept gradient to the next.
    final_phi : ndarray, shape (D,), optional
        The iterate after the window, where it tells where the window began: every step kept, none of them
        larger or held to a box.
    """
    slope, count = sums.slope, sums.num_steps
    noise_sd = np.sqrt(sums.residual / (count - 2))
    step = learning_rate * slope
    information = count * np.square(np.maximum(slope, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # no noise at all is no information lost
        precision = np.where(information > 0, information / np.square(noise_sd), 0.0)
    nothing = np.full(sums.num_parameters, np.nan)
    start, freedom = nothing, nothing
    if final_phi is not None:
        moves = known_dynamics(
            step=step,
            learning_rate=learning_rate,
            noise_sd=noise_sd,
            root_spread=np.sqrt(sums.s_pp),
            num_steps=count,
        )
        first = final_phi + count * learning_rate * sums.g_bar
        start, freedom = start_score(first - sums.phi_bar, moves)
    return WindowNumbers(
        num_kept=count,
        step=step,
        relaxation_times=count * spacing * step,
        drift=nothing,
        drift_freedom=nothing,
        start=start,
        start_freedom=freedom,
        quadratic=nothing,
        quadratic_shift=nothing,
        variance_ratio=np.square(noise_sd / noise_std),
        autocorrelation=nothing,
        cross=nothing,
        cross_correlation=nothing,
        cross_with=np.full(sums.num_parameters, -1),
        prior_weight=1.0 / (1.0 + precision * np.square(prior_sd)),
        phi_star_sd=1.0 / np.sqrt(precision + 1.0 / np.square(prior_sd)),
    )


def numbers_of_trace(
    phi: FloatArray,
    noisy_gradient: FloatArray,
    *,
    sums: TraceSums,
    learning_rate: FloatArray,
    noise_std: FloatArray,
    prior_sd: FloatArray,
    spacing: int = 1,
    is_plain: bool = True,
    has_pairs: bool = True,
) -> WindowNumbers:
    """Return what a window's kept steps show.

    Parameters
    ----------
    phi, noisy_gradient : ndarray, shape (n, D)
        The window alone.
    sums : TraceSums
        Of that window.
    learning_rate, noise_std, prior_sd, spacing
        As in `numbers_of_sums`.
    is_plain : bool
        Whether each kept iterate is the one before less lambda times its gradient; otherwise the moves are
        described by the AR(1) that fits them.
    has_pairs : bool
        Whether residuals are compared with other coordinates' iterates.
    """
    basic = numbers_of_sums(
        sums, learning_rate=learning_rate, noise_std=noise_std, prior_sd=prior_sd, spacing=spacing
    )
    slope, count = sums.slope, sums.num_steps
    centred = phi - sums.phi_bar
    residual = noisy_gradient - sums.g_bar
    residual -= slope * centred
    squares = np.einsum("td,td->d", residual, residual)
    if is_plain:
        moves = known_dynamics(
            step=basic.step,
            learning_rate=learning_rate,
            noise_sd=np.sqrt(squares / (count - 2)),
            root_spread=np.sqrt(sums.s_pp),
            num_steps=count,
        )
        times = basic.relaxation_times
    else:
        moves = fitted_dynamics(phi)
        times = count * -np.log(np.clip(1.0 - moves.decay, 1e-6, 1.0))
        times = np.where(np.isnan(basic.relaxation_times), times, basic.relaxation_times)
    drift, drift_freedom = split_means(phi, moves)
    start, start_freedom = start_score(centred[0], moves)
    quadratic, shift = _quadratic(centred, residual, sums=sums, squares=squares)
    lagged = np.einsum("td,td->d", residual[1:], residual[:-1])
    cross, correlation, partner = _cross(centred, residual, sums=sums, squares=squares, has_pairs=has_pairs)
    return WindowNumbers(
        num_kept=count,
        step=basic.step,
        relaxation_times=times,
        drift=drift,
        drift_freedom=drift_freedom,
        start=start,
        start_freedom=start_freedom,
        quadratic=quadratic,
        quadratic_shift=shift,
        variance_ratio=basic.variance_ratio,
        autocorrelation=np.divide(lagged, squares, out=np.zeros_like(lagged), where=squares > 0),
        cross=cross,
        cross_correlation=correlation,
        cross_with=partner,
        prior_weight=basic.prior_weight,
        phi_star_sd=basic.phi_star_sd,
    )


def split_means(phi: FloatArray, moves: Dynamics) -> tuple[FloatArray, FloatArray]:
    """Return first third less last third of a window in standard errors, and its degrees of freedom.

    Geweke's diagnostic with the autocorrelation of an AR(1) in the standard error, shape (D,).
    """
    count = len(phi)
    part = max(count // 3, 1)
    difference = phi[:part].mean(axis=0) - phi[-part:].mean(axis=0)
    error = moves.sd * np.sqrt(contrast_variance(moves.decay, num_steps=count, num_part=part))
    score = np.divide(difference, error, out=np.zeros_like(difference), where=error > 0)
    return score, moves.freedom


def start_score(deviation: FloatArray, moves: Dynamics) -> tuple[FloatArray, FloatArray]:
    """Return the first iterate's deviation from the window's mean in stationary sds, and its freedom."""
    score = np.divide(deviation, moves.sd, out=np.zeros_like(deviation), where=moves.sd > 0)
    # The spread goes with the root of the decay, so that it is known twice as well.
    return score, 4.0 * moves.freedom


def _with_freedom(correlation: FloatArray, freedom: int) -> FloatArray:
    """Return the Student t of a partial correlation; NaN without degrees of freedom."""
    if freedom < 1:
        return np.full_like(correlation, np.nan)
    rest = np.maximum(1.0 - np.square(correlation), _EXACT_FIT)
    return correlation * np.sqrt(freedom / rest)


def _quadratic(
    centred: FloatArray, residual: FloatArray, *, sums: TraceSums, squares: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the t of a quadratic term beside the line, and by how much it would move phi_star."""
    count, slope, spread = sums.num_steps, sums.slope, sums.s_pp
    square = np.square(centred)
    third = np.einsum("td,td->d", square, centred)
    fourth = np.einsum("td,td->d", square, square)
    product = np.einsum("td,td->d", square, residual)
    with np.errstate(divide="ignore", invalid="ignore"):  # too few steps, or none that differ: NaN
        # Of the square that is orthogonal to the line.
        size = fourth - np.square(spread) / count - np.square(third) / spread
        size = np.where(size > 1e-12 * fourth, size, np.nan)
        term = product / size
        score = _with_freedom(product / np.sqrt(size * squares), count - 3)
        delta = -sums.g_bar / slope
        shift = -term * (np.square(delta) - spread / count - delta * third / spread) / slope
    return score, shift


def _cross(
    centred: FloatArray, residual: FloatArray, *, sums: TraceSums, squares: FloatArray, has_pairs: bool
) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    """Return each residual's strongest slope on another coordinate: its t, its correlation, and on which."""
    count, size = centred.shape
    nothing = np.full(size, np.nan)
    if not has_pairs or size < 2 or count * size**2 > _MOST_PRODUCTS:
        return nothing, nothing, np.full(size, -1)
    slope, spread = sums.slope, sums.s_pp
    product = residual.T @ centred
    shared = centred.T @ centred
    own = spread[None, :] - np.square(shared) / spread[:, None]
    np.fill_diagonal(own, np.nan)
    own[own <= 1e-9 * spread] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):  # a slope that is not positive has no root: NaN
        score = _with_freedom(product / np.sqrt(own * squares[:, None]), count - 3)
        score = np.where(np.isfinite(score), score, 0.0)
        partner = np.argmax(np.abs(score), axis=1)
        rows = np.arange(size)
        correlation = product[rows, partner] / own[rows, partner] / np.sqrt(slope * slope[partner])
    return score[rows, partner], correlation, partner
