"""The limit for models with sufficient statistics: all of them released once, with Gaussian noise.

Any method at the same (epsilon, delta) can be held against the posterior given these noisy statistics. Each
record adds a vector of shares: its level's indicator, or (y/U, 1 - y/U) for an outcome clamped to the public
range [0, U]. Shares are not negative and sum to 1, so that adding or removing a record moves the vector by at
most 1 in L2 norm, whatever the record holds; their sum is the number of records, which stays private. The
noise is that of the analytic Gaussian mechanism. This is a simulation: its noise protects no real records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, expit, polygamma

from nadpvi.checks import check_count, check_positive
from nadpvi.coverage.noisy_counts import count_moments
from nadpvi.coverage.noisy_sums import sum_moments
from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting_gaussian import gaussian_mu
from nadpvi.privacy.parameters import ADD_OR_REMOVE_ONE, check_delta, check_epsilon
from nadpvi.privacy.randomness import check_seed
from nadpvi.supports import log_levels_after

__all__ = [
    "COUNT_KINDS",
    "SUM_KINDS",
    "GaussianOptimum",
    "PosteriorMoments",
    "gaussian_mechanism_optimum",
    "non_private_moments",
    "simulate_statistics",
]

Array = NDArray[np.float64]

COUNT_KINDS = ("bernoulli_beta", "categorical_dirichlet")
SUM_KINDS = ("exponential_gamma", "poisson_gamma")


class PosteriorMoments(NamedTuple):
    """Mean and standard deviation of theta, the model's unconstrained parameters, each of shape (R, K)."""

    mean: Array
    sd: Array


class GaussianOptimum(NamedTuple):
    """Moments of theta given noisy statistics, each of shape (R, K), and the noise of each statistic."""

    mean: Array
    sd: Array
    noise_std: float


def gaussian_mechanism_optimum(
    kind: str,
    statistics: ArrayLike,
    *,
    prior: Sequence[float],
    epsilon: float,
    delta: float,
    seed: int,
    upper: float | None = None,
    neighbouring_relation: str = ADD_OR_REMOVE_ONE,
) -> GaussianOptimum:
    """Return mean and sd of theta given the statistics of R data sets, each released once with noise.

    Parameters
    ----------
    kind : str
        ``kind`` of a model: "bernoulli_beta", "categorical_dirichlet", "exponential_gamma", "poisson_gamma".
    statistics : ndarray, shape (R, C) or (R, 2)
        Counts of each level, (outcome 1, outcome 0) for Bernoulli; or the number of records and the sum of
        outcomes clamped to [0, `upper`].
    prior : sequence of float
        (alpha, beta), the concentrations, or the gamma prior's (shape, rate).
    epsilon, delta : float
        Privacy budget.
    seed : int
        Of the noise.
    upper : float
        Public bound of an outcome; for exponential and Poisson models only, which need it.
    neighbouring_relation : str
        "add_or_remove_one", the only one for which this limit is worked out.

    Returns
    -------
    GaussianOptimum
        Theta is the logit, the stick-breaking coordinates, or the logarithm of the rate.

    Raises
    ------
    ArgumentError
        If an argument is outside its range, or statistics do not fit the model.

    Examples
    --------
    >>> made = gaussian_mechanism_optimum(
    ...     "bernoulli_beta", [[2500, 2500]], prior=[10, 10], epsilon=0.1, delta=1e-5, seed=0
    ... )
    >>> round(float(made.sd[0, 0]), 3)
    0.033
    """
    values, parameters = _check(kind, statistics, prior, upper)
    if neighbouring_relation != ADD_OR_REMOVE_ONE:
        raise ArgumentError(
            f"neighbouring_relation must be {ADD_OR_REMOVE_ONE!r} (got {neighbouring_relation!r})."
        )
    noise_std = 1.0 / gaussian_mu(check_epsilon(epsilon), check_delta(delta))
    rng = np.random.default_rng(check_seed("seed", seed))
    if kind in COUNT_KINDS:
        noisy = values + noise_std * rng.standard_normal(values.shape)
        moments = [count_moments(row, concentrations=parameters, noise_std=noise_std) for row in noisy]
    else:
        assert upper is not None  # checked
        shares = np.stack([values[:, 1] / upper, values[:, 0] - values[:, 1] / upper], axis=1)
        noisy = shares + noise_std * rng.standard_normal(shares.shape)
        moments = [
            sum_moments(kind, row, prior=parameters, upper=upper, noise_std=noise_std) for row in noisy
        ]
    mean, sd = (np.stack(part) for part in zip(*moments, strict=True))
    return GaussianOptimum(mean, sd, noise_std)


def non_private_moments(kind: str, statistics: ArrayLike, *, prior: Sequence[float]) -> PosteriorMoments:
    """Return exact mean and sd of theta given the statistics themselves, for which outcomes are not clamped.

    Parameters
    ----------
    kind, statistics, prior
        As for `gaussian_mechanism_optimum`.

    Raises
    ------
    ArgumentError
        As there.

    Examples
    --------
    >>> non_private_moments("bernoulli_beta", [[2500, 2500]], prior=[10, 10]).sd.round(4)
    array([[0.0282]])
    """
    values, parameters = _check(kind, statistics, prior, None, needs_upper=False)
    if kind in COUNT_KINDS:
        counts = values + parameters
        rest = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
        first = counts[:, :-1]
        mean = digamma(first) - digamma(rest) + log_levels_after(first.shape[1])
        return PosteriorMoments(mean, np.sqrt(polygamma(1, first) + polygamma(1, rest)))
    num_records, total = values[:, :1], values[:, 1:]
    counted, exposure = (num_records, total) if kind == "exponential_gamma" else (total, num_records)
    shape, rate = parameters[0] + counted, parameters[1] + exposure
    return PosteriorMoments(digamma(shape) - np.log(rate), np.sqrt(polygamma(1, shape)))


def simulate_statistics(
    kind: str, theta: ArrayLike, *, num_records: int, seed: int, upper: float | None = None
) -> Array:
    """Return the statistics of one simulated data set for each theta, as the other functions take them.

    Parameters
    ----------
    kind : str
        As for `gaussian_mechanism_optimum`.
    theta : ndarray, shape (R, K)
        True unconstrained parameters.
    num_records : int
        Records of each data set.
    seed : int
        The same seed gives the same records with and without clamping.
    upper : float, optional
        Clamps outcomes of exponential and Poisson models to [0, `upper`].
    """
    _check_kind(kind)
    theta, rng = np.asarray(theta, dtype=np.float64), np.random.default_rng(check_seed("seed", seed))
    num_records = check_count("num_records", num_records)
    if kind in COUNT_KINDS:
        share = expit(theta - log_levels_after(theta.shape[1]))
        left = np.cumprod(np.concatenate([np.ones((len(theta), 1)), 1.0 - share], axis=1), axis=1)
        levels = np.concatenate([left[:, :-1] * share, left[:, -1:]], axis=1)
        return rng.multinomial(num_records, levels).astype(np.float64)
    most = np.inf if upper is None else check_positive("upper", upper)
    statistics = np.empty((len(theta), 2))
    for row, rate in zip(statistics, np.exp(theta[:, 0]), strict=True):
        waits = kind == "exponential_gamma"
        outcomes = rng.exponential(1.0 / rate, num_records) if waits else rng.poisson(rate, num_records)
        row[:] = num_records, np.minimum(outcomes, most).sum()
    return statistics


def _check_kind(kind: str) -> None:
    """Raise unless the model has statistics that are known here."""
    if kind not in COUNT_KINDS + SUM_KINDS:
        raise ArgumentError(f"kind must be one of {', '.join(COUNT_KINDS + SUM_KINDS)} (got {kind!r}).")


def _check(
    kind: str, statistics: ArrayLike, prior: Sequence[float], upper: float | None, *, needs_upper: bool = True
) -> tuple[Array, Array]:
    """Return statistics and prior as arrays, or raise if anything does not fit."""
    _check_kind(kind)
    values = np.asarray(statistics, dtype=np.float64)
    parameters = np.array([check_positive("prior", value) for value in prior])
    if values.ndim != 2 or values.shape[1] != len(parameters) or len(parameters) < 2 or len(values) == 0:
        raise ArgumentError(
            f"statistics of {kind} must have a column for each number of the prior, at least two "
            f"(got shape {values.shape} and {len(parameters)} numbers)."
        )
    if kind != "categorical_dirichlet" and len(parameters) != 2:
        raise ArgumentError(f"prior of {kind} must be two numbers (got {len(parameters)}).")
    if not (np.isfinite(values) & (values >= 0.0)).all():
        raise ArgumentError("statistics must be finite and not negative.")
    if kind in COUNT_KINDS and upper is not None:
        raise ArgumentError(f"upper must be left out for {kind}: its statistics are bounded by themselves.")
    if kind in SUM_KINDS and needs_upper:
        bound = check_positive("upper", upper)
        if kind == "poisson_gamma" and bound != int(bound):
            raise ArgumentError(f"upper must be a whole number for counts (got {upper!r}).")
        if (values[:, 1] > values[:, 0] * bound * (1.0 + 1e-9)).any():
            raise ArgumentError("statistics must hold sums of clamped outcomes, at most upper a record.")
    return values, parameters
