"""The named priors of the post-processing model, compared on simulated releases whose theta is known.

Models without predictors, theta drawn from the prior, N = 5,000, T = 1,000, sampling rate 0.1, delta 1e-5,
the exact method. For each model and epsilon all priors see the same releases. Columns: root mean square of
z = (posterior mean - theta) / posterior sd, which is 1 for an honest posterior, coverage of 90 % intervals,
the median posterior sd, and the continuous ranked probability score (CRPS, lower is better), all of theta as
it is sampled. Clip norms hold all but rare gradients, so that clipping's bias does not enter.

Run with ``python benchmarks/priors.py``; results go to ``benchmarks/results/priors.{json,md}``.
"""

import argparse
import itertools
import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from _shared import RESULTS, machine, write_result
from numpy.typing import NDArray

import nadpvi as na
from nadpvi.errors import InferenceWarning
from nadpvi.gradient_model import make_gradient_model
from nadpvi.inference.exact import sample_exact
from nadpvi.models import BernoulliBeta, CategoricalDirichlet, ExponentialGamma, PoissonGamma
from nadpvi.models.base import ExponentialFamily
from nadpvi.private.replicates import replicate_seeds, simulate_releases, simulate_tables

SEED, DRAWS, DELTA, NUM_RECORDS, NUM_STEPS = 5, 400, 1e-5, 5000, 1000
EPSILONS = (0.1, 0.3, 1.0)
PHI_STAR_PRIORS, CURVATURE_PRIORS = ("trace", "model"), ("trace", "weak", "model")
SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "coin": {"kind": "binary", "levels": ["0", "1"]},
            "wait": {"kind": "real", "lower": 0, "upper": 100},
            "class": {"kind": "categorical", "levels": ["0", "1", "2"]},
            "visits": {"kind": "count", "upper": 100},
        }
    }
)


class Case(NamedTuple):
    """A model and the settings of its runs."""

    model: ExponentialFamily
    clip_norm: float
    preconditioner_u: float


CASES = {
    "beta-bernoulli": Case(BernoulliBeta(outcome="coin", prior_alpha=10.0, prior_beta=10.0), 1.0, 60.0),
    "gamma-exponential": Case(ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0), 6.0, 100.0),
    "dirichlet-categorical": Case(
        CategoricalDirichlet(outcome="class", concentration=(5.0, 5.0, 5.0)), math.sqrt(2.0), 100.0
    ),
    "gamma-poisson": Case(PoissonGamma(outcome="visits", prior_shape=8.0, prior_rate=2.0), 10.0, 100.0),
}


def score(theta: NDArray[np.float64], truth: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return z, coverage, sd and CRPS of draws of theta, shape (draws, K), for each parameter."""
    low, high = np.quantile(theta, [0.05, 0.95], axis=0)
    count = len(theta)
    weights = 2.0 * np.arange(1, count + 1) - count - 1.0
    spread = weights @ np.sort(theta, axis=0) / count**2
    return {
        "z": (theta.mean(axis=0) - truth) / theta.std(axis=0, ddof=1),
        "covered": ((low < truth) & (truth < high)).astype(float),
        "sd": theta.std(axis=0, ddof=1),
        "crps": np.abs(theta - truth).mean(axis=0) - spread,
    }


def measure(name: str, *, epsilon: float, num_replicates: int) -> list[dict[str, Any]]:
    """Return one row for each pair of priors."""
    case = CASES[name]
    config = na.DPVIConfig(
        num_steps=NUM_STEPS,
        sampling_rate=0.1,
        clip_norm=case.clip_norm,
        preconditioner_u=case.preconditioner_u,
        learning_rate_constant=1.0,
        initial_u=-4.0,
    )
    seeds = replicate_seeds(SEED, num_replicates=num_replicates)
    tables = simulate_tables(case.model, schema=SCHEMA, num_records=NUM_RECORDS, seeds=seeds)
    budget = na.PrivacyBudget(epsilon=epsilon, delta=DELTA)
    traces = simulate_releases(
        case.model, tables.outcomes, schema=SCHEMA, privacy=budget, seeds=seeds, config=config
    )
    releases = [traces.release(r) for r in range(num_replicates)]
    rows = []
    for phi_star_prior, curvature_prior in itertools.product(PHI_STAR_PRIORS, CURVATURE_PRIORS):
        scores = []
        for r, release in enumerate(releases):
            model = make_gradient_model(
                release,
                phi_star_prior=phi_star_prior,
                curvature_prior=curvature_prior,
                subsampling_noise=True,
            )
            phi_star = sample_exact(model, draws=DRAWS, chains=1, seed=r).phi_star[0]
            noise = np.random.default_rng(r).standard_normal((DRAWS, tables.theta.shape[1]))
            scores.append(score(config.guide.draw(phi_star, noise), tables.theta[r]))
        table = {key: np.array([one[key] for one in scores]) for key in scores[0]}
        rows.append(
            {
                "model": name,
                "epsilon": epsilon,
                "phi_star prior": phi_star_prior,
                "curvature prior": curvature_prior,
                "rms z": float(np.sqrt(np.mean(table["z"] ** 2))),
                "coverage": float(table["covered"].mean()),
                "median sd": float(np.median(table["sd"])),
                "CRPS": float(table["crps"].mean()),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="five replicates; no result is written")
    arguments = parser.parse_args()
    num_replicates = 5 if arguments.quick else arguments.replicates
    warnings.simplefilter("ignore", InferenceWarning)
    rows = [
        row
        for name, epsilon in itertools.product(CASES, EPSILONS)
        for row in measure(name, epsilon=epsilon, num_replicates=num_replicates)
    ]
    if arguments.quick:
        return
    settings = {"seed": SEED, "replicates": num_replicates, "N": NUM_RECORDS, "T": NUM_STEPS}
    print(write_result("priors", {**settings, "machine": machine(), "rows": rows}))
    formats = {"rms z": "{:.2f}", "coverage": "{:.3f}", "median sd": "{:.4f}", "CRPS": "{:.4f}"}
    frame = pd.DataFrame(rows)
    for column, form in formats.items():
        frame[column] = frame[column].map(form.format)
    head = "| " + " | ".join(frame.columns) + " |\n|" + "---|" * frame.shape[1]
    body = "\n".join("| " + " | ".join(map(str, row)) + " |" for row in frame.to_numpy())
    about = (__doc__ or "").split("\n\n")[1]
    (RESULTS / "priors.md").write_text(
        f"# Priors of the post-processing model\n\n{about}\n\n{num_replicates} replicates, seed {SEED}. "
        f"Written by `benchmarks/priors.py`.\n\n{head}\n{body}\n"
    )


if __name__ == "__main__":
    main()
