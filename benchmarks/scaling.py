"""How the time of a step grows with the expected batch kappa*N, with D and with S, each over a factor of 100.

A simulated step of logistic regression on uniform features. Sizes take turns; the median of rounds is
written, with the exponent of the growth: 1 is linear, less is the fixed cost of a step that the smallest size
still shows. The result goes to ``benchmarks/results/scaling.json``.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _shared import machine, write_result
from threadpoolctl import threadpool_limits

from nadpvi.columns import BinaryColumn, RealColumn
from nadpvi.config import DPVIConfig
from nadpvi.description import ModelDescription
from nadpvi.models import LogisticRegression
from nadpvi.privacy.noise import SimulatedGaussianNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.batches import Workspace
from nadpvi.private.dpvi import State, step
from nadpvi.private.records import Records
from nadpvi.schema import Schema
from nadpvi.settings import make_settings

FACTORS = (1, 3, 10, 30, 100)

# At factor 1: rows, rate, coefficients, draws.
SMALLEST = {
    "kappa N": {"num_records": 1_000_000, "sampling_rate": 0.001, "num_params": 20, "num_draws": 10},
    "D": {"num_records": 20_000, "sampling_rate": 0.1, "num_params": 10, "num_draws": 10},
    "S": {"num_records": 20_000, "sampling_rate": 0.1, "num_params": 20, "num_draws": 2},
}
GROWS = {"kappa N": "sampling_rate", "D": "num_params", "S": "num_draws"}


def make_step(
    *, num_records: int, sampling_rate: float, num_params: int, num_draws: int
) -> Callable[[], object]:
    """Return a call that does one step."""
    rng = np.random.default_rng(1)
    names = [f"x{index}" for index in range(num_params - 1)]
    features = tuple(RealColumn(name=name, lower=0.0, upper=1.0) for name in names)
    config = DPVIConfig(
        sampling_rate=sampling_rate, monte_carlo_samples=num_draws, clip_norm=1.0, learning_rate=1e-12
    )
    description = ModelDescription(
        model=LogisticRegression(outcome="y"),
        schema=Schema(columns=(*features, BinaryColumn(name="y", levels=("no", "yes")))),
        guide=config.guide,
    )
    settings = make_settings(description, config, noise_multiplier=1.0)
    records = Records(
        x=rng.random((num_records, num_params)), y=(rng.random(num_records) < 0.3).astype(np.float64)
    )
    state, streams, workspace = State(0, settings.initial_phi), make_streams(insecure_seed=2), Workspace()
    noise = SimulatedGaussianNoise(rng, noise_multiplier=1.0, dimension=len(settings.initial_phi))
    return lambda: step(
        state, records=records, settings=settings, noise=noise, streams=streams, workspace=workspace
    )


def measure(name: str, *, rounds: int, seconds: float) -> dict[str, Any]:
    """Return the times of one kind of growth."""
    sizes = []
    for factor in FACTORS:
        size = dict(SMALLEST[name])
        size[GROWS[name]] *= factor
        sizes.append(size)
    calls = [make_step(**size) for size in sizes]
    repeats = []
    for call in calls:
        call()
        start = time.perf_counter()
        call()
        repeats.append(max(2, round(seconds / (time.perf_counter() - start))))
    times = np.empty((rounds, len(calls)))
    for turn in range(rounds):
        for place, (call, count) in enumerate(zip(calls, repeats, strict=True)):
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[turn, place] = (time.perf_counter() - start) / count
    medians = np.median(times, axis=0)
    logs = np.log(np.median(times[:, [0, -1]] / times[:, :1], axis=0))
    unit = {"kappa N": SMALLEST[name]["num_records"], "D": 2, "S": 1}[name]
    return {
        "sizes": [size[GROWS[name]] * unit for size in sizes],
        "ms a step": (1e3 * medians).tolist(),
        "largest over smallest": float(np.exp(logs[-1])),
        "exponent": float(logs[-1] / np.log(FACTORS[-1])),
        "exponent of the last factor of 10": float(np.log10(np.median(times[:, -1] / times[:, 2]))),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each size in a round, about")
    arguments = parser.parse_args()
    with threadpool_limits(limits=1, user_api="blas"):
        growth = {
            name: measure(name, rounds=arguments.rounds, seconds=arguments.seconds) for name in SMALLEST
        }
    for name, found in growth.items():
        print(name, found)
    facts = machine() | {"load average over a minute": os.getloadavg()[0]}
    result = {"machine": facts, "smallest": SMALLEST, "growth": growth}
    print("written:", write_result("scaling", result).name)


if __name__ == "__main__":
    main()
