"""The settings of a run that a command's options describe."""

import dataclasses
from typing import Any

from nadpvi.config import DPVIConfig
from nadpvi.guides import guide_by_name
from nadpvi.models import Model
from nadpvi.planning.resolve import resolve_config
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.schema import Schema

__all__ = ["config_from_options"]


def config_from_options(
    model: Model,
    privacy: PrivacyBudget,
    *,
    schema: Schema,
    settings: str | None,
    num_records: int | None,
    prior_term: str,
    guide: str = "mean_field",
    **given: Any,
) -> DPVIConfig:
    """Return the settings that are named or chosen, with those that were given one by one in their places.

    Parameters
    ----------
    model, privacy, schema
        The run.
    settings, num_records
        As for `nadpvi.planning.resolve.resolve_config`; with ``prior_term="per_record"`` the number goes into
        the prior, and chooses settings only where they are asked for.
    prior_term, guide
        As the options have them.
    **given
        Settings by name; None is one that was not given.
    """
    per_record = prior_term == "per_record"
    chosen = resolve_config(
        model,
        privacy,
        schema=schema,
        settings=settings,
        num_records=None if per_record and settings != "suggested" else num_records,
        guide=None if guide == "mean_field" else guide_by_name(guide),
    )
    changes = {name: value for name, value in given.items() if value is not None}
    if chosen.learning_rate is not None:
        changes = {**_kept_pace(chosen, changes), **changes}
    if "learning_rate_constant" in changes:
        # The heuristic step size replaces the one that was chosen.
        changes |= {"learning_rate": None, "learning_rate_factors": None}
    if per_record:
        # A curvature is released without the prior's part, which is not apart here.
        changes |= {"curvature_share": changes.get("curvature_share", 0.0)}
    return dataclasses.replace(
        chosen, prior_term=prior_term, num_records=num_records if per_record else None, **changes
    )


def _kept_pace(chosen: DPVIConfig, changes: dict[str, Any]) -> dict[str, Any]:
    """Return step sizes with which iterates move as they were meant to, with other rates, steps or weights.

    What counts is step size times sampling rate, in a scale times its preconditioner, over all steps. Fewer
    steps keep their size, since larger ones could be unsteady.
    """
    assert chosen.learning_rate is not None  # checked by the caller
    by_rate = chosen.sampling_rate / float(changes.get("sampling_rate", chosen.sampling_rate))
    by_steps = min(1.0, chosen.num_steps / int(changes.get("num_steps", chosen.num_steps)))
    by_weight = chosen.preconditioner_u / float(changes.get("preconditioner_u", chosen.preconditioner_u))
    factors = {
        label: factor if label.startswith("mu[") else factor * by_weight
        for label, factor in (chosen.learning_rate_factors or {}).items()
    }
    return {
        "learning_rate": chosen.learning_rate * by_rate * by_steps,
        "learning_rate_factors": factors or None,
    }
