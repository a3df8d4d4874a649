"""Rivals of the noise-aware posterior, for comparison."""

from nadpvi.baselines.dpvim import dpvim_posterior
from nadpvi.baselines.dpvim_run import DPVImInterrupted, dpvim_release
from nadpvi.baselines.dpvim_simulated import simulate_dpvim_releases
from nadpvi.baselines.dpvim_trace import DPVImRelease
from nadpvi.baselines.last_iterate import last_iterate_posterior
from nadpvi.baselines.non_private import non_private_posterior

__all__ = [
    "DPVImInterrupted",
    "DPVImRelease",
    "dpvim_posterior",
    "dpvim_release",
    "last_iterate_posterior",
    "non_private_posterior",
    "simulate_dpvim_releases",
]
