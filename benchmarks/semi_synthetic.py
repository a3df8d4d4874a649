"""Coverage where the truth is known: Adult's covariates, coefficients from the prior, simulated outcomes.

Each replicate draws theta ~ N(0, I), outcomes from the model and simulated releases (epsilon 1, delta 1e-5,
T = 1,000, C 3.5, beta_u 50), and asks whether each coefficient's 90 % interval holds the truth. A second
moment released beside the trace spends its share of the squared mu of Gaussian differential privacy; the
trace spends the rest. The result goes to ``benchmarks/results/semi-synthetic.json`` and ``.md``.
"""

import argparse
import dataclasses
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from _shared import RESULTS, machine, write_result
from scipy.stats import norm
from semi_synthetic_tables import BURN_IN, CONFIG, MODEL, Table, make_release, make_table

import nadpvi as na
from nadpvi.arviz_bridge import as_draws, convergence
from nadpvi.baselines import last_iterate_posterior, non_private_posterior
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.release import Release
from nadpvi.datasets import adult_schema
from nadpvi.gradient_model import make_gradient_model
from nadpvi.gradient_model.dense.density import conditional_phi_star, squares
from nadpvi.gradient_model.dense.known import make_dense_prior
from nadpvi.gradient_model.dense.setup import make_dense_model
from nadpvi.inference.dense import sample_dense
from nadpvi.inference.draws import PostProcessingDraws
from nadpvi.inference.exact import sample_exact

CHAINS = 4


class Answer(NamedTuple):
    """Marginals of the coefficients, the worst R-hat of phi_star and of log curvature, and CPU seconds."""

    mean: np.ndarray
    sd: np.ndarray
    low: np.ndarray
    high: np.ndarray
    r_hat: float = float("nan")
    r_hat_curvature: float = float("nan")
    ess: float = float("nan")
    seconds: float = float("nan")


def by_summary(posterior: Posterior) -> Answer:
    """Return the marginals of a finished posterior."""
    table = posterior.summary()
    return Answer(*(table[name].to_numpy() for name in ("mean", "sd", "5%", "95%")))


def mixture(table: Table, release: Release, drawn: PostProcessingDraws, *, seconds: float) -> Answer:
    """Return the coefficients' marginals: the guide mixed over draws of phi_star."""
    size = table.theta.size
    noise = np.random.default_rng([table.seed, 3]).standard_normal((*drawn.phi_star.shape[:2], size))
    theta = release.description.guide.draw(drawn.phi_star, noise).reshape(-1, size)
    low, high = np.quantile(theta, [0.05, 0.95], axis=0)
    checks = []
    if drawn.sample_stats:
        kept = {"phi_star": drawn.phi_star[..., :size], "log_a": np.log(drawn.curvature[..., :size])}
        found = convergence(as_draws(kept))
        checks = [float(found["r_hat"][name].max()) for name in ("phi_star", "log_a")]
        checks.append(float(found["ess_bulk"]["phi_star"].min()))
    return Answer(theta.mean(axis=0), theta.std(axis=0), low, high, *checks)._replace(seconds=seconds)


def diagonal(table: Table, cache: Path, sizes: tuple[int, int]) -> Answer:
    """Return the exact method's answer."""
    release = make_release(table, share=0.0, cache=cache)
    start = time.process_time()
    model = make_gradient_model(release, burn_in=BURN_IN, phi_star_prior="model", subsampling_noise=True)
    drawn = sample_exact(model, draws=1000, chains=CHAINS, seed=table.seed)
    return mixture(table, release, drawn, seconds=time.process_time() - start)


def dense(*, share: float = 0.0, use_schema: bool = True) -> Callable[..., Answer]:
    """Return the dense method with what it may use besides the trace."""

    def answer(table: Table, cache: Path, sizes: tuple[int, int]) -> Answer:
        release = make_release(table, share=share, cache=cache)
        start = time.process_time()
        drawn = sample_dense(
            make_gradient_model(release, burn_in=BURN_IN, phi_star_prior="model", subsampling_noise=True),
            release=release,
            burn_in=BURN_IN,
            draws=sizes[0],
            chains=CHAINS,
            warmup=sizes[1],
            seed=table.seed,
            prior=make_dense_prior(release, use_schema=use_schema),
        )
        return mixture(table, release, drawn, seconds=time.process_time() - start)

    return answer


def true_hessian(table: Table, cache: Path, sizes: tuple[int, int]) -> Answer:
    """Draw the locations from their conditional under the true Hessian, with the residuals' variances."""
    release = make_release(table, share=0.0, cache=cache)
    model = make_gradient_model(release, burn_in=BURN_IN, phi_star_prior="model", subsampling_noise=True)
    block = make_dense_model(release, model=model, burn_in=BURN_IN)
    curvature, known = table.hessian[None], np.square(block.noise_std)[None]
    variance = known
    for _ in range(3):
        mean, precision = conditional_phi_star(block, curvature=curvature, variance=variance)
        found = squares(block, curvature=curvature, phi_star=mean) / block.sums.num_steps
        variance = np.maximum(known, found)
    drawn = sample_exact(model, draws=1000, chains=CHAINS, seed=table.seed)
    size = table.theta.size
    normal = np.random.default_rng([table.seed, 2]).standard_normal((size, CHAINS * 1000))
    locations = mean[0] + np.linalg.solve(np.linalg.cholesky(precision[0]).T, normal).T
    phi_star = np.concatenate([locations.reshape(CHAINS, 1000, size), drawn.phi_star[..., size:]], axis=2)
    return mixture(table, release, dataclasses.replace(drawn, phi_star=phi_star), seconds=float("nan"))


ROWS: dict[str, Callable[[Table, Path, tuple[int, int]], Answer]] = {
    "non-private": lambda table, cache, sizes: by_summary(
        non_private_posterior(MODEL, table.rows, schema=adult_schema(), seed=table.seed)
    ),
    "last iterate": lambda table, cache, sizes: by_summary(
        last_iterate_posterior(make_release(table, share=0.0, cache=cache), seed=table.seed)
    ),
    "diagonal, exact": diagonal,
    "dense, trace alone": dense(use_schema=False),
    "dense, schema's pattern": dense(),
    "dense, pattern and second moment for 10 % of the budget": dense(share=0.1),
    "dense, pattern and second moment for 20 % of the budget": dense(share=0.2),
    "dense, pattern and second moment for 30 % of the budget": dense(share=0.3),
    "dense, no pattern, second moment for 20 % of the budget": dense(share=0.2, use_schema=False),
    "true Hessian known": true_hessian,
}


FURTHER = tuple(name for name in ROWS if any(word in name for word in ("10 %", "30 %", "no pattern")))


def score(table: Table, answer: Answer) -> dict[str, float]:
    """Return how one posterior did."""
    z = (answer.mean - table.theta) / answer.sd
    checks = {name: getattr(answer, name) for name in ("r_hat", "r_hat_curvature", "ess", "seconds")}
    return {
        "mean square z": float(np.mean(np.square(z))),
        "coverage": float(np.mean((answer.low < table.theta) & (table.theta < answer.high))),
        "median sd": float(np.median(answer.sd)),
        "log score": float(np.mean(norm.logpdf(z) - np.log(answer.sd))),
        **{name: value for name, value in checks.items() if not np.isnan(value)},
    }


def summarise(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Return the means over replicates, one row a posterior, with the worst R-hats."""
    groups = pd.DataFrame(rows).drop(columns="seed").groupby("posterior", sort=False)
    means, worst = groups.mean(), groups.max()
    return pd.DataFrame(
        {
            "rms of z": np.sqrt(means["mean square z"]),
            "coverage of 90 % intervals": means["coverage"],
            "its standard error": groups["coverage"].sem(),
            "median sd": means["median sd"],
            "log score": means["log score"],
            "R-hat of phi_star, mean over replicates of the worst": means["r_hat"],
            "worst of all": worst["r_hat"],
            "R-hat of log curvature, mean of the worst": means["r_hat_curvature"],
            "least effective draws": groups["ess"].min(),
            "CPU seconds": means["seconds"],
            "replicates": groups.size(),
        }
    )


def to_markdown(table: pd.DataFrame, sizes: tuple[int, int]) -> str:
    """Return the table with a line on how it came about."""
    names = ["posterior", *table.columns]
    body = [
        [str(name), *("" if np.isnan(v) else f"{v:.0f}" if v >= 30 else f"{v:.3g}" for v in row)]
        for name, row in zip(table.index, table.to_numpy(), strict=True)
    ]
    lines = [names, ["---"] * len(names), *body]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    settings = f"Dense rows: {CHAINS} chains of {sizes[1]} transitions of warm-up and {sizes[0]} draws."
    return f"# Semi-synthetic Adult\n\n{__doc__.split(chr(10), 2)[2].strip()}\n\n{settings}\n\n{text}\n"


def run_rows(arguments: argparse.Namespace, sizes: tuple[int, int]) -> list[dict[str, object]]:
    """Return a row of the long table for each replicate and posterior; what is in the cache is not redone."""
    rows: list[dict[str, object]] = []
    for seed in range(arguments.first, arguments.first + arguments.replicates):
        table = None
        for number, name in enumerate(ROWS):
            path = arguments.cache / f"score-{number}-{seed}-{sizes[0]}-{sizes[1]}.json"
            is_late = name in FURTHER and seed >= arguments.first + arguments.further
            if name not in arguments.rows or is_late:
                continue
            if not path.exists():
                table = make_table(seed) if table is None else table
                path.write_text(json.dumps(score(table, ROWS[name](table, arguments.cache, sizes))))
            rows.append({"posterior": name, "seed": seed, **json.loads(path.read_text())})
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Run all replicates, print the table and write it. A long study may be stopped and resumed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--further", type=int, default=20, help="replicates of the rows in FURTHER")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--warmup", type=int, default=400)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "nadpvi-semi-synthetic")
    arguments = parser.parse_args()
    sizes = arguments.draws, arguments.warmup
    arguments.cache.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", na.InferenceWarning)
    rows = run_rows(arguments, sizes)
    means = summarise(rows)
    print(means.to_string(float_format="{:.3f}".format))
    result = {
        "machine": machine(),
        "config": CONFIG.to_dict(),
        "draws": sizes[0],
        "warmup": sizes[1],
        "mean": means.astype(object).where(means.notna(), None).to_dict(orient="index"),
        "rows": rows,
    }
    print("written:", write_result("semi-synthetic", result).name)
    (RESULTS / "semi-synthetic.md").write_text(to_markdown(means, sizes))


if __name__ == "__main__":
    main()
