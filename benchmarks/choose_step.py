"""Choose the step size of settings by hand on rows and seeds that its reported scores never see.

Fits 80 % of UCI Adult's *training* rows (simulated releases, seeds 100, 101, ...) and scores the other 20 %.
The result goes to ``benchmarks/results/choose-step.json``.
"""

import argparse

import numpy as np
import pandas as pd
from _shared import machine, write_result

import nadpvi as na
from nadpvi.baselines import last_iterate_posterior
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.scores import predict_rows, score_binary


def main() -> None:
    """Score every candidate on every seed, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--constants", type=float, nargs="+", default=[5.0, 7.55, 11.0, 15.0])
    arguments = parser.parse_args()
    rows = load_adult("train")
    held_out = np.random.default_rng(0).random(len(rows)) < 0.2
    model = na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
    results = []
    for constant in arguments.constants:
        config = na.DPVIConfig(num_steps=1000, preconditioner_u=50.0, learning_rate_constant=constant)
        for seed in range(100, 100 + arguments.seeds):
            release = na.release(
                model,
                rows[~held_out],
                schema=adult_schema(),
                privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
                config=config,
                insecure_seed=seed,
            )
            pair = {
                "noise-aware": na.infer(release, seed=seed, draws=500, warmup=500),
                "last iterate": last_iterate_posterior(release, seed=seed, draws=2000),
            }
            for name, posterior in pair.items():
                scores = score_binary(predict_rows(posterior, rows[held_out]))._asdict()
                results.append({"constant": constant, "posterior": name, "seed": seed, **scores})
    means = pd.DataFrame(results).drop(columns="seed").groupby(["constant", "posterior"]).mean()
    print(means.to_string(float_format="{:.4f}".format))
    table = means.reset_index().to_dict(orient="records")
    print("written:", write_result("choose-step", {"machine": machine(), "mean": table}).name)


if __name__ == "__main__":
    main()
