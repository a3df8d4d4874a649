"""Theory against the engine, at larger sizes than ``tests/test_theory_*.py``, whose cases these are.

Four tables: how settled iterates spread, in steps, in continuous time, and as section 11 of the paper prints
it; how well a trace tells the curvature, by the number of relaxation times it holds; the bound behind the
step size; and how far the sum over a Poisson sample is from a Gaussian. Written to
``benchmarks/results/theory.json`` and ``theory.md``.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from _shared import RESULTS, machine, write_result
from numpy.typing import NDArray

# The cases of the tests, whose loss is known.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import test_theory_learning_rate as bound_cases
import test_theory_subsampling as sampling_cases
from theory_cases import CURVATURE, OPTIMUM, RATE, STEPS, coin_runs

from nadpvi.theory import (
    convergence_bound,
    curvature_variance,
    expected_squared_distance,
    least_curvature_variance,
    optimal_learning_rate,
    subsampled_sum,
)

Array = NDArray[np.float64]
Rows = list[dict[str, Any]]


def spread_rows(num_replicates: int) -> Rows:
    """Return the variance of settled iterates over what three formulas say, by step size."""
    rows = []
    for step in (0.1, 0.2, 0.4, 0.8, 1.2, 1.6):
        runs = coin_runs(step=step, num_replicates=num_replicates)
        squares = np.square(runs.phi[:, STEPS // 2 :] - OPTIMUM).mean(axis=1)
        law = {"sampling_rate": RATE, "learning_rate": runs.learning_rate, "noise_std": runs.noise_std}
        exact = expected_squared_distance([CURVATURE], **law)
        # The last line of section 11 as it is printed, without kappa in its second term.
        per_record = runs.learning_rate * CURVATURE
        printed = runs.learning_rate * runs.noise_std**2 / RATE / CURVATURE / (2.0 - per_record)
        rows.append(
            {
                "lambda kappa a": step,
                "exact": float(squares.mean() / exact),
                "standard error": float(squares.std() / exact / np.sqrt(num_replicates)),
                "continuous": float(
                    squares.mean() / expected_squared_distance([CURVATURE], is_continuous=True, **law)
                ),
                "as printed": float(squares.mean() / printed),
            }
        )
    return rows


def curvature_rows(num_replicates: int) -> Rows:
    """Return bias and variance of the curvature's estimate with the optimum known, by relaxation times."""
    rows = []
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        runs = coin_runs(step=step, num_replicates=num_replicates)
        distance = runs.phi - OPTIMUM
        estimates = np.sum(runs.gradient * distance, axis=1) / (RATE * np.sum(distance**2, axis=1))
        variances = curvature_variance(distance.T, sampling_rate=RATE, noise_std=runs.noise_std)
        least = [
            least_curvature_variance(STEPS, radius=radius, sampling_rate=RATE, noise_std=[runs.noise_std])
            for radius in np.abs(distance).max(axis=1)
        ]
        scores = (estimates - estimates.mean()) / np.sqrt(variances)
        rows.append(
            {
                "relaxation times": step * STEPS,
                "bias": float(estimates.mean() / CURVATURE - 1.0),
                "2 rho / (n lambda kappa a)": 2.0 * (1.0 - step) / (step * STEPS),
                "sd": float(estimates.std() / CURVATURE),
                "by theorem 2": float(np.sqrt(variances.mean()) / CURVATURE),
                "variance of scores": float(scores.var()),
                "standard error": float(np.square(scores).std() / np.sqrt(num_replicates)),
                "over the bound of the ball": float(np.median(variances / least)),
            }
        )
    return rows


def bound_rows() -> Rows:
    """Return the mean squared gradient of runs and its bound, by factor of the optimal step."""
    problem, found = bound_cases.measure()
    best = optimal_learning_rate(problem)
    return [
        {
            "step / optimal": factor,
            "mean squared gradient": float(squares),
            "bound": float(convergence_bound(problem, learning_rate=factor * best)),
        }
        for factor, squares in found.items()
    ]


def distance_rows(num_replicates: int) -> Rows:
    """Return how far sums over a sample are from their Gaussian, by model and size."""
    cases = {
        "coin, one head in 40": sampling_cases.coin(1, 40, theta=-2.0, sampling_rate=0.05),
        "coin, 30 % heads": sampling_cases.coin(300, 1000, theta=0.4),
        **{f"exponential waits ({size})": sampling_cases.waits(size) for size in (100, 400, 1000, 5000)},
        "clipped counts": sampling_cases.visits(),
    }
    rows = []
    for name, case in cases.items():
        values, _ = sampling_cases.sums_of(case, num_replicates=num_replicates)
        expected = subsampled_sum(case.clipped, sampling_rate=case.sampling_rate)
        rows.append(
            {
                "case": name,
                "N": len(case.table),
                "rate": case.sampling_rate,
                "variance / expected": float(values.var() / expected.covariance[0, 0]),
                "distance": float(sampling_cases.distance_to_gaussian(values, expected)),
                "by skewness": float(expected.expected_distance[0]),
                "bound": float(expected.distance_bound[0]),
            }
        )
    return rows


def table(rows: Rows) -> list[str]:
    """Return rows as a Markdown table."""
    names = list(rows[0])
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells: Iterable[str] = (value if isinstance(value, str) else f"{value:.4g}" for value in row.values())
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def report(result: dict[str, Any]) -> str:
    """Return the result as a page."""
    about = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    lines = [
        "# Theory against the engine",
        "",
        f"`python benchmarks/theory.py`, {result['seconds']:.0f} s by the clock, one core of a busy machine.",
        f"The first two tables are of {result['replicates']:,} simulated releases of one coin table",
        f"(N = 40,000, rate {RATE}, T = {STEPS}, sigma from epsilon 0.2), the",
        "guide held at a point, so that optimum, curvature and noise are known.",
        "",
        "## Variance of settled iterates over what formulas say",
        "",
        "`exact`: section 11 with its last line corrected. `continuous`: the Ornstein-Uhlenbeck process of",
        "theorem 3. `as printed`: without kappa in front of l^2; negative where that line has no meaning.",
        "",
        *table(result["spread"]),
        "## Curvature from a trace whose optimum is known",
        "",
        "Relative to the curvature. Theorem 2 takes iterates as given; in a run they follow the noise, which",
        "biases the estimate upwards, by 2 rho / (n lambda kappa a) where relaxation times are many. The",
        "last column is theorem 2's variance over its least value for iterates in the ball that held them.",
        "",
        *table(result["curvature"]),
        "## The bound behind the step size (theorem 4)",
        "",
        *table(result["bound"]),
        "## Sums over one Poisson sample, and their Gaussian (Eq. 9)",
        "",
        f"Largest difference of distribution functions over {result['samples']:,} samples of the engine",
        "without privacy noise, what skewness alone makes it (first term of Edgeworth's expansion), and the",
        "bound of Berry and Esseen.",
        "",
        *table(result["distance"]),
        f"Machine: {about}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    """Run everything, print it and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=4000)
    parser.add_argument("--quick", action="store_true", help="small sizes; no result is written")
    arguments = parser.parse_args()
    size = 100 if arguments.quick else arguments.replicates
    start = time.perf_counter()
    result: dict[str, Any] = {
        "replicates": size,
        "samples": size // 4 * sampling_cases.STEPS,
        "spread": spread_rows(size),
        "curvature": curvature_rows(size),
        "bound": bound_rows(),
        "distance": distance_rows(size // 4),
    }
    result |= {"seconds": round(time.perf_counter() - start, 1), "machine": machine()}
    print(report(result))
    if not arguments.quick:
        print("written:", write_result("theory", result).name)
        (RESULTS / "theory.md").write_text(report(result))


if __name__ == "__main__":
    main()
