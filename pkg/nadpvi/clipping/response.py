"""How the stationary locations answer to the parameters, as polynomials around a centre. Public side."""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nadpvi.clipping.stationary import ClippedLoss, stationary_points

__all__ = ["Response", "fit_response"]

Array = NDArray[np.float64]

# Degrees by the number of parameters; higher ones where they are few, so that a map bends as it must.
_DEGREES = {1: 6, 2: 4, 3: 3}
_LEAST_DEGREE = 2
_POINTS_PER_TERM = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Response:
    """Polynomials in w, theta = centre + spread w, good for |w| <= radius.

    Attributes
    ----------
    centre : ndarray, shape (K,)
    spread : ndarray, shape (K, K)
        Lower triangular.
    radius : float
    exponents : ndarray of int, shape (J, K)
        Of the J monomials in w / radius.
    coefficients : ndarray, shape (J, K + K (K + 1) / 2)
        Of the stationary locations and of the Cholesky factor of their covariance, diagonal in logarithms.
    error : float
        The largest error of a location at the points that the polynomials were fitted to, in its sds.
    """

    centre: Array
    spread: Array
    radius: float
    exponents: NDArray[np.intp]
    coefficients: Array
    error: float

    def scaled(self, theta: Array) -> Array:
        """Return w / radius for theta, (M, K) -> (M, K)."""
        return np.asarray(np.linalg.solve(self.spread, (theta - self.centre).T).T / self.radius)

    def log_density(self, location: Array, *, theta: Array) -> Array:
        """Return the log density of stationary locations (M, K) given theta (M, K), shape (M,).

        Minus infinity where theta lies beyond the radius.
        """
        scaled = self.scaled(theta)
        is_known = np.square(scaled).sum(axis=1) <= 1.0
        values = _monomials(np.where(is_known[:, None], scaled, 0.0), self.exponents) @ self.coefficients
        num_params = location.shape[1]
        factor = _factors(values[:, num_params:], num_params)
        distance = (location - values[:, :num_params])[..., None]
        standard = np.linalg.solve(factor, distance)[..., 0]
        log_determinant = np.log(np.einsum("mkk->mk", factor)).sum(axis=1)
        density: Array = -0.5 * np.square(standard).sum(axis=1) - log_determinant
        return np.where(is_known, density, -np.inf)


def fit_response(
    loss: ClippedLoss, *, centre: Array, spread: Array, radius: float, num_records: float
) -> Response:
    """Return the response around a centre, from stationary points at three places for each term.

    Parameters
    ----------
    loss : ClippedLoss
    centre : ndarray, shape (K,)
    spread : ndarray, shape (K, K)
        Lower triangular.
    radius : float
        In units of `spread`.
    num_records : float
        N.
    """
    num_params = len(centre)
    exponents = _exponents(num_params)
    scaled = _places(num_params, _POINTS_PER_TERM * len(exponents))
    found = stationary_points(loss, centre + radius * scaled @ spread.T, num_records=num_records)
    location = found.phi[:, :num_params]
    covariance = found.covariance[:, :num_params, :num_params]
    factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
    values = np.concatenate([location, _logarithms(factor)], axis=1)
    design = _monomials(scaled, exponents)
    coefficients = np.linalg.lstsq(design, values, rcond=None)[0]
    missed = (design @ coefficients - values)[:, :num_params]
    sd = np.sqrt(np.einsum("gkk->gk", covariance))
    return Response(
        centre=centre,
        spread=spread,
        radius=radius,
        exponents=exponents,
        coefficients=coefficients,
        error=float(np.abs(missed / sd).max()),
    )


def _exponents(num_params: int) -> NDArray[np.intp]:
    """Return the exponents of all monomials up to the degree that so many parameters can have, (J, K)."""
    degree = _DEGREES.get(num_params, _LEAST_DEGREE)
    found = [
        np.bincount(chosen, minlength=num_params + 1)[:num_params]
        for chosen in itertools.combinations_with_replacement(range(num_params + 1), degree)
    ]
    return np.array(found, dtype=np.intp)


def _monomials(scaled: Array, exponents: NDArray[np.intp]) -> Array:
    """Return each monomial at each place, (M, K) -> (M, J)."""
    product: Array = np.prod(scaled[:, None, :] ** exponents, axis=-1)
    return product


def _places(num_params: int, count: int) -> Array:
    """Return at least `count` places that fill the unit ball, always the same, shape (G, K)."""
    if num_params == 1:
        nodes: Array = np.cos(np.pi * np.arange(count) / (count - 1))[:, None]
        return nodes
    from scipy.special import ndtri
    from scipy.stats import qmc

    # A power of 2 of them, without which a Sobol sequence is out of balance.
    sobol = qmc.Sobol(num_params + 1, scramble=True, rng=np.random.default_rng(0))
    uniform = sobol.random_base2((count - 1).bit_length())
    direction = ndtri(uniform[:, :-1])
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    # More of them near the rim than evenly spread ones: polynomials are loosest there.
    places: Array = direction * uniform[:, -1:] ** (0.5 / num_params)
    return places


def _logarithms(factor: Array) -> Array:
    """Return the lower triangles of Cholesky factors, diagonals in logarithms: (G, K, K) -> (G, L)."""
    rows, columns = np.tril_indices(factor.shape[-1])
    triangle = factor[:, rows, columns]
    return np.where(rows == columns, np.log(np.where(rows == columns, triangle, 1.0)), triangle)


def _factors(triangle: Array, num_params: int) -> Array:
    """Return Cholesky factors from what `_logarithms` gave."""
    rows, columns = np.tril_indices(num_params)
    factor = np.zeros((len(triangle), num_params, num_params))
    is_diagonal = rows == columns
    factor[:, rows, columns] = np.where(is_diagonal, np.exp(np.where(is_diagonal, triangle, 0.0)), triangle)
    return factor
