"""The public description of a table: which columns there are and what a cell of each may hold.

A schema is written by hand from public knowledge, never read off the records: bounds and level lists fix
the model's dimension and the scaling of its features, and both would leak if they followed the data.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from nadpvi.row_columns import Counts, Person

__all__ = [
    "BinaryColumn",
    "CategoricalColumn",
    "Column",
    "CountColumn",
    "Counts",
    "OrderedColumn",
    "Person",
    "RealColumn",
    "Schema",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The public columns of a table, in order.

    Attributes
    ----------
    columns : tuple of RealColumn, BinaryColumn, CategoricalColumn, OrderedColumn or CountColumn
        At least one; names are distinct.
    person : Person or None
        Whose row each row is, if one person may own several; None if every row is a person's only one.
    counts : Counts or None
        How many records each row stands for, in a frequency table; None if every row is one. Not with
        `person`: a person's rows come one by one.

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
    counts: Counts | None = None

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
        if not isinstance(self.counts, Counts | None):
            raise SchemaError(
                'counts must be a Counts, such as Counts(column="n"), or None '
                f"(got {type(self.counts).__name__})"
            )
        if self.person is not None and self.counts is not None:
            raise SchemaError("a schema has a person or counts, not both: a person's rows come one by one")
        for role, special in (("person column", self.person), ("column of counts", self.counts)):
            if special is not None and special.column in self:
                raise SchemaError(
                    f"schema column {quoted(special.column)}: is the {role}, which is neither "
                    "outcome nor predictor; remove it from the columns"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order, without those of person or counts."""
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

        A `[person]` table with `column` and `max_rows` declares the person column, a `[counts]` table with
        `column` that of a frequency table.

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

        `"person"` and `"counts"`, if there, hold the settings of a `Person` or `Counts`.
        """
        known = {"columns", "person", "counts"}
        if not isinstance(content, Mapping) or "columns" not in content or not set(content) <= known:
            found = listed(content) if isinstance(content, Mapping) and content else "nothing"
            raise SchemaError(
                'a schema holds "columns", perhaps "person" or "counts", and nothing else '
                f"(found {found}); write [columns.NAME] tables"
            )
        person = Person.from_dict(content["person"]) if "person" in content else None
        counts = Counts.from_dict(content["counts"]) if "counts" in content else None
        columns = content["columns"]
        if isinstance(columns, Mapping):
            described = tuple(column_from_dict(name, entry) for name, entry in columns.items())
            return cls(columns=described, person=person, counts=counts)
        if not isinstance(columns, list | tuple) or not all(isinstance(entry, Mapping) for entry in columns):
            raise SchemaError("columns must be a table of columns: write [columns.NAME] with its settings")
        return cls(columns=tuple(_named_column(entry) for entry in columns), person=person, counts=counts)

    def _repr_html_(self) -> str:
        rows = [(column.name, column.kind, column_content(column)) for column in self.columns]
        table = html_table("Schema", header=["column", "kind", "bounds or levels"], rows=rows)
        for title, special in (("Person", self.person), ("Counts", self.counts)):
            if special is not None:
                table += html_pairs(title, special.to_dict().items())
        return table

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON types; `from_dict` gives an equal schema back.

        Columns are a list, so that their order survives writers that sort the keys of an object. "person" and
        "counts" are there only if the schema has them.
        """
        content: dict[str, Any] = {"columns": [column_to_dict(column) for column in self.columns]}
        for key, special in (("person", self.person), ("counts", self.counts)):
            if special is not None:
                content[key] = special.to_dict()
        return content


def _named_column(entry: Mapping[str, Any]) -> Column:
    """Return a column from settings that hold its name too."""
    return column_from_dict(entry.get("name"), {key: value for key, value in entry.items() if key != "name"})
