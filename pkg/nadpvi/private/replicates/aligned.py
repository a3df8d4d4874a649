"""The step of DPVIm for many simulated runs, with a replicate axis. Private side, never private."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.privacy.noise import NoiseSource
from nadpvi.private.aligned import image
from nadpvi.private.dpsgd import release_gradient
from nadpvi.private.replicates.rows import Slots
from nadpvi.private.replicates.steps import GroupState, clipped_sums
from nadpvi.public_term import public_gradient
from nadpvi.settings import Settings

__all__ = ["aligned_group_step"]

Array = NDArray[np.float64]


def aligned_group_step(
    state: GroupState, *, settings: Settings, slots: Slots, standard_normal: Array, noise: NoiseSource
) -> tuple[GroupState, Array]:
    """Return the next state of G runs and the noisy gradients that led to it, shape (G, D).

    The step is that of `nadpvi.private.aligned.aligned_step`.

    Parameters
    ----------
    state : GroupState
        Iterates before the step.
    settings : Settings
        Of all runs; the model is an exponential family.
    slots : Slots
        The step's subsample.
    standard_normal : ndarray, shape (1, G, M)
        Noise of each replicate's draw.
    noise : NoiseSource
        Draws privacy noise of shape (G, K).
    """
    description = settings.description
    guide = description.guide
    model: Any = description.model
    theta = guide.draw(state.phi, standard_normal)
    public = public_gradient(description, phi=state.phi, standard_normal=standard_normal, theta=theta)
    matrix = -np.moveaxis(model.natural_gradient(theta[0]), 1, 0)
    total = clipped_sums(slots, matrix=matrix, clip_norm=settings.clip_norm)
    located = release_gradient(
        total, noise=noise, clip_norm=settings.clip_norm, preconditioner=np.ones(total.shape[1])
    )
    noisy = image(located, guide=guide, phi=state.phi, standard_normal=standard_normal)
    noisy += settings.sampling_rate * public
    following = settings.advance(state.num_steps, phi=state.phi, noisy_gradient=noisy)
    return GroupState(state.num_steps + 1, following), noisy
