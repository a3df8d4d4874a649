"""Commands of the road itself: release, infer, and fit, which is both."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nadpvi.cli import options
from nadpvi.cli.console import say, warnings_as_lines
from nadpvi.cli.model import model_from_options
from nadpvi.cli.saving import make_and_save, report_release
from nadpvi.cli.settings import config_from_options
from nadpvi.cli.summary import print_posterior
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.release import Release
from nadpvi.containers.storage import check_not_an_input, check_writable
from nadpvi.errors import ArgumentError
from nadpvi.inference.api import check_inference
from nadpvi.inference.methods import resolve_method
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.ledger import Ledger
from nadpvi.schema import Schema

__all__ = ["fit", "infer", "release"]

ReleaseOut = Annotated[Path, typer.Option("--output", "-o", help="Where the release is written.")]
PosteriorOut = Annotated[Path, typer.Option("--output", "-o", help="Where the posterior is written.")]


def release(
    table: options.TableFile,
    schema: options.SchemaFile,
    outcome: options.Outcome,
    epsilon: options.Epsilon,
    delta: options.Delta,
    output: ReleaseOut,
    predictor: options.Predictors = None,
    model: options.Model = "logistic_regression",
    prior_sd: options.PriorSd = None,
    model_setting: options.ModelSettings = None,
    settings: options.SettingsName = None,
    num_records: options.NumRecords = None,
    steps: options.Steps = None,
    sampling_rate: options.SamplingRate = None,
    clip_norm: options.ClipNorm = None,
    preconditioner_u: options.PreconditionerU = None,
    curvature_share: options.CurvatureShare = None,
    learning_rate_constant: options.LearningRateConstant = None,
    initial_u: options.InitialU = None,
    insecure_seed: options.InsecureSeed = None,
    neighbouring_relation: options.NeighbouringRelation = "add_or_remove_one",
    prior_term: options.PriorTerm = "public",
    guide: options.Guide = "mean_field",
    collapse: options.Collapse = False,
    storage: options.Storage = "float64",
    ledger: options.LedgerFile = None,
    label: options.Label = "release",
    checkpoint: options.CheckpointFile = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Spend a privacy budget once: fit the private TABLE and write a release that anyone may see.

    Example: nadpvi release people.csv --schema people.toml --outcome income --epsilon 1 --delta 1e-5
    -o release.nc
    """
    _check_files([output], inputs=[table, schema, ledger], checkpoint=checkpoint, overwrite=force)
    with warnings_as_lines():
        made_model = model_from_options(
            model, outcome=outcome, predictors=predictor, prior_sd=prior_sd, settings=model_setting
        )
        budget = PrivacyBudget(epsilon=epsilon, delta=delta, neighbouring_relation=neighbouring_relation)
        described = Schema.from_toml(schema)
        config = config_from_options(
            made_model,
            budget,
            schema=described,
            settings=settings,
            num_records=num_records,
            prior_term=prior_term,
            guide=guide,
            num_steps=steps,
            sampling_rate=sampling_rate,
            clip_norm=clip_norm,
            preconditioner_u=preconditioner_u,
            curvature_share=curvature_share,
            learning_rate_constant=learning_rate_constant,
            initial_u=initial_u,
        )
        made = _release(
            table=table,
            schema=described,
            model=made_model,
            privacy=budget,
            config=config,
            collapse=collapse,
            storage=storage,
            insecure_seed=insecure_seed,
            ledger=ledger,
            label=label,
            checkpoint=checkpoint,
            output=output,
            overwrite=force,
            quiet=quiet,
        )
    report_release(made, output, as_json=json)


def infer(
    release_file: Annotated[Path, typer.Argument(help="A release, from nadpvi release.", metavar="RELEASE")],
    output: PosteriorOut,
    method: options.Method = "auto",
    draws: options.Draws = 1000,
    chains: options.Chains = 4,
    warmup: options.Warmup = 1000,
    seed: options.Seed = None,
    phi_star_prior: options.PhiStarPrior = None,
    curvature_prior: options.CurvaturePrior = "trace",
    burn_in: options.BurnInOrAuto = None,
    subsampling_noise: options.SubsamplingNoise = True,
    engine: options.EngineName = "auto",
    adapt_delta: options.AdaptDelta = 0.8,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Draw the noise-aware posterior that a RELEASE determines. Costs no privacy.

    Example: nadpvi infer release.nc -o posterior.nc
    """
    check_not_an_input([output], inputs=[release_file])
    check_writable(output, overwrite=force)
    with warnings_as_lines():
        posterior = _infer(
            Release.load(release_file),
            quiet=quiet,
            method=method,
            draws=draws,
            chains=chains,
            warmup=warmup,
            seed=seed,
            phi_star_prior=phi_star_prior,
            curvature_prior=curvature_prior,
            burn_in=burn_in,
            subsampling_noise=subsampling_noise,
            engine=engine,
            adapt_delta=adapt_delta,
        )
        posterior.save(output, overwrite=force)
        print_posterior(posterior, as_json=json)
    say(f"posterior: {output}", quiet=quiet)


def fit(
    table: options.TableFile,
    schema: options.SchemaFile,
    outcome: options.Outcome,
    epsilon: options.Epsilon,
    delta: options.Delta,
    release_output: Annotated[Path, typer.Option("--release", help="Where the release is written.")],
    output: PosteriorOut,
    predictor: options.Predictors = None,
    model: options.Model = "logistic_regression",
    prior_sd: options.PriorSd = None,
    model_setting: options.ModelSettings = None,
    settings: options.SettingsName = None,
    num_records: options.NumRecords = None,
    steps: options.Steps = None,
    sampling_rate: options.SamplingRate = None,
    clip_norm: options.ClipNorm = None,
    preconditioner_u: options.PreconditionerU = None,
    curvature_share: options.CurvatureShare = None,
    learning_rate_constant: options.LearningRateConstant = None,
    initial_u: options.InitialU = None,
    insecure_seed: options.InsecureSeed = None,
    neighbouring_relation: options.NeighbouringRelation = "add_or_remove_one",
    prior_term: options.PriorTerm = "public",
    guide: options.Guide = "mean_field",
    collapse: options.Collapse = False,
    storage: options.Storage = "float64",
    ledger: options.LedgerFile = None,
    label: options.Label = "release",
    checkpoint: options.CheckpointFile = None,
    method: options.Method = "auto",
    draws: options.Draws = 1000,
    chains: options.Chains = 4,
    warmup: options.Warmup = 1000,
    seed: options.Seed = None,
    phi_star_prior: options.PhiStarPrior = None,
    curvature_prior: options.CurvaturePrior = "trace",
    burn_in: options.BurnInOrAuto = None,
    subsampling_noise: options.SubsamplingNoise = True,
    engine: options.EngineName = "auto",
    adapt_delta: options.AdaptDelta = 0.8,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Release and infer in one go: the release is on disk before post-processing starts.

    Example: nadpvi fit people.csv --schema people.toml --outcome income --epsilon 1 --delta 1e-5
    --release release.nc -o posterior.nc
    """
    _check_files(
        [release_output, output], inputs=[table, schema, ledger], checkpoint=checkpoint, overwrite=force
    )
    sampling: dict[str, Any] = {
        "method": method,
        "draws": draws,
        "chains": chains,
        "warmup": warmup,
        "seed": seed,
        "burn_in": burn_in,
        "phi_star_prior": phi_star_prior,
        "curvature_prior": curvature_prior,
        "engine": engine,
        "adapt_delta": adapt_delta,
    }
    with warnings_as_lines():
        made_model = model_from_options(
            model, outcome=outcome, predictors=predictor, prior_sd=prior_sd, settings=model_setting
        )
        budget = PrivacyBudget(epsilon=epsilon, delta=delta, neighbouring_relation=neighbouring_relation)
        described = Schema.from_toml(schema)
        config = config_from_options(
            made_model,
            budget,
            schema=described,
            settings=settings,
            num_records=num_records,
            prior_term=prior_term,
            guide=guide,
            num_steps=steps,
            sampling_rate=sampling_rate,
            clip_norm=clip_norm,
            preconditioner_u=preconditioner_u,
            curvature_share=curvature_share,
            learning_rate_constant=learning_rate_constant,
            initial_u=initial_u,
        )
        # A missing Stan or a bad setting must be found before the budget is spent, not after.
        named, prior = resolve_method(
            method,
            phi_star_prior=phi_star_prior,
            has_curvature=config.curvature_share > 0.0,
            engine=engine,
        )
        check_inference(num_steps=config.num_steps, **{**sampling, "method": named, "phi_star_prior": prior})
        made = _release(
            table=table,
            schema=described,
            model=made_model,
            privacy=budget,
            config=config,
            collapse=collapse,
            storage=storage,
            insecure_seed=insecure_seed,
            ledger=ledger,
            label=label,
            checkpoint=checkpoint,
            output=release_output,
            overwrite=force,
            quiet=quiet,
        )
        say(f"release: {release_output}", quiet=quiet)
        posterior = _infer(made, quiet=quiet, subsampling_noise=subsampling_noise, **sampling)
        posterior.save(output, overwrite=force)
        print_posterior(posterior, as_json=json)
    say(f"posterior: {output}", quiet=quiet)


def _check_files(
    outputs: list[Path], *, inputs: list[Path | None], checkpoint: Path | None, overwrite: bool
) -> None:
    """Refuse output files that cannot be written, that are inputs, or that are one and the same."""
    written = outputs if checkpoint is None else [*outputs, checkpoint]
    check_not_an_input(written, inputs=[path for path in inputs if path is not None])
    for path in outputs:
        check_writable(path, overwrite=overwrite)
    if len({path.resolve() for path in written}) < len(written):
        raise ArgumentError("the output files, --checkpoint among them, must be different.")


def _release(*, table: Path, schema: Schema, quiet: bool, **settings: Any) -> Release:
    """Call the curator's `release` on files; the result, whole or interrupted, is on disk afterwards."""
    from nadpvi.private.curator import release as make_release

    model, output, ledger = (settings.pop(name) for name in ("model", "output", "ledger"))
    overwrite, checkpoint = settings.pop("overwrite"), settings["checkpoint"]

    def make() -> Release:
        return make_release(
            model,
            table,
            schema=schema,
            progress=not quiet,
            ledger=None if ledger is None else Ledger.open(ledger),
            **settings,
        )

    return make_and_save(make, output=output, overwrite=overwrite, checkpoint=checkpoint, table=table)


def _infer(made: Release, *, quiet: bool, **settings: Any) -> Posterior:
    """Call `nadpvi.inference.api.infer`, saying what takes the time."""
    from nadpvi.inference.api import infer as run_inference

    say("sampling the post-processing model ...", quiet=quiet)
    return run_inference(made, **settings)
