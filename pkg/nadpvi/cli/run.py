"""Commands of the road itself: release, infer, and fit, which is both."""

import signal
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_json, print_text, say, warnings_as_lines
from nadpvi.cli.summary import print_posterior
from nadpvi.config import DPVIConfig
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.release import Release
from nadpvi.containers.storage import check_not_an_input, check_writable
from nadpvi.errors import ArgumentError, FileError
from nadpvi.inference.api import check_inference
from nadpvi.interrupts import RunInterrupted
from nadpvi.models import model_from_dict
from nadpvi.privacy.guarantee import PrivacyBudget
from nadpvi.privacy.ledger import Ledger
from nadpvi.schema import Schema

__all__ = ["fit", "infer", "release", "save_release"]

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
    prior_sd: options.PriorSd = 1.0,
    steps: options.Steps = 1000,
    sampling_rate: options.SamplingRate = 0.1,
    clip_norm: options.ClipNorm = None,
    preconditioner_u: options.PreconditionerU = 50.0,
    learning_rate_constant: options.LearningRateConstant = None,
    initial_u: options.InitialU = -3.0,
    insecure_seed: options.InsecureSeed = None,
    ledger: options.LedgerFile = None,
    label: options.Label = "release",
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Spend a privacy budget once: fit the private TABLE and write a release that anyone may see.

    Example: nadpvi release people.csv --schema people.toml --outcome income --epsilon 1 --delta 1e-5
    -o release.nc
    """
    check_not_an_input([output], inputs=[table, schema, *([ledger] if ledger else [])])
    check_writable(output, overwrite=force)
    with warnings_as_lines():
        made = _release(
            table=table,
            schema=schema,
            model=_model(model, outcome=outcome, predictors=predictor, prior_sd=prior_sd),
            privacy=PrivacyBudget(epsilon=epsilon, delta=delta),
            config=DPVIConfig(
                num_steps=steps,
                sampling_rate=sampling_rate,
                clip_norm=clip_norm,
                preconditioner_u=preconditioner_u,
                learning_rate_constant=learning_rate_constant,
                initial_u=initial_u,
            ),
            insecure_seed=insecure_seed,
            ledger=ledger,
            label=label,
            output=output,
            overwrite=force,
            quiet=quiet,
        )
    _report_release(made, output, as_json=json)


def infer(
    release_file: Annotated[Path, typer.Argument(help="A release, from nadpvi release.", metavar="RELEASE")],
    output: PosteriorOut,
    method: Annotated[str, typer.Option("--method", help="How to sample: nuts.")] = "nuts",
    draws: options.Draws = 1000,
    chains: options.Chains = 4,
    warmup: options.Warmup = 1000,
    seed: options.Seed = None,
    phi_star_prior: options.PhiStarPrior = "trace",
    burn_in: options.BurnIn = 0.2,
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
    prior_sd: options.PriorSd = 1.0,
    steps: options.Steps = 1000,
    sampling_rate: options.SamplingRate = 0.1,
    clip_norm: options.ClipNorm = None,
    preconditioner_u: options.PreconditionerU = 50.0,
    learning_rate_constant: options.LearningRateConstant = None,
    initial_u: options.InitialU = -3.0,
    insecure_seed: options.InsecureSeed = None,
    ledger: options.LedgerFile = None,
    label: options.Label = "release",
    draws: options.Draws = 1000,
    chains: options.Chains = 4,
    warmup: options.Warmup = 1000,
    seed: options.Seed = None,
    phi_star_prior: options.PhiStarPrior = "trace",
    burn_in: options.BurnIn = 0.2,
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
    inputs = [table, schema, *([ledger] if ledger else [])]
    check_not_an_input([release_output, output], inputs=inputs)
    check_writable(release_output, overwrite=force)
    check_writable(output, overwrite=force)
    if release_output.resolve() == output.resolve():
        raise ArgumentError("--release and --output must be different files.")
    sampling: dict[str, Any] = {
        "draws": draws,
        "chains": chains,
        "warmup": warmup,
        "seed": seed,
        "burn_in": burn_in,
        "phi_star_prior": phi_star_prior,
        "engine": engine,
        "adapt_delta": adapt_delta,
    }
    # A missing Stan or a bad setting must be found before the budget is spent, not after.
    check_inference(num_steps=steps, **sampling)
    with warnings_as_lines():
        made = _release(
            table=table,
            schema=schema,
            model=_model(model, outcome=outcome, predictors=predictor, prior_sd=prior_sd),
            privacy=PrivacyBudget(epsilon=epsilon, delta=delta),
            config=DPVIConfig(
                num_steps=steps,
                sampling_rate=sampling_rate,
                clip_norm=clip_norm,
                preconditioner_u=preconditioner_u,
                learning_rate_constant=learning_rate_constant,
                initial_u=initial_u,
            ),
            insecure_seed=insecure_seed,
            ledger=ledger,
            label=label,
            output=release_output,
            overwrite=force,
            quiet=quiet,
        )
        say(f"release: {release_output}", quiet=quiet)
        posterior = _infer(made, quiet=quiet, subsampling_noise=subsampling_noise, **sampling)
        posterior.save(output, overwrite=force)
        print_posterior(posterior, as_json=json)
    say(f"posterior: {output}", quiet=quiet)


def save_release(made: Release, path: Path, *, overwrite: bool) -> Path:
    """Write a release; if its place fails after the budget was spent, write it to the temporary folder.

    Raises
    ------
    FileError
        If the intended place failed. The message names the rescued file.
    """
    try:
        return made.save(path, overwrite=overwrite)
    except FileError as error:
        try:
            folder = Path(tempfile.mkdtemp(prefix="nadpvi-rescued-"))
            rescued = made.save(folder / "release.nc")
        except OSError as second:
            raise FileError(f"{error} Nor could it be kept in the temporary folder: {second}") from second
        raise FileError(f"{error} The release was written to {rescued} instead; keep it.") from error


def _model(kind: str, *, outcome: str, predictors: list[str] | None, prior_sd: float) -> Any:
    """Return the model that the options describe."""
    return model_from_dict(
        {
            "kind": kind,
            "outcome": outcome,
            "predictors": predictors or None,
            "prior_sd": prior_sd,
            "intercept": True,
        }
    )


def _release(*, table: Path, schema: Path, quiet: bool, **settings: Any) -> Release:
    """Call `nadpvi.curator.release` on files; the result, whole or interrupted, is on disk afterwards."""
    from nadpvi.curator import release as make_release

    model = settings.pop("model")
    output, overwrite = settings.pop("output"), settings.pop("overwrite")
    ledger = settings.pop("ledger")
    try:
        made = make_release(
            model,
            table,
            schema=Schema.from_toml(schema),
            progress=not quiet,
            ledger=None if ledger is None else Ledger.open(ledger),
            **settings,
        )
    except RunInterrupted as stop:
        # From here on the partial trace is all there is; a second Ctrl-C must not cost it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        written = save_release(stop.release, output, overwrite=overwrite)
        spent = (
            ""
            if stop.release.guarantee is None
            else f"epsilon {stop.release.guarantee.epsilon:.4g} is spent; "
        )
        say(f"nadpvi: {stop}; {spent}partial release: {written}")
        raise
    save_release(made, output, overwrite=overwrite)
    return made


def _infer(made: Release, *, quiet: bool, **settings: Any) -> Posterior:
    """Call `nadpvi.inference.api.infer`, saying what takes the time."""
    from nadpvi.inference.api import infer as run_inference

    say("sampling the post-processing model ...", quiet=quiet)
    return run_inference(made, **settings)


def _report_release(made: Release, written: Path, *, as_json: bool) -> None:
    """Print what was promised and where the release is."""
    assert made.guarantee is not None  # every release of ours carries one
    if as_json:
        print_json({"release": str(written), "guarantee": made.guarantee.to_dict()})
    else:
        print_text(made.guarantee.sentence())
        print_text(f"release: {written}")
