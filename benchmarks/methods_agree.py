"""Exact, NUTS, Laplace and brute force on the same releases, NUTS run long; and calibration of each method.

Releases are simulated: epsilon 1, T = 1,000, window of 800 steps, tau inferred, priors by the trace. All
methods are held against the exact one: differences of means in its sds, and sds over its sds, the worst of
all coordinates. Sds of draws are compared where the kurtosis is below 8; elsewhere an sd rests on a few draws
in ten thousand. The brute force is a grid of 2,000 or more by 200 nodes, on up to 12 coordinates.

Run with ``python benchmarks/methods_agree.py``; results go to ``benchmarks/results/methods_agree.{json,md}``.
"""

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _shared import RESULTS, machine, write_result

from nadpvi.engines.discover import find_engine
from nadpvi.errors import InferenceWarning
from nadpvi.gradient_model import GradientModel, make_gradient_model
from nadpvi.inference.draws import PostProcessingDraws
from nadpvi.inference.exact import ExactMarginals, exact_marginals, sample_exact
from nadpvi.inference.laplace import sample_laplace
from nadpvi.inference.nuts import sample_nuts

# The releases, the brute force and the simulations of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import agreement_cases
import sbc_cases
from exact_reference import brute_force

DRAWS = {"linear_regression": 30_000, "adult": 8_000}
MOST_DRAWS, CHAINS, WARMUP = 60_000, 4, 1000
MOST_KURTOSIS = 8.0
MOST_ON_GRID = 12
CALIBRATED = {"exact": 2000, "nuts": 400, "laplace": 2000}


def nuts(model: GradientModel, *, draws: int) -> PostProcessingDraws:
    """Return long NUTS runs."""
    engine = find_engine("stanli")
    return sample_nuts(
        model, engine=engine, draws=draws, chains=CHAINS, warmup=WARMUP, seed=3, adapt_delta=0.95
    )


def against_grid(model: GradientModel, found: ExactMarginals) -> list[dict[str, Any]]:
    """Return one row a variable: the exact method against brute force."""
    chosen = np.unique(np.linspace(0, model.num_parameters - 1, MOST_ON_GRID).astype(int))
    truths = {d: brute_force(model, int(d), v_count=2000, tau_count=200) for d in chosen}
    rows = []
    for name in ("phi_star", "curvature", "tau"):
        moments = np.array([truth.moments(name) for truth in truths.values()])
        table = getattr(found, name)
        ratio = moments[:, 1] / table.sd[chosen]
        rows.append(
            {
                "method": "grid",
                "variable": name,
                "gap": float(np.abs((moments[:, 0] - table.mean[chosen]) / table.sd[chosen]).max()),
                "gap error": 0.0,
                "least ratio": float(ratio.min()),
                "largest ratio": float(ratio.max()),
                "ratio error": 0.0,
                "sds compared": len(chosen),
            }
        )
    return rows


def against_exact(
    method: str, fitted: PostProcessingDraws, found: ExactMarginals, independent: PostProcessingDraws
) -> list[dict[str, Any]]:
    """Return one row a variable: draws against the exact marginals."""
    rows = []
    for name, table in agreement_cases.compare(fitted, found).items():
        has_sd = agreement_cases.kurtosis(getattr(independent, name)) < MOST_KURTOSIS
        rows.append(
            {
                "method": method,
                "variable": name,
                "gap": float(np.abs(table.gap).max()),
                "gap error": float(table.gap_error.max()),
                "least ratio": float(table.ratio[has_sd].min()),
                "largest ratio": float(table.ratio[has_sd].max()),
                "ratio error": float(table.ratio_error[has_sd].max()),
                "sds compared": int(has_sd.sum()),
            }
        )
    return rows


def measure(case: str, *, draws: int) -> list[dict[str, Any]]:
    """Return the rows of one release."""
    model = make_gradient_model(agreement_cases.make_case(case), subsampling_noise=True)
    found = exact_marginals(model, probabilities=(0.05, 0.5, 0.95), grid_size=0)
    independent = sample_exact(model, draws=20_000, chains=4, seed=4)
    rows = against_grid(model, found)
    runs = {
        "exact draws": independent,
        "nuts": nuts(model, draws=draws),
        "laplace": sample_laplace(model, draws=20_000, chains=4, seed=1),
    }
    for method, fitted in runs.items():
        rows += against_exact(method, fitted, found, independent)
    about = {"model": case, "size": model.num_parameters}
    return [{**about, **row, "draws": draws * CHAINS if row["method"] == "nuts" else None} for row in rows]


def calibrate(method: str, *, size: int) -> dict[str, Any]:
    """Return p-values of uniform ranks under fixed priors, tau inferred, also with every sd halved."""
    model, truth = sbc_cases.simulate(size, use_tau=True, seed=11)
    calls: dict[str, Callable[[], PostProcessingDraws]] = {
        "exact": lambda: sample_exact(model, draws=199, chains=1, seed=5),
        "nuts": lambda: sbc_cases.sample_in_parts(model, engine=find_engine("stanli"), draws=199),
        "laplace": lambda: sample_laplace(model, draws=199, chains=1, seed=5),
    }
    fitted = calls[method]()
    return {
        "method": method,
        "replicates": size,
        "p_values": sbc_cases.rank_p_values(fitted, truth, num_bins=20),
        "halved": sbc_cases.rank_p_values(sbc_cases.narrowed(fitted, factor=0.5), truth, num_bins=20),
    }


def write_page(result: dict[str, Any]) -> Path:
    """Write the results as a page of Markdown."""
    lines = ["# Methods on the same releases", "", *(__doc__ or "").split("\n\n")[1].splitlines(), ""]
    lines += [
        "Brackets hold the largest Monte Carlo standard error. `exact draws` are 80,000 draws of the exact",
        "method, `laplace` 80,000. Written by `benchmarks/methods_agree.py`.",
        "",
        "| model | D | variable | method | draws | worst gap of means | sd over exact sd | sds compared |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in result["compared"]:
        draws = f"{row['draws']:,}" if row["draws"] else ""
        gap = f"{row['gap']:.4f} ({row['gap error']:.4f})"
        ratio = f"{row['least ratio']:.4f} to {row['largest ratio']:.4f} ({row['ratio error']:.4f})"
        cells = [row["model"], row["size"], row["variable"], row["method"], draws, gap, ratio]
        lines.append("| " + " | ".join(map(str, [*cells, row["sds compared"]])) + " |")
    lines += [
        "",
        "Calibration: truths from fixed priors, simulated descents of 60 steps, 199 draws, 20 bins of ranks.",
        "P-values of uniform ranks; in brackets, those of the same draws with every sd halved. Laplace's",
        "Gaussian is not expected to pass: here a curvature is often known to no better than its own size.",
        "",
        "| method | replicates | phi_star | v | tau |",
        "|---|---|---|---|---|",
    ]
    for row in result["calibrated"]:
        cells = [f"{row['p_values'][name]:.2g} ({row['halved'][name]:.1g})" for name in row["p_values"]]
        lines.append("| " + " | ".join([row["method"], str(row["replicates"]), *cells]) + " |")
    about = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    path: Path = RESULTS / "methods_agree.md"
    path.write_text("\n".join([*lines, "", f"Machine: {about}.", ""]))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small model; no result is written")
    is_quick = parser.parse_args().quick
    warnings.simplefilter("ignore", InferenceWarning)
    compared: list[dict[str, Any]] = []
    for case in ("bernoulli_beta",) if is_quick else agreement_cases.CASES:
        compared += measure(case, draws=500 if is_quick else DRAWS.get(case, MOST_DRAWS))
        print(*compared[-12:], sep="\n", flush=True)
    sizes = dict.fromkeys(CALIBRATED, 40) if is_quick else CALIBRATED
    result = {
        "machine": machine(),
        "compared": compared,
        "calibrated": [calibrate(method, size=size) for method, size in sizes.items()],
    }
    print(*result["calibrated"], sep="\n")
    if not is_quick:
        print(write_result("methods_agree", result))
        print(write_page(result))


if __name__ == "__main__":
    main()
