"""Scores on UCI Adult over several seeds: noise-aware posterior, last iterate, non-private posterior.

Simulated releases (``insecure_seed`` 0, 1, ...), so that the table can be made again. Run with
``python benchmarks/adult.py``, and ``--settings hand`` or ``published`` for others than the demo's; the
result goes to ``benchmarks/results/adult-suggested.json``, ``adult.json`` or ``adult-published.json``.
"""

import argparse

import pandas as pd
from _shared import machine, write_result

import nadpvi as na
from nadpvi.baselines import last_iterate_posterior, non_private_posterior
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.demo import DEMO_NUM_RECORDS
from nadpvi.scores import predict_rows, score_binary

# What the demo had before settings were suggested: the schema's own clip norm, and a step size that was
# chosen on held-out training rows and on other seeds (choose_step.py).
BY_HAND = na.DPVIConfig(num_steps=1000, preconditioner_u=50.0, learning_rate_constant=12.0)
RESULTS = {"suggested": "adult-suggested", "hand": "adult", "published": "adult-published"}


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
        # The demo's own draws where the dense method runs; the others' are infer's.
        "noise-aware": na.infer(
            release, seed=seed, **({} if release.curvature is None else {"draws": 500, "warmup": 500})
        ),
        "last iterate": last_iterate_posterior(release, seed=seed),
    }
    return {
        name: score_binary(predict_rows(posterior, test))._asdict() for name, posterior in posteriors.items()
    }


def choose(model: na.models.Model, settings: str, *, epsilon: float) -> na.DPVIConfig:
    """Return the settings of that name."""
    if settings == "hand":
        return BY_HAND
    if settings == "published":
        return na.published_config(model, schema=adult_schema())
    privacy = na.PrivacyBudget(epsilon=epsilon, delta=1e-5)
    return na.suggest_config(model, privacy, schema=adult_schema(), num_records=DEMO_NUM_RECORDS)


def main() -> None:
    """Run all seeds, print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--settings", choices=list(RESULTS), default="suggested")
    arguments = parser.parse_args()
    model = na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
    config = choose(model, arguments.settings, epsilon=arguments.epsilon)
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
    name = RESULTS[arguments.settings]
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
