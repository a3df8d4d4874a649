"""The optimum and the parameters given the curvature, under the law that the model's own prior implies.

With P the prior's precision, A = P + H, phi_star ~ normal(m0, P^-1 - A^-1) and theta = phi_star + e, where
e ~ normal(0, A^-1) is independent of phi_star and of the trace. The eigenvectors of P^-1/2 H P^-1/2 give both
covariances without a difference: with eigenvalues l they are P^-1/2 Q diag(l / (1 + l)) Q' P^-1/2 and, for
A^-1, the same with 1 / (1 + l). phi_star is drawn from its prior, and corrected by what the mean gradient
that it would have differs from the one that was seen (Matheron's rule).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.dense.density import DenseModel, mean_gradient_covariance

__all__ = ["OptimumDraw", "draw_optimum"]

FloatArray = NDArray[np.float64]


class OptimumDraw(NamedTuple):
    """A draw of phi_star and one of theta given it, each of shape (C, M)."""

    phi_star: FloatArray
    theta: FloatArray


def draw_optimum(
    rng: np.random.Generator, model: DenseModel, *, curvature: FloatArray, variance: FloatArray
) -> OptimumDraw:
    """Return draws of phi_star and theta given the trace, A and s^2.

    Parameters
    ----------
    rng : numpy.random.Generator
    model : DenseModel
        With ``is_predictive``.
    curvature : ndarray, shape (C, M, M)
        A >= P.
    variance : ndarray, shape (C, M)
        s^2 > 0.
    """
    sums, rate, sd = model.sums, model.sampling_rate, model.phi_star_prior_sd
    records = curvature - np.diag(model.prior.precision)
    eigenvalues, vectors = np.linalg.eigh(records * (sd[:, None] * sd))
    eigenvalues = np.maximum(eigenvalues, 0.0)
    normals = rng.standard_normal((3, *variance.shape))
    of_optimum = normals[0] * np.sqrt(eigenvalues / (1.0 + eigenvalues))
    of_theta = normals[1] / np.sqrt(1.0 + eigenvalues)
    prior_draw = model.phi_star_prior_mean + sd * _times(vectors, of_optimum)
    slope = rate * curvature
    gradient = _times(slope, sums.phi_bar - prior_draw) + np.sqrt(variance / sums.num_steps) * normals[2]
    covariance = mean_gradient_covariance(model, slope, variance)
    weighted = np.linalg.solve(covariance, (sums.g_bar - gradient)[:, :, None])[:, :, 0]
    phi_star = prior_draw - rate * np.square(sd) * _times(records, weighted)
    return OptimumDraw(phi_star, phi_star + sd * _times(vectors, of_theta))


def _times(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return products of matrices (C, M, M) and vectors (C, M)."""
    product: FloatArray = (matrices @ vectors[:, :, None])[:, :, 0]
    return product
