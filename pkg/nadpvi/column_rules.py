"""The rules that names, texts and bounds of a schema's columns obey, and how they are shown in messages."""

import json
import math
from collections.abc import Iterable
from numbers import Real

import numpy as np

from nadpvi.errors import SchemaError

__all__ = [
    "check_choice",
    "check_name",
    "column_error",
    "interval",
    "listed",
    "PLACEHOLDER",
    "number",
    "number_policy",
    "quoted",
    "shown",
    "texts",
    "whole_number",
]

# What a skeleton of a schema has where its writer did not say more.
PLACEHOLDER = "FILL IN"

_MAX_LISTED = 20
_MAX_LENGTH = 256
# Floats tell whole numbers apart up to here.
_LARGEST_COUNT = 2.0**53


def quoted(name: object) -> str:
    """Return a name in double quotes, on one line whatever it holds; cut after 256 characters."""
    text = str(name)
    text = text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
    return json.dumps(text, ensure_ascii=not text.isprintable())


def listed(names: Iterable[object]) -> str:
    """Return names as one comma-separated line, cut after twenty."""
    parts = [quoted(name) for name in names]
    rest = f" and {len(parts) - _MAX_LISTED} more" if len(parts) > _MAX_LISTED else ""
    return ", ".join(parts[:_MAX_LISTED]) + rest


def column_error(name: object, problem: str) -> SchemaError:
    """Return the error of one column."""
    return SchemaError(f"schema column {quoted(name)}: {problem}")


def shown(value: object) -> str:
    """Return a setting as one short line: its value if it is simple, else its type."""
    return repr(value) if isinstance(value, str | int | float | None) else type(value).__name__


def check_name(name: object) -> str:
    """Return the column's name, or raise unless it is text that can be shown and saved."""
    if not isinstance(name, str) or not name.strip():
        raise SchemaError(f"a schema column's name must be non-empty text (got {shown(name)})")
    _check_text(name, name, role="its name")
    return name


def _check_text(name: str, text: str, *, role: str) -> None:
    """Raise unless a text of a column is printable and short."""
    # Names and levels travel into the release, where HDF5 refuses a NUL once the privacy budget is spent,
    # and onto terminals, where an escape code would act.
    for character in text:
        if not character.isprintable():
            raise column_error(
                name,
                f"{role} holds the unprintable character {character!a}; "
                "remove it from the schema and from the table",
            )
    if len(text) > _MAX_LENGTH:
        raise column_error(
            name,
            f"{role} has {len(text)} characters; shorten it to {_MAX_LENGTH} in the schema and the table",
        )


def check_choice(name: str, key: str, value: object, known: tuple[str | None, ...]) -> None:
    """Raise unless a setting is one of its few values."""
    if not (value is None or isinstance(value, str)) or value not in known:
        allowed = " or ".join(quoted(choice) for choice in known if choice is not None)
        raise column_error(name, f"{key} must be {allowed} (got {shown(value)})")


def texts(name: str, key: str, value: object) -> tuple[str, ...]:
    """Return a list of distinct texts as a tuple, or raise."""
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise column_error(name, f'{key} must be a list of texts, each in quotes: ["a", "b"] or ["0", "1"]')
    for position, text in enumerate(value, start=1):
        _check_text(name, text, role=f"entry {position} of {key}")
    if len(set(value)) < len(value):
        twice = next(text for text in value if value.count(text) > 1)
        raise column_error(name, f"{key} lists {quoted(twice)} twice; remove one")
    return tuple(value)


def number(name: str, key: str, value: object) -> float:
    """Return a finite bound as a float, or raise."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise column_error(name, f"{key} must be a number (got {shown(value)})")
    try:
        finite = float(value)
    except OverflowError:
        finite = math.inf
    if not math.isfinite(finite):
        raise column_error(
            name, f"{key} must be finite; choose a public bound, values outside it are clamped"
        )
    return finite


def interval(name: str, key: str, value: object) -> tuple[float, float]:
    """Return a pair of ascending finite numbers, or raise."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise column_error(name, f"{key} must be a pair of numbers, [low, high] (got {shown(value)})")
    low, high = (number(name, key, end) for end in value)
    if not 0.0 < high - low < math.inf:
        raise column_error(name, f"{key} must ascend, [low, high] (got {shown(value)})")
    return low, high


def number_policy(
    name: str, key: str, value: object, *, bounds: tuple[float, float], whole: bool
) -> str | float:
    """Return what becomes of an unusable cell of numbers, or raise: a word, or a number it counts as."""
    if isinstance(value, str) and value in ("refuse", "drop"):
        return value
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise column_error(
            name, f'{key} must be "refuse" or "drop", or a number within the bounds (got {shown(value)})'
        )
    given = whole_number(name, key, value) if whole else number(name, key, value)
    if not bounds[0] <= given <= bounds[1]:
        raise column_error(
            name, f"{key} must be within the bounds {bounds[0]:g} and {bounds[1]:g} (got {shown(value)})"
        )
    return given


def whole_number(name: str, key: str, value: object) -> int:
    """Return a bound of a count column as an integer, or raise."""
    bound = number(name, key, value)
    if bound != int(bound) or not 0.0 <= bound <= _LARGEST_COUNT:
        raise column_error(name, f"{key} must be a whole number from 0 to 2^53 (got {shown(value)})")
    return int(bound)
