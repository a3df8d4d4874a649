"""Which settings a run has: those that were given, those chosen for a number of records, or the paper's."""

from nadpvi.config import DPVIConfig
from nadpvi.errors import ArgumentError
from nadpvi.guides import Guide
from nadpvi.made_up import Covariates
from nadpvi.models.base import Model
from nadpvi.planning.published import published_config
from nadpvi.planning.suggestion import suggest_config
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.schema import Schema

__all__ = ["SETTINGS", "resolve_config"]

SETTINGS = ("suggested", "published", "plain")


def resolve_config(
    model: Model,
    privacy: PrivacyBudget | NonPrivate,
    config: DPVIConfig | None = None,
    *,
    schema: Schema,
    settings: str | None = None,
    num_records: int | None = None,
    covariates: Covariates | None = None,
    guide: Guide | None = None,
) -> DPVIConfig:
    """Return the settings of a run, all public.

    Parameters
    ----------
    model, privacy, schema
        The run.
    config : DPVIConfig, optional
        As they are; nothing else may then be given.
    settings : {"suggested", "published", "plain"}, optional
        "suggested": `suggest_config` for `num_records`, and the rule where that is given. "published": the
        paper's for this kind of model. "plain": ``DPVIConfig()``, whose few numbers suit many runs and none
        exactly, and the rule where nothing is given.
    num_records, covariates, guide
        As for `suggest_config`.

    Raises
    ------
    ArgumentError
        If they contradict each other.
    """
    if config is not None:
        given = {"settings": settings, "num_records": num_records, "covariates": covariates}
        for name, value in given.items():
            if value is not None:
                raise ArgumentError(f"{name} chooses settings, and config gives them: leave one of them out.")
        return config
    if settings is None:
        settings = "plain" if num_records is None else "suggested"
    if not isinstance(settings, str) or settings not in SETTINGS:
        known = ", ".join(map(repr, SETTINGS))
        raise ArgumentError(f"settings must be one of {known} (got {settings!r}).")
    if settings == "suggested":
        if num_records is None:
            raise ArgumentError(
                "settings='suggested' needs num_records, a public guess at how many records there are."
            )
        return suggest_config(
            model,
            privacy,
            schema=schema,
            num_records=num_records,
            covariates=covariates,
            guide=guide,
        )
    for name, value in {"num_records": num_records, "covariates": covariates}.items():
        if value is not None:
            raise ArgumentError(f"{name} is used with settings='suggested' only; leave it out.")
    if settings == "published":
        if guide is not None:
            raise ArgumentError("settings='published' have the guide mean_field; leave guide out.")
        return published_config(model, schema=schema)
    return DPVIConfig() if guide is None else DPVIConfig(guide=guide)
