"""nadpvi export: a release for CmdStan's command line and for R."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_json, print_text, warnings_as_lines
from nadpvi.cli.files import check_files
from nadpvi.cli.run_file import RunFile
from nadpvi.containers.release import Release

__all__ = ["export"]


def export(
    release_file: Annotated[Path, typer.Argument(help="A release, from nadpvi release.", metavar="RELEASE")],
    stan_data: Annotated[Path, typer.Option("--stan-data", help="Where the data are written, as JSON.")],
    program: Annotated[
        Path, typer.Option("--program", help="Folder for the Stan program; made if it is missing.")
    ],
    file: RunFile,
    trace: Annotated[
        bool, typer.Option("--trace", help="The program that reads the trace row by row: slow, for checking.")
    ] = False,
    burn_in: options.BurnInOrAuto = None,
    phi_star_prior: options.PhiStarPrior = "trace",
    curvature_prior: options.CurvaturePrior = "auto",
    subsampling_noise: options.SubsamplingNoise = True,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Write data and program of a RELEASE for R or CmdStan.

    It is what CmdStan or cmdstanr needs to draw the posterior themselves. Costs no privacy.

    Example: nadpvi export release.nc --stan-data data.json --program stan-program
    """
    from nadpvi.export import export_stan

    check_files([stan_data, file.write_config], inputs=[release_file, file.config], overwrite=force)
    choices: dict[str, Any] = {"phi_star_prior": phi_star_prior, "curvature_prior": curvature_prior}
    with warnings_as_lines():
        files = export_stan(
            Release.load(release_file),
            data=stan_data,
            folder=program,
            program="gradient_model_trace" if trace else "gradient_model",
            burn_in=burn_in,
            subsampling_noise=subsampling_noise,
            overwrite=force,
            **choices,
        )
    file.write(overwrite=force)
    if json:
        print_json({name: str(path) for name, path in files._asdict().items()})
        return
    for name, path in files._asdict().items():
        print_text(f"{name}: {path}")
