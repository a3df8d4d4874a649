"""Which columns a model reads and how each is coded: the public half of the encoding."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nadpvi.columns import (
    BinaryColumn,
    CategoricalColumn,
    Column,
    CountColumn,
    OrderedColumn,
    RealColumn,
    listed,
    quoted,
)
from nadpvi.errors import ArgumentError, SchemaError
from nadpvi.factors import ColumnFactor
from nadpvi.formula import parse_formula
from nadpvi.schema import Schema
from nadpvi.terms import Term, outer_product_norm, term_from_list

__all__ = ["Design", "make_design"]

# What an outcome of each kind may be declared as, and the remedy where it is not.
_OUTCOMES: dict[str, tuple[tuple[type[Column], ...], str]] = {
    "binary": ((BinaryColumn,), 'declare kind = "binary" and levels = [negative, positive]'),
    "categorical": (
        (CategoricalColumn, BinaryColumn, OrderedColumn),
        'declare kind = "categorical" and levels = [first, second, ...]',
    ),
    "real": ((RealColumn,), 'declare kind = "real" with public lower and upper'),
    "count": ((CountColumn,), 'declare kind = "count" with a public upper'),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Which columns predict which outcome, and how each is coded. Public; F coefficients.

    Attributes
    ----------
    schema : Schema
        The columns in use: predictors, then outcome. A release need not describe the others.
    outcome : str or None
        The column that y holds; None for a model whose data are the features, where y is zero.
    predictors : tuple of str
        In the order of their coefficients; with `terms`, the columns that these use.
    intercept : bool
        Whether the first coefficient is a constant's.
    outcome_kind : "binary", "categorical", "real", "count" or None
        What y holds: 0 or 1; the level's place, from 0; the clamped and transformed number; the clamped
        count. A binary or ordered column may serve as a categorical outcome. None without an outcome.
    terms : tuple of Term, or None
        What a formula makes of the columns; None where each predictor is a term by itself, as it is coded.

    Raises
    ------
    ArgumentError
        If a name is unknown or given twice.
    SchemaError
        If the outcome is of another kind, two coefficients share a label, or no column is used.
    """

    schema: Schema
    outcome: str | None
    predictors: tuple[str, ...]
    intercept: bool = True
    outcome_kind: str | None = "binary"
    terms: tuple[Term, ...] | None = None

    def __post_init__(self) -> None:
        predictors = _name_tuple(self.predictors)
        if self.terms is not None:
            used_by_terms = tuple(dict.fromkeys(name for term in self.terms for name in term.columns))
            if predictors != used_by_terms:
                raise ArgumentError("predictors must be the columns that the terms use, in that order")
            # One description of one encoding: a formula of columns alone is a list of predictors.
            is_plain = all(term.main_effect for term in self.terms) and len(self.terms) == len(predictors)
            object.__setattr__(self, "terms", None if is_plain else tuple(self.terms))
        object.__setattr__(self, "predictors", predictors)
        outcomes = () if self.outcome is None else (self.outcome,)
        _check_names(self.schema, outcomes, predictors)
        if not isinstance(self.intercept, bool):
            raise ArgumentError(f"intercept must be True or False (got {self.intercept!r})")
        if not (predictors or outcomes):
            raise SchemaError("a model needs an outcome or a predictor; it has neither")
        used = tuple(self.schema[name] for name in (*predictors, *outcomes))
        object.__setattr__(self, "schema", Schema(columns=used))
        for factor in (factor for term in self.terms or () for factor in term.factors):
            factor.check(self.schema[factor.column])
        if self.outcome is None:
            object.__setattr__(self, "outcome_kind", None)
        else:
            _check_outcome(self.schema[self.outcome], self.outcome_kind)
        self._check_labels()
        if not self._is_bounded():
            raise SchemaError("a product of columns grows too large; choose a smaller feature_range")

    def _check_labels(self) -> None:
        """Refuse coefficients of one name, and say whether a term or a column has to go."""
        columns = self._columns()
        for label, count in Counter(self.labels).items():
            if count == 1:
                continue
            users = [term.columns for term in self.all_terms if label in term.labels(columns)]
            if len(users) == count and len(set(users)) == 1:
                remedy = "leave all but one of these terms out: they say the same on other scales"
            else:
                remedy = "rename a column" + (" or leave the intercept out" if label == "Intercept" else "")
            raise SchemaError(f"two coefficients would be called {quoted(label)}; {remedy}")

    def _is_bounded(self) -> bool:
        """Return whether features, and the products of two that a curvature is made of, are finite."""
        try:
            ends = (end for pair in self.feature_bounds for end in pair)
            return all(map(math.isfinite, (self.outer_product_bound, *ends)))
        except OverflowError:
            return False

    @property
    def all_terms(self) -> tuple[Term, ...]:
        """What the coefficients after the intercept's belong to, in order."""
        if self.terms is not None:
            return self.terms
        return tuple(Term(factors=(ColumnFactor(column=name),)) for name in self.predictors)

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The labels of each term's coefficients, by the term's name: a column's, or "education:sex"."""
        columns = self._columns()
        return {term.name: term.labels(columns) for term in self.all_terms}

    @property
    def labels(self) -> tuple[str, ...]:
        """The F coefficients' labels: "Intercept", "age", "workclass[Private]", "bs(age)[1]"."""
        columns = self._columns()
        first = ("Intercept",) if self.intercept else ()
        return first + tuple(label for term in self.all_terms for label in term.labels(columns))

    @property
    def num_features(self) -> int:
        """F, the number of coefficients."""
        return len(self.labels)

    @property
    def feature_norm_bound(self) -> float:
        """A bound on the Euclidean norm of any row: of a categorical predictor one entry is 1, all others 0.

        Some row reaches it, unless terms share a column.
        """
        return math.sqrt(self._largest_power_sum(2))

    @property
    def outer_product_bound(self) -> float:
        """A bound on the norm of any row's outer product with itself: its upper triangle and diagonal.

        Rows are largest where every number is at the end that is farther from 0.
        """
        return outer_product_norm(self._largest_power_sum(2), self._largest_power_sum(4))

    def _largest_power_sum(self, power: int) -> float:
        """Return a bound on the sum of |x_j|^power of any row."""
        columns = self._columns()
        return int(self.intercept) + sum(term.power_sum(columns, power) for term in self.all_terms)

    @property
    def feature_bounds(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The least and the largest value of each of the F features."""
        columns = self._columns()
        pairs = [(1.0, 1.0)] if self.intercept else []
        for term in self.all_terms:
            pairs += term.bounds(columns)
        return tuple(low for low, _ in pairs), tuple(high for _, high in pairs)

    @property
    def outcome_levels(self) -> tuple[str, ...]:
        """The levels of a binary or categorical outcome, in the order of their codes 0, 1, ..."""
        column = self._outcome_column()
        if isinstance(column, RealColumn | CountColumn):
            raise SchemaError(f"outcome {quoted(column.name)} is a number and has no levels")
        return column.levels

    @property
    def outcome_bounds(self) -> tuple[float, float]:
        """The least and the largest y: the bounds of a number after its transform, else of the codes."""
        column = self._outcome_column()
        if isinstance(column, RealColumn | CountColumn):
            return column.bounds
        return 0.0, len(column.levels) - 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the design as JSON types; `from_dict` gives an equal design back."""
        return {
            "schema": self.schema.to_dict(),
            "outcome": self.outcome,
            "predictors": list(self.predictors),
            "intercept": self.intercept,
            "outcome_kind": self.outcome_kind,
            **({} if self.terms is None else {"terms": [term.to_list() for term in self.terms]}),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Design":
        """Return the design that `to_dict` described."""
        known = ("schema", "outcome", "predictors", "intercept", "outcome_kind")
        if not isinstance(content, Mapping) or set(content) - {"terms"} != set(known):
            raise SchemaError(f"a design holds exactly {listed(known)}, and perhaps terms")
        terms = {"terms": tuple(map(term_from_list, content["terms"]))} if "terms" in content else {}
        return cls(**{**content, **terms, "schema": Schema.from_dict(content["schema"])})

    def _columns(self) -> dict[str, Column]:
        """Return the columns by name."""
        return {column.name: column for column in self.schema.columns}

    def _outcome_column(self) -> Column:
        """Return the outcome's column, or raise where there is none."""
        if self.outcome is None:
            raise SchemaError("this model has no outcome: its data are the predictors")
        return self.schema[self.outcome]


def make_design(
    schema: Schema,
    *,
    outcome: str | None,
    predictors: Sequence[str] | None = None,
    intercept: bool = True,
    outcome_kind: str = "binary",
    formula: str | None = None,
    allow_no_features: bool = False,
) -> Design:
    """Return the design that codes `predictors` (by default every column but the outcome), or a formula.

    A real or count column becomes one feature in its `feature_range`, a binary one a 0/1 feature labelled by
    its positive level, a categorical one a 0/1 feature for each of its levels, an ordered one a 0/1 feature
    for each step between levels, or one feature for the level's place.

    Parameters
    ----------
    schema : Schema
    outcome, predictors, intercept, outcome_kind
        As for `Design`.
    formula : str, optional
        Instead of `predictors` and `intercept`: see `nadpvi.formula.parse_formula`.
    allow_no_features : bool
        Whether the model does without predictors and intercept: x then has shape (B, 0).

    Raises
    ------
    ArgumentError, SchemaError
        As for `Design`, and if there is no coefficient where the model needs one.

    Examples
    --------
    >>> schema = Schema.from_dict({"columns": {
    ...     "age": {"kind": "real", "lower": 0, "upper": 100},
    ...     "sex": {"kind": "binary", "levels": ["Female", "Male"]},
    ...     "well": {"kind": "binary", "levels": ["no", "yes"]}}})
    >>> make_design(schema, outcome="well").labels
    ('Intercept', 'age', 'sex[Male]')
    >>> make_design(schema, outcome="age", outcome_kind="real").outcome_bounds
    (0.0, 100.0)
    """
    terms = None
    if formula is not None:
        terms, intercept = parse_formula(formula, schema)
        predictors = tuple(dict.fromkeys(name for term in terms for name in term.columns))
    elif predictors is None:
        predictors = tuple(name for name in schema.names if name != outcome)
    design = Design(
        schema=schema,
        outcome=outcome,
        predictors=_name_tuple(predictors),
        intercept=intercept,
        outcome_kind=outcome_kind,
        terms=terms,
    )
    if not (allow_no_features or design.predictors or design.intercept):
        raise SchemaError("a model needs a predictor or an intercept; it has neither")
    return design


def _name_tuple(predictors: object) -> tuple[str, ...]:
    """Return a list of names as a tuple, or raise."""
    if not isinstance(predictors, list | tuple) or not all(isinstance(name, str) for name in predictors):
        raise ArgumentError('predictors must be a list of column names, such as ["age", "sex"]')
    return tuple(predictors)


def _check_names(schema: Schema, outcomes: tuple[str, ...], predictors: tuple[str, ...]) -> None:
    """Raise unless each name is known and used once."""
    named = [("outcome", name) for name in outcomes] + [("predictor", name) for name in predictors]
    for role, name in named:
        if name not in schema:
            raise ArgumentError(
                f"{role} {quoted(name)} is not in the schema; it knows {listed(schema.names)}"
            )
    for name, count in Counter((*outcomes, *predictors)).items():
        if count > 1:
            raise ArgumentError(
                f"column {quoted(name)} is named twice among outcome and predictors; name it once"
            )


def _check_outcome(column: Column, outcome_kind: object) -> None:
    """Raise unless the outcome's column is declared as what the model needs."""
    if not isinstance(outcome_kind, str) or outcome_kind not in _OUTCOMES:
        raise ArgumentError(f"outcome_kind must be one of {listed(_OUTCOMES)} (got {outcome_kind!r})")
    kinds, remedy = _OUTCOMES[outcome_kind]
    if not isinstance(column, kinds):
        raise SchemaError(f"outcome {quoted(column.name)} must be a {outcome_kind} column; {remedy}")
