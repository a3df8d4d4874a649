"""Speed as ratios within one run: the Adult step against bare products, sums against the raw trace.

Run with ``make bench``. Seeds and sizes are in the code; the result goes to
``benchmarks/results/speed.json``.
"""

import argparse
import functools
import time

import numpy as np
from _shared import machine, mean_seconds, write_result
from threadpoolctl import threadpool_limits

from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.description import ModelDescription
from nadpvi.engines.discover import find_engine
from nadpvi.engines.programs import program_path
from nadpvi.gradient_model import make_gradient_model, window_start
from nadpvi.inference.nuts import make_stan_data, sample_nuts
from nadpvi.models import LogisticRegression
from nadpvi.privacy.noise import GRID_UNITS, DiscreteGaussianNoise, NoNoise, SimulatedGaussianNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.privacy.sampling import poisson_sample
from nadpvi.private.batches import Workspace
from nadpvi.private.dpvi import State, step
from nadpvi.private.records import Records, make_records
from nadpvi.settings import make_settings

SIGMA = 11.8665  # epsilon 1, delta 1e-5, T = 1,000, sampling rate 0.1


class GridWithoutNoise(NoNoise):
    """The exact integer sums of a real release with the noise left out, to time the two apart."""

    def __init__(self, *, dimension: int) -> None:
        super().__init__(dimension=dimension)
        self.grid_units = GRID_UNITS


def adult() -> tuple[ModelDescription, Records]:
    """Return the demo's model and its encoded records."""
    model = LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
    description = ModelDescription(model=model, schema=adult_schema(), guide=DPVIConfig().guide)
    return description, make_records(load_adult("train"), description.design)


def time_step(*, repeats: int) -> dict[str, float]:
    """Return mean milliseconds of one Adult step and of the bare gather and products of the same shapes.

    The mean, not the median: exact noise is drawn in blocks, and the steps that wait for one count.
    """
    description, records = adult()
    settings = make_settings(description, DPVIConfig(), noise_multiplier=SIGMA)
    dimension = len(settings.initial_phi)
    streams = make_streams(insecure_seed=1)
    state = State(0, settings.initial_phi)
    sources = {
        "step, exact sums, no noise": GridWithoutNoise(dimension=dimension),
        "step, exact sums and discrete Gaussian": DiscreteGaussianNoise(
            noise_multiplier=SIGMA, dimension=dimension, num_steps=repeats
        ),
        "step, simulation": SimulatedGaussianNoise(
            np.random.default_rng(2), noise_multiplier=SIGMA, dimension=dimension
        ),
    }
    workspace = Workspace()
    calls = {"bare gather and products": bare(records)}
    for name, noise in sources.items():
        calls[name] = functools.partial(
            step,
            state,
            records=records,
            settings=settings,
            noise=noise,
            streams=streams,
            workspace=workspace,
        )
    return {name: 1e3 * mean_seconds(call, repeats=repeats) for name, call in calls.items()}


def bare(records: Records):
    """Return a call that gathers a batch and does the products X theta', R'E and X'w, nothing else."""
    rng = np.random.default_rng(3)
    num_params = records.x.shape[1]
    index = poisson_sample(rng, num_records=len(records.y), sampling_rate=0.1)
    theta, noise = rng.normal(size=(2, 10, num_params))
    residual, weights = rng.normal(size=(len(index), 10)), rng.random(len(index))

    def call() -> None:
        x = records.x[index]
        x @ theta.T
        scale = residual @ noise
        weights @ x
        weights @ scale

    return call


def make_trace(*, dimension: int, num_steps: int, seed: int) -> Release:
    """Return a trace simulated from the post-processing model itself, with curvatures over two decades."""
    rng = np.random.default_rng(seed)
    curvature = np.exp(rng.uniform(np.log(5.0), np.log(500.0), dimension))
    optimum, rate, noise_std = rng.normal(size=dimension), 0.1, 40.0
    learning_rate = np.sqrt(2 * dimension / 2) / (noise_std * np.sqrt(num_steps * dimension))
    phi = np.zeros((num_steps, dimension))
    gradient = np.zeros_like(phi)
    current = np.zeros(dimension)
    for t in range(num_steps):
        phi[t] = current
        gradient[t] = rate * curvature * (current - optimum) + noise_std * rng.normal(size=dimension)
        current = current - learning_rate * gradient[t]
    return Release.from_arrays(
        phi=phi, noisy_gradient=gradient, noise_multiplier=noise_std, clip_norm=1.0, sampling_rate=rate
    )


def time_nuts(*, dimension: int, num_steps: int, draws: int) -> dict[str, float]:
    """Return seconds of NUTS on the sums and on the raw trace, same engine, same numbers of draws."""
    release = make_trace(dimension=dimension, num_steps=num_steps, seed=4)
    model = make_gradient_model(release)
    engine = find_engine("stanli")
    start = time.perf_counter()
    sample_nuts(model, engine=engine, draws=draws, chains=4, warmup=draws, seed=5)
    on_sums = time.perf_counter() - start
    first = window_start(num_steps, burn_in=0.2)
    data = make_stan_data(model)
    rows = {
        name: data[name]
        for name in (
            "D", "sampling_rate", "noise_std", "phi_star_prior_mean", "phi_star_prior_sd", "v_prior_mean",
            "v_prior_sd", "use_tau", "tau_prior_scale",
        )
    }  # fmt: skip
    rows |= {
        "num_steps": num_steps - first,
        "phi": release.phi[first:],
        "noisy_gradient": release.noisy_gradient[first:],
    }
    start = time.perf_counter()
    engine.sample(program_path("gradient_model_trace"), rows, chains=4, warmup=draws, draws=draws, seed=6)
    on_trace = time.perf_counter() - start
    return {"NUTS on sums": on_sums, "NUTS on the raw trace": on_trace}


def main() -> None:
    """Measure, print and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=300, help="timed steps")
    parser.add_argument("--draws", type=int, default=1000, help="draws and warm-up iterations per chain")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of the simulated trace")
    arguments = parser.parse_args()
    with threadpool_limits(limits=1, user_api="blas"):
        steps = time_step(repeats=arguments.repeats)
    nuts = time_nuts(dimension=24, num_steps=arguments.steps, draws=arguments.draws)
    base = steps["bare gather and products"]
    result = {
        "machine": machine(),
        "adult step, ms (mean)": steps,
        "adult step, ratio to bare": {name: value / base for name, value in steps.items()},
        "nuts, s": nuts,
        "nuts, raw trace over sums": nuts["NUTS on the raw trace"] / nuts["NUTS on sums"],
        "settings": {"D": 24, "window": int(0.8 * arguments.steps), "chains": 4, "draws": arguments.draws},
    }
    for key, value in result.items():
        print(key, value)
    print("written:", write_result("speed", result).name)


if __name__ == "__main__":
    main()
