"""`tune`: settings for a model and a budget, found by trying them on tables drawn from the prior."""

import dataclasses
import hashlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.checks import check_count
from nadpvi.config import DPVIConfig
from nadpvi.coverage import coverage_rmse, coverage_rmse_bound
from nadpvi.errors import ArgumentError, NadpviError
from nadpvi.experiments.runner import run_tasks
from nadpvi.experiments.tasks import Task
from nadpvi.folders import cache_dir
from nadpvi.models.base import ExponentialFamily, Model, SimulatingModel
from nadpvi.planning.suggestion import suggest_config
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.parameters import ONE_RECORD
from nadpvi.privacy.randomness import check_seed
from nadpvi.schema import Schema
from nadpvi.tuning.candidates import make_candidates
from nadpvi.tuning.trial import run_trial

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Tuned", "tune"]

Array = NDArray[np.float64]

# How many settings are tried on how many tables; the best third goes on to more.
_RUNGS = ((32, 90), (12, 360), (5, 1500))
_MOST_MISCALIBRATION = 0.05  # of the sd of z
# Sharper settings have the better CRPS as long as they are a little overconfident; so these come first.
_WANTED_MISCALIBRATION = 0.02
_MOST_BIAS = 0.1  # of the mean of z


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tuned:
    """Settings, and how they were found.

    Attributes
    ----------
    config : DPVIConfig
        The best settings.
    table : DataFrame
        A row for each trial: ``rung``, the settings, ``tables``, mean ``crps`` and median ``sd`` in units of
        the prior's sd, mean and sd of z, ``rmse`` of the joint coverage, ``is_calibrated``, and ``failure``,
        why a trial has no numbers.
    is_calibrated : bool
        Whether, on the last rung, the sd of z is within 0.95 to 1.05, its mean within -0.1 to 0.1, and the
        coverage's RMSE within what 95 % of perfect posteriors have on so many tables.
    """

    config: DPVIConfig
    table: pd.DataFrame
    is_calibrated: bool

    def __repr__(self) -> str:
        last = self.table[self.table["rung"] == self.table["rung"].max()]
        best = last.iloc[0]
        return (
            f"<nadpvi.tuning.Tuned: {len(self.table)} trials; clip_norm {best['clip_norm']:g}, "
            f"preconditioner_u {best['preconditioner_u']:g}, {best['num_steps']} steps: sd of z "
            f"{best['z_sd']:.3f}, median sd {best['sd']:.3g} of the prior's>"
        )


def tune(
    model: Model,
    privacy: PrivacyBudget,
    *,
    schema: Schema,
    num_records: int,
    seed: int = 0,
    workers: int = 1,
    folder: str | os.PathLike[str] | None = None,
    console: "Console | None" = None,
) -> Tuned:
    """Return settings of DP-SGD for a model and a budget, chosen without looking at any record.

    Parameters are drawn from the prior, tables from the model, releases are simulated and inferred exactly.
    Successive halving over a space-filling set finds the settings with the least CRPS of the true parameters
    among those whose intervals hold what they promise. It costs no privacy. The same seed gives the same
    settings, and what has been tried is kept in `folder`, so that an interrupted search goes on.

    Parameters
    ----------
    model : Model
        An exponential family without predictors that can simulate: the conjugate models. Its prior is what
        tables are drawn from: settings are good for parameters that it finds plausible.
    privacy : PrivacyBudget
        The budget of the run.
    schema : Schema
        Public description of the columns; one record is the unit of privacy.
    num_records : int
        A public guess of N >= 1; a third of the tables are smaller, and a third larger, by sqrt(2).
    seed : int
        Of all that is simulated. It is no secret.
    workers : int
        Processes on this machine.
    folder : path, optional
        Where trials are kept; in the user's cache folder when omitted.
    console : rich.console.Console, optional
        Where progress is shown; None is silent.

    Raises
    ------
    ArgumentError, SchemaError
        If the model is another one, or an argument is out of range.
    NadpviError
        If every trial failed.

    References
    ----------
    Jamieson and Talwalkar (2016). Non-stochastic best arm identification and hyperparameter optimization.
    AISTATS 19.
    """
    num_records = _check(model, privacy=privacy, schema=schema, num_records=num_records)
    check_seed("seed", seed)
    assert isinstance(model, ExponentialFamily)  # checked above
    suggested = suggest_config(model, privacy, schema=schema, num_records=num_records, seed=seed)
    configs = make_candidates(suggested, count=_RUNGS[0][0], seed=seed)
    shared = {
        "model": model.to_dict(),
        "schema": schema.to_dict(),
        "privacy": dataclasses.asdict(privacy),
        "num_records": num_records,
    }
    where = _folder(folder, key={**shared, "seed": seed})
    alive, rows = list(range(len(configs))), []
    for rung, (keep, replicates) in enumerate(_RUNGS):
        alive = alive[:keep]
        tasks = [
            Task(
                name=f"{rung}-{index:03d}",
                settings={**shared, "config": configs[index].to_dict(), "replicates": replicates},
                seed=(seed,),
            )
            for index in alive
        ]
        report = run_tasks(
            run_trial, tasks, folder=where, experiment="tune", workers=workers, console=console
        )
        reasons = {failure.name: failure.error for failure in report.failures}
        found = [
            _row(
                configs[index],
                report.results.get(task.name),
                rung=rung,
                reason=reasons.get(task.name, ""),
            )
            for index, task in zip(alive, tasks, strict=True)
        ]
        order = sorted(range(len(alive)), key=lambda place: _merit(found[place]))
        alive = [alive[place] for place in order]
        rows += [{**found[place], "rank": rank} for rank, place in enumerate(order)]
    best = next(row for row in rows if row["rung"] == len(_RUNGS) - 1 and row["rank"] == 0)
    if best["failure"]:
        raise NadpviError(f"every trial failed; the first: {best['failure']}")
    return Tuned(
        config=configs[alive[0]], table=pd.DataFrame(rows), is_calibrated=bool(best["is_calibrated"])
    )


def _check(model: Any, *, privacy: object, schema: object, num_records: object) -> int:
    """Refuse what cannot be tuned for."""
    if not isinstance(privacy, PrivacyBudget):
        raise ArgumentError(f"privacy must be a PrivacyBudget (got {type(privacy).__name__}).")
    if not isinstance(schema, Schema):
        raise ArgumentError(f"schema must be a Schema (got {type(schema).__name__}).")
    is_family = isinstance(model, ExponentialFamily) and isinstance(model, SimulatingModel)
    if isinstance(model, type) or not is_family or model.design(schema).num_features:
        raise ArgumentError(
            "model must be a conjugate model without predictors, such as BernoulliBeta: tune simulates "
            f"thousands of its tables at once (got {type(model).__name__})."
        )
    if schema.counts is not None:
        raise ArgumentError("tune makes up tables of single records; leave the column of counts out.")
    if schema.person is not None:
        raise ArgumentError(f"tune is for {ONE_RECORD} as the unit of privacy; leave the person column out.")
    return check_count("num_records", num_records)


def _folder(folder: str | os.PathLike[str] | None, *, key: dict[str, Any]) -> Path:
    """Return where the trials of one search are kept."""
    if folder is not None:
        return Path(folder)
    return cache_dir() / "tuning" / hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]


def _row(config: DPVIConfig, scores: Any, *, rung: int, reason: str) -> dict[str, Any]:
    """Return what a trial found, as a row of the table."""
    names = ("num_steps", "clip_norm", "preconditioner_u", "learning_rate", "initial_u")
    row: dict[str, Any] = {"rung": rung, **{name: getattr(config, name) for name in names}}
    if scores is None:
        nothing = dict.fromkeys(("crps", "sd", "z_mean", "z_sd", "rmse"), math.nan)
        return {
            **row,
            "tables": 0,
            **nothing,
            "slack": 0.0,
            "is_calibrated": False,
            "failure": reason or "no result",
        }
    z = scores["z"]
    # On few tables chance is allowed for; on the last rung 0.05 is what is asked.
    slack = 0.0 if rung == len(_RUNGS) - 1 else 2.0 / math.sqrt(2.0 * z.size)
    miscalibration, bias = abs(z.std() - 1.0), abs(z.mean())
    rmse = coverage_rmse(scores["joint"])
    return {
        **row,
        "tables": len(z),
        "crps": float(scores["crps"].mean()),
        "sd": float(np.median(scores["sd"])),
        "z_mean": float(z.mean()),
        "z_sd": float(z.std()),
        "rmse": rmse,
        "slack": slack,
        "is_calibrated": bool(
            miscalibration <= _MOST_MISCALIBRATION + slack
            and bias <= _MOST_BIAS + 2.0 * slack
            and rmse <= coverage_rmse_bound(len(z))
        ),
        "failure": "",
    }


def _merit(row: dict[str, Any]) -> tuple[float, float]:
    """Return what trials are sorted by: calibrated ones by CRPS, then others by how far they are from it."""
    if row["failure"]:
        return (2.0, 0.0)
    if row["is_calibrated"] and abs(row["z_sd"] - 1.0) <= _WANTED_MISCALIBRATION + row["slack"]:
        return (0.0, row["crps"])
    return (1.0, max(abs(row["z_sd"] - 1.0), 0.5 * abs(row["z_mean"])))
