"""What `nadpvi.plan` expects against what releases with suggested settings then give.

``python benchmarks/plan_accuracy.py`` makes up tables by the schema, as the plan does, with parameters from
the prior; releases each with nothing given but the number of records; infers; and divides the posterior's sds
by the plan's. A ratio of 1 is a plan that came true. Results go to ``benchmarks/results/plan-accuracy.json``.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from _shared import machine, write_result

import nadpvi as na
from nadpvi.encoding import encode_features
from nadpvi.made_up import made_up_table, prior_draws

LARGEST_COUNT = 50
PREDICTORS = {
    "age": {"kind": "real", "lower": 18, "upper": 90},
    "dose": {"kind": "real", "lower": 0, "upper": 10, "feature_range": [-1, 1]},
    "sex": {"kind": "binary", "levels": ["f", "m"]},
}
BINARY = {"kind": "binary", "levels": ["no", "yes"]}
LEVELS = {"kind": "categorical", "levels": ["p", "q", "r"]}
MODELS = {
    "Beta-Bernoulli": (na.models.BernoulliBeta(outcome="y", prior_alpha=10, prior_beta=10), {}, BINARY),
    "Dirichlet-categorical": (na.models.CategoricalDirichlet(outcome="y", concentration=5.0), {}, LEVELS),
    "Gamma-exponential": (
        na.models.ExponentialGamma(outcome="y", prior_shape=8.0, prior_rate=2.0),
        {},
        {"kind": "real", "lower": 0, "upper": 5},
    ),
    "logistic": (na.models.LogisticRegression(outcome="y"), PREDICTORS, BINARY),
    "linear": (
        na.models.LinearRegression(outcome="y", prior_scale=20.0),
        PREDICTORS,
        {"kind": "real", "lower": -10, "upper": 10},
    ),
    "Poisson": (
        na.models.PoissonRegression(outcome="y", prior_sd=0.5),
        PREDICTORS,
        {"kind": "count", "upper": LARGEST_COUNT},
    ),
    "multinomial": (
        na.models.MultinomialLogisticRegression(outcome="y", prior_sd=0.5),
        PREDICTORS,
        LEVELS,
    ),
}


def simulate(model: na.models.Model, schema: na.Schema, *, num_records: int, seed: int) -> pd.DataFrame:
    """Return a table of made-up predictors, with outcomes of parameters from the prior."""
    rng, design = np.random.default_rng([seed, 1]), model.design(schema)
    table = made_up_table(schema, num_records=num_records, rng=rng)
    theta = prior_draws(model, design, num_draws=1, rng=rng)[0]
    y = np.clip(model.simulate(theta, encode_features(design, table).x, rng=rng), *design.outcome_bounds)
    if model.outcome_kind in ("binary", "categorical"):
        return table.assign(y=np.array(design.outcome_levels)[y.astype(int)])
    return table.assign(y=y.astype(int) if model.outcome_kind == "count" else y)


def study(name: str, *, epsilon: float, num_records: int, count: int) -> list[dict[str, object]]:
    """Return a row for each parameter: what was planned, and the medians of what releases gave."""
    model, predictors, outcome = MODELS[name]
    schema = na.Schema.from_dict({"columns": predictors | {"y": outcome}})
    privacy = na.PrivacyBudget(epsilon=epsilon, delta=1e-5)
    config = na.suggest_config(model, privacy, schema=schema, num_records=num_records)
    planned = na.plan(model, privacy, config, schema=schema, num_records=num_records, measure_time=False)
    method = "auto" if config.curvature_share > 0.0 else "exact"
    sds = []
    # The exact method takes a moment.
    for seed in range(count if method == "auto" else 3 * count):
        table = simulate(model, schema, num_records=num_records, seed=seed)
        release = na.release(model, table, schema=schema, privacy=privacy, config=config, insecure_seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", na.InferenceWarning)
            posterior = na.infer(release, seed=seed, draws=300, warmup=400, method=method)
        sds.append(posterior.theta().reshape(-1, len(planned.names)).std(axis=0))
    found = np.median(sds, axis=0)
    return [
        {
            "model": name,
            "epsilon": epsilon,
            "parameter": parameter,
            "method": "dense" if method == "auto" else method,
            "prior sd": planned.prior_sd[k],
            "non-private sd": planned.non_private_sd[k],
            "planned sd": planned.private_sd[k],
            "released sd": found[k],
            "releases": len(sds),
            "ratio": found[k] / planned.private_sd[k],
            "least ratio": min(row[k] for row in sds) / planned.private_sd[k],
            "largest ratio": max(row[k] for row in sds) / planned.private_sd[k],
        }
        for k, parameter in enumerate(planned.names)
    ]


def main() -> None:
    """Run the studies that are asked for, print and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--num-records", type=int, default=5000)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    for name in arguments.models:
        for epsilon in arguments.epsilons:
            rows += study(name, epsilon=epsilon, num_records=arguments.num_records, count=arguments.count)
            print(pd.DataFrame(rows[-12:]).to_string(index=False, float_format="{:.3f}".format), flush=True)
    result = {
        "machine": machine(),
        "count": arguments.count,
        "num_records": arguments.num_records,
        "rows": rows,
    }
    print("written:", write_result("plan-accuracy", result).name)


if __name__ == "__main__":
    main()
