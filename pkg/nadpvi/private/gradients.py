"""Per-record gradients of the negative expected log likelihood with respect to phi. Private side.

Record b's loss is ``-E_q log p(y_b | x_b, theta)``, estimated with S reparameterised draws that the whole
batch shares (Eq. 56 without its public terms), so that given the draws it depends on record b alone. Three
routes give equal numbers: reverse-mode autodiff through any model, and matrix products for models that see
records through linear predictors or sufficient statistics.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides import Guide
from nadpvi.models.base import Model
from nadpvi.private.batches import Workspace
from nadpvi.private.routes.autograd import autograd_route
from nadpvi.private.routes.exponential import exponential_route
from nadpvi.private.routes.linear import linear_route
from nadpvi.private.routes.rows import DenseGradients, GradientFunction, PerRecordGradients

__all__ = [
    "DenseGradients",
    "GradientFunction",
    "PerRecordGradients",
    "autograd_route",
    "exponential_route",
    "gradient_function",
    "linear_route",
    "with_shared_term",
]

Array = NDArray[np.float64]


def gradient_function(
    model: Model,
    *,
    guide: Guide,
    phi: Array,
    standard_normal: Array,
    preconditioner: Array,
    theta: Array | None = None,
    workspace: Workspace | None = None,
) -> GradientFunction:
    """Return the function that gives a batch's preconditioned per-record gradients at `phi`.

    What does not depend on records, the draws of theta above all, is computed here, once for all batches.

    Parameters
    ----------
    model : Model
        A `LinearModel` or an `ExponentialFamily` takes its route of matrix products, any other autodiff.
    guide : Guide
        The variational family.
    phi : ndarray, shape (D,)
        Current variational parameters.
    standard_normal : ndarray, shape (S, M)
        Noise of the shared draws.
    preconditioner : ndarray, shape (D,)
        beta, multiplied into every gradient (Eq. 58).
    theta : ndarray, shape (S, K), optional
        The draws themselves, if they are known.
    workspace : Workspace, optional
        Memory to use again in the next step: a block's gradients last until those of the next are asked for.
    """
    route = _route_of(type(model))
    if theta is None:
        theta = guide.draw(phi, standard_normal)
    made: GradientFunction = route(
        model,
        guide=guide,
        phi=phi,
        standard_normal=standard_normal,
        theta=theta,
        preconditioner=preconditioner,
        workspace=workspace,
    )
    return made


def with_shared_term(gradients: PerRecordGradients, *, share: Array, num_rows: int) -> DenseGradients:
    """Return B = `num_rows` gradients, each with its `share` of the prior, shape (D,), added (Eq. 56)."""
    rows = np.empty((num_rows, len(share)))
    for columns, part in gradients.weighted_parts(np.ones(num_rows)):
        rows[:, columns] = part
    rows += share
    return DenseGradients(rows=rows)


@cache
def _route_of(kind: type[Model]) -> Any:
    """Return the route that a model offers; asked for at every step, so the answer is kept."""
    if hasattr(kind, "score"):
        return linear_route
    if hasattr(kind, "natural_gradient"):
        return exponential_route
    return autograd_route
