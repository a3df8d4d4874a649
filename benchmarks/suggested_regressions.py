"""Suggested settings on simulated regressions of every kind, true coefficients known.

``python benchmarks/suggested_regressions.py`` draws tables of 10,000 records whose five predictors are skewed
and correlated, and coefficients from the prior; releases them at epsilon 1 with nothing given but their
number; infers; and holds the posterior against the truth. ``--methods auto dense-from-trace exact`` compares
what a release without its curvature, or with a diagonal one, would give. Results go to
``benchmarks/results/suggested-regressions.json``.
"""

import argparse
import dataclasses
import time
import warnings

import numpy as np
import pandas as pd
from _shared import machine, write_result

import nadpvi as na
from nadpvi.encoding import encode_features
from nadpvi.made_up import prior_draws

NUM_RECORDS = 10_000
PRIVACY = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
LARGEST_COUNT = 50
PREDICTORS = {
    "age": {"kind": "real", "lower": 18, "upper": 90},
    "dose": {"kind": "real", "lower": 0, "upper": 10, "feature_range": [-1, 1]},
    "sex": {"kind": "binary", "levels": ["f", "m"]},
    "ward": {"kind": "categorical", "levels": list("abcd")},
    "job": {"kind": "categorical", "levels": list("xyz")},
}
COUNT = {"kind": "count", "upper": LARGEST_COUNT}
BINARY = {"kind": "binary", "levels": ["no", "yes"]}
MODELS = {
    "poisson": (na.models.PoissonRegression(outcome="y", prior_sd=0.5), COUNT),
    "negative binomial": (na.models.NegativeBinomialRegression(outcome="y", prior_sd=0.5), COUNT),
    "multinomial": (
        na.models.MultinomialLogisticRegression(outcome="y", prior_sd=0.5),
        {"kind": "categorical", "levels": ["p", "q", "r"]},
    ),
    "logistic": (na.models.LogisticRegression(outcome="y", prior_sd=0.5), BINARY),
    "probit": (na.models.BinaryRegression(outcome="y", prior_sd=0.5), BINARY),
    "cloglog": (na.models.BinaryRegression(outcome="y", prior_sd=0.5, link="cloglog"), BINARY),
}
METHODS = {
    "auto": {},
    "dense-from-trace": {"method": "dense", "phi_star_prior": "model"},
    "exact": {"method": "exact"},
}


def covariates(rng: np.random.Generator) -> pd.DataFrame:
    """Return predictors whose levels are unequal, whose numbers are off the middle, and which correlate."""
    latent = rng.standard_normal(NUM_RECORDS)
    age = 18 + 72 * rng.beta(2, 3, NUM_RECORDS)
    dose = 0.35 + 0.15 * latent + 0.15 * rng.standard_normal(NUM_RECORDS) + (age - 45) / 200
    ward = rng.choice(4, NUM_RECORDS, p=rng.dirichlet([2.0] * 4))
    ward = np.where((age > 55) & (rng.random(NUM_RECORDS) < 0.5), 0, ward)
    return pd.DataFrame(
        {
            "age": age,
            "dose": 10 * np.clip(dose, 0, 1),
            "sex": np.where(rng.random(NUM_RECORDS) < rng.beta(4, 4), "m", "f"),
            "ward": np.array(list("abcd"))[ward],
            "job": np.array(list("xyz"))[rng.choice(3, NUM_RECORDS, p=rng.dirichlet([2.0] * 3))],
        }
    )


def simulate(model: na.models.Model, schema: na.Schema, *, seed: int) -> tuple[np.ndarray, pd.DataFrame]:
    """Return unconstrained parameters from the prior, and a table; counts hardly ever beyond their bound."""
    rng, design = np.random.default_rng([seed, 1]), model.design(schema)
    table = covariates(rng)
    x = encode_features(design, table).x
    while True:
        theta = prior_draws(model, design, num_draws=1, rng=rng)[0]
        y = model.simulate(theta, x, rng=rng)
        if model.outcome_kind != "count" or (y > LARGEST_COUNT).mean() < 0.01:
            break
    if model.outcome_kind == "count":
        return theta, table.assign(y=np.minimum(y, LARGEST_COUNT).astype(int))
    return theta, table.assign(y=np.array(design.outcome_levels)[y.astype(int)])


def study(name: str, *, methods: list[str], count: int) -> list[dict[str, object]]:
    """Return a row for each method: calibration and sharpness over `count` tables."""
    model, outcome = MODELS[name]
    schema = na.Schema.from_dict({"columns": PREDICTORS | {"y": outcome}})
    started = time.process_time()
    config = na.suggest_config(model, PRIVACY, schema=schema, num_records=NUM_RECORDS)
    to_choose = time.process_time() - started
    z, sds, seconds = ({method: [] for method in methods} for _ in range(3))
    for seed in range(count):
        theta, table = simulate(model, schema, seed=seed)
        release = na.release(model, table, schema=schema, privacy=PRIVACY, config=config, insecure_seed=seed)
        for method in methods:
            started = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", na.InferenceWarning)
                given = _without_curvature(release) if method == "dense-from-trace" else release
                posterior = na.infer(given, seed=seed, draws=300, warmup=400, **METHODS[method])
            draws = posterior.theta().reshape(-1, len(theta))
            z[method].append((theta - draws.mean(axis=0)) / draws.std(axis=0))
            sds[method].append(draws.std(axis=0))
            seconds[method].append(time.process_time() - started)
    return [
        {
            "model": name,
            "method": method,
            "z rms": float(np.sqrt(np.mean(np.square(z[method])))),
            "z mean": float(np.mean(z[method])),
            "coverage 90": float((np.abs(z[method]) < 1.6449).mean()),
            "median sd": float(np.median(sds[method])),
            "clip_norm": config.clip_norm,
            "num_steps": config.num_steps,
            "seconds to choose": to_choose,
            "seconds to infer": float(np.mean(seconds[method])),
        }
        for method in methods
    ]


def _without_curvature(release: na.Release) -> na.Release:
    """Return a release as if its curvature had not been published."""
    guarantee = dataclasses.replace(release.guarantee, curvature_noise_multiplier=None)
    return dataclasses.replace(release, curvature=None, curvature_std=None, guarantee=guarantee)


def main() -> None:
    """Run the studies that are asked for, print and write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=["auto"])
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models:
        rows += study(name, methods=arguments.methods, count=arguments.count)
        print(pd.DataFrame(rows).to_string(index=False, float_format="{:.3f}".format), flush=True)
    result = {"machine": machine(), "count": arguments.count, "num_records": NUM_RECORDS, "rows": rows}
    print("written:", write_result("suggested-regressions", result).name)


if __name__ == "__main__":
    main()
