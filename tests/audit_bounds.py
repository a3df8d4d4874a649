"""From two samples of outputs to a lower bound on epsilon that holds with a stated confidence.

If a mechanism is (epsilon, delta)-differentially private for two data sets D and D', every event S obeys
``P(S | D) <= exp(epsilon) * P(S | D') + delta``. Runs on both data sets estimate the two probabilities, so
that, whatever S is,

    epsilon >= log((P(S | D) - delta) / P(S | D')),

and with Clopper and Pearson's limits [1]_, lower for the first and upper for the second, each wrong with
probability at most a, the right side is too large with probability at most 2 a: no approximation, no
assumption about the mechanism [2]_.

S is an event {statistic above a threshold} or {below}. An auditor tries many statistics, thresholds and both
orders of the data sets; the best of many would overstate epsilon. So runs are split: S is chosen on the
first part, and the limits come from the second part alone, which is one event, fixed beforehand, on fresh
runs. How many were tried does then not matter for the confidence.

With n fresh runs a bound cannot exceed about log(n / log(1 / a)).

References
----------
.. [1] Clopper and Pearson (1934). The use of confidence or fiducial limits illustrated in the case of the
   binomial. Biometrika 26, 404-413.
.. [2] Jagielski, Ullman and Oprea (2020). Auditing differentially private machine learning: how private is
   private SGD? NeurIPS 33. Nasr, Songi, Thakurta, Papernot and Carlini (2021). Adversary instantiation:
   lower bounds for differentially private machine learning. IEEE S&P. Tramer et al. (2022). Debugging
   differential privacy: a case study for privacy auditing. arXiv:2202.12219.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

Array = NDArray[np.float64]

# The event is chosen on this share of the runs. Choosing needs fewer than bounding.
TRAIN_SHARE = 0.25
_MOST_THRESHOLDS = 240
_VALUES_A_THRESHOLD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound on epsilon at `delta`, wrong with probability at most `miss_probability`.

    Parameters
    ----------
    epsilon : float
        The bound; minus infinity where the event's probability does not exceed delta.
    delta, miss_probability : float
        What it is a bound at, and how often it may be too large.
    statistic, relation : str
        What was measured, and whether the event favours the data set with the record ("remove") or
        without it ("add").
    fresh_runs : int
        Runs on each data set that the limits rest on.
    hits, false_hits : int
        How often the event happened on the favoured data set and on the other.
    """

    epsilon: float
    delta: float
    miss_probability: float
    statistic: str
    relation: str
    fresh_runs: int
    hits: int
    false_hits: int

    def __str__(self) -> str:
        return (
            f"epsilon >= {self.epsilon:.3f} at delta {self.delta:g} with confidence 1 - "
            f"{self.miss_probability:g} ({self.statistic}, {self.relation}: {self.hits} against "
            f"{self.false_hits} of {self.fresh_runs} runs)"
        )


def epsilon_bound(
    hits: Array, false_hits: Array, *, runs: int, delta: float, miss_probability: float
) -> Array:
    """Return log((p - delta) / q) with p's lower and q's upper Clopper-Pearson limit.

    Parameters
    ----------
    hits, false_hits : ndarray
        Counts out of `runs` on the favoured data set and on the other. Fractions are allowed, for choosing.
    runs : int
        Runs on each data set.
    delta : float
        In [0, 1).
    miss_probability : float
        Half of it goes to each limit.
    """
    each = miss_probability / 2.0
    hits, false_hits = np.asarray(hits, dtype=float), np.asarray(false_hits, dtype=float)
    low = np.where(hits > 0, beta.ppf(each, np.maximum(hits, 1e-9), runs - hits + 1), 0.0)
    missing = runs - false_hits
    high = np.where(missing > 0, beta.ppf(1.0 - each, false_hits + 1, np.maximum(missing, 1e-9)), 1.0)
    with np.errstate(divide="ignore"):
        bound: Array = np.log(np.maximum(low - delta, 0.0)) - np.log(high)
    return bound


def lower_bound(
    with_record: Mapping[str, Array],
    without_record: Mapping[str, Array],
    *,
    delta: float,
    miss_probability: float,
) -> Bound:
    """Return the bound of the event that looks best on the first part of the runs, from the other part.

    Parameters
    ----------
    with_record, without_record : mapping of str to ndarray, shape (runs,)
        Values of each statistic on runs of either data set; the same names and numbers of runs.
    delta : float
        delta of the claim.
    miss_probability : float
        How often the bound may be too large.
    """
    runs = len(next(iter(with_record.values())))
    train = num_train(runs)
    fresh = runs - train
    event = _choose(
        {name: values[:train] for name, values in with_record.items()},
        {name: values[:train] for name, values in without_record.items()},
        fresh=fresh,
        delta=delta,
        miss_probability=miss_probability,
    )
    counts = [
        int((event.sign * values[event.statistic][train:] > event.threshold).sum())
        for values in (with_record, without_record)
    ]
    hits, false_hits = counts if event.relation == "remove" else counts[::-1]
    epsilon = epsilon_bound(
        np.array(hits), np.array(false_hits), runs=fresh, delta=delta, miss_probability=miss_probability
    )
    return Bound(
        epsilon=float(epsilon),
        delta=delta,
        miss_probability=miss_probability,
        statistic=event.statistic,
        relation=event.relation,
        fresh_runs=fresh,
        hits=hits,
        false_hits=false_hits,
    )


class _Event(NamedTuple):
    """The event {sign * statistic > threshold}, taken to favour one of the data sets."""

    statistic: str
    relation: str
    sign: float
    threshold: float


def _choose(
    with_record: Mapping[str, Array],
    without_record: Mapping[str, Array],
    *,
    fresh: int,
    delta: float,
    miss_probability: float,
) -> _Event:
    """Return the event whose bound on `fresh` runs would be best if they turned out like these."""
    best, chosen = -np.inf, _Event(next(iter(with_record)), "remove", 1.0, 0.0)
    for name in with_record:
        train = len(with_record[name])
        for sign in (1.0, -1.0):
            present, absent = sign * with_record[name], sign * without_record[name]
            thresholds = _thresholds(np.concatenate([present, absent]))
            above_present = (present[:, None] > thresholds).sum(axis=0)
            above_absent = (absent[:, None] > thresholds).sum(axis=0)
            orders = {"remove": (above_present, above_absent), "add": (above_absent, above_present)}
            for relation, (hits, false_hits) in orders.items():
                # One false hit more than seen: the rarest event is not the best one for want of runs.
                score = epsilon_bound(
                    hits * fresh / train,
                    np.minimum(false_hits + 1, train) * fresh / train,
                    runs=fresh,
                    delta=delta,
                    miss_probability=miss_probability,
                )
                if score.max() > best:
                    best = float(score.max())
                    chosen = _Event(name, relation, sign, float(thresholds[score.argmax()]))
    return chosen


def num_train(runs: int) -> int:
    """Return how many of the runs, from the first on, the event may be chosen on."""
    return int(runs * TRAIN_SHARE)


def _thresholds(values: Array) -> Array:
    """Return thresholds between the quantiles of `values`: in the gaps, where values come in lumps.

    No more than the values can tell apart: among too many, the luckiest one wins instead of the best.
    """
    number = min(_MOST_THRESHOLDS, max(2, len(values) // _VALUES_A_THRESHOLD))
    levels = np.quantile(values, np.linspace(0.0, 1.0, number + 1))
    middles: Array = np.unique(0.5 * (levels[1:] + levels[:-1]))
    return middles
