"""How long the exact noise of a whole run takes to draw, against the targets and against NumPy's normal.

A real release's noise comes from OpenDP's discrete Gaussian, in blocks, on a thread of its own; a
simulation's from NumPy. Both are timed in turn within one run. Processor time is given beside wall time: on a
busy machine it is the one to judge by. The result goes to ``benchmarks/results/noise.json``.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from _shared import machine, write_result

from nadpvi.privacy.noise import DiscreteGaussianNoise, NoiseSource, SimulatedGaussianNoise

SIGMA = 37.331  # epsilon 1, delta 1e-5, T = 10,000, sampling rate 0.1
TARGETS = {24: 10.0, 200: 90.0}  # seconds for 10,000 steps, by D


class Clock(NamedTuple):
    """Seconds: by the wall, and of processors."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> "Clock":
        """Return both clocks."""
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: "Clock") -> "Clock":
        """Return what has passed since `start`."""
        return Clock(self.wall - start.wall, self.processor - start.processor)


def time_draws(make: Callable[[], NoiseSource], *, num_steps: int) -> Clock:
    """Return the time of making a source, which asks for its first block, and of drawing all vectors."""
    start = Clock.now()
    noise = make()
    for _ in range(num_steps):
        noise.draw()
    return Clock.now().since(start)


def measure(*, dimension: int, num_steps: int) -> dict[str, Any]:
    """Return the times of one size."""
    exact = time_draws(
        lambda: DiscreteGaussianNoise(noise_multiplier=SIGMA, dimension=dimension, num_steps=num_steps),
        num_steps=num_steps,
    )
    rng = np.random.default_rng(1)
    simulated = time_draws(
        lambda: SimulatedGaussianNoise(rng, noise_multiplier=SIGMA, dimension=dimension), num_steps=num_steps
    )
    start, values = Clock.now(), num_steps * dimension
    rng.standard_normal(values)
    bare = Clock.now().since(start)
    return {
        "D": dimension,
        "steps": num_steps,
        "exact, s": exact.wall,
        "exact, processor s": exact.processor,
        "target, s": TARGETS.get(dimension) if num_steps == 10_000 else None,
        "exact, values per s": values / exact.wall,
        "exact, values per processor s": values / exact.processor,
        "processor time, exact over simulated": exact.processor / simulated.processor,
        "processor time, exact over one call of NumPy's normal": exact.processor / bare.processor,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    arguments = parser.parse_args()
    measure(dimension=24, num_steps=100)  # loads OpenDP's library
    sizes = [measure(dimension=dimension, num_steps=arguments.steps) for dimension in TARGETS]
    for size in sizes:
        for key, value in size.items():
            print(key, value)
    # On a machine with other work, wall time says more about that work.
    facts = machine() | {"load average over a minute": os.getloadavg()[0]}
    result = {"machine": facts, "noise_multiplier": SIGMA, "sizes": sizes}
    print("written:", write_result("noise", result).name)


if __name__ == "__main__":
    main()
