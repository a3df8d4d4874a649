"""Per-record gradients of the negative expected log likelihood with respect to phi. Private side.

Record b's loss is ``-E_q log p(y_b | x_b, theta)``, estimated with S reparameterised draws that the whole
batch shares (Eq. 56 without its public terms), so that given the draws it depends on record b alone. Two
routes give equal numbers: reverse-mode autodiff through any model, and matrix products for models that see
records through a linear predictor.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides import MeanField
from nadpvi.models.base import LinearModel, Model, RecordBatch

__all__ = [
    "DenseGradients",
    "GradientFunction",
    "LinearGradients",
    "PerRecordGradients",
    "gradient_function",
    "with_shared_term",
]

Array = NDArray[np.float64]


class PerRecordGradients(Protocol):
    """Preconditioned gradients of B records in D coordinates, held as compactly as they allow."""

    def squared_norms(self) -> Array:
        """Return each record's squared norm, shape (B,)."""
        ...

    def weighted_sum(self, weights: Array) -> Array:
        """Return sum_b weights[b] * gradient[b], shape (D,)."""
        ...

    def weighted_rows(self, weights: Array) -> Array:
        """Return the rows weights[b] * gradient[b], shape (B, D), as a new array."""
        ...


GradientFunction = Callable[[RecordBatch], PerRecordGradients]


class DenseGradients(NamedTuple):
    """Gradients as one matrix of shape (B, D), for models without special structure."""

    rows: Array

    def squared_norms(self) -> Array:
        """Return each record's squared norm, shape (B,)."""
        norms: Array = np.einsum("bd,bd->b", self.rows, self.rows)
        return norms

    def weighted_sum(self, weights: Array) -> Array:
        """Return the weighted sum, shape (D,)."""
        total: Array = weights @ self.rows
        return total

    def weighted_rows(self, weights: Array) -> Array:
        """Return the weighted rows, shape (B, D)."""
        weighted: Array = np.einsum("bd,b->bd", self.rows, weights)
        return weighted


class LinearGradients(NamedTuple):
    """Gradients of a generalised linear model under a mean-field guide.

    The location part of record b is ``location[b] * x[b]``, so that it is never formed for its norm.

    Parameters
    ----------
    x : ndarray, shape (B, K)
        Features, times the preconditioner of the locations.
    location : ndarray, shape (B,)
        Mean over draws of the loss derivative in the linear predictor.
    scale : ndarray, shape (B, K)
        The scale part: ``x * (R' E / S)`` times d sd / d u and the preconditioner of the scales.
    """

    x: Array
    location: Array
    scale: Array

    def squared_norms(self) -> Array:
        """Return each record's squared norm, shape (B,)."""
        norms: Array = self.location**2 * np.einsum("bk,bk->b", self.x, self.x)
        norms += np.einsum("bk,bk->b", self.scale, self.scale)
        return norms

    def weighted_sum(self, weights: Array) -> Array:
        """Return the weighted sum, shape (D,)."""
        return np.concatenate([(weights * self.location) @ self.x, weights @ self.scale])

    def weighted_rows(self, weights: Array) -> Array:
        """Return the weighted rows, shape (B, D)."""
        half = self.x.shape[1]
        rows = np.empty((len(self.x), 2 * half))
        # einsum walks short rows with less overhead than a broadcast product.
        np.einsum("bk,b->bk", self.x, weights * self.location, out=rows[:, :half])
        np.einsum("bk,b->bk", self.scale, weights, out=rows[:, half:])
        return rows


def gradient_function(
    model: Model, *, guide: MeanField, phi: Array, standard_normal: Array, preconditioner: Array
) -> GradientFunction:
    """Return the function that gives a batch's preconditioned per-record gradients at `phi`.

    What does not depend on records, the draws of theta above all, is computed here, once for all batches.
    Models with a linear predictor take the route of matrix products, all others that of autodiff.

    Parameters
    ----------
    model : Model
        Matrix products are used where it is a `LinearModel`.
    guide : MeanField
        The variational family.
    phi : ndarray, shape (D,)
        Current variational parameters.
    standard_normal : ndarray, shape (S, K)
        Standardised noise of the shared draws.
    preconditioner : ndarray, shape (D,)
        beta, multiplied into every gradient (Eq. 58).
    """
    route = linear_route if _is_linear(type(model)) else autograd_route
    return route(
        model,  # type: ignore[arg-type]
        guide=guide,
        phi=phi,
        standard_normal=standard_normal,
        preconditioner=preconditioner,
    )


def with_shared_term(gradients: PerRecordGradients, *, share: Array, num_rows: int) -> DenseGradients:
    """Return B = `num_rows` gradients, each with its `share` of the prior, shape (D,), added (Eq. 56)."""
    return DenseGradients(rows=gradients.weighted_rows(np.ones(num_rows)) + share)


@cache
def _is_linear(kind: type[Model]) -> bool:
    """Whether a model offers the matrix route; asked at every step, so the answer is kept."""
    return hasattr(kind, "score")


def linear_route(
    model: LinearModel,
    *,
    guide: MeanField,
    phi: Array,
    standard_normal: Array,
    preconditioner: Array,
) -> GradientFunction:
    """Return gradients by matrix products: residuals R (S, B), noise E (S, K), then R'1/S and R'E/S."""
    located, scaled = guide.split(preconditioner)
    theta = guide.draw(phi, standard_normal)
    noise = standard_normal * (guide.standard_deviation_derivative(phi) * scaled / len(standard_normal))
    is_plain = bool((located == 1.0).all())

    def gradients(batch: RecordBatch) -> LinearGradients:
        residual = -model.score((batch.x @ theta.T)[None], batch.y[:, None])[0]
        scale = residual @ noise
        scale *= batch.x
        x = batch.x if is_plain else batch.x * located
        return LinearGradients(x=x, location=residual.mean(axis=1), scale=scale)

    return gradients


def autograd_route(
    model: Model, *, guide: MeanField, phi: Array, standard_normal: Array, preconditioner: Array
) -> GradientFunction:
    """Return gradients by one reverse pass: theta is tiled to (S, B, K) and the sum differentiated once."""
    from autograd import grad

    theta = guide.draw(phi, standard_normal)

    def gradients(batch: RecordBatch) -> DenseGradients:
        tiled = np.repeat(theta[:, None, :], len(batch.y), axis=1)
        theta_gradient = grad(lambda value: -model.log_likelihood(value, batch).sum())(tiled)
        rows = guide.pull_back(phi, theta_gradient=theta_gradient, standard_normal=standard_normal)
        rows *= preconditioner
        return DenseGradients(rows=rows)

    return gradients
