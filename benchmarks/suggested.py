"""Suggested settings on whole simulated runs: the conjugate models, and UCI Adult by the dense method.

``python benchmarks/suggested.py conjugate`` takes tables from the prior (epsilon 0.1, 5,000 records, guesses
of half, once and twice as many); ``python benchmarks/suggested.py linear --count 500`` does so for the ten
dimensional linear regression at three budgets; ``python benchmarks/suggested.py adult --epsilon 1 --seeds 5``
scores releases of the training rows on the test rows. Results go to ``benchmarks/results/suggested-*.json``.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from _shared import machine, write_result

import nadpvi as na
from nadpvi.baselines import non_private_posterior
from nadpvi.config import DPVIConfig
from nadpvi.coverage import coverage_rmse, coverage_rmse_bound, score_many
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.experiments.blocks import Block
from nadpvi.experiments.configuration import load_experiment
from nadpvi.experiments.methods import METHODS
from nadpvi.experiments.optimum import optimum_sd
from nadpvi.experiments.sources import make_setting
from nadpvi.scores import predict_rows, score_binary

CONJUGATE = ("beta-bernoulli", "dirichlet-categorical", "gamma-exponential")
GUESS = 30_000  # of Adult's records


def conjugate(*, count: int) -> pd.DataFrame:
    """Return calibration and sharpness of the three conjugate models, a row for each guess of N."""
    privacy = na.PrivacyBudget(epsilon=0.1, delta=1e-5)
    rows = []
    for name in CONJUGATE:
        task = load_experiment(name).tasks()[0]
        setting = make_setting(task.settings["source"])
        for factor in (0.5, 1.0, 2.0):
            started = time.process_time()
            config = na.suggest_config(
                setting.model, privacy, schema=setting.schema, num_records=int(5000 * factor)
            )
            took = time.process_time() - started
            given, plain = config.to_dict(), DPVIConfig().to_dict()
            changed = {key: value for key, value in given.items() if value != plain[key]}
            block = Block({**task.settings, "count": count, "draws": 300, "settings": changed}, seed=7)
            draws = METHODS["exact"].draw(block, 5)
            found = score_many(
                draws,
                block.theta,
                seeds=block.seeds,
                num_references=20,
                reference_centre=block.mean_locations,
            )
            rows.append(
                {
                    "model": name,
                    "guess over N": factor,
                    "clip_norm": config.clip_norm,
                    "num_steps": config.num_steps,
                    "sd over optimum": float(np.median(found["sd"] / optimum_sd(block))),
                    "z mean": found["z"].mean(),
                    "z sd": found["z"].std(),
                    "coverage 90": found["covered_90"].mean(),
                    "rmse": coverage_rmse(found["joint"]),
                    "seconds to choose": took,
                }
            )
    return pd.DataFrame(rows)


def linear(*, count: int) -> pd.DataFrame:
    """Return calibration and sds of the ten-dimensional linear regression, a row for each budget."""
    source = load_experiment("linear-regression").tasks()[0].settings
    rows = []
    for epsilon in (0.1, 0.3, 1.0):
        changes = {"epsilon": epsilon, "count": count, "settings": {"suggested": True}, "infer": {}}
        block = Block({**source, **changes}, seed=11)
        drawn = []
        for number, release in enumerate(block.releases):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                posterior = na.infer(release, method="exact", draws=250, seed=number, phi_star_prior="model")
            drawn.append(posterior.theta().reshape(-1, block.theta.shape[1]))
        draws = np.array(drawn)
        scores = score_many(
            draws, block.theta, seeds=block.seeds, num_references=20, reference_centre=block.mean_locations
        )
        spread = draws.std(axis=1)
        found = (block.theta - draws.mean(axis=1)) / spread
        for name, part in (("coefficients", slice(0, -1)), ("log s2", slice(-1, None))):
            rows.append(
                {
                    "epsilon": epsilon,
                    "parameters": name,
                    "z mean": found[:, part].mean(),
                    "rms of z": float(np.sqrt((found[:, part] ** 2).mean())),
                    "coverage 90": float((np.abs(found[:, part]) < 1.645).mean()),
                    "median sd": float(np.median(spread[:, part])),
                    "rmse of all": coverage_rmse(scores["joint"]),
                }
            )
    return pd.DataFrame(rows)


def adult(*, epsilon: float, seeds: int) -> pd.DataFrame:
    """Return scores of each release on the test rows, and z_DP over the coefficients (DESIGN section 9)."""
    model = na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
    schema, train, test = adult_schema(), load_adult("train"), load_adult("test")
    privacy = na.PrivacyBudget(epsilon=epsilon, delta=1e-5)
    reference = non_private_posterior(model, train, schema=schema, seed=0)
    mean, variance = _moments(reference)
    rows = []
    for seed in range(seeds):
        release = na.release(
            model, train, schema=schema, privacy=privacy, num_records=GUESS, insecure_seed=seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", na.InferenceWarning)
            posterior = na.infer(release, seed=seed, draws=300, warmup=400)
        found, spread = _moments(posterior)
        is_wider = spread > variance
        z = (found - mean)[is_wider] / np.sqrt((spread - variance)[is_wider])
        rows.append(
            {
                "seed": seed,
                **score_binary(predict_rows(posterior, test))._asdict(),
                "z_dp": float(np.sqrt(np.mean(z**2))),
                "share wider": float(is_wider.mean()),
                "median sd": float(np.median(np.sqrt(spread))),
            }
        )
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def _moments(posterior: na.Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Return means and variances of the coefficients."""
    draws = posterior.groups["posterior"]["coefficients"].to_numpy()
    draws = draws.reshape(-1, draws.shape[-1])
    return draws.mean(axis=0), draws.var(axis=0)


def main() -> None:
    """Run what is asked for, print it and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("conjugate", "linear", "adult"))
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    result: dict[str, object] = {"machine": machine()}
    if arguments.what == "conjugate":
        table = conjugate(count=arguments.count)
        name = "suggested-conjugate"
        result["rmse bound"] = coverage_rmse_bound(arguments.count)
    elif arguments.what == "linear":
        table = linear(count=arguments.count)
        name = "suggested-linear"
        result["rmse bound"] = coverage_rmse_bound(arguments.count)
    else:
        table = adult(epsilon=arguments.epsilon, seeds=arguments.seeds)
        name = f"suggested-adult-{arguments.epsilon:g}"
        result["mean"] = table.drop(columns="seed").mean().to_dict()
    print(table.to_string(index=False, float_format="{:.4f}".format))
    result["rows"] = table.to_dict(orient="records")
    print("written:", write_result(name, result).name)


if __name__ == "__main__":
    main()
