"""Many simulated releases of one model as one array program, against the same releases one at a time.

The published settings (N = 5,000, T = 10,000, sampling rate 0.1, S = 10, epsilon 0.1, delta 1e-5), one core,
but for the clip norm of gamma-exponential, whose parameter is log(rate) here and was another there.
Each case runs in a process of its own, so that its peak memory is its own; the loop is measured over fewer
releases in the same process. The target is 30 s for 1,000 releases of the Beta-Bernoulli model. Results go to
``benchmarks/results/replicates.{json,md}``.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from _shared import RESULTS, machine, write_result

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.mechanism import make_mechanism
from nadpvi.models import BernoulliBeta, CategoricalDirichlet, ExponentialGamma
from nadpvi.models.base import ExponentialFamily
from nadpvi.private.replicates import replicate_seeds, simulate_releases, simulate_tables

SEED = 20_240
BUDGET = na.PrivacyBudget(epsilon=0.1, delta=1e-5)
SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "coin": {"kind": "binary", "levels": ["0", "1"]},
            "wait": {"kind": "real", "lower": 0, "upper": 100},
            "class": {"kind": "categorical", "levels": ["0", "1", "2"]},
        }
    }
)
TARGETS = {"beta-bernoulli": 30.0}


class Case(NamedTuple):
    """A model with its published settings, and how many replicates are run."""

    model: ExponentialFamily
    num_replicates: int
    clip_norm: float
    preconditioner_u: float
    initial_u: float
    keep: str = "sums"


_COIN = BernoulliBeta(outcome="coin", prior_alpha=10.0, prior_beta=10.0)
CASES = {
    "beta-bernoulli": Case(_COIN, 1000, 2.0, 120.0, -4.0),
    "beta-bernoulli, whole traces": Case(_COIN, 1000, 2.0, 120.0, -4.0, keep="trace"),
    "dirichlet-categorical": Case(
        CategoricalDirichlet(outcome="class", concentration=(5.0, 5.0, 5.0)),
        1000,
        math.sqrt(2.0),
        100.0,
        -6.0,
    ),
    "gamma-exponential": Case(
        ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0), 100, 10.0, 100.0, -4.0
    ),
}


class Clock(NamedTuple):
    """Seconds: by the wall, and of processors."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> "Clock":
        """Return both clocks."""
        return cls(time.perf_counter(), time.process_time())


def timed(call: Callable[[], object]) -> Clock:
    """Return how long a call takes."""
    start = Clock.now()
    call()
    stop = Clock.now()
    return Clock(stop.wall - start.wall, stop.processor - start.processor)


def peak_gigabytes() -> float:
    """Return the peak resident memory of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def measure(
    name: str, *, num_replicates: int, num_steps: int, num_records: int, loops: int
) -> dict[str, Any]:
    """Return the times and the memory of one case; runs in a process of its own."""
    case = CASES[name]
    config = na.DPVIConfig(
        num_steps=num_steps,
        sampling_rate=0.1,
        clip_norm=case.clip_norm,
        preconditioner_u=case.preconditioner_u,
        learning_rate_constant=1.0,
        initial_mu=0.0,
        initial_u=case.initial_u,
        keep=case.keep,
    )
    # Calibrated beforehand: both ways need it once, and then find it in the cache.
    description = ModelDescription(model=case.model, schema=SCHEMA, guide=config.guide)
    sigma = make_mechanism(description, privacy=BUDGET, config=config).noise_multiplier
    seeds = replicate_seeds(SEED, num_replicates=num_replicates)
    tables = simulate_tables(case.model, schema=SCHEMA, num_records=num_records, seeds=seeds).outcomes

    def array_program() -> None:
        traces = simulate_releases(
            case.model, tables, schema=SCHEMA, privacy=BUDGET, seeds=seeds, config=config
        )
        assert traces.is_finite.all()

    def one_at_a_time(*, collapse: bool) -> None:
        for outcomes, seed in zip(tables[:loops], seeds, strict=False):
            na.release(
                case.model,
                table_of(case, outcomes),
                schema=SCHEMA,
                privacy=BUDGET,
                config=config,
                collapse=collapse,
                insecure_seed=int(seed),
            )

    before = peak_gigabytes()
    together = timed(array_program)
    peak = peak_gigabytes()
    ways = {"loop": False} if name == "gamma-exponential" else {"loop": False, "loop, counted": True}
    result: dict[str, Any] = {
        "case": name,
        "R": num_replicates,
        "T": num_steps,
        "N": num_records,
        "noise multiplier": sigma,
        "config": config.to_dict(),
        "seconds": together.wall,
        "processor seconds": together.processor,
        "target, s": TARGETS.get(name),
        "microseconds per step and replicate": together.processor / num_replicates / num_steps * 1e6,
        "peak memory before, GB": before,
        "peak memory, GB": peak,
        "releases in each loop": loops,
    }
    for way, collapse in ways.items():
        single = timed(lambda collapse=collapse: one_at_a_time(collapse=collapse))  # type: ignore[misc]
        result[way] = {
            "seconds per release": single.wall / loops,
            "processor seconds per release": single.processor / loops,
            "ratio": single.wall / loops / (together.wall / num_replicates),
            "processor ratio": single.processor / loops / (together.processor / num_replicates),
        }
    return result


def table_of(case: Case, outcomes: np.ndarray) -> pd.DataFrame:
    """Return encoded outcomes as the cells of a table."""
    column = case.model.design(SCHEMA).outcome
    is_number = column == "wait"
    return pd.DataFrame({column: outcomes if is_number else outcomes.astype(int).astype(str)})


def measured_apart(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what a fresh process measures of one case."""
    options = ["--steps", str(arguments.steps), "--replicates", str(arguments.replicates)]
    command = [sys.executable, __file__, "--case", name, *options, "--loops", str(arguments.loops)]
    # One core is what the target is about.
    threads = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | threads)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def write_table(result: dict[str, Any]) -> Path:
    """Write the result as a table for readers and return its path."""
    lines = [
        "# Simulated releases with a replicate axis",
        "",
        "Published settings: N = 5,000, sampling rate 0.1, S = 10, epsilon 0.1, one core. Wall seconds,",
        "processor seconds in brackets; on a busy machine the latter are those to judge by. A ratio is the",
        "time of a release by `nadpvi.release(..., insecure_seed=)` over that of one by `simulate_releases`;",
        "*counted* is with `collapse=True`. Memory is that of the whole process. Written by",
        "`benchmarks/replicates.py`.",
        "",
        "| case | R | T | seconds | target | µs per step and replicate | ratio to a loop "
        "| to a counted loop | peak, GB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["cases"]:
        target = "" if row["target, s"] is None else f"{row['target, s']:g}"
        cells = [
            row["case"],
            f"{row['R']:,}",
            f"{row['T']:,}",
            f"{row['seconds']:.1f} ({row['processor seconds']:.1f})",
            target,
            f"{row['microseconds per step and replicate']:.2f}",
            _ratio(row["loop"]),
            _ratio(row["loop, counted"]) if "loop, counted" in row else "",
            f"{row['peak memory, GB']:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    about = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    path = RESULTS / "replicates.md"
    path.write_text("\n".join([*lines, "", f"Machine: {about}. Seed {SEED}.", ""]))
    return path


def _ratio(single: dict[str, float]) -> str:
    """Return wall and processor ratio."""
    return f"{single['ratio']:.0f} ({single['processor ratio']:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; no result is written")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--replicates", type=int, default=0, help="of each case; 0 for its own number")
    parser.add_argument("--loops", type=int, default=2, help="releases of the loop")
    parser.add_argument("--case", choices=list(CASES), help="measure one case in this process, and print it")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.steps, arguments.replicates = 100, 20
    if arguments.case:
        num_replicates = arguments.replicates or CASES[arguments.case].num_replicates
        measured = measure(
            arguments.case,
            num_replicates=num_replicates,
            num_steps=arguments.steps,
            num_records=5_000,
            loops=arguments.loops,
        )
        print(json.dumps(measured))
        return
    load = round(os.getloadavg()[0], 1)
    cases = []
    for name in CASES:
        cases.append(measured_apart(name, arguments))
        print(json.dumps(cases[-1], indent=2))
    result = {"seed": SEED, "machine": {**machine(), "load before": load}, "cases": cases}
    if not arguments.quick:
        print(write_result("replicates", result))
        print(write_table(result))


if __name__ == "__main__":
    main()
