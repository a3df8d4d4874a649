"""Turn one column of cells into numbers or level indices, each cell on its own.

Row-wise: what becomes of a cell depends on that cell and the schema alone, never on the rest of the column.
pandas' own conversions do not promise this (one text can change how a whole column is parsed), hence the
parser here.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from math import inf, nan
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nadpvi.columns import CountColumn, RealColumn, quoted
from nadpvi.errors import DataError
from nadpvi.level_columns import LevelColumn

__all__ = ["Cells", "is_number", "missing_cells", "read_levels", "read_numbers"]

# ASCII digits with a decimal point: float() would also take "1_000" and digits of other scripts. No two parts
# can take the same digits, so that a long cell that is no number costs one pass over it and not its square.
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf(?:inity)?)", re.ASCII | re.IGNORECASE
)
# Past this, writing a number out in digits can fail.
_LARGEST_LEVEL = 1e300
# A number or truth value of a typed column as files write it, where levels may be spelled otherwise.
_WRITTEN = re.compile(r"[+-]?[0-9]+\.[0-9]*|-0", re.ASCII)
_TRUTHS = {"True": True, "true": True, "TRUE": True, "False": False, "false": False, "FALSE": False}
_MISSING = -1
_UNKNOWN = -2


class Cells(NamedTuple):
    """One column read against its description; the three arrays have shape (N,).

    `values` are raw numbers or level indices, meaningful where neither flag is set. `stripping_helps` says
    that some unknown cell would be known without the blanks around it.
    """

    values: NDArray[np.float64]
    is_missing: NDArray[np.bool_]
    is_invalid: NDArray[np.bool_]
    stripping_helps: bool


def missing_cells(cells: "pd.Series[Any]") -> NDArray[np.bool_]:
    """Return which cells hold no value at all, shape (N,)."""
    try:
        return cells.isna().to_numpy(dtype=np.bool_)
    except ArithmeticError:  # comparing Decimal("sNaN") raises, and one such cell must not end a run
        return np.array([_is_missing(cell) for cell in cells.to_numpy(dtype=object)], dtype=np.bool_)


def _is_missing(cell: object) -> bool:
    """Return whether one cell holds no value at all."""
    if isinstance(cell, Decimal):
        return cell.is_nan()
    found: Any = pd.isna(cell)  # type: ignore[call-overload]
    # Of a cell that holds several values, an answer for each.
    return bool(found) if isinstance(found, bool | np.bool_) else False


def is_number(cell: object) -> bool:
    """Return whether a cell is a number of any type; a truth value is one too."""
    # NumPy counts a span of time among the integers, and float() then fails on it.
    return isinstance(cell, Real | Decimal | np.bool_) and not isinstance(cell, np.timedelta64)


def read_numbers(cells: "pd.Series[Any]", column: RealColumn | CountColumn) -> Cells:
    """Return the numbers in a real or count column's cells, unscaled; text is parsed, blanks are stripped.

    In a count column a fraction is as invalid as a word.
    """
    _check_dtype(cells, column.name)
    is_missing = missing_cells(cells)
    if cells.dtype.kind in "biuf":
        with np.errstate(over="ignore"):
            values = cells.to_numpy(dtype=np.float64, na_value=nan)
    else:
        objects = cells.to_numpy(dtype=object)
        texts = {cell: cell.strip() for cell in objects if isinstance(cell, str)}
        parsed = {cell: _parse(text) for cell, text in texts.items()}
        values = np.array(
            [parsed[cell] if isinstance(cell, str) else _to_float(cell) for cell in objects], dtype=np.float64
        )
        blank = {cell for cell, text in texts.items() if text in column.missing_values}
        is_missing = is_missing | np.array(
            [isinstance(cell, str) and cell in blank for cell in objects], dtype=np.bool_
        )
    # "-9" in missing_values means the number, whichever way a file writes it.
    codes = [_parse(text) for text in column.missing_values]
    is_missing = is_missing | np.isin(values, [code for code in codes if code == code])
    is_number = ~np.isnan(values)
    if isinstance(column, CountColumn):
        is_number &= values == np.floor(values)
    return Cells(values, is_missing, ~is_number & ~is_missing, False)


def read_levels(cells: "pd.Series[Any]", column: LevelColumn) -> Cells:
    """Return the index of each cell's level in `column.levels`; text is compared exactly.

    Text that is no level, but a number or truth value as a file may write one ("1.0", "2.50", "true"), counts
    as that value would in a column of its type: a CSV and a Parquet file of one table have the same levels.
    """
    _check_dtype(cells, column.name)
    # The levels come last, so that a declared level wins over a text for "missing".
    known = dict.fromkeys(column.missing_values, _MISSING) | {
        level: index for index, level in enumerate(column.levels)
    }
    objects = cells.to_numpy(dtype=object)
    texts = {cell: _find((cell, *_written(cell)), known) for cell in objects if isinstance(cell, str)}
    indices = np.array(
        [texts[cell] if isinstance(cell, str) else _find(_spellings(cell), known) for cell in objects],
        dtype=np.float64,
    )
    is_missing = missing_cells(cells) | (indices == _MISSING)
    is_invalid = (indices == _UNKNOWN) & ~is_missing
    stripping_helps = any(isinstance(cell, str) and cell.strip() in known for cell in objects[is_invalid])
    return Cells(indices, is_missing, is_invalid, stripping_helps)


def _check_dtype(cells: "pd.Series[Any]", name: str) -> None:
    """Raise if the whole column is of a type that holds neither numbers nor levels."""
    if cells.dtype.kind in "cmM" or isinstance(cells.dtype, pd.PeriodDtype | pd.IntervalDtype):
        # A sparse type spells out the commonest cell.
        dtype = cells.dtype.subtype if isinstance(cells.dtype, pd.SparseDtype) else cells.dtype
        raise DataError(
            f"column {quoted(name)} holds {dtype} cells; give real numbers or text (dates as a number)"
        )


def _parse(text: str) -> float:
    """Return the number in a text without blanks around it, NaN if it is none; a truth value is 1 or 0."""
    return float(text) if _NUMBER.fullmatch(text) else float(_TRUTHS.get(text, nan))


def _to_float(cell: Any) -> float:
    """Return a number of any type as a float, NaN if it is none."""
    if not is_number(cell):
        return nan
    try:
        return float(cell)
    except OverflowError:
        return inf if cell > 0 else -inf
    except (ValueError, ArithmeticError):  # a signalling NaN
        return nan


def _spellings(cell: object) -> Sequence[str]:
    """Return the texts that a number or truth value may have as a level, the likeliest first."""
    if isinstance(cell, bool | np.bool_):
        return ("True", "true", "TRUE", "1") if cell else ("False", "false", "FALSE", "0")
    if is_number(cell) and abs(_to_float(cell)) < _LARGEST_LEVEL:
        # A whole number is spelled without a point first, whatever its type: pandas turns 1 into 1.0 as soon
        # as another row holds a fraction.
        number: Any = cell
        whole = (str(int(number)),) if number == int(number) else ()
        return (*whole, str(float(number)), str(number))
    return ()


def _written(text: str) -> Sequence[str]:
    """Return the spellings of the number or truth value that a text is, none if it is neither."""
    if text in _TRUTHS:
        return _spellings(_TRUTHS[text])
    return _spellings(Decimal(text)) if _WRITTEN.fullmatch(text) else ()


def _find(spellings: Sequence[str], known: dict[str, int]) -> int:
    """Return the code of the first spelling that is known."""
    return next((known[text] for text in spellings if text in known), _UNKNOWN)
