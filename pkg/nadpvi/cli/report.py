"""nadpvi report: one HTML page about a posterior."""

from pathlib import Path
from typing import Annotated

import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_text, say, warnings_as_lines
from nadpvi.cli.files import check_files
from nadpvi.cli.run_file import RunFile
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.release import Release
from nadpvi.errors import ArgumentError, FileError

__all__ = ["report"]


def report(
    posterior_file: Annotated[
        Path, typer.Argument(help="A posterior, from nadpvi infer.", metavar="POSTERIOR")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the page is written, as HTML.")],
    file: RunFile,
    release: Annotated[
        Path | None,
        typer.Option("--release", help="The release that the posterior was made of: adds its trace."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            help="Test rows with the outcome: adds calibration. NOT covered by the guarantee.",
        ),
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Write one HTML page about a POSTERIOR.

    Its guarantee, its parameters, and whether to trust them.

    Example: nadpvi report posterior.nc -o report.html --release release.nc
    """
    inputs = [posterior_file, release, table, file.config]
    check_files([output, file.write_config], inputs=inputs, overwrite=force)
    with warnings_as_lines():
        posterior = Posterior.load(posterior_file)
        made = None if release is None else Release.load(release)
        try:
            posterior.check_guarantee()
        except ArgumentError as error:
            raise FileError(f"{posterior_file} is damaged or edited: {error}") from error
        if table is not None:
            say("nadpvi: note: the part on test rows is not covered by the guarantee.", quiet=quiet)
        written = posterior.report(output, release=made, table=table, overwrite=force)
        file.write(overwrite=force)
    print_text(f"report: {written}")
