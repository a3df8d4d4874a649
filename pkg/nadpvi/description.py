"""What was fitted, in public terms: model, schema and guide, enough to rebuild every name and encoding."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.encoding import Design
from nadpvi.errors import ArgumentError
from nadpvi.guides import Guide, guide_from_dict
from nadpvi.models import Model, Parameter, model_from_dict
from nadpvi.models.custom_recorded import RecordedModel
from nadpvi.models.parameters import unconstrained_labels
from nadpvi.schema import Schema

__all__ = ["ModelDescription"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """A model with the schema that fixes its design and the guide that fixes its phi. Public.

    Parameters
    ----------
    model : Model
        Prior and likelihood.
    schema : Schema
        The public description of the table.
    guide : Guide
        The variational family.
    """

    model: Model
    schema: Schema
    guide: Guide
    design: Design = field(init=False)
    """The encoding of the model's columns."""

    def __post_init__(self) -> None:
        # Asked for in every step of a run, so it is worked out once.
        object.__setattr__(self, "design", self.model.design(self.schema))
        if isinstance(self.model, RecordedModel):
            # What such a model leaves to the schema, and moments that take an optimiser to find.
            object.__setattr__(self, "model", self.model.settled(self.design))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The model's named parameter blocks."""
        return self.model.parameters(self.design)

    @property
    def names(self) -> tuple[str, ...]:
        """Labels of theta's K unconstrained coordinates."""
        return unconstrained_labels(self.parameters)

    @property
    def phi_labels(self) -> tuple[str, ...]:
        """Labels of the D axes of phi."""
        return self.guide.labels(self.names)

    def phi_prior_moments(self) -> tuple[Array, Array]:
        """Return the model prior's mean and sd for each coordinate of phi, shape (D,).

        NaN where the model's prior says nothing: the guide's scales.
        """
        mean, sd = self.model.prior_moments(self.design)
        silent = np.full(len(self.phi_labels) - len(mean), np.nan)
        return np.concatenate([mean, silent]), np.concatenate([sd, silent])

    def with_model(self, model: Model) -> "ModelDescription":
        """Return this description with `model` in the place of the one it has, which must be the same model.

        A custom model in a file has lost its functions; this gives them back. That they are the same
        functions is the caller's word: only names, parameters, columns and prior moments are compared.

        Raises
        ------
        ArgumentError
            If the two models differ, naming what differs.
        """
        given = ModelDescription(model=model, schema=self.schema, guide=self.guide)
        mine, other = self.model.to_dict(), given.model.to_dict()
        differing = sorted(
            key for key in mine.keys() | other.keys() if not _is_same(mine.get(key), other.get(key))
        )
        if differing:
            raise ArgumentError(f"this is not the model of the file: they differ in {', '.join(differing)}.")
        return given

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON types; a custom model's functions are left out."""
        return {
            "model": self.model.to_dict(),
            "schema": self.schema.to_dict(),
            "guide": self.guide.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ModelDescription":
        """Return the description that `to_dict` gave; missing or unknown keys are refused.

        A custom model comes back without its functions: see `with_model`.
        """
        if set(data) != {"model", "schema", "guide"}:
            raise ArgumentError(f"a model description needs model, schema and guide (got {sorted(data)}).")
        return cls(
            model=model_from_dict(data["model"]),
            schema=Schema.from_dict(data["schema"]),
            guide=guide_from_dict(data["guide"]),
        )


def _is_same(first: Any, second: Any) -> bool:
    """Whether two settings of a model agree; prior moments may differ in their last digits."""
    is_numeric = all(
        isinstance(given, list) and all(isinstance(value, float) for value in given)
        for given in (first, second)
    )
    if is_numeric and len(first) == len(second):
        return bool(np.allclose(first, second, rtol=1e-6, atol=1e-9))
    return bool(first == second)
