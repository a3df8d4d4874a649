"""The low-rank-plus-diagonal Gaussian guide."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count
from nadpvi.errors import ArgumentError
from nadpvi.guides.correlated import CorrelatedGaussian, Pattern
from nadpvi.guides.scales import gaussian_entropy, scale_of

__all__ = ["LowRank"]

Array = NDArray[np.float64]

# Of the weights at the start, in units of each parameter's own scale.
_START = 0.5
# Irrational, so that no two entries are alike.
_GOLDEN = (1.0 + math.sqrt(5.0)) / 2.0


@cache
def _from_diagonal(num_params: int, rank: int) -> Pattern:
    """Return the places on and below the diagonal of a matrix of `rank` columns, column by column."""
    columns = np.repeat(np.arange(rank), num_params - np.arange(rank))
    rows = np.concatenate([np.arange(column, num_params) for column in range(rank)])
    for index in (rows, columns):
        index.setflags(write=False)
    return Pattern(rows=rows, columns=columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRank(CorrelatedGaussian):
    """A Gaussian with covariance s (I + f f') s, f of shape (K, rank), s = diag(s(u)).

    ``phi = (mu, u, f)`` and ``theta = mu + s * (eps + f z)``; in other words the factor F is s f and the
    diagonal is s^2. f and f Q give the same covariance for any rotation Q, so that an unrestricted f would
    have directions in which nothing holds it. Here f is zero above its diagonal: that loses no covariance,
    and leaves only the columns' signs open. D = 2 K + K rank - rank (rank - 1) / 2.

    f = 0 is a saddle, at which its expected gradient vanishes. It therefore starts at up to half of each
    parameter's own scale, with magnitudes and signs that differ from entry to entry, so that no symmetry of
    the model makes it start at right angles to what it has to find.

    Parameters
    ----------
    rank : int
        Number of columns of f, from 1 to the number of model parameters.
    scale : {"sd", "variance"}
        Whether s(u) is softplus(u) or its square root.

    Examples
    --------
    >>> LowRank(rank=1).labels(["a", "b"])
    ('mu[a]', 'mu[b]', 'u[a]', 'u[b]', 'F[a,0]', 'F[b,0]')
    """

    kind: ClassVar[str] = "low_rank"

    rank: int

    def __post_init__(self) -> None:
        super(LowRank, self).__post_init__()
        object.__setattr__(self, "rank", check_count("rank", self.rank))

    def num_params(self, num_variational: int) -> int:
        """Return K for a phi of D = `num_variational` coordinates."""
        return (num_variational + self.rank * (self.rank - 1) // 2) // (2 + self.rank)

    def num_noise(self, num_params: int) -> int:
        """Return M, how many standard normal numbers one draw of theta takes: K and then the rank."""
        return num_params + self.rank

    def pattern(self, num_params: int) -> Pattern:
        """Return where the packed weights stand: on and below the diagonal of f, column by column.

        Raises
        ------
        ArgumentError
            If the rank is larger than the number of parameters.
        """
        if self.rank > num_params:
            raise ArgumentError(
                f"rank must be at most the number of model parameters, {num_params} (got {self.rank})."
            )
        return _from_diagonal(num_params, self.rank)

    def sources(self, standard_normal: Array, *, num_params: int) -> Array:
        """Return the common factors z, which come after each parameter's own noise."""
        return standard_normal[..., num_params:]

    def mix(self, weights: Array, sources: Array, *, num_params: int) -> Array:
        """Return f z, shape (..., K), for packed weights and sources z (..., rank) that broadcast."""
        leading = np.broadcast_shapes(weights.shape[:-1], sources.shape[:-1])
        total = np.zeros((*leading, num_params))
        start = 0
        for column in range(self.rank):
            part = weights[..., start : start + num_params - column]
            total[..., column:] += part * sources[..., column : column + 1]
            start += num_params - column
        return total

    def weight_labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return F[row,column] for each entry on and below the diagonal, column by column."""
        rows, columns = self.pattern(len(names))
        return tuple(f"F[{names[row]},{column}]" for row, column in zip(rows, columns, strict=True))

    def initial(self, *, mean: Array, u: float | Array) -> Array:
        """Return the starting phi, shape (D,): locations at `mean`, scales at `u`, small weights."""
        rows, columns = self.pattern(len(mean))
        weights = _START * np.cos((rows + 1.0) * (1.0 + _GOLDEN * columns))
        return np.concatenate([mean, np.broadcast_to(u, mean.shape), weights])

    def entropy(self, phi: Array) -> Array:
        """Return the differential entropy of q in nats, shape (...).

        By the determinant lemma it is that of the scales plus log det(I + f'f) / 2, whose eigenvalues are at
        least 1.
        """
        _, u, _ = self.split(phi)
        factor = np.linalg.cholesky(self._inner(self.mixing(phi)))
        correction = np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
        entropy: Array = gaussian_entropy(u, scale=self.scale) + correction
        return entropy

    def entropy_gradient(self, phi: Array) -> Array:
        """Return the gradient of `entropy` with respect to phi, shape (..., D): f (I + f'f)^-1 for f."""
        gradient = super(LowRank, self).entropy_gradient(phi)
        num_params = self.num_params(phi.shape[-1])
        rows, columns = self.pattern(num_params)
        weights = self.mixing(phi)
        slope = np.linalg.solve(self._inner(weights), np.swapaxes(weights, -1, -2))
        gradient[..., 2 * num_params :] = slope[..., columns, rows]
        return gradient

    def _inner(self, weights: Array) -> Array:
        """Return I + f'f, shape (..., rank, rank)."""
        inner: Array = np.eye(self.rank) + np.swapaxes(weights, -1, -2) @ weights
        return inner

    def _covariance_factor(self, phi: Array) -> Array:
        """Return s (I, f), shape (..., K, K + rank)."""
        _, u, _ = self.split(phi)
        num_params = u.shape[-1]
        own = np.broadcast_to(np.eye(num_params), (*phi.shape[:-1], num_params, num_params))
        factor = np.concatenate([own, self.mixing(phi)], axis=-1)
        factor *= scale_of(u, scale=self.scale)[..., None]
        return factor

    def to_dict(self) -> dict[str, Any]:
        """Return the guide as JSON types."""
        return {"kind": self.kind, "rank": self.rank, "scale": self.scale}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "LowRank":
        """Return the guide that `to_dict` described; anything else is refused."""
        if data.get("kind") != cls.kind or set(data) != {"kind", "rank", "scale"}:
            raise ArgumentError(f"guide must be a low_rank description (got keys {sorted(data)}).")
        return cls(rank=data["rank"], scale=data["scale"])
