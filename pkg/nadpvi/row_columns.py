"""Columns that say what a row is: whose it is, or how many records it stands for."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any

from nadpvi.column_rules import check_choice, listed, quoted
from nadpvi.columns import CountColumn, RealColumn
from nadpvi.errors import SchemaError

__all__ = ["Counts", "Person"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """The column that says whose row it is, where one person may own several rows.

    A run then protects persons: each keeps at most `max_rows` rows, drawn at random, and these enter a step
    together or not at all. The ids themselves are compared and forgotten; a person with two ids counts as
    two.

    Attributes
    ----------
    column : str
        The id column's name in the table, compared exactly; it is neither outcome nor predictor.
    max_rows : int
        The most rows that one person contributes, >= 1. Public: noise grows with it, so choose it from what
        is known beforehand, not from the table.
    missing : "refuse" or "drop"
        What a row without an id does: stop with an error that names the column, or be left out.
    missing_values : tuple of str
        Texts (and whole numbers written as text) that mean "no id". A blank cell always does.

    Raises
    ------
    SchemaError
        If any of these rules is broken.

    Examples
    --------
    >>> Person(column="patient_id", max_rows=3).to_dict()
    {'column': 'patient_id', 'max_rows': 3, 'missing': 'refuse', 'missing_values': ['']}
    """

    column: str
    max_rows: int = 1
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        check_choice(str(self.column), "missing", self.missing, ("refuse", "drop"))
        # A column like the others, as far as its name and its missing cells go: one set of rules for all.
        column = RealColumn(
            name=self.column, lower=0, upper=1, missing=self.missing, missing_values=self.missing_values
        )
        object.__setattr__(self, "missing_values", column.missing_values)
        given: Any = self.max_rows
        if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
            shown = given if isinstance(given, str | int | float | None) else type(given).__name__
            raise SchemaError(
                f"person column {quoted(self.column)}: max_rows must be a whole number of at least 1, "
                f"the most rows that one person contributes (got {shown!r})"
            )
        object.__setattr__(self, "max_rows", int(given))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Person":
        """Return the person column in its TOML or JSON form: the settings of a `[person]` table."""
        return cls(**_settings(cls, content, title="person", example="max_rows = 1"))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON types; `from_dict` gives an equal one back."""
        return _as_dict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The column that says how many records a row stands for, in a frequency table.

    Each of these records is protected by itself, as if it had a row of its own: adding or removing one
    changes a row's count by one. Rows with equal cells may come several times. A row with count 0 is no
    record.

    Attributes
    ----------
    column : str
        The column's name in the table, compared exactly; it is neither outcome nor predictor.
    upper : int
        The largest count of a row, >= 1; a larger one is moved there, and the run goes on.
    missing : "refuse" or "drop"
        What a row without a count does: stop with an error that names the column, or be left out.
    missing_values : tuple of str
        Texts (and whole numbers written as text) that mean "no count". A blank cell always does.
    unknown : "refuse" or "drop"
        The same for a count that is negative, infinite, or no whole number.

    Raises
    ------
    SchemaError
        If any of these rules is broken.

    Examples
    --------
    >>> Counts(column="n").to_dict()["upper"]
    10000000000
    """

    column: str
    upper: int = 10**10
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)
    unknown: str = "refuse"

    def __post_init__(self) -> None:
        for key in ("missing", "unknown"):
            check_choice(str(self.column), key, getattr(self, key), ("refuse", "drop"))
        column = self.as_column()
        object.__setattr__(self, "upper", column.upper)
        object.__setattr__(self, "missing_values", column.missing_values)

    def as_column(self) -> CountColumn:
        """Return the column as any other of whole numbers."""
        pairs = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "column"}
        return CountColumn(name=self.column, **pairs)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Counts":
        """Return the count column in its TOML or JSON form: the settings of a `[counts]` table."""
        return cls(**_settings(cls, content, title="counts", example="upper = 1000"))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON types; `from_dict` gives an equal one back."""
        return _as_dict(self)


def _settings(
    cls: type[Person] | type[Counts], content: object, *, title: str, example: str
) -> dict[str, Any]:
    """Return the settings in a table, or raise unless they are known and name the column."""
    if not isinstance(content, Mapping):
        raise SchemaError(
            f'{title} must be a table of settings: write [{title}] with column = "NAME" and {example} '
            f"(got {type(content).__name__})"
        )
    known = [field.name for field in fields(cls)]
    for key in content:
        if key not in known:
            raise SchemaError(f"{title}: unknown setting {quoted(key)}; it knows {listed(known)}")
    if "column" not in content:
        which = "id column" if cls is Person else "column of counts"
        raise SchemaError(f'{title}: column is not given; name the {which}, column = "NAME"')
    return dict(content)


def _as_dict(settings: Person | Counts) -> dict[str, Any]:
    """Return settings as JSON types."""
    pairs = ((field.name, getattr(settings, field.name)) for field in fields(settings))
    return {key: list(value) if isinstance(value, tuple) else value for key, value in pairs}
