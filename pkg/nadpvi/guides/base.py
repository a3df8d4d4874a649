"""What a variational family must say about itself: the protocol that every guide follows.

All guides are Gaussian and share one layout: phi is the K locations mu, the K scales u, and, for a guide with
correlations, its weights. A draw is ``theta = mu + s(u) * w`` with ``w`` linear in standard normal noise, so
that scales and weights are counted in units of s: the curvature of the negative ELBO in each of them is then
of order one however narrow the posterior is, and one preconditioner serves them all.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["Factors", "Guide", "average", "own_indices"]

Array = NDArray[np.float64]


class Factors(NamedTuple):
    """How theta moves with phi at S draws: d theta_k(s) / d phi_d = ``bases[s, j] * factor[d]``.

    Each coordinate d of phi moves one coordinate k = ``theta_index[d]`` of theta, along one base
    j = ``base_index[d]``. Base 0 is constant 1 and belongs to the locations.

    Attributes
    ----------
    bases : ndarray, shape (S, J)
    theta_index, base_index : ndarray of int, shape (D,)
    factor : ndarray, shape (D,)
    """

    bases: Array
    theta_index: NDArray[np.intp]
    base_index: NDArray[np.intp]
    factor: Array


@cache
def own_indices(num_params: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return theta_index and base_index of the first 2 K coordinates of any phi: locations and scales.

    Examples
    --------
    >>> [index.tolist() for index in own_indices(2)]
    [[0, 1, 0, 1], [0, 0, 1, 2]]
    """
    own = np.arange(num_params)
    indices = np.concatenate([own, own]), np.concatenate([np.zeros_like(own), 1 + own])
    for index in indices:
        index.setflags(write=False)
    return indices


def average(values: Array) -> Array:
    """Return the mean over the first axis, the draws; ndarray.mean's own code costs more than the sums."""
    mean: Array = np.add.reduce(values, axis=0)
    mean /= len(values)
    return mean


@runtime_checkable
class Guide(Protocol):
    """A Gaussian over the K unconstrained model parameters with D variational parameters phi.

    The first K coordinates of phi are the locations mu. Everything broadcasts over leading axes of phi.
    """

    kind: ClassVar[str]

    def __hash__(self) -> int:
        """Guides are values: equal settings, equal hash."""
        ...

    def num_variational(self, num_params: int) -> int:
        """Return D, the length of phi for K = `num_params` model parameters."""
        ...

    def num_params(self, num_variational: int) -> int:
        """Return K for a phi of D = `num_variational` coordinates."""
        ...

    def num_noise(self, num_params: int) -> int:
        """Return M, how many standard normal numbers one draw of theta takes."""
        ...

    def labels(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the D labels of phi, given the K of theta."""
        ...

    def initial(self, *, mean: Array, u: float | Array) -> Array:
        """Return the starting phi, shape (D,): locations at `mean`, shape (K,), scales at `u`, one or K."""
        ...

    def draw(self, phi: Array, standard_normal: Array) -> Array:
        """Return theta, shape (..., K), for phi (..., D) and noise (..., M), by broadcasting."""
        ...

    def standard_deviation(self, phi: Array) -> Array:
        """Return the marginal standard deviation of theta, shape (..., K); always positive."""
        ...

    def covariance(self, phi: Array) -> Array:
        """Return the covariance of theta, shape (..., K, K)."""
        ...

    def entropy(self, phi: Array) -> Array:
        """Return the differential entropy of q in nats, shape (...)."""
        ...

    def entropy_gradient(self, phi: Array) -> Array:
        """Return the gradient of `entropy` with respect to phi, shape (..., D)."""
        ...

    def factors(self, phi: Array, standard_normal: Array) -> Factors:
        """Return how theta moves with phi, shape (D,), at the draws of noise (S, M)."""
        ...

    def pull_back(self, phi: Array, *, theta_gradient: Array, standard_normal: Array) -> Array:
        """Return gradients with respect to phi, averaged over the S reparameterised draws.

        Parameters
        ----------
        phi : ndarray, shape (D,), or (..., D) that broadcasts against the records
        theta_gradient : ndarray, shape (S, B, K) or (S, K)
            Gradient with respect to theta at each draw.
        standard_normal : ndarray, shape (S, M)
            The draws' noise, which the records share. With as many axes as `theta_gradient`, whose middle
            ones may be any, it broadcasts against it instead.

        Returns
        -------
        ndarray, shape (B, D) or (D,)
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the guide as JSON types."""
        ...

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Guide":
        """Return the guide that `to_dict` described; anything else is refused."""
        ...
