"""DP-SGD with aligned gradients, the steps of DPVIm: only locations are clipped and noised. Private side.

With one draw ``theta = mu + s(u) * w`` of the guide, a record's loss gradient in *any* variational parameter
is the gradient in mu times a factor that no record enters (for a mean-field scale, ``ds/du * w``): the chain
rule through the draw. So it is enough to release the sum of clipped gradients in mu with noise, in K
coordinates instead of D; the noisy gradient in the others is its image under the same factors, and
post-processing [1]_.

The image needs the very draw at which the gradient was taken. With S draws the gradient in u is the mean of
``g_s w_s``, which the mean of the ``g_s`` does not determine; the mean of the w_s in its place leaves 1 / S
of the signal in expectation, and nothing of it with draws in opposite pairs. A step here has one draw.

References
----------
.. [1] Jalko, Prediger, Honkela and Kaski (2023). DPVIm: Differentially private variational inference
   improved. Transactions on Machine Learning Research. arXiv:2210.15961.
"""

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides import Guide
from nadpvi.guides.antithetic import draw_antithetic
from nadpvi.privacy.noise import NoiseSource
from nadpvi.privacy.randomness import Streams
from nadpvi.private.batches import Workspace, block_rows
from nadpvi.private.dpsgd import release_gradient
from nadpvi.private.dpvi import State, sampled_sum
from nadpvi.private.records import Records
from nadpvi.private.routes.location import location_route
from nadpvi.public_term import public_gradient
from nadpvi.settings import Settings

__all__ = ["aligned_step", "image"]

Array = NDArray[np.float64]


def image(location_gradient: Array, *, guide: Guide, phi: Array, standard_normal: Array) -> Array:
    """Return the gradient in all of phi, shape (..., D), that a gradient in the locations implies.

    Parameters
    ----------
    location_gradient : ndarray, shape (..., K)
        Noisy or not: no record is needed.
    guide : Guide
        The variational family.
    phi : ndarray, shape (..., D)
        Where it was taken.
    standard_normal : ndarray, shape (1, ..., M)
        Noise of the one draw at which it was taken.

    Examples
    --------
    >>> from nadpvi.guides import MeanField
    >>> image(np.array([2.0]), guide=MeanField(), phi=np.array([0.0, 0.0]), standard_normal=np.array([[3.0]]))
    array([2., 3.])
    """
    return guide.pull_back(phi, theta_gradient=location_gradient[None], standard_normal=standard_normal)


def aligned_step(
    state: State,
    *,
    records: Records,
    settings: Settings,
    noise: NoiseSource,
    streams: Streams,
    workspace: Workspace | None = None,
) -> tuple[State, Array]:
    """Return the next state and the noisy gradient, shape (D,), that led to it.

    The public prior and entropy terms are added after the noise, times the sampling rate, as in
    `nadpvi.private.dpvi.step`.

    Guarantees
    ----------
    - Records enter through `clipped_sum` of their gradients in the K locations and nothing else; it is
      released with noise in K coordinates, by `release_gradient`.
    - All else follows from that release, the iterate and the guide's draw, which no record enters.
    - Whether a step fails does not depend on a record: one on which the model fails contributes zero.

    Parameters
    ----------
    state : State
        Iterate before the step.
    records : Records
        Private.
    settings : Settings
        Of the run. Its clip norm is that of a location gradient; ``monte_carlo_samples`` is 1.
    noise : NoiseSource
        Of dimension K.
    streams : Streams
        Of the run.
    workspace : Workspace, optional
        Keeps the blocks' memory for the next step.
    """
    streams.check_process()
    description = settings.description
    guide, num_params = description.guide, len(description.names)
    standard_normal = draw_antithetic(streams.monte_carlo, num_draws=1, size=guide.num_noise(num_params))
    theta = guide.draw(state.phi, standard_normal)
    public = public_gradient(description, phi=state.phi, standard_normal=standard_normal, theta=theta)
    total = sampled_sum(
        location_route(description.model, theta=theta[0]),
        dimension=num_params,
        num_rows=block_rows(max(standard_normal.size, len(state.phi))),
        records=records,
        settings=settings,
        noise=noise,
        streams=streams,
        workspace=workspace,
    )
    located = release_gradient(
        total, noise=noise, clip_norm=settings.clip_norm, preconditioner=np.ones(num_params)
    )
    noisy = image(located, guide=guide, phi=state.phi, standard_normal=standard_normal)
    noisy += settings.sampling_rate * public
    following = settings.advance(state.num_steps, phi=state.phi, noisy_gradient=noisy)
    return State(state.num_steps + 1, following), noisy
