"""Variational families: how phi describes a distribution over unconstrained theta."""

from nadpvi.guides.base import Guide
from nadpvi.guides.full_rank import FullRank
from nadpvi.guides.low_rank import LowRank
from nadpvi.guides.mean_field import MeanField
from nadpvi.guides.registry import GUIDES, check_guide, guide_by_name, guide_from_dict

__all__ = [
    "GUIDES",
    "FullRank",
    "Guide",
    "LowRank",
    "MeanField",
    "check_guide",
    "guide_by_name",
    "guide_from_dict",
]
