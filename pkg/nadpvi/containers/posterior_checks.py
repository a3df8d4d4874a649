"""What every posterior must satisfy, however it was made."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from nadpvi.diagnostics.findings import Finding
from nadpvi.errors import ArgumentError

__all__ = ["GROUPS", "check_groups", "check_settings", "read_findings"]

GROUPS = ("posterior", "sample_stats", "observed_data", "constant_data")


def check_groups(groups: Mapping[str, xr.Dataset]) -> None:
    """Raise `ArgumentError` unless groups are those of a posterior, with finite draws in numbered chains."""
    if not isinstance(groups, Mapping) or not all(isinstance(group, xr.Dataset) for group in groups.values()):
        raise ArgumentError("groups must map names to xarray Datasets.")
    unknown = sorted(set(groups) - set(GROUPS))
    if "posterior" not in groups or unknown:
        raise ArgumentError(f"groups must be among {list(GROUPS)}, with posterior (got {unknown}).")
    draws = groups["posterior"]
    for name, variable in draws.data_vars.items():
        if variable.dims[:2] != ("chain", "draw"):
            raise ArgumentError(f"{name} must have dims (chain, draw, ...) (got {variable.dims}).")
        if not np.issubdtype(variable.dtype, np.number):
            raise ArgumentError(f"{name} must hold numbers (got {variable.dtype}).")
        if not np.isfinite(variable.to_numpy()).all():
            raise ArgumentError(f"{name} has draws that are not finite.")
    for dim in ("chain", "draw"):
        if not draws.sizes.get(dim):
            raise ArgumentError("a posterior must have at least one chain of one draw.")
        _check_numbers(draws, dim)
    statistics = groups.get("sample_stats")
    for dim in () if statistics is None else ("chain", "draw"):
        if statistics is not None and statistics.sizes.get(dim) != draws.sizes[dim]:
            raise ArgumentError(f"sample_stats must have as many entries of {dim} as posterior.")


def _check_numbers(draws: xr.Dataset, dim: str) -> None:
    """Refuse a coordinate of chains or draws that does not number them."""
    if dim not in draws.coords:
        return
    numbers = draws[dim].to_numpy()
    if not np.issubdtype(numbers.dtype, np.integer) or (numbers < 0).any() or (np.diff(numbers) <= 0).any():
        raise ArgumentError(f"the coordinate {dim} must be whole numbers >= 0 in rising order.")


def check_settings(settings: Any) -> None:
    """Raise `ArgumentError` unless settings are a dict of JSON types, whose findings can be read."""
    if not isinstance(settings, dict):
        raise ArgumentError(f"settings must be a dict (got {type(settings).__name__}).")
    try:
        json.dumps(settings)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"settings must be JSON types, for the file: {error}.") from None
    read_findings(settings)


def read_findings(settings: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Return what the checks found, from a posterior's settings, or raise `ArgumentError`."""
    kept = settings.get("diagnostics") or {}
    try:
        found = tuple(Finding.from_dict(item) for item in kept.get("findings", ()))
        if not all(finding.sentence().isprintable() for finding in found):
            raise ArgumentError("a finding must be printable, on one line.")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArgumentError(
            "settings hold diagnostics that are no findings as nadpvi writes them."
        ) from error
    return found
