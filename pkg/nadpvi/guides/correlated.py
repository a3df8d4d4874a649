"""What Gaussian guides with correlations share: theta = mu + s(u) * (eps + W source), W sparse and packed.

Each row of W holds the weights of one parameter on standard normal sources. The weights are in units of the
scale s, as if theta had been standardised by it: moving one by a given amount then changes the negative ELBO
by a similar amount for narrow and for wide parameters, as moving u does.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides.base import Factors, average, own_indices
from nadpvi.guides.scales import (
    Scale,
    check_scale,
    gaussian_entropy,
    scale_derivative,
    scale_log_derivative,
    scale_of,
)

__all__ = ["CorrelatedGaussian", "Pattern"]

Array = NDArray[np.float64]


class Pattern(NamedTuple):
    """Where the packed weights stand in W: the row and the column of each, in order."""

    rows: NDArray[np.intp]
    columns: NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedGaussian(ABC):
    """A Gaussian guide with ``phi = (mu, u, packed weights)``.

    Parameters
    ----------
    scale : {"sd", "variance"}
        Whether s(u) is softplus(u) or its square root.
    """

    scale: Scale = "sd"

    def __post_init__(self) -> None:
        check_scale(self.scale)

    @abstractmethod
    def num_params(self, num_variational: int) -> int:
        """Return K for a phi of D = `num_variational` coordinates."""

    @abstractmethod
    def num_noise(self, num_params: int) -> int:
        """Return M, how many standard normal numbers one draw of theta takes."""

    @abstractmethod
    def pattern(self, num_params: int) -> Pattern:
        """Return where the packed weights stand in W."""

    @abstractmethod
    def sources(self, standard_normal: Array, *, num_params: int) -> Array:
        """Return the part of the noise (..., M) that W multiplies, shape (..., J), a view."""

    @abstractmethod
    def mix(self, weights: Array, sources: Array, *, num_params: int) -> Array:
        """Return W sources, shape (..., K), for packed weights and sources (..., J) that broadcast."""

    @abstractmethod
    def weight_labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the labels of the packed weights."""

    def num_variational(self, num_params: int) -> int:
        """Return D, the length of phi for K = `num_params` model parameters."""
        return 2 * num_params + len(self.pattern(num_params).rows)

    def labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the D labels of phi: locations, then scales, then weights."""
        return (
            tuple(f"mu[{name}]" for name in names)
            + tuple(f"u[{name}]" for name in names)
            + self.weight_labels(names)
        )

    def split(self, phi: Array) -> tuple[Array, Array, Array]:
        """Return (mu, u, weights), views of `phi` with shape (..., D)."""
        num_params = self.num_params(phi.shape[-1])
        return phi[..., :num_params], phi[..., num_params : 2 * num_params], phi[..., 2 * num_params :]

    def mixing(self, phi: Array) -> Array:
        """Return W, shape (..., K, J), in units of each parameter's s."""
        mu, _, weights = self.split(phi)
        num_params = mu.shape[-1]
        pattern = self.pattern(num_params)
        num_sources = self.sources(np.empty(self.num_noise(num_params)), num_params=num_params).shape[-1]
        matrix = np.zeros((*phi.shape[:-1], num_params, num_sources))
        matrix[..., pattern.rows, pattern.columns] = weights
        return matrix

    def standardised(self, phi: Array, standard_normal: Array) -> Array:
        """Return w = (theta - mu) / s, shape (..., K), for phi (..., D) and noise (..., M)."""
        mu, _, weights = self.split(phi)
        num_params = mu.shape[-1]
        own = standard_normal[..., :num_params]
        sources = self.sources(standard_normal, num_params=num_params)
        if phi.ndim == 1:
            mixed: Array = own + sources @ self.mixing(phi).T
            return mixed
        # One W a draw would be K times as large as all the draws.
        return own + self.mix(weights, sources, num_params=num_params)

    def draw(self, phi: Array, standard_normal: Array) -> Array:
        """Return theta, shape (..., K), for phi (..., D) and noise (..., M), by broadcasting."""
        mu, u, _ = self.split(phi)
        theta: Array = mu + scale_of(u, scale=self.scale) * self.standardised(phi, standard_normal)
        return theta

    def standard_deviation(self, phi: Array) -> Array:
        """Return the marginal standard deviation of theta, shape (..., K); always positive."""
        _, u, weights = self.split(phi)
        num_params = u.shape[-1]
        ones = self.sources(np.ones(self.num_noise(num_params)), num_params=num_params)
        variance = 1.0 + self.mix(weights**2, ones, num_params=num_params)
        spread: Array = scale_of(u, scale=self.scale) * np.sqrt(variance)
        return spread

    def entropy(self, phi: Array) -> Array:
        """Return the differential entropy of q in nats, shape (...): that of the scales alone."""
        return gaussian_entropy(self.split(phi)[1], scale=self.scale)

    def entropy_gradient(self, phi: Array) -> Array:
        """Return the gradient of `entropy` with respect to phi, shape (..., D)."""
        _, u, _ = self.split(phi)
        num_params = u.shape[-1]
        gradient = np.zeros(phi.shape)
        gradient[..., num_params : 2 * num_params] = scale_log_derivative(u, scale=self.scale)
        return gradient

    def factors(self, phi: Array, standard_normal: Array) -> Factors:
        """Return how theta moves with phi, shape (D,), at the draws of noise (S, M)."""
        _, u, _ = self.split(phi)
        num_params = len(u)
        rows, columns = self.pattern(num_params)
        theta_index, base_index = own_indices(num_params)
        sources = self.sources(standard_normal, num_params=num_params)
        ones = np.ones((len(standard_normal), 1))
        return Factors(
            bases=np.hstack([ones, self.standardised(phi, standard_normal), sources]),
            theta_index=np.concatenate([theta_index, rows]),
            base_index=np.concatenate([base_index, 1 + num_params + columns]),
            factor=np.concatenate(
                [
                    np.ones(num_params),
                    scale_derivative(u, scale=self.scale),
                    scale_of(u, scale=self.scale)[rows],
                ]
            ),
        )

    def pull_back(self, phi: Array, *, theta_gradient: Array, standard_normal: Array) -> Array:
        """Return gradients with respect to phi, averaged over the S reparameterised draws.

        Parameters
        ----------
        phi : ndarray, shape (D,) or (B, D)
        theta_gradient : ndarray, shape (S, B, K) or (S, K)
            Gradient with respect to theta at each draw.
        standard_normal : ndarray, shape (S, M), or (S, B, M) if every record has its own
            The draws' noise.

        Returns
        -------
        ndarray, shape (B, D) or (D,)
        """
        _, u, _ = self.split(phi)
        num_params = u.shape[-1]
        rows, columns = self.pattern(num_params)
        is_shared = standard_normal.ndim < theta_gradient.ndim
        noise = standard_normal[:, None, :] if is_shared else standard_normal
        moved = self.standardised(phi, noise)
        sources = self.sources(noise, num_params=num_params)
        scale = average(theta_gradient * moved) * scale_derivative(u, scale=self.scale)
        if theta_gradient.ndim == 2 or not is_shared:
            products = np.einsum("s...k,s...j->...kj", theta_gradient, sources)
        else:
            # (B, K, S) times (S, J): a matrix product, which einsum would not make of it.
            products = theta_gradient.transpose(1, 2, 0) @ sources[:, 0, :]
        weights = products[..., rows, columns] / len(theta_gradient)
        weights *= scale_of(u, scale=self.scale)[..., rows]
        return np.concatenate([average(theta_gradient), scale, weights], axis=-1)

    def covariance(self, phi: Array) -> Array:
        """Return the covariance of theta, shape (..., K, K)."""
        factor = self._covariance_factor(phi)
        covariance: Array = factor @ np.swapaxes(factor, -1, -2)
        return covariance

    @abstractmethod
    def _covariance_factor(self, phi: Array) -> Array:
        """Return A with covariance A A', shape (..., K, M)."""
