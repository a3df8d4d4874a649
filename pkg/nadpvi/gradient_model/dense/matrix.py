"""Coordinates of a curvature of whose pattern nothing is known: scales, and directions of its rows.

H = diag(root h) R diag(root h) with R = U U', and the rows of U unit vectors in nu dimensions, f_i / |f_i|.
The coordinates are z = log(h / centre) / log_scale_std and the M x nu entries of f, a priori all standard
normal. R's density is then proportional to |R|^((nu - M - 1) / 2), the LKJ density with shape eta = (nu - M +
1) / 2 (Lewandowski, Kurowicka and Joe 2009): R is the correlation matrix of a Wishart matrix with nu degrees
of freedom. An entry of R has sd 1 / sqrt(nu); with nu = M + 1 every correlation matrix is alike.

H is symmetric and positive definite whatever the coordinates are: there is no boundary for a sampler to meet.
A trace says little of most entries, and where it does, the prior is no more than a few times as wide as
what it says, so that one scale per coordinate, the prior's to begin with, serves a sampler well. The lengths
|f_i| and a common rotation of all f_i change nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nadpvi.gradient_model.dense.coordinates import Expansion
from nadpvi.gradient_model.dense.prior import DensePrior

__all__ = ["MatrixCoordinates"]

FloatArray = NDArray[np.float64]

_SHORTEST = 1e-100  # nobody gets there; it keeps a row of zeros from dividing by 0
_START_SPREAD = 0.3  # sd of the scales' starts, in their logarithms


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MatrixCoordinates:
    """Coordinates of H: M of the scales, then the M x nu of the directions, by rows.

    Attributes
    ----------
    prior : DensePrior
    centre : ndarray, shape (M,)
        Prior medians of H's diagonal, > 0.
    """

    prior: DensePrior
    centre: FloatArray

    @property
    def size(self) -> int:
        """M (nu + 1)."""
        return self.centre.size * (1 + self.prior.num_directions)

    def start(self) -> FloatArray:
        """Return the prior's centre, where no direction is preferred."""
        return np.zeros(self.size)

    def dispersion(self) -> FloatArray:
        """Return the sd of starts: a third in each logarithm, and the prior's own for directions."""
        sd = np.ones(self.size)
        sd[: self.centre.size] = _START_SPREAD / self.prior.log_scale_std
        return sd

    def expand(self, x: FloatArray) -> Expansion:
        """Return H at coordinates of shape (C, size); no row's directions may all be 0."""
        chains, size = x.shape[0], self.centre.size
        scale = self.prior.log_scale_std
        rows = x[:, size:].reshape(chains, size, -1)
        length = np.maximum(np.sqrt(np.einsum("cij,cij->ci", rows, rows)), _SHORTEST)
        unit = rows / length[:, :, None]
        root = np.sqrt(self.centre) * np.exp(0.5 * scale * x[:, :size])
        roots = root[:, :, None] * root[:, None, :]
        records = (unit @ unit.transpose(0, 2, 1)) * roots

        def pull_back(by: FloatArray) -> FloatArray:
            gradient = np.empty_like(x)
            gradient[:, :size] = scale * np.einsum("cij,cij->ci", by, records)
            by_unit = 2.0 * ((by * roots) @ unit)
            along = np.einsum("cij,cij->ci", by_unit, unit)
            gradient[:, size:] = ((by_unit - along[:, :, None] * unit) / length[:, :, None]).reshape(
                chains, -1
            )
            gradient -= x
            return gradient

        return Expansion(
            records, -0.5 * np.square(x).sum(axis=1), np.isfinite(records).all(axis=(1, 2)), pull_back
        )
