"""Small tables with a person column, read back by row number: shared by the tests of persons and of ids."""

import numpy as np
import pandas as pd

from nadpvi.encoding import make_design
from nadpvi.private.records import Records, make_records
from nadpvi.schema import Person, Schema

# The feature tells the row: x = row / 1000, exactly what `kept_rows` reads back.
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "row": {"kind": "real", "lower": 0, "upper": 1000, "missing": "drop"},
            "y": {"kind": "binary", "levels": ["no", "yes"], "missing": "drop"},
        },
        "person": {"column": "id", "max_rows": 2},
    }
)
DESIGN = make_design(SCHEMA, outcome="y", predictors=["row"], intercept=False)
CANARY = "canary-7f3a"


def table_of(ids: object) -> pd.DataFrame:
    ids = ids if isinstance(ids, pd.Series) else pd.Series(ids, dtype=object)
    rows = np.arange(len(ids), dtype=float)
    return pd.DataFrame({"row": rows, "y": ["no", "yes"] * (len(ids) // 2) + ["no"] * (len(ids) % 2)}).assign(
        id=ids
    )


def encode(table: object, *, max_rows: int = 1, seed: int = 0, **settings: object) -> Records:
    person = Person(column="id", max_rows=max_rows, **settings)
    return make_records(table, DESIGN, person=person, rng=np.random.default_rng(seed))


def kept_rows(records: Records) -> list[list[int]]:
    """The table's row numbers that each unit holds."""
    rows = np.rint(records.x[:, 0] * 1000).astype(int)
    return [part.tolist() for part in np.split(rows, records.unit_starts[1:-1])]


def groups_of(ids: object, **settings: object) -> list[list[int]]:
    """How rows are grouped by person, none left out for the bound's sake."""
    return kept_rows(encode(table_of(ids), max_rows=1000, **settings))
