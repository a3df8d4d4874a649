"""Scores on UCI Adult over several seeds: noise-aware posterior, last iterate, non-private posterior.

Simulated releases (``insecure_seed`` 0, 1, ...), so that the table can be made again. Run with
``python benchmarks/adult.py``; the result goes to ``benchmarks/results/adult.json``.
"""

import argparse

import pandas as pd
from _shared import machine, write_result

import nadpvi as na
from nadpvi.baselines import last_iterate_posterior, non_private_posterior
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.demo import DEMO_CONFIG
from nadpvi.scores import predict_rows, score_binary


def score_seed(seed: int, *, config: na.DPVIConfig, epsilon: float) -> dict[str, dict[str, float]]:
    """Return the scores of the noise-aware posterior and of the last iterate of one simulated release."""
    model = na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
    release = na.release(
        model,
        load_adult("train"),
        schema=adult_schema(),
        privacy=na.PrivacyBudget(epsilon=epsilon, delta=1e-5),
        config=config,
        insecure_seed=seed,
    )
    test = load_adult("test")
    posteriors = {
        "noise-aware": na.infer(release, seed=seed),
        "last iterate": last_iterate_posterior(release, seed=seed),
    }
    return {
        name: score_binary(predict_rows(posterior, test))._asdict() for name, posterior in posteriors.items()
    }


def main() -> None:
    """Run all seeds, print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--published", action="store_true", help="the paper's settings")
    arguments = parser.parse_args()
    model = na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
    published = na.published_config(model, schema=adult_schema())
    config = published if arguments.published else DEMO_CONFIG
    rows = []
    for seed in range(arguments.seeds):
        for name, scores in score_seed(seed, config=config, epsilon=arguments.epsilon).items():
            rows.append({"seed": seed, "posterior": name, **scores})
    table = pd.DataFrame(rows)
    reference = non_private_posterior(model, load_adult("train"), schema=adult_schema(), seed=0)
    limit = score_binary(predict_rows(reference, load_adult("test")))._asdict()
    means = table.drop(columns="seed").groupby("posterior").mean()
    by_seed = table.pivot(index="seed", columns="posterior")
    difference = by_seed.xs("noise-aware", axis=1, level=1) - by_seed.xs("last iterate", axis=1, level=1)
    paired = {"mean": difference.mean(), "standard error": difference.std() / len(difference) ** 0.5}
    means.loc["non-private"] = limit
    print(table.to_string(index=False, float_format="{:.4f}".format))
    print(means.to_string(float_format="{:.4f}".format))
    print("noise-aware minus last iterate, paired by seed")
    print(pd.DataFrame(paired).T.to_string(float_format="{:.4f}".format))
    name = "adult-published" if arguments.published else "adult"
    result = {
        "machine": machine(),
        "config": config.to_dict(),
        "epsilon": arguments.epsilon,
        "delta": 1e-5,
        "by seed": rows,
        "mean": means.to_dict(orient="index"),
        "noise-aware minus last iterate": pd.DataFrame(paired).T.to_dict(orient="index"),
    }
    print("written:", write_result(name, result).name)


if __name__ == "__main__":
    main()
