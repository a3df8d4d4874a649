"""Posteriors whose faults are known: truths around centres; draws that are right, too narrow, or moved."""

import numpy as np

from nadpvi.coverage import score_many


def simulate(size, *, num_params=1, num_draws=200, seed=0, sd_factor=1.0, shift=0.0):
    """Return draws (R, S, K) and truths (R, K) of a normal posterior whose sds differ over coordinates."""
    rng = np.random.default_rng(seed)
    sd = np.geomspace(0.01, 100.0, num_params) if num_params > 1 else np.array([0.3])
    centre = 5.0 * sd * rng.standard_normal((size, num_params))
    truth = centre + sd * rng.standard_normal((size, num_params))
    noise = rng.standard_normal((size, num_draws, num_params))
    return (centre + shift * sd)[:, None] + sd_factor * sd * noise, truth


def scored(size, *, seed=0, num_references=20, **more):
    """Return the scores of simulated fits."""
    draws, truth = simulate(size, seed=seed, **more)
    seeds = [(seed, index) for index in range(size)]
    return score_many(draws, truth, seeds=seeds, num_references=num_references)
