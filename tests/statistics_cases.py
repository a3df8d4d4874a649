"""Families of noisy statistics with what simulates them, and their exact posteriors by brute force."""

import numpy as np
from scipy.special import betaln, gammaln
from scipy.stats import chi2

import nadpvi as na
from nadpvi.baselines.sufficient_statistics.mechanism import make_statistics_mechanism
from nadpvi.baselines.sufficient_statistics.release import make_statistics_family
from nadpvi.models import BernoulliBeta, CategoricalDirichlet, ExponentialGamma, PoissonGamma

ADD, REPLACE = "add_or_remove_one", "replace_one"
COLUMNS = {
    "coin": {"kind": "binary", "levels": ["no", "yes"]},
    "die": {"kind": "categorical", "levels": ["a", "b", "c"]},
    "wait": {"kind": "real", "lower": 0, "upper": 3},
    "visits": {"kind": "count", "upper": 20},
}
SCHEMA = na.Schema.from_dict({"columns": COLUMNS})
# A bound that no wait reaches.
WIDE = na.Schema.from_dict({"columns": COLUMNS | {"wait": {"kind": "real", "lower": 0, "upper": 12}}})
MODELS = {
    "coin": BernoulliBeta(outcome="coin", prior_alpha=10.0, prior_beta=10.0),
    "die": CategoricalDirichlet(outcome="die", concentration=5.0),
    "wait": ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0),
    "visits": PoissonGamma(outcome="visits", prior_shape=8.0, prior_rate=2.0),
}


def make_case(name, *, relation, noise, epsilon=0.3, beyond="clamp", schema=SCHEMA):
    """Return the mechanism of one of `MODELS`."""
    family = make_statistics_family(MODELS[name], schema, neighbouring_relation=relation, beyond=beyond)
    privacy = na.PrivacyBudget(epsilon=epsilon, delta=1e-5, neighbouring_relation=relation)
    return make_statistics_mechanism(family, privacy=privacy, noise=noise)


def log_noise(mechanism, value):
    """Return the log density of the noise."""
    scaled = value / mechanism.noise_scale
    return -np.abs(scaled) if mechanism.noise == "laplace" else -0.5 * scaled**2


def mixed(log_weight, mean, variance):
    """Return mean and sd of a mixture."""
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    centre = (weight * mean).sum()
    return centre, np.sqrt((weight * (variance + (mean - centre) ** 2)).sum())


def exact_coin(mechanism, noisy, *, totals):
    """Return mean and sd of the probability: a mixture of betas over every possible table of counts."""
    n, ones = np.meshgrid(totals, np.arange(totals.max() + 1.0), indexing="ij")
    keep = ones <= n
    n, ones = n[keep], ones[keep]
    a, b = 10.0 + ones, 10.0 + n - ones
    log_weight = betaln(a, b) - betaln(10, 10) + gammaln(n + 1) - gammaln(ones + 1) - gammaln(n - ones + 1)
    log_weight += log_noise(mechanism, noisy[0] - ones)
    if len(noisy) > 1:
        log_weight += log_noise(mechanism, noisy[1] - (n - ones))
    return mixed(log_weight, a / (a + b), a * b / (a + b) ** 2 / (a + b + 1))


def exact_die(mechanism, noisy, *, totals):
    """Return mean and sd of the first probability, a mixture of Dirichlets."""
    total = totals[0]
    first, second = np.meshgrid(np.arange(total + 1.0), np.arange(total + 1.0), indexing="ij")
    keep = first + second <= total
    counts = np.stack([first[keep], second[keep], total - first[keep] - second[keep]])
    log_weight = (gammaln(5.0 + counts) - gammaln(counts + 1.0)).sum(axis=0)
    log_weight += log_noise(mechanism, noisy[:, None] - counts).sum(axis=0)
    a, b = 5.0 + counts[0], 10.0 + total - counts[0]
    return mixed(log_weight, a / (a + b), a * b / (a + b) ** 2 / (a + b + 1))


def exact_wait(mechanism, noisy, *, totals):
    """Return mean and sd of the rate, a mixture of gammas; no wait may reach the bound."""
    bound = mechanism.family.bound
    n, total = np.meshgrid(totals, np.linspace(1e-3, 2.5 * totals.max() / 4.0, 6000), indexing="ij")
    log_weight = (n - 1.0) * np.log(total) - gammaln(n) + gammaln(8.0 + n) - (8.0 + n) * np.log(2.0 + total)
    log_weight += log_noise(mechanism, noisy[0] - total / bound)
    if len(noisy) > 1:
        log_weight += log_noise(mechanism, noisy[1] - (n - total / bound))
    shape, rate = 8.0 + n, 2.0 + total
    return mixed(log_weight, shape / rate, shape / rate**2)


def exact_visits(mechanism, noisy, *, totals):
    """Return mean and sd of the rate, a mixture of gammas; no count may reach the bound."""
    bound = mechanism.family.bound
    n, total = np.meshgrid(totals, np.arange(20.0 * totals.max()), indexing="ij")
    log_weight = gammaln(8.0 + total) - (8.0 + total) * np.log(2.0 + n) + total * np.log(n)
    log_weight -= gammaln(total + 1.0)
    log_weight += log_noise(mechanism, noisy[0] - total / bound)
    if len(noisy) > 1:
        log_weight += log_noise(mechanism, noisy[1] - (n - total / bound))
    shape, rate = 8.0 + total, 2.0 + n
    return mixed(log_weight, shape / rate, shape / rate**2)


EXACT = {"coin": exact_coin, "die": exact_die, "wait": exact_wait, "visits": exact_visits}


def uniform_p_value(ranks, *, num_draws, num_bins=10):
    """Return the chi-square p-value of uniform ranks; `num_draws` is one less than a multiple of the bins."""
    counts = np.bincount(ranks * num_bins // (num_draws + 1), minlength=num_bins)
    expected = ranks.size / num_bins
    return float(chi2.sf(np.square(counts - expected).sum() / expected, num_bins - 1))


def narrowed(draws, *, factor):
    """Return draws (R, S, K) with their sd about each replicate's mean multiplied."""
    centre = draws.mean(axis=1, keepdims=True)
    return centre + factor * (draws - centre)
