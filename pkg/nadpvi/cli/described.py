"""The run that options describe, for every command that has such options."""

from dataclasses import dataclass

from nadpvi.cli import options
from nadpvi.cli.model import model_from_options
from nadpvi.cli.settings import config_from_options
from nadpvi.config import DPVIConfig
from nadpvi.models import Model
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.schema import Schema

__all__ = ["RunDescription", "RunOptions", "described_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options that say what is run: model, budget, schema and settings."""

    schema: options.SchemaFile
    epsilon: options.Epsilon
    delta: options.Delta
    outcome: options.Outcome = None
    predictor: options.Predictors = None
    formula: options.Formula = None
    model: options.Model = "logistic_regression"
    prior_sd: options.PriorSd = None
    model_setting: options.ModelSettings = None
    settings: options.SettingsName = None
    num_records: options.NumRecords = None
    steps: options.Steps = None
    sampling_rate: options.SamplingRate = None
    clip_norm: options.ClipNorm = None
    preconditioner_u: options.PreconditionerU = None
    curvature_share: options.CurvatureShare = None
    learning_rate_constant: options.LearningRateConstant = None
    initial_u: options.InitialU = None
    guide: options.Guide = "mean_field"
    neighbouring_relation: options.NeighbouringRelation = "add_or_remove_one"
    prior_term: options.PriorTerm = "public"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDescription:
    """A run without its table: public throughout."""

    model: Model
    budget: PrivacyBudget
    schema: Schema
    config: DPVIConfig


def described_run(run: RunOptions, *, num_records: int | None) -> RunDescription:
    """Return the run that the options describe.

    Parameters
    ----------
    run : RunOptions
    num_records : int, optional
        What settings are chosen for, or what the prior is spread over; see `config_from_options`.

    Raises
    ------
    ArgumentError, SchemaError, FileError
        If an option is out of range or contradicts another.
    """
    model = model_from_options(
        run.model,
        outcome=run.outcome,
        predictors=run.predictor,
        formula=run.formula,
        prior_sd=run.prior_sd,
        settings=run.model_setting,
    )
    budget = PrivacyBudget(
        epsilon=run.epsilon, delta=run.delta, neighbouring_relation=run.neighbouring_relation
    )
    schema = Schema.from_toml(run.schema)
    config = config_from_options(
        model,
        budget,
        schema=schema,
        settings=run.settings,
        num_records=num_records,
        prior_term=run.prior_term,
        guide=run.guide,
        num_steps=run.steps,
        sampling_rate=run.sampling_rate,
        clip_norm=run.clip_norm,
        preconditioner_u=run.preconditioner_u,
        curvature_share=run.curvature_share,
        learning_rate_constant=run.learning_rate_constant,
        initial_u=run.initial_u,
    )
    return RunDescription(model=model, budget=budget, schema=schema, config=config)
