"""Bayesian models: prior, likelihood of one record, and the names of their parameters."""

from nadpvi.models.base import Model, Parameter, RecordBatch
from nadpvi.models.bernoulli_beta import BernoulliBeta
from nadpvi.models.binary import BinaryRegression
from nadpvi.models.categorical_dirichlet import CategoricalDirichlet
from nadpvi.models.custom import CustomModel
from nadpvi.models.exponential_gamma import ExponentialGamma
from nadpvi.models.linear import LinearRegression
from nadpvi.models.logistic import LogisticRegression
from nadpvi.models.multinomial import MultinomialLogisticRegression
from nadpvi.models.negative_binomial import NegativeBinomialRegression
from nadpvi.models.normal import Normal
from nadpvi.models.poisson import PoissonRegression
from nadpvi.models.poisson_gamma import PoissonGamma
from nadpvi.models.registry import MODELS, model_from_dict

__all__ = [
    "BernoulliBeta",
    "BinaryRegression",
    "CategoricalDirichlet",
    "CustomModel",
    "ExponentialGamma",
    "LinearRegression",
    "LogisticRegression",
    "MultinomialLogisticRegression",
    "NegativeBinomialRegression",
    "Normal",
    "PoissonGamma",
    "PoissonRegression",
    "MODELS",
    "Model",
    "Parameter",
    "RecordBatch",
    "model_from_dict",
]
