"""Gibbs sampling of theta given noisy sums of sufficient statistics, after Bernstein and Sheldon. Public.

The model of a release of J noisy sums y (in units of the statistics, see `families`):

    theta ~ prior,   s | theta, N ~ normal(N m(theta), N V(theta)),   y_j = s_j + noise_j,

with m and V the exact moments of one record's statistics (central limit theorem over N records), and noise
independent for each sum: Laplace(b), or normal with standard deviation b. A sweep draws

1. s given theta and y: normal, since Laplace noise is a normal with a variance of its own,
   v_j ~ Exponential(mean 2 b^2) [1]_; and N first, if it is not public, with s integrated out, under a flat
   prior on N > 0 (a Metropolis step whose proposal is its normal conditional at the variance of an estimate);
2. theta given s and N: its conjugate conditional, as if s had its exact law;
3. each 1 / v_j given s: inverse Gaussian with mean 1 / (b |y_j - s_j|) and shape 1 / b^2.

Sums that no records can have, such as negative counts, have no mass: a draw of (N, s) that is impossible is
rejected, and the last one kept. All replicates step together as arrays.

The published code adds one draw of noise to all sums, takes truncation bounds from the true parameter and
sensitivities from the data; here each sum has its own noise, and bounds and sensitivities are public.

References
----------
.. [1] Bernstein and Sheldon (2018). Differentially private Bayesian inference for exponential families.
   NeurIPS 31, Algorithm 1.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.baselines.sufficient_statistics.families import NoisySums, RecordMoments, StatisticsFamily
from nadpvi.baselines.sufficient_statistics.linear_algebra import solve, total_covariance
from nadpvi.baselines.sufficient_statistics.move import Steps, adapted, first_steps, move_theta
from nadpvi.checks import check_count, check_positive
from nadpvi.errors import ArgumentError

__all__ = ["GibbsDraws", "NoiseKind", "check_noise", "sample_statistics"]

Array = NDArray[np.float64]
NoiseKind = Literal["laplace", "gaussian"]

# As a share of b^2: a latent variance below it leaves no trace in any result.
_LEAST_VARIANCE = 1e-12


class GibbsDraws(NamedTuple):
    """Draws over R replicates: theta (R, S, K) unconstrained, and what went with them.

    `num_records` (R, S) are draws of N, constant where it is public; `sums` (R, S, J) of the true sums, or
    None unless they were asked for.
    """

    theta: Array
    num_records: Array
    sums: Array | None


class _State(NamedTuple):
    """Where R chains are: theta (R, K), sums (R, J), N (R,), noise variances (R, J), steps of theta."""

    theta: Array
    sums: Array
    num_records: Array
    variance: Array
    steps: Steps


def sample_statistics(
    family: StatisticsFamily,
    noisy: ArrayLike,
    *,
    noise: NoiseKind,
    noise_scale: float,
    num_records: ArrayLike | None,
    draws: int,
    rng: np.random.Generator,
    warmup: int = 500,
    thin: int = 1,
    keep_sums: bool = False,
) -> GibbsDraws:
    """Return Gibbs draws of theta for R releases of one mechanism, one chain each.

    Parameters
    ----------
    family : StatisticsFamily
        What was released, from `make_statistics_family`.
    noisy : array_like, shape (R, J)
        Noisy sums, one row a replicate.
    noise : "laplace" or "gaussian"
        Its law.
    noise_scale : float
        b > 0: Laplace scale or normal standard deviation of every sum's own noise.
    num_records : array_like, shape () or (R,), or None
        N, where it is public; None where it was released among the sums.
    draws : int
        S, kept draws of each chain.
    rng : numpy.random.Generator
    warmup : int
        Sweeps that are thrown away.
    thin : int
        Keep each so-many-th sweep.
    keep_sums : bool
        Whether draws of the true sums are returned as well.

    Raises
    ------
    ArgumentError
        If shapes disagree, an argument is out of range, or N is given where it is private or the reverse.

    Examples
    --------
    >>> from nadpvi.baselines.sufficient_statistics.counts import CountStatistics
    >>> coin = CountStatistics(codes=(1.0, 0.0), concentration=(1.0, 1.0), labels=("yes", "no"),
    ...                        has_public_count=False)
    >>> found = sample_statistics(coin, [[300.0, 700.0]], noise="laplace", noise_scale=10.0, num_records=None,
    ...                           draws=2000, rng=np.random.default_rng(1))
    >>> found.theta.shape, round(float(1 / (1 + np.exp(-found.theta.mean()))), 2)
    ((1, 2000, 1), 0.3)
    """
    observed, known = _check_inputs(family, noisy, num_records)
    scale, noise = check_positive("noise_scale", noise_scale), check_noise(noise)
    draws, thin = check_count("draws", draws), check_count("thin", thin)
    if isinstance(warmup, bool) or not isinstance(warmup, int) or warmup < 0:
        raise ArgumentError(f"warmup must be a whole number of at least 0 (got {warmup!r}).")
    guess = family.estimate_count(observed) if known is None else known
    family, theta, sums = family.start(observed, num_records=guess)
    typical = 2.0 * scale**2 if noise == "laplace" else scale**2
    state = _State(
        theta,
        sums,
        guess,
        np.full(observed.shape, typical),
        first_steps(theta.shape, num_blocks=len(family.blocks)),
    )
    kept_theta = np.empty((len(observed), draws, theta.shape[1]))
    kept_count = np.empty((len(observed), draws))
    kept_sums = np.empty((len(observed), draws, observed.shape[1])) if keep_sums else None
    for sweep in range(warmup + draws * thin):
        state = _sweep(
            family,
            state,
            observed,
            guess=guess if known is None else None,
            sweep=sweep,
            is_warming=sweep < warmup,
            rng=rng,
        )
        if noise == "laplace":
            state = state._replace(variance=_draw_variance(observed - state.sums, scale=scale, rng=rng))
        place, left = divmod(sweep - warmup, thin)
        if place >= 0 and left == thin - 1:
            kept_theta[:, place], kept_count[:, place] = state.theta, state.num_records
            if kept_sums is not None:
                kept_sums[:, place] = state.sums
    return GibbsDraws(kept_theta, kept_count, kept_sums)


def check_noise(noise: object) -> NoiseKind:
    """Return the name of a law of noise, or raise `ArgumentError`."""
    if noise == "laplace":
        return "laplace"
    if noise == "gaussian":
        return "gaussian"
    raise ArgumentError(f'noise must be "laplace" or "gaussian" (got {noise!r}).')


def _check_inputs(
    family: StatisticsFamily, noisy: ArrayLike, num_records: object
) -> tuple[Array, Array | None]:
    """Return the noisy sums (R, J) and the public N (R,), or None where it is private."""
    observed = np.asarray(noisy, dtype=np.float64)
    if observed.ndim != 2 or observed.shape[1] != len(family.labels) or not np.isfinite(observed).all():
        raise ArgumentError(f"noisy must be finite with shape (R, {len(family.labels)}), one row a release.")
    if family.has_public_count != (num_records is not None):
        rule = (
            "given, since neighbours replace a record" if family.has_public_count else "None: N was released"
        )
        raise ArgumentError(f"num_records must be {rule}.")
    if num_records is None:
        return observed, None
    known = np.broadcast_to(np.asarray(num_records, dtype=np.float64), (len(observed),))
    if not (np.isfinite(known).all() and (known >= 1).all()):
        raise ArgumentError("num_records must be at least 1.")
    return observed, known


def _sweep(
    family: StatisticsFamily,
    state: _State,
    observed: Array,
    *,
    guess: Array | None,
    sweep: int,
    is_warming: bool,
    rng: np.random.Generator,
) -> _State:
    """Return the chains after N (if `guess` is an estimate of it), the sums and theta were drawn once."""
    count, block = state.num_records, sweep % len(family.blocks)
    given = NoisySums(observed, count, state.variance, state.steps.mean)
    moved = move_theta(family, state.theta, given=given, steps=state.steps, block=block, rng=rng)
    moments = moved.moments
    if guess is not None:
        count = _draw_count(moments, state, observed, guess=guess, rng=rng)
    deviation = np.sqrt(count)[:, None] * family.draw_deviation(moved.theta, rng=rng)
    before = moments.mean * count[:, None] + deviation
    noise = np.sqrt(state.variance) * rng.standard_normal(observed.shape)
    # A draw from the prior, noise and all, moved by the regression on what was observed: right also where
    # the covariance is singular, as that of counts which add up to N is.
    total = total_covariance(moments.covariance, state.variance, count)
    pull, _ = solve(total, observed - before - noise)
    sums = before + count[:, None] * (moments.covariance @ pull[:, :, None])[:, :, 0]
    is_possible = family.is_possible(sums, num_records=count)
    count = np.where(is_possible, count, state.num_records)
    sums = np.where(is_possible[:, None], sums, state.sums)
    theta = np.where(is_possible[:, None], moved.theta, state.theta)
    theta = family.draw_theta(theta, sums, num_records=count, rng=rng)
    steps = state.steps
    if is_warming:
        steps = adapted(
            steps,
            standard=family.standardise(theta),
            is_accepted=moved.is_accepted,
            sweep=sweep,
            block=block,
        )
    return _State(theta, sums, count, state.variance, steps)


def _draw_count(
    moments: RecordMoments, state: _State, observed: Array, *, guess: Array, rng: np.random.Generator
) -> Array:
    """Return N after one Metropolis step, the sums integrated out, flat prior on N > 0."""
    mean = moments.mean
    weighted, _ = solve(total_covariance(moments.covariance, state.variance, guess), mean)
    precision = (mean * weighted).sum(axis=1)
    centre = (observed * weighted).sum(axis=1) / precision
    proposal = centre + rng.standard_normal(len(mean)) / np.sqrt(precision)
    log_ratio = np.zeros(len(mean))
    for sign, count in ((1.0, np.maximum(proposal, 1e-9)), (-1.0, state.num_records)):
        residual = observed - mean * count[:, None]
        solved, log_det = solve(total_covariance(moments.covariance, state.variance, count), residual)
        log_target = -0.5 * (log_det + (residual * solved).sum(axis=1))
        log_ratio += sign * (log_target + 0.5 * precision * (count - centre) ** 2)
    is_accepted = (np.log1p(-rng.random(len(mean))) < log_ratio) & (proposal > 0.0)
    return np.where(is_accepted, proposal, state.num_records)


def _draw_variance(noise: Array, *, scale: float, rng: np.random.Generator) -> Array:
    """Return the variances that turn normal noise into Laplace noise, given the noise itself.

    1 / v is inverse Gaussian; written for v, with the root that does not cancel, by the method of Michael,
    Schucany and Haas (1976).
    """
    inverse_mean = np.maximum(np.abs(noise) * scale, _LEAST_VARIANCE * scale**2)
    # In units of the mean of 1 / v, with chi^2 / 2 times mean over shape.
    half = 0.5 * rng.standard_normal(noise.shape) ** 2 * scale**2 / inverse_mean
    larger = 1.0 + half + np.sqrt(half * (half + 2.0))
    is_smaller = rng.random(noise.shape) * (1.0 + 1.0 / larger) <= 1.0
    drawn = inverse_mean * np.where(is_smaller, larger, 1.0 / larger)
    variance: Array = np.maximum(drawn, _LEAST_VARIANCE * scale**2)
    return variance
