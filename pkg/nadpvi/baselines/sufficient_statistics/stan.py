"""The posterior of Gaussian-noised statistics by Stan: stan/noisy_statistics.stan and its data. Public."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.baselines.sufficient_statistics.counts import CountStatistics
from nadpvi.baselines.sufficient_statistics.mechanism import StatisticsMechanism
from nadpvi.baselines.sufficient_statistics.sums import SumStatistics
from nadpvi.engines.base import Engine
from nadpvi.engines.programs import program_path
from nadpvi.errors import ArgumentError

__all__ = ["make_statistics_data", "sample_statistics_stan"]

Array = NDArray[np.float64]


def make_statistics_data(
    mechanism: StatisticsMechanism, statistics: Array, *, num_records: int | None
) -> dict[str, Any]:
    """Return the data of noisy_statistics.stan for one release.

    Parameters
    ----------
    mechanism : StatisticsMechanism
        With Gaussian noise, of counts or of exponential outcomes that are clamped at their bound.
    statistics : ndarray, shape (J,)
        Noisy sums.
    num_records : int or None
        N where it is public.

    Raises
    ------
    ArgumentError
        If the program does not know the mechanism.
    """
    family = mechanism.family
    if mechanism.noise != "gaussian":
        raise ArgumentError("the Stan program is of Gaussian noise; use the Gibbs sampler for Laplace noise.")
    if family.has_public_count != (num_records is not None):
        raise ArgumentError("num_records must be given exactly if neighbours replace a record.")
    guess = family.estimate_count(statistics[None])[0] if num_records is None else num_records
    data = {
        "J": len(statistics),
        "noisy": statistics,
        "noise_std": mechanism.noise_scale,
        "is_count_public": int(family.has_public_count),
        "num_records": float(guess),
    }
    unused = {"concentration": np.ones(2), "bound": 1.0, "prior_shape": 1.0, "prior_rate": 1.0}
    if isinstance(family, CountStatistics):
        prior = {"concentration": np.array(family.concentration)}
        return {**data, **unused, **prior, "family": 1, "C": len(family.codes)}
    if isinstance(family, SumStatistics) and family.kind == "exponential" and family.beyond == "clamp":
        rate = {name: getattr(family, name) for name in ("bound", "prior_shape", "prior_rate")}
        return {**data, **unused, **rate, "family": 2, "C": 2}
    raise ArgumentError(
        "the Stan program is of counts of levels, and of exponential outcomes clamped at their bound."
    )


def sample_statistics_stan(
    mechanism: StatisticsMechanism,
    statistics: Array,
    *,
    num_records: int | None,
    engine: Engine,
    seed: int,
    draws: int = 1000,
    chains: int = 4,
    warmup: int = 500,
) -> Array:
    """Return NUTS draws of unconstrained theta, shape (chain, draw, K).

    Parameters
    ----------
    mechanism, statistics, num_records
        As for `make_statistics_data`.
    engine : Engine
        From `nadpvi.engines`.
    seed : int
        In [0, 2^64).
    draws, chains, warmup : int
        Kept draws a chain, chains, and warmup draws a chain.
    """
    data = make_statistics_data(mechanism, statistics, num_records=num_records)
    path = program_path("noisy_statistics")
    engine.prepare(path)
    found = engine.sample(path, data, chains=chains, warmup=warmup, draws=draws, seed=seed)
    return found.variables["theta"]
