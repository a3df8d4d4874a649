"""The skeleton of a schema, from what its writer says of the columns: names, kinds, and what else is public.

No table is read. Where bounds or levels are not given the skeleton says so, and is no schema before somebody
has filled them in.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nadpvi.column_rules import PLACEHOLDER
from nadpvi.columns import KINDS, column_from_dict, listed, quoted
from nadpvi.errors import SchemaError
from nadpvi.row_columns import Counts, Person
from nadpvi.tables import read_table

__all__ = ["CODEBOOK_COLUMNS", "column_from_text", "columns_from_codebook", "schema_skeleton"]

CODEBOOK_COLUMNS = (
    "name", "kind", "lower", "upper", "levels", "transform", "coding", "missing", "unknown", "missing_values",
    "max_rows",
)  # fmt: skip
# Columns that say what a row is, and what a skeleton of one holds besides its name.
_SPECIAL: dict[str, tuple[type[Person] | type[Counts], dict[str, Any]]] = {
    "person": (Person, {"max_rows": 1}),
    "counts": (Counts, {}),
}
_ALL_KINDS = (*KINDS, *_SPECIAL)
_LISTS = ("levels", "missing_values")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_NEEDED = {"real": ("lower", "upper"), "count": ("upper",)}
_HEAD = """\
# What is publicly known of the table's columns. Never read a bound or a level off the records.
# Numbers outside of the bounds are moved to the nearer one. A cell that is missing, or unknown (no number, no
# declared level), stops the run ("refuse"), leaves its row out ("drop"), or counts as a level or number.
"""
_HINTS = {
    "lower": "the least value that is plausible",
    "upper": "the largest value that is plausible",
    "levels": 'every level, each in quotes: ["a", "b"]',
}
_LEVEL_HINTS = {
    "binary": 'both levels, the one that counts as 1 last: ["no", "yes"]',
    "ordered": 'every level, the lowest first: ["low", "middle", "high"]',
}


def column_from_text(text: str) -> dict[str, str]:
    """Return what ``NAME``, ``NAME:KIND`` or ``NAME:KIND:DETAIL`` says of a column.

    The detail of a number is its bounds, ``18,90`` (of a count also the upper one alone); that of levels, the
    levels with commas between them; that of a person the most rows, of the counts of a frequency table the
    largest count.

    Examples
    --------
    >>> column_from_text("age:real:18,90")
    {'name': 'age', 'kind': 'real', 'lower': '18', 'upper': '90'}
    >>> column_from_text("height in cm")
    {'name': 'height in cm', 'kind': 'real'}
    """
    kinds = "|".join(_ALL_KINDS)
    found = re.fullmatch(rf"(.+?):({kinds})(?::(.*))?", text, re.DOTALL)
    if found is None:
        other = re.fullmatch(r".+?:(\w*)(?::.*)?", text, re.DOTALL)
        if other is not None:
            raise SchemaError(
                f"column {quoted(text)}: unknown kind {quoted(other.group(1))}; known ones are "
                f"{listed(_ALL_KINDS)}"
            )
        return {"name": text, "kind": "real"}
    name, kind, detail = found.groups()
    if not detail:
        return {"name": name, "kind": kind}
    if kind in _SPECIAL:
        return {"name": name, "kind": kind, "max_rows" if kind == "person" else "upper": detail}
    if kind not in _NEEDED:
        return {"name": name, "kind": kind, "levels": detail.replace(",", "|")}
    ends = detail.split(",")
    if len(ends) > 2 or (len(ends) == 1 and kind == "real"):
        shown = name if name.isprintable() else "NAME"
        raise SchemaError(f"column {quoted(name)}: write both bounds, as in {shown}:{kind}:0,100")
    return {"name": name, "kind": kind} | dict(zip(("lower", "upper")[-len(ends) :], ends, strict=True))


def columns_from_codebook(path: Path) -> list[dict[str, str]]:
    """Return the columns that a codebook describes: a CSV file with one line a column, public throughout.

    Its columns are among `CODEBOOK_COLUMNS`; levels have vertical bars between them, and cells may be blank.

    Raises
    ------
    SchemaError
        If the file has no column "name", or others: it may be the table itself, of which nothing is quoted.
    """
    book = read_table(path)
    header = [str(name) for name in book.columns]
    if "name" not in header or set(header) - set(CODEBOOK_COLUMNS):
        raise SchemaError(
            f"{path} is no codebook, which has a line for each column and the headings "
            f"{listed(CODEBOOK_COLUMNS)}, the first of them at least; a schema is never made from the table "
            "itself"
        )
    rows = [dict(zip(header, map(str, row), strict=True)) for row in book.itertuples(index=False)]
    return [
        {"kind": "real"} | {key: value.strip() for key, value in row.items() if value.strip()} for row in rows
    ]


def schema_skeleton(columns: Sequence[Mapping[str, str]]) -> tuple[str, int]:
    """Return a schema's TOML text, and how many settings of it are still to be filled in.

    Parameters
    ----------
    columns : sequence of mapping
        Settings by name as texts, "name" and "kind" among them; levels have vertical bars between them.

    Raises
    ------
    SchemaError
        If a column is described twice, or what is given of it contradicts the rules of its kind.

    Examples
    --------
    >>> text, num_open = schema_skeleton([{"name": "age", "kind": "real", "lower": "18"}])
    >>> num_open
    1
    >>> 'upper = "FILL IN"' in text
    True
    """
    described: dict[str, dict[str, Any]] = {}
    special: dict[str, dict[str, Any]] = {}
    for given in columns:
        name, kind = given.get("name", ""), given.get("kind", "")
        if kind not in _ALL_KINDS:
            raise SchemaError(
                f"column {quoted(name)}: kind must be one of {listed(_ALL_KINDS)} (got {quoted(kind)})"
            )
        if kind in special or name in (*described, *(other["column"] for other in special.values())):
            what = f"a second {kind} column" if kind in special else "described twice"
            raise SchemaError(f"column {quoted(name)}: is {what}; remove one")
        settings = {
            key: _value(key, text, kind) for key, text in given.items() if key not in ("name", "kind")
        }
        if kind in _SPECIAL:
            made, defaults = _SPECIAL[kind]
            special[kind] = {"column": name} | defaults | settings
            made.from_dict(special[kind])
        else:
            described[name] = _column(name, kind, settings)
    if not described:
        raise SchemaError("name at least one column, as in: nadpvi schema init age:real:18,90 sex:binary")
    if len(special) > 1:
        raise SchemaError("a schema has a person or counts, not both: a person's rows come one by one")
    parts = [_section({"columns": {name: column}}, kind=column["kind"]) for name, column in described.items()]
    parts += [_section({kind: settings}) for kind, settings in special.items()]
    text = "\n".join((_HEAD, *parts))
    return text, sum(f'"{PLACEHOLDER}"' in line for line in text.split("\n"))


def _column(name: str, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a column's settings with a placeholder for each that is needed; the others are checked."""
    needed = _NEEDED.get(kind, ("levels",))
    column: dict[str, Any] = {"kind": kind}
    for key in needed:
        column[key] = settings.get(key, [PLACEHOLDER] if key == "levels" else PLACEHOLDER)
    column |= {"missing": "refuse", "unknown": "refuse"} | dict(settings)
    if all(key in settings for key in needed):
        column_from_dict(name, column)
    else:
        # Names and spelling, while bounds and levels are open.
        numbers = {"lower": 1, "upper": 2} if kind in _NEEDED else {"levels": ["a", "b"]}
        column_from_dict(name, column | numbers | {"missing": "refuse", "unknown": "refuse"})
    return column


def _value(key: str, text: str, kind: str) -> Any:
    """Return a setting as TOML has it: a number where it may be one, a list where it is one."""
    if key in _LISTS:
        return [part.strip() for part in text.split("|")]
    is_number = key in ("lower", "upper", "max_rows") or (key in ("missing", "unknown") and kind in _NEEDED)
    if not is_number or not _NUMBER.fullmatch(text.strip()):
        return text
    number = float(text)
    return int(number) if abs(number) < 2**53 and number == int(number) else number


def _section(content: Mapping[str, Any], *, kind: str = "") -> str:
    """Return one table of TOML, each list on one line, with what is to be filled in where it is."""
    import tomli_w

    # No text in TOML spans lines here, so that a line break is one between the entries of a list.
    joined = re.sub(
        r"\[\n\s*(.*?),?\n\]",
        lambda found: f"[{re.sub(chr(10) + ' *', ' ', found[1])}]",
        tomli_w.dumps(content),
        flags=re.DOTALL,
    )
    hints = _HINTS | ({"levels": _LEVEL_HINTS[kind]} if kind in _LEVEL_HINTS else {})
    lines = []
    for line in joined.split("\n"):
        hint = hints.get(line.partition(" ")[0]) if f'"{PLACEHOLDER}"' in line else None
        lines.append(line if hint is None else f"{line}  # {hint}")
    return "\n".join(lines)
