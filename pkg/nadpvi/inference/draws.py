"""What every way of sampling the post-processing model returns."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError

__all__ = ["PostProcessingDraws", "seed_sequence"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PostProcessingDraws:
    """Draws from the posterior of the post-processing model.

    Attributes
    ----------
    phi_star : ndarray, shape (chain, draw, D)
        Optimum of the variational problem, in units of phi.
    curvature : ndarray, shape (chain, draw, D)
        Diagonal Hessian a = softplus(v) of the negative ELBO.
    v : ndarray, shape (chain, draw, D)
        Unconstrained curvature.
    tau : ndarray, shape (chain, draw, D), or None
        Sd that subsampling adds to a noisy gradient; None where it was fixed at 0.
    sample_stats : dict of str to ndarray, shape (chain, draw)
        The sampler's own statistics under ArviZ's names; empty for a method whose draws are independent.
    engine_name, engine_version : str
        What sampled.
    hessian : ndarray, shape (chain, draw, M, M), optional
        The curvature matrix of the first M coordinates, where the method has one and it is not too large.
    theta : ndarray, shape (chain, draw, M), optional
        The first M unconstrained parameters given phi_star, where the method knows more of their spread than
        the guide.
    """

    phi_star: FloatArray
    curvature: FloatArray
    v: FloatArray
    tau: FloatArray | None
    sample_stats: dict[str, NDArray[np.generic]]
    engine_name: str
    engine_version: str
    hessian: FloatArray | None = None
    theta: FloatArray | None = None


def seed_sequence(seed: int | np.random.SeedSequence) -> np.random.SeedSequence:
    """Return the seed as a SeedSequence.

    Raises
    ------
    ArgumentError
        Unless it is a SeedSequence or a whole number of at least 0.

    Examples
    --------
    >>> seed_sequence(3).entropy
    3
    """
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0:
        return np.random.SeedSequence(int(seed))
    raise ArgumentError(f"seed must be a non-negative integer or a SeedSequence (got {seed!r}).")
