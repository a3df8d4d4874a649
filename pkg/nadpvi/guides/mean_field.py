"""The mean-field Gaussian guide q(theta; phi), phi = (mu, u)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError
from nadpvi.guides.base import Factors, own_indices
from nadpvi.guides.scales import (
    Scale,
    check_scale,
    gaussian_entropy,
    scale_derivative,
    scale_log_derivative,
    scale_of,
)

__all__ = ["MeanField", "Scale"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanField:
    """Independent Gaussians over the K unconstrained parameters, D = 2 K variational parameters.

    ``phi = (mu, u)``. With ``scale="sd"`` the standard deviation is softplus(u), the setting of the
    published experiments; with ``scale="variance"`` the variance is, as the paper's text has it (4.1).

    Parameters
    ----------
    scale : {"sd", "variance"}
        What softplus(u) is.

    Examples
    --------
    >>> MeanField().labels(["a", "b"])
    ('mu[a]', 'mu[b]', 'u[a]', 'u[b]')
    """

    kind: ClassVar[str] = "mean_field"

    scale: Scale = "sd"

    def __post_init__(self) -> None:
        check_scale(self.scale)

    def num_variational(self, num_params: int) -> int:
        """Return D, the length of phi for K = `num_params` model parameters."""
        return 2 * num_params

    def num_params(self, num_variational: int) -> int:
        """Return K for a phi of D = `num_variational` coordinates."""
        return num_variational // 2

    def num_noise(self, num_params: int) -> int:
        """Return M, how many standard normal numbers one draw of theta takes: K."""
        return num_params

    def labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the D labels of phi: all locations first, then all scales."""
        return tuple(f"mu[{name}]" for name in names) + tuple(f"u[{name}]" for name in names)

    def split(self, phi: Array) -> tuple[Array, Array]:
        """Return (mu, u), each of shape (..., K), views of `phi` with shape (..., 2 K)."""
        half = phi.shape[-1] // 2
        return phi[..., :half], phi[..., half:]

    def initial(self, *, mean: Array, u: float | Array) -> Array:
        """Return the starting phi, shape (2 K,): locations at `mean`, shape (K,), and scales at `u`."""
        return np.concatenate([mean, np.broadcast_to(u, mean.shape)])

    def standard_deviation(self, phi: Array) -> Array:
        """Return the standard deviation of theta, shape (..., K); always positive."""
        return scale_of(self.split(phi)[1], scale=self.scale)

    def standard_deviation_derivative(self, phi: Array) -> Array:
        """Return d sd / d u, shape (..., K)."""
        return scale_derivative(self.split(phi)[1], scale=self.scale)

    def scale_curvature(self, u: Array) -> Array:
        """Return the curvature of the negative ELBO in each scale at its optimum, shape (..., K).

        For a location of curvature h the negative ELBO is ``h sd(u)^2 / 2 - log sd(u)`` up to a constant. It
        is least where sd = h^-1/2, and its second derivative there is ``2 (d log sd / d u)^2``.

        Examples
        --------
        >>> MeanField().scale_curvature(np.array([-20.0])).round(6)
        array([2.])
        >>> MeanField(scale="variance").scale_curvature(np.array([-20.0])).round(6)
        array([0.5])
        """
        curvature: Array = 2.0 * scale_log_derivative(u, scale=self.scale) ** 2
        return curvature

    def covariance(self, phi: Array) -> Array:
        """Return the covariance of theta, shape (..., K, K), diagonal."""
        variance = self.standard_deviation(phi) ** 2
        covariance: Array = variance[..., None] * np.eye(variance.shape[-1])
        return covariance

    def entropy(self, phi: Array) -> Array:
        """Return the differential entropy of q in nats, shape (...)."""
        return gaussian_entropy(self.split(phi)[1], scale=self.scale)

    def entropy_gradient(self, phi: Array) -> Array:
        """Return the gradient of q's entropy with respect to phi, shape (..., 2 K)."""
        gradient = np.zeros(phi.shape)
        self.split(gradient)[1][:] = scale_log_derivative(self.split(phi)[1], scale=self.scale)
        return gradient

    def draw(self, phi: Array, standard_normal: Array) -> Array:
        """Return theta = mu + sd * `standard_normal`, shape (..., K), by broadcasting."""
        mu, _ = self.split(phi)
        theta: Array = mu + self.standard_deviation(phi) * standard_normal
        return theta

    def factors(self, phi: Array, standard_normal: Array) -> Factors:
        """Return how theta moves with phi, shape (2 K,), at the draws of noise (S, K)."""
        num_params = standard_normal.shape[1]
        bases = np.ones((len(standard_normal), 1 + num_params))
        bases[:, 1:] = standard_normal
        factor = np.ones(2 * num_params)
        factor[num_params:] = self.standard_deviation_derivative(phi)
        theta_index, base_index = own_indices(num_params)
        return Factors(bases=bases, theta_index=theta_index, base_index=base_index, factor=factor)

    def pull_back(self, phi: Array, *, theta_gradient: Array, standard_normal: Array) -> Array:
        """Return gradients with respect to phi, averaged over the S reparameterised draws.

        Parameters
        ----------
        phi : ndarray, shape (2 K,) or (B, 2 K)
        theta_gradient : ndarray, shape (S, B, K) or (S, K)
            Gradient with respect to theta at each draw.
        standard_normal : ndarray, shape (S, K), or (S, B, K) if every record has its own
            The draws' standardised noise.

        Returns
        -------
        ndarray, shape (B, 2 K) or (2 K,)
        """
        is_shared = standard_normal.ndim < theta_gradient.ndim
        noise = standard_normal[:, None, :] if is_shared else standard_normal
        gradient = np.empty((*theta_gradient.shape[1:-1], 2 * theta_gradient.shape[-1]))
        location, scale = self.split(gradient)
        np.add.reduce(theta_gradient, axis=0, out=location)
        np.add.reduce(theta_gradient * noise, axis=0, out=scale)
        scale *= self.standard_deviation_derivative(phi)
        gradient /= len(theta_gradient)
        return gradient

    def to_dict(self) -> dict[str, Any]:
        """Return the guide as JSON types."""
        return {"kind": self.kind, "scale": self.scale}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "MeanField":
        """Return the guide that `to_dict` described; anything else is refused."""
        if data.get("kind") != cls.kind or set(data) != {"kind", "scale"}:
            raise ArgumentError(f"guide must be a mean_field description (got keys {sorted(data)}).")
        return cls(scale=data["scale"])
