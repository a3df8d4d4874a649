"""Recovery of tau, the noise that subsampling adds, where its truth can be computed.

Many simulated releases of one table. The variance of a noisy gradient at the optimum is worked out from the
records: Poisson sampling adds ``rate * (1 - rate) * sum g_i^2`` with g_i a record's clipped gradient, and the
guide's draws, which a step shares, add the variance of the whole sum over them. The optimum is the root of
the mean clipped gradient. Compared are posteriors by quadrature without tau, and with half-normal priors of
several scales. The result goes to ``benchmarks/results/subsampling.json`` and ``subsampling.md``.
"""

import argparse
from typing import Any, NamedTuple

import numpy as np
from _shared import RESULTS, machine, write_result
from numpy.typing import NDArray
from scipy import optimize

import nadpvi as na
from nadpvi.gradient_model import make_gradient_model
from nadpvi.guides.antithetic import antithetic, num_independent
from nadpvi.inference.exact import exact_marginals
from nadpvi.mechanism import Mechanism
from nadpvi.models.base import RecordBatch
from nadpvi.private.dpvi import public_gradient
from nadpvi.private.replicates import replicate_seeds, simulate_releases
from nadpvi.private.replicates.steps import statistic_gradients

Array = NDArray[np.float64]

SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "heads": {"kind": "binary", "levels": ["no", "yes"]},
            "wait": {"kind": "real", "lower": 0, "upper": 5},
        }
    }
)
SCALES = (0.25, 1.0, 2.0, 8.0)
PROBABILITIES = (0.05, 0.5, 0.95)


class Truth(NamedTuple):
    """The optimum of the clipped problem and the true tau there, each of shape (D,)."""

    phi_star: Array
    tau: Array


def truth_of(mechanism: Mechanism, outcomes: Array, *, num_draws: int = 4000, seed: int = 0) -> Truth:
    """Return the optimum and the sd that subsampling and the guide's draws add to a gradient there.

    Parameters
    ----------
    mechanism : Mechanism
        Of the runs.
    outcomes : ndarray, shape (N,)
        The table; few of them differ, or few are enough.
    num_draws : int
        Steps' draws of the guide that expectations are averages over.
    """
    settings = mechanism.settings
    description, guide = settings.description, settings.description.guide
    model, num_params = description.model, len(description.names)
    values, counts = np.unique(outcomes, return_counts=True)
    batch = RecordBatch(x=np.empty((len(values), 0)), y=values)
    statistics = np.column_stack([model.statistics(batch, num_params=num_params), np.ones(len(values))])
    size = settings.monte_carlo_samples
    shape = (num_draws, num_independent(size), guide.num_noise(num_params))
    pairs = antithetic(
        np.random.default_rng(seed).standard_normal(shape), out=np.empty((num_draws, size, shape[2]))
    )
    normal = np.moveaxis(pairs, 1, 0)
    beta, rate = settings.preconditioner, settings.sampling_rate

    def gradients(phi: Array) -> tuple[Array, Array]:
        """Return each draw's sum of clipped gradients with the public part, and its sum of squares."""
        wide = np.broadcast_to(phi, (num_draws, len(phi)))
        theta = guide.draw(wide, normal)
        matrix = statistic_gradients(model, guide=guide, phi=wide, standard_normal=normal, theta=theta) * beta
        public = public_gradient(description, phi=wide, standard_normal=normal, theta=theta)
        total, squares = np.zeros_like(wide), np.zeros_like(wide)
        for row, count in zip(statistics, counts, strict=True):
            gradient = np.tensordot(row, matrix, axes=1)
            norm = np.linalg.norm(gradient, axis=1, keepdims=True)
            gradient /= beta * np.maximum(norm / settings.clip_norm, 1.0)
            total += count * gradient
            squares += count * gradient**2
        return total + public, squares

    start = settings.initial_phi
    found = optimize.least_squares(
        lambda phi: gradients(phi)[0].mean(axis=0),
        start,
        bounds=(start - 3.0, start + 3.0),  # further out a scale's gradient vanishes too
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-14,
    )
    assert np.abs(found.fun).max() < 0.01, found.message
    total, squares = gradients(found.x)
    variance = rate * (1.0 - rate) * squares.mean(axis=0) + rate**2 * total.var(axis=0)
    return Truth(found.x, np.sqrt(variance))


def cases() -> dict[str, tuple[Any, Array, dict[str, Any]]]:
    """Return models, tables and settings by name."""
    rng = np.random.default_rng(5)
    heads = (rng.random(5000) < 0.7).astype(float)
    # On a grid, so that few values differ.
    wait = np.clip(np.round(rng.exponential(1 / 3.0, 5000), 2), 0.01, 5.0)
    return {
        "Beta-Bernoulli": (
            na.models.BernoulliBeta(outcome="heads", prior_alpha=10.0, prior_beta=10.0),
            heads,
            {"clip_norm": 1.0, "preconditioner_u": 60.0},
        ),
        "exponential-gamma": (
            na.models.ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0),
            wait,
            {"clip_norm": 2.0, "preconditioner_u": 50.0},
        ),
    }


def study(name: str, *, epsilon: float, replicates: int) -> list[dict[str, Any]]:
    """Return one row a coordinate and prior of tau; scale 0 is no tau."""
    model, table, settings = cases()[name]
    config = na.DPVIConfig(
        num_steps=1000, learning_rate_constant=1.0 if epsilon < 4 else 0.2, initial_u=-3.5, **settings
    )
    traces = simulate_releases(
        model,
        [table] * replicates,
        schema=SCHEMA,
        privacy=na.PrivacyBudget(epsilon=epsilon, delta=1e-5),
        seeds=replicate_seeds(11, num_replicates=replicates),
        config=config,
    )
    truth = truth_of(traces.mechanism, table)
    noise_std = traces.release(0).noise_std
    rows = []
    for scale in (0.0, *SCALES):
        found = [
            exact_marginals(
                make_gradient_model(
                    traces.release(i), subsampling_noise=scale > 0, subsampling_scale=scale or 1.0
                ),
                probabilities=PROBABILITIES,
                grid_size=0,
            )
            for i in range(replicates)
        ]
        for k, label in enumerate(traces.release(0).phi_labels):
            low, _, high = np.array([item.phi_star.quantiles[:, k] for item in found]).T
            mean, sd = np.array([(item.phi_star.mean[k], item.phi_star.sd[k]) for item in found]).T
            z = (mean - truth.phi_star[k]) / sd
            row = {
                "model": name,
                "epsilon": epsilon,
                "coordinate": label,
                "true tau": truth.tau[k],
                "true tau / noise": truth.tau[k] / noise_std[k],
                "prior scale / noise": scale,
                "coverage of phi_star": float(
                    ((low < truth.phi_star[k]) & (truth.phi_star[k] < high)).mean()
                ),
                "rms z of phi_star": float(np.sqrt(np.mean(z**2))),
            }
            if scale > 0:
                low, median, high = np.array([item.tau.quantiles[:, k] for item in found]).T
                row |= {
                    "tau mean / truth": float(np.mean([item.tau.mean[k] for item in found]) / truth.tau[k]),
                    "tau median / truth": float(median.mean() / truth.tau[k]),
                    "coverage of tau": float(((low < truth.tau[k]) & (truth.tau[k] < high)).mean()),
                }
            rows.append(row)
    return rows


def main() -> None:
    """Run the study, print it and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=200)
    arguments = parser.parse_args()
    rows = []
    for name in cases():
        for epsilon in (1.0, 8.0):
            rows += study(name, epsilon=epsilon, replicates=arguments.replicates)
            print(name, epsilon, flush=True)
    result = {"machine": machine(), "replicates": arguments.replicates, "rows": rows}
    print(report(result))
    print("written:", write_result("subsampling", result).name)
    (RESULTS / "subsampling.md").write_text(report(result))


def report(result: dict[str, Any]) -> str:
    """Return the result as a page."""
    lines = [
        "# Recovery of tau, the noise that subsampling adds",
        "",
        f"`benchmarks/subsampling.py`, {result['replicates']} simulated releases a row.",
        "N = 5,000, T = 1,000, rate 0.1, posteriors by quadrature. Truth from the records: the sampling",
        "variance of clipped gradients at the optimum plus that of the guide's draws. The prior of tau is",
        "half-normal, its scale given in noise sds; 0 is `subsampling_noise=False`, and 2 the default.",
        "Coverage is of 90 % intervals.",
        "",
        "| model | epsilon | coordinate | true tau / noise | prior scale | tau mean / truth | "
        "median / truth | coverage of tau | coverage of phi_star | rms z |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        tau = [
            f"{row[key]:.3f}" if key in row else ""
            for key in ("tau mean / truth", "tau median / truth", "coverage of tau")
        ]
        lines.append(
            f"| {row['model']} | {row['epsilon']:g} | {row['coordinate']} | {row['true tau / noise']:.2f} | "
            f"{row['prior scale / noise']:g} | {' | '.join(tau)} | {row['coverage of phi_star']:.3f} | "
            f"{row['rms z of phi_star']:.2f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
