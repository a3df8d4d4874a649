"""Linear regression from noisy X'X, X'y and y'y: Gibbs-SS-Noisy of Bernstein and Sheldon (2019). Public side.

A record's statistics are the upper triangle of z z', z = (x / bounds, y / bound), each product once. Their
sums have the CLT's normal law given (w, s2), whose covariance needs the predictors' second and fourth
moments: public ones, or those of normal predictors with the means and covariances of the noisy release.
Given the true sums, (w, s2) are normal-inverse-gamma; a matrix of sums that is not positive semi-definite is
projected first.

Of the published code this keeps neither fourth moments without noise, nor sensitivities from the data: every
bound is given, and public. `nadpvi.baselines.sufficient_statistics.gibbs.sample_statistics` runs it.

References
----------
.. [1] Bernstein and Sheldon (2019). Differentially private Bayesian linear regression. NeurIPS 32.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from nadpvi.baselines.sufficient_statistics.families import (
    NoisySums,
    Norm,
    Proposal,
    RecordMoments,
    StatisticsFamily,
)
from nadpvi.baselines.sufficient_statistics.linear_algebra import total_covariance
from nadpvi.baselines.sufficient_statistics.predictors import (
    PredictorMoments,
    nearest_psd,
    noisy_moments,
    pair_indices,
)
from nadpvi.baselines.sufficient_statistics.regression_settings import RegressionSettings
from nadpvi.errors import ArgumentError

__all__ = ["RegressionStatistics"]

Array = NDArray[np.float64]

_LARGEST_LOG_VARIANCE = 300.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RegressionStatistics:
    """A regression's statistics: their law given (w, s2), and (w, s2) given them.

    Parameters
    ----------
    settings : RegressionSettings
        Bounds, prior and moments.
    predictors : PredictorMoments, optional
        Moments of scaled predictors, as `start` fills them in.
    """

    settings: RegressionSettings
    predictors: PredictorMoments | None = None
    roots: tuple[Array, Array] | None = None
    """Of the covariance of products (..., P, P), and of second moments (..., F, F)."""

    @property
    def blocks(self) -> tuple[slice, ...]:
        """Coefficients, which the data often know well, and log s2, which they may not."""
        size = len(self.settings.x_lower)
        return slice(0, size), slice(size, size + 1)

    @property
    def labels(self) -> tuple[str, ...]:
        """The released products."""
        return self.settings.labels

    @property
    def has_public_count(self) -> bool:
        """Whether N is public."""
        return self.settings.has_public_count

    def record_statistics(self, y: Array, *, x: Array | None = None) -> Array:
        """Return the scaled products of records: y (...) and x (..., F) -> (..., J)."""
        if x is None:
            raise ArgumentError("x must be given for a regression.")
        return self.settings.record_statistics(x, y)

    def sensitivity(self, norm: Norm) -> float:
        """Return the sensitivity of the whole vector."""
        return self.settings.sensitivity(norm)

    def estimate_count(self, noisy: Array) -> Array:
        """Return the noisy count, at least 1."""
        return np.maximum(noisy[:, 0], 1.0)

    def start(self, noisy: Array, *, num_records: Array) -> tuple[StatisticsFamily, Array, Array]:
        """Return the family with every replicate's moments, and first values of theta and of the sums."""
        given = self.settings
        if given.moments is None:
            matrix = given.matrix(noisy, num_records)
            moments = noisy_moments(matrix[:, :-1, :-1], num_records=num_records)
        else:
            moments = given.moments.scaled(given.x_scale)
        roots = _symmetric_root(moments.products), _symmetric_root(moments.second)
        ready = dataclasses.replace(self, predictors=moments, roots=roots)
        theta = ready.from_standard(np.zeros((len(noisy), len(given.x_lower) + 1)))
        return ready, theta, ready.moments(theta).mean * num_records[:, None]

    def standardise(self, theta: Array) -> Array:
        """Return w and log s2 less their prior means, over sds that are theirs or near."""
        mean, sd = self._reference()
        standard: Array = (theta - mean) / sd
        return standard

    def from_standard(self, standard: Array) -> Array:
        """Return theta from `standardise`."""
        mean, sd = self._reference()
        theta: Array = mean + sd * standard
        theta[:, -1] = np.clip(theta[:, -1], -_LARGEST_LOG_VARIANCE, _LARGEST_LOG_VARIANCE)
        return theta

    def log_tilt(self, standard: Array) -> Array:
        """Return the log normal-inverse-gamma density, plus half the squares of `standard`."""
        given, theta = self.settings, self.from_standard(standard)
        log_variance, size = theta[:, -1], theta.shape[1] - 1
        squares = np.square((theta[:, :-1] - given.prior_mean) / given.prior_sd).sum(axis=1)
        density = -(given.prior_shape + 0.5 * size) * log_variance
        density = density - (given.prior_scale + 0.5 * squares) * np.exp(-log_variance)
        tilt: Array = density + 0.5 * np.square(standard).sum(axis=1)
        return tilt

    def _reference(self) -> tuple[Array, Array]:
        """Return means and sds of standard coordinates, each (K,); w has the sd of a typical s2."""
        given, (centre, spread) = self.settings, self._log_variance_moments()
        sd = np.append(given.prior_sd * math.exp(0.5 * centre), spread)
        return np.append(given.prior_mean, centre), sd

    def _log_variance_moments(self) -> tuple[float, float]:
        """Return prior mean and sd of log s2."""
        shape = self.settings.prior_shape
        mean = math.log(self.settings.prior_scale) - float(digamma(shape))
        return mean, math.sqrt(float(polygamma(1, shape)))

    def moments(self, theta: Array) -> RecordMoments:
        """Return the moments of scaled products given (w, s2), the constant's square first where released.

        With y = w'x + e, products with y are linear in the products of x and in e, whose moments are known.
        """
        given = self.settings
        size, pairs = len(given.x_lower), self._moments.products.shape[-1]
        w, noise = self._scaled(theta)
        second = np.broadcast_to(self._moments.second, (len(w), size, size))
        rows, columns = pair_indices(size)
        rows, columns = pair_indices(size)
        linear = self._linear(w)
        products = self._moments.products
        mean_pairs = second[:, rows, columns]
        mean = np.concatenate([mean_pairs, (linear @ mean_pairs[:, :, None])[:, :, 0]], axis=1)
        mean[:, -1] += noise
        covariance = np.empty((len(w), pairs + size + 1, pairs + size + 1))
        covariance[:, :pairs, :pairs] = products
        covariance[:, pairs:, :pairs] = linear @ products
        covariance[:, :pairs, pairs:] = np.swapaxes(covariance[:, pairs:, :pairs], 1, 2)
        covariance[:, pairs:, pairs:] = covariance[:, pairs:, :pairs] @ np.swapaxes(linear, 1, 2)
        with_y = slice(pairs, pairs + size)
        projected = (second @ w[:, :, None])[:, :, 0]
        covariance[:, with_y, with_y] += noise[:, None, None] * second
        cross = 2.0 * noise[:, None] * projected
        covariance[:, with_y, -1] += cross
        covariance[:, -1, with_y] += cross
        covariance[:, -1, -1] += 4.0 * noise * (w * projected).sum(axis=1) + 2.0 * noise**2
        kept = slice(1 if given.skips_count else 0, None)
        return RecordMoments(mean[:, kept], covariance[:, kept, kept])

    def draw_deviation(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return normal deviations: of the products of x, of e x given them, and of e^2."""
        given = self.settings
        w, noise = self._scaled(theta)
        size, pairs = w.shape[1], self._moments.products.shape[-1]
        roots = self.roots or (_symmetric_root(self._moments.products), _symmetric_root(self._moments.second))
        of_pairs = roots[0] @ rng.standard_normal((len(w), pairs, 1))
        with_noise = roots[1] @ rng.standard_normal((len(w), size, 1))
        with_noise = np.sqrt(noise)[:, None] * with_noise[:, :, 0]
        drawn = np.concatenate([of_pairs, self._linear(w) @ of_pairs], axis=1)[:, :, 0]
        drawn[:, pairs:-1] += with_noise
        drawn[:, -1] += 2.0 * (w * with_noise).sum(axis=1)
        drawn[:, -1] += math.sqrt(2.0) * noise * rng.standard_normal(len(w))
        return drawn[:, 1 if given.skips_count else 0 :]

    @property
    def _moments(self) -> PredictorMoments:
        """The moments of scaled predictors."""
        if self.predictors is None:
            raise ArgumentError("the predictors' moments are not known yet; call start first.")
        return self.predictors

    def _scaled(self, theta: Array) -> tuple[Array, Array]:
        """Return w (R, F) and s2 (R,) of scaled predictors and outcome."""
        given = self.settings
        w: Array = theta[:, :-1] * given.x_scale / given.y_scale
        return w, np.exp(theta[:, -1]) / given.y_scale**2

    def _linear(self, w: Array) -> Array:
        """Return the expected products with y as combinations of the products of x, (R, F + 1, P)."""
        size = w.shape[1]
        rows, columns = pair_indices(size)
        place, off = np.arange(len(rows)), rows != columns
        linear = np.zeros((len(w), size + 1, len(rows)))
        linear[:, rows, place] = w[:, columns]
        linear[:, columns[off], place[off]] = w[:, rows[off]]
        linear[:, -1] = w[:, rows] * w[:, columns] * np.where(off, 2.0, 1.0)
        return linear

    def propose(
        self, standard: Array, *, block: int, given: NoisySums, rng: np.random.Generator
    ) -> Proposal | None:
        """Return coefficients from the normal law that they would have if means were linear in them.

        Means are linearised, and covariances taken, at the reference's coefficients and the chain's own s2:
        the proposal does not depend on the coefficients that it replaces.
        """
        if block != 0:
            return None
        size = standard.shape[1] - 1
        centre = np.concatenate([given.reference[:, :size], standard[:, size:]], axis=1)
        theta = self.from_standard(centre)
        moments, count = self.moments(theta), given.num_records[:, None]
        slope = self._slope(theta) * count[:, :, None]
        residual = given.observed - moments.mean * count
        total = total_covariance(moments.covariance, given.variance, given.num_records)
        solved = np.linalg.solve(total, np.concatenate([slope, residual[:, :, None]], axis=2))
        # Given s2, a standard coefficient has the prior variance s2 over that of the reference.
        prior = np.exp(self._log_variance_moments()[0] - theta[:, -1])[:, None]
        precision = np.swapaxes(slope, 1, 2) @ solved[:, :, :size] + prior[:, :, None] * np.eye(size)
        pull = (np.swapaxes(slope, 1, 2) @ solved[:, :, size:])[:, :, 0] - prior * centre[:, :size]
        mean = centre[:, :size] + np.linalg.solve(precision, pull[:, :, None])[:, :, 0]
        factor = np.linalg.cholesky(precision)
        white = rng.standard_normal((len(mean), size, 1))
        drawn = mean + np.linalg.solve(np.swapaxes(factor, 1, 2), white)[:, :, 0]
        before = (np.swapaxes(factor, 1, 2) @ (standard[:, :size] - mean)[:, :, None])[:, :, 0]
        # log q(now) - log q(drawn), and the standard normal that `log_tilt` leaves out.
        correction = 0.5 * (np.square(white[:, :, 0]) - np.square(before)).sum(axis=1)
        correction += 0.5 * (np.square(standard[:, :size]) - np.square(drawn)).sum(axis=1)
        return Proposal(np.concatenate([drawn, standard[:, size:]], axis=1), correction)

    def _slope(self, theta: Array) -> Array:
        """Return the derivatives of the mean statistics in standard coefficients, (R, J, F)."""
        given, (w, _) = self.settings, self._scaled(theta)
        size = w.shape[1]
        second = np.broadcast_to(self._moments.second, (len(w), size, size))
        slope = np.zeros((len(w), len(given.labels), size))
        slope[:, -1 - size : -1] = second
        slope[:, -1] = 2.0 * (second @ w[:, :, None])[:, :, 0]
        units: Array = self._reference()[1][:size] * given.x_scale / given.y_scale
        return slope * units

    def is_possible(self, sums: Array, *, num_records: Array) -> NDArray[np.bool_]:
        """Return True throughout: sums that are not possible are projected."""
        return np.ones(len(sums), dtype=np.bool_)

    def draw_theta(self, theta: Array, sums: Array, *, num_records: Array, rng: np.random.Generator) -> Array:
        """Return (w, log s2) from their normal-inverse-gamma conditional given the projected sums."""
        given = self.settings
        x_scale, y_scale, size = given.x_scale, given.y_scale, len(given.x_lower)
        matrix = nearest_psd(given.matrix(sums, num_records))
        prior_precision = 1.0 / np.square(given.prior_sd * x_scale)
        prior_mean = given.prior_mean * x_scale / y_scale
        precision = matrix[:, :size, :size] + np.diag(prior_precision)
        linear = matrix[:, :size, size] + prior_precision * prior_mean
        mean = np.linalg.solve(precision, linear[:, :, None])[:, :, 0]
        squares = matrix[:, size, size] + float(prior_precision @ prior_mean**2) - (mean * linear).sum(axis=1)
        shape = given.prior_shape + 0.5 * num_records
        scale = given.prior_scale / y_scale**2 + 0.5 * np.maximum(squares, 0.0)
        variance = scale / rng.standard_gamma(shape)
        factor = np.linalg.cholesky(precision)
        white = np.linalg.solve(np.swapaxes(factor, 1, 2), rng.standard_normal((len(mean), size, 1)))[:, :, 0]
        w = (mean + np.sqrt(variance)[:, None] * white) * y_scale / x_scale
        return np.concatenate([w, np.log(variance * y_scale**2)[:, None]], axis=1)


def _symmetric_root(matrix: Array) -> Array:
    """Return a root of positive semi-definite matrices (..., M, M), computed from eigenvalues."""
    sizes, axes = np.linalg.eigh(matrix)
    root: Array = axes * np.sqrt(np.maximum(sizes, 0.0))[..., None, :]
    return root
