"""From what a curator hands over to private rows: a table, or rows encoded before. Private side."""

from dataclasses import dataclass

import numpy as np

from nadpvi.description import ModelDescription
from nadpvi.design import Design
from nadpvi.errors import ArgumentError, DataError, PrivacyError
from nadpvi.private.records import Records, check_storage, make_records
from nadpvi.tables import TableLike

__all__ = ["Reading", "read_records"]

# What storing numbers in single precision may move them by.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a run reads its table: what makes equal records of an equal table.

    Parameters
    ----------
    collapse : bool
        Whether identical rows are stored once, with their number.
    storage : {"float64", "float32"}
        How features are stored.
    """

    collapse: bool = False
    storage: str = "float64"

    def __post_init__(self) -> None:
        if not isinstance(self.collapse, bool):
            raise ArgumentError(f"collapse must be True or False (got {self.collapse!r}).")
        check_storage(self.storage)


def read_records(
    table: TableLike | Records, description: ModelDescription, *, reading: Reading, rng: np.random.Generator
) -> Records:
    """Return the private rows of a table, or those that were made before if they fit model and schema."""
    person, design = description.schema.person, description.design
    if not isinstance(table, Records):
        return make_records(
            table,
            design,
            person=person,
            counts=description.schema.counts,
            rng=rng,
            collapse=reading.collapse,
            storage=reading.storage,
        )
    if reading != Reading():
        raise ArgumentError("collapse and storage are for tables; records are as they were made.")
    if table.x.shape[1] != design.num_features:
        raise DataError(f"records must have {design.num_features} features, one a label of the design.")
    _check_encoding(table, design)
    if (person is None) != (table.unit_starts is None):
        raise DataError("records and schema must agree on whether there is a person column.")
    if table.unit_starts is not None and person is not None:
        most = int(np.diff(table.unit_starts).max())
        if most > person.max_rows:
            raise PrivacyError(f"records must hold at most {person.max_rows} rows of a person.")
    return table


def _check_features(records: Records, design: Design) -> None:
    """Raise unless each feature lies within its public range."""
    lowest, highest = (np.array(ends) for ends in design.feature_bounds)
    slack = _ROUNDING * np.maximum(1.0, np.maximum(np.abs(lowest), np.abs(highest)))
    if records.x.size == 0:
        return
    if (records.x.min(axis=0) < lowest - slack).any() or (records.x.max(axis=0) > highest + slack).any():
        raise DataError(
            "records must have features between the ends of their feature_range (0 and 1 unless the schema "
            "says otherwise), numbers scaled by their public bounds, and 1 for an intercept."
        )


def _check_encoding(records: Records, design: Design) -> None:
    """Raise unless values lie where the schema's encoding would have put them.

    Raises
    ------
    DataError
        If an outcome or a feature is out of range, or an outcome that counts or names a level is not whole.
    """
    _check_features(records, design)
    if design.outcome is None:
        return
    low, high = design.outcome_bounds
    if records.y.min() < low - _ROUNDING * abs(low) or records.y.max() > high + _ROUNDING * abs(high):
        raise DataError(
            f"records must have outcomes from {low:g} to {high:g}, as the schema encodes {design.outcome}."
        )
    if design.outcome_kind != "real" and not (records.y == np.rint(records.y)).all():
        raise DataError(
            f"records must have whole numbers as outcomes, as the schema encodes {design.outcome}."
        )
