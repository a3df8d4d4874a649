"""Linear algebra of small covariance matrices, one a replicate. Public side."""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

from nadpvi.errors import NadpviError

__all__ = ["solve", "total_covariance"]

Array = NDArray[np.float64]

# Up to this size elimination in NumPy is faster than a call of LAPACK for each replicate.
_SMALL = 8


def total_covariance(covariance: Array, variance: Array, num_records: Array) -> Array:
    """Return N V + diag(v), the covariance of noisy sums: V (R, J, J), v (R, J), N (R,) -> (R, J, J)."""
    total: Array = covariance * num_records[:, None, None]
    places = np.arange(variance.shape[1])
    total[:, places, places] += variance
    return total


def solve(matrix: Array, vectors: Array) -> tuple[Array, Array]:
    """Return matrix^-1 vector (R, J) and the log determinant (R,) of each replicate's positive matrix."""
    if matrix.shape[1] <= _SMALL:
        return _solve_small(matrix, vectors)
    # One factorisation for both, which NumPy does not offer.
    solved, log_det = np.empty(vectors.shape), np.empty(len(vectors))
    for place, (each, vector) in enumerate(zip(matrix, vectors, strict=True)):
        factor, failed = lapack.dpotrf(each, lower=1, clean=0)
        if failed:
            raise NadpviError(
                f"the covariance of {len(vector)} noisy sums is not positive definite (pivot {failed})."
            )
        solved[place], _ = lapack.dpotrs(factor, vector, lower=1)
        log_det[place] = 2.0 * np.log(factor.diagonal()).sum()
    return solved, log_det


def _solve_small(matrix: Array, vectors: Array) -> tuple[Array, Array]:
    """Return the same by Gauss's elimination, all replicates at once, which LAPACK takes one by one."""
    size = vectors.shape[1]
    left, right = np.moveaxis(matrix, 0, -1).copy(), vectors.T.copy()
    for pivot in range(size):
        for row in range(pivot + 1, size):
            factor = left[row, pivot] / left[pivot, pivot]
            left[row, pivot + 1 :] -= factor * left[pivot, pivot + 1 :]
            right[row] -= factor * right[pivot]
    for row in reversed(range(size)):
        for column in range(row + 1, size):
            right[row] -= left[row, column] * right[column]
        right[row] /= left[row, row]
    log_det: Array = np.log(left[np.arange(size), np.arange(size)]).sum(axis=0)
    return np.ascontiguousarray(right.T), log_det
