"""Simulated releases for ``benchmarks/diagnostics.py``: healthy ones, and ones with a single fault."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nadpvi as na

Array = NDArray[np.float64]

SAMPLING_RATE = 0.1
POSTERIOR_SD = 0.1


def simulated(
    rng: np.random.Generator,
    *,
    times: Array,
    num_steps: int = 1000,
    start: Array | float = 0.0,
    extra_sd: float = 0.0,
    bend: float = 0.0,
    correlation: float = 0.0,
    claimed: float = 1.0,
) -> tuple[na.Release, Array]:
    """Return a release and its phi_star.

    Parameters
    ----------
    rng : Generator
    times : ndarray, shape (D,)
        Relaxation times in the window of 80 % of the steps.
    num_steps : int
    start : ndarray or float
        Distance of the first iterate from phi_star, in stationary sds.
    extra_sd : float
        tau over the privacy noise.
    bend : float
        By what share of itself the slope changes over one stationary sd, up to three of them.
    correlation : float
        Curvature between neighbouring coordinates, over the root of both own ones.
    claimed : float
        Noise that the release claims, over the real one.
    """
    size, window = len(times), 0.8 * num_steps
    slope = 1.0 / (POSTERIOR_SD * np.sqrt(window))
    rate = times / window / slope
    spread = rate / np.sqrt(1.0 - (1.0 - times / window) ** 2)
    optimum = rng.standard_normal(size)
    phi, gradient = np.empty((2, num_steps, size))
    now = optimum + start * spread
    for t in range(num_steps):
        distance = now - optimum
        phi[t] = now
        neighbours = np.zeros(size)
        neighbours[1:] += distance[:-1]
        neighbours[:-1] += distance[1:]
        gradient[t] = (
            slope * (distance + correlation * neighbours)
            + 0.5 * bend * slope * spread * np.clip(distance / spread, -3, 3) ** 2
        )
        gradient[t] += rng.standard_normal(size) + extra_sd * rng.standard_normal(size)
        now = now - rate * gradient[t]
    made = na.Release.from_arrays(
        phi=phi,
        noisy_gradient=gradient,
        noise_multiplier=claimed,
        clip_norm=1.0,
        sampling_rate=SAMPLING_RATE,
        learning_rate=rate,
    )
    return made, optimum


def healthy(rng: np.random.Generator, *, size: int, num_steps: int, extra_sd: float) -> na.Release:
    """Return a release on which no check should find anything."""
    return simulated(
        rng,
        times=np.exp(rng.uniform(np.log(20.0), np.log(0.3 * num_steps), size)),
        num_steps=num_steps,
        start=rng.uniform(-3, 3, size),
        extra_sd=extra_sd,
    )[0]


def faulty() -> dict[str, Callable[[np.random.Generator], na.Release]]:
    """Return releases with one fault each, by name."""
    many = np.full(10, 60.0)

    def one(**settings: Any) -> Callable[[np.random.Generator], na.Release]:
        return lambda rng: simulated(rng, **{"times": many, **settings})[0]

    return {
        "noise claimed 1.2 times too large": one(claimed=1.2),
        "steps of 1.7 over curvature": one(times=np.full(10, 1360.0)),
        "2 relaxation times": one(times=np.full(10, 2.0)),
        "start 200 sds away, 10 relaxation times": one(times=np.full(10, 10.0), start=200.0),
        "slope changes by half over an sd": one(times=np.full(10, 240.0), num_steps=4000, bend=0.5),
        "slope changes by its whole over an sd": one(times=np.full(10, 240.0), num_steps=4000, bend=1.0),
        "neighbours correlated 0.45": one(correlation=0.45),
        "tau of 12 noise sds": one(extra_sd=12.0),
    }
