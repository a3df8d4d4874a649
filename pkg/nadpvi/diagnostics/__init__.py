"""What draws, chains and a release itself say about how far a posterior can be trusted. Public side."""

from nadpvi.diagnostics.burn_in import choose_burn_in
from nadpvi.diagnostics.chains import chain_findings, num_divergences, summarise, warn_of_disagreement
from nadpvi.diagnostics.findings import Finding, warn_of
from nadpvi.diagnostics.release import Diagnostics, diagnose

__all__ = [
    "Diagnostics",
    "Finding",
    "chain_findings",
    "choose_burn_in",
    "diagnose",
    "num_divergences",
    "summarise",
    "warn_of",
    "warn_of_disagreement",
]
