"""The part of the loss that no record enters, prior and entropy: for both sides of the wall."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.encoding import Design
from nadpvi.models.base import Model

__all__ = ["prior_score", "public_gradient"]

Array = NDArray[np.float64]


def public_gradient(
    description: ModelDescription, *, phi: Array, standard_normal: Array, theta: Array | None = None
) -> Array:
    """Return the gradient of -E_q log p(theta) - entropy(q), shape (D,): no record is involved.

    Parameters
    ----------
    description : ModelDescription
        Gives the prior and the guide.
    phi : ndarray, shape (D,)
        Current iterate.
    standard_normal : ndarray, shape (S, K)
        Noise of the step's shared draws.
    theta : ndarray, shape (S, K), optional
        The draws, if they are known.
    """
    guide = description.guide
    if theta is None:
        theta = guide.draw(phi, standard_normal)
    score = prior_score(description.model, theta, design=description.design)
    expected = guide.pull_back(phi, theta_gradient=score, standard_normal=standard_normal)
    gradient: Array = -expected - guide.entropy_gradient(phi)
    return gradient


def prior_score(model: Model, theta: Array, *, design: Design) -> Array:
    """Return the gradient of the model's log prior, by its own formula where it has one, else by autodiff."""
    formula: Callable[[Array, Design], Array] | None = getattr(model, "log_prior_gradient", None)
    if formula is not None:
        return formula(theta, design)
    from autograd import grad

    gradient: Array = grad(lambda value: model.log_prior(value, design).sum())(theta)
    return gradient
