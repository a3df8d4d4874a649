"""What coordinates of a dense curvature offer its density and sampler, and linear algebra they share.

Every array has a leading axis for chains, of which there are C.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

__all__ = ["Coordinates", "Expansion", "Factor", "factor"]

FloatArray = NDArray[np.float64]


class Expansion(NamedTuple):
    """The records' part H of the curvature at some coordinates.

    Attributes
    ----------
    records : ndarray, shape (C, M, M)
        H, symmetric.
    log_prior : ndarray, shape (C,)
        Log prior density of the coordinates, Jacobians included, up to a constant.
    is_definite : ndarray of bool, shape (C,)
        Where H is positive semi-definite; elsewhere there is no density.
    pull_back : callable
        Takes the symmetric gradient G (C, M, M) of a log likelihood, d = sum(G * dH), and returns the
        gradient of log likelihood plus log prior in the coordinates, (C, size).
    """

    records: FloatArray
    log_prior: FloatArray
    is_definite: NDArray[np.bool_]
    pull_back: Callable[[FloatArray], FloatArray]


class Coordinates(Protocol):
    """Unconstrained coordinates of H."""

    @property
    def size(self) -> int:
        """How many there are."""

    def start(self) -> FloatArray:
        """Return where chains start, before they are dispersed, shape (size,)."""

    def dispersion(self) -> FloatArray:
        """Return the sd with which starts are dispersed, shape (size,)."""

    def expand(self, x: FloatArray) -> Expansion:
        """Return H at coordinates of shape (C, size)."""


class Factor(NamedTuple):
    """Log determinants (C,), inverses (C, M, M), and which matrices were positive definite (C,)."""

    log_det: FloatArray
    inverse: FloatArray
    is_definite: NDArray[np.bool_]


def factor(matrices: FloatArray) -> Factor:
    """Return log determinants and inverses of symmetric matrices; 0 and the identity where not definite.

    Examples
    --------
    >>> found = factor(np.array([[[2.0, 0.0], [0.0, 4.0]], [[1.0, 2.0], [2.0, 1.0]]]))
    >>> found.log_det.round(3).tolist(), found.is_definite.tolist(), found.inverse[0].round(9).tolist()
    ([2.079, 0.0], [True, False], [[0.5, 0.0], [0.0, 0.25]])
    """
    chains, size = matrices.shape[:2]
    log_det, inverse = np.zeros(chains), np.empty_like(matrices)
    is_definite = np.ones(chains, dtype=np.bool_)
    for index in range(chains):
        lower, failed = lapack.dpotrf(matrices[index].T, lower=1)
        if failed or not np.isfinite(np.diagonal(lower)).all():
            is_definite[index], inverse[index] = False, np.eye(size)
            continue
        log_det[index] = 2.0 * np.log(np.diagonal(lower)).sum()
        half, _ = lapack.dpotri(lower, lower=1)  # zero above the diagonal, as dpotrf left it
        inverse[index] = half + half.T
        inverse[index].flat[:: size + 1] *= 0.5
    return Factor(log_det, inverse, is_definite)
