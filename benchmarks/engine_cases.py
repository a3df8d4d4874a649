"""The tables and settings of the engine benchmark, and the step's gradient by a plain loop."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import autograd.numpy as anp
import numpy as np
import pandas as pd
from autograd import grad

from nadpvi.columns import BinaryColumn, RealColumn
from nadpvi.config import DPVIConfig
from nadpvi.datasets import ADULT_PREDICTORS, adult_schema, load_adult
from nadpvi.description import ModelDescription
from nadpvi.guides.antithetic import draw_antithetic
from nadpvi.models import ExponentialGamma, LinearRegression, LogisticRegression, Model
from nadpvi.models.base import RecordBatch
from nadpvi.private.records import make_records
from nadpvi.schema import Schema
from nadpvi.settings import Settings, make_settings

__all__ = ["CASES", "CHECK_ROWS", "Case", "reference_gradient", "settings_of", "write_case"]

SEED = 1
CHECK_ROWS = 200

# No run is long enough to go anywhere: every timed step does the same work, at the start.
STILL = 1e-12


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, a table that fits it, and the settings of a step."""

    title: str
    model: Model
    schema: Schema
    make_table: Callable[[np.random.Generator], pd.DataFrame]
    clip_norm: float
    preconditioner_u: float
    noise_multiplier: float
    sampling_rate: float = 0.1
    initial_u: float = -3.0

    @property
    def config(self) -> DPVIConfig:
        """The run's settings."""
        return DPVIConfig(
            num_steps=1000,
            sampling_rate=self.sampling_rate,
            clip_norm=self.clip_norm,
            preconditioner_u=self.preconditioner_u,
            learning_rate=STILL,
            monte_carlo_samples=10,
            initial_u=self.initial_u,
        )


def settings_of(case: Case) -> Settings:
    """Return a case's settings, resolved."""
    description = ModelDescription(model=case.model, schema=case.schema, guide=case.config.guide)
    return make_settings(description, case.config, noise_multiplier=case.noise_multiplier)


def write_case(case: Case, folder: Path) -> dict[str, Any]:
    """Write a case's encoded records and settings, which is all that a tool gets, and return its sizes."""
    settings = settings_of(case)
    records = make_records(case.make_table(np.random.default_rng(SEED)), settings.description.design)
    np.save(folder / "x.npy", records.x)
    np.save(folder / "y.npy", records.y)
    sizes = {
        "N": len(records.y),
        "K": len(settings.description.names),
        "D": len(settings.initial_phi),
        "S": settings.monte_carlo_samples,
        "sampling_rate": settings.sampling_rate,
        "clip_norm": settings.clip_norm,
        "noise_multiplier": case.noise_multiplier,
    }
    public = {
        "model": case.model.to_dict(),
        "phi": settings.initial_phi.tolist(),
        "preconditioner": settings.preconditioner.tolist(),
        "learning_rate": settings.learning_rate.tolist(),
    }
    (folder / "case.json").write_text(json.dumps(sizes | public))
    normal = draw_antithetic(np.random.default_rng(SEED), num_draws=sizes["S"], size=sizes["K"])
    np.save(folder / "normal.npy", normal)
    rows = RecordBatch(x=records.x[:CHECK_ROWS], y=records.y[:CHECK_ROWS])
    np.save(folder / "gradient.npy", reference_gradient(settings, normal=normal, rows=rows))
    return sizes


def reference_gradient(settings: Settings, *, normal: np.ndarray, rows: RecordBatch) -> np.ndarray:
    """Return a step's gradient on all of some rows without noise, by autograd and a loop over records."""
    model, design = settings.description.model, settings.description.design
    half = len(settings.initial_phi) // 2

    def draw(phi: np.ndarray) -> np.ndarray:
        return phi[:half] + anp.logaddexp(0.0, phi[half:]) * normal

    def loss(phi: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
        return -anp.mean(model.log_likelihood(draw(phi)[:, None, :], RecordBatch(x=x[None], y=y[None])))

    def public(phi: np.ndarray) -> float:
        entropy = anp.sum(anp.log(anp.logaddexp(0.0, phi[half:])))
        return -anp.mean(model.log_prior(draw(phi), design)) - entropy

    total = np.zeros(2 * half)
    for x, y in zip(rows.x, rows.y, strict=True):
        one = settings.preconditioner * grad(loss)(settings.initial_phi, x, np.asarray(y))
        total += one * min(1.0, settings.clip_norm / max(float(np.linalg.norm(one)), 1e-300))
    return total / settings.preconditioner + grad(public)(settings.initial_phi)


def _real_names(count: int) -> list[str]:
    return [f"x{index}" for index in range(count)]


def _features(count: int, *, bound: float) -> tuple[RealColumn, ...]:
    return tuple(RealColumn(name=name, lower=-bound, upper=bound) for name in _real_names(count))


def _waits(rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame({"wait": rng.exponential(0.25, 5000)})


def _line(rng: np.random.Generator) -> pd.DataFrame:
    table = pd.DataFrame(rng.standard_normal((5000, 10)), columns=_real_names(10))
    return table.assign(y=table.to_numpy() @ rng.normal(0.0, 0.3, 10) + rng.normal(0.0, 0.16, 5000))


def _million(rng: np.random.Generator) -> pd.DataFrame:
    table = pd.DataFrame(rng.uniform(-1.0, 1.0, (1_000_000, 19)), columns=_real_names(19))
    chance = 1.0 / (1.0 + np.exp(-table.to_numpy() @ rng.standard_normal(19)))
    return table.assign(y=np.where(rng.random(len(table)) < chance, "yes", "no"))


def exponential() -> Case:
    """Return waiting times, with the published settings."""
    return Case(
        title="exponential-gamma, N = 5,000, D = 2",
        model=ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0),
        schema=Schema(columns=(RealColumn(name="wait", lower=0.0, upper=10.0),)),
        make_table=_waits,
        clip_norm=2.0,
        preconditioner_u=100.0,
        noise_multiplier=37.331,
    )


def line() -> Case:
    """Return the published linear regression: ten features, a constant, unknown variance."""
    return Case(
        title="linear regression, N = 5,000, D = 24",
        model=LinearRegression(outcome="y"),
        schema=Schema(columns=(*_features(10, bound=4.0), RealColumn(name="y", lower=-8.0, upper=8.0))),
        make_table=_line,
        clip_norm=260.0,
        preconditioner_u=1500.0,
        noise_multiplier=37.331,
    )


def adult() -> Case:
    """Return the demo: income by 57 coefficients."""
    return Case(
        title="logistic regression, Adult, D = 114",
        model=LogisticRegression(outcome="income", predictors=ADULT_PREDICTORS),
        schema=adult_schema(),
        make_table=lambda rng: load_adult("train"),
        clip_norm=12**0.5,
        preconditioner_u=50.0,
        noise_multiplier=11.8665,
    )


def million() -> Case:
    """Return a long table of 19 uniform features."""
    return Case(
        title="logistic regression, N = 1,000,000, D = 40, rate 0.01",
        model=LogisticRegression(outcome="y"),
        schema=Schema(columns=(*_features(19, bound=1.0), BinaryColumn(name="y", levels=("no", "yes")))),
        make_table=_million,
        clip_norm=20**0.5,
        preconditioner_u=50.0,
        noise_multiplier=4.0,
        sampling_rate=0.01,
    )


CASES: dict[str, Callable[[], Case]] = {
    "exponential": exponential,
    "line": line,
    "adult": adult,
    "million": million,
}
