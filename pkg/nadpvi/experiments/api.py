"""From the name of an experiment to its results: run, summarise, write."""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from nadpvi.containers.storage import as_path, package_versions, write_bytes
from nadpvi.errors import FileError, NadpviError
from nadpvi.experiments.configuration import Experiment
from nadpvi.experiments.figures import draw_figures
from nadpvi.experiments.fits import gradient_fits
from nadpvi.experiments.methods import LABELS
from nadpvi.experiments.runner import run_tasks
from nadpvi.experiments.tables import collect, curves, method_failures, summary_table
from nadpvi.experiments.tasks import RunReport
from nadpvi.experiments.work import run_block

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ExperimentResult", "make_output_folder", "run_experiment", "write_result"]

_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExperimentResult:
    """What an experiment found.

    Attributes
    ----------
    experiment : Experiment
    table : DataFrame
        One row for each arm and method: `nadpvi.experiments.tables.summary_table`.
    curves, fits : list of dict
        What the figures draw.
    report : RunReport
        Failed tasks, warnings and durations.
    """

    experiment: Experiment
    table: pd.DataFrame
    curves: list[dict[str, Any]]
    fits: list[dict[str, Any]]
    report: RunReport

    @property
    def failures(self) -> tuple[str, ...]:
        """A line for each task that failed, and for each method that failed in a task that went on."""
        return (*(str(failure) for failure in self.report.failures), *method_failures(self.report))

    def to_dict(self) -> dict[str, Any]:
        """Return all that is worth keeping as JSON types."""
        experiment = asdict(self.experiment)
        rows = json.loads(self.table.to_json(orient="records", double_precision=_DIGITS))
        return {
            "experiment": experiment,
            "rows": rows,
            "curves": self.curves,
            "fits": self.fits,
            "failures": list(self.failures),
            "warnings": self.report.warnings,
            "processor_seconds": round(sum(self.report.task_seconds.values()), 1),
            "seconds_of_the_last_run": round(self.report.seconds, 1),
            "versions": {**package_versions(), "python": platform.python_version()},
        }


def run_experiment(
    experiment: Experiment,
    *,
    folder: str | os.PathLike[str],
    workers: int = 1,
    scheduler: str | None = None,
    console: "Console | None" = None,
) -> ExperimentResult:
    """Return the results of an experiment, computing what `folder` does not hold yet.

    Parameters
    ----------
    experiment : Experiment
        From `nadpvi.experiments.load_experiment`.
    folder, workers, scheduler, console
        As for `nadpvi.experiments.run_tasks`.

    Raises
    ------
    NadpviError
        If no task succeeded; the message has the first reason. Single failures are in the report.
    """
    report = run_tasks(
        run_block,
        experiment.tasks(),
        folder=folder,
        experiment=experiment.name,
        workers=workers,
        scheduler=scheduler,
        console=console,
    )
    if not report.results:
        raise NadpviError(f"no task of {experiment.name} succeeded; the first: {report.failures[0]}")
    scores = collect(experiment, report)
    return ExperimentResult(
        experiment=experiment,
        table=summary_table(scores),
        curves=curves(scores),
        fits=gradient_fits(experiment, done=report.results),
        report=report,
    )


def make_output_folder(folder: str | os.PathLike[str]) -> Path:
    """Return a folder for results, made if need be.

    Raises
    ------
    FileError
        If it cannot be made or written to.
    """
    where = as_path(folder, name="output")
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"--output: cannot make {where}: {error.strerror}.") from None
    if not os.access(where, os.W_OK | os.X_OK):
        raise FileError(f"--output: {where} is not writable; choose another folder.")
    return where


def write_result(result: ExperimentResult, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write ``NAME.json``, ``NAME.csv``, figures and ``NAME.md`` into `folder`, replacing older ones.

    Raises
    ------
    FileError
        If the folder or a file cannot be written.
    """
    where, name = make_output_folder(folder), result.experiment.name
    content = result.to_dict()
    figures = draw_figures(result.curves, result.fits, title=result.experiment.title)
    files = {
        f"{name}.json": (json.dumps(content, indent=1, sort_keys=False) + "\n").encode(),
        f"{name}.csv": result.table.to_csv(index=False, float_format=f"%.{_DIGITS}g").encode(),
        **{f"{name}{suffix}.svg": image for suffix, image in figures.items()},
        f"{name}.md": _page(result, content, figures=list(figures)).encode(),
    }
    return tuple(write_bytes(data, where / file, overwrite=True) for file, data in files.items())


_CAPTIONS = {
    "": "Coverage, or calibration on test rows",
    "-marginals": "Coverage of single parameters",
    "-gradients": "Noisy gradients of one release against its iterates, and the fitted lines",
}


def _page(result: ExperimentResult, content: Mapping[str, Any], *, figures: Sequence[str]) -> str:
    """Return the page of an experiment: what was expected, what came out, the table, how to make it again."""
    experiment = result.experiment
    failed = len(result.failures)
    lines = [
        f"# {experiment.title}",
        f"**Expected.** {_flowing(experiment.expected) or 'Nothing was written down.'}",
        f"**Found.** {_flowing(experiment.found) or 'Not written yet.'}",
        *(f"![{_CAPTIONS[suffix]}](<{experiment.name}{suffix}.svg>)" for suffix in figures),
        _markdown(result.table),
        f"Again: `{experiment.command} --workers 2 --output docs/results`. "
        f"Seed {experiment.seed}; "
        f"{content['processor_seconds']:,.0f} s of work in all"
        + (f"; {failed} tasks or methods in them failed" if failed else "")
        + f". Settings, versions and curves are in `{experiment.name}.json`.",
    ]
    return "\n\n".join(lines) + "\n"


def _flowing(text: str) -> str:
    """Return a text with its line breaks as spaces."""
    return " ".join(text.split())


def _markdown(table: pd.DataFrame) -> str:
    """Return the table in Markdown, numbers with three digits."""

    def cell(value: Any) -> str:
        if isinstance(value, str):
            return LABELS.get(value, value)
        if value is None or np.isnan(value):
            return ""
        return f"{value:,}" if isinstance(value, int | np.integer) else f"{value:.3g}"

    rows = [[cell(value) for value in row] for row in table.itertuples(index=False)]
    lines = [[name.replace("_", " ") for name in table.columns], ["---"] * table.shape[1], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
