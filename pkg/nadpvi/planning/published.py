"""The paper's settings by model: its section 4, its appendix 13.6 and its published code."""

from typing import Any

from nadpvi.config import DPVIConfig
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.models.base import Model
from nadpvi.schema import Schema

__all__ = ["PUBLISHED", "published_config"]

_SHARED: dict[str, Any] = {"num_steps": 10_000, "sampling_rate": 0.1}

PUBLISHED: dict[str, dict[str, Any]] = {
    "exponential_gamma": {
        "clip_norm": 2.0,
        "preconditioner_u": 100.0,
        "learning_rate_constant": 1.0,
        "initial_mu": 0.0,
        "initial_u": -4.0,
    },
    "bernoulli_beta": {
        "clip_norm": 2.0,
        "preconditioner_u": 120.0,
        "learning_rate_constant": 1.0,
        "initial_mu": 0.0,
        "initial_u": -4.0,
    },
    "categorical_dirichlet": {
        "clip_norm": 2.0**0.5,
        "preconditioner_u": 100.0,
        "learning_rate_constant": 1.0,
        "initial_mu": 0.0,
        "initial_u": -6.0,
    },
    "linear_regression": {
        "clip_norm": 260.0,
        "preconditioner_u": 1500.0,
        "learning_rate_constant": 4.0,
        "initial_mu": 1.0,
        "initial_u": -6.0,
        "learning_rate_factors": {"mu[variance]": 1.0 / 7.0},
    },
    "logistic_regression": {
        "clip_norm": 11.0,
        "preconditioner_u": 550.0,
        "initial_mu": 0.0,
        "initial_u": -6.0,
    },
}
_LINEAR_VARIANCE = -4.0


def published_config(model: Model, *, schema: Schema) -> DPVIConfig:
    """Return the settings of the paper's own experiment with a model of this kind.

    They were chosen for its tables, 5,000 simulated records or UCI Adult; `nadpvi.suggest_config` chooses for
    yours.

    Raises
    ------
    ArgumentError
        If the paper has none.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {"well": {"kind": "binary", "levels": ["no", "yes"]}}})
    >>> from nadpvi.models import BernoulliBeta
    >>> published_config(BernoulliBeta(outcome="well"), schema=schema).clip_norm
    2.0
    """
    if model.kind not in PUBLISHED:
        raise ArgumentError(
            f"settings='published' is for {', '.join(sorted(PUBLISHED))} (got {model.kind}): give "
            "num_records, for which settings are chosen."
        )
    found = {**_SHARED, **PUBLISHED[model.kind]}
    if model.kind == "linear_regression":
        names = ModelDescription(model=model, schema=schema, guide=DPVIConfig().guide).names
        start = {name: found["initial_mu"] for name in names}
        found["initial_mu"] = {**start, "variance": _LINEAR_VARIANCE}
    return DPVIConfig(**found)
