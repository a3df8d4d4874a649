"""Rivals of the noise-aware posterior, for comparison."""

from nadpvi.baselines.dpvim import dpvim_posterior
from nadpvi.baselines.dpvim_run import DPVImInterrupted, dpvim_release
from nadpvi.baselines.dpvim_simulated import simulate_dpvim_releases
from nadpvi.baselines.dpvim_trace import DPVImRelease
from nadpvi.baselines.last_iterate import last_iterate_posterior
from nadpvi.baselines.non_private import non_private_posterior
from nadpvi.baselines.sufficient_statistics.gibbs import sample_statistics
from nadpvi.baselines.sufficient_statistics.mechanism import make_statistics_mechanism
from nadpvi.baselines.sufficient_statistics.records import (
    release_statistics,
    simulate_statistics,
    true_statistics,
)
from nadpvi.baselines.sufficient_statistics.release import (
    StatisticsRelease,
    make_statistics_family,
    statistics_posterior,
)

__all__ = [
    "DPVImInterrupted",
    "DPVImRelease",
    "StatisticsRelease",
    "dpvim_posterior",
    "dpvim_release",
    "last_iterate_posterior",
    "make_statistics_family",
    "make_statistics_mechanism",
    "non_private_posterior",
    "release_statistics",
    "sample_statistics",
    "simulate_dpvim_releases",
    "simulate_statistics",
    "statistics_posterior",
    "true_statistics",
]
