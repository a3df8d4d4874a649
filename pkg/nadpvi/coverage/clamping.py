"""Where to clamp outcomes before their noisy sum is released: chosen from the prior, hence public."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count, check_positive
from nadpvi.coverage.gaussian_optimum import SUM_KINDS, gaussian_mechanism_optimum, simulate_statistics
from nadpvi.errors import ArgumentError
from nadpvi.privacy.randomness import check_seed

__all__ = ["choose_upper"]

Array = NDArray[np.float64]

# Shares of outcomes below the bounds that are tried.
_SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 0.999)
_NUM_OUTCOMES = 100_000


def choose_upper(
    kind: str,
    *,
    prior: Sequence[float],
    num_records: int,
    epsilon: float,
    delta: float,
    seed: int,
    num_simulations: int = 40,
) -> float:
    """Return the clamp at which the Gaussian-mechanism optimum has the smallest mean sd over the prior.

    A wide clamp needs much noise, a narrow one hides what outcomes say; without this choice the optimum would
    be no limit. Bounds tried are quantiles of outcomes under the prior.

    Parameters
    ----------
    kind : str
        "exponential_gamma" or "poisson_gamma".
    prior : sequence of float
        The gamma prior's (shape, rate).
    num_records : int
        Records of a data set.
    epsilon, delta : float
        Privacy budget.
    seed : int
        Of the simulation.
    num_simulations : int
        Data sets; the same ones for each bound.

    Raises
    ------
    ArgumentError
        If an argument is outside its range, or the model's statistics are bounded by themselves.

    Examples
    --------
    >>> settings = {"num_records": 5000, "epsilon": 0.1, "delta": 1e-5, "seed": 0, "num_simulations": 10}
    >>> 0.3 < choose_upper("exponential_gamma", prior=[8, 2], **settings) < 0.7
    True
    """
    if kind not in SUM_KINDS:
        raise ArgumentError(
            f"kind must be one of {', '.join(SUM_KINDS)} (got {kind!r}); others need no clamp."
        )
    if len(prior) != 2:
        raise ArgumentError(f"prior of {kind} must be two numbers (got {len(prior)}).")
    shape, rate = (check_positive("prior", value) for value in prior)
    children = np.random.SeedSequence(check_seed("seed", seed)).spawn(3)
    rng = np.random.default_rng(children[0])
    rates = rng.gamma(shape, 1.0 / rate, check_count("num_simulations", num_simulations))
    of_records, of_noise = (int(child.generate_state(1)[0]) for child in children[1:])

    def mean_sd(upper: float) -> float:
        statistics = simulate_statistics(
            kind, np.log(rates)[:, None], num_records=num_records, seed=of_records, upper=upper
        )
        made = gaussian_mechanism_optimum(
            kind, statistics, prior=prior, epsilon=epsilon, delta=delta, seed=of_noise, upper=upper
        )
        return float(made.sd.mean())

    return float(min(_bounds(kind, rng.gamma(shape, 1.0 / rate, _NUM_OUTCOMES), rng), key=mean_sd))


def _bounds(kind: str, rates: Array, rng: np.random.Generator) -> list[float]:
    """Return the bounds to try."""
    waits = kind == "exponential_gamma"
    outcomes = rng.exponential(1.0 / rates) if waits else rng.poisson(rates)
    bounds = np.quantile(outcomes, _SHARES)
    return sorted(set(bounds if waits else np.maximum(np.ceil(bounds), 1.0)))
