"""Options that several commands share, declared once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nadpvi.engines.discover import ENGINE_NAMES
from nadpvi.gradient_model.priors import CURVATURE_PRIORS, PHI_STAR_PRIORS
from nadpvi.guides.registry import GUIDES
from nadpvi.inference.methods import METHODS
from nadpvi.models.registry import MODELS
from nadpvi.planning.resolve import SETTINGS
from nadpvi.privacy.parameters import ADD_OR_REMOVE_ONE, REPLACE_ONE

__all__ = [
    "CheckpointFile",
    "Label",
    "Method",
    "LedgerFile",
    "NeighbouringRelation",
    "NumRecords",
    "PriorTerm",
    "BurnIn",
    "BurnInOrAuto",
    "Collapse",
    "Guide",
    "Storage",
    "InitialU",
    "LearningRateConstant",
    "AdaptDelta",
    "Chains",
    "ClipNorm",
    "CurvaturePrior",
    "Delta",
    "Draws",
    "EngineName",
    "Epsilon",
    "Force",
    "Formula",
    "InsecureSeed",
    "Json",
    "Model",
    "ModelSettings",
    "Outcome",
    "PhiStarPrior",
    "Predictors",
    "PreconditionerU",
    "PriorSd",
    "Quiet",
    "SamplingRate",
    "SchemaFile",
    "SettingsName",
    "Seed",
    "Steps",
    "SubsamplingNoise",
    "TableFile",
    "Warmup",
]

TableFile = Annotated[Path, typer.Argument(metavar="TABLE", help="The private table: a CSV or Parquet file.")]
SchemaFile = Annotated[Path, typer.Option("--schema", help="The public schema, a TOML file.")]
Outcome = Annotated[str | None, typer.Option("--outcome", help="Column to model; not needed with --formula.")]
Formula = Annotated[
    str | None,
    typer.Option(
        "--formula",
        help='In place of --outcome and --predictor: "y ~ age + job * sex + bs(age, knots=[30, 45])".',
    ),
]
Predictors = Annotated[
    list[str] | None,
    typer.Option("--predictor", help="Column to use; repeat for more. All others when omitted."),
]
Model = Annotated[
    str, typer.Option("--model", autocompletion=lambda: sorted(MODELS), help="Which model to fit.")
]
Guide = Annotated[
    str,
    typer.Option(
        "--guide",
        autocompletion=lambda: [*GUIDES],
        help="The variational family: mean_field, full_rank or low_rank:RANK.",
    ),
]
Collapse = Annotated[
    bool, typer.Option("--collapse", help="Store identical rows once: faster where there are few distinct.")
]
Storage = Annotated[
    str,
    typer.Option(
        "--storage",
        autocompletion=lambda: ["float64", "float32"],
        help="float64, or float32 for half the memory; arithmetic is float64.",
    ),
]
PriorSd = Annotated[
    float | None,
    typer.Option("--prior-sd", help="Prior sd of every coefficient; the model's default when omitted."),
]
ModelSettings = Annotated[
    list[str] | None,
    typer.Option("--model-setting", help="Another setting of the model, as name=value; repeat for more."),
]
Epsilon = Annotated[float, typer.Option("--epsilon", help="Privacy budget epsilon.")]
Delta = Annotated[float, typer.Option("--delta", help="Privacy budget delta.")]
Steps = Annotated[int | None, typer.Option("--steps", help="Number of DP-SGD steps T.")]
SamplingRate = Annotated[
    float | None, typer.Option("--sampling-rate", help="Chance of a record to enter a step, in (0, 1].")
]
ClipNorm = Annotated[
    float | None,
    typer.Option("--clip-norm", help="Bound on one record's gradient; the model's own when omitted."),
]
PreconditionerU = Annotated[
    float | None, typer.Option("--preconditioner-u", help="Weight of scale gradients before clipping.")
]
CurvatureShare = Annotated[
    float | None,
    typer.Option(
        "--curvature-share",
        help="Share of the budget, from 0 to 0.9, for a curvature matrix; about 0.2 for --method dense.",
    ),
]
InsecureSeed = Annotated[
    int | None,
    typer.Option("--insecure-seed", help="SIMULATION ONLY: reproducible noise, so not private."),
]
LearningRateConstant = Annotated[
    float | None,
    typer.Option("--learning-rate-constant", help="lambda_c of the step size; sqrt(D / 2) when omitted."),
]
InitialU = Annotated[
    float | None,
    typer.Option("--initial-u", help="Start of the guide's scales: their sd is softplus of this."),
]


def _burn_in(text: str) -> float | str:
    """Return a share as a number; "auto" stays as it is."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a number nor auto.") from None


BurnInOrAuto = Annotated[
    Any,
    typer.Option(
        "--burn-in",
        metavar="SHARE|auto",
        parser=_burn_in,
        help="Share of the first steps left out, 0.2 when omitted; auto: the least that settles.",
    ),
]
BurnIn = Annotated[
    float | None,
    typer.Option("--burn-in", help="Share of the first steps left out, in [0, 1); 0.2 when omitted."),
]
LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", help="The data set's ledger: reserves this run, and refuses it above the cap."),
]
NeighbouringRelation = Annotated[
    str,
    typer.Option(
        "--neighbouring-relation",
        autocompletion=lambda: [ADD_OR_REMOVE_ONE, REPLACE_ONE],
        help="What is hidden: add_or_remove_one (whether a record is there) or replace_one (its values).",
    ),
]
PriorTerm = Annotated[
    str,
    typer.Option(
        "--prior-term",
        autocompletion=lambda: ["public", "per_record"],
        help="public: prior added after the noise; per_record: spread over --num-records and clipped.",
    ),
]
NumRecords = Annotated[
    int | None,
    typer.Option(
        "--num-records",
        help="Your public guess at how many records there are: settings are chosen for it. With --prior-term "
        "per_record, a number that is public already.",
    ),
]
CheckpointFile = Annotated[
    Path | None,
    typer.Option("--checkpoint", help="PRIVATE file, kept up to date, from which nadpvi resume can go on."),
]
Label = Annotated[str, typer.Option("--label", help="Name of this run in the ledger.")]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        autocompletion=lambda: ["auto", *METHODS],
        help="nuts (Stan), exact (independent draws of the same posterior, without Stan, in a moment), "
        "laplace (a Gaussian approximation), dense (a curvature matrix, for correlated or one-hot "
        "predictors, without Stan), or auto: dense for a release with a curvature, else nuts.",
    ),
]
Draws = Annotated[int, typer.Option("--draws", help="Kept draws per chain.")]
Chains = Annotated[int, typer.Option("--chains", help="Number of chains.")]
Warmup = Annotated[int, typer.Option("--warmup", help="Warm-up iterations per chain.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the post-processing; no secret.")]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", autocompletion=lambda: [*ENGINE_NAMES], help="Stan engine: auto, cmdstan or stanli."
    ),
]
SettingsName = Annotated[
    str | None,
    typer.Option(
        "--settings",
        autocompletion=lambda: [*SETTINGS],
        help="suggested (chosen for --num-records, the rule with it), published (the paper's), or plain.",
    ),
]
PhiStarPrior = Annotated[
    str | None,
    typer.Option(
        "--phi-star-prior",
        autocompletion=lambda: [*PHI_STAR_PRIORS],
        help="Prior of the optimum: trace or model. trace when omitted; model where auto is dense.",
    ),
]
CurvaturePrior = Annotated[
    str,
    typer.Option(
        "--curvature-prior",
        autocompletion=lambda: [*CURVATURE_PRIORS],
        help="Prior of the curvature: auto, trace, weak, model or tighter.",
    ),
]
SubsamplingNoise = Annotated[
    bool,
    typer.Option(
        "--subsampling-noise/--no-subsampling-noise", help="Infer the variance that subsampling adds."
    ),
]
AdaptDelta = Annotated[
    float, typer.Option("--adapt-delta", help="Target acceptance of NUTS; raise it when it diverges.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace output files that exist.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")]
