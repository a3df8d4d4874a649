"""Rivals of the noise-aware posterior, for comparison."""

from nadpvi.baselines.last_iterate import last_iterate_posterior
from nadpvi.baselines.non_private import non_private_posterior

__all__ = ["last_iterate_posterior", "non_private_posterior"]
