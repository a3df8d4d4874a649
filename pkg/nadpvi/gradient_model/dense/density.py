"""The log density of a dense curvature given a trace, phi_star integrated out, with its gradient.

In the window the gradients of the M coordinates that may interact are one regression,

    noisy_gradient[t] ~ normal(B (phi[t] - phi_star), diag(s^2)),   B = kappa A,   s^2 = noise_std^2 + tau^2,

with A = P + H symmetric and at least P (see `dense_prior`), and phi_star ~ normal(m0, diag(w0^2)). The
sums' mean gradient carries phi_star:  g_bar | A, s ~ normal(B (phi_bar - m0), B diag(w0^2) B + diag(s^2) /
n). Everything here has a leading axis for chains, of which there are C.

Where P = diag(w0^-2) is the precision of the model's own prior, phi_star has another law under that prior
(`is_predictive`). A parameter theta ~ normal(m0, P^-1) is, given the records, nearly normal with precision A
about the optimum: theta = phi_star + e with e ~ normal(0, A^-1), so that phi_star ~ normal(m0, P^-1 - A^-1).
An optimum lies nearer to m0 than parameters do, and does not move at all where the records say nothing. Then
B cov(phi_star) B = B diag(w0^2) B - kappa B.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.dense.coordinates import Coordinates, factor
from nadpvi.gradient_model.dense.prior import DensePrior
from nadpvi.gradient_model.dense.sums import DenseSums

__all__ = [
    "DenseModel",
    "Evaluation",
    "conditional_phi_star",
    "dense_curvature",
    "evaluate",
    "mean_gradient_covariance",
    "squares",
]

FloatArray = NDArray[np.float64]

_FARTHEST = 50.0  # beyond this a coordinate's share is 1e-22: rejected, so that nothing overflows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseModel:
    """Data and priors of the coordinates that may interact; everything in it is public.

    Attributes
    ----------
    sums : DenseSums
    sampling_rate : float
        kappa in (0, 1].
    noise_std : ndarray, shape (M,)
        Sd > 0 of the DP noise in a noisy gradient.
    phi_star_prior_mean, phi_star_prior_sd : ndarray, shape (M,)
        phi_star ~ normal(mean, sd), independent, sd > 0.
    tau_prior_scale : ndarray, shape (M,), or None
        tau ~ half-normal(scale); None fixes tau at 0.
    prior : DensePrior
        The curvature's prior.
    coordinates : Coordinates
        Of the curvature, under that prior.
    is_predictive : bool
        Whether phi_star has the law that the model's prior implies, with `phi_star_prior_sd` = P^-1/2.
    """

    sums: DenseSums
    sampling_rate: float
    noise_std: FloatArray
    phi_star_prior_mean: FloatArray
    phi_star_prior_sd: FloatArray
    tau_prior_scale: FloatArray | None
    prior: DensePrior
    coordinates: Coordinates
    is_predictive: bool = False

    def __post_init__(self) -> None:
        size = self.prior.num_parameters
        if self.sums.num_parameters != size:
            raise ArgumentError(f"the sums have {self.sums.num_parameters} coordinates, the prior {size}.")
        for name in ("noise_std", "phi_star_prior_mean", "phi_star_prior_sd", "tau_prior_scale"):
            if getattr(self, name) is None:
                continue
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
            if array.shape != (size,) or not np.isfinite(array).all():
                raise ArgumentError(f"{name} must be {size} finite numbers.")
            if name != "phi_star_prior_mean" and (array <= 0).any():
                raise ArgumentError(f"{name} must be positive.")
        if self.is_predictive and not np.allclose(
            np.square(self.phi_star_prior_sd) * self.prior.precision, 1
        ):
            raise ArgumentError("is_predictive needs phi_star_prior_sd to be that of the prior's precision.")

    @property
    def size(self) -> int:
        """Number of coordinates: the curvature's, and the log factor of an estimate of unknown scale."""
        return self.coordinates.size + self.has_factor

    @property
    def has_factor(self) -> bool:
        """Whether the last coordinate is the standardised log factor of the prior's estimate."""
        return self.prior.estimate is not None and self.prior.estimate.log_scale_std > 0


class Evaluation(NamedTuple):
    """Log density (C,) and its gradient (C, size); -inf and 0 where there is none."""

    log_density: FloatArray
    gradient: FloatArray


def dense_curvature(model: DenseModel, x: FloatArray) -> FloatArray:
    """Return A = P + H at coordinates of shape (C, size), shape (C, M, M)."""
    records = model.coordinates.expand(x[:, : model.coordinates.size]).records
    return records + np.diag(model.prior.precision)


def evaluate(model: DenseModel, x: FloatArray, *, variance: FloatArray) -> Evaluation:
    """Return the log density of the coordinates given the trace and s^2, up to a constant, and its gradient.

    Parameters
    ----------
    model : DenseModel
    x : ndarray, shape (C, size)
        Coordinates of the curvature, and an estimate's log factor where it has one.
    variance : ndarray, shape (C, M)
        s^2 > 0.
    """
    is_near = np.abs(x).max(axis=1) < _FARTHEST
    x = np.where(is_near[:, None], x, 0.0)
    found = model.coordinates.expand(x[:, : model.coordinates.size])
    log_density, by_records, is_definite = _likelihood(
        model, found.records + np.diag(model.prior.precision), variance
    )
    log_density += found.log_prior
    by_factor = _add_estimate(model, x, found.records, log_density=log_density, gradient=by_records)
    gradient = np.empty_like(x)
    gradient[:, : model.coordinates.size] = found.pull_back(by_records)
    if by_factor is not None:
        gradient[:, -1] = by_factor
    is_good = is_near & is_definite & found.is_definite & np.isfinite(log_density)
    return Evaluation(np.where(is_good, log_density, -np.inf), np.where(is_good[:, None], gradient, 0.0))


def _likelihood(
    model: DenseModel, curvature: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Return the log likelihood (C,), its symmetric gradient in A (C, M, M), and where it exists (C,)."""
    sums, rate = model.sums, model.sampling_rate
    slope = rate * curvature
    of_pp = slope @ sums.s_pp
    inverse_variance = 1.0 / variance
    log_density = -0.5 * (((of_pp - 2.0 * sums.s_gp) * slope).sum(axis=2) * inverse_variance).sum(axis=1)
    by_slope = (sums.s_gp - of_pp) * inverse_variance[:, :, None]
    spread = slope * np.square(model.phi_star_prior_sd)
    found = factor(mean_gradient_covariance(model, slope, variance))
    offset = sums.phi_bar - model.phi_star_prior_mean
    deviation = sums.g_bar - (slope @ offset[..., None])[..., 0]
    weighted = (found.inverse @ deviation[:, :, None])[:, :, 0]
    log_density -= 0.5 * (found.log_det + (weighted * deviation).sum(axis=1))
    by_slope += (
        weighted[:, :, None] * (offset[..., None, :] + weighted[:, None, :] @ spread) - found.inverse @ spread
    )
    if model.is_predictive:
        by_slope += 0.5 * rate * (found.inverse - weighted[:, :, None] * weighted[:, None, :])
    return log_density, 0.5 * rate * (by_slope + by_slope.transpose(0, 2, 1)), found.is_definite


def mean_gradient_covariance(model: DenseModel, slope: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the covariance of g_bar given A and s^2, phi_star integrated out, shape (C, M, M).

    Parameters
    ----------
    model : DenseModel
    slope : ndarray, shape (C, M, M)
        B = kappa A.
    variance : ndarray, shape (C, M)
        s^2.
    """
    covariance = (slope * np.square(model.phi_star_prior_sd)) @ slope  # B is symmetric
    if model.is_predictive:
        covariance -= model.sampling_rate * slope
    size = covariance.shape[1]
    covariance[:, range(size), range(size)] += variance / model.sums.num_steps
    return covariance


def _add_estimate(
    model: DenseModel, x: FloatArray, records: FloatArray, *, log_density: FloatArray, gradient: FloatArray
) -> FloatArray | None:
    """Add an estimate's log likelihood of H; return the derivative in its log factor, if it has one."""
    estimate = model.prior.estimate
    if estimate is None:
        return None
    scale = np.exp(estimate.log_scale_std * x[:, -1]) if model.has_factor else np.ones(x.shape[0])
    # An entry and its mirror image are one number: half of it counts at each place, all of a diagonal one.
    once = 0.5 * (1.0 + np.eye(records.shape[1])) / np.square(estimate.noise_std)
    error = estimate.matrix - scale[:, None, None] * records
    by_mean = once * error
    log_density -= 0.5 * (by_mean * error).sum(axis=(1, 2))
    gradient += scale[:, None, None] * by_mean
    if not model.has_factor:
        return None
    log_density -= 0.5 * np.square(x[:, -1])
    by_factor: FloatArray = scale * (by_mean * records).sum(axis=(1, 2))
    return estimate.log_scale_std * by_factor - x[:, -1]


def conditional_phi_star(
    model: DenseModel, *, curvature: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean (C, M) and precision (C, M, M) of phi_star given the trace, A and s^2: it is normal.

    That is under its own normal prior; `draw_optimum` of the module beside draws it under the predictive one.
    """
    sums = model.sums
    slope = model.sampling_rate * curvature
    weighted = sums.num_steps * (slope / variance[:, None, :])  # B' diag(n / s^2), B symmetric
    precision = weighted @ slope
    prior_precision = 1.0 / np.square(model.phi_star_prior_sd)
    size = precision.shape[1]
    precision[:, range(size), range(size)] += prior_precision
    pull = slope @ sums.phi_bar[..., None] - sums.g_bar[..., None]
    target = (weighted @ pull)[:, :, 0]
    target += prior_precision * model.phi_star_prior_mean
    mean = np.linalg.solve(precision, target[:, :, None])[:, :, 0]
    return np.asarray(mean, dtype=np.float64), precision


def squares(model: DenseModel, *, curvature: FloatArray, phi_star: FloatArray) -> FloatArray:
    """Return sum over the window of (noisy_gradient - B (phi - phi_star))^2 per coordinate, shape (C, M)."""
    sums = model.sums
    slope = model.sampling_rate * curvature
    within = sums.s_gg + ((slope @ sums.s_pp - 2.0 * sums.s_gp) * slope).sum(axis=2)
    offset = sums.g_bar - (slope @ (sums.phi_bar - phi_star)[:, :, None])[:, :, 0]
    total: FloatArray = np.maximum(within, 0.0) + sums.num_steps * np.square(offset)
    return total
