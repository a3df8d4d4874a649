"""What was fitted, in public terms: model, schema and guide, enough to rebuild every name and encoding."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.encoding import Design
from nadpvi.errors import ArgumentError
from nadpvi.guides import MeanField
from nadpvi.models import Model, Parameter, model_from_dict
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
    guide : MeanField
        The variational family.
    """

    model: Model
    schema: Schema
    guide: MeanField
    design: Design = field(init=False)
    """The encoding of the model's columns."""

    def __post_init__(self) -> None:
        # Asked for in every step of a run, so it is worked out once.
        object.__setattr__(self, "design", self.model.design(self.schema))

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The model's named parameter blocks."""
        return self.model.parameters(self.design)

    @property
    def names(self) -> tuple[str, ...]:
        """Labels of the K axes of theta."""
        return tuple(label for block in self.parameters for label in block.coords[0])

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

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON types."""
        return {
            "model": self.model.to_dict(),
            "schema": self.schema.to_dict(),
            "guide": self.guide.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "ModelDescription":
        """Return the description that `to_dict` gave; missing or unknown keys are refused."""
        if set(data) != {"model", "schema", "guide"}:
            raise ArgumentError(f"a model description needs model, schema and guide (got {sorted(data)}).")
        return cls(
            model=model_from_dict(data["model"]),
            schema=Schema.from_dict(data["schema"]),
            guide=MeanField.from_dict(data["guide"]),
        )
