"""From a table's rows to feature vectors and outcomes, by public constants alone.

One design serves the private run and every prediction made from its release: the encoding of a row depends
on that row and the schema, never on other rows, so it can be repeated by whoever holds the release.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.cells import Cells, read_levels, read_numbers
from nadpvi.columns import Column, CountColumn, RealColumn, quoted
from nadpvi.design import Design, make_design
from nadpvi.errors import ArgumentError, DataError
from nadpvi.row_columns import Counts
from nadpvi.tables import TableLike, require_columns, to_table

__all__ = [
    "Design",
    "Encoded",
    "EncodedOutcome",
    "OnProblem",
    "encode_features",
    "encode_counts",
    "encode_outcome",
    "make_design",
]

OnProblem = Literal["refuse", "incomplete"]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Encoded(NamedTuple):
    """Features x (N, F) within `Design.feature_bounds`, and which rows are complete (N,); others are zero."""

    x: FloatArray
    is_complete: BoolArray


class EncodedOutcome(NamedTuple):
    """Outcomes y (N,) and which rows have one (N,); the others hold 0.0."""

    y: FloatArray
    is_complete: BoolArray


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
    columns = {name: design.schema[name] for name in design.predictors}
    values: dict[str, FloatArray] = {}
    for name, column in columns.items():
        found, is_good = _read(column, frame[name], on_problem)
        is_complete &= is_good
        # Whatever an unusable cell holds, its row takes the same path as all others, and is zero in the end.
        values[name] = np.where(is_good, found, _usable(column))
    if design.intercept:
        x[:, 0] = 1.0
    start = int(design.intercept)
    for term in design.all_terms:
        part = term.features(columns, values)
        x[:, start : start + part.shape[1]] = part
        start += part.shape[1]
    x[~is_complete] = 0.0
    return Encoded(x, is_complete)


def encode_outcome(design: Design, table: TableLike, *, on_problem: OnProblem = "refuse") -> EncodedOutcome:
    """Return the outcomes of a table's rows, as the design's `outcome_kind` has them.

    Binary: 0.0 for the negative level, 1.0 for the positive. Categorical: the level's place, from 0.0. Real:
    clamped to the column's bounds and transformed, in its own unit otherwise. Count: clamped to the bounds.
    A design without an outcome gives 0.0 for every row. Arguments and errors are those of `encode_features`.

    Examples
    --------
    >>> from nadpvi.schema import Schema
    >>> schema = Schema.from_dict({"columns": {"visits": {"kind": "count", "upper": 20}}})
    >>> design = make_design(schema, outcome="visits", outcome_kind="count")
    >>> encode_outcome(design, {"visits": ["3", 400]}).y.tolist()
    [3.0, 20.0]
    """
    _check_on_problem(on_problem)
    frame = to_table(table)
    if design.outcome is None:
        return EncodedOutcome(np.zeros(len(frame)), np.ones(len(frame), dtype=np.bool_))
    require_columns(frame, (design.outcome,), known=design.schema.names)
    column = design.schema[design.outcome]
    values, is_good = _read(column, frame[design.outcome], on_problem)
    if isinstance(column, RealColumn | CountColumn):
        values = column.clamp(values)
    return EncodedOutcome(np.where(is_good, values, 0.0), is_good)


def encode_counts(counts: Counts, table: TableLike, *, on_problem: OnProblem = "refuse") -> NDArray[np.int64]:
    """Return how many records each row of a frequency table stands for, shape (N,); 0 where it is left out.

    Examples
    --------
    >>> encode_counts(Counts(column="n", upper=50), {"n": ["3", 0, 400]}).tolist()
    [3, 0, 50]
    """
    _check_on_problem(on_problem)
    frame = to_table(table)
    require_columns(frame, (counts.column,), known=(counts.column,))
    column = counts.as_column()
    cells = read_numbers(frame[counts.column], column)
    # A value that is moved to the bounds elsewhere: here it would be a number of records out of nothing.
    is_wrong = ~cells.is_missing & (cells.is_invalid | (cells.values < 0) | ~np.isfinite(cells.values))
    if on_problem == "refuse":
        if column.missing == "refuse" and cells.is_missing.any():
            raise DataError(
                f"column {quoted(counts.column)} has missing counts; clean them or declare "
                'missing = "drop" under [counts] in the schema'
            )
        if column.unknown == "refuse" and is_wrong.any():
            raise DataError(
                f"column {quoted(counts.column)} holds a count that is no whole number of at least 0; clean "
                'it or declare unknown = "drop" under [counts] in the schema'
            )
    found = np.where(cells.is_missing | is_wrong, 0.0, column.clamp(cells.values))
    return found.astype(np.int64)


def _usable(column: Column) -> float:
    """Return a value that a cell of the column may have."""
    return float(column.lower) if isinstance(column, RealColumn | CountColumn) else 0.0


def _read(column: Column, series: "pd.Series[Any]", on_problem: OnProblem) -> tuple[FloatArray, BoolArray]:
    """Return a column's raw numbers or level indices and which cells are usable, by its policies."""
    policies: list[str | float] = [column.missing, column.unknown]
    if isinstance(column, RealColumn | CountColumn):
        cells = read_numbers(series, column)
    else:
        cells = read_levels(series, column)
        # The two words are policies even where a level is called "refuse" or "drop".
        policies = [
            policy if policy in ("refuse", "drop") else column.levels.index(str(policy))
            for policy in policies
        ]
    values, is_good = cells.values, np.ones(len(series), dtype=np.bool_)
    for policy, is_meant in zip(policies, (cells.is_missing, cells.is_invalid), strict=True):
        if isinstance(policy, str):
            is_good &= ~is_meant
        else:
            values = np.where(is_meant, float(policy), values)
    if on_problem == "refuse":
        _refuse(column, cells)
    return values, is_good


def _refuse(column: Column, cells: Cells) -> None:
    """Raise if a cell is unusable and its column's policy is to refuse."""
    name = quoted(column.name)
    if column.missing == "refuse" and cells.is_missing.any():
        raise DataError(
            f'column {name} has missing values; declare missing = "drop" in the schema, or what they count as'
        )
    if column.unknown == "refuse" and cells.is_invalid.any():
        if isinstance(column, RealColumn):
            raise DataError(
                f"column {name} holds text that is not a number (12.5, with a decimal point); "
                'clean it, list the text in missing_values in the schema, or declare unknown = "drop"'
            )
        if isinstance(column, CountColumn):
            raise DataError(
                f"column {name} holds a fraction or text where a count column has whole numbers; clean it, "
                'list the text in missing_values, or declare kind = "real" in the schema'
            )
        hint = "; blanks around the text are in the way: strip them" if cells.stripping_helps else ""
        raise DataError(
            f"column {name} holds a level that the schema does not list; add it to levels, "
            f'or declare unknown = "drop" or one of the levels{hint}'
        )


def _check_on_problem(on_problem: str) -> None:
    """Raise unless the choice is one of the two."""
    if on_problem not in ("refuse", "incomplete"):
        raise ArgumentError(f'on_problem must be "refuse" or "incomplete" (got {on_problem!r})')
