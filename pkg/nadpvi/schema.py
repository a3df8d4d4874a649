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
    RealColumn,
    column_from_dict,
    column_to_dict,
    listed,
    quoted,
)
from nadpvi.errors import FileError, SchemaError

__all__ = ["BinaryColumn", "CategoricalColumn", "Column", "RealColumn", "Schema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The public columns of a table, in order.

    Attributes
    ----------
    columns : tuple of RealColumn, BinaryColumn or CategoricalColumn
        At least one; names are distinct.

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

    def __post_init__(self) -> None:
        if not isinstance(self.columns, list | tuple) or not all(isinstance(c, Column) for c in self.columns):
            raise SchemaError("columns must be a list of RealColumn, BinaryColumn or CategoricalColumn")
        object.__setattr__(self, "columns", tuple(self.columns))
        if not self.columns:
            raise SchemaError("a schema needs at least one column; add a [columns.NAME] table")
        for name, count in Counter(self.names).items():
            if count > 1:
                raise SchemaError(f"schema column {quoted(name)}: is described twice; remove one")

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
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
        """Return the schema in `{"columns": ...}`: a mapping from name to settings, or a list with names."""
        if not isinstance(content, Mapping) or set(content) != {"columns"}:
            found = listed(content) if isinstance(content, Mapping) and content else "nothing"
            raise SchemaError(
                f'a schema holds "columns" and nothing else (found {found}); write [columns.NAME] tables'
            )
        columns = content["columns"]
        if isinstance(columns, Mapping):
            return cls(columns=tuple(column_from_dict(name, entry) for name, entry in columns.items()))
        if not isinstance(columns, list | tuple) or not all(isinstance(entry, Mapping) for entry in columns):
            raise SchemaError("columns must be a table of columns: write [columns.NAME] with its settings")
        return cls(columns=tuple(_named_column(entry) for entry in columns))

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON types; `from_dict` gives an equal schema back.

        Columns are a list, so that their order survives writers that sort the keys of an object.
        """
        return {"columns": [column_to_dict(column) for column in self.columns]}


def _named_column(entry: Mapping[str, Any]) -> Column:
    """Return a column from settings that hold its name too."""
    return column_from_dict(entry.get("name"), {key: value for key, value in entry.items() if key != "name"})
