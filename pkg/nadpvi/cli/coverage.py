"""nadpvi coverage: run an experiment that says how honest and how sharp posteriors are."""

from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_frame, print_json, print_text, say, warnings_as_lines

__all__ = ["coverage"]

_ONLY_IN_FILES = (
    "rmse_se",
    "worst_marginal_rmse",
    "worst_marginal_null_95",
    "log_score_se",
    "accuracy",
    "null_mean",
)


def _experiments() -> list[str]:
    """Return the names of the experiments, for a shell to complete."""
    from nadpvi.experiments.finding import experiment_names

    return list(experiment_names())


def coverage(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="An experiment's name, or a TOML file; none lists the names.",
            autocompletion=_experiments,
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="The small version that the tests run: minutes less, and worse.")
    ] = False,
    workers: Annotated[int, typer.Option("--workers", help="Processes on this machine.")] = 1,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", help="Address of a Dask scheduler, such as tcp://host:8786."),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Where finished tasks are kept [default: nadpvi-coverage/NAME]."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Folder for NAME.json, .csv, .svg and .md.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure whether intervals hold what they promise.

    An experiment simulates many tables, releases and infers from each, and scores the posteriors.
    Stopped with Ctrl-C or killed, the same call goes on where it was.

    Example: nadpvi coverage beta-bernoulli --workers 2
    """
    from rich.console import Console

    from nadpvi.experiments.api import make_output_folder, run_experiment, write_result
    from nadpvi.experiments.configuration import load_experiment
    from nadpvi.experiments.finding import experiment_names
    from nadpvi.experiments.tables import method_failures

    if name is None:
        for known in experiment_names():
            print_text(known)
        return
    experiment = load_experiment(name, is_small=small)
    where = folder or Path("nadpvi-coverage") / experiment.folder
    if output is not None:
        make_output_folder(output)
    with warnings_as_lines():
        result = run_experiment(
            experiment, folder=where, workers=workers, scheduler=scheduler, console=Console(stderr=True)
        )
    if json:
        print_json(result.to_dict())
    else:
        _print_table(result.table, title=experiment.title)
    if output is not None:
        for path in write_result(result, output):
            say(f"written: {path}")
    for failure in method_failures(result.report):  # those of whole tasks have been said
        say(failure)
    if result.failures:
        # What succeeded is printed and written; scripts learn that it is not all.
        raise typer.Exit(1)


def _print_table(table: pd.DataFrame, *, title: str) -> None:
    """Print the table without the columns that only the files need."""
    shown = table.drop(columns=[name for name in _ONLY_IN_FILES if name in table]).set_index("settings")
    formats = {name: "" if shown[name].dtype.kind in "OU" else ".3g" for name in shown.columns}
    print_frame(shown, title=title, formats=formats)
