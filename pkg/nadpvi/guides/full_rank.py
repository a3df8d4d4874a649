"""The full-rank Gaussian guide: any covariance, by a Cholesky factor with positive diagonal."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError
from nadpvi.guides.correlated import CorrelatedGaussian, Pattern
from nadpvi.guides.scales import scale_of

__all__ = ["FullRank"]

Array = NDArray[np.float64]


@cache
def _below_diagonal(num_params: int) -> Pattern:
    """Return the places below the diagonal of a square matrix, row by row."""
    rows, columns = np.tril_indices(num_params, -1)
    for index in (rows, columns):
        index.setflags(write=False)
    return Pattern(rows=rows, columns=columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullRank(CorrelatedGaussian):
    """A Gaussian with any covariance L L', D = 2 K + K (K - 1) / 2 variational parameters.

    ``phi = (mu, u, l)``: row k of L is s(u_k) times ``(l_k1, ..., l_k,k-1, 1, 0, ...)``. Its diagonal is
    positive whatever u is, and every Cholesky factor has exactly one such phi. Stan's full-rank ADVI has L
    itself as its parameters, with a diagonal of any sign; below the diagonal their curvature is that of the
    locations, about N times that of u, and no common preconditioner suits both.

    It starts without correlations. Where the curvature has any, the gradient there does not vanish.

    Parameters
    ----------
    scale : {"sd", "variance"}
        Whether s(u) is softplus(u) or its square root.

    Examples
    --------
    >>> FullRank().labels(["a", "b"])
    ('mu[a]', 'mu[b]', 'u[a]', 'u[b]', 'L[b,a]')
    """

    kind: ClassVar[str] = "full_rank"

    def num_params(self, num_variational: int) -> int:
        """Return K for a phi of D = `num_variational` coordinates."""
        return (math.isqrt(9 + 8 * num_variational) - 3) // 2

    def num_noise(self, num_params: int) -> int:
        """Return M, how many standard normal numbers one draw of theta takes: K."""
        return num_params

    def pattern(self, num_params: int) -> Pattern:
        """Return where the packed weights stand: below the diagonal, row by row."""
        return _below_diagonal(num_params)

    def sources(self, standard_normal: Array, *, num_params: int) -> Array:
        """Return the noise that later rows take up: all but the last."""
        return standard_normal[..., : num_params - 1]

    def mix(self, weights: Array, sources: Array, *, num_params: int) -> Array:
        """Return W sources, shape (..., K), for packed weights and sources (..., K - 1) that broadcast."""
        leading = np.broadcast_shapes(weights.shape[:-1], sources.shape[:-1])
        total = np.zeros((*leading, num_params))
        start = 0
        for row in range(1, num_params):
            part = weights[..., start : start + row]
            total[..., row] = np.einsum("...j,...j->...", part, sources[..., :row])
            start += row
        return total

    def weight_labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return L[row,column] for each entry below the diagonal, row by row."""
        return tuple(f"L[{row},{column}]" for k, row in enumerate(names) for column in names[:k])

    def initial(self, *, mean: Array, u: float | Array) -> Array:
        """Return the starting phi, shape (D,): locations at `mean`, scales at `u`, no correlations."""
        num_params = len(mean)
        num_weights = num_params * (num_params - 1) // 2
        return np.concatenate([mean, np.broadcast_to(u, mean.shape), np.zeros(num_weights)])

    def _covariance_factor(self, phi: Array) -> Array:
        """Return L, shape (..., K, K)."""
        _, u, _ = self.split(phi)
        num_params = u.shape[-1]
        factor = np.zeros((*phi.shape[:-1], num_params, num_params))
        factor[..., :-1] = self.mixing(phi)
        factor += np.eye(num_params)
        factor *= scale_of(u, scale=self.scale)[..., None]
        return factor

    def to_dict(self) -> dict[str, Any]:
        """Return the guide as JSON types."""
        return {"kind": self.kind, "scale": self.scale}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "FullRank":
        """Return the guide that `to_dict` described; anything else is refused."""
        if data.get("kind") != cls.kind or set(data) != {"kind", "scale"}:
            raise ArgumentError(f"guide must be a full_rank description (got keys {sorted(data)}).")
        return cls(scale=data["scale"])
