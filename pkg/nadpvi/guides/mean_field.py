"""The mean-field Gaussian guide q(theta; phi), phi = (mu, u)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nadpvi.bijectors import softplus, softplus_derivative, softplus_log_derivative
from nadpvi.errors import ArgumentError

__all__ = ["MeanField", "Scale"]

Scale = Literal["sd", "variance"]
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
    """

    scale: Scale = "sd"

    def __post_init__(self) -> None:
        if self.scale not in ("sd", "variance"):
            raise ArgumentError(f'scale must be "sd" or "variance" (got {self.scale!r}).')

    def num_variational(self, num_params: int) -> int:
        """Return D, the length of phi for K = `num_params` model parameters."""
        return 2 * num_params

    def labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the D labels of phi: all locations first, then all scales."""
        return tuple(f"mu[{name}]" for name in names) + tuple(f"u[{name}]" for name in names)

    def split(self, phi: Array) -> tuple[Array, Array]:
        """Return (mu, u), each of shape (..., K), views of `phi` with shape (..., 2 K)."""
        half = phi.shape[-1] // 2
        return phi[..., :half], phi[..., half:]

    def initial(self, *, num_params: int, mu: float, u: float) -> Array:
        """Return the starting phi, shape (2 K,), with every location `mu` and every scale `u`."""
        return np.concatenate([np.full(num_params, float(mu)), np.full(num_params, float(u))])

    def standard_deviation(self, phi: Array) -> Array:
        """Return the standard deviation of theta, shape (..., K); always positive."""
        _, u = self.split(phi)
        return softplus(u) if self.scale == "sd" else np.sqrt(softplus(u))

    def standard_deviation_derivative(self, phi: Array) -> Array:
        """Return d sd / d u, shape (..., K)."""
        _, u = self.split(phi)
        if self.scale == "sd":
            return softplus_derivative(u)
        return 0.5 * np.sqrt(softplus(u)) * softplus_log_derivative(u)

    def entropy_gradient(self, phi: Array) -> Array:
        """Return the gradient of q's entropy with respect to phi, shape (..., 2 K)."""
        mu, u = self.split(phi)
        factor = 1.0 if self.scale == "sd" else 0.5
        return np.concatenate([np.zeros_like(mu), factor * softplus_log_derivative(u)], axis=-1)

    def draw(self, phi: Array, standard_normal: Array) -> Array:
        """Return theta = mu + sd * `standard_normal`, shape (..., K), by broadcasting."""
        mu, _ = self.split(phi)
        theta: Array = mu + self.standard_deviation(phi) * standard_normal
        return theta

    def pull_back(self, phi: Array, *, theta_gradient: Array, standard_normal: Array) -> Array:
        """Return gradients with respect to phi, averaged over the S reparameterised draws.

        Parameters
        ----------
        phi : ndarray, shape (2 K,)
        theta_gradient : ndarray, shape (S, B, K) or (S, K)
            Gradient with respect to theta at each draw.
        standard_normal : ndarray, shape (S, K)
            The draws' standardised noise.

        Returns
        -------
        ndarray, shape (B, 2 K) or (2 K,)
        """
        noise = standard_normal if theta_gradient.ndim == 2 else standard_normal[:, None, :]
        location = theta_gradient.mean(axis=0)
        scale = (theta_gradient * noise).mean(axis=0) * self.standard_deviation_derivative(phi)
        return np.concatenate([location, scale], axis=-1)

    def to_dict(self) -> dict[str, Any]:
        """Return the guide as JSON types."""
        return {"kind": "mean_field", "scale": self.scale}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "MeanField":
        """Return the guide that `to_dict` described; anything else is refused."""
        if data.get("kind") != "mean_field" or set(data) != {"kind", "scale"}:
            raise ArgumentError(f"guide must be a mean_field description (got keys {sorted(data)}).")
        return cls(scale=data["scale"])
