"""A custom model as a file knows it: everything but its functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.checks import check_positive
from nadpvi.design import Design, make_design
from nadpvi.errors import ArgumentError
from nadpvi.models.base import RecordBatch
from nadpvi.models.parameters import Parameter, check_parameters, unconstrained_labels
from nadpvi.schema import Schema

__all__ = ["Blocks", "RecordedModel", "recorded_model"]

Array = NDArray[np.float64]
Blocks = Sequence[Parameter] | Callable[[tuple[str, ...]], Sequence[Parameter]]

_PLAIN = ("name", "outcome", "predictors", "intercept", "outcome_kind", "prior_mean", "prior_sd")


@dataclass(frozen=True, kw_only=True)
class RecordedModel:
    """A custom model read from a file: it names and constrains parameters and knows their prior moments.

    Whatever needs the model's functions raises `ArgumentError`. Attributes are the arguments of
    `CustomModel`, with parameters as `blocks` and the gradient bound as `bound`.
    """

    kind: ClassVar[str] = "custom"

    name: str
    outcome: str | None
    blocks: Blocks
    predictors: tuple[str, ...] | None
    intercept: bool
    outcome_kind: str
    prior_mean: tuple[float, ...] | None
    prior_sd: tuple[float, ...] | None
    bound: float | None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError(f"name must be a text (got {self.name!r}).")
        if isinstance(self.predictors, str):
            raise ArgumentError(f"predictors must be a list of column names (got {self.predictors!r}).")
        if self.predictors is not None:
            object.__setattr__(self, "predictors", tuple(self.predictors))
        if not callable(self.blocks):
            object.__setattr__(self, "blocks", check_parameters(self.blocks))
        if (self.prior_mean is None) != (self.prior_sd is None):
            raise ArgumentError("prior_mean and prior_sd go together: give both, or neither.")
        for name in ("prior_mean", "prior_sd"):
            object.__setattr__(self, name, _checked_moment(name, getattr(self, name)))
        if self.bound is not None:
            object.__setattr__(self, "bound", check_positive("gradient_bound", self.bound))

    def design(self, schema: Schema) -> Design:
        """Return which columns the model reads and how they are encoded.

        Raises
        ------
        SchemaError, ArgumentError
            If a column is not in the schema, or the outcome is of another kind.
        """
        return make_design(
            schema,
            outcome=self.outcome,
            predictors=self.predictors,
            intercept=self.intercept,
            outcome_kind=self.outcome_kind,
            allow_no_features=True,
        )

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return the named parameter blocks."""
        if isinstance(self.blocks, tuple):
            return self.blocks
        return check_parameters(self.blocks(design.labels) if callable(self.blocks) else self.blocks)

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return prior mean and standard deviation of unconstrained theta, each of shape (K,)."""
        labels = unconstrained_labels(self.parameters(design))
        moments = []
        for name in ("prior_mean", "prior_sd"):
            given = getattr(self, name)
            if len(given) not in (1, len(labels)):
                raise ArgumentError(
                    f"{name} must be one number, or one for each of {list(labels)} (got {len(given)})."
                )
            moments.append(np.array(np.broadcast_to(given, (len(labels),))))
        return moments[0], moments[1]

    def gradient_bound(self, design: Design) -> float | None:
        """Return the user's bound on the norm of one record's gradient in theta, or None."""
        return self.bound

    def log_prior(self, theta: Array, design: Design) -> Array:
        """Raise `ArgumentError`: a file holds no functions."""
        self._refuse("log_prior")

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Raise `ArgumentError`: a file holds no functions."""
        self._refuse("log_likelihood")

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Raise `ArgumentError`: a file holds no functions."""
        self._refuse("predict")

    def _refuse(self, role: str) -> NoReturn:
        """Raise, with the remedy."""
        raise ArgumentError(
            f"model {self.name} came from a file, which holds no functions, and its {role} is needed: give "
            "the model itself again, by model= or with_model()."
        )

    def settled(self, design: Design) -> "RecordedModel":
        """Return the model with parameters and prior moments fixed: itself."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the functions as JSON types.

        Raises
        ------
        ArgumentError
            If parameters or prior moments still wait for a schema.
        """
        if callable(self.blocks) or self.prior_mean is None or self.prior_sd is None:
            raise ArgumentError(
                f"{self.name} depends on its schema: use model.settled(model.design(schema)).to_dict()."
            )
        return {
            "kind": self.kind,
            "name": self.name,
            "outcome": self.outcome,
            "predictors": None if self.predictors is None else list(self.predictors),
            "intercept": self.intercept,
            "outcome_kind": self.outcome_kind,
            "parameters": [block.to_dict() for block in self.blocks],
            "prior_mean": list(self.prior_mean),
            "prior_sd": list(self.prior_sd),
            "gradient_bound": self.bound,
        }


def recorded_model(data: Mapping[str, Any]) -> RecordedModel:
    """Return the model that `RecordedModel.to_dict` described; missing or unknown keys are refused."""
    known = {"kind", "parameters", "gradient_bound", *_PLAIN}
    if set(data) != known or data["kind"] != RecordedModel.kind:
        raise ArgumentError(f"a custom model's description needs exactly {sorted(known)}.")
    return RecordedModel(
        **{name: data[name] for name in _PLAIN},
        blocks=[Parameter.from_dict(block) for block in data["parameters"]],
        bound=data["gradient_bound"],
    )


def _checked_moment(name: str, given: ArrayLike | None) -> tuple[float, ...] | None:
    """Return a user's prior means or deviations as numbers, one or K of them."""
    if given is None:
        return None
    try:
        values = np.atleast_1d(np.asarray(given, dtype=np.float64))
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} must be a number or a list of K numbers (got {given!r}).") from None
    if values.ndim != 1 or not np.isfinite(values).all() or (name == "prior_sd" and (values <= 0).any()):
        rule = "finite and positive" if name == "prior_sd" else "finite"
        raise ArgumentError(f"{name} must be one {rule} number or a list of K of them (got {given!r}).")
    return tuple(values.tolist())
