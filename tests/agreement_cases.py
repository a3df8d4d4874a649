"""Simulated releases to compare methods on: every conjugate model, a linear regression, UCI Adult."""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from conjugate_cases import EXAMPLES, SCHEMA

import nadpvi as na
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult

BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
# Clip norm and beta_u; next to no gradient is cut.
CONJUGATE = {
    "exponential_gamma": (10.0, 100.0),
    "bernoulli_beta": (1.0, 60.0),
    "categorical_dirichlet": (math.sqrt(2.0), 100.0),
    "poisson_gamma": (10.0, 100.0),
    "normal": (6.0, 100.0),
}
CASES = (*CONJUGATE, "linear_regression", "adult")


def conjugate_release(name, *, num_steps=1000, num_records=5000, seed=17):
    """Return a simulated release of one of the conjugate examples."""
    clip_norm, preconditioner_u = CONJUGATE[name]
    config = na.DPVIConfig(
        num_steps=num_steps,
        sampling_rate=0.1,
        clip_norm=clip_norm,
        preconditioner_u=preconditioner_u,
        learning_rate_constant=1.0,
        initial_u=-4.0,
    )
    seeds = na.replicate_seeds(seed, num_replicates=1)
    tables = na.simulate_tables(EXAMPLES[name], schema=SCHEMA, num_records=num_records, seeds=seeds)
    traces = na.simulate_releases(
        EXAMPLES[name], tables.outcomes, schema=SCHEMA, privacy=BUDGET, seeds=seeds, config=config
    )
    return traces.release(0)


def linear_release(*, num_steps=1000, num_records=20_000, learning_rate_constant=2.0, seed=17):
    """Return a simulated release of a regression on ten uniform predictors: K = 12, D = 24."""
    rng = np.random.default_rng(seed)
    names = [f"x{i}" for i in range(10)]
    x = rng.random((num_records, 10))
    weights = rng.standard_normal(11)
    y = weights[0] + x @ weights[1:] + rng.standard_normal(num_records)
    columns = {name: {"kind": "real", "lower": 0.0, "upper": 1.0} for name in names}
    schema = na.Schema.from_dict(
        {"columns": {**columns, "y": {"kind": "real", "lower": -20.0, "upper": 20.0}}}
    )
    config = na.DPVIConfig(
        num_steps=num_steps,
        sampling_rate=0.1,
        clip_norm=10.0,
        preconditioner_u=400.0,
        learning_rate_constant=learning_rate_constant,
        initial_u=-4.0,
    )
    return na.release(
        na.models.LinearRegression(outcome="y", prior_scale=20.0),
        pd.DataFrame({**dict(zip(names, x.T, strict=True)), "y": y}),
        schema=schema,
        privacy=BUDGET,
        config=config,
        insecure_seed=seed,
    )


def adult_release(*, seed=17):
    """Return a simulated release of UCI Adult, its settings chosen by hand: 1,000 steps, D = 114."""
    return na.release(
        na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS),
        load_adult("train"),
        schema=adult_schema(),
        privacy=BUDGET,
        config=na.DPVIConfig(num_steps=1000, preconditioner_u=50.0, learning_rate_constant=12.0),
        insecure_seed=seed,
    )


def make_case(name):
    """Return the release of a case."""
    if name in CONJUGATE:
        return conjugate_release(name)
    return linear_release() if name == "linear_regression" else adult_release()


class Comparison(NamedTuple):
    """Draws against the exact marginal of one variable; arrays of shape (D,).

    Attributes
    ----------
    gap, gap_error : ndarray
        Difference of the means in exact sds, and its standard error.
    ratio, ratio_error : ndarray
        Sd over the exact sd, and its standard error.
    share, share_error : ndarray, shape (Q, D)
        Share of the draws below the exact quantiles, less their probabilities, and its standard error.
    """

    gap: np.ndarray
    gap_error: np.ndarray
    ratio: np.ndarray
    ratio_error: np.ndarray
    share: np.ndarray
    share_error: np.ndarray


def batch_error(values, *, batches=40):
    """Return the standard error of the mean of draws (chain, draw, D), from batches of each chain."""
    chains, length, size = values.shape
    kept = values[:, : length // batches * batches].reshape(chains * batches, -1, size)
    return kept.mean(axis=1).std(axis=0, ddof=1) / math.sqrt(chains * batches)


def compare(fitted, found):
    """Return a `Comparison` for each variable of draws with the exact marginals."""
    result = {}
    for name in ("phi_star", "curvature") if found.tau is None else ("phi_star", "curvature", "tau"):
        table = getattr(found, name)
        z = (getattr(fitted, name) - table.mean) / table.sd
        square = np.square(z)
        below = [getattr(fitted, name) < quantile for quantile in table.quantiles]
        result[name] = Comparison(
            gap=z.mean(axis=(0, 1)),
            gap_error=batch_error(z),
            ratio=z.std(axis=(0, 1)),
            ratio_error=0.5 * batch_error(square),
            share=np.array([b.mean(axis=(0, 1)) for b in below]) - found.probabilities[:, None],
            share_error=np.array([batch_error(b.astype(float)) for b in below]),
        )
    return result


def kurtosis(values):
    """Return the kurtosis of independent draws (chain, draw, D): 3 for a normal distribution."""
    away = values - values.mean(axis=(0, 1))
    return (away**4).mean(axis=(0, 1)) / np.square(np.square(away).mean(axis=(0, 1)))
