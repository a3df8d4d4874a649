"""The public description of a table: which columns there are and what a cell of each may hold.

A schema is written by hand from public knowledge, never read off the records: bounds and level lists fix
the model's dimension and the scaling of its features, and both would leak if they followed the data.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from numbers import Integral
from pathlib import Path
from typing import Any

from nadpvi.column_rules import check_choice
from nadpvi.columns import (
    BinaryColumn,
    CategoricalColumn,
    Column,
    CountColumn,
    OrderedColumn,
    RealColumn,
    column_from_dict,
    column_to_dict,
    listed,
    quoted,
)
from nadpvi.errors import FileError, SchemaError
from nadpvi.markup import column_content, html_pairs, html_table

__all__ = [
    "BinaryColumn",
    "CategoricalColumn",
    "Column",
    "CountColumn",
    "OrderedColumn",
    "Person",
    "RealColumn",
    "Schema",
]


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
        if not isinstance(content, Mapping):
            raise SchemaError(
                'person must be a table of settings: write [person] with column = "NAME" and max_rows = 1 '
                f"(got {type(content).__name__})"
            )
        known = [field.name for field in fields(cls)]
        for key in content:
            if key not in known:
                raise SchemaError(f"person: unknown setting {quoted(key)}; it knows {listed(known)}")
        if "column" not in content:
            raise SchemaError('person: column is not given; name the id column, column = "NAME"')
        return cls(**content)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON types; `from_dict` gives an equal one back."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {key: list(value) if isinstance(value, tuple) else value for key, value in pairs}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The public columns of a table, in order.

    Attributes
    ----------
    columns : tuple of RealColumn, BinaryColumn, CategoricalColumn, OrderedColumn or CountColumn
        At least one; names are distinct.
    person : Person or None
        Whose row each row is, if one person may own several; None if every row is a person's only one.

    Raises
    ------
    SchemaError
        If the columns are inconsistent; the message names the column and the remedy.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {"age": {"kind": "real", "lower": 17, "upper": 90}}})
    >>> schema["age"].upper
    90.0
    """

    columns: tuple[Column, ...]
    person: Person | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.columns, list | tuple) or not all(isinstance(c, Column) for c in self.columns):
            raise SchemaError(
                "columns must be a list of RealColumn, BinaryColumn, CategoricalColumn or CountColumn (or "
                "OrderedColumn)"
            )
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise SchemaError("a schema needs at least one column; add a [columns.NAME] table")
        for name, count in Counter(self.names).items():
            if count > 1:
                raise SchemaError(f"schema column {quoted(name)}: is described twice; remove one")
        if not isinstance(self.person, Person | None):
            raise SchemaError(
                'person must be a Person, such as Person(column="patient_id", max_rows=3), '
                f"or None (got {type(self.person).__name__})"
            )
        if self.person is not None and self.person.column in self:
            raise SchemaError(
                f"schema column {quoted(self.person.column)}: is the person column, which is neither "
                "outcome nor predictor; remove it from the columns"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order, without the person column's."""
        return tuple(column.name for column in self.columns)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(f"the schema has no column {quoted(name)}; it knows {listed(self.names)}")

    @classmethod
    def from_toml(cls, path: str | Path) -> "Schema":
        """Return the schema in a TOML file with one `[columns.NAME]` table a column.

        A `[person]` table with `column` and `max_rows` declares the person column.

        Raises
        ------
        FileError
            If the file cannot be read.
        SchemaError
            If it is not TOML (with the line), or not a consistent schema.
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise FileError(f"schema file {path} does not exist") from None
        except UnicodeDecodeError:
            raise FileError(f"schema file {path} is not UTF-8 text; save it as UTF-8") from None
        except OSError as error:
            raise FileError(f"schema file {path} cannot be read ({error.strerror})") from None
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(
                f"schema file {path} is not valid TOML: {' '.join(str(error).split())}"
            ) from None
        return cls.from_dict(content)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Schema":
        """Return the schema in `{"columns": ...}`: a mapping from name to settings, or a list with names.

        `"person"`, if there, holds the settings of a `Person`.
        """
        known = {"columns", "person"}
        if not isinstance(content, Mapping) or "columns" not in content or not set(content) <= known:
            found = listed(content) if isinstance(content, Mapping) and content else "nothing"
            raise SchemaError(
                'a schema holds "columns", perhaps "person", and nothing else '
                f"(found {found}); write [columns.NAME] tables"
            )
        person = Person.from_dict(content["person"]) if "person" in content else None
        columns = content["columns"]
        if isinstance(columns, Mapping):
            described = tuple(column_from_dict(name, entry) for name, entry in columns.items())
            return cls(columns=described, person=person)
        if not isinstance(columns, list | tuple) or not all(isinstance(entry, Mapping) for entry in columns):
            raise SchemaError("columns must be a table of columns: write [columns.NAME] with its settings")
        return cls(columns=tuple(_named_column(entry) for entry in columns), person=person)

    def _repr_html_(self) -> str:
        rows = [(column.name, column.kind, column_content(column)) for column in self.columns]
        table = html_table("Schema", header=["column", "kind", "bounds or levels"], rows=rows)
        if self.person is None:
            return table
        return table + html_pairs("Person", self.person.to_dict().items())

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON types; `from_dict` gives an equal schema back.

        Columns are a list, so that their order survives writers that sort the keys of an object. "person" is
        there only if the schema has one.
        """
        person = {} if self.person is None else {"person": self.person.to_dict()}
        return {"columns": [column_to_dict(column) for column in self.columns], **person}


def _named_column(entry: Mapping[str, Any]) -> Column:
    """Return a column from settings that hold its name too."""
    return column_from_dict(entry.get("name"), {key: value for key, value in entry.items() if key != "name"})
