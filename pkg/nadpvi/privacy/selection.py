"""Private choice among candidates: run a random number of them, release the best by a private score.

The procedure that is accounted [1]_ (`nadpvi.privacy.selection_accounting`): draw K by `draw_num_runs`. K
times, anew and independently, pick one candidate from a public list, uniformly at random; run DP-SGD with its
settings; and release, inside the procedure only, its score plus Gaussian noise, where one unit of privacy
moves the score by at most 1. Of all K outputs (trace, candidate, noisy score) the one with the highest noisy
score leaves, and nothing else: not K, not the other runs, not their number by way of a log or a clock.

K is geometric: after each run, stop with probability 1 / `mean_runs`. At least one run is always done, and K
cannot be bounded without voiding the theorem. All candidates share noise multiplier, number of steps and
sampling rate, so that a run's privacy does not depend on which candidate was picked. Neighbours differ by one
unit, added or removed: Renyi bounds for replacing under Poisson sampling are not at hand.

References
----------
.. [1] Papernot and Steinke (2022). Hyperparameter tuning with Renyi differential privacy. ICLR, Theorem 2
   with eta = 1. https://arxiv.org/abs/2110.03620
"""

from dataclasses import dataclass

import numpy as np

from nadpvi.checks import check_real
from nadpvi.errors import ArgumentError
from nadpvi.privacy.parameters import LEAST_NOISE

__all__ = ["Selection", "draw_num_runs"]

_MOST_RUNS = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """How many candidates are run, and how well their scores are hidden. Both numbers are public.

    Parameters
    ----------
    mean_runs : float
        Mean of the geometric number of runs, in (1, 10000].
    score_noise_multiplier : float
        Standard deviation of the noise on each score, over how far one unit of privacy can move the score.

    Raises
    ------
    ArgumentError
        If a value is outside its range.

    Examples
    --------
    >>> Selection(mean_runs=10, score_noise_multiplier=20)
    Selection(mean_runs=10.0, score_noise_multiplier=20.0)
    """

    mean_runs: float
    score_noise_multiplier: float

    def __post_init__(self) -> None:
        rule = f"above 1 and at most {_MOST_RUNS:.0f}"
        mean = check_real("mean_runs", self.mean_runs, rule=rule)
        if not 1.0 < mean <= _MOST_RUNS:
            raise ArgumentError(f"mean_runs must be {rule} (got {self.mean_runs!r}).")
        rule = f"finite and at least {LEAST_NOISE}"
        noise = check_real("score_noise_multiplier", self.score_noise_multiplier, rule=rule)
        if noise < LEAST_NOISE:
            raise ArgumentError(f"score_noise_multiplier must be {rule} (got {noise!r}).")
        object.__setattr__(self, "mean_runs", mean)
        object.__setattr__(self, "score_noise_multiplier", noise)


def draw_num_runs(rng: np.random.Generator, selection: Selection) -> int:
    """Return how many candidates to run: geometric, at least 1. Private, like everything that depends on it.

    Each toss of the coin stops with a probability at most 2^-53 above 1 / mean_runs, never below: fewer runs
    cost less. For a real release `rng` draws from a cryptographic bit generator.
    """
    stop = 1.0 / selection.mean_runs
    runs = 1
    while rng.random() >= stop:
        runs += 1
    return runs
