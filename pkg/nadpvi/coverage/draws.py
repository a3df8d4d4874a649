"""What one simulated fit says: TARP ranks, the rank of simulation-based calibration, and scores.

References
----------
.. [1] Lemos, Coogan, Hezaveh and Perreault-Levasseur (2023). Sampling-based accuracy testing of posterior
   estimators for general inference. ICML 40.
.. [2] Talts, Betancourt, Simpson, Vehtari and Gelman (2018). Validating Bayesian inference algorithms with
   simulation-based calibration. arXiv:1804.06788.
.. [3] Gneiting and Raftery (2007). Strictly proper scoring rules, prediction, and estimation. JASA 102.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.checks import check_count
from nadpvi.coverage.ranks import MIN_DRAWS, num_held_out, reference_offsets, tarp_ranks
from nadpvi.errors import ArgumentError

__all__ = ["Seed", "interval_coverage", "score_draws", "score_many"]

Array = NDArray[np.float64]
Seed = int | Sequence[int]

# Mixed into every seed, so that a caller who uses the same seed elsewhere shares no random number.
_STREAM = 0xC0FE
# Distances held at once: few enough to stay in the processor's cache.
_CHUNK = 2**18


def score_draws(
    draws: ArrayLike,
    truth: ArrayLike,
    *,
    seed: Seed,
    num_references: int = 20,
    reference_seed: int = 0,
    reference_centre: ArrayLike | None = None,
) -> dict[str, Array]:
    """Return the ranks and scores of a true parameter vector among draws of its posterior.

    A reference point is an offset from a centre, in units of the posterior's sd, so that it follows the data.
    Offsets are the same for all replicates: were they drawn anew for each, references on either side would
    hide a bias in one direction. Centre and sd come from the first tenth of the draws, which is not counted
    then, since a reference must be a function of the data alone (Theorem 3 of [1]_). The truth's place among
    draws equally far, and within its own step of 1/(S + 1), is random. The published share (13.4) differs by
    less than one step; its steps show at large K, and stuck draws tilt it.

    Parameters
    ----------
    draws : ndarray, shape (S, K)
        Independent draws of all parameters, S >= 50, best on the unconstrained scale.
    truth : ndarray, shape (K,)
        The values behind the data.
    seed : int or sequence of int
        Of this replicate, not negative; breaks ties.
    num_references : int
        Number F of reference points.
    reference_seed : int
        Of the offsets; the same for all replicates of an experiment.
    reference_centre : ndarray, shape (K,), optional
        A centre that comes from the data or the release and not through the posterior, such as the mean
        iterate. With the default, the draws' mean, a posterior that ignores its data and returns the prior
        passes the test.

    Returns
    -------
    dict of ndarray
        ``joint`` (F,) and ``marginal`` (F, K): TARP ranks in (0, 1), uniform for a perfect posterior.
        ``rank`` (K,): number of draws below the truth, ties at random, 0 to ``num_draws`` (). ``mean``,
        ``sd``, ``z`` = (truth - mean) / sd, ``truth``, ``crps`` [3]_ (smaller is better), ``log_score`` (the
        log density at the truth of the normal distribution with the draws' mean and sd; larger is better) and
        ``covered_90`` (1 if the truth is in the 90 % interval, else 0, and between them where the rank
        cannot tell: `interval_coverage`), each (K,).

    Raises
    ------
    ArgumentError
        If shapes do not fit, there are too few draws, or draws are not finite or do not vary.

    References
    ----------
    .. [1] Lemos, Coogan, Hezaveh and Perreault-Levasseur (2023). Sampling-based accuracy testing of posterior
       estimators for general inference. ICML 40.
    .. [3] Gneiting and Raftery (2007). Strictly proper scoring rules, prediction, and estimation. JASA 102.

    Examples
    --------
    >>> scores = score_draws(np.random.default_rng(0).normal(size=(400, 2)), [0.1, -0.3], seed=1)
    >>> scores["joint"].shape, scores["marginal"].shape, int(scores["num_draws"])
    ((20,), (20, 2), 400)
    """
    scores = score_many(
        np.asarray(draws, dtype=np.float64)[None],
        np.asarray(truth, dtype=np.float64)[None],
        seeds=[seed],
        num_references=num_references,
        reference_seed=reference_seed,
        reference_centre=None if reference_centre is None else np.asarray(reference_centre)[None],
    )
    return {name: values[0] for name, values in scores.items()}


def score_many(
    draws: ArrayLike,
    truth: ArrayLike,
    *,
    seeds: Sequence[Seed],
    num_references: int = 20,
    reference_seed: int = 0,
    reference_centre: ArrayLike | None = None,
) -> dict[str, Array]:
    """Return what `score_draws` returns for each of R replicates, stacked on a first axis.

    Parameters
    ----------
    draws : ndarray, shape (R, S, K)
        Independent draws of each replicate.
    truth : ndarray, shape (R, K)
        The values behind each replicate's data.
    seeds : sequence of int or of sequences of int
        One for each replicate.
    num_references, reference_seed
        As for `score_draws`.
    reference_centre : ndarray, shape (R, K), optional
        As for `score_draws`.

    Raises
    ------
    ArgumentError
        As for `score_draws`; the message counts replicates and parameters from 0.
    """
    draws, truth = np.asarray(draws, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    _check_shapes(draws, truth, num_seeds=len(seeds))
    _check_values(draws, truth)
    num_replicates, num_draws, num_params = draws.shape
    offsets = reference_offsets(
        check_count("num_references", num_references), num_params=num_params, seed=reference_seed
    )
    centre = None if reference_centre is None else _check_centre(reference_centre, shape=truth.shape)
    step = max(1, _CHUNK // (len(offsets) * num_draws))
    parts = []
    for first in range(0, num_replicates, step):
        part = slice(first, first + step)
        uniforms = np.stack([_uniforms(seed, len(offsets), num_params) for seed in seeds[part]])
        joint, marginal = tarp_ranks(
            draws[part],
            truth[part],
            offsets=offsets,
            uniforms=uniforms[:, :-1],
            centre=None if centre is None else centre[part],
        )
        ranks = _calibration_ranks(draws[part], truth[part], uniforms=uniforms[:, -1, :num_params])
        parts.append(
            {
                "joint": joint,
                "marginal": marginal,
                "rank": ranks,
                "covered_90": interval_coverage(ranks, num_draws=num_draws),
                **_scores(draws[part], truth[part]),
            }
        )
    scores = {name: np.concatenate([piece[name] for piece in parts]) for name in parts[0]}
    return {**scores, "truth": truth.copy(), "num_draws": np.full(num_replicates, float(num_draws))}


def interval_coverage(ranks: ArrayLike, *, num_draws: ArrayLike, level: float = 0.9) -> Array:
    """Return how much of each truth is in the equal-tailed interval that S draws give: 0, 1, or between.

    A truth with r of S draws below it is somewhere in the r-th of S + 1 equal steps of probability, and what
    counts is the share of its step within the interval. On average that is `level` for a perfect posterior,
    however few the draws are; between two quantiles of the draws it is ``level (S - 1) / (S + 1)``.

    Parameters
    ----------
    ranks : array_like
        Numbers of draws below the truth.
    num_draws : array_like
        S >= 1; broadcasts against `ranks`.
    level : float
        In (0, 1).

    Examples
    --------
    >>> interval_coverage([0, 1, 2, 10, 19], num_draws=19).round(3).tolist()
    [0.0, 1.0, 1.0, 1.0, 0.0]
    >>> interval_coverage([0, 5, 9], num_draws=9).round(3).tolist()
    [0.5, 1.0, 0.5]
    """
    steps = np.asarray(num_draws, dtype=np.float64) + 1.0
    rank = np.asarray(ranks, dtype=np.float64)
    low, high = 0.5 * (1.0 - level) * steps, 0.5 * (1.0 + level) * steps
    share: Array = np.clip(np.minimum(rank + 1.0, high) - np.maximum(rank, low), 0.0, 1.0)
    return share


def _uniforms(seed: Seed, num_references: int, num_params: int) -> Array:
    """Return a replicate's own random numbers: a row for each reference point and one for the ranks."""
    values = (seed,) if isinstance(seed, int | np.integer) else tuple(seed)
    if not all(isinstance(value, int | np.integer) and value >= 0 for value in values):
        raise ArgumentError(f"seed must hold whole numbers that are not negative (got {seed!r}).")
    sequence = np.random.SeedSequence([int(value) for value in values], spawn_key=(_STREAM,))
    return np.random.default_rng(sequence).random((num_references + 1, num_params + 1))


def _calibration_ranks(draws: Array, truth: Array, *, uniforms: Array) -> Array:
    """Return the number of draws below the truth, ties at random, shape (R, K); see [2]_."""
    below = (draws < truth[:, None]).sum(axis=1)
    ties = (draws == truth[:, None]).sum(axis=1)
    ranks: Array = below + np.floor(uniforms * (ties + 1))
    return ranks


def _scores(draws: Array, truth: Array) -> dict[str, Array]:
    """Return moments and scores, each of shape (R, K)."""
    num_draws = draws.shape[1]
    mean, sd = draws.mean(axis=1), draws.std(axis=1, ddof=1)
    z = (truth - mean) / sd
    spread = np.sort(draws - mean[:, None], axis=1)
    # Twice this sum over S(S - 1) is the mean distance of two different draws.
    order = 2.0 * np.arange(1, num_draws + 1) - num_draws - 1.0
    half_distance = np.einsum("s,rsk->rk", order, spread) / (num_draws * (num_draws - 1.0))
    away = truth - mean
    return {
        "mean": mean,
        "sd": sd,
        "z": z,
        "crps": np.abs(spread - away[:, None]).mean(axis=1) - half_distance,
        "log_score": -0.5 * z * z - np.log(sd) - 0.5 * math.log(2.0 * math.pi),
    }


def _check_shapes(draws: Array, truth: Array, *, num_seeds: int) -> None:
    """Raise unless the arrays belong together."""
    if draws.ndim != 3 or truth.shape != (draws.shape[0], draws.shape[2]) or truth.size == 0:
        raise ArgumentError(
            "draws must have shape (replicates, draws, parameters) and truth (replicates, parameters), "
            f"without the first axis for one replicate (got {draws.shape} and {truth.shape})."
        )
    if draws.shape[1] < MIN_DRAWS:
        raise ArgumentError(
            f"draws must hold at least {MIN_DRAWS} draws of each replicate (got {draws.shape[1]}); draw more."
        )
    if num_seeds != len(draws):
        raise ArgumentError(
            f"seeds must hold one seed for each of {len(draws)} replicates (got {num_seeds})."
        )


def _check_values(draws: Array, truth: Array) -> None:
    """Raise if anything is not finite, or if draws do not vary where a scale is read off them."""
    held = num_held_out(draws.shape[1])
    for bad, rule in (
        (~np.isfinite(truth), "truth must be finite"),
        (~np.isfinite(draws).all(axis=1), "draws must be finite"),
        (np.ptp(draws[:, :held], axis=1) == 0.0, f"the first {held} draws must not all be equal"),
    ):
        if bad.any():
            replicate, parameter = np.argwhere(bad)[0]
            raise ArgumentError(f"{rule}; see replicate {replicate}, parameter {parameter}, counted from 0.")


def _check_centre(centre: ArrayLike, *, shape: tuple[int, ...]) -> Array:
    """Return the centres of the references as an array, or raise."""
    values = np.asarray(centre, dtype=np.float64)
    if values.shape != shape or not np.isfinite(values).all():
        raise ArgumentError(
            f"reference_centre must be finite, with one number for each of truth (got shape {values.shape})."
        )
    return values
