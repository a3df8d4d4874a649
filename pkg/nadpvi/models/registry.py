"""All models by kind: contract tests run over this list, and headers are read back through it."""

import inspect
from typing import Any

from nadpvi.errors import ArgumentError
from nadpvi.models.base import Model
from nadpvi.models.bernoulli_beta import BernoulliBeta
from nadpvi.models.binary import BinaryRegression
from nadpvi.models.categorical_dirichlet import CategoricalDirichlet
from nadpvi.models.custom_recorded import RecordedModel, recorded_model
from nadpvi.models.exponential_gamma import ExponentialGamma
from nadpvi.models.linear import LinearRegression
from nadpvi.models.logistic import LogisticRegression
from nadpvi.models.multinomial import MultinomialLogisticRegression
from nadpvi.models.negative_binomial import NegativeBinomialRegression
from nadpvi.models.normal import Normal
from nadpvi.models.poisson import PoissonRegression
from nadpvi.models.poisson_gamma import PoissonGamma

__all__ = ["MODELS", "model_from_dict"]

MODELS: dict[str, type[Model]] = {
    BernoulliBeta.kind: BernoulliBeta,
    BinaryRegression.kind: BinaryRegression,
    CategoricalDirichlet.kind: CategoricalDirichlet,
    ExponentialGamma.kind: ExponentialGamma,
    LinearRegression.kind: LinearRegression,
    LogisticRegression.kind: LogisticRegression,
    MultinomialLogisticRegression.kind: MultinomialLogisticRegression,
    NegativeBinomialRegression.kind: NegativeBinomialRegression,
    Normal.kind: Normal,
    PoissonGamma.kind: PoissonGamma,
    PoissonRegression.kind: PoissonRegression,
}


def model_from_dict(data: dict[str, Any]) -> Model:
    """Return the model whose `to_dict` gave `data`; a custom model comes without its functions.

    Raises
    ------
    ArgumentError
        If the kind is unknown, or a setting is missing or unknown.
    """
    kind = data.get("kind")
    if kind == RecordedModel.kind:
        return recorded_model(data)
    if kind not in MODELS:
        known_kinds = sorted([*MODELS, RecordedModel.kind])
        raise ArgumentError(f"model kind must be one of {known_kinds} (got {kind!r}).")
    settings = {key: value for key, value in data.items() if key != "kind"}
    known = inspect.signature(MODELS[kind]).parameters
    # A setting that a later version added is at its default in what an earlier one wrote.
    needed = {name for name, parameter in known.items() if parameter.default is parameter.empty}
    if "formula" in known and "formula" not in settings:
        needed.add("outcome")
    if not needed <= set(settings) <= set(known):
        raise ArgumentError(
            f"a {kind} description needs {sorted(needed)} and knows {sorted(known)} (got {sorted(settings)})."
        )
    return MODELS[kind](**settings)
