"""Simulation-based calibration of the post-processing model: truths from fixed priors, traces, ranks.

The "trace" priors look at the trace, so that no truth can be drawn from them; here all priors are fixed in
advance. Each coordinate is a replicate of its own, since coordinates are independent.
"""

import dataclasses

import numpy as np
from scipy.stats import chi2

from nadpvi import gradient_model as gm
from nadpvi.bijectors import softplus
from nadpvi.inference.nuts import sample_nuts

RATE, NOISE_STD = 0.2, 2.0
PHI_STAR_PRIOR = (0.5, 1.5)


def simulate(size, *, use_tau, seed, v_prior=(3.0, 2.5), num_steps=60, step_size=0.3):
    """Return the model of `size` simulated descents, priors included, and the truths behind them.

    Gradients move the iterates, as in a real run: the trace depends on the truth through the iterates too.
    """
    rng = np.random.default_rng(seed)
    truth = {"phi_star": rng.normal(*PHI_STAR_PRIOR, size), "v": rng.normal(*v_prior, size)}
    tau = np.abs(rng.normal(0.0, NOISE_STD, size)) if use_tau else np.zeros(size)
    phi, gradient = np.empty((2, num_steps, size))
    now = np.zeros(size)
    for t in range(num_steps):
        phi[t] = now
        gradient[t] = RATE * softplus(truth["v"]) * (now - truth["phi_star"])
        gradient[t] += np.hypot(NOISE_STD, tau) * rng.standard_normal(size)
        now = now - step_size * gradient[t]
    if use_tau:
        truth["tau"] = tau
    model = gm.GradientModel(
        sums=gm.make_trace_sums(phi, gradient, burn_in=0.0),
        sampling_rate=RATE,
        noise_std=np.full(size, NOISE_STD),
        phi_star_prior_mean=np.full(size, PHI_STAR_PRIOR[0]),
        phi_star_prior_sd=np.full(size, PHI_STAR_PRIOR[1]),
        v_prior_mean=np.full(size, v_prior[0]),
        v_prior_sd=np.full(size, v_prior[1]),
        tau_prior_scale=np.full(size, NOISE_STD) if use_tau else None,
        phi_labels=tuple(f"phi[{i}]" for i in range(size)),
    )
    return model, truth


def sample_in_parts(model, *, engine, draws, together=10):
    """Return at most 200 nearly independent NUTS draws, every twentieth of 4,000; ten replicates a model."""
    parts = [
        sample_nuts(
            model.take(slice(first, first + together)),
            engine=engine,
            draws=1000,
            chains=4,
            warmup=500,
            seed=first,
            adapt_delta=0.95,
        )
        for first in range(0, model.num_parameters, together)
    ]

    def joined(name):
        if getattr(parts[0], name) is None:
            return None
        whole = np.concatenate([getattr(part, name) for part in parts], axis=2)[:, ::20]
        return whole.reshape(1, -1, whole.shape[2])[:, :draws]

    variables = {name: joined(name) for name in ("phi_star", "curvature", "v", "tau")}
    return dataclasses.replace(parts[0], **variables)


def narrowed(fitted, *, factor):
    """Return draws with every sd multiplied by `factor` about its mean, coordinate by coordinate."""

    def squeeze(values):
        centre = values.mean(axis=(0, 1))
        return centre + factor * (values - centre)

    return dataclasses.replace(
        fitted,
        **{
            name: squeeze(getattr(fitted, name))
            for name in ("phi_star", "v", "tau")
            if getattr(fitted, name) is not None
        },
    )


def rank_p_values(fitted, truth, *, num_bins):
    """Return the p-value of uniform ranks of the truth among the draws, for each variable.

    Draws (chain, draw, D) must be independent, and one less than a multiple of `num_bins` in all.
    """
    found = {}
    for name, values in truth.items():
        drawn = getattr(fitted, name)
        drawn = drawn.reshape(-1, drawn.shape[-1])
        rank = (drawn < values).sum(axis=0)
        counts = np.bincount(rank * num_bins // (len(drawn) + 1), minlength=num_bins)
        expected = rank.size / num_bins
        found[name] = float(chi2.sf(np.square(counts - expected).sum() / expected, num_bins - 1))
    return found
