"""From a table's rows to feature vectors, by public constants alone.

One design serves the private run and every prediction made from its release: the encoding of a row depends
on that row and the schema, never on other rows, so it can be repeated by whoever holds the release.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.cells import Cells, read_levels, read_numbers
from nadpvi.columns import BinaryColumn, CategoricalColumn, Column, RealColumn, listed, quoted
from nadpvi.errors import ArgumentError, DataError, SchemaError
from nadpvi.schema import Schema
from nadpvi.tables import TableLike, require_columns, to_table

__all__ = [
    "Design",
    "Encoded",
    "EncodedOutcome",
    "OnProblem",
    "encode_features",
    "encode_outcome",
    "make_design",
]

OnProblem = Literal["refuse", "incomplete"]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Encoded(NamedTuple):
    """Feature vectors x (N, F), entries in [0, 1], and which rows are complete (N,); the others are zero."""

    x: FloatArray
    is_complete: BoolArray


class EncodedOutcome(NamedTuple):
    """Outcomes y (N,), 0.0 or 1.0, and which rows have one (N,); the others hold 0.0."""

    y: FloatArray
    is_complete: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Which columns predict which outcome, and how each is coded. Public; F coefficients.

    Attributes
    ----------
    schema : Schema
        The columns in use: predictors, then outcome. A release need not describe the others.
    outcome : str
        A binary column.
    predictors : tuple of str
        In the order of their coefficients.
    intercept : bool
        Whether the first coefficient is a constant's.

    Raises
    ------
    ArgumentError
        If a name is unknown or given twice.
    SchemaError
        If the outcome is not binary, two coefficients share a label, or there is no coefficient.
    """

    schema: Schema
    outcome: str
    predictors: tuple[str, ...]
    intercept: bool = True

    def __post_init__(self) -> None:
        predictors = _name_tuple(self.predictors)
        _check_names(self.schema, self.outcome, predictors)
        object.__setattr__(self, "predictors", predictors)
        if not isinstance(self.intercept, bool):
            raise ArgumentError(f"intercept must be True or False (got {self.intercept!r})")
        used = tuple(self.schema[name] for name in (*predictors, self.outcome))
        object.__setattr__(self, "schema", Schema(columns=used))
        if not isinstance(self.schema[self.outcome], BinaryColumn):
            raise SchemaError(
                f"outcome {quoted(self.outcome)} must be a binary column; "
                'declare kind = "binary" and levels = [negative, positive]'
            )
        if not self.labels:
            raise SchemaError("a model needs a predictor or an intercept; it has neither")
        for label, count in Counter(self.labels).items():
            if count > 1:
                remedy = " or leave the intercept out" if label == "Intercept" else ""
                raise SchemaError(
                    f"two coefficients would be called {quoted(label)}; rename a column{remedy}"
                )

    @property
    def labels(self) -> tuple[str, ...]:
        """The F coefficients' labels: "Intercept", "age", "workclass[Private]"."""
        first = ("Intercept",) if self.intercept else ()
        return first + tuple(label for name in self.predictors for label in _labels(self.schema[name]))

    @property
    def num_features(self) -> int:
        """F, the number of coefficients."""
        return len(self.labels)

    @property
    def feature_norm_bound(self) -> float:
        """The largest Euclidean norm of any row: each predictor and the intercept contribute at most 1."""
        return math.sqrt(self.intercept + len(self.predictors))

    def to_dict(self) -> dict[str, Any]:
        """Return the design as JSON types; `from_dict` gives an equal design back."""
        return {
            "schema": self.schema.to_dict(),
            "outcome": self.outcome,
            "predictors": list(self.predictors),
            "intercept": self.intercept,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Design":
        """Return the design that `to_dict` described."""
        known = ("schema", "outcome", "predictors", "intercept")
        if not isinstance(content, Mapping) or set(content) != set(known):
            raise SchemaError(f"a design holds exactly {listed(known)}")
        return cls(
            schema=Schema.from_dict(content["schema"]),
            outcome=content["outcome"],
            predictors=content["predictors"],
            intercept=content["intercept"],
        )


def make_design(
    schema: Schema, *, outcome: str, predictors: Sequence[str] | None = None, intercept: bool = True
) -> Design:
    """Return the design that codes `predictors` (by default every column but the outcome).

    A real column becomes one feature in [0, 1], a binary one a 0/1 feature labelled by its positive level, a
    categorical one a 0/1 feature for each of its levels.

    Raises
    ------
    ArgumentError, SchemaError
        As for `Design`.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {
    ...     "age": {"kind": "real", "lower": 0, "upper": 100},
    ...     "sex": {"kind": "binary", "levels": ["Female", "Male"]},
    ...     "well": {"kind": "binary", "levels": ["no", "yes"]}}})
    >>> design = make_design(schema, outcome="well")
    >>> design.labels
    ('Intercept', 'age', 'sex[Male]')
    >>> encode_features(design, {"age": ["25", 150], "sex": ["Male", "Female"]}).x.tolist()
    [[1.0, 0.25, 1.0], [1.0, 1.0, 0.0]]
    """
    if predictors is None:
        predictors = tuple(name for name in schema.names if name != outcome)
    return Design(schema=schema, outcome=outcome, predictors=_name_tuple(predictors), intercept=intercept)


def encode_features(design: Design, table: TableLike, *, on_problem: OnProblem = "refuse") -> Encoded:
    """Return the feature vectors of a table's rows, in order.

    Parameters
    ----------
    design : Design
    table : DataFrame, mapping of columns, or path
        N rows. Only the predictors' columns are looked at; nothing is modified.
    on_problem : "refuse" or "incomplete"
        What an unusable cell does where its column's policy is to refuse: raise, or only mark its row as not
        complete, so that a prediction can answer every row. Rows dropped by policy are marked in either case.

    Raises
    ------
    DataError
        If a column is absent or of a wrong type, or a cell is unusable and `on_problem` is "refuse". The
        message names the column; no row, value or count.
    """
    _check_on_problem(on_problem)
    frame = to_table(table)
    require_columns(frame, design.predictors, known=design.predictors)
    x = np.zeros((len(frame), design.num_features))
    is_complete = np.ones(len(frame), dtype=np.bool_)
    if design.intercept:
        x[:, 0] = 1.0
    start = int(design.intercept)
    for name in design.predictors:
        column = design.schema[name]
        values, is_good = _read(column, frame[name], on_problem)
        is_complete &= is_good
        width = len(_labels(column))
        if isinstance(column, CategoricalColumn):
            rows = np.flatnonzero(is_good)
            x[rows, start + values[rows].astype(np.intp)] = 1.0
        else:
            x[is_good, start] = values[is_good]
        start += width
    x[~is_complete] = 0.0
    return Encoded(x, is_complete)


def encode_outcome(design: Design, table: TableLike, *, on_problem: OnProblem = "refuse") -> EncodedOutcome:
    """Return the outcomes of a table's rows: 0.0 for the negative level, 1.0 for the positive.

    Arguments and errors are those of `encode_features`.
    """
    _check_on_problem(on_problem)
    frame = to_table(table)
    require_columns(frame, (design.outcome,), known=design.schema.names)
    values, is_good = _read(design.schema[design.outcome], frame[design.outcome], on_problem)
    return EncodedOutcome(np.where(is_good, values, 0.0), is_good)


def _read(column: Column, series: "pd.Series[Any]", on_problem: OnProblem) -> tuple[FloatArray, BoolArray]:
    """Return a column's scaled values or level indices and which cells are usable, by its policies."""
    if isinstance(column, RealColumn):
        cells = read_numbers(series, column)
        values = column.scale(cells.values)
        is_good = ~(cells.is_missing | cells.is_invalid)
    else:
        cells = read_levels(series, column)
        # The two words are policies even where a level is called "refuse" or "drop".
        if column.unknown in ("refuse", "drop"):
            values = cells.values
            is_good = ~(cells.is_missing | cells.is_invalid)
        else:
            values = np.where(cells.is_invalid, float(column.levels.index(column.unknown)), cells.values)
            is_good = ~cells.is_missing
    if on_problem == "refuse":
        _refuse(column, cells)
    return values, is_good


def _refuse(column: Column, cells: Cells) -> None:
    """Raise if a cell is unusable and its column's policy is to refuse."""
    name = quoted(column.name)
    unknown = "refuse" if isinstance(column, RealColumn) else column.unknown
    if column.missing == "refuse" and cells.is_missing.any():
        raise DataError(
            f'column {name} has missing values; clean them or declare missing = "drop" in the schema'
        )
    if unknown == "refuse" and cells.is_invalid.any():
        if isinstance(column, RealColumn):
            raise DataError(
                f"column {name} holds text that is not a number (12.5, with a decimal point); "
                "clean it or list the text in missing_values in the schema"
            )
        hint = "; blanks around the text are in the way: strip them" if cells.stripping_helps else ""
        raise DataError(
            f"column {name} holds a level that the schema does not list; add it to levels, "
            f'or declare unknown = "drop" or one of the levels{hint}'
        )


def _labels(column: Column) -> tuple[str, ...]:
    """Return the labels of one column's coefficients."""
    if isinstance(column, RealColumn):
        return (column.name,)
    levels = column.levels[1:] if isinstance(column, BinaryColumn) else column.levels
    return tuple(f"{column.name}[{level}]" for level in levels)


def _name_tuple(predictors: object) -> tuple[str, ...]:
    """Return a list of names as a tuple, or raise."""
    if not isinstance(predictors, list | tuple) or not all(isinstance(name, str) for name in predictors):
        raise ArgumentError('predictors must be a list of column names, such as ["age", "sex"]')
    return tuple(predictors)


def _check_names(schema: Schema, outcome: str, predictors: tuple[str, ...]) -> None:
    """Raise unless each name is known and used once."""
    for role, name in (("outcome", outcome), *(("predictor", name) for name in predictors)):
        if name not in schema:
            raise ArgumentError(
                f"{role} {quoted(name)} is not in the schema; it knows {listed(schema.names)}"
            )
    for name, count in Counter((outcome, *predictors)).items():
        if count > 1:
            raise ArgumentError(
                f"column {quoted(name)} is named twice among outcome and predictors; name it once"
            )


def _check_on_problem(on_problem: str) -> None:
    """Raise unless the choice is one of the two."""
    if on_problem not in ("refuse", "incomplete"):
        raise ArgumentError(f'on_problem must be "refuse" or "incomplete" (got {on_problem!r})')
