"""The kinds of column whose cells are levels, and the rules each must obey."""

from dataclasses import dataclass
from typing import ClassVar

from nadpvi.column_rules import check_choice, check_name, column_error, shown, texts

__all__ = ["BinaryColumn", "CategoricalColumn", "LevelColumn", "OrderedColumn"]


def _check_levels(column: "BinaryColumn | CategoricalColumn | OrderedColumn") -> None:
    """Normalise and check what all kinds of level column share."""
    name = column.name
    check_name(name)
    object.__setattr__(column, "levels", texts(name, "levels", column.levels))
    object.__setattr__(column, "missing_values", texts(name, "missing_values", column.missing_values))
    if len(column.levels) < 2:
        raise column_error(name, f"levels must list at least two levels (got {len(column.levels)})")
    for key, policy in (("missing", column.missing), ("unknown", column.unknown)):
        if policy not in ("refuse", "drop", *column.levels):
            raise column_error(
                name, f'{key} must be "refuse", "drop" or one of the levels (got {shown(policy)})'
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryColumn:
    """A column of two levels, coded 0 and 1: an outcome, or a predictor of one coefficient.

    Attributes
    ----------
    name : str
        The column's name in the table, compared exactly.
    levels : tuple of two str
        The negative (0) and the positive (1) level, compared exactly.
    unknown : "refuse", "drop" or a level
        What a cell outside `levels` does: stop, drop its row, or count as that level.
    missing : "refuse", "drop" or a level
        What a missing cell does: stop, drop its row, or count as that level.
    missing_values : tuple of str
        Texts that mean "missing"; one that is also a level counts as the level.

    Raises
    ------
    SchemaError
        If any of these rules is broken.
    """

    kind: ClassVar[str] = "binary"
    name: str
    levels: tuple[str, ...]
    unknown: str = "refuse"
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        _check_levels(self)
        if len(self.levels) != 2:
            raise column_error(
                self.name,
                'levels must be exactly two, [negative, positive]; for more use kind = "categorical"',
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoricalColumn:
    """A column of two or more declared levels, coded as one 0/1 column each.

    Attributes
    ----------
    name, unknown, missing, missing_values
        As for `BinaryColumn`.
    levels : tuple of str
        Every level that gets a coefficient, in order. None is left out as a reference: the prior
        identifies the model, and each level is treated alike.

    Raises
    ------
    SchemaError
        If any of these rules is broken.
    """

    kind: ClassVar[str] = "categorical"
    name: str
    levels: tuple[str, ...]
    unknown: str = "refuse"
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        _check_levels(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedColumn:
    """A column of two or more declared levels in order, from the lowest to the highest.

    Attributes
    ----------
    name, unknown, missing, missing_values
        As for `BinaryColumn`.
    levels : tuple of str
        Every level, the lowest first.
    coding : "steps" or "score"
        "steps": one 0/1 coefficient for each level but the lowest, 1 from that level up, so that it is the
        step from the level below; all levels may differ, and a prior says how much neighbours do. "score":
        one coefficient for the level's place, 0 for the lowest and 1 for the highest: equal steps.

    Raises
    ------
    SchemaError
        If any of these rules is broken.
    """

    kind: ClassVar[str] = "ordered"
    name: str
    levels: tuple[str, ...]
    coding: str = "steps"
    unknown: str = "refuse"
    missing: str = "refuse"
    missing_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        _check_levels(self)
        check_choice(self.name, "coding", self.coding, ("steps", "score"))


LevelColumn = BinaryColumn | CategoricalColumn | OrderedColumn
