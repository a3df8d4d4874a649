"""Tables with Adult's covariates and known coefficients, and simulated releases of them."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm

import nadpvi as na
from nadpvi.containers.release import Release
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.encoding import encode_features

MODEL = na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
CONFIG = na.DPVIConfig(num_steps=1000, sampling_rate=0.1, clip_norm=3.5, preconditioner_u=50.0)
EPSILON, DELTA, BURN_IN = 1.0, 1e-5, 0.2
# The logistic weight is at most 1/4, and the intercept and eleven predictors add at most 1 each to |x|^2.
SENSITIVITY = 0.25 * 12
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(15)


class Table(NamedTuple):
    """One simulated table with its truth; `hessian` is the mean-field one, prior's precision included."""

    seed: int
    theta: np.ndarray
    x: np.ndarray
    rows: pd.DataFrame
    hessian: np.ndarray


def weight_matrix(x: np.ndarray, mu: np.ndarray, sd: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return X' diag(E w) X and E[chance], over theta ~ N(mu, diag(sd^2)); no weight is above 1/4."""
    spread = np.sqrt(np.square(x) @ np.square(sd))
    chance = expit((x @ mu)[:, None] + spread[:, None] * NODES)
    weight = (chance * (1.0 - chance)) @ WEIGHTS / WEIGHTS.sum()
    return x.T @ (x * weight[:, None]), chance @ WEIGHTS / WEIGHTS.sum()


def mean_field_hessian(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the negative ELBO's Hessian in the locations at the mean-field optimum, by Newton steps."""
    identity = np.eye(x.shape[1])
    mu, hessian = np.zeros(x.shape[1]), 0.25 * x.T @ x + identity
    for _ in range(60):
        records, chance = weight_matrix(x, mu, 1.0 / np.sqrt(np.diag(hessian)))
        hessian = records + identity
        step = np.linalg.solve(hessian, x.T @ (y - chance) - mu)
        mu = mu + step
        if np.abs(step).max() < 1e-9:
            return hessian
    raise RuntimeError("Newton's method did not converge")


def make_table(seed: int) -> Table:
    """Return the table of one replicate."""
    rng = np.random.default_rng(seed)
    rows = load_adult("train")
    x = encode_features(MODEL.design(adult_schema()), rows).x
    theta = rng.standard_normal(x.shape[1])
    rich = rng.random(len(x)) < expit(x @ theta)
    rows["income"] = np.where(rich, ">50K", "<=50K")
    return Table(seed, theta, x, rows, mean_field_hessian(x, rich))


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta at epsilon of mu-Gaussian differential privacy."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def make_release(table: Table, *, share: float, cache: Path) -> Release:
    """Return a simulated release that spends all but `share` of the budget on its trace, the rest on X'WX."""
    path = cache / f"release-{table.seed}-{share:g}.nc"
    if path.exists():
        return Release.load(path)
    mu = brentq(lambda m: gaussian_delta(EPSILON, m) - DELTA, 0.01, 5.0)
    left = mu * np.sqrt(1.0 - share)
    epsilon = brentq(lambda e: gaussian_delta(e, left) - DELTA, 1e-3, 5.0)
    release = na.release(
        MODEL,
        table.rows,
        schema=adult_schema(),
        privacy=na.PrivacyBudget(epsilon=epsilon, delta=DELTA),
        config=CONFIG,
        insecure_seed=table.seed,
    )
    if share:
        size = table.x.shape[1]
        phi_bar = release.phi[int(BURN_IN * release.num_steps) :].mean(axis=0)
        exact, _ = weight_matrix(table.x, phi_bar[:size], np.logaddexp(0.0, phi_bar[size:]))
        std = SENSITIVITY / (mu * np.sqrt(share))
        noise = np.triu(std * np.random.default_rng([table.seed, 1]).standard_normal(exact.shape))
        noisy = exact + noise + np.triu(noise, 1).T
        release = dataclasses.replace(release, curvature=noisy, curvature_std=np.full(exact.shape, std))
    release.save(path, overwrite=True)
    return release
