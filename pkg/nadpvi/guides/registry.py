"""All guides by kind: contract tests run over this list, and headers are read back through it."""

from typing import Any

from nadpvi.errors import ArgumentError
from nadpvi.guides.base import Guide
from nadpvi.guides.full_rank import FullRank
from nadpvi.guides.low_rank import LowRank
from nadpvi.guides.mean_field import MeanField

__all__ = ["GUIDES", "check_guide", "guide_by_name", "guide_from_dict"]

GUIDES: dict[str, type[Guide]] = {guide.kind: guide for guide in (MeanField, FullRank, LowRank)}


def check_guide(guide: object) -> None:
    """Raise `ArgumentError` unless `guide` is one of the package's own, which files can name."""
    if not isinstance(guide, tuple(GUIDES.values())):
        names = ", ".join(f"{kind.__name__}(...)" for kind in GUIDES.values())
        # The class in place of an instance is the likely slip, and its own name says more than "type".
        given = guide.__name__ if isinstance(guide, type) else type(guide).__name__
        raise ArgumentError(f"guide must be one of {names} (got {given}).")


def guide_from_dict(data: dict[str, Any]) -> Guide:
    """Return the guide whose `to_dict` gave `data`.

    Raises
    ------
    ArgumentError
        If the kind is unknown, or a setting is missing or unknown.

    Examples
    --------
    >>> guide_from_dict({"kind": "mean_field", "scale": "sd"})
    MeanField(scale='sd')
    """
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in GUIDES:
        raise ArgumentError(f"guide kind must be one of {sorted(GUIDES)} (got {kind!r}).")
    return GUIDES[kind].from_dict(data)


def guide_by_name(text: str) -> Guide:
    """Return the guide that a word describes: ``mean_field``, ``full_rank``, or ``low_rank:2`` with its rank.

    Raises
    ------
    ArgumentError
        If the kind is unknown, or its rank is missing or no number.

    Examples
    --------
    >>> guide_by_name("low_rank:2").rank
    2
    """
    kind, colon, rank = text.partition(":")
    if kind == LowRank.kind and rank.isdecimal():
        return LowRank(rank=int(rank))
    if colon or kind not in (MeanField.kind, FullRank.kind):
        raise ArgumentError(f"guide must be mean_field, full_rank or low_rank:RANK (got {text!r}).")
    return GUIDES[kind]()
