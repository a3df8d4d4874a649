"""All models by kind: contract tests run over this list, and headers are read back through it."""

import inspect
from typing import Any

from nadpvi.errors import ArgumentError
from nadpvi.models.base import Model
from nadpvi.models.logistic import LogisticRegression

__all__ = ["MODELS", "model_from_dict"]

MODELS: dict[str, type[Model]] = {LogisticRegression.kind: LogisticRegression}


def model_from_dict(data: dict[str, Any]) -> Model:
    """Return the model whose `to_dict` gave `data`.

    Raises
    ------
    ArgumentError
        If the kind is unknown, or a setting is missing or unknown.
    """
    kind = data.get("kind")
    if kind not in MODELS:
        raise ArgumentError(f"model kind must be one of {sorted(MODELS)} (got {kind!r}).")
    settings = {key: value for key, value in data.items() if key != "kind"}
    known = set(inspect.signature(MODELS[kind]).parameters)
    if set(settings) != known:
        raise ArgumentError(
            f"a {kind} description needs exactly the settings {sorted(known)} (got {sorted(settings)})."
        )
    return MODELS[kind](**settings)
