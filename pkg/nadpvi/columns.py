"""The kinds of column a schema is made of, and the rules each must obey.

Everything here is public and hand-written; a broken rule is one line that names the column and the remedy.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import SchemaError

__all__ = [
    "BinaryColumn",
    "CategoricalColumn",
    "Column",
    "RealColumn",
    "column_from_dict",
    "column_to_dict",
    "listed",
    "quoted",
]

_MAX_LISTED = 20
_MAX_LENGTH = 256


def quoted(name: object) -> str:
    """Return a name in double quotes, on one line whatever it holds; cut after 256 characters."""
    text = str(name)
    text = text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
    return json.dumps(text, ensure_ascii=not text.isprintable())


def listed(names: Iterable[object]) -> str:
    """Return names as one comma-separated line, cut after twenty."""
    shown = [quoted(name) for name in names]
    rest = f" and {len(shown) - _MAX_LISTED} more" if len(shown) > _MAX_LISTED else ""
    return ", ".join(shown[:_MAX_LISTED]) + rest


def _fail(name: object, problem: str) -> SchemaError:
    """Return the error of one column."""
    return SchemaError(f"schema column {quoted(name)}: {problem}")


def _shown(value: object) -> str:
    """Return a setting as one short line: its value if it is simple, else its type."""
    return repr(value) if isinstance(value, str | int | float | None) else type(value).__name__


def _check_name(name: object) -> str:
    """Return the column's name, or raise unless it is text that can be shown and saved."""
    if not isinstance(name, str) or not name.strip():
        raise SchemaError(f"a schema column's name must be non-empty text (got {_shown(name)})")
    _check_text(name, name, role="its name")
    return name


def _check_text(name: str, text: str, *, role: str) -> None:
    """Raise unless a text of a column is printable and short."""
    # Names and levels travel into the release, where HDF5 refuses a NUL once the privacy budget is spent,
    # and onto terminals, where an escape code would act.
    for character in text:
        if not character.isprintable():
            raise _fail(
                name,
                f"{role} holds the unprintable character {character!a}; "
                "remove it from the schema and from the table",
            )
    if len(text) > _MAX_LENGTH:
        raise _fail(
            name,
            f"{role} has {len(text)} characters; shorten it to {_MAX_LENGTH} in the schema and the table",
        )


def _check_choice(name: str, key: str, value: object, known: tuple[str | None, ...]) -> None:
    """Raise unless a setting is one of its few values."""
    if not (value is None or isinstance(value, str)) or value not in known:
        allowed = " or ".join(quoted(choice) for choice in known if choice is not None)
        raise _fail(name, f"{key} must be {allowed} (got {_shown(value)})")


def _texts(name: str, key: str, value: object) -> tuple[str, ...]:
    """Return a list of distinct texts as a tuple, or raise."""
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise _fail(name, f'{key} must be a list of texts, each in quotes: ["a", "b"] or ["0", "1"]')
    for position, text in enumerate(value, start=1):
        _check_text(name, text, role=f"entry {position} of {key}")
    if len(set(value)) < len(value):
        twice = next(text for text in value if value.count(text) > 1)
        raise _fail(name, f"{key} lists {quoted(twice)} twice; remove one")
    return tuple(value)


def _number(name: str, key: str, value: object) -> float:
    """Return a finite bound as a float, or raise."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise _fail(name, f"{key} must be a number (got {_shown(value)})")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _fail(name, f"{key} must be finite; choose a public bound, values outside it are clamped")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class RealColumn:
    """A number with public bounds; it is clamped, transformed and scaled to [0, 1].

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
    """

    kind: ClassVar[str] = "real"
    name: str
    lower: float
    upper: float
    transform: str | None = None
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "lower", _number(self.name, "lower", self.lower))
        object.__setattr__(self, "upper", _number(self.name, "upper", self.upper))
        _check_choice(self.name, "transform", self.transform, (None, "log1p"))
        _check_choice(self.name, "missing", self.missing, ("refuse", "drop"))
        object.__setattr__(self, "missing_values", _texts(self.name, "missing_values", self.missing_values))
        if self.lower >= self.upper:
            raise _fail(self.name, f"lower must be below upper (got {self.lower} and {self.upper})")
        if self.transform == "log1p" and self.lower <= -1.0:
            raise _fail(
                self.name,
                f"transform log1p needs lower above -1 (got {self.lower}); raise it or drop the transform",
            )
        low, high = self._transformed(np.array([self.lower, self.upper]))
        if not 0.0 < float(high) - float(low) < math.inf:
            raise _fail(
                self.name, "lower and upper are too close or too far apart to scale; choose other bounds"
            )

    def scale(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return raw values (N,) clamped, transformed and scaled to [0, 1]; NaN stays NaN."""
        low, high = self._transformed(np.array([self.lower, self.upper]))
        clamped = self._transformed(np.clip(values, self.lower, self.upper))
        scaled: NDArray[np.float64] = np.clip((clamped - low) / (high - low), 0.0, 1.0)
        return scaled

    def _transformed(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values on the scale on which they enter linearly."""
        return np.log1p(values) if self.transform == "log1p" else values


def _check_levels(column: "BinaryColumn | CategoricalColumn") -> None:
    """Normalise and check what both kinds of level column share."""
    name = column.name
    _check_name(name)
    object.__setattr__(column, "levels", _texts(name, "levels", column.levels))
    object.__setattr__(column, "missing_values", _texts(name, "missing_values", column.missing_values))
    _check_choice(name, "missing", column.missing, ("refuse", "drop"))
    if len(column.levels) < 2:
        raise _fail(name, f"levels must list at least two levels (got {len(column.levels)})")
    if column.unknown not in ("refuse", "drop", *column.levels):
        raise _fail(
            name, f'unknown must be "refuse", "drop" or one of the levels (got {_shown(column.unknown)})'
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
            raise _fail(
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


Column = RealColumn | BinaryColumn | CategoricalColumn
_KINDS: dict[str, type[Column]] = {cls.kind: cls for cls in (RealColumn, BinaryColumn, CategoricalColumn)}


def column_from_dict(name: object, entry: object) -> Column:
    """Return one column from its TOML or JSON form."""
    name = _check_name(name)
    if not isinstance(entry, Mapping):
        raise _fail(name, f'must be a table of settings such as kind = "real" (got {type(entry).__name__})')
    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise _fail(name, f"kind must be one of {listed(_KINDS)} (got {_shown(kind)})")
    known = [field.name for field in fields(_KINDS[kind]) if field.name != "name"]
    settings = {key: value for key, value in entry.items() if key != "kind"}
    for key in settings:
        if key not in known:
            raise _fail(name, f"unknown setting {quoted(key)}; a {kind} column knows {listed(known)}")
    for key in ("lower", "upper") if kind == "real" else ("levels",):
        if key not in settings:
            raise _fail(name, f"{key} is not given; a {kind} column needs it")
    return _KINDS[kind](name=name, **settings)


def column_to_dict(column: Column) -> dict[str, Any]:
    """Return a column's kind and fields as JSON types."""
    pairs = ((field.name, getattr(column, field.name)) for field in fields(column))
    return {"kind": column.kind} | {k: list(v) if isinstance(v, tuple) else v for k, v in pairs}
