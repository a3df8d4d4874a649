"""Disease counts: shares of diagnoses from a frequency table, one row a diagnosis, with a count column.

The table stands for as many records as its counts add up to. Each of them enters a step by itself, so that
the guarantee is for one patient and not for one row. Run with ``python examples/disease_counts.py``.
"""

import argparse
from collections.abc import Sequence

import numpy as np
import pandas as pd

import nadpvi as na

DIAGNOSES = ("none", "respiratory", "cardiac", "metabolic", "other")
TRUTH = (0.55, 0.2, 0.1, 0.1, 0.05)


def make_table(size: int) -> pd.DataFrame:
    """Return how many of `size` made-up patients have each diagnosis."""
    return pd.DataFrame({"diagnosis": DIAGNOSES, "count": np.random.default_rng(2).multinomial(size, TRUTH)})


def to_records(table: pd.DataFrame) -> na.Records:
    """Return the encoded rows: no features, the level's code as outcome, and the counts."""
    codes = table["diagnosis"].map({name: code for code, name in enumerate(DIAGNOSES)})
    return na.Records(
        x=np.empty((len(table), 0)), y=codes.to_numpy(dtype=float), counts=table["count"].to_numpy()
    )


def main(arguments: Sequence[str] | None = None) -> na.Posterior:
    """Release the counts, and infer the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=50_000)
    parser.add_argument("--epsilon", type=float, default=0.3)
    given = parser.parse_args(arguments)

    table = make_table(given.patients)
    schema = na.Schema.from_dict(
        {"columns": {"diagnosis": {"kind": "categorical", "levels": list(DIAGNOSES)}}}
    )
    release = na.release(
        na.models.CategoricalDirichlet(outcome="diagnosis"),
        to_records(table),
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=given.epsilon, delta=1e-6),
        num_records=50_000,  # a public guess
    )
    posterior = na.infer(release, method="exact", seed=1)
    print(release.guarantee.sentence(), end="\n\n")
    print(posterior.summary().round(4).assign(truth=TRUTH))
    return posterior


if __name__ == "__main__":
    main()
