"""The exact method against NUTS on the same sums, in one run; and the exact method at D = 100,000.

Run with ``python benchmarks/exact.py``. Seeds and sizes are in the code; results go to
``benchmarks/results/exact.json`` and ``exact.md``. Every timing of the exact method is the median of several
calls, since one call takes milliseconds. CPU time is all threads'.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _shared import RESULTS, machine, write_result

from nadpvi.engines.discover import find_engine
from nadpvi.errors import InferenceWarning
from nadpvi.gradient_model import GradientModel, TraceSums
from nadpvi.inference.exact import exact_marginals, sample_exact
from nadpvi.inference.laplace import sample_laplace
from nadpvi.inference.nuts import sample_nuts

NUM_STEPS = 800
CHAINS, DRAWS, WARMUP = 4, 1000, 1000
LARGE = 100_000
LARGE_DRAWS = 100


def make_model(size: int, *, use_tau: bool, seed: int = 0) -> GradientModel:
    """Return the model of running sums such as a window of 800 steps leaves, 13.3's priors included."""
    rng = np.random.default_rng(seed)
    rate, noise_std = 0.1, 25.0
    curvature = rng.uniform(20.0, 400.0, size)
    total = noise_std * rng.uniform(1.0, 1.5, size)
    # slopes of 0 to 20 standard errors: some coordinates know next to nothing of their curvature
    s_pp = np.square(total * rng.uniform(0.0, 20.0, size) / (rate * curvature))
    slope = rate * curvature + total / np.sqrt(s_pp) * rng.standard_normal(size)
    sums = TraceSums(
        num_steps=NUM_STEPS,
        phi_bar=rng.standard_normal(size),
        g_bar=total / np.sqrt(NUM_STEPS) * rng.standard_normal(size),
        s_pp=s_pp,
        s_gp=slope * s_pp,
        s_gg=total**2 * rng.chisquare(NUM_STEPS - 2, size) + slope**2 * s_pp,
    )
    return GradientModel(
        sums=sums,
        sampling_rate=rate,
        noise_std=np.full(size, noise_std),
        phi_star_prior_mean=sums.phi_bar,
        phi_star_prior_sd=np.ones(size),
        v_prior_mean=np.abs(slope) / rate,
        v_prior_sd=noise_std / (rate * np.sqrt(s_pp)),
        tau_prior_scale=np.full(size, 2.0 * noise_std) if use_tau else None,
        phi_labels=tuple(f"phi[{i}]" for i in range(size)),
    )


def clock(call: Callable[[], object], *, repeats: int) -> dict[str, float]:
    """Return median wall and CPU seconds of a call."""
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return {"seconds": statistics.median(walls), "cpu_seconds": statistics.median(cpus)}


def compare(size: int, *, use_tau: bool, repeats: int) -> dict[str, Any]:
    """Time NUTS, exact draws, exact marginals and Laplace draws of one model; equal numbers of draws."""
    model, engine = make_model(size, use_tau=use_tau), find_engine("auto")
    sampling = {"draws": DRAWS, "chains": CHAINS, "seed": 1}
    nuts = clock(lambda: sample_nuts(model, engine=engine, warmup=WARMUP, **sampling), repeats=1)
    result: dict[str, Any] = {"size": size, "use_tau": use_tau, "engine": engine.name, "nuts": nuts}
    calls: dict[str, Callable[[], object]] = {
        "exact_draws": lambda: sample_exact(model, **sampling),
        "exact_moments": lambda: exact_marginals(model, probabilities=(), grid_size=0),
        "exact_quantiles": lambda: exact_marginals(model, grid_size=0),
        "laplace_draws": lambda: sample_laplace(model, **sampling),
    }
    for name, call in calls.items():
        call()
        timed = clock(call, repeats=repeats)
        timed["ratio"] = nuts["seconds"] / timed["seconds"]
        timed["cpu_ratio"] = nuts["cpu_seconds"] / timed["cpu_seconds"]
        result[name] = timed
    return result


def large(what: str, *, use_tau: bool, size: int) -> dict[str, Any]:
    """Time one call at a large D and give the peak memory of this process, the model included."""
    model = make_model(size, use_tau=use_tau)
    if what == "moments":
        timed = clock(lambda: exact_marginals(model, probabilities=(), grid_size=0), repeats=1)
    else:
        timed = clock(lambda: sample_exact(model, draws=LARGE_DRAWS, chains=1, seed=1), repeats=1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "what": what,
        "size": size,
        "use_tau": use_tau,
        **timed,
        "peak_gigabytes": peak * 1024 / 1e9 if sys.platform != "darwin" else peak / 1e9,
    }


def large_in_own_process(what: str, *, use_tau: bool, size: int) -> dict[str, Any]:
    """Run `large` in a process of its own, so that its peak memory is its own."""
    command = [sys.executable, __file__, "--large", what, "--size", str(size), "--tau", str(int(use_tau))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def write_table(result: dict[str, Any]) -> Path:
    """Write the results as a page of Markdown."""
    lines = [
        "# The exact method against NUTS",
        "",
        f"Sums of {NUM_STEPS} steps; {CHAINS} chains of {DRAWS:,} draws for every method, after {WARMUP:,}",
        f"warm-up iterations for NUTS ({result['compared'][0]['engine']}). Wall seconds, CPU seconds of all",
        "threads in brackets; a ratio is NUTS's time over the method's, of both. `moments` are all means",
        "and sds without draws. Written by `benchmarks/exact.py`.",
        "",
        "| D | tau | NUTS | exact draws | ratio | moments | ratio | and quantiles | ratio | Laplace draws |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["compared"]:
        cells = [str(row["size"]), "inferred" if row["use_tau"] else "0", _seconds(row["nuts"])]
        for name in ("exact_draws", "exact_moments", "exact_quantiles"):
            cells += [_seconds(row[name]), f"{row[name]['ratio']:.0f} ({row[name]['cpu_ratio']:.0f})"]
        lines.append("| " + " | ".join([*cells, _seconds(row["laplace_draws"])]) + " |")
    lines += [
        "",
        f"D = {LARGE:,}, from running sums, one process each:",
        "",
        "| what | tau | seconds | peak memory, GB |",
        "|---|---|---|---|",
    ]
    for row in result["large"]:
        what = "all means and sds" if row["what"] == "moments" else f"{LARGE_DRAWS} draws of all"
        tau = "inferred" if row["use_tau"] else "0"
        lines.append(f"| {what} | {tau} | {_seconds(row)} | {row['peak_gigabytes']:.2f} |")
    about = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    path: Path = RESULTS / "exact.md"
    path.write_text("\n".join([*lines, "", f"Machine: {about}.", ""]))
    return path


def _seconds(timed: dict[str, float]) -> str:
    """Return wall and CPU seconds to three digits."""
    return f"{timed['seconds']:.3g} ({timed['cpu_seconds']:.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; no result is written")
    parser.add_argument("--large", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=LARGE, help=argparse.SUPPRESS)
    parser.add_argument("--tau", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.large:
        print(json.dumps(large(given.large, use_tau=bool(given.tau), size=given.size)))
        return
    warnings.simplefilter("ignore", InferenceWarning)
    sizes, repeats, size = ((4,), 1, 500) if given.quick else ((24, 200), 9, LARGE)
    settings = [False, True]
    result = {
        "machine": {**machine(), "load before": round(os.getloadavg()[0], 1)},
        "compared": [compare(d, use_tau=tau, repeats=repeats) for d in sizes for tau in settings],
        "large": [
            large_in_own_process(what, use_tau=tau, size=size)
            for what in ("moments", "draws")
            for tau in settings
        ],
    }
    if given.quick:
        print(result)
        return
    print(write_result("exact", result))
    print(write_table(result))


if __name__ == "__main__":
    main()
