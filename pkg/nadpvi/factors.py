"""What a design makes of one column: a factor, row by row, with public bounds.

What becomes of a cell depends on that cell and on constants that are written down: the schema's bounds and
levels, and the knots and powers of a formula. A factor's least and largest values follow from these alone.

Every factor has a `kind`, its `column` and a `name`. Given the column's description it has `check`, the
`labels` of its W features, their `bounds`, `power_sum` (a bound on the sum of |x_j|^p over the features of a
cell) and `features`, from raw numbers or level indices (N,), all of them usable, to (N, W).
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.columns import BinaryColumn, Column, CountColumn, OrderedColumn, RealColumn, listed, quoted
from nadpvi.errors import ArgumentError

__all__ = [
    "ColumnFactor",
    "CurveFactor",
    "MOST_POWER",
    "NUMBER_FUNCTIONS",
    "SplineFactor",
    "column_labels",
    "is_number",
]

FloatArray = NDArray[np.float64]

# Increasing functions of a number in its own unit, and the greatest lower bound that each cannot have.
NUMBER_FUNCTIONS: dict[str, tuple[Callable[[FloatArray], FloatArray], float, bool]] = {
    "log": (np.log, 0.0, False),
    "log1p": (np.log1p, -1.0, False),
    "sqrt": (np.sqrt, 0.0, True),
}
_MOST_KNOTS, _MOST_DEGREE = 100, 5
MOST_POWER = 10
_LEAST_GAP = 1e-9  # between knots, as a part of the range: what is closer drowns in rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFactor:
    """A column as the schema codes it: a number in its `feature_range`, levels as 0/1."""

    kind: ClassVar[str] = "column"
    column: str

    @property
    def name(self) -> str:
        """The column's own."""
        return self.column

    def check(self, column: Column) -> None:
        """Accept every column."""

    def labels(self, column: Column) -> tuple[str, ...]:
        """Return the column's labels."""
        return column_labels(column)

    def bounds(self, column: Column) -> tuple[tuple[float, float], ...]:
        """Return the `feature_range` of a number; 0 and 1 for levels."""
        if isinstance(column, RealColumn | CountColumn):
            return (column.feature_range,)
        return ((0.0, 1.0),) * len(column_labels(column))

    def power_sum(self, column: Column, power: int) -> float:
        """Return what the farther end of a number gives; of levels one entry is 1, of steps all may be."""
        if isinstance(column, RealColumn | CountColumn):
            return _power_of_bounds(column.feature_range, power)
        return float(len(column_labels(column))) if isinstance(column, OrderedColumn) else 1.0

    def features(self, column: Column, values: FloatArray) -> FloatArray:
        """Return a scaled number, or one 0/1 column a coefficient."""
        if isinstance(column, RealColumn | CountColumn):
            return column.scale(values)[:, None]
        if isinstance(column, BinaryColumn):
            return values[:, None]
        if isinstance(column, OrderedColumn):
            places = np.arange(1.0, len(column.levels))
            if column.coding == "score":
                return np.asarray(values / places[-1])[:, None]
            return np.asarray(values[:, None] >= places, dtype=np.float64)
        one_hot = np.zeros((len(values), len(column.levels)))
        one_hot[np.arange(len(values)), values.astype(np.intp)] = 1.0
        return one_hot


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveFactor:
    """A function of a number, scaled between its public bounds, and whole powers of that.

    Attributes
    ----------
    column : str
        A real or count column.
    function : "log", "log1p", "sqrt" or None
        Applied to the number in its own unit, clamped to the column's bounds; a transform of the schema is
        not applied then. None: the column as the schema codes it.
    span : pair of float or None
        Where the bounds are mapped to, low < high; the column's `feature_range` when None.
    powers : tuple of int
        Powers of the scaled number, one feature each.
    is_series : bool
        Whether the features are numbered in their labels, as those of ``poly``.
    """

    kind: ClassVar[str] = "curve"
    column: str
    function: str | None = None
    span: tuple[float, float] | None = None
    powers: tuple[int, ...] = (1,)
    is_series: bool = False

    def __post_init__(self) -> None:
        if self.span is not None:
            object.__setattr__(self, "span", tuple(self.span))
        object.__setattr__(self, "powers", tuple(self.powers))
        if self.function is not None and self.function not in NUMBER_FUNCTIONS:
            raise ArgumentError(f"a curve's function must be one of {listed(NUMBER_FUNCTIONS)}")
        if not self.powers or any(power not in range(1, MOST_POWER + 1) for power in self.powers):
            raise ArgumentError(f"powers must be whole numbers from 1 to {MOST_POWER}")

    @property
    def name(self) -> str:
        """What a formula says: "log(age)", "I(age**2)", "poly(age)"."""
        inner = self.column if self.function is None else f"{self.function}({self.column})"
        inner = inner if self.span is None else f"scaled({inner})"
        if self.is_series:
            return f"poly({inner})"
        return inner if self.powers == (1,) else f"I({inner}**{self.powers[0]})"

    def check(self, column: Column) -> None:
        """Raise unless the column is a number on which the function is defined."""
        number = _number(column, self.name)
        if self.function is not None:
            _, least, is_allowed = NUMBER_FUNCTIONS[self.function]
            if number.lower < least or (number.lower == least and not is_allowed):
                raise ArgumentError(
                    f"{self.function}({self.column}) needs a lower bound "
                    f"{'of at least' if is_allowed else 'above'} {least:g} in the schema (it is "
                    f"{number.lower:g}); raise it or use another function"
                )
            low, high = NUMBER_FUNCTIONS[self.function][0](
                np.array([number.lower, number.upper], dtype=float)
            )
            if not 0.0 < high - low < np.inf:
                raise ArgumentError(
                    f"{self.function}({self.column}) has one value at both bounds of the schema; choose "
                    "bounds that are farther apart"
                )
        if not all(np.isfinite(end) for pair in self.bounds(column) for end in pair):
            raise ArgumentError(f"{self.name} grows too large between the column's bounds; scale it")

    def labels(self, column: Column) -> tuple[str, ...]:
        """Return the name, numbered where it is a series."""
        if self.is_series:
            return tuple(f"{self.name}[{power}]" for power in self.powers)
        return (self.name,)

    def bounds(self, column: Column) -> tuple[tuple[float, float], ...]:
        """Return each power's least and largest value."""
        low, high = self._span(column)
        pairs = []
        for power in self.powers:
            ends = sorted((_power(low, power), _power(high, power)))
            pairs.append((0.0 if power % 2 == 0 and low < 0.0 < high else ends[0], ends[1]))
        return tuple(pairs)

    def power_sum(self, column: Column, power: int) -> float:
        """Return what the farther end gives, where all powers are largest."""
        return sum(_power_of_bounds(pair, power) for pair in self.bounds(column))

    def features(self, column: Column, values: FloatArray) -> FloatArray:
        """Return the powers of the scaled number."""
        number = _number(column, self.name)
        low, high = self._span(column)
        if self.function is None:
            base = number.scale(values)
            if self.span is not None:
                start, stop = number.feature_range
                base = low + (high - low) * ((base - start) / (stop - start))
        else:
            apply = NUMBER_FUNCTIONS[self.function][0]
            ends = apply(np.array([number.lower, number.upper], dtype=np.float64))
            share = (apply(np.clip(values, number.lower, number.upper)) - ends[0]) / (ends[1] - ends[0])
            base = low + (high - low) * share
        base = np.clip(base, low, high)
        # By multiplication: a power function may round a number by its place in the array.
        powers = np.multiply.accumulate(np.tile(base[:, None], max(self.powers)), axis=1)
        return powers[:, [power - 1 for power in self.powers]]

    def _span(self, column: Column) -> tuple[float, float]:
        """Return where the bounds are mapped to."""
        return _number(column, self.name).feature_range if self.span is None else self.span


@dataclass(frozen=True, slots=True, kw_only=True)
class SplineFactor:
    """B-splines of a number in its own unit, with fixed knots between the column's public bounds.

    Attributes
    ----------
    column : str
        A real or count column; a transform of the schema is not applied.
    knots : tuple of float
        Inner knots, ascending, strictly between the bounds, which are the outer ones.
    degree : int
        3 for cubic splines.
    include_intercept : bool
        Whether the first spline, which is 1 at the lower bound, has a coefficient; without it the features
        do not add up to a constant.
    """

    kind: ClassVar[str] = "spline"
    column: str
    knots: tuple[float, ...]
    degree: int = 3
    include_intercept: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "knots", tuple(float(knot) for knot in self.knots))
        if not 1 <= self.degree <= _MOST_DEGREE:
            raise ArgumentError(f"{self.name}: degree must be from 1 to {_MOST_DEGREE} (got {self.degree})")
        if len(self.knots) > _MOST_KNOTS:
            raise ArgumentError(f"{self.name}: at most {_MOST_KNOTS} knots (got {len(self.knots)})")

    @property
    def name(self) -> str:
        """What a formula says, without the knots: "bs(age)"."""
        return f"bs({self.column})"

    def check(self, column: Column) -> None:
        """Raise unless the knots ascend between the column's bounds."""
        number = _number(column, self.name)
        ends = (number.lower, *self.knots, number.upper)
        gap = _LEAST_GAP * (number.upper - number.lower)
        if not all(second - first > gap for first, second in pairwise(ends)):
            raise ArgumentError(
                f"{self.name}: knots must ascend, strictly between the column's bounds "
                f"{number.lower:g} and {number.upper:g}"
            )

    def labels(self, column: Column) -> tuple[str, ...]:
        """Return the name with the splines' numbers from 1."""
        size = len(self.knots) + self.degree + int(self.include_intercept)
        return tuple(f"{self.name}[{place}]" for place in range(1, size + 1))

    def bounds(self, column: Column) -> tuple[tuple[float, float], ...]:
        """Return 0 and 1 for each."""
        return ((0.0, 1.0),) * len(self.labels(column))

    def power_sum(self, column: Column, power: int) -> float:
        """Return 1: B-splines are at least 0 and add up to 1, and their powers to no more."""
        return 1.0

    def features(self, column: Column, values: FloatArray) -> FloatArray:
        """Return the splines at each number."""
        from scipy.interpolate import BSpline

        number = _number(column, self.name)
        low, high = float(number.lower), float(number.upper)
        edge = self.degree + 1
        knots = np.array([low] * edge + list(self.knots) + [high] * edge)
        basis = BSpline(knots, np.eye(len(knots) - edge), self.degree)
        splines: FloatArray = basis(np.clip(values, low, high))
        return np.clip(splines[:, int(not self.include_intercept) :], 0.0, 1.0)


def is_number(column: Column) -> bool:
    """Return whether a column's cells are numbers rather than levels."""
    return isinstance(column, RealColumn | CountColumn)


def column_labels(column: Column) -> tuple[str, ...]:
    """Return the labels of one column's coefficients."""
    if isinstance(column, RealColumn | CountColumn):
        return (column.name,)
    if isinstance(column, OrderedColumn):
        steps = tuple(f"{column.name}[>={level}]" for level in column.levels[1:])
        return (column.name,) if column.coding == "score" else steps
    levels = column.levels[1:] if isinstance(column, BinaryColumn) else column.levels
    return tuple(f"{column.name}[{level}]" for level in levels)


def _number(column: Column, name: str) -> RealColumn | CountColumn:
    """Return a column that is a number, or raise."""
    if not isinstance(column, RealColumn | CountColumn):
        raise ArgumentError(
            f"{name} needs a number, and column {quoted(column.name)} is {column.kind}; use its name alone"
        )
    return column


def _power(value: float, power: int) -> float:
    """Return a whole power; infinite where floats end."""
    with np.errstate(over="ignore"):
        return float(np.float64(value) ** power)


def _power_of_bounds(pair: tuple[float, float], power: int) -> float:
    """Return the largest |x|^power between two ends."""
    return float(max(abs(pair[0]), abs(pair[1])) ** power)
