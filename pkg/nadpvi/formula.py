"""Formulas: ``income ~ age + education * sex + bs(age, knots=[30, 45, 60])``, read without running anything.

formulaic parses the operators; nothing of it that evaluates is ever called. Names are looked up in the schema
before formulaic sees the text, so that a column wins over whatever else has its name. What is left are calls
of a few functions with constants written out, read as syntax and translated one by one: all of them work row
by row, and whatever they need to know is in the schema or in the formula.
"""

import ast
import re
from itertools import pairwise
from typing import Any, NamedTuple

from nadpvi.columns import listed, quoted
from nadpvi.errors import ArgumentError
from nadpvi.factors import ColumnFactor
from nadpvi.formula_calls import factor_from_call, formula_error
from nadpvi.schema import Schema
from nadpvi.terms import AnyFactor, Term

__all__ = ["ParsedFormula", "formula_outcome", "parse_formula"]

_MOST_CHARACTERS = 50_000
_MOST_TERMS = 10_000
_MOST_EXPONENT = 99
# A name in backticks, a text in quotes, a word with R's dots, or any other character.
_PIECE = re.compile(r"`([^`]*)`|([\w.]+)|(.)", re.DOTALL)
_NUMBER = re.compile(r"[0-9.]+(?:e[0-9]+)?", re.ASCII | re.IGNORECASE)


class ParsedFormula(NamedTuple):
    """The right side of a formula: its terms, main effects first, and whether there is an intercept."""

    terms: tuple[Term, ...]
    intercept: bool


def formula_outcome(formula: str) -> str:
    """Return the column on a formula's left side.

    Raises
    ------
    ArgumentError
        If the formula is no text with one ``~``, or its left side is more than a column's name.

    Examples
    --------
    >>> formula_outcome("income ~ age"), formula_outcome("`weight in kg` ~ 1")
    ('income', 'weight in kg')
    """
    left, _ = _sides(formula)
    name = left[1:-1] if left[:1] == left[-1:] == "`" and left.count("`") == 2 else left
    if not name or (name == left and not re.fullmatch(r"[\w.]+", name)):
        raise formula_error(
            "its left side must be one column's name, in backticks if it has blanks or signs; a transform of "
            "the outcome belongs into the schema"
        )
    return name


def parse_formula(formula: str, schema: Schema) -> ParsedFormula:
    """Return the terms of a formula's right side.

    Parameters
    ----------
    formula : str
        ``outcome ~ terms``. Terms are joined by ``+``, interactions by ``:`` or ``*``; ``- 1`` or ``+ 0``
        leaves the intercept out, ``.`` stands for all columns but the outcome.
    schema : Schema
        Its columns are the only names; ones with blanks or signs are written in backticks.

    Raises
    ------
    ArgumentError
        If it cannot be read, or asks for anything else than row-wise functions of public constants.

    Examples
    --------
    >>> columns = {name: {"kind": "real", "lower": 0, "upper": 100} for name in ("y", "age", "log")}
    >>> parsed = parse_formula("y ~ age * log + bs(age, knots=[50])", Schema.from_dict({"columns": columns}))
    >>> [term.name for term in parsed.terms]
    ['age', 'log', 'bs(age)', 'age:log']
    """
    outcome = formula_outcome(formula)
    text, names = _with_placeholders(_sides(formula)[1], schema, outcome=outcome)
    terms, intercept = [], False
    for parts in _parsed(text, names):
        if parts == [("1", "literal")]:
            intercept = True
            continue
        factors = tuple(_factor(expression, method, names, schema) for expression, method in parts)
        terms.append(Term(factors=factors))
    for term in terms:
        if outcome in term.columns:
            raise formula_error(f"the outcome {quoted(outcome)} is on both sides; leave it out on the right")
    # Main effects first, then interactions of two, as formulas are read elsewhere.
    return ParsedFormula(tuple(sorted(terms, key=lambda term: len(term.factors))), intercept)


def _sides(formula: object) -> tuple[str, str]:
    """Return what is left and right of the one ``~`` outside of backticks."""
    if not isinstance(formula, str) or len(formula) > _MOST_CHARACTERS:
        raise formula_error(
            f'it must be a text such as "income ~ age", of at most {_MOST_CHARACTERS} characters'
        )
    if not all(character.isprintable() or character in "\n\t" for character in formula):
        raise formula_error("it holds an unprintable character; remove it")
    if formula.count("`") % 2:
        raise formula_error("a backtick is never closed; write `column name`")
    parts = [""]
    for name, word, sign in _PIECE.findall(formula):
        if sign == "~":
            parts.append("")
        else:
            parts[-1] += f"`{name}`" if not (word or sign) else word or sign
    if len(parts) != 2:
        raise formula_error('it must have one "~", with the outcome on its left: "income ~ age + sex"')
    return parts[0].strip(), parts[1].strip()


def _with_placeholders(text: str, schema: Schema, *, outcome: str) -> tuple[str, dict[str, str]]:
    """Return the text with each column's name replaced by a plain word, and what these words stand for."""
    prefix = "v"
    while prefix in text or any(prefix in name for name in schema.names):
        prefix += "_v"
    words = {name: f"{prefix}{place}_" for place, name in enumerate(schema.names)}
    pieces = _PIECE.findall(text)
    if any(not (first[2] or second[2]) for first, second in pairwise(pieces)):
        raise formula_error("two names stand side by side; put an operator between them, such as + or :")
    parts = []
    for place, (name, word, sign) in enumerate(pieces):
        if sign:
            if sign in "{}\"'":
                raise formula_error(
                    f"the sign {sign} has no place in it: it names columns and calls a few functions with "
                    "numbers, and nothing else; write awkward names in backticks"
                )
            parts.append(sign)
            continue
        follows = "".join(sign or "x" for _, _, sign in pieces[place + 1 :][:20]).lstrip()[:1]
        if not word:
            parts.append(words[_known(name, schema)])
        elif word == ".":
            others = [words[other] for other in schema.names if other != outcome]
            parts.append(f"({' + '.join(others) or '0'})")
        elif word in words and not _NUMBER.fullmatch(word) and follows not in ("(", "="):
            parts.append(words[word])
        else:
            parts.append(word)
    return "".join(parts), {word: name for name, word in words.items()}


def _known(name: str, schema: Schema) -> str:
    """Return a column's name, or raise unless the schema has it."""
    if name not in schema:
        raise formula_error(f"there is no column {quoted(name)}; the schema knows {listed(schema.names)}")
    return name


def _parsed(text: str, names: dict[str, str]) -> list[list[tuple[str, str]]]:
    """Return each term's factors as text and how formulaic would treat it: literal, lookup or python."""
    from formulaic.parser import DefaultFormulaParser

    parser = DefaultFormulaParser(feature_flags=DefaultFormulaParser.FeatureFlags.NONE)
    try:
        tree = parser.get_ast(text)
        if _num_terms(tree) > _MOST_TERMS:
            raise formula_error(f"it makes more than {_MOST_TERMS} terms; write fewer interactions")
        found = list(parser.get_terms(text))
    except ArgumentError:
        raise
    # Whatever a parser may raise on a text: it has read no record.
    except (Exception, RecursionError) as error:
        lines = re.sub(r"\x1b\[[0-9;]*m|[^\x20-\x7e\xa0-\U0010ffff]", " ", f"{error}\n").split("\n")
        reason = " ".join(_restored(lines[0] or "it is no formula", names).split()) or type(error).__name__
        raise formula_error(f"it cannot be read ({reason.rstrip('.')[:200]})") from None
    return [[(factor.expr, factor.eval_method.value) for factor in term.factors] for term in found]


def _num_terms(tree: Any) -> int:
    """Return a bound on how many terms a parsed formula makes, before they are made."""
    sizes: dict[int, int] = {}
    todo = [tree]
    while todo:
        node = todo[-1]
        operands = list(getattr(node, "args", ()))
        waiting = [operand for operand in operands if id(operand) not in sizes]
        if waiting:
            todo.extend(waiting)
            continue
        todo.pop()
        sizes[id(node)] = _size(node, [sizes[id(operand)] for operand in operands])
    return sizes[id(tree)]


def _size(node: Any, operands: list[int]) -> int:
    """Return a bound on how many terms one operator makes of its operands' terms, cut at a large number."""
    symbol = getattr(getattr(node, "operator", None), "symbol", None)
    if symbol in ("**", "^"):
        exponent = str(getattr(node.args[1], "token", ""))
        # A parser makes a list of so many operands, however few terms come of it.
        if exponent.isdecimal() and int(exponent[:4]) > _MOST_EXPONENT:
            raise formula_error(f"an exponent of terms is at most {_MOST_EXPONENT}; powers are I(age**2)")
        size = operands[0] ** min(int(exponent), 40) if exponent.isdecimal() else 1
    elif symbol in ("*", "/", "in", ":"):
        size = (operands[0] + 1) * (operands[1] + 1)
    else:
        size = sum(operands) or 1
    return min(size, _MOST_TERMS + 1)


def _factor(expression: str, method: str, names: dict[str, str], schema: Schema) -> AnyFactor:
    """Return what one factor of a term means, or raise."""
    if method == "literal":
        raise formula_error(f"the number {expression} stands where a column should; write 1 or 0 alone")
    if expression in names:
        return ColumnFactor(column=names[expression])
    if method == "lookup":
        raise formula_error(
            f"there is no column {quoted(_restored(expression, names))}; the schema knows "
            f"{listed(schema.names)}, and names with blanks or signs are written in backticks"
        )
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise formula_error(f"{quoted(_restored(expression, names))} cannot be read") from None
    return factor_from_call(tree, text=_restored(expression, names), names=names, schema=schema)


def _restored(text: str, names: dict[str, str]) -> str:
    """Return a text with the columns' own names."""
    for word, name in names.items():
        text = text.replace(word, name)
    return text
