"""Per-record gradients of any model by one reverse pass. Private side."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides import Guide
from nadpvi.models.base import Model, RecordBatch
from nadpvi.private.batches import Workspace
from nadpvi.private.routes.rows import DenseGradients, GradientFunction

__all__ = ["autograd_route"]

Array = NDArray[np.float64]


def autograd_route(
    model: Model,
    *,
    guide: Guide,
    phi: Array,
    standard_normal: Array,
    preconditioner: Array,
    theta: Array | None = None,
    workspace: Workspace | None = None,
) -> GradientFunction:
    """Return gradients by one reverse pass: theta is tiled to (S, B, K) and the sum differentiated once."""
    from autograd import grad

    drawn = guide.draw(phi, standard_normal) if theta is None else theta

    def gradients(batch: RecordBatch) -> DenseGradients:
        tiled = np.repeat(drawn[:, None, :], len(batch.y), axis=1)
        theta_gradient = grad(lambda value: -model.log_likelihood(value, batch).sum())(tiled)
        rows = guide.pull_back(phi, theta_gradient=theta_gradient, standard_normal=standard_normal)
        rows *= preconditioner
        return DenseGradients(rows=rows)

    return gradients
