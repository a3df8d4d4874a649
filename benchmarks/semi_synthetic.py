"""Coverage where the truth is known: Adult's covariates, coefficients from the prior, simulated outcomes.

Each replicate draws theta ~ N(0, I), outcomes from the model, a simulated release and its posterior, and asks
whether each coefficient's 90 % interval holds the truth. The result goes to
``benchmarks/results/semi-synthetic.json``.
"""

import argparse

import numpy as np
import pandas as pd
from _shared import machine, write_result

import nadpvi as na
from nadpvi.baselines import last_iterate_posterior, non_private_posterior
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.demo import DEMO_CONFIG
from nadpvi.encoding import encode_features


def replicate(seed: int) -> list[dict[str, object]]:
    """Return coverage, z-scores and widths of one simulated table under four posteriors."""
    rng = np.random.default_rng(seed)
    model = na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
    rows = load_adult("train")
    x = encode_features(model.design(adult_schema()), rows).x
    theta = rng.standard_normal(x.shape[1])
    rich = rng.random(len(x)) < 1 / (1 + np.exp(-x @ theta))
    rows["income"] = np.where(rich, ">50K", "<=50K")
    release = na.release(
        model,
        rows,
        schema=adult_schema(),
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        config=DEMO_CONFIG,
        insecure_seed=seed,
    )
    posteriors = {
        "noise-aware, trace prior": na.infer(release, seed=seed),
        "noise-aware, model prior": na.infer(release, seed=seed, phi_star_prior="model"),
        "last iterate": last_iterate_posterior(release, seed=seed),
        "non-private": non_private_posterior(model, rows, schema=adult_schema(), seed=seed),
    }
    results = []
    for name, posterior in posteriors.items():
        table = posterior.summary()
        inside = (table["5%"].to_numpy() < theta) & (theta < table["95%"].to_numpy())
        z = (table["mean"].to_numpy() - theta) / table["sd"].to_numpy()
        results.append(
            {
                "posterior": name,
                "seed": seed,
                "coverage of 90 % intervals": inside.mean(),
                "mean square z": np.mean(z**2),
                "median sd": float(table["sd"].median()),
            }
        )
    return results


def main() -> None:
    """Run all replicates, print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=6)
    arguments = parser.parse_args()
    rows = [row for seed in range(arguments.replicates) for row in replicate(seed)]
    means = pd.DataFrame(rows).drop(columns="seed").groupby("posterior").mean()
    means["rms of z"] = np.sqrt(means.pop("mean square z"))
    print(means.to_string(float_format="{:.3f}".format))
    result = {
        "machine": machine(),
        "config": DEMO_CONFIG.to_dict(),
        "replicates": arguments.replicates,
        "mean": means.to_dict(orient="index"),
    }
    print("written:", write_result("semi-synthetic", result).name)


if __name__ == "__main__":
    main()
