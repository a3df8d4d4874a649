"""What DPVIm's alignment could buy with suggested settings: a bound, without running it.

With alignment only locations are clipped and noised, and gradients of the scales are their image under the
reparameterisation (Jälkö et al. 2023). At the very best that would let the clip norm be chosen for locations
alone and leave the scales without any error. ``python benchmarks/alignment.py`` compares the expected sds
of the parameters in that case with those of the suggested settings, under the noise of the same window, and
writes ``benchmarks/results/alignment.json``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import suggested_regressions
from _shared import machine, write_result

import nadpvi as na
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema
from nadpvi.description import ModelDescription
from nadpvi.experiments.configuration import load_experiment
from nadpvi.experiments.sources import make_setting
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, window_start
from nadpvi.mechanism import make_mechanism
from nadpvi.planning.clipping import least_clip_norm
from nadpvi.planning.predictive import predict_gradients

CONJUGATE = ("beta-bernoulli", "dirichlet-categorical", "gamma-exponential")


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names with the arguments of `suggest_config` but for the budget."""
    for name in CONJUGATE:
        setting = make_setting(load_experiment(name).tasks()[0].settings["source"])
        yield name, {"model": setting.model, "schema": setting.schema, "num_records": 5000}
    setting = make_setting({"kind": "linear-regression"})
    yield (
        "linear regression",
        {
            "model": setting.model,
            "schema": setting.schema,
            "num_records": 5000,
            "covariates": setting.covariates,
        },
    )
    for name, (model, outcome) in suggested_regressions.MODELS.items():
        schema = na.Schema.from_dict({"columns": suggested_regressions.PREDICTORS | {"y": outcome}})
        yield name, {"model": model, "schema": schema, "num_records": 10_000}
    adult = na.models.LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS)
    yield "adult", {"model": adult, "schema": adult_schema(), "num_records": 30_000}


def bound(settings: dict[str, Any], *, epsilon: float) -> dict[str, float]:
    """Return the ratios of expected sds, aligned at best over suggested: their median and least."""
    privacy = na.PrivacyBudget(epsilon=epsilon, delta=1e-5)
    model, schema = settings["model"], settings["schema"]
    config = na.suggest_config(privacy=privacy, **settings)
    description = ModelDescription(model=model, schema=schema, guide=config.guide)
    sigma = make_mechanism(description, privacy=privacy, config=config).noise_multiplier
    window = config.num_steps - window_start(config.num_steps, burn_in=DEFAULT_BURN_IN)
    noise = sigma / (config.sampling_rate * np.sqrt(window))
    found = predict_gradients(
        description,
        num_records=settings["num_records"],
        num_draws=config.monte_carlo_samples,
        rng=np.random.default_rng(0),
        covariates=settings.get("covariates"),
    )
    alone = least_clip_norm(found, norms=np.linalg.norm(found.gradients, axis=2), noise=noise)
    assert config.clip_norm is not None
    scale_error = min(0.5 * noise * config.clip_norm / config.preconditioner_u, 1.0)

    def expected(clip_norm: float, error: float) -> np.ndarray:
        told = np.minimum(noise * clip_norm / found.typical, found.prior_sd)
        return np.sqrt((1.0 + error**2) / found.typical + told**2)

    ratio = expected(alone, 0.0) / expected(config.clip_norm, scale_error)
    return {
        "clip norm": config.clip_norm,
        "clip norm of locations alone": alone,
        "error of log scales": scale_error,
        "median ratio": float(np.median(ratio)),
        "least ratio": float(ratio.min()),
    }


def main() -> None:
    """Work out every case at two budgets, print it and write it."""
    rows = [
        {"model": name, "epsilon": epsilon, **bound(settings, epsilon=epsilon)}
        for name, settings in cases()
        for epsilon in (0.1, 1.0)
    ]
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.4g}".format))
    print("written:", write_result("alignment", {"machine": machine(), "rows": rows}).name)


if __name__ == "__main__":
    main()
