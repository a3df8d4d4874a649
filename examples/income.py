"""Income on UCI Adult: spend a budget once, then look at the posterior as often as you like.

Run with ``python examples/income.py``; ``--steps 200`` makes it quick.
"""

import argparse
import tempfile
from pathlib import Path

import nadpvi as na
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult


def main() -> None:
    """Release, save, load, infer, predict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    arguments = parser.parse_args()

    # The curator's side: the only place where records are seen.
    release = na.release(
        na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS),
        load_adult("train"),
        schema=adult_schema(),
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=arguments.steps),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = release.save(Path(folder) / "release.nc")

        # The analyst's side: the file and nothing else.
        posterior = na.infer(na.Release.load(path), seed=1)
    assert posterior.guarantee is not None
    print(posterior.guarantee.sentence())
    print(posterior.summary().round(3).head(8))
    print("P(income > 50K) of the first test rows:", posterior.predict(load_adult("test").head(5)).round(3))


if __name__ == "__main__":
    main()
