"""The settings of a run that a command's options describe."""

import dataclasses
from typing import Any

from nadpvi.config import DPVIConfig
from nadpvi.guides import guide_by_name
from nadpvi.models import Model
from nadpvi.planning.pace import with_kept_pace
from nadpvi.planning.resolve import resolve_config
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.schema import Schema

__all__ = ["config_from_options"]

_PACE = ("num_steps", "sampling_rate", "preconditioner_u")  # which step sizes are adapted to


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
        chosen = with_kept_pace(chosen, **{name: changes.get(name) for name in _PACE})
    if "learning_rate_constant" in changes:
        # The heuristic step size replaces the one that was chosen.
        changes |= {"learning_rate": None, "learning_rate_factors": None}
    if per_record:
        # A curvature is released without the prior's part, which is not apart here.
        changes |= {"curvature_share": changes.get("curvature_share", 0.0)}
    return dataclasses.replace(
        chosen, prior_term=prior_term, num_records=num_records if per_record else None, **changes
    )
