"""The dense model of a release: matrix sums, the diagonal model's noise and priors, and coordinates."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.data import GradientModel
from nadpvi.gradient_model.dense.coordinates import Coordinates
from nadpvi.gradient_model.dense.density import DenseModel
from nadpvi.gradient_model.dense.known import Described, make_dense_prior
from nadpvi.gradient_model.dense.layout import make_layout
from nadpvi.gradient_model.dense.matrix import MatrixCoordinates
from nadpvi.gradient_model.dense.pattern import PatternCoordinates
from nadpvi.gradient_model.dense.prior import DensePrior
from nadpvi.gradient_model.dense.sums import DenseSums, make_dense_sums

__all__ = ["DescribedTrace", "make_coordinates", "make_dense_model"]

FloatArray = NDArray[np.float64]


class DescribedTrace(Described, Protocol):
    """What the dense model reads from a release."""

    @property
    def noisy_gradient(self) -> FloatArray:
        """Noisy summed gradients, shape (T, D)."""


def make_dense_model(
    release: DescribedTrace,
    *,
    model: GradientModel,
    burn_in: float,
    prior: DensePrior | None = None,
    is_predictive: bool = False,
) -> DenseModel:
    """Return the model of the coordinates that may interact, the first M of a release's D.

    Parameters
    ----------
    release : DescribedTrace
    model : GradientModel
        The diagonal model of the same release and window: its noise, and its priors of phi_star and tau,
        are used.
    burn_in : float
        Share of the steps to drop, in [0, 1).
    prior : DensePrior, optional
        Of the curvature; `make_dense_prior`'s when omitted.
    is_predictive : bool
        Whether phi_star shall have the law that the model's own prior implies, `model` having that prior; it
        has where the prior's part of the curvature is certain for every coordinate.

    Raises
    ------
    ArgumentError
        If the prior's size does not fit.
    """
    if prior is None:
        prior = make_dense_prior(release, center=model.sums.phi_bar)
    size = prior.num_parameters
    if size > model.num_parameters:
        raise ArgumentError(f"prior has {size} coordinates, and the release only {model.num_parameters}.")
    tau_scale = model.tau_prior_scale
    prior_sd = model.phi_star_prior_sd[:size]
    is_predictive = is_predictive and bool((prior.precision > 0).all())
    if is_predictive:
        prior_sd = prior.precision**-0.5
    sums = make_dense_sums(release.phi, release.noisy_gradient, burn_in=burn_in, columns=np.arange(size))
    return DenseModel(
        sums=sums,
        sampling_rate=model.sampling_rate,
        noise_std=model.noise_std[:size],
        phi_star_prior_mean=model.phi_star_prior_mean[:size],
        phi_star_prior_sd=prior_sd,
        tau_prior_scale=None if tau_scale is None else tau_scale[:size],
        prior=prior,
        coordinates=make_coordinates(prior, centre=_centre(sums, prior=prior, model=model)),
        is_predictive=is_predictive,
    )


def _centre(sums: DenseSums, *, prior: DensePrior, model: GradientModel) -> FloatArray:
    """Return a positive guess of H's diagonal: the released one where there is one, else the slopes'."""
    moved, rate = np.diag(sums.s_pp), model.sampling_rate
    slope, error = np.diag(sums.s_gp) / moved, model.noise_std[: moved.size] / np.sqrt(moved)
    guess: FloatArray = np.hypot(slope, error) / rate
    if prior.estimate is None:
        return guess
    released, noise = np.diag(prior.estimate.matrix), np.diag(prior.estimate.noise_std)
    return np.where(np.isfinite(noise), np.maximum(released, 0.5 * noise), guess)


def make_coordinates(prior: DensePrior, *, centre: FloatArray) -> Coordinates:
    """Return coordinates for a prior's curvature, `centre` a positive guess of H's diagonal."""
    if prior.groups:
        return PatternCoordinates(layout=make_layout(prior, centre=centre))
    return MatrixCoordinates(prior=prior, centre=centre)
