"""nadpvi: noise-aware, differentially private Bayesian inference.

A curator calls `release` once and publishes the result; an analyst calls `infer` on it as often as they
like. See the README for the road from a private table to an honest posterior.
"""

from nadpvi import models
from nadpvi.config import DPVIConfig
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.release import Release
from nadpvi.curator import release
from nadpvi.errors import (
    ArgumentError,
    DataError,
    EngineError,
    FileError,
    InferenceWarning,
    ModelError,
    NadpviError,
    PrivacyError,
    SchemaError,
)
from nadpvi.guides import MeanField
from nadpvi.inference.api import infer
from nadpvi.interrupts import RunInterrupted
from nadpvi.privacy.accounting import epsilon_spent, noise_multiplier
from nadpvi.privacy.guarantee import Guarantee, NonPrivate, PrivacyBudget
from nadpvi.privacy.ledger import Ledger
from nadpvi.schema import BinaryColumn, CategoricalColumn, RealColumn, Schema

__all__ = [
    # The road
    "release",
    "infer",
    "Release",
    "Posterior",
    # What it needs
    "models",
    "Schema",
    "RealColumn",
    "BinaryColumn",
    "CategoricalColumn",
    "DPVIConfig",
    "MeanField",
    # Privacy
    "PrivacyBudget",
    "NonPrivate",
    "Guarantee",
    "Ledger",
    "noise_multiplier",
    "epsilon_spent",
    # Errors and warnings
    "NadpviError",
    "ArgumentError",
    "DataError",
    "EngineError",
    "FileError",
    "InferenceWarning",
    "ModelError",
    "PrivacyError",
    "SchemaError",
    "RunInterrupted",
]
