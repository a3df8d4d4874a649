"""A coin: how often it falls on heads, from tosses that nobody may see.

The smallest model there is. Run with ``python examples/coin.py``; it takes a few seconds.
"""

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd

import nadpvi as na
from nadpvi.baselines import non_private_posterior

TRUTH = 0.3


def make_tosses(size: int) -> pd.DataFrame:
    """Return tosses of a coin that falls on heads three times in ten."""
    heads = np.random.default_rng(1).random(size) < TRUTH
    return pd.DataFrame({"side": np.where(heads, "heads", "tails")})


def main(arguments: Sequence[str] | None = None) -> na.Posterior:
    """Release, infer, and compare with what only the curator can know."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tosses", type=int, default=5000)
    parser.add_argument("--epsilon", type=float, default=0.1)
    given = parser.parse_args(arguments)

    tosses = make_tosses(given.tosses)
    schema = na.Schema.from_dict({"columns": {"side": {"kind": "binary", "levels": ["tails", "heads"]}}})
    model = na.models.BernoulliBeta(outcome="side", prior_alpha=10.0, prior_beta=10.0)
    release = na.release(
        model,
        tosses,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=given.epsilon, delta=1e-5),
        num_records=given.tosses,  # that there are so many tosses is no secret here
    )
    posterior = na.infer(release, method="exact", seed=1)
    print(release.guarantee.sentence(), end="\n\n")
    print("noise-aware:", posterior.summary().round(4), sep="\n", end="\n\n")
    exact = non_private_posterior(model, tosses, schema=schema, seed=1)
    print("the records themselves:", exact.summary().round(4), sep="\n")
    return posterior


if __name__ == "__main__":
    main()
