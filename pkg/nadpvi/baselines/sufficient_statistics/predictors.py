"""Second and fourth moments of a regression's predictors, from public knowledge or a noisy release.

The central limit theorem for X'X, X'y and y'y needs E[x_i x_j] and the covariance of the products x_i x_j,
which holds fourth moments. They must come from somewhere public: the published code of Bernstein and Sheldon
(2019) takes fourth moments from the records without noise, which no guarantee covers.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.errors import ArgumentError

__all__ = ["PredictorMoments", "gaussian_moments", "nearest_psd", "noisy_moments", "pair_indices"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PredictorMoments:
    """Moments of the F predictors of one record, of one or R replicates.

    Parameters
    ----------
    second : ndarray, shape (..., F, F)
        E[x_i x_j].
    products : ndarray, shape (..., P, P)
        Covariance of the P = F (F + 1) / 2 products x_i x_j, i <= j, in the order of `pair_indices`.

    Raises
    ------
    ArgumentError
        If the shapes do not belong together.
    """

    second: Array
    products: Array

    def __post_init__(self) -> None:
        second, products = (np.array(value, dtype=np.float64) for value in (self.second, self.products))
        number = second.shape[-1] * (second.shape[-1] + 1) // 2
        if second.shape[-2] != second.shape[-1] or products.shape != (*second.shape[:-2], number, number):
            raise ArgumentError(
                f"second and products must have shapes (..., F, F) and (..., P, P) with P = F (F + 1) / 2 "
                f"(got {second.shape} and {products.shape})."
            )
        for name, array in (("second", second), ("products", products)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def scaled(self, bounds: Array) -> "PredictorMoments":
        """Return the moments of predictors divided by `bounds` (F,)."""
        rows, columns = pair_indices(len(bounds))
        pairs = bounds[rows] * bounds[columns]
        return PredictorMoments(
            second=self.second / np.outer(bounds, bounds), products=self.products / np.outer(pairs, pairs)
        )


def pair_indices(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of a matrix's upper triangle, row after row."""
    rows, columns = np.triu_indices(size)
    return rows, columns


def gaussian_moments(mean: ArrayLike, covariance: ArrayLike) -> PredictorMoments:
    """Return the moments of normal predictors, a constant among them having variance 0.

    Fourth moments follow from the first two by Isserlis' theorem:
    cov(x_i x_j, x_k x_l) = S_ik S_jl + S_il S_jk + m_i m_k S_jl + m_i m_l S_jk + m_j m_k S_il + m_j m_l S_ik.

    Parameters
    ----------
    mean : array_like, shape (..., F)
    covariance : array_like, shape (..., F, F)

    Examples
    --------
    >>> moments = gaussian_moments([1.0, 0.0], np.diag([0.0, 1.0]))
    >>> moments.second.tolist(), np.diag(moments.products).tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [0.0, 1.0, 2.0])
    """
    mean, cov = np.asarray(mean, dtype=np.float64), np.asarray(covariance, dtype=np.float64)
    rows, columns = pair_indices(cov.shape[-1])

    def at(matrix: Array, first: NDArray[np.intp], second: NDArray[np.intp]) -> Array:
        chosen: Array = matrix[..., first[:, None], second[None, :]]
        return chosen

    second = cov + mean[..., :, None] * mean[..., None, :]
    # With raw second moments M = S + m m', the six terms are M_ik M_jl + M_il M_jk - 2 m_i m_j m_k m_l.
    fourth = at(second, rows, rows) * at(second, columns, columns)
    fourth = fourth + at(second, rows, columns) * at(second, columns, rows)
    product = mean[..., rows] * mean[..., columns]
    return PredictorMoments(
        second=second, products=fourth - 2.0 * product[..., :, None] * product[..., None, :]
    )


def noisy_moments(matrix: Array, *, num_records: Array) -> PredictorMoments:
    """Return normal moments with the means and covariances of a noisy X'X, made possible.

    X'X / N is held to [-1, 1], as it is for scaled predictors, and its covariance part projected to the
    positive semi-definite cone. Where noise drowns it, so are the moments.

    Parameters
    ----------
    matrix : ndarray, shape (R, F, F)
        Noisy X'X of predictors scaled to [-1, 1], the constant first.
    num_records : ndarray, shape (R,)
        N, or an estimate.
    """
    second = np.clip(matrix / num_records[:, None, None], -1.0, 1.0)
    mean = second[:, 0].copy()
    mean[:, 0] = 1.0
    covariance = np.zeros_like(second)
    inner = second[:, 1:, 1:] - mean[:, 1:, None] * mean[:, None, 1:]
    covariance[:, 1:, 1:] = nearest_psd(inner)
    return gaussian_moments(mean, covariance)


def nearest_psd(matrix: Array) -> Array:
    """Return the nearest positive semi-definite matrix in the Frobenius norm: (..., F, F) symmetric."""
    sizes, axes = np.linalg.eigh(matrix)
    nearest: Array = (axes * np.maximum(sizes, 0.0)[..., None, :]) @ np.swapaxes(axes, -1, -2)
    return nearest
