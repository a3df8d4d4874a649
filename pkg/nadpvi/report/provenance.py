"""The report's last part: model, schema, settings and versions, all of them public."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from nadpvi.containers.posterior_like import PosteriorLike
from nadpvi.containers.release import Release
from nadpvi.markup import column_content, shown_name
from nadpvi.report.parts import Cells

__all__ = ["ProvenancePart", "provenance_part"]

Pairs = tuple[tuple[str, str], ...]

# Settings that have parts or places of their own.
_MOST_SHOWN = 12
_ELSEWHERE = ("diagnostics", "versions", "release_versions", "promise")


class ProvenancePart(NamedTuple):
    """Names and values; empty where there are none. `columns` is the schema, `versions` those of packages."""

    model: Pairs
    columns: Cells | None
    inference: Pairs
    run: Pairs
    versions: Cells | None


def provenance_part(posterior: PosteriorLike, release: Release | None) -> ProvenancePart:
    """Return how a posterior came about."""
    settings, description = posterior.settings, posterior.description
    config = None if release is None or release.config is None else release.config.to_dict()
    model: Pairs = ()
    if description is not None:
        model = (*_pairs(description.model.to_dict()), ("guide", _shown(description.guide.to_dict())))
    return ProvenancePart(
        model=model,
        columns=None if description is None else _columns(description.schema.columns),
        inference=_pairs({name: value for name, value in settings.items() if name not in _ELSEWHERE}),
        run=() if config is None else _pairs(config),
        versions=_versions(settings),
    )


def _pairs(values: Mapping[str, Any]) -> Pairs:
    """Return settings as texts."""
    return tuple((str(name).replace("_", " "), _shown(value)) for name, value in values.items())


def _shown(value: object) -> str:
    """Return a setting as a text: as it is, or as JSON."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        return value
    entries = list(value.values()) if isinstance(value, dict) else value
    if isinstance(entries, list) and entries:
        if all(isinstance(entry, str) for entry in entries) and isinstance(value, list):
            return ", ".join(entries)
        if len(entries) > _MOST_SHOWN and all(isinstance(entry, int | float) for entry in entries):
            return f"{len(entries)} numbers from {min(entries):.3g} to {max(entries):.3g}"
    return json.dumps(value, ensure_ascii=False)


def _columns(columns: Any) -> Cells:
    """Return the schema as a table: what it says of each column's cells."""
    rows = []
    for column in columns:
        rows.append((shown_name(column.name), column.kind, column_content(column)))
    return Cells(("column", "kind", "bounds or levels"), tuple(rows))


def _versions(settings: Mapping[str, Any]) -> Cells | None:
    """Return the versions of packages at the release and at the inference."""
    of_release, of_posterior = (settings.get(name) or {} for name in ("release_versions", "versions"))
    names = sorted({*of_release, *of_posterior})
    if not names:
        return None
    rows = tuple(
        (name, str(of_release.get(name, "n/a")), str(of_posterior.get(name, "n/a"))) for name in names
    )
    return Cells(("package", "at the release", "at the inference"), rows)
