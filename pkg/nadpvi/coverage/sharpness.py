"""How sharp covered posteriors are: a posterior as wide as a barn covers the truth too."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.errors import ArgumentError

__all__ = ["ScoreSummary", "Sharpness", "sharpness", "summarise_scores"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sharpness:
    """Posterior sds beside those of a reference posterior, over R replicates; each array has shape (K,).

    Attributes
    ----------
    sd, reference_sd : ndarray
        Medians over replicates.
    ratio : ndarray
        Median over replicates of the ratio within one replicate; 1 where the reference is reached.
    ratio_low, ratio_high : ndarray
        5 % and 95 % points of that ratio.
    num_replicates : int
        R.
    """

    sd: Array
    reference_sd: Array
    ratio: Array
    ratio_low: Array
    ratio_high: Array
    num_replicates: int


def sharpness(sd: ArrayLike, *, reference_sd: ArrayLike) -> Sharpness:
    """Return posterior sds relative to those of a reference, such as the non-private posterior.

    Parameters
    ----------
    sd : ndarray, shape (R, K)
        Posterior standard deviations, ``sd`` of `score_draws`.
    reference_sd : ndarray, shape (R, K)
        Those of the reference posterior of the same data, on the same scale.

    Raises
    ------
    ArgumentError
        If shapes differ or an sd is not positive and finite.

    Examples
    --------
    >>> sharpness([[2.0], [3.0]], reference_sd=[[1.0], [1.0]]).ratio
    array([2.5])
    """
    ours, theirs = np.asarray(sd, dtype=np.float64), np.asarray(reference_sd, dtype=np.float64)
    if ours.ndim != 2 or ours.shape != theirs.shape or ours.size == 0:
        raise ArgumentError(
            "sd and reference_sd must both have shape (replicates, parameters) "
            f"(got {ours.shape} and {theirs.shape})."
        )
    for name, values in (("sd", ours), ("reference_sd", theirs)):
        if not (np.isfinite(values) & (values > 0.0)).all():
            raise ArgumentError(f"{name} must be finite and positive.")
    low, middle, high = np.quantile(ours / theirs, [0.05, 0.5, 0.95], axis=0)
    return Sharpness(
        sd=np.median(ours, axis=0),
        reference_sd=np.median(theirs, axis=0),
        ratio=middle,
        ratio_low=low,
        ratio_high=high,
        num_replicates=len(ours),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreSummary:
    """Scores over R replicates; each array has shape (K,).

    Attributes
    ----------
    sd : ndarray
        Median posterior standard deviation.
    rms_z : ndarray
        Root mean square of (truth - mean) / sd; near 1 for honest uncertainty, above where overconfident.
    covered_90 : ndarray
        Share of central 90 % intervals that hold the truth.
    crps, log_score : ndarray
        Means; small and large are good.
    crps_se, log_score_se : ndarray
        Their standard errors over replicates.
    num_replicates : int
        R.
    """

    sd: Array
    rms_z: Array
    covered_90: Array
    crps: Array
    crps_se: Array
    log_score: Array
    log_score_se: Array
    num_replicates: int


def summarise_scores(scores: Mapping[str, ArrayLike]) -> ScoreSummary:
    """Return the scores of all replicates in one row a parameter.

    Parameters
    ----------
    scores : mapping
        From `score_many`, or results of `score_draws` stacked; each entry used has shape (R, K), R >= 2.

    Raises
    ------
    ArgumentError
        If an entry is missing or there are fewer than two replicates.
    """
    names = ("sd", "z", "covered_90", "crps", "log_score")
    missing = [name for name in names if name not in scores]
    if missing:
        raise ArgumentError(f"scores must hold {missing[0]!r}; take them from score_many.")
    values = {name: np.asarray(scores[name], dtype=np.float64) for name in names}
    shape = values["sd"].shape
    if len(shape) != 2 or shape[0] < 2 or any(array.shape != shape for array in values.values()):
        raise ArgumentError(
            f"scores must hold arrays of shape (replicates, parameters) (got {shape} for 'sd')."
        )
    root = np.sqrt(shape[0])
    return ScoreSummary(
        sd=np.median(values["sd"], axis=0),
        rms_z=np.sqrt(np.square(values["z"]).mean(axis=0)),
        covered_90=values["covered_90"].mean(axis=0),
        crps=values["crps"].mean(axis=0),
        crps_se=values["crps"].std(axis=0, ddof=1) / root,
        log_score=values["log_score"].mean(axis=0),
        log_score_se=values["log_score"].std(axis=0, ddof=1) / root,
        num_replicates=shape[0],
    )
