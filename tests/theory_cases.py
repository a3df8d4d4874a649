"""Simulated runs whose quadratic form is known: optimum, curvature and noise, none by the engine's own code.

The loss is the negative ELBO by Gauss-Hermite quadrature, differentiated by autograd; the engine averages
random draws of closed-form gradients.
"""

import functools
from typing import NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd import grad, hessian, jacobian
from scipy.special import expit

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.models import BernoulliBeta, CategoricalDirichlet, PoissonGamma
from nadpvi.models.base import RecordBatch
from nadpvi.private.replicates import replicate_seeds, simulate_releases
from nadpvi.theory import subsampled_sum

SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "heads": {"kind": "binary", "levels": ["no", "yes"]},
            "blood": {"kind": "categorical", "levels": ["0", "A", "B", "AB"]},
            "visits": {"kind": "count", "upper": 40},
        }
    }
)


class Example(NamedTuple):
    """A model and a table of few distinct outcomes."""

    model: object
    values: np.ndarray
    counts: np.ndarray
    clip_norm: float  # above every gradient, so that none is clipped

    @property
    def table(self):
        return np.repeat(self.values, self.counts)

    @property
    def num_records(self):
        return int(self.counts.sum())


def example(model, counts, *, clip_norm):
    return Example(model, np.arange(float(len(counts))), np.array(counts), clip_norm)


EXAMPLES = {
    "bernoulli_beta": example(
        BernoulliBeta(outcome="heads", prior_alpha=10.0, prior_beta=10.0), [60_000, 40_000], clip_norm=1.5
    ),
    "categorical_dirichlet": example(
        CategoricalDirichlet(outcome="blood", concentration=(5.0, 3.0, 2.0, 4.0)),
        [45_000, 30_000, 10_000, 15_000],
        clip_norm=2.0,
    ),
    "poisson_gamma": example(
        PoissonGamma(outcome="visits", prior_shape=3.0, prior_rate=1.5),
        [13_500, 27_000, 27_000, 18_000, 9_000, 3_500, 1_250, 400, 100],
        clip_norm=12.0,
    ),
}


class Quadratic(NamedTuple):
    """The loss near its optimum, in the coordinates phi = (mu, u), and the gradients there."""

    phi_star: np.ndarray
    curvature: np.ndarray
    # of each distinct outcome's likelihood part
    gradients: np.ndarray
    # of u under S = 2 draws in a pair; S draws have 2 / S of it
    pair_covariance: np.ndarray


def nodes_of(num_params, *, order):
    """Return nodes (M, K) and weights (M,) that integrate over K standard normals."""
    points, weights = np.polynomial.hermite_e.hermegauss(order)
    grid = np.meshgrid(*[points] * num_params, indexing="ij")
    products = np.meshgrid(*[weights / weights.sum()] * num_params, indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1), np.prod(products, axis=0).ravel()


def log_sd(u):
    return anp.log(anp.logaddexp(0.0, u))


@functools.cache
def quadratic(name):
    """Return optimum and curvature of an example's negative ELBO, and its records' gradients there."""
    case = EXAMPLES[name]
    design = case.model.design(SCHEMA)
    mean, _ = case.model.prior_moments(design)
    size = len(mean)
    nodes, weights = nodes_of(size, order=25 if size == 1 else 7)
    batch = RecordBatch(x=np.empty((len(case.values), 0)), y=case.values)

    def theta(phi):
        return phi[:size] + anp.exp(log_sd(phi[size:])) * nodes

    def of_records(phi):
        """Negative expected log likelihood of each distinct outcome."""
        return -anp.dot(weights, case.model.log_likelihood(theta(phi)[:, None, :], batch))

    def loss(phi):
        prior = anp.dot(weights, case.model.log_prior(theta(phi), design))
        return anp.dot(case.counts, of_records(phi)) - prior - anp.sum(log_sd(phi[size:]))

    phi = np.concatenate([mean, np.full(size, np.log(2.0 / np.sqrt(case.num_records)))])
    for _ in range(50):
        move = np.linalg.solve(hessian(loss)(phi), grad(loss)(phi))
        phi = phi - np.clip(move, -0.5, 0.5)
        if np.abs(move).max() < 1e-9:
            break
    assert np.abs(grad(loss)(phi)).max() < 1e-6
    curvature = hessian(loss)(phi)
    # A pair e, -e has the gradient sd' (H (sd e) e)_k in u_k; covariance of e_j e_k is that of Isserlis.
    located = curvature[:size, :size]
    sd = np.exp(log_sd(phi[size:]))
    slope = 1.0 / (1.0 + np.exp(-phi[size:]))
    pair = np.diag((located**2) @ sd**2) + located**2 * np.outer(sd, sd)
    covariance = np.zeros_like(curvature)
    covariance[size:, size:] = pair * np.outer(slope, slope)
    return Quadratic(phi, curvature, jacobian(of_records)(phi), covariance)


def noise_covariance(name, *, settings, noise_multiplier):
    """Return S, a step's covariance at the optimum: of privacy, sampling, and the guide's draws."""
    found = quadratic(name)
    std = noise_multiplier * settings.clip_norm / settings.preconditioner
    sampled = subsampled_sum(
        found.gradients, sampling_rate=settings.sampling_rate, counts=EXAMPLES[name].counts, noise_std=std
    )
    draws = settings.sampling_rate**2 * found.pair_covariance / (settings.monte_carlo_samples / 2)
    return sampled.covariance + draws


def labels(name):
    """Return the names of an example's parameters."""
    model = EXAMPLES[name].model
    return ModelDescription(model=model, schema=SCHEMA, guide=na.MeanField()).names


def simulated(name, *, num_replicates, seed, privacy, start, **settings):
    """Return runs of the engine on one example's table, from `start` on, shape (2 K,) with one u for all."""
    case, names = EXAMPLES[name], labels(name)
    config = na.DPVIConfig(
        **{"clip_norm": case.clip_norm, **settings},
        initial_mu=dict(zip(names, np.asarray(start, dtype=float).tolist(), strict=False)),
        initial_u=float(start[-1]),
    )
    traces = simulate_releases(
        case.model,
        [case.table] * num_replicates,
        schema=SCHEMA,
        privacy=privacy,
        seeds=replicate_seeds(seed, num_replicates=num_replicates),
        config=config,
    )
    assert traces.is_finite.all()
    return traces


def errors_of(values, expected):
    """Return how many standard errors the means of R independent values, the first axis, are off."""
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return (values.mean(axis=0) - expected) / error


# A coin under a guide that is held at a point: the loss of its one location is the negative log posterior.
STEPS, RATE = 200, 0.5
HEADS, TAILS = 24_000, 16_000
COIN = BernoulliBeta(outcome="heads", prior_alpha=10.0, prior_beta=10.0)
BUDGET = na.PrivacyBudget(epsilon=0.2, delta=1e-5)
PROBABILITY = (HEADS + 10.0) / (HEADS + TAILS + 20.0)
TOTAL = HEADS + TAILS + 20.0
OPTIMUM = np.log(PROBABILITY / (1.0 - PROBABILITY))
CURVATURE = TOTAL * PROBABILITY * (1.0 - PROBABILITY)
# Variance that sampling adds to a gradient.
SAMPLING = RATE * (1.0 - RATE) * (HEADS * (1.0 - PROBABILITY) ** 2 + TAILS * PROBABILITY**2)


class Runs(NamedTuple):
    """Iterates and gradients of the coin, (R, T), the sd of a gradient, and lambda."""

    phi: np.ndarray
    gradient: np.ndarray
    noise_std: float
    learning_rate: float


def coin_slope(phi):
    """Return the loss gradient at a location."""
    return TOTAL * (expit(phi) - PROBABILITY)


def coin_runs(
    *, step=None, constant=None, clip_norm=0.65, start=OPTIMUM, seed=3, num_replicates=1000, num_steps=STEPS
):
    """Return runs of the coin with `step` = lambda * kappa * a, or with the heuristic's `constant`."""
    traces = simulate_releases(
        COIN,
        [np.repeat([1.0, 0.0], [HEADS, TAILS])] * num_replicates,
        schema=SCHEMA,
        privacy=BUDGET,
        seeds=replicate_seeds(seed, num_replicates=num_replicates),
        config=na.DPVIConfig(
            num_steps=num_steps,
            sampling_rate=RATE,
            clip_norm=clip_norm,
            learning_rate=None if step is None else step / (RATE * CURVATURE),
            learning_rate_constant=constant,
            monte_carlo_samples=2,
            initial_mu=float(start),
            initial_u=-20.0,
            learning_rate_factors={"u[probability]": 1e-12},
        ),
    )
    noise = traces.mechanism.noise_multiplier * clip_norm
    return Runs(
        phi=traces.phi[..., 0],
        gradient=traces.noisy_gradient[..., 0],
        noise_std=np.sqrt(noise**2 + SAMPLING),
        learning_rate=traces.mechanism.settings.learning_rate[0],
    )
