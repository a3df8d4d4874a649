"""Exceptions and warnings: what a user's mistake or a fitted model's trouble is called.

Every error here is meant for a person: one line that names the argument or file, the rule and the
remedy, and never a cell's value. Anything else that escapes this package is a bug.
"""

__all__ = [
    "ArgumentError",
    "DataError",
    "DivergenceError",
    "EngineError",
    "FileError",
    "GradientModelWarning",
    "InferenceWarning",
    "ModelError",
    "NadpviError",
    "PriorWeightWarning",
    "PrivacyError",
    "SamplerWarning",
    "SchemaError",
    "StationarityWarning",
]


class NadpviError(Exception):
    """Base of every error that this package raises on purpose."""


class ArgumentError(NadpviError, ValueError):
    """An argument is outside its declared range or of the wrong type."""


class SchemaError(NadpviError, ValueError):
    """A schema is inconsistent, or does not fit the model that uses it."""


class DataError(NadpviError, ValueError):
    """A table does not follow its schema. The message names columns, never rows or values."""


class FileError(NadpviError, OSError):
    """A file cannot be read or written as asked."""


class PrivacyError(NadpviError, RuntimeError):
    """Going on would void the privacy guarantee."""


class ModelError(NadpviError, RuntimeError):
    """A model's own code does not do what the mechanism needs."""


class DivergenceError(NadpviError, RuntimeError):
    """A private run left the finite numbers; its noise was drawn, so that its budget is spent."""


class EngineError(NadpviError, RuntimeError):
    """A Stan engine is missing or failed."""


class InferenceWarning(UserWarning):
    """Sampling finished with trouble that the reader of the posterior must know."""


class StationarityWarning(InferenceWarning):
    """The run had not settled in the window, or its steps were too large or too small to tell."""


class GradientModelWarning(InferenceWarning):
    """The gradients in the window are not a line with independent noise of the size that is claimed."""


class PriorWeightWarning(InferenceWarning):
    """The noise drowns a parameter, so that its posterior is mostly its prior."""


class SamplerWarning(InferenceWarning):
    """Chains disagree, diverged or hold too few effective draws, or an approximation is poor."""
