"""Income on UCI Adult: spend a budget once, then look at the posterior as often as you like.

Run with ``python examples/income.py``; it takes a minute or two, with ``--predictors 2`` some seconds.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nadpvi as na
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult


def main(arguments: Sequence[str] | None = None) -> na.Posterior:
    """Release, save, load, infer, predict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predictors", type=int, default=len(ADULT_PREDICTORS))
    given = parser.parse_args(arguments)

    # The curator's side: the only place where records are seen.
    release = na.release(
        na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS[: given.predictors]),
        load_adult("train"),
        schema=adult_schema(),
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        num_records=30_000,  # a public guess, for which all settings are chosen
    )
    with tempfile.TemporaryDirectory() as folder:
        path = release.save(Path(folder) / "release.nc")

        # The analyst's side: the file and nothing else.
        posterior = na.infer(na.Release.load(path), warmup=400, draws=300, seed=1)
    assert posterior.guarantee is not None
    print(posterior.guarantee.sentence())
    print(posterior.summary().round(3).head(8))
    print("P(income > 50K) of the first test rows:", posterior.predict(load_adult("test").head(5)).round(3))
    return posterior


if __name__ == "__main__":
    main()
