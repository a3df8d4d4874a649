"""A model of your own: Weibull times until a part fails, in a few functions.

Run with ``python examples/custom_model.py``; it takes about ten seconds.
"""

import argparse
from collections.abc import Sequence

import autograd.numpy as anp
import numpy as np
import pandas as pd

import nadpvi as na

TRUTH = {"shape": 1.8, "scale": 3.0}


def make_parts(size: int) -> pd.DataFrame:
    """Return the years until each of some made-up parts failed."""
    years = TRUTH["scale"] * np.random.default_rng(3).weibull(TRUTH["shape"], size)
    return pd.DataFrame({"years": years})


def make_model() -> na.models.CustomModel:
    """Return the model. Its functions hold nothing that is private."""
    return na.models.CustomModel(
        name="weibull",
        outcome="years",
        outcome_kind="real",
        intercept=False,
        parameters=[na.models.Parameter(name=name, support="positive") for name in ("shape", "scale")],
        # Gamma(4, 2) and Gamma(3, 1), up to constants: both around 2 or 3.
        log_prior=lambda p: 3 * anp.log(p["shape"]) - 2 * p["shape"] + 2 * anp.log(p["scale"]) - p["scale"],
        log_likelihood=lambda p, x, y: (
            anp.log(p["shape"] / p["scale"])
            + (p["shape"] - 1) * anp.log(y / p["scale"])
            - (y / p["scale"]) ** p["shape"]
        ),
        simulate=lambda p, x, rng: p["scale"] * rng.weibull(p["shape"], (len(p["shape"]), len(x))),
    )


def main(arguments: Sequence[str] | None = None) -> na.Posterior:
    """Release and infer. The gradient has no known bound; records from `simulate` tell a clip norm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, default=20_000)
    given = parser.parse_args(arguments)

    # Times beyond 0.1 and 15 years are held there; the log likelihood is finite at both.
    schema = na.Schema.from_dict({"columns": {"years": {"kind": "real", "lower": 0.1, "upper": 15.0}}})
    release = na.release(
        make_model(),
        make_parts(given.parts),
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        num_records=given.parts,  # public here
    )
    posterior = na.infer(release, method="exact", seed=1)
    print(release.guarantee.sentence(), end="\n\n")
    print(posterior.summary().round(3).assign(truth=list(TRUTH.values())))
    return posterior


if __name__ == "__main__":
    main()
