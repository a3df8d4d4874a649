"""From the results of tasks to the table and the curves of an experiment."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.coverage import (
    MIN_REPLICATES,
    CoverageTest,
    coverage_curve,
    coverage_rmse,
    coverage_rmse_bound,
    coverage_test,
    interval_coverage,
)
from nadpvi.experiments.configuration import Arm, Experiment
from nadpvi.experiments.tasks import RunReport

__all__ = ["ArmScores", "collect", "curves", "method_failures", "summary_table"]

Array = NDArray[np.float64]

# Of the bootstrap and the null distributions; the results themselves come from the experiment's seed.
_TEST_SEED = 1
_MOST_MARGINALS = 12  # more curves than that nobody can tell apart in one panel


class ArmScores(NamedTuple):
    """All scores of one method in one arm: arrays with a row for each replicate, and wall seconds in all.

    ``replicates`` are the numbers of the tables that were scored. ``joint`` is the test of joint coverage,
    None where the truth is not known or tables are too few.
    """

    arm: Arm
    method: str
    replicates: NDArray[np.int64]
    scores: dict[str, Array]
    seconds: float
    joint: CoverageTest | None


def collect(experiment: Experiment, report: RunReport) -> list[ArmScores]:
    """Return the scores of every arm and method, blocks in order; what has no results is left out."""
    found = []
    for number, arm in enumerate(experiment.arms):
        for method in arm.methods:
            blocks = {
                int(name.partition("-")[2]): arrays
                for name, arrays in report.results.items()
                if name.startswith(f"{number:02d}-") and f"{method}__seconds" in arrays
            }
            if blocks:
                found.append(_joined(arm, method, blocks))
    return found


def method_failures(report: RunReport) -> tuple[str, ...]:
    """Return a line for each method that failed in a task that went on without it."""
    return tuple(
        f"task {name}, method {key.removesuffix('__failure')}: {arrays[key]}"
        for name, arrays in report.results.items()
        for key in arrays
        if key.endswith("__failure")
    )


def _joined(arm: Arm, method: str, blocks: Mapping[int, Mapping[str, Array]]) -> ArmScores:
    """Return one method's arrays of several blocks as one; blocks by the number of their first table."""
    prefix = f"{method}__"
    parts = [
        {key.removeprefix(prefix): value for key, value in block.items() if key.startswith(prefix)}
        for block in blocks.values()
    ]
    scores = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name != "seconds"}
    replicates = [first + np.arange(len(part["sd"])) for first, part in zip(blocks, parts, strict=True)]
    seconds = float(sum(part["seconds"] for part in parts))
    ranks = scores.get("joint", ())
    joint = coverage_test(ranks, seed=_TEST_SEED) if len(ranks) >= MIN_REPLICATES else None
    return ArmScores(arm, method, np.concatenate(replicates), scores, seconds, joint)


def summary_table(scores: Sequence[ArmScores]) -> pd.DataFrame:
    """Return one row for each arm and method.

    ``failed`` is how many of the arm's tables a method, or the whole task, failed on: they are in no other
    number of the row. Where the truth is known: ``rmse`` of joint coverage (Eq. 15) with its standard error
    and what a perfect posterior has on average and at most in 95 % of experiments of as many tables;
    ``worst_marginal_rmse``, the largest of a single parameter, and what that is at most in 95 % of
    experiments; mean and sd of z, truth minus posterior mean over posterior sd; the share of 90 % intervals
    that hold the truth, and that of the parameter with the least; the median posterior sd, by itself and over
    those of the non-private posterior and of the Gaussian mechanism's optimum on the same tables; mean CRPS
    and log score. Else: the mean scores of predictions, with the standard error of the log score, ``z_dp`` of
    the coefficients whose sd is above the non-private one, and ``sd_above``, the share of those.
    """
    rows = []
    for one in scores:
        head = {"settings": one.arm.name, "method": one.method}
        peers = {other.method: other for other in scores if other.arm is one.arm and other is not one}
        rows.append({**head, **(_truth_row(one, peers) if "joint" in one.scores else _prediction_row(one))})
    return pd.DataFrame(rows)


def _truth_row(one: ArmScores, peers: Mapping[str, ArmScores]) -> dict[str, Any]:
    """Return the figures of a method whose truth is known."""
    scores = one.scores
    num_tables = len(scores["joint"])
    covered = interval_coverage(scores["rank"], num_draws=scores["num_draws"][:, None])
    return {
        "tables": num_tables,
        "failed": one.arm.replicates - num_tables,
        **_coverage(one.joint, scores["marginal"]),
        "z_mean": scores["z"].mean(),
        "z_sd": scores["z"].std(),
        "coverage_90": covered.mean(),
        "worst_coverage_90": covered.mean(axis=0).min(),
        "median_sd": np.median(scores["sd"]),
        **_sharpness(one, peers),
        "crps": scores["crps"].mean(),
        "log_score": scores["log_score"].mean(),
        "seconds_per_table": one.seconds / num_tables,
    }


def _coverage(joint: CoverageTest | None, marginal_ranks: Array) -> dict[str, float]:
    """Return the figures of the coverage test; NaN where there are too few tables for one."""
    if joint is None:
        names = (
            "rmse",
            "rmse_se",
            "null_mean",
            "null_95",
            "p_value",
            "worst_marginal_rmse",
            "worst_marginal_null_95",
        )
        return dict.fromkeys(names, np.nan)
    return {
        "rmse": joint.rmse,
        "rmse_se": joint.rmse_sd,
        "null_mean": joint.null_mean,
        "null_95": joint.null_bound_95,
        "p_value": joint.p_value,
        "worst_marginal_rmse": max(coverage_rmse(ranks) for ranks in np.moveaxis(marginal_ranks, 2, 0)),
        "worst_marginal_null_95": coverage_rmse_bound(
            len(marginal_ranks), num_curves=marginal_ranks.shape[2]
        ),
    }


def _sharpness(one: ArmScores, peers: Mapping[str, ArmScores]) -> dict[str, float]:
    """Return the median ratios of sds to those of the limits on the same tables."""
    sd, found = one.scores["sd"], {}
    if "non_private" in peers:
        limit = peers["non_private"]
        _, mine, theirs = np.intersect1d(one.replicates, limit.replicates, return_indices=True)
        if mine.size:
            found["sd_over_non_private"] = float(np.median(sd[mine] / limit.scores["sd"][theirs]))
    if "optimum_sd" in one.scores:
        found["sd_over_optimum"] = float(np.median(sd / one.scores["optimum_sd"]))
    return found


def _prediction_row(one: ArmScores) -> dict[str, Any]:
    """Return the mean scores of predictions."""
    scores = one.scores
    num_runs = len(scores["log_score"])
    return {
        "runs": num_runs,
        "failed": one.arm.replicates - num_runs,
        "log_score": scores["log_score"].mean(),
        "log_score_se": scores["log_score"].std(ddof=1) / np.sqrt(num_runs) if num_runs > 1 else np.nan,
        "brier": scores["brier"].mean(),
        "rmse": np.sqrt(scores["brier"].mean()),
        "calibration_error": scores["calibration_error"].mean(),
        "accuracy": scores["accuracy"].mean(),
        **_privacy_distance(one),
        "median_sd": np.median(scores["sd"]),
        "seconds_per_run": one.seconds / num_runs,
    }


def _privacy_distance(one: ArmScores) -> dict[str, float]:
    """Return the mean z_dp of the coefficients that have one, and their share; none without privacy."""
    if one.method == "non_private":
        return {"z_dp": np.nan, "sd_above": np.nan}
    square, share = np.square(one.scores["z_dp"]), one.scores["sd_above"]
    has_any = share > 0
    return {
        "z_dp": float(np.sqrt(square[has_any].mean())) if has_any.any() else np.nan,
        "sd_above": float(share.mean()),
    }


def curves(scores: Sequence[ArmScores]) -> list[dict[str, Any]]:
    """Return what the figures draw, for each arm and method, as JSON types.

    Where the truth is known ``level``, ``coverage`` (joint), ``band``, the lower and the upper edge that the
    curve of a perfect posterior keeps to in 95 % of experiments, and where there are 2 to 12 parameters
    ``marginals``, a curve for each; else ``bin_mean`` and ``bin_rate`` of
    the calibration curve.
    """
    return [{"settings": one.arm.name, "method": one.method, **_curve(one)} for one in scores]


def _curve(one: ArmScores) -> dict[str, Any]:
    """Return one method's curve."""
    if one.joint is not None:
        test = one.joint
        order = np.argsort(1.0 - test.alphas)
        return {
            "level": _rounded((1.0 - test.alphas)[order]),
            "coverage": _rounded(test.coverage[order]),
            "band": [_rounded(edge[order]) for edge in test.band],
            **_marginals(one, order),
        }
    if "joint" in one.scores:
        return {"level": [], "coverage": [], "band": [[], []]}
    share = one.scores["bin_share"]
    weight = share.sum(axis=0)
    with np.errstate(invalid="ignore"):
        means = {
            name: np.nansum(share * one.scores[name], axis=0) / weight for name in ("bin_mean", "bin_rate")
        }
    return {name: [None if np.isnan(v) else round(float(v), 5) for v in row] for name, row in means.items()}


def _marginals(one: ArmScores, order: NDArray[np.intp]) -> dict[str, list[list[float]]]:
    """Return the coverage curve of each of a few parameters, at the levels of the joint one."""
    ranks = np.moveaxis(one.scores["marginal"], 2, 0)
    if not 1 < len(ranks) <= _MOST_MARGINALS:
        return {}
    return {"marginals": [_rounded(coverage_curve(column)[order]) for column in ranks]}


def _rounded(values: Any) -> list[float]:
    """Return numbers with five decimals."""
    return [round(float(value), 5) for value in values]
