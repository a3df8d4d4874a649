"""nadpvi: noise-aware, differentially private Bayesian inference.

A curator calls `release` once and publishes the result; an analyst calls `infer` on it as often as they
like. See the README for the road from a private table to an honest posterior.
"""

from nadpvi import models
from nadpvi.callbacks import StepDone
from nadpvi.clipping.api import correct_clipping
from nadpvi.config import DPVIConfig
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.release import Release
from nadpvi.diagnostics.findings import Finding
from nadpvi.diagnostics.release import Diagnostics, diagnose
from nadpvi.errors import (
    ArgumentError,
    DataError,
    DivergenceError,
    EngineError,
    FileError,
    GradientModelWarning,
    InferenceWarning,
    ModelError,
    NadpviError,
    PriorWeightWarning,
    PrivacyError,
    SamplerWarning,
    SchemaError,
    StationarityWarning,
)
from nadpvi.export import ExportedFiles, export_stan
from nadpvi.guides import FullRank, LowRank, MeanField
from nadpvi.inference.api import infer
from nadpvi.interrupts import RunInterrupted
from nadpvi.planning.pace import with_kept_pace
from nadpvi.planning.plan import plan
from nadpvi.planning.published import published_config
from nadpvi.planning.report import Plan
from nadpvi.planning.suggestion import suggest_config
from nadpvi.privacy.accounting import epsilon_spent, noise_multiplier
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.ledger import Ledger
from nadpvi.privacy.selection import Selection
from nadpvi.private.choice import choose
from nadpvi.private.curator import release
from nadpvi.private.records import Records
from nadpvi.private.replicates import replicate_seeds, simulate_releases, simulate_tables
from nadpvi.private.resume import partial_release, resume
from nadpvi.schema import (
    BinaryColumn,
    CategoricalColumn,
    CountColumn,
    Counts,
    OrderedColumn,
    Person,
    RealColumn,
    Schema,
)

__all__ = [
    # The road
    "plan",
    "Plan",
    "suggest_config",
    "with_kept_pace",
    "published_config",
    "choose",
    "partial_release",
    "release",
    "resume",
    "infer",
    "correct_clipping",
    "diagnose",
    "Diagnostics",
    "Finding",
    "export_stan",
    "ExportedFiles",
    "Release",
    "Posterior",
    # What it needs
    "models",
    "Schema",
    "Person",
    "RealColumn",
    "BinaryColumn",
    "CategoricalColumn",
    "CountColumn",
    "Counts",
    "OrderedColumn",
    "DPVIConfig",
    "MeanField",
    "FullRank",
    "LowRank",
    "StepDone",
    "Records",
    # Many simulated runs at once
    "replicate_seeds",
    "simulate_releases",
    "simulate_tables",
    # Privacy
    "PrivacyBudget",
    "NonPrivate",
    "Guarantee",
    "Ledger",
    "Selection",
    "noise_multiplier",
    "epsilon_spent",
    # Errors and warnings
    "NadpviError",
    "ArgumentError",
    "DataError",
    "DivergenceError",
    "EngineError",
    "FileError",
    "InferenceWarning",
    "StationarityWarning",
    "GradientModelWarning",
    "PriorWeightWarning",
    "SamplerWarning",
    "ModelError",
    "PrivacyError",
    "SchemaError",
    "RunInterrupted",
]
