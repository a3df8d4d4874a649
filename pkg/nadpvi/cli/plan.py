"""nadpvi plan: what a run will cost and what it can tell, before there is any table."""

from typing import Annotated

import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_json, print_text, say, warnings_as_lines
from nadpvi.cli.model import model_from_options
from nadpvi.cli.settings import config_from_options
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.schema import Schema

__all__ = ["plan"]

NumRecords = Annotated[
    int, typer.Option("--num-records", help="Your public guess at how many records there are.")
]


def plan(
    schema: options.SchemaFile,
    outcome: options.Outcome,
    epsilon: options.Epsilon,
    delta: options.Delta,
    num_records: NumRecords,
    predictor: options.Predictors = None,
    model: options.Model = "logistic_regression",
    prior_sd: options.PriorSd = None,
    model_setting: options.ModelSettings = None,
    settings: options.SettingsName = None,
    steps: options.Steps = None,
    sampling_rate: options.SamplingRate = None,
    clip_norm: options.ClipNorm = None,
    preconditioner_u: options.PreconditionerU = None,
    curvature_share: options.CurvatureShare = None,
    learning_rate_constant: options.LearningRateConstant = None,
    initial_u: options.InitialU = None,
    neighbouring_relation: options.NeighbouringRelation = "add_or_remove_one",
    prior_term: options.PriorTerm = "public",
    burn_in: options.BurnIn = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Say what a release would cost and tell. Reads no table, spends nothing.

    Example: nadpvi plan --schema people.toml --outcome income --epsilon 1 --delta 1e-5 --num-records 30000
    """
    from nadpvi.planning.plan import plan as make_plan

    say("trying the model on made-up records ...", quiet=quiet)
    with warnings_as_lines():
        made_model = model_from_options(
            model, outcome=outcome, predictors=predictor, prior_sd=prior_sd, settings=model_setting
        )
        budget = PrivacyBudget(epsilon=epsilon, delta=delta, neighbouring_relation=neighbouring_relation)
        described = Schema.from_toml(schema)
        per_record = prior_term == "per_record"
        chooses = settings == "suggested" or (settings is None and not per_record)
        config = config_from_options(
            made_model,
            budget,
            schema=described,
            settings=settings,
            num_records=num_records if chooses or per_record else None,
            prior_term=prior_term,
            num_steps=steps,
            sampling_rate=sampling_rate,
            clip_norm=clip_norm,
            preconditioner_u=preconditioner_u,
            curvature_share=curvature_share,
            learning_rate_constant=learning_rate_constant,
            initial_u=initial_u,
        )
        made = make_plan(
            made_model,
            budget,
            config,
            schema=described,
            num_records=num_records,
            burn_in=DEFAULT_BURN_IN if burn_in is None else burn_in,
        )
    if json:
        print_json(made.to_dict())
    else:
        print_text(made.report())
    for line in made.warnings:
        say(f"nadpvi: warning: {line}")
