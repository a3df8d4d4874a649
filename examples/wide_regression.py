"""Wide regression: many correlated predictors, and why their curvature should be a matrix.

Both methods infer from the same release. The diagonal one takes what coefficients pull at each other for
information and is overconfident; the dense one is not (docs/dense.md). Run with
``python examples/wide_regression.py``; ``--predictors 5 --records 5000`` makes it quick.
"""

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

import nadpvi as na


class MadeUp(NamedTuple):
    """A table with a binary outcome, and the coefficients behind it, the intercept first."""

    table: pd.DataFrame
    truth: np.ndarray


def make_table(num_records: int, num_predictors: int) -> MadeUp:
    """Return predictors in [0, 1] with a common part, so that any two of them correlate at one half."""
    rng = np.random.default_rng(4)
    shared = rng.random((num_records, 1))
    predictors = 0.5 * shared + 0.5 * rng.random((num_records, num_predictors))
    truth = rng.normal(size=num_predictors + 1)
    chance = 1 / (1 + np.exp(-truth[0] - predictors @ truth[1:]))
    table = pd.DataFrame(predictors, columns=[f"x{place}" for place in range(num_predictors)])
    table["y"] = np.where(rng.random(num_records) < chance, "yes", "no")
    return MadeUp(table, truth)


def main(arguments: Sequence[str] | None = None) -> dict[str, na.Posterior]:
    """Release once; infer with a matrix and with a diagonal; count how many intervals hold the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predictors", type=int, default=30)
    parser.add_argument("--records", type=int, default=20_000)
    given = parser.parse_args(arguments)

    made = make_table(given.records, given.predictors)
    numbers = {name: {"kind": "real", "lower": 0, "upper": 1} for name in made.table.columns.drop("y")}
    schema = na.Schema.from_dict({"columns": {**numbers, "y": {"kind": "binary", "levels": ["no", "yes"]}}})
    release = na.release(
        na.models.LogisticRegression(outcome="y"),
        made.table,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        num_records=given.records,
    )
    posteriors = {
        "dense": na.infer(release, method="dense", phi_star_prior="model", warmup=400, draws=300, seed=1),
        "exact": na.infer(release, method="exact", seed=1),
    }
    print(release.guarantee.sentence(), end="\n\n")
    for method, posterior in posteriors.items():
        found = posterior.summary()
        z = (made.truth - found["mean"]) / found["sd"]
        held = ((found["5%"] <= made.truth) & (made.truth <= found["95%"])).mean()
        print(
            f"{method}: 90 % intervals hold {held:.0%} of {len(z)} coefficients; "
            f"root mean square of z {np.sqrt((z**2).mean()):.2f}; median sd {found['sd'].median():.3f}"
        )
    return posteriors


if __name__ == "__main__":
    main()
