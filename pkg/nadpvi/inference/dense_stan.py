"""Data of `stan/gradient_model_dense.stan`, the same density for a handful of coordinates in Stan."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.dense.density import DenseModel
from nadpvi.gradient_model.dense.matrix import MatrixCoordinates

__all__ = ["make_dense_stan_data"]

FloatArray = NDArray[np.float64]


def make_dense_stan_data(model: DenseModel) -> dict[str, int | float | FloatArray]:
    """Return the data of the dense Stan program, under the names that it declares.

    Parameters
    ----------
    model : DenseModel
        From `make_dense_model`, with a prior without pattern and without a released curvature: the program
        has neither.

    Raises
    ------
    ArgumentError
        If the model has a pattern or a released curvature, or phi_star the law that a prior implies.
    """
    coordinates, prior, sums, tau_scale = model.coordinates, model.prior, model.sums, model.tau_prior_scale
    if model.is_predictive:
        raise ArgumentError(
            "the dense Stan program has phi_star's own normal prior: make the model with that."
        )
    if not isinstance(coordinates, MatrixCoordinates) or prior.estimate is not None:
        raise ArgumentError(
            "the dense Stan program has no pattern and no released curvature: make the prior with "
            "make_dense_prior(release, use_schema=False, use_released=False)."
        )
    return {
        "D": sums.num_parameters,
        "num_steps": sums.num_steps,
        "phi_bar": sums.phi_bar,
        "g_bar": sums.g_bar,
        "s_pp": sums.s_pp,
        "s_gp": sums.s_gp,
        "s_gg": sums.s_gg,
        "sampling_rate": model.sampling_rate,
        "noise_std": model.noise_std,
        "phi_star_prior_mean": model.phi_star_prior_mean,
        "phi_star_prior_sd": model.phi_star_prior_sd,
        "use_tau": int(tau_scale is not None),
        "tau_prior_scale": np.zeros(0) if tau_scale is None else tau_scale,
        "prior_precision": prior.precision,
        "scale_centre": coordinates.centre,
        "log_scale_std": prior.log_scale_std,
        "lkj_shape": 0.5 * (prior.num_directions - sums.num_parameters + 1),
    }
