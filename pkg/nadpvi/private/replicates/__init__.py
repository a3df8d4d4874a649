"""Many simulated releases at once, for coverage studies and planning. Private side, never private."""

from nadpvi.private.replicates.api import ReplicateTraces, simulate_releases
from nadpvi.private.replicates.tables import SimulatedTables, replicate_seed, replicate_seeds, simulate_tables

__all__ = [
    "ReplicateTraces",
    "SimulatedTables",
    "replicate_seed",
    "replicate_seeds",
    "simulate_releases",
    "simulate_tables",
]
