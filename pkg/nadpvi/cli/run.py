"""Commands of the road itself: release, infer, and fit, which is both."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from nadpvi.cli import options
from nadpvi.cli.console import say, warnings_as_lines
from nadpvi.cli.described import RunDescription, RunOptions, described_run
from nadpvi.cli.files import check_files
from nadpvi.cli.run_file import RunFile
from nadpvi.cli.saving import make_and_save, report_release
from nadpvi.cli.summary import print_posterior
from nadpvi.config import DPVIConfig
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.release import Release
from nadpvi.inference.api import check_inference
from nadpvi.inference.methods import resolve_method
from nadpvi.privacy.ledger import Ledger

__all__ = ["fit", "infer", "release"]

ReleaseOut = Annotated[Path, typer.Option("--output", "-o", help="Where the release is written.")]
PosteriorOut = Annotated[Path, typer.Option("--output", "-o", help="Where the posterior is written.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorOptions:
    """The options of what touches the private table, besides the run that they are for."""

    insecure_seed: options.InsecureSeed = None
    collapse: options.Collapse = False
    storage: options.Storage = "float64"
    ledger: options.LedgerFile = None
    label: options.Label = "release"
    checkpoint: options.CheckpointFile = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingOptions:
    """The options of post-processing, as `nadpvi.infer` has them."""

    method: options.Method = "auto"
    draws: options.Draws = 1000
    chains: options.Chains = 4
    warmup: options.Warmup = 1000
    seed: options.Seed = None
    phi_star_prior: options.PhiStarPrior = None
    curvature_prior: options.CurvaturePrior = "auto"
    burn_in: options.BurnInOrAuto = None
    subsampling_noise: options.SubsamplingNoise = True
    engine: options.EngineName = "auto"
    adapt_delta: options.AdaptDelta = 0.8


def release(
    table: options.TableFile,
    run: RunOptions,
    output: ReleaseOut,
    curator: CuratorOptions,
    file: RunFile,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Spend a privacy budget once: private TABLE in, release out.

    The release holds the noisy trace, its guarantee and public settings, and anyone may see it.

    Example:
      nadpvi release people.csv --schema people.toml --outcome employed \
        --epsilon 1 --delta 1e-5 --num-records 30000 -o release.nc
    """
    _check_files([output], table=table, run=run, curator=curator, file=file, overwrite=force)
    with warnings_as_lines():
        described = described_run(run, num_records=run.num_records)
        made = _release(table, described, curator, output=output, overwrite=force, quiet=quiet)
        file.write(overwrite=force)
    report_release(made, output, as_json=json)


def infer(
    release_file: Annotated[Path, typer.Argument(help="A release, from nadpvi release.", metavar="RELEASE")],
    output: PosteriorOut,
    sampling: SamplingOptions,
    file: RunFile,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw the noise-aware posterior of a RELEASE.

    Costs no privacy, so that it can be done as often as you like.

    Example: nadpvi infer release.nc -o posterior.nc
    """
    check_files([output, file.write_config], inputs=[release_file, file.config], overwrite=force)
    with warnings_as_lines():
        posterior = _infer(Release.load(release_file), sampling, quiet=quiet)
        posterior.save(output, overwrite=force)
        file.write(overwrite=force)
        print_posterior(posterior, as_json=json)
    say(f"posterior: {output}", quiet=quiet)


def fit(
    table: options.TableFile,
    run: RunOptions,
    release_output: Annotated[Path, typer.Option("--release", help="Where the release is written.")],
    output: PosteriorOut,
    curator: CuratorOptions,
    sampling: SamplingOptions,
    file: RunFile,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Release and infer in one go.

    The release is on disk before post-processing starts.

    Example:
      nadpvi fit people.csv --schema people.toml --outcome employed \
        --epsilon 1 --delta 1e-5 --num-records 30000 \
        --release release.nc -o posterior.nc
    """
    _check_files([release_output, output], table=table, run=run, curator=curator, file=file, overwrite=force)
    with warnings_as_lines():
        described = described_run(run, num_records=run.num_records)
        _check_sampling(sampling, config=described.config)
        made = _release(table, described, curator, output=release_output, overwrite=force, quiet=quiet)
        file.write(overwrite=force)
        say(f"release: {release_output}", quiet=quiet)
        posterior = _infer(made, sampling, quiet=quiet)
        posterior.save(output, overwrite=force)
        print_posterior(posterior, as_json=json)
    say(f"posterior: {output}", quiet=quiet)


def _check_files(
    outputs: list[Path],
    *,
    table: Path,
    run: RunOptions,
    curator: CuratorOptions,
    file: RunFile,
    overwrite: bool,
) -> None:
    """Refuse output files that cannot be written, that are inputs, or that are one and the same."""
    check_files(
        [*outputs, file.write_config],
        inputs=[table, run.schema, curator.ledger, file.config],
        overwrite=overwrite,
        checkpoint=curator.checkpoint,
    )


def _check_sampling(sampling: SamplingOptions, *, config: DPVIConfig) -> None:
    """Find a missing Stan or a bad setting before the budget is spent, not after."""
    method, prior = resolve_method(
        sampling.method,
        phi_star_prior=sampling.phi_star_prior,
        has_curvature=config.curvature_share > 0.0,
        engine=sampling.engine,
    )
    checked = {**asdict(sampling), "method": method, "phi_star_prior": prior}
    del checked["subsampling_noise"]
    check_inference(num_steps=config.num_steps, **checked)


def _release(
    table: Path,
    run: RunDescription,
    curator: CuratorOptions,
    *,
    output: Path,
    overwrite: bool,
    quiet: bool,
) -> Release:
    """Call the curator's `release` on files; the result, whole or interrupted, is on disk afterwards."""
    from nadpvi.private.curator import release as make_release

    def make() -> Release:
        return make_release(
            run.model,
            table,
            schema=run.schema,
            privacy=run.budget,
            config=run.config,
            collapse=curator.collapse,
            storage=curator.storage,
            insecure_seed=curator.insecure_seed,
            ledger=None if curator.ledger is None else Ledger.open(curator.ledger),
            label=curator.label,
            checkpoint=curator.checkpoint,
            progress=not quiet,
        )

    return make_and_save(make, output=output, overwrite=overwrite, checkpoint=curator.checkpoint, table=table)


def _infer(made: Release, sampling: SamplingOptions, *, quiet: bool) -> Posterior:
    """Call `nadpvi.inference.api.infer`, saying what takes the time."""
    from nadpvi.inference.api import infer as run_inference

    say("sampling the post-processing model ...", quiet=quiet)
    return run_inference(made, **asdict(sampling))
