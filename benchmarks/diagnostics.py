"""False alarms of the checks on healthy releases, what they catch, and where their thresholds come from.

A healthy release is the post-processing model itself: gradients linear in the iterates, a curvature for each
coordinate, independent noise. Its windows hold 20 to 300 relaxation times, and the iterates start up to three
stationary standard deviations from the optimum. The result goes to ``benchmarks/results/diagnostics.json``
and ``diagnostics.md``.
"""

import argparse
import itertools
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from _shared import RESULTS, machine, mean_seconds, write_result
from diagnostics_cases import SAMPLING_RATE, faulty, healthy, simulated
from numpy.typing import NDArray

import nadpvi as na
from nadpvi.diagnostics import choose_burn_in, diagnose
from nadpvi.gradient_model import make_gradient_model
from nadpvi.inference.exact import exact_marginals
from nadpvi.private.replicates import replicate_seeds, simulate_releases, simulate_tables

Array = NDArray[np.float64]


def alarms(
    make: Callable[[np.random.Generator], na.Release], *, releases: int, seed: int
) -> dict[str, float]:
    """Return in which share of releases each check warned, or noted, anything; "any" for one of them."""
    counts: Counter[str] = Counter()
    for rng in np.random.default_rng(seed).spawn(releases):
        found = diagnose(make(rng)).findings
        counts.update({f"{item.severity} {item.check}" for item in found})
        counts["any warning"] += any(item.severity == "warning" for item in found)
        counts["any"] += bool(found)
    return {
        name: counts[name] / releases
        for name in ("any", "any warning", *sorted(set(counts) - {"any", "any warning"}))
    }


def coverage(times: float, *, start: float, size: int, seed: int) -> dict[str, float]:
    """Return how often exact 90 % intervals of phi_star hold it, after so many relaxation times."""
    made, optimum = simulated(np.random.default_rng(seed), times=np.full(size, times), start=start)
    found = exact_marginals(
        make_gradient_model(made, subsampling_noise=True), probabilities=(0.05, 0.95), grid_size=0
    )
    low, high = found.phi_star.quantiles
    z = (found.phi_star.mean - optimum) / found.phi_star.sd
    return {
        "relaxation times": times,
        "start": start,
        "seen by the slope": float(diagnose(made).table["relaxation_times"].median()),
        "coverage": float(((low < optimum) & (optimum < high)).mean()),
        "rms z": float(np.sqrt(np.mean(z**2))),
    }


def step_sizes(*, replicates: int) -> list[dict[str, Any]]:
    """Return coverage of a location by its step size, over simulated releases of Normal and PoissonGamma."""
    schema = na.Schema.from_dict(
        {
            "columns": {
                "height": {"kind": "real", "lower": -20, "upper": 30},
                "visits": {"kind": "count", "upper": 40},
            }
        }
    )
    models = {
        "Normal": na.models.Normal(
            outcome="height", prior_mean=1.5, prior_precision_factor=0.4, prior_shape=3.0, prior_scale=5.0
        ),
        "PoissonGamma": na.models.PoissonGamma(outcome="visits", prior_shape=3.0, prior_rate=1.5),
    }
    found = []
    for (name, model), epsilon in itertools.product(models.items(), (0.7, 1.5, 3.0, 4.5, 6.0)):
        seeds = replicate_seeds(2, num_replicates=replicates)
        tables = simulate_tables(model, schema=schema, num_records=5000, seeds=seeds)
        traces = simulate_releases(
            model,
            tables.outcomes,
            schema=schema,
            privacy=na.PrivacyBudget(epsilon=epsilon, delta=1e-5),
            seeds=seeds,
            config=na.DPVIConfig(num_steps=1000, clip_norm=6.0),
        )
        for i in np.flatnonzero(traces.is_finite):
            made = traces.release(i)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", na.InferenceWarning)
                draws = na.infer(made, method="exact", draws=400, chains=1, seed=1).theta()[..., 0]
            z = (draws.mean() - tables.theta[i, 0]) / draws.std()
            found.append((name, diagnose(made).table["step"].iloc[0], z))
    rows = []
    frame = pd.DataFrame(found, columns=["model", "step", "z"])
    frame["bin"] = pd.cut(frame["step"], [0.0, 0.5, 1.0, 1.3, 1.6, 1.8, 2.0])
    for (name, part), group in frame.groupby(["model", "bin"], observed=True):
        inside = (group["z"].abs() < 1.645).mean()
        rms = np.sqrt((group["z"] ** 2).mean())
        rows.append(
            {"model": name, "step": str(part), "releases": len(group), "coverage": inside, "rms z": rms}
        )
    return rows


def speed() -> dict[str, float]:
    """Return seconds of a whole diagnosis of large releases."""
    rng = np.random.default_rng(0)
    trace = healthy(rng, size=114, num_steps=10_000, extra_sd=0.0)
    sums = make_gradient_model(simulated(rng, times=np.full(100_000, 20.0), num_steps=60)[0]).sums
    wide = na.Release(
        phi=np.zeros((1, 100_000)),
        noisy_gradient=np.zeros((1, 100_000)),
        sums=sums,
        noise_multiplier=1.0,
        clip_norm=1.0,
        sampling_rate=SAMPLING_RATE,
        preconditioner=np.ones(100_000),
        learning_rate=np.ones(100_000),
        model_prior_mean=np.full(100_000, np.nan),
        model_prior_sd=np.full(100_000, np.nan),
        phi_labels=tuple(f"phi[{i}]" for i in range(100_000)),
    )
    return {
        "trace of 10,000 steps by 114": mean_seconds(lambda: diagnose(trace), repeats=3),
        "its burn_in": mean_seconds(lambda: choose_burn_in(trace), repeats=3),
        "sums of 100,000": mean_seconds(lambda: diagnose(wide), repeats=3),
    }


def main() -> None:
    """Run everything, print it and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=400)
    parser.add_argument("--replicates", type=int, default=100)
    arguments = parser.parse_args()
    rows = []
    for size, num_steps, extra in (
        (2, 1000, 0.0),
        (24, 1000, 0.0),
        (24, 1000, 0.7),
        (24, 4000, 0.7),
        (114, 1000, 0.3),
    ):
        shares = alarms(
            lambda rng, size=size, num_steps=num_steps, extra=extra: healthy(
                rng, size=size, num_steps=num_steps, extra_sd=extra
            ),
            releases=arguments.releases,
            seed=size + num_steps,
        )
        rows.append({"coordinates": size, "steps": num_steps, "tau": extra, **shares})
        print(rows[-1], flush=True)
    caught = {name: alarms(make, releases=40, seed=1) for name, make in faulty().items()}
    for name, shares in caught.items():
        print(name, shares, flush=True)
    covered = [
        coverage(times, start=start, size=500, seed=3)
        for times in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
        for start in (1.0, 10.0)
    ]
    steps = step_sizes(replicates=arguments.replicates)
    for row in (*covered, *steps):
        print(row, flush=True)
    result = {
        "machine": machine(),
        "releases": arguments.releases,
        "false alarms": rows,
        "caught": caught,
        "coverage": covered,
        "step sizes": steps,
        "seconds": speed(),
    }
    print(result["seconds"])
    print("written:", write_result("diagnostics", result).name)
    (RESULTS / "diagnostics.md").write_text(report(result))


def report(result: dict[str, Any]) -> str:
    """Return the result as a page."""
    lines = [
        "# Diagnostics: false alarms, detection, thresholds",
        "",
        f"`benchmarks/diagnostics.py`, {result['releases']} healthy releases a row, each of 20 or more",
        "relaxation times: the share in which any check found anything, or warned.",
        "",
        "| coordinates | steps | tau / noise | anything found | a warning | by check |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["false alarms"]:
        rest = [f"{key} {value:.3f}" for key, value in row.items() if key.startswith(("note", "warning"))]
        lines.append(
            f"| {row['coordinates']} | {row['steps']} | {row['tau']:g} | {row['any']:.3f} | "
            f"{row['any warning']:.3f} | {', '.join(rest)} |"
        )
    lines += ["", "Releases with one fault, 10 coordinates: the share in which each check spoke.", ""]
    lines += ["| fault | checks |", "|---|---|"]
    for name, shares in result["caught"].items():
        rest = [f"{key} {value:.2f}" for key, value in shares.items() if key.startswith(("note", "warning"))]
        lines.append(f"| {name} | {', '.join(rest)} |")
    lines += [
        "",
        "Coverage of exact 90 % intervals of phi_star by the relaxation times in the window: `trace` priors,",
        "linear gradients, 500 coordinates. The slope sees up to four more; 8 is the threshold.",
        "",
        "| relaxation times | start, sds | seen by the slope | coverage | rms z |",
        "|---|---|---|---|---|",
    ]
    for row in result["coverage"]:
        lines.append(
            f"| {row['relaxation times']:g} | {row['start']:g} | {row['seen by the slope']:.1f} | "
            f"{row['coverage']:.3f} | {row['rms z']:.2f} |"
        )
    lines += ["", "Coverage of 90 % intervals of the first parameter by step size times curvature:", ""]
    lines += ["| model | step | releases | coverage | rms z |", "|---|---|---|---|---|"]
    for row in result["step sizes"]:
        lines.append(
            f"| {row['model']} | {row['step']} | {row['releases']} | {row['coverage']:.3f} | "
            f"{row['rms z']:.2f} |"
        )
    lines += ["", "Seconds of a whole diagnosis:", ""]
    lines += [f"- {name}: {value:.2f}" for name, value in result["seconds"].items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
