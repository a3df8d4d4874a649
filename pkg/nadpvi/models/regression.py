"""What all regressions share: their settings, the coefficients' normal priors, and theta's layout."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray

from nadpvi.design import Design, make_design
from nadpvi.errors import ArgumentError
from nadpvi.formula import formula_outcome
from nadpvi.models.coefficients import (
    PriorSetting,
    check_prior_setting,
    coefficient_values,
    normal_log_density,
    setting_to_json,
)
from nadpvi.models.parameters import Parameter, check_parameters
from nadpvi.schema import Schema

__all__ = ["Regression", "linear_predictor", "shared"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """A regression with independent normal priors on its coefficients; base of the model files.

    Theta is one block of F coefficients, or J of them, and then what else a model has. The methods here know
    the coefficients alone: a model with further parameters adds their part.

    Parameters
    ----------
    outcome : str
        The column to explain, of the model's `outcome_kind`; not needed with a formula.
    predictors : sequence of str, optional
        Columns to use; every other column of the schema when omitted.
    formula : str, optional
        Instead of outcome, predictors and intercept: ``"income ~ age + education * sex + bs(age, knots=[30,
        45])"``. See `nadpvi.formula.parse_formula`.
    prior_mean, prior_sd : float or mapping
        Prior mean and standard deviation (finite; the sd positive) of every coefficient, the intercept
        included; or a mapping that overrides 0 and 1 for some: ``{"age": 2, "job[nurse]": 0.5, "Intercept":
        10}``. A column's name covers all its levels, a formula's term (``"job:sex"``) all its coefficients, a
        label one of them.
    intercept : bool
        Whether a constant column is added; its label is "Intercept".
    """

    kind: ClassVar[str]
    outcome_kind: ClassVar[str]
    num_extras: ClassVar[int] = 0

    outcome: str = ""
    predictors: tuple[str, ...] | None = None
    prior_mean: PriorSetting = 0.0
    prior_sd: PriorSetting = 1.0
    intercept: bool = True
    formula: str | None = None

    def __post_init__(self) -> None:
        self._check_formula()
        if isinstance(self.predictors, str):
            raise ArgumentError(f"predictors must be a list of column names (got {self.predictors!r}).")
        if self.predictors is not None:
            object.__setattr__(self, "predictors", tuple(self.predictors))
        for name in ("prior_mean", "prior_sd"):
            checked = check_prior_setting(name, getattr(self, name), is_scale=name == "prior_sd")
            object.__setattr__(self, name, checked)

    def _check_formula(self) -> None:
        """Take the outcome from a formula; raise unless there is one source for each setting."""
        if self.formula is None:
            if not isinstance(self.outcome, str) or not self.outcome:
                raise ArgumentError(f"{type(self).__name__} needs an outcome, a column's name, or a formula.")
            return
        outcome = formula_outcome(self.formula)
        if self.outcome not in ("", outcome) or self.predictors is not None or self.intercept is not True:
            raise ArgumentError(
                "formula says outcome, predictors and intercept: leave those out (- 1 drops the intercept)."
            )
        object.__setattr__(self, "outcome", outcome)

    def design(self, schema: Schema) -> Design:
        """Return the design matrix's public description.

        Raises
        ------
        SchemaError, ArgumentError
            If a column is not in the schema, the outcome is of another kind, or a prior names an unknown
            coefficient.
        """
        design = make_design(
            schema,
            outcome=self.outcome,
            predictors=self.predictors,
            intercept=self.intercept,
            outcome_kind=self.outcome_kind,
            formula=self.formula,
        )
        self.coefficient_prior(design, num_coefficients=design.num_features)
        check_parameters(self.parameters(design))
        return design

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return one block, ``coefficients``, labelled by the design's columns."""
        return (Parameter(name="coefficients", dims=("coefficient",), coords=(design.labels,)),)

    def num_predictors(self, design: Design) -> int:
        """Return J, the number of linear predictors."""
        return 1

    def coefficient_prior(
        self, design: Design, *, num_coefficients: int
    ) -> tuple[float | Array, float | Array]:
        """Return prior mean and sd of the J F coefficients: numbers if all are alike, else shape (J F,)."""
        both: list[float | Array] = []
        for name in ("prior_mean", "prior_sd"):
            setting = getattr(self, name)
            if isinstance(setting, tuple):
                # What a mapping does not name keeps the model's own default.
                default: Any = self.__dataclass_fields__[name].default
                values = coefficient_values(design, setting, name=name, default=default)
                both.append(np.tile(values, num_coefficients // len(values)))
            else:
                both.append(setting)
        return both[0], both[1]

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return the coefficients' prior mean and standard deviation, each of shape (J F,)."""
        size = self.num_predictors(design) * design.num_features
        mean, sd = self.coefficient_prior(design, num_coefficients=size)
        return np.full(size, mean), np.full(size, sd)

    def draw_prior(self, design: Design, *, num_draws: int, rng: np.random.Generator) -> Array:
        """Return independent prior draws of the coefficients, shape (`num_draws`, J F)."""
        mean, sd = Regression.prior_moments(self, design)
        draws: Array = mean + sd * rng.standard_normal((num_draws, len(mean)))
        return draws

    def log_prior(self, theta: Array, design: Design) -> Array:
        """Return the log prior density of the coefficients, shape (..., J F) -> (...)."""
        mean, sd = self.coefficient_prior(design, num_coefficients=theta.shape[-1])
        return normal_log_density(theta, mean=mean, sd=sd)

    def log_prior_gradient(self, theta: Array, design: Design) -> Array:
        """Return the gradient of `log_prior`, shape (..., J F) -> (..., J F)."""
        mean, sd = self.coefficient_prior(design, num_coefficients=theta.shape[-1])
        gradient: Array = (mean - theta) / np.square(sd)
        return gradient

    def gradient_bound(self, design: Design) -> float | None:
        """Return None: a record's gradient grows without bound with the linear predictor or the outcome."""
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return the model's public settings as JSON types."""
        settings: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self)
        }
        settings["predictors"] = None if self.predictors is None else list(self.predictors)
        for name in ("prior_mean", "prior_sd"):
            settings[name] = setting_to_json(settings[name])
        if self.formula is None:
            # What versions without formulas wrote, and read.
            del settings["formula"]
        return {"kind": self.kind, **settings}


def linear_predictor(coefficients: Array, x: Array) -> Array:
    """Return each record's linear predictor: coefficients (..., B, F) or (F,) and x (B, F) -> (..., B)."""
    predictor: Array = anp.sum(x * coefficients, axis=-1)
    return predictor


def shared(extra: Array) -> Array:
    """Return a further parameter once a draw, shape (1, S), where (B, S) holds the same for all records.

    What depends on it alone is then not worked out for every record.
    """
    return extra[:1] if extra.ndim > 1 and bool((extra == extra[:1]).all()) else extra
