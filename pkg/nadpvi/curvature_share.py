"""The curvature that a run may release after its last step: which runs can, and what a record may add to it.

Nothing here sees a record; `nadpvi.private.curvature` makes the release.
"""

import math

import numpy as np
from numpy.typing import NDArray

from nadpvi.config import DPVIConfig
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.dense.known import MAX_SIZE
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, window_start
from nadpvi.guides import MeanField
from nadpvi.models.base import CurvatureModel
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.selection import Selection

__all__ = ["check_curvature_share", "curvature_moments", "curvature_sensitivity"]

Array = NDArray[np.float64]


def check_curvature_share(
    description: ModelDescription,
    *,
    privacy: PrivacyBudget | NonPrivate,
    config: DPVIConfig,
    selection: Selection | None,
) -> None:
    """Refuse a share of the budget for a curvature that this run cannot release, or that nothing would read.

    Raises
    ------
    ArgumentError
        Also if so few steps are kept that the window, at whose mean iterate it is taken, is empty.
    """
    share = f"curvature_share={config.curvature_share:g}"
    if not isinstance(privacy, PrivacyBudget):
        raise ArgumentError(f"{share} is a share of a budget, and a NonPrivate run has none: leave it at 0.")
    if selection is not None:
        raise ArgumentError(f"{share} is for single runs, not for a choice among several: leave it at 0.")
    if not isinstance(description.model, CurvatureModel):
        raise ArgumentError(
            f"{share} needs LogisticRegression or LinearRegression, whose records' weights are bounded "
            f"(got {type(description.model).__name__}): leave it at 0."
        )
    if not isinstance(description.guide, MeanField):
        raise ArgumentError(f"{share} needs the guide MeanField, or leave it at 0.")
    window_start(math.ceil(config.num_steps / config.thin), burn_in=DEFAULT_BURN_IN)
    if config.keep != "trace" or config.prior_term != "public":
        raise ArgumentError(f'{share} needs keep="trace" and prior_term="public", as they are by default.')
    if description.design.num_features > MAX_SIZE:
        raise ArgumentError(
            f"{share} is for at most {MAX_SIZE} coefficients (here {description.design.num_features}): "
            "leave it at 0."
        )


def curvature_moments(description: ModelDescription, phi: Array) -> tuple[Array, Array]:
    """Return means and sds of theta under the guide at the mean iterate of a trace's window, each (K,).

    Parameters
    ----------
    description : ModelDescription
        With a mean-field guide.
    phi : ndarray, shape (T, D)
        All iterates of a run.
    """
    if not isinstance(description.guide, MeanField):
        raise ArgumentError(f"a curvature is released with the guide MeanField (got {description.guide}).")
    phi_bar = phi[window_start(len(phi), burn_in=DEFAULT_BURN_IN) :].mean(axis=0)
    return description.guide.split(phi_bar)[0], description.guide.standard_deviation(phi_bar)


def curvature_sensitivity(description: ModelDescription, phi: Array) -> float:
    """Return how much one record may add to the curvature's upper triangle, as a norm, from public bounds.

    Parameters
    ----------
    description, phi
        As for `curvature_moments`.
    """
    if not isinstance(description.model, CurvatureModel):
        raise ArgumentError(f"{type(description.model).__name__} releases no curvature.")
    mean, sd = curvature_moments(description, phi)
    size = description.design.num_features
    bound = description.model.curvature_weight_bound(extras=(mean[size:], sd[size:]))
    return bound * description.design.outer_product_bound
