"""One step of DP-SGD of many simulated runs, with a replicate axis. Private side, never private.

The step is that of `nadpvi.private.dpvi`, with the model's gradients linear in a record's statistics: what
depends on the iterate alone is worked out once for each replicate, shape (P + 1, D), and a record's gradient
is that matrix's product with its statistics and 1.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides import Guide
from nadpvi.models.base import ExponentialFamily
from nadpvi.privacy.noise import NoiseSource
from nadpvi.private.dpsgd import clip_weights, release_gradient
from nadpvi.private.replicates.rows import Slots
from nadpvi.private.routes.rows import DenseGradients
from nadpvi.public_term import public_gradient
from nadpvi.settings import Settings

__all__ = ["GroupState", "clipped_sums", "statistic_gradients", "step"]

Array = NDArray[np.float64]


class GroupState(NamedTuple):
    """Where G runs stand: the number of finished steps and their iterates, shape (G, D)."""

    num_steps: int
    phi: Array


def step(
    state: GroupState,
    *,
    settings: Settings,
    slots: Slots,
    standard_normal: Array,
    noise: NoiseSource,
) -> tuple[GroupState, Array]:
    """Return the next state of G runs and the noisy gradients that led to it, shape (G, D) (Eq. 58).

    Parameters
    ----------
    state : GroupState
        Iterates before the step.
    settings : Settings
        Of all runs; the model is an exponential family.
    slots : Slots
        The step's subsample.
    standard_normal : ndarray, shape (S, G, M)
        Noise of each replicate's shared draws.
    noise : NoiseSource
        Draws privacy noise of shape (G, D).
    """
    guide = settings.description.guide
    model: Any = settings.description.model
    theta = guide.draw(state.phi, standard_normal)
    public = public_gradient(
        settings.description, phi=state.phi, standard_normal=standard_normal, theta=theta
    )
    matrix = statistic_gradients(
        model, guide=guide, phi=state.phi, standard_normal=standard_normal, theta=theta
    )
    matrix *= settings.preconditioner
    if settings.num_records is not None:
        matrix[-1] += settings.preconditioner * public / settings.num_records
    total = clipped_sums(slots, matrix=matrix, clip_norm=settings.clip_norm)
    noisy = release_gradient(
        total, noise=noise, clip_norm=settings.clip_norm, preconditioner=settings.preconditioner
    )
    if settings.num_records is None:
        noisy += settings.sampling_rate * public
    following = settings.advance(state.num_steps, phi=state.phi, noisy_gradient=noisy)
    return GroupState(state.num_steps + 1, following), noisy


def statistic_gradients(
    model: ExponentialFamily, *, guide: Guide, phi: Array, standard_normal: Array, theta: Array
) -> Array:
    """Return the loss gradient in phi for each statistic and, last, for the constant 1.

    Parameters
    ----------
    model : ExponentialFamily
        P statistics.
    guide : Guide
        The variational family.
    phi : ndarray, shape (G, D)
    standard_normal : ndarray, shape (S, G, M)
    theta : ndarray, shape (S, G, K)
        The draws that this noise makes.

    Returns
    -------
    ndarray, shape (P + 1, G, D)
        A new array.
    """
    gradient = -np.moveaxis(model.natural_gradient(theta), 2, 1)
    return guide.pull_back(phi, theta_gradient=gradient, standard_normal=standard_normal[:, None])


def clipped_sums(slots: Slots, *, matrix: Array, clip_norm: float) -> Array:
    """Return each replicate's sum of clipped gradients in clip norms, shape (G, D).

    A row is clipped once, whatever its multiplicity. A row whose gradient is not finite contributes zero.

    Parameters
    ----------
    slots : Slots
        B slots for each of G replicates.
    matrix : ndarray, shape (P + 1, G, D)
        Preconditioned gradient of each statistic and of the constant.
    clip_norm : float
        C.
    """
    multiplicity = slots.multiplicity
    dimension = matrix.shape[2]
    # One coordinate at a time: the last axis is then the replicates, long and contiguous.
    weights_of = np.ascontiguousarray(matrix.transpose(0, 2, 1))
    rows = np.empty((dimension, *multiplicity.shape))
    for row, weight in zip(rows, weights_of.transpose(1, 0, 2), strict=True):
        row[:] = weight[-1]
        for statistic, factor in zip(slots.statistics, weight, strict=False):
            row += statistic * factor
    flat = DenseGradients(rows=rows.reshape(dimension, -1).T)
    weights = clip_weights(flat, clip_norm=clip_norm).reshape(multiplicity.shape)
    weights *= multiplicity / clip_norm
    total = np.stack([(row * weights).sum(axis=0) for row in rows], axis=1)
    if not np.isfinite(total).all():
        rows[:, weights == 0.0] = 0.0
        total = np.stack([(row * weights).sum(axis=0) for row in rows], axis=1)
    return total
