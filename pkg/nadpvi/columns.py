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
    PLACEHOLDER,
    check_choice,
    check_name,
    column_error,
    interval,
    listed,
    number,
    number_policy,
    quoted,
    shown,
    texts,
    whole_number,
)
from nadpvi.level_columns import BinaryColumn, CategoricalColumn, OrderedColumn

__all__ = [
    "BinaryColumn",
    "CategoricalColumn",
    "Column",
    "CountColumn",
    "KINDS",
    "OrderedColumn",
    "RealColumn",
    "column_from_dict",
    "column_to_dict",
    "listed",
    "quoted",
]


# Increasing functions, and what each needs the lower bound to be above.
_TRANSFORMS = {"log": (np.log, 0.0), "log1p": (np.log1p, -1.0)}


def _check_number_column(column: "RealColumn | CountColumn") -> None:
    """Normalise and check what both kinds of number share, once the bounds are numbers."""
    name = column.name
    object.__setattr__(column, "missing_values", texts(name, "missing_values", column.missing_values))
    if column.lower >= column.upper:
        raise column_error(name, f"lower must be below upper (got {column.lower} and {column.upper})")
    for key in ("missing", "unknown"):
        policy = number_policy(
            name, key, getattr(column, key), bounds=(column.lower, column.upper), whole=column.kind == "count"
        )
        object.__setattr__(column, key, policy)


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
    transform : None, "log" or "log1p"
        Applied after clamping; the bounds are transformed alike. "log" needs lower > 0, "log1p" lower > -1.
    feature_range : pair of float
        Where the transformed bounds are mapped to when the column is a predictor, low < high, both finite;
        [0, 1] when omitted. ``(-1, 1)`` puts the middle of the bounds at zero; the bounds themselves leave
        the column in its own unit. An outcome is never scaled.
    missing : "refuse", "drop" or a number
        What a missing cell does: stop with an error that names the column, drop its row, or count as that
        number, which lies within the bounds.
    missing_values : tuple of str
        Texts (and numbers written as text, such as "-9") that mean "missing".
    unknown : "refuse", "drop" or a number
        The same for a cell that is no number.

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
    missing: str | float = "refuse"
    missing_values: tuple[str, ...] = ("",)
    feature_range: tuple[float, float] = (0.0, 1.0)
    unknown: str | float = "refuse"

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "feature_range", interval(self.name, "feature_range", self.feature_range))
        object.__setattr__(self, "lower", number(self.name, "lower", self.lower))
        object.__setattr__(self, "upper", number(self.name, "upper", self.upper))
        check_choice(self.name, "transform", self.transform, (None, *_TRANSFORMS))
        _check_number_column(self)
        if self.transform is not None:
            least = _TRANSFORMS[self.transform][1]
            if self.lower <= least:
                raise column_error(
                    self.name,
                    f"transform {self.transform} needs lower above {least:g} (got {self.lower}); raise it or "
                    "drop the transform",
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
        return values if self.transform is None else _TRANSFORMS[self.transform][0](values)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountColumn:
    """A whole number with public bounds: the outcome of a count model, or a predictor scaled to [0, 1].

    Attributes
    ----------
    name : str
        The column's name in the table, compared exactly.
    lower, upper : int
        Public bounds, 0 <= lower < upper <= 2^53. A cell outside is moved to the nearer bound; one that is
        no whole number is unknown.
    missing, missing_values, unknown
        As for `RealColumn`; a number is a whole one.

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
    missing: str | int = "refuse"
    missing_values: tuple[str, ...] = ("",)
    unknown: str | int = "refuse"

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "lower", whole_number(self.name, "lower", self.lower))
        object.__setattr__(self, "upper", whole_number(self.name, "upper", self.upper))
        _check_number_column(self)

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


Column = RealColumn | BinaryColumn | CategoricalColumn | CountColumn | OrderedColumn
KINDS: dict[str, type[Column]] = {
    cls.kind: cls for cls in (RealColumn, BinaryColumn, CategoricalColumn, CountColumn, OrderedColumn)
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
    if not isinstance(kind, str) or kind not in KINDS:
        raise column_error(name, f"kind must be one of {listed(KINDS)} (got {shown(kind)})")
    known = [field.name for field in fields(KINDS[kind]) if field.name != "name"]
    settings = {key: value for key, value in entry.items() if key != "kind"}
    for key, value in settings.items():
        if key not in known:
            raise column_error(name, f"unknown setting {quoted(key)}; a {kind} column knows {listed(known)}")
        if PLACEHOLDER in (value if isinstance(value, list | tuple) else (value,)):
            raise column_error(
                name, f"{key} is still {quoted(PLACEHOLDER)}; write what is publicly known of it"
            )
    for key in _NEEDED.get(kind, ("levels",)):
        if key not in settings:
            raise column_error(name, f"{key} is not given; a {kind} column needs it")
    return KINDS[kind](name=name, **settings)


def column_to_dict(column: Column) -> dict[str, Any]:
    """Return a column's kind and fields as JSON types."""
    pairs = ((field.name, getattr(column, field.name)) for field in fields(column))
    return {"kind": column.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in pairs}
