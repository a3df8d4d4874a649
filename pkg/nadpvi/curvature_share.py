"""The curvature that a run may release after its last step: which runs can, and what a record may add to it.

Nothing here sees a record; `nadpvi.private.curvature` makes the release.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.config import DPVIConfig
from nadpvi.description import ModelDescription
from nadpvi.encoding import encode_features
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.dense.known import MAX_SIZE
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, window_start
from nadpvi.guides import MeanField
from nadpvi.made_up import evenly_spread_table
from nadpvi.models.base import CurvatureModel
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.selection import Selection

__all__ = [
    "CurvatureBounds",
    "check_curvature_share",
    "curvature_bounds",
    "curvature_moments",
    "curvature_size",
    "num_coefficients",
    "predictor_moments",
    "weight_norms",
]

Array = NDArray[np.float64]

_UNCAPPED = 0.99


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
            f"{share} needs a regression, whose records' weights follow from their predictors "
            f"(got {type(description.model).__name__}): leave it at 0."
        )
    if not isinstance(description.guide, MeanField):
        raise ArgumentError(f"{share} needs the guide MeanField, or leave it at 0.")
    window_start(math.ceil(config.num_steps / config.thin), burn_in=DEFAULT_BURN_IN)
    if config.keep != "trace" or config.prior_term != "public":
        raise ArgumentError(f'{share} needs keep="trace" and prior_term="public", as they are by default.')
    if num_coefficients(description) > MAX_SIZE:
        raise ArgumentError(
            f"{share} is for at most {MAX_SIZE} coefficients (here {num_coefficients(description)}): "
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


class CurvatureBounds(NamedTuple):
    """What one record may add, from public knowledge alone.

    Attributes
    ----------
    weight_cap : float
        The norm that the weights of a record are held to. It is the model's own bound where there is one. Of
        counts, whose weights have none, it is what all but one in a hundred made-up records stay below at the
        mean iterate; the weights of the others are made smaller.
    sensitivity : float
        The most that a record adds to the matrix's upper triangle, as a norm. With weights W of Frobenius
        norm c and features x it is at most c sqrt((|x|^4 + sum x_j^4) / 2), since the diagonal of W is no
        longer than W.
    """

    weight_cap: float
    sensitivity: float


def curvature_bounds(description: ModelDescription, phi: Array) -> CurvatureBounds:
    """Return how long a record's weights, and what it adds to the curvature, may be.

    Parameters
    ----------
    description, phi
        As for `curvature_moments`.
    """
    cap = _weight_cap(description, phi)
    return CurvatureBounds(weight_cap=cap, sensitivity=cap * description.design.outer_product_bound)


def _weight_cap(description: ModelDescription, phi: Array) -> float:
    """Return the norm that the weights of a record are held to."""
    model, design = description.model, description.design
    if not isinstance(model, CurvatureModel):
        raise ArgumentError(f"{type(model).__name__} releases no curvature.")
    moments = curvature_moments(description, phi)
    _, _, extras = predictor_moments(description, moments, x=np.zeros((0, design.num_features)))
    bound = model.curvature_weight_bound(extras=extras)
    if bound is not None:
        return bound
    x = encode_features(design, evenly_spread_table(design.schema)).x
    mean, sd, extras = predictor_moments(description, moments, x=x)
    norms = weight_norms(model.curvature_weights(mean, sd, extras=extras))
    return max(float(np.quantile(norms, _UNCAPPED)), np.finfo(np.float64).tiny)


def num_coefficients(description: ModelDescription) -> int:
    """Return J F, how many coefficients the released matrix has a row for."""
    extras = description.model.num_extras if isinstance(description.model, CurvatureModel) else 0
    return len(description.names) - extras


def curvature_size(description: ModelDescription) -> int:
    """Return how many numbers the upper triangle of the released matrix has, its diagonal included."""
    size = num_coefficients(description)
    return size * (size + 1) // 2


def predictor_moments(
    description: ModelDescription, moments: tuple[Array, Array], *, x: Array
) -> tuple[Array, Array, tuple[Array, Array]]:
    """Return means and sds under the guide: of B records' linear predictors, and of the other parameters.

    Parameters
    ----------
    description : ModelDescription
    moments : pair of ndarray, shape (K,)
        From `curvature_moments`.
    x : ndarray, shape (B, F)

    Returns
    -------
    tuple of ndarray, shape (J, B) and (J, B), and a pair of ndarray, shape (E,)
        Elementwise sums over the columns of `x`: a product of BLAS would round a record by its place.
    """
    size, num_features = num_coefficients(description), description.design.num_features
    mean, sd = (values[:size].reshape(-1, num_features) for values in moments)
    located, variance = (np.zeros((len(mean), len(x))) for _ in range(2))
    for column in range(num_features):
        located += mean[:, column, None] * x[:, column]
        variance += np.square(sd[:, column, None] * x[:, column])
    return located, np.sqrt(variance), (moments[0][size:], moments[1][size:])


def weight_norms(weights: Array) -> Array:
    """Return the Frobenius norms of records' weights, shape (J, J, B) -> (B,)."""
    squares = np.zeros(weights.shape[-1])
    for row in weights:
        for entries in row:
            squares += np.square(entries)
    norms: Array = np.sqrt(squares)
    return norms
