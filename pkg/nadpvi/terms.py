"""The terms of a design: each is a product of factors, with public bounds."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.columns import Column, listed
from nadpvi.errors import ArgumentError
from nadpvi.factors import ColumnFactor, CurveFactor, SplineFactor

__all__ = ["AnyFactor", "Term", "outer_product_norm", "term_from_list"]

FloatArray = NDArray[np.float64]

_FACTORS: dict[str, type[ColumnFactor] | type[CurveFactor] | type[SplineFactor]] = {
    cls.kind: cls for cls in (ColumnFactor, CurveFactor, SplineFactor)
}
AnyFactor = ColumnFactor | CurveFactor | SplineFactor
Number = TypeVar("Number", float, FloatArray)


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A product of factors: each combination of their features is one coefficient's, the last fastest.

    The columns of a schema are passed as a mapping from name to column.
    """

    factors: tuple[AnyFactor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "factors", tuple(self.factors))
        if not self.factors or not all(isinstance(factor, AnyFactor) for factor in self.factors):
            raise ArgumentError("a term is made of factors, at least one")

    @property
    def name(self) -> str:
        """The factors' names: "education:sex"."""
        return ":".join(factor.name for factor in self.factors)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns' names, each once, in order."""
        return tuple(dict.fromkeys(factor.column for factor in self.factors))

    @property
    def main_effect(self) -> str | None:
        """The column's name where the term is a column as the schema codes it, else None."""
        first = self.factors[0]
        return first.column if len(self.factors) == 1 and isinstance(first, ColumnFactor) else None

    def labels(self, columns: Mapping[str, Column]) -> tuple[str, ...]:
        """Return the coefficients' labels: "education[secondary]:sex[Male]"."""
        parts = [factor.labels(columns[factor.column]) for factor in self.factors]
        return tuple(":".join(labels) for labels in product(*parts))

    def bounds(self, columns: Mapping[str, Column]) -> tuple[tuple[float, float], ...]:
        """Return each feature's least and largest value: those of products of intervals."""
        found: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
        for factor in self.factors:
            pairs = factor.bounds(columns[factor.column])
            found = tuple(_interval_product(first, second) for first in found for second in pairs)
        return found

    def power_sum(self, columns: Mapping[str, Column], power: int) -> float:
        """Return a bound on the sum over the features of |x_j|^power: of a product, the sums' product."""
        total = 1.0
        for factor in self.factors:
            total *= factor.power_sum(columns[factor.column], power)
        return total

    def features(self, columns: Mapping[str, Column], values: Mapping[str, FloatArray]) -> FloatArray:
        """Return the features, shape (N, W), each within its bounds; `values` as for a factor."""
        found: FloatArray | None = None
        for factor in self.factors:
            part = factor.features(columns[factor.column], values[factor.column])
            # Elementwise: what a row becomes does not depend on others.
            found = part if found is None else (found[:, :, None] * part[:, None, :]).reshape(len(part), -1)
        assert found is not None  # a term has a factor
        if self.main_effect is not None:
            return found
        low, high = np.array(self.bounds(columns)).T
        return np.clip(found, low, high)  # what rounding may add

    def to_list(self) -> list[dict[str, Any]]:
        """Return the factors as JSON types; `term_from_list` gives an equal term back."""
        return [
            {"kind": factor.kind}
            | {field.name: _plain(getattr(factor, field.name)) for field in fields(factor)}
            for factor in self.factors
        ]


def outer_product_norm(square_sum: Number, fourth_sum: Number) -> Number:
    """Return the norm of a row's outer product with itself, its upper triangle and diagonal.

    Parameters
    ----------
    square_sum, fourth_sum : float or ndarray
        Sums of x_j^2 and of x_j^4 over the row; or of bounds on them.
    """
    norm: Number = (0.5 * (square_sum**2 + fourth_sum)) ** 0.5
    return norm


def term_from_list(content: list[dict[str, Any]]) -> Term:
    """Return the term that `Term.to_list` described.

    Raises
    ------
    ArgumentError
        If it described none.
    """
    if not isinstance(content, list) or not all(isinstance(entry, Mapping) for entry in content):
        raise ArgumentError("a term is a list of factors, each with its settings")
    return Term(factors=tuple(_factor_from_dict(entry) for entry in content))


def _factor_from_dict(entry: Mapping[str, Any]) -> AnyFactor:
    """Return one factor, or raise unless its kind and its settings are known."""
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _FACTORS:
        raise ArgumentError(f"a factor's kind must be one of {listed(_FACTORS)} (got {kind!r})")
    settings = {key: value for key, value in entry.items() if key != "kind"}
    try:
        return _FACTORS[kind](**settings)
    except (TypeError, ValueError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"a factor of kind {kind!r} has settings that it does not know") from None


def _interval_product(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the largest product of two numbers from two intervals."""
    ends = [a * b for a in first for b in second]
    return min(ends), max(ends)


def _plain(value: Any) -> Any:
    """Return a setting as a JSON type."""
    return list(value) if isinstance(value, tuple) else value
