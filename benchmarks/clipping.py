"""Clipping bias before and after `nadpvi.correct_clipping`, on conjugate models with theta from the prior.

``python benchmarks/clipping.py`` writes ``benchmarks/results/clipping.json``. Published settings but for the
clip norm and the number of steps; N = 2,000 at epsilon 0.1. Every row has its seed's own tables.
"""

import argparse
import dataclasses
import time
import warnings
from typing import NamedTuple

import numpy as np
from _shared import machine, write_result

import nadpvi as na
from nadpvi.coverage import coverage_rmse, coverage_rmse_bound, score_many
from nadpvi.models import BernoulliBeta, CategoricalDirichlet, ExponentialGamma

SEED = 20271
NUM_RECORDS, EPSILON, DRAWS = 2000, 0.1, 500


class Case(NamedTuple):
    """A model with a clip norm, a number of steps and a number of tables."""

    name: str
    clip_norm: float
    num_steps: int
    tables: int = 100


CASES = (
    Case("gamma", 1.0, 1000, 500),
    Case("gamma", 1.0, 10_000),
    Case("gamma", 2.0, 1000),
    Case("gamma", 5.0, 1000),
    Case("beta", 0.5, 1000),
    Case("beta", 1.0, 1000),
    Case("beta", 2.0, 1000),
    Case("dirichlet", 0.7, 1000),
    Case("dirichlet", 2.0**0.5, 1000),
)
COLUMNS = {
    "gamma": {"kind": "real", "lower": 0, "upper": 10},
    "beta": {"kind": "binary", "levels": ["no", "yes"]},
    "dirichlet": {"kind": "categorical", "levels": ["a", "b", "c"]},
}
MODELS = {
    "gamma": ExponentialGamma(outcome="y", prior_shape=8.0, prior_rate=2.0),
    "beta": BernoulliBeta(outcome="y", prior_alpha=10.0, prior_beta=10.0),
    "dirichlet": CategoricalDirichlet(outcome="y", concentration=[5.0, 5.0, 5.0]),
}


def run(case: Case) -> dict[str, object]:
    """Return one row: the posteriors of a case's releases, before and after."""
    model, count = MODELS[case.name], case.tables
    schema = na.Schema.from_dict({"columns": {"y": COLUMNS[case.name]}})
    config = dataclasses.replace(
        na.published_config(model, schema=schema),
        clip_norm=case.clip_norm,
        num_steps=case.num_steps,
        keep="sums",
    )
    seeds = na.replicate_seeds(SEED, num_replicates=count)
    tables = na.simulate_tables(model, schema=schema, num_records=NUM_RECORDS, seeds=seeds)
    traces = na.simulate_releases(
        model,
        tables.outcomes,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=EPSILON, delta=1e-5),
        seeds=seeds,
        config=config,
    )
    kept, draws, guesses, effective, seconds = [], {"before": [], "after": []}, [], [], 0.0
    for number in range(count):
        release = traces.release(number)
        before = na.infer(release, method="exact", draws=DRAWS, chains=1, seed=number)
        started = time.process_time()
        try:
            after = na.correct_clipping(before, release, seed=number)
        except na.ModelError:
            continue
        seconds += time.process_time() - started
        kept.append(number)
        draws["before"].append(before.theta()[0])
        draws["after"].append(after.theta()[0])
        guesses.append(after.settings["clipping"]["num_records"])
        effective.append(after.settings["clipping"]["effective_draws"])
    row: dict[str, object] = {**case._asdict(), "refused": count - len(kept)}
    row["null_95"] = round(coverage_rmse_bound(len(kept)), 4)
    for name, found in draws.items():
        row[name] = summary(
            np.array(found), tables.theta[kept], seeds=seeds[kept], centres=traces.sums.phi_bar[kept]
        )
    row["num_records_5_50_95"] = np.quantile(guesses, [0.05, 0.5, 0.95]).round(0).tolist()
    row["least_effective_draws_of_4000"] = min(effective)
    row["seconds_a_correction"] = round(seconds / len(kept), 2)
    return row


def summary(
    draws: np.ndarray, truth: np.ndarray, *, seeds: np.ndarray, centres: np.ndarray
) -> dict[str, object]:
    """Return z = (mean - truth) / sd, coverage and sharpness, one number a parameter."""
    found = score_many(draws, truth, seeds=seeds.tolist(), reference_centre=centres[:, : truth.shape[1]])
    return {
        "z_mean": (-found["z"]).mean(axis=0).round(3).tolist(),
        "z_sd": found["z"].std(axis=0).round(3).tolist(),
        "coverage_90": found["covered_90"].mean(axis=0).round(3).tolist(),
        "coverage_rmse": round(float(coverage_rmse(found["joint"])), 4),
        "median_sd": np.median(found["sd"], axis=0).round(4).tolist(),
        "crps": found["crps"].mean(axis=0).round(4).tolist(),
        "rmse_of_mean": np.sqrt(np.square(found["mean"] - truth).mean(axis=0)).round(4).tolist(),
    }


def main() -> None:
    """Run every case and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    warnings.simplefilter("ignore", na.InferenceWarning)
    settings = {"seed": SEED, "num_records": NUM_RECORDS, "epsilon": EPSILON, "draws": DRAWS}
    rows = []
    for case in CASES:
        rows.append(run(case))
        write_result("clipping", {"settings": settings, "rows": rows, "machine": machine()})


if __name__ == "__main__":
    main()
