"""The model that a command's options describe."""

import inspect
import json
from collections.abc import Sequence
from typing import Any

from nadpvi.columns import listed
from nadpvi.errors import ArgumentError
from nadpvi.models import MODELS, Model, model_from_dict

__all__ = ["model_from_options"]


def model_from_options(
    kind: str,
    *,
    outcome: str | None,
    predictors: Sequence[str] | None,
    formula: str | None = None,
    prior_sd: float | None,
    settings: Sequence[str] | None,
) -> Model:
    """Return the model of `kind`; what is not given keeps the model's own default.

    Parameters
    ----------
    kind : str
        A key of `MODELS`.
    outcome : str, optional
        The column to model.
    predictors : sequence of str, optional
        The columns to use.
    formula : str, optional
        In place of both.
    prior_sd : float, optional
        Of every coefficient.
    settings : sequence of str, optional
        Further settings as ``name=value``, the value in JSON, or text as it is.

    Raises
    ------
    ArgumentError
        If the kind or a setting is unknown, given twice, or out of range.
    """
    if kind not in MODELS:
        raise ArgumentError(f"--model must be one of {', '.join(sorted(MODELS))} (got {kind!r}).")
    given: dict[str, Any] = {
        name: value for name, value in (("outcome", outcome), ("formula", formula)) if value is not None
    }
    if predictors:
        given["predictors"] = list(predictors)
    if prior_sd is not None:
        given["prior_sd"] = prior_sd
    for text in settings or ():
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name in given:
            what = "is given twice" if equals else "has no value"
            raise ArgumentError(f"--model-setting {text!r} {what}; write name=value, each name once.")
        given[name] = _value(value)
    if "outcome" not in given and "formula" not in given:
        raise ArgumentError('give --outcome COLUMN, the column to model, or --formula "COLUMN ~ TERMS".')
    known = [name for name in inspect.signature(MODELS[kind]).parameters if name != "kind"]
    if unknown := sorted(set(given) - set(known)):
        raise ArgumentError(f"{kind} has no setting {listed(unknown)}; it has {listed(sorted(known))}.")
    return model_from_dict({"kind": kind, **given})


def _value(text: str) -> Any:
    """Return a setting's value: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
