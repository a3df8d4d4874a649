"""The functions that a formula may call: row by row, with constants that are written out.

A call comes as Python's syntax tree and is translated, never run. Whatever is not named here is refused, so
that nothing can look at other rows, learn from the data, or reach the machine.
"""

import ast
import math
from collections.abc import Callable, Mapping, Sequence

from nadpvi.columns import listed, quoted
from nadpvi.errors import ArgumentError
from nadpvi.factors import MOST_POWER, NUMBER_FUNCTIONS, ColumnFactor, CurveFactor, SplineFactor
from nadpvi.schema import Schema
from nadpvi.terms import AnyFactor

__all__ = ["factor_from_call", "formula_error"]

# What a formula elsewhere may call, and why it cannot be called here.
_LEARNS = (
    "looks at other rows, which would give them away outside of the guarantee; use the column itself, which "
    "is scaled by its public bounds, or bs with knots that are written out"
)
_OTHERS = dict.fromkeys(
    ("scale", "center", "standardize", "standardise", "rank", "cut", "qcut", "ns", "cs", "cc", "cr", "te",
     "hashed", "lag", "mean", "std", "min", "max", "sum"),
    _LEARNS,
)  # fmt: skip


def formula_error(problem: str) -> ArgumentError:
    """Return the error of a formula."""
    return ArgumentError(f"formula: {problem}")


def factor_from_call(tree: ast.expr, *, text: str, names: Mapping[str, str], schema: Schema) -> AnyFactor:
    """Return the factor that a call stands for.

    Parameters
    ----------
    tree : ast.expr
        The parsed expression.
    text : str
        What was written, for messages.
    names : mapping of str to str
        From the words that stand for columns to the columns' names.
    schema : Schema

    Raises
    ------
    ArgumentError
        If it is no call of a known function, or its arguments are not a column and constants.
    """
    call = _Call(tree, text=text, names=names, schema=schema)
    factor = call.factor()
    try:
        factor.check(schema[factor.column])
    except ArgumentError as error:
        raise formula_error(str(error)) from None
    return factor


class _Call:
    """One call of a formula, with what is needed to read it."""

    def __init__(self, tree: ast.expr, *, text: str, names: Mapping[str, str], schema: Schema) -> None:
        self._tree, self._text, self._names, self._schema = tree, text, names, schema

    def factor(self) -> AnyFactor:
        """Return what the call stands for."""
        tree = self._tree
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise formula_error(
                f"{quoted(self._text)} would run code; it has columns and calls of {_known_functions()}"
            )
        name = tree.func.id
        makers: dict[str, Callable[[ast.Call], AnyFactor]] = {
            "C": self._same, "I": self._power, "bs": self._spline, "poly": self._poly,
        }  # fmt: skip
        if name in makers:
            return makers[name](tree)
        return self._curve(tree)

    def _curve(self, tree: ast.expr) -> CurveFactor:
        """Return a number: a column, a function of one, or either scaled to other ends."""
        if isinstance(tree, ast.Name):
            return CurveFactor(column=self._column(tree))
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise self._error("wants a column's name, or a function of one, at its place for a number")
        name = tree.func.id
        if name in NUMBER_FUNCTIONS:
            (argument,), _ = self._arguments(tree, 1)
            return CurveFactor(column=self._column(argument), function=name)
        if name == "scaled":
            given, options = self._arguments(tree, 3, ("low", "high"), least=1)
            inner = self._curve(given[0])
            if inner.span is not None:
                raise self._error("scales twice; once is enough")
            ends = dict(zip(("low", "high"), (self._number(end) for end in given[1:]), strict=False))
            ends = {"low": 0.0, "high": 1.0} | ends | {key: self._number(end) for key, end in options.items()}
            if not 0.0 < ends["high"] - ends["low"] < math.inf:
                raise self._error("needs low below high")
            return CurveFactor(column=inner.column, function=inner.function, span=(ends["low"], ends["high"]))
        if name in self._names:
            raise formula_error(
                f"{quoted(self._names[name])} is a column, and no function that can be called"
            )
        why = _OTHERS.get(name, "is not among the functions that work row by row")
        raise formula_error(f"{name}() {why}; it knows {_known_functions()}")

    def _power(self, tree: ast.Call) -> CurveFactor:
        """Return ``I(x ** k)``."""
        (inner,), _ = self._arguments(tree, 1)
        if not isinstance(inner, ast.BinOp) or not isinstance(inner.op, ast.Pow):
            raise self._error(
                "may hold a whole power alone, such as I(age**2); products are written age:size"
            )
        base = self._curve(inner.left)
        power = self._whole(inner.right, least=2, most=MOST_POWER, what="the power")
        return CurveFactor(column=base.column, function=base.function, span=base.span, powers=(power,))

    def _poly(self, tree: ast.Call) -> CurveFactor:
        """Return ``poly(x, degree, raw=True)``."""
        given, options = self._arguments(tree, 2, ("degree", "raw"), least=1)
        raw = options.get("raw")
        if not (isinstance(raw, ast.Constant) and raw.value is True):
            raise self._error(f"{_LEARNS}; poly with raw=True has plain powers")
        if (len(given) == 2) == ("degree" in options):
            raise self._error("needs a degree, once: poly(age, 2, raw=True)")
        degree_given = given[1] if len(given) == 2 else options["degree"]
        degree = self._whole(degree_given, least=1, most=MOST_POWER, what="the degree")
        base = self._curve(given[0])
        return CurveFactor(
            column=base.column,
            function=base.function,
            span=base.span,
            powers=tuple(range(1, degree + 1)),
            is_series=True,
        )

    def _spline(self, tree: ast.Call) -> SplineFactor:
        """Return ``bs(x, knots=[...], degree=3, include_intercept=False)``."""
        (inner,), options = self._arguments(tree, 1, ("knots", "degree", "include_intercept", "df"))
        knots = options.get("knots")
        if "df" in options or not isinstance(knots, ast.List | ast.Tuple):
            raise self._error(
                "needs knots that are written out, as in bs(age, knots=[30, 45, 60]): "
                "knots found from the data would give rows away outside of the privacy guarantee"
            )
        whether = options.get("include_intercept", ast.Constant(value=False))
        if not isinstance(whether, ast.Constant) or not isinstance(whether.value, bool):
            raise self._error("needs include_intercept=True or False")
        column, degree = self._column(inner), options.get("degree")
        try:
            return SplineFactor(
                column=column,
                knots=tuple(self._number(knot) for knot in knots.elts),
                degree=3 if degree is None else self._whole(degree, least=1, most=5, what="the degree"),
                include_intercept=whether.value,
            )
        except ArgumentError as error:
            raise formula_error(str(error).removeprefix("formula: ")) from None

    def _same(self, tree: ast.Call) -> ColumnFactor:
        """Return ``C(x)``, which is x: the schema says that it has levels."""
        (inner,), _ = self._arguments(tree, 1)
        column = self._schema[self._column(inner)]
        if not hasattr(column, "levels"):
            raise self._error('makes no levels; declare kind = "categorical" and its levels in the schema')
        return ColumnFactor(column=column.name)

    def _arguments(
        self, tree: ast.Call, most: int, known: Sequence[str] = (), *, least: int | None = None
    ) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        """Return a call's arguments by position and by name, or raise if it has others."""
        options = {keyword.arg: keyword.value for keyword in tree.keywords}
        unknown = [self._names.get(key, key) if key else "**" for key in options if key not in known]
        if unknown or len(options) < len(tree.keywords):
            raise self._error(f"knows the settings {listed(known) or 'none'} (got {listed(unknown)})")
        if not (most if least is None else least) <= len(tree.args) <= most:
            raise self._error("has too many or too few arguments: a column first, settings by name")
        return list(tree.args), {str(key): value for key, value in options.items()}

    def _column(self, tree: ast.expr) -> str:
        """Return the column that a word stands for."""
        if isinstance(tree, ast.Name) and tree.id in self._names:
            return self._names[tree.id]
        if isinstance(tree, ast.Name):
            raise formula_error(
                f"there is no column {quoted(tree.id)}; the schema knows {listed(self._schema.names)}"
            )
        raise self._error("wants a column's name, and nothing else, at its first place")

    def _number(self, tree: ast.expr) -> float:
        """Return a number that is written out."""
        sign = 1.0
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
            sign, tree = (-1.0 if isinstance(tree.op, ast.USub) else 1.0), tree.operand
        if not isinstance(tree, ast.Constant) or type(tree.value) not in (int, float):
            raise self._error("wants numbers that are written out, such as 30 or -0.5")
        try:
            value = sign * float(tree.value)  # type: ignore[arg-type]  # an int or a float
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise self._error("wants finite numbers")
        return value

    def _whole(self, tree: ast.expr, *, least: int, most: int, what: str) -> int:
        """Return a whole number that is written out."""
        value = self._number(tree)
        if value != int(value) or not least <= value <= most:
            raise self._error(f"needs {what} as a whole number from {least} to {most}")
        return int(value)

    def _error(self, problem: str) -> ArgumentError:
        """Return an error that quotes the call."""
        return formula_error(f"{quoted(self._text)} {problem}")


def _known_functions() -> str:
    """Return the functions in the words of a message."""
    return ", ".join((*NUMBER_FUNCTIONS, "scaled", "I(x**2)", "poly(raw=True)", "bs(knots=[...])"))
