"""A user's functions and the shapes in which they are called: draws, records, the parameter's own."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError, ModelError
from nadpvi.models.parameters import Parameter, constrain

__all__ = ["UserFunction", "UserFunctions"]

Array = NDArray[np.float64]
UserFunction = Callable[..., Any]


class _Values(dict[str, Array]):
    """Constrained values by parameter name, which list the names where one is misspelt."""

    def __missing__(self, name: str) -> Array:
        raise ModelError(f"a function of the model asks for p[{name!r}]; its parameters are {list(self)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserFunctions:
    """What the user of a `CustomModel` wrote, by the names of its arguments."""

    log_prior: UserFunction
    log_likelihood: UserFunction
    simulate: UserFunction | None
    predict: UserFunction | None

    def __post_init__(self) -> None:
        for role, function in self.by_name().items():
            if not callable(function) and not (function is None and role in ("simulate", "predict")):
                raise ArgumentError(f"{role} must be a function (got {type(function).__name__}).")

    def by_name(self) -> dict[str, Any]:
        """Return the functions by name."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    def name_of(self, role: str) -> str:
        """Return what the user calls one of the functions; its argument's name where it has none."""
        name = getattr(getattr(self, role), "__name__", "<lambda>")
        return role if name == "<lambda>" else str(name)

    def prior_density(self, theta: Array, *, blocks: Sequence[Parameter]) -> Array:
        """Return log_prior at unconstrained theta, without a Jacobian: (S, K) -> (S,)."""
        values = {name: _frozen(value) for name, value in constrain(blocks, theta).items()}
        value = self.log_prior(_Values(values))
        self._check_shape("log_prior", value, expected=(len(theta),))
        return value  # type: ignore[no-any-return]

    def per_record(
        self,
        role: str,
        theta: Array,
        *,
        blocks: Sequence[Parameter],
        records: tuple[Array, ...],
        rest: Any = (),
    ) -> Array:
        """Return what a function gives for each record under each draw.

        Parameters
        ----------
        role : str
            "log_likelihood", "simulate" or "predict".
        theta : ndarray, shape (..., B, K) or (..., 1, K)
            Unconstrained.
        blocks : sequence of Parameter
            K coordinates in all.
        records : tuple of ndarray
            x, shape (B, F), and perhaps y, shape (B,). The function cannot write to them.
        rest : tuple
            Further arguments.

        Returns
        -------
        ndarray, shape (..., B)
            With a last axis of classes if the function gives one.
        """
        lead, num_records = theta.shape[:-2], len(records[0])
        flat = anp.reshape(theta, (math.prod(lead), *theta.shape[-2:]))
        shape = (len(flat), num_records)
        values = {
            name: _frozen(
                value if value.shape[:2] == shape else anp.broadcast_to(value, (*shape, *value.shape[2:]))
            )
            for name, value in constrain(blocks, flat).items()
        }
        value = getattr(self, role)(_Values(values), *map(_frozen, records), *rest)
        self._check_shape(role, value, expected=shape)
        reshaped: Array = anp.reshape(value, (*lead, num_records, *value.shape[2:]))
        return reshaped

    def _check_shape(self, role: str, value: Any, *, expected: tuple[int, ...]) -> None:
        """Raise unless a function returned one number a draw, or one a record and draw."""
        found = getattr(value, "shape", None)
        has_classes = role == "predict" and found is not None and len(found) == 3
        if (found[:2] if has_classes and found is not None else found) == expected:
            return
        each = "draw" if role == "log_prior" else "record"
        sizes = " and ".join(f"{n} {what}" for n, what in zip(expected, ("draws", "records"), strict=False))
        raise ModelError(
            f"{self.name_of(role)} must give one number a {each}: shape {expected} for {sizes} "
            f"(got {type(value).__name__ if found is None else found})."
        )


def _frozen(value: Any) -> Any:
    """Return a view that cannot be written to, so that no call changes what the next one sees."""
    if not isinstance(value, np.ndarray):
        return value  # autograd's own, which nothing can be assigned to
    view = value.view()
    view.flags.writeable = False
    return view
