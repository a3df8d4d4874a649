"""Per-record gradients of exponential families: one matrix product a batch. Private side.

A record's loss gradient is linear in its P statistics and the constant 1, so that a batch's gradients are
``T M`` with T the (B, P + 1) statistics and M a (P + 1, D) matrix that no record enters: the gradients of
P + 1 imagined records, pulled back through the guide once a step.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides import Guide
from nadpvi.models.base import ExponentialFamily, RecordBatch
from nadpvi.models.exponential_family import ConjugateModel
from nadpvi.private.batches import Workspace
from nadpvi.private.routes.rows import DenseGradients, Part, PerRecordGradients

__all__ = ["ExponentialGradients", "ExponentialStep", "exponential_route"]

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


class ExponentialStep(NamedTuple):
    """The gradients of a step: a function of a batch, and the prior's if it is conjugate.

    Parameters
    ----------
    model : ExponentialFamily
        Gives the statistics.
    num_params : int
        K.
    matrix : ndarray, shape (P + 1, D)
        Preconditioned loss gradient of each statistic and, last, of the constant 1.
    root : ndarray, shape (P + 1, P + 1), or None
        That of `ExponentialGradients`; None where the rows themselves are no dearer.
    prior_gradient : ndarray, shape (D,), or None
        Gradient of -E_q log p(theta), where the prior has the form of records; not preconditioned.
    workspace : Workspace
        Holds the statistics of a block.
    """

    model: ExponentialFamily
    num_params: int
    matrix: Array
    root: Array | None
    prior_gradient: Array | None
    workspace: Workspace

    def __call__(self, batch: RecordBatch) -> PerRecordGradients:
        """Return the preconditioned gradients of a batch."""
        # Records along the last axis: the rows are short, and NumPy is fast along long ones.
        statistics = self.workspace.array("statistics", (len(self.matrix), len(batch.y)))
        statistics[-1] = 1.0
        statistics[:-1] = self.model.statistics(batch, num_params=self.num_params).T
        if self.root is None:
            return DenseGradients(rows=(self.matrix.T @ statistics).T)
        return ExponentialGradients(statistics=statistics.T, matrix=self.matrix, root=self.root)


def exponential_route(
    model: ExponentialFamily,
    *,
    guide: Guide,
    phi: Array,
    standard_normal: Array,
    preconditioner: Array,
    theta: Array | None = None,
    workspace: Workspace | None = None,
) -> ExponentialStep:
    """Return gradients as the product of a batch's statistics and one matrix of the step."""
    drawn = guide.draw(phi, standard_normal) if theta is None else theta
    # (S, P + 1, K): to the guide, the loss gradients of P + 1 records.
    slopes = -model.natural_gradient(drawn)
    losses = guide.pull_back(phi, theta_gradient=slopes, standard_normal=standard_normal)
    num_rows, dimension = losses.shape
    matrix = losses * preconditioner
    prior = None
    if isinstance(model, ConjugateModel):
        prior = _prior_gradient(model, losses, guide=guide, phi=phi, standard_normal=standard_normal)
    return ExponentialStep(
        model=model,
        num_params=drawn.shape[1],
        matrix=matrix,
        # With few coordinates the rows themselves are no dearer than their shortened images.
        root=_root(matrix) if dimension > 2 * num_rows else None,
        prior_gradient=prior,
        workspace=Workspace() if workspace is None else workspace,
    )


def _prior_gradient(
    model: ConjugateModel, losses: Array, *, guide: Guide, phi: Array, standard_normal: Array
) -> Array:
    """Return the gradient of -E_q log p(theta): the prior is records seen before, and pays as they do."""
    times, tilt = _prior_times(model, guide.num_params(len(phi)))
    gradient: Array = times @ losses
    if tilt is not None:
        tilts = np.broadcast_to(tilt, (len(standard_normal), len(tilt)))
        gradient -= guide.pull_back(phi, theta_gradient=tilts, standard_normal=standard_normal)
    return gradient


@lru_cache(maxsize=32)
def _prior_times(model: ConjugateModel, num_params: int) -> tuple[Array, Array | None]:
    """Return how often the prior counts each statistic and the constant, and its tilt if it has one.

    They are the same in all steps of a run, and kept.
    """
    prior = model.prior_records(num_params)
    tilt = None if isinstance(prior.tilt, float) else prior.tilt
    return np.append(prior.statistics, prior.weight), tilt


def _root(matrix: Array) -> Array:
    """Return the square matrix A with A A' = `matrix` `matrix`'."""
    return np.asarray(np.linalg.qr(matrix.T, mode="r")).T
