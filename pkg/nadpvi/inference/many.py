"""Exact draws for many releases of one mechanism at once.

Under a diagonal curvature a coordinate of one release is like a coordinate of another.

What `nadpvi.infer` does with ``method="exact"`` for one release, laid end to end for R of them, so that an
experiment over thousands pays NumPy's overhead once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nadpvi.containers.release import Release
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model import join_models, make_gradient_model
from nadpvi.inference.curvature_prior import curvature_prior_for
from nadpvi.inference.draws import seed_sequence
from nadpvi.inference.exact import sample_exact

__all__ = ["exact_theta"]

Array = NDArray[np.float64]


def exact_theta(
    releases: Sequence[Release],
    *,
    draws: int,
    seed: int | np.random.SeedSequence,
    burn_in: float | None = None,
    phi_star_prior: str = "trace",
    curvature_prior: str = "auto",
    subsampling_noise: bool = True,
) -> Array:
    """Return independent draws of theta given each release, on the unconstrained scale.

    Parameters
    ----------
    releases : sequence of Release
        R >= 1 of one model and mechanism.
    draws : int
        S >= 1 for each.
    seed : int or SeedSequence
        Of all of them together.
    burn_in, phi_star_prior, curvature_prior, subsampling_noise
        As for `nadpvi.infer`.

    Returns
    -------
    ndarray, shape (R, S, K)

    Raises
    ------
    ArgumentError
        If there is no release, one has no model, or they do not belong together.
    """
    if not releases or any(release.description is None for release in releases):
        raise ArgumentError("releases must be one or more, each with a model.")
    joint = join_models(
        [
            make_gradient_model(
                release,
                burn_in=burn_in,
                phi_star_prior=phi_star_prior,
                curvature_prior=curvature_prior_for(release, curvature_prior),
                subsampling_noise=subsampling_noise,
            )
            for release in releases
        ]
    )
    root = seed_sequence(seed)
    quadrature_seed, guide_seed = root.spawn(2)
    drawn = sample_exact(joint, draws=draws, chains=1, seed=quadrature_seed)
    phi_star = drawn.phi_star[0].reshape(draws, len(releases), -1).transpose(1, 0, 2)
    rng = np.random.default_rng(guide_seed)
    description = releases[0].description
    assert description is not None  # checked above
    noise = rng.standard_normal((*phi_star.shape[:2], description.guide.num_noise(len(description.names))))
    return description.guide.draw(phi_star, noise)
