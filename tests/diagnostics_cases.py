"""Simulated releases whose faults are known."""

import numpy as np

import nadpvi as na

POSTERIOR_SD = 0.1


def quadratic_run(
    *,
    times=(30.0, 60.0, 90.0, 200.0),
    num_steps=1000,
    start=0.0,
    extra_sd=0.0,
    bend=0.0,
    correlation=0.0,
    claimed=1.0,
    early=1.0,
    seed=0,
):
    """Return iterates, gradients and step sizes of DP-SGD with noise of sd 1, and what was claimed of it.

    `times` are relaxation times in the window of 80 %; `start` and `bend` are in stationary sds.
    """
    rng = np.random.default_rng(seed)
    times, window = np.asarray(times, dtype=float), 0.8 * num_steps
    size = len(times)
    slope = 1.0 / (POSTERIOR_SD * np.sqrt(window))
    rate = times / window / slope
    spread = rate / np.sqrt(np.abs(1.0 - (1.0 - times / window) ** 2))
    matrix = slope * (np.eye(size) + correlation * (np.eye(size, k=1) + np.eye(size, k=-1)))
    optimum = rng.standard_normal(size)
    phi, gradient = np.empty((2, num_steps, size))
    now = optimum + np.asarray(start) * spread
    for t in range(num_steps):
        distance = now - optimum
        phi[t] = now
        gradient[t] = matrix @ distance + bend * slope * spread * np.clip(distance / spread, -3, 3) ** 2
        gradient[t] += np.hypot(1.0, extra_sd) * rng.standard_normal(size)
        now = now - rate * gradient[t]
    return {
        "phi": phi,
        "noisy_gradient": gradient,
        "noise_multiplier": claimed,
        "clip_norm": 1.0,
        "sampling_rate": 0.1,
        "learning_rate": rate,
    }


def quadratic_release(**settings):
    """Return the release of `quadratic_run`."""
    return na.Release.from_arrays(**quadratic_run(**settings))
