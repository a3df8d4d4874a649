"""The kinds of column a schema is made of, and the rules each must obey.

Everything here is public and hand-written; a broken rule is one line that names the column and the remedy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.column_rules import (
    check_choice,
    check_name,
    column_error,
    interval,
    listed,
    number,
    quoted,
    shown,
    texts,
    whole_number,
)

__all__ = [
    "BinaryColumn",
    "CategoricalColumn",
    "Column",
    "CountColumn",
    "RealColumn",
    "column_from_dict",
    "column_to_dict",
    "listed",
    "quoted",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealColumn:
    """A number with public bounds; it is clamped, transformed and scaled to `feature_range`.

    Attributes
    ----------
    name : str
        The column's name in the table, compared exactly. Printable (`str.isprintable`), at most 256
        characters; so is each text of the schema.
    lower, upper : float
        Public bounds, finite, lower < upper, in the column's own unit. A value outside is moved to the
        nearer bound, infinities too.
    transform : None or "log1p"
        Applied after clamping; the bounds are transformed alike. "log1p" needs lower > -1.
    feature_range : pair of float
        Where the transformed bounds are mapped to when the column is a predictor, low < high, both finite;
        [0, 1] when omitted. ``(-1, 1)`` puts the middle of the bounds at zero; the bounds themselves leave
        the column in its own unit. An outcome is never scaled.
    missing : "refuse" or "drop"
        What a missing cell does: stop with an error that names the column, or drop its row.
    missing_values : tuple of str
        Texts (and numbers written as text, such as "-9") that mean "missing".

    Raises
    ------
    SchemaError
        If any of these rules is broken.

    Examples
    --------
    >>> RealColumn(name="age", lower=17, upper=90).scale(np.array([17.0, 53.5, 120.0]))
    array([0. , 0.5, 1. ])
    >>> RealColumn(name="age", lower=17, upper=90, feature_range=(-1, 1)).scale(np.array([53.5]))
    array([0.])
    """

    kind: ClassVar[str] = "real"
    name: str
    lower: float
    upper: float
    transform: str | None = None
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)
    feature_range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "feature_range", interval(self.name, "feature_range", self.feature_range))
        object.__setattr__(self, "lower", number(self.name, "lower", self.lower))
        object.__setattr__(self, "upper", number(self.name, "upper", self.upper))
        check_choice(self.name, "transform", self.transform, (None, "log1p"))
        check_choice(self.name, "missing", self.missing, ("refuse", "drop"))
        object.__setattr__(self, "missing_values", texts(self.name, "missing_values", self.missing_values))
        if self.lower >= self.upper:
            raise column_error(self.name, f"lower must be below upper (got {self.lower} and {self.upper})")
        if self.transform == "log1p" and self.lower <= -1.0:
            raise column_error(
                self.name,
                f"transform log1p needs lower above -1 (got {self.lower}); raise it or drop the transform",
            )
        low, high = self.bounds
        if not 0.0 < high - low < math.inf:
            raise column_error(
                self.name, "lower and upper are too close or too far apart to scale; choose other bounds"
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """Both bounds on the scale on which the column enters linearly: transformed, not scaled."""
        low, high = self._transformed(np.array([self.lower, self.upper]))
        return float(low), float(high)

    def clamp(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return raw values (N,) clamped to the bounds and transformed; NaN stays NaN."""
        return self._transformed(np.clip(values, self.lower, self.upper))

    def scale(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return raw values (N,) clamped, transformed and scaled to `feature_range`; NaN stays NaN."""
        low, high = self.bounds
        share = np.clip((self.clamp(values) - low) / (high - low), 0.0, 1.0)
        start, stop = self.feature_range
        scaled: NDArray[np.float64] = np.clip(start + (stop - start) * share, start, stop)
        return scaled

    def _transformed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values on the scale on which they enter linearly."""
        return np.log1p(values) if self.transform == "log1p" else values


@dataclass(frozen=True, slots=True, kw_only=True)
class CountColumn:
    """A whole number with public bounds: the outcome of a count model, or a predictor scaled to [0, 1].

    Attributes
    ----------
    name : str
        The column's name in the table, compared exactly.
    lower, upper : int
        Public bounds, 0 <= lower < upper <= 2^53. A cell outside is moved to the nearer bound; one that is
        no whole number is refused.
    missing, missing_values
        As for `RealColumn`.

    Raises
    ------
    SchemaError
        If any of these rules is broken.

    Examples
    --------
    >>> CountColumn(name="visits", upper=20).clamp(np.array([3.0, 400.0]))
    array([ 3., 20.])
    """

    kind: ClassVar[str] = "count"
    name: str
    upper: int
    lower: int = 0
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "lower", whole_number(self.name, "lower", self.lower))
        object.__setattr__(self, "upper", whole_number(self.name, "upper", self.upper))
        check_choice(self.name, "missing", self.missing, ("refuse", "drop"))
        object.__setattr__(self, "missing_values", texts(self.name, "missing_values", self.missing_values))
        if self.lower >= self.upper:
            raise column_error(self.name, f"lower must be below upper (got {self.lower} and {self.upper})")

    @property
    def feature_range(self) -> tuple[float, float]:
        """Where the bounds are mapped to when the column is a predictor: 0 and 1."""
        return 0.0, 1.0

    @property
    def bounds(self) -> tuple[float, float]:
        """Both bounds."""
        return float(self.lower), float(self.upper)

    def clamp(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values (N,) clamped to the bounds; NaN stays NaN."""
        clamped: NDArray[np.float64] = np.clip(values, *self.bounds)
        return clamped

    def scale(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values (N,) clamped and scaled to [0, 1]; NaN stays NaN."""
        low, high = self.bounds
        scaled: NDArray[np.float64] = (self.clamp(values) - low) / (high - low)
        return scaled


def _check_levels(column: "BinaryColumn | CategoricalColumn") -> None:
    """Normalise and check what both kinds of level column share."""
    name = column.name
    check_name(name)
    object.__setattr__(column, "levels", texts(name, "levels", column.levels))
    object.__setattr__(column, "missing_values", texts(name, "missing_values", column.missing_values))
    check_choice(name, "missing", column.missing, ("refuse", "drop"))
    if len(column.levels) < 2:
        raise column_error(name, f"levels must list at least two levels (got {len(column.levels)})")
    if column.unknown not in ("refuse", "drop", *column.levels):
        raise column_error(
            name, f'unknown must be "refuse", "drop" or one of the levels (got {shown(column.unknown)})'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryColumn:
    """A column of two levels, coded 0 and 1: an outcome, or a predictor of one coefficient.

    Attributes
    ----------
    name : str
        The column's name in the table, compared exactly.
    levels : tuple of two str
        The negative (0) and the positive (1) level, compared exactly.
    unknown : "refuse", "drop" or a level
        What a cell outside `levels` does: stop, drop its row, or count as that level.
    missing, missing_values
        As for `RealColumn`; a text that is also a level counts as the level.

    Raises
    ------
    SchemaError
        If any of these rules is broken.
    """

    kind: ClassVar[str] = "binary"
    name: str
    levels: tuple[str, ...]
    unknown: str = "refuse"
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        _check_levels(self)
        if len(self.levels) != 2:
            raise column_error(
                self.name,
                'levels must be exactly two, [negative, positive]; for more use kind = "categorical"',
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoricalColumn:
    """A column of two or more declared levels, coded as one 0/1 column each.

    Attributes
    ----------
    name, unknown, missing, missing_values
        As for `BinaryColumn`.
    levels : tuple of str
        Every level that gets a coefficient, in order. None is left out as a reference: the prior
        identifies the model, and each level is treated alike.

    Raises
    ------
    SchemaError
        If any of these rules is broken.
    """

    kind: ClassVar[str] = "categorical"
    name: str
    levels: tuple[str, ...]
    unknown: str = "refuse"
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        _check_levels(self)


Column = RealColumn | BinaryColumn | CategoricalColumn | CountColumn
_KINDS: dict[str, type[Column]] = {
    cls.kind: cls for cls in (RealColumn, BinaryColumn, CategoricalColumn, CountColumn)
}
_NEEDED = {"real": ("lower", "upper"), "count": ("upper",)}


def column_from_dict(name: object, entry: object) -> Column:
    """Return one column from its TOML or JSON form."""
    name = check_name(name)
    if not isinstance(entry, Mapping):
        raise column_error(
            name, f'must be a table of settings such as kind = "real" (got {type(entry).__name__})'
        )
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise column_error(name, f"kind must be one of {listed(_KINDS)} (got {shown(kind)})")
    known = [field.name for field in fields(_KINDS[kind]) if field.name != "name"]
    settings = {key: value for key, value in entry.items() if key != "kind"}
    for key in settings:
        if key not in known:
            raise column_error(name, f"unknown setting {quoted(key)}; a {kind} column knows {listed(known)}")
    for key in _NEEDED.get(kind, ("levels",)):
        if key not in settings:
            raise column_error(name, f"{key} is not given; a {kind} column needs it")
    return _KINDS[kind](name=name, **settings)


def column_to_dict(column: Column) -> dict[str, Any]:
    """Return a column's kind and fields as JSON types."""
    pairs = ((field.name, getattr(column, field.name)) for field in fields(column))
    return {"kind": column.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in pairs}
