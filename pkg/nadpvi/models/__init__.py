"""Bayesian models: prior, likelihood of one record, and the names of their parameters."""

from nadpvi.models.base import Model, Parameter, RecordBatch
from nadpvi.models.logistic import LogisticRegression
from nadpvi.models.registry import MODELS, model_from_dict

__all__ = ["MODELS", "LogisticRegression", "Model", "Parameter", "RecordBatch", "model_from_dict"]
