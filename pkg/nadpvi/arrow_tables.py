"""Tables in Arrow's memory: pyarrow's own, and those of whoever hands them over, polars among them."""

from typing import Any

import pandas as pd

from nadpvi.errors import ArgumentError, DataError

__all__ = ["arrow_frame", "arrow_table", "is_arrow"]


def is_arrow(source: object) -> bool:
    """Return whether an object is a table, not pandas', that hands itself over by Arrow's stream interface.

    A stream that can be read once, or a query that has not been run, has no length, and is none.
    """
    if isinstance(source, pd.DataFrame):
        return False
    return hasattr(source, "__arrow_c_stream__") and hasattr(source, "__len__")


def arrow_table(source: Any) -> Any:
    """Return an object for which `is_arrow` holds as a pyarrow table, as a rule without a copy.

    Raises
    ------
    ArgumentError
        If pyarrow is not installed.
    DataError
        If a column is of a type that Arrow has not.
    """
    try:
        import pyarrow
    except ImportError:
        raise ArgumentError(
            f"a {type(source).__name__} is read by pyarrow; pip install 'nadpvi[parquet]', or convert it to "
            "a pandas DataFrame"
        ) from None
    try:
        return source if isinstance(source, pyarrow.Table) else pyarrow.table(source)
    # Whatever another library raises, its message may quote a cell.
    except Exception:
        raise DataError(
            f"the {type(source).__name__} cannot be read as an Arrow table; give its columns Arrow's types, "
            "or convert it to a pandas DataFrame"
        ) from None


def arrow_frame(table: Any) -> pd.DataFrame:
    """Return a pyarrow table's columns with their own types.

    Raises
    ------
    DataError
        If there is a cell or a type that pandas cannot hold.
    """
    try:
        # Integers with nulls would turn into floats, and a level "1" into "1.0". Python's dates end with the
        # year 9999, and a later one in one row would stop the run; as numbers of days they are of a type that
        # the column's check refuses, whatever they say.
        frame: pd.DataFrame = table.to_pandas(
            ignore_metadata=True, integer_object_nulls=True, date_as_object=False
        )
    except Exception:  # whose message may quote a cell
        raise DataError(
            "the table has an Arrow column that pandas cannot hold; give its columns plain types, such as "
            "float64 and string"
        ) from None
    return frame
