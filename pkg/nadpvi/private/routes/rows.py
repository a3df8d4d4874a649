"""Per-record gradients of a batch, and their plain form as one matrix. Private side."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.models.base import RecordBatch

__all__ = ["DenseGradients", "GradientFunction", "Part", "PerRecordGradients", "squared_lengths"]

Array = NDArray[np.float64]


class Part(NamedTuple):
    """Some columns of B rows: their places in phi, and the values there, shape (B, number of places)."""

    columns: slice | NDArray[np.intp]
    rows: Array


def squared_lengths(rows: Array) -> Array:
    """Return each row's squared length, shape (B,), a new array."""
    # Not a dot product a row: some BLAS round it by where in memory the row begins, that is, by its place.
    lengths: Array = np.einsum("bd,bd->b", rows, rows)
    return lengths


class PerRecordGradients(Protocol):
    """Preconditioned gradients of B records in D coordinates, held as compactly as they allow."""

    def squared_norms(self) -> Array:
        """Return each record's squared norm, shape (B,), a new array."""
        ...

    def weighted_sum(self, weights: Array) -> Array:
        """Return sum_b weights[b] * gradient[b], shape (D,)."""
        ...

    def weighted_rows(self, weights: Array) -> Array:
        """Return the rows weights[b] * gradient[b], shape (B, D).

        The caller may change them; the next block, or the next call, may use their memory again.
        """
        ...

    def weighted_parts(self, weights: Array) -> list[Part]:
        """Return the rows weights[b] * gradient[b] in parts, whose columns make up all of phi.

        The caller may change them. They may stand where the gradients stood: this is the last call of all.
        """
        ...


GradientFunction = Callable[[RecordBatch], PerRecordGradients]


class DenseGradients(NamedTuple):
    """Gradients as one matrix of shape (B, D), for models without special structure."""

    rows: Array

    def squared_norms(self) -> Array:
        """Return each record's squared norm, shape (B,)."""
        return squared_lengths(self.rows)

    def weighted_sum(self, weights: Array) -> Array:
        """Return the weighted sum, shape (D,)."""
        total: Array = weights @ self.rows
        return total

    def weighted_rows(self, weights: Array) -> Array:
        """Return the weighted rows, shape (B, D)."""
        weighted: Array = self.rows * weights[:, None]
        return weighted

    def weighted_parts(self, weights: Array) -> list[Part]:
        """Return the weighted rows, one part."""
        return [Part(slice(None), self.weighted_rows(weights))]
