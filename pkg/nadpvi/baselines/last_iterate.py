"""The naive baseline: believe the last iterate of DP-SGD, noise and all. Public side."""

import numpy as np

from nadpvi.checks import check_count
from nadpvi.containers.posterior import Posterior, model_variables
from nadpvi.containers.release import Release
from nadpvi.errors import ArgumentError
from nadpvi.privacy.randomness import check_seed

__all__ = ["last_iterate_posterior"]


def last_iterate_posterior(release: Release, *, draws: int = 4000, seed: int | None = None) -> Posterior:
    """Return q(theta; phi_T), the posterior that DP variational inference reports without noise-awareness.

    The draws are of theta from q, scales and all: what is left out is the noise in phi_T itself. Under the
    release's guarantee, being post-processing.

    Parameters
    ----------
    release : Release
        With a model.
    draws : int
        Independent draws, in one chain.
    seed : int, optional
        Makes the draws reproducible.

    Raises
    ------
    ArgumentError
        If the release has no model, or a setting is out of range.
    """
    if not isinstance(release, Release):
        raise ArgumentError(f"release must be a Release (got {type(release).__name__}).")
    check_count("draws", draws)
    description = release.description
    if description is None:
        raise ArgumentError("this release has no model, so its last iterate is not a posterior.")
    rng = np.random.default_rng(None if seed is None else check_seed("seed", seed))
    guide = description.guide
    num_noise = guide.num_noise(len(description.names))
    theta = guide.draw(release.final_phi, rng.standard_normal((1, draws, num_noise)))
    return Posterior(
        groups={"posterior": model_variables(description, theta)},
        settings={"method": "last_iterate"},
        guarantee=release.guarantee,
        description=description,
    )
