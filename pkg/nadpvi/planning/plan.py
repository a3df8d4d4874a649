"""Pre-flight: what a run will cost and what it can tell, before any record is read or budget spent.

All numbers come from the schema, the model, the settings and a guessed number of records; the mathematics is
in `nadpvi.planning.expectations`. The run time is measured on made-up records, which is why this module
drives both sides of the wall.
"""

import dataclasses
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count
from nadpvi.columns import CategoricalColumn
from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.containers.storage import to_netcdf
from nadpvi.coverage.expected_optimum import ExpectedOptimum, expected_optimum
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError, ModelError
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN, window_start
from nadpvi.made_up import Covariates
from nadpvi.mechanism import Mechanism, make_mechanism
from nadpvi.models.base import Model, Parameter, SimulatingModel
from nadpvi.models.custom import CustomModel
from nadpvi.planning.curvature import mean_field_of
from nadpvi.planning.expectations import expect_run
from nadpvi.planning.outcomes import outcome_warnings
from nadpvi.planning.report import Plan
from nadpvi.planning.resolve import resolve_config
from nadpvi.planning.timing import time_run
from nadpvi.planning.warnings import plan_warnings
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.parameters import ADD_OR_REMOVE_ONE
from nadpvi.private.dry_run import check_model
from nadpvi.schema import Schema

__all__ = ["plan"]

_MOST_PARAMETERS = 2000
# A guarantee in the header of a release, measured.
_GUARANTEE_BYTES = 1000


def plan(
    model: Model,
    privacy: PrivacyBudget | NonPrivate,
    config: DPVIConfig | None = None,
    *,
    schema: Schema,
    num_records: int,
    covariates: Covariates | None = None,
    burn_in: float = DEFAULT_BURN_IN,
    measure_time: bool = True,
) -> Plan:
    """Return what a run is expected to cost and to tell. Reads no data and spends nothing.

    Records are made up by the schema: levels equally frequent, numbers uniform within their bounds,
    predictors independent. Real tables are less even, so that their rare levels fare worse than the plan
    says; `Plan.margin` and `Plan.drowning_count` say how rare a level may be before it drowns.

    Parameters
    ----------
    model : Model
        What to fit; it must be able to `simulate`.
    privacy : PrivacyBudget or NonPrivate
        The budget of the run.
    config : DPVIConfig, optional
        Settings of the run; when omitted those that `nadpvi.suggest_config` chooses for `num_records`.
    schema : Schema
        The public description of the table.
    num_records : int
        A guess at the number of records used, from public knowledge; never count the table for it.
    covariates : DataFrame or callable, optional
        Public predictors from which settings are chosen, as for `nadpvi.suggest_config`. The plan itself is
        made for predictors made up by the schema.
    burn_in : float
        Share of the first steps that inference will leave out, in [0, 1).
    measure_time : bool
        Whether a few steps on made-up records are timed.

    Raises
    ------
    ArgumentError, SchemaError, ModelError
        What `nadpvi.release` would refuse before it opens a table, and a model that cannot simulate.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {
    ...     "age": {"kind": "real", "lower": 0, "upper": 100},
    ...     "well": {"kind": "binary", "levels": ["no", "yes"]}}})
    >>> from nadpvi.models import LogisticRegression
    >>> made = plan(LogisticRegression(outcome="well"), PrivacyBudget(epsilon=1, delta=1e-6),
    ...     schema=schema, num_records=10_000, measure_time=False)
    >>> made.names
    ('Intercept', 'age')
    >>> bool((made.private_sd < made.prior_sd).all())
    True
    """
    num_records = check_count("num_records", num_records)
    _check_types(model, privacy=privacy, config=DPVIConfig() if config is None else config, schema=schema)
    settings_in = resolve_config(
        model,
        privacy,
        config,
        schema=schema,
        num_records=num_records if config is None else None,
        covariates=covariates,
    )
    if settings_in.num_records not in (None, num_records):
        raise ArgumentError(
            f"num_records must be the config's public num_records, {settings_in.num_records} (got "
            f"{num_records})."
        )
    num_window_steps = settings_in.num_steps - window_start(settings_in.num_steps, burn_in=burn_in)
    description = ModelDescription(model=model, schema=schema, guide=settings_in.guide)
    mean_field_of(description)
    if description.design.outcome is None:
        raise ModelError(
            f"{type(model).__name__} cannot be planned for: it has no outcome, and the predictors that it "
            "explains are made up without it."
        )
    if len(description.names) > _MOST_PARAMETERS:
        raise ArgumentError(
            f"plan holds a square matrix of all parameters and takes at most {_MOST_PARAMETERS} of them (got "
            f"{len(description.names)})."
        )
    check_model(description, num_draws=settings_in.monte_carlo_samples)
    mechanism = make_mechanism(description, privacy=privacy, config=settings_in)
    return _make_plan(
        mechanism, num_records=num_records, num_window_steps=num_window_steps, measure_time=measure_time
    )


def _make_plan(mechanism: Mechanism, *, num_records: int, num_window_steps: int, measure_time: bool) -> Plan:
    """Return the plan of a calibrated run."""
    settings, privacy, description = mechanism.settings, mechanism.privacy, mechanism.description
    sigma = mechanism.noise_multiplier
    noise_std = sigma * settings.clip_norm / settings.preconditioner
    expected = expect_run(
        settings,
        noise_std=noise_std,
        num_records=num_records,
        num_window_steps=num_window_steps,
        rng=np.random.default_rng(0),
    )
    time = time_run(settings, noise_multiplier=sigma, num_records=num_records) if measure_time else None
    optimum = _optimum(mechanism, num_records=num_records)
    size = len(description.names)
    made = Plan(
        epsilon=privacy.epsilon if isinstance(privacy, PrivacyBudget) else math.inf,
        delta=privacy.delta if isinstance(privacy, PrivacyBudget) else 0.0,
        protects=_protects(description),
        neighbouring_relation=(
            privacy.neighbouring_relation if isinstance(privacy, PrivacyBudget) else "none"
        ),
        num_records=num_records,
        num_steps=settings.num_steps,
        num_window_steps=num_window_steps,
        sampling_rate=settings.sampling_rate,
        clip_norm=settings.clip_norm,
        noise_multiplier=sigma,
        preconditioner_u=mechanism.config.preconditioner_u,
        initial_u=settings.initial_phi[size : 2 * size],
        curvature_share=mechanism.config.curvature_share,
        suggested_for=mechanism.config.suggested_for,
        is_heuristic=mechanism.config.learning_rate is None,
        names=description.names,
        phi_labels=description.phi_labels,
        noise_std=noise_std,
        learning_rate=settings.learning_rate,
        relaxation_steps=expected.relaxation_steps,
        prior_sd=expected.prior_sd,
        non_private_sd=np.sqrt(expected.spread.non_private),
        noise_sd=np.sqrt(expected.spread.added),
        private_sd=np.sqrt(expected.spread.non_private + expected.spread.added),
        trace_sd=np.sqrt(expected.spread.trace),
        optimum_sd=optimum.sd,
        margin=expected.margin,
        drowning_count=_drowning_count(description, margin=expected.margin, num_records=num_records),
        scale_error=expected.scale_error,
        largest_step=expected.largest_step,
        clipped_share=float((expected.norms > settings.clip_norm).mean()),
        typical_norm=float(np.quantile(expected.norms, 0.99)),
        file_bytes=_file_bytes(mechanism),
        run_seconds=None if time is None else time.total,
        num_timed_steps=0 if time is None else time.num_timed_steps,
        optimum_reason=optimum.reason,
        warnings=(),
    )
    spread = expected.spread
    lost_share = spread.added / np.maximum(spread.learnable, np.finfo(float).tiny)
    found = outcome_warnings(description, rng=np.random.default_rng(0))
    found += plan_warnings(made, lost_share=lost_share, evenness=expected.evenness)
    return dataclasses.replace(made, warnings=tuple(found))


def _optimum(mechanism: Mechanism, *, num_records: int) -> ExpectedOptimum:
    """Return the best posterior at this budget, where there is one and it is known."""
    privacy, description = mechanism.privacy, mechanism.description
    if not isinstance(privacy, PrivacyBudget):
        return ExpectedOptimum(None, "the non-private posterior, without a budget")
    if description.schema.person is not None or privacy.neighbouring_relation != ADD_OR_REMOVE_ONE:
        return ExpectedOptimum(None, "worked out for adding or removing one record only")
    return expected_optimum(
        description.model,
        description.design,
        num_records=num_records,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
    )


def _drowning_count(
    description: ModelDescription, *, margin: NDArray[np.float64], num_records: int
) -> float | None:
    """Return how many records a level needs, at most over the levels whose coefficient is a parameter."""
    design = description.design
    levels = {
        f"{column.name}[{level}]": len(column.levels)
        for column in (design.schema[name] for name in design.predictors)
        if isinstance(column, CategoricalColumn)
        for level in column.levels
    }
    # The last coordinate of a coefficient is its label, whatever else it has: "coefficients[yes, job[a]]".
    labels = [label for block in description.parameters for label in _last_labels(block)]
    counts = [
        num_records / (levels[label] * needed)
        for label, needed in zip(labels, margin, strict=True)
        if label in levels
    ]
    return max(counts, default=None)


def _last_labels(block: Parameter) -> list[str]:
    """Return the last coordinate's label of each of a real block's numbers; the names of any other's."""
    if block.support != "real" or not block.dims:
        return list(block.labels)
    return [entry[-1] for entry in itertools.product(*block.coords)]


def _file_bytes(mechanism: Mechanism) -> int:
    """Return the size of the release's file: arrays are stored as they are, so that it grows by the step."""
    shown, num_steps = 3, mechanism.settings.num_steps
    rows = np.zeros((shown, mechanism.dimension))
    description, settings = mechanism.description, mechanism.settings
    bare = Release.from_arrays(
        phi=rows,
        noisy_gradient=rows,
        noise_multiplier=mechanism.noise_multiplier,
        clip_norm=settings.clip_norm,
        sampling_rate=settings.sampling_rate,
        phi_labels=description.phi_labels,
    )
    small = dataclasses.replace(bare, description=description, config=mechanism.config)
    per_step = 8 * (2 * mechanism.dimension + 1)
    return len(to_netcdf(small.to_dataset())) + _GUARANTEE_BYTES + (num_steps - shown) * per_step


def _check_types(model: object, *, schema: object, privacy: object, config: object) -> None:
    """Refuse arguments of the wrong kind, naming each."""
    expected = (
        ("model", model, Model, "a model, such as nadpvi.models.LogisticRegression(...)"),
        ("schema", schema, Schema, "a Schema, such as Schema.from_toml(path)"),
        ("privacy", privacy, PrivacyBudget | NonPrivate, "a PrivacyBudget(epsilon=, delta=)"),
        ("config", config, DPVIConfig, "a DPVIConfig"),
    )
    for name, value, kind, wanted in expected:
        if not isinstance(value, kind):
            raise ArgumentError(f"{name} must be {wanted} (got {type(value).__name__}).")
    if not isinstance(model, SimulatingModel):
        own = isinstance(model, CustomModel)
        named = f"the model {model.name!r}" if isinstance(model, CustomModel) else type(model).__name__
        missing = "simulate(p, x, rng)" if own else "simulate(theta, x, *, rng)"
        raise ModelError(
            f"{named} cannot be planned for: it has no {missing}, which draws outcomes from the model."
        )


def _protects(description: ModelDescription) -> str:
    """Return the unit of privacy in words."""
    person = description.schema.person
    return "one record" if person is None else f"one person, up to {person.max_rows} records each"
