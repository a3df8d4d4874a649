"""Per-record gradients of exponential families: one matrix product a batch. Private side.

A record's loss gradient is linear in its P statistics and the constant 1, so that a batch's gradients are
``T M`` with T the (B, P + 1) statistics and M a (P + 1, D) matrix that no record enters: the gradients of
P + 1 imagined records, pulled back through the guide once a step.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides import Guide
from nadpvi.models.base import ExponentialFamily, RecordBatch
from nadpvi.private.batches import Workspace
from nadpvi.private.routes.rows import DenseGradients, GradientFunction, Part, PerRecordGradients

__all__ = ["ExponentialGradients", "exponential_route"]

Array = NDArray[np.float64]


class ExponentialGradients(NamedTuple):
    """The gradients ``statistics @ matrix``, not formed.

    Parameters
    ----------
    statistics : ndarray, shape (B, P + 1)
        The last column is 1.
    matrix : ndarray, shape (P + 1, D)
    root : ndarray, shape (P + 1, P + 1)
        ``root @ root.T`` is the Gram matrix ``matrix @ matrix.T``.
    """

    statistics: Array
    matrix: Array
    root: Array

    def squared_norms(self) -> Array:
        """Return each record's squared norm, shape (B,), in (P + 1)^2 operations instead of (P + 1) D."""
        # Through the root, not the Gram matrix itself: a quadratic form loses half of the digits where a
        # record's statistics nearly cancel, and can turn out negative.
        shortened = self.statistics @ self.root
        norms: Array = np.einsum("bp,bp->b", shortened, shortened)
        return norms

    def weighted_sum(self, weights: Array) -> Array:
        """Return the weighted sum, shape (D,)."""
        total: Array = (weights @ self.statistics) @ self.matrix
        return total

    def weighted_rows(self, weights: Array) -> Array:
        """Return the weighted rows, shape (B, D)."""
        rows: Array = np.einsum("bp,b->bp", self.statistics, weights) @ self.matrix
        return rows

    def weighted_parts(self, weights: Array) -> list[Part]:
        """Return the weighted rows, one part."""
        return [Part(slice(None), self.weighted_rows(weights))]


def exponential_route(
    model: ExponentialFamily,
    *,
    guide: Guide,
    phi: Array,
    standard_normal: Array,
    preconditioner: Array,
    theta: Array | None = None,
    workspace: Workspace | None = None,
) -> GradientFunction:
    """Return gradients as the product of a batch's statistics and one matrix of the step."""
    kept = Workspace() if workspace is None else workspace
    drawn = guide.draw(phi, standard_normal) if theta is None else theta
    num_params = drawn.shape[1]
    # (S, P + 1, K): to the guide, the loss gradients of P + 1 records.
    slopes = -model.natural_gradient(drawn)
    matrix = guide.pull_back(phi, theta_gradient=slopes, standard_normal=standard_normal) * preconditioner
    num_rows, dimension = matrix.shape
    # With few coordinates the rows themselves are no dearer than their shortened images.
    root = _root(matrix) if dimension > 2 * num_rows else None

    def gradients(batch: RecordBatch) -> PerRecordGradients:
        # Records along the last axis: the rows are short, and NumPy is fast along long ones.
        statistics = kept.array("statistics", (num_rows, len(batch.y)))
        statistics[-1] = 1.0
        statistics[:-1] = model.statistics(batch, num_params=num_params).T
        if root is None:
            return DenseGradients(rows=(matrix.T @ statistics).T)
        return ExponentialGradients(statistics=statistics.T, matrix=matrix, root=root)

    return gradients


def _root(matrix: Array) -> Array:
    """Return the square matrix A with A A' = `matrix` `matrix`'."""
    return np.asarray(np.linalg.qr(matrix.T, mode="r")).T
