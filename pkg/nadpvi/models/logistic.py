"""Bayesian logistic regression with independent normal priors on the coefficients."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from nadpvi.checks import check_positive
from nadpvi.encoding import Design, make_design
from nadpvi.errors import ArgumentError
from nadpvi.models.base import Parameter, RecordBatch
from nadpvi.schema import Schema

__all__ = ["LogisticRegression"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticRegression:
    """Logistic regression, ``y ~ Bernoulli(logit^-1(x' theta))``, ``theta_k ~ Normal(0, prior_sd)``.

    Parameters
    ----------
    outcome : str
        A binary column of the schema; its second level counts as 1.
    predictors : sequence of str, optional
        Columns to use; every other column of the schema when omitted.
    prior_sd : float
        Prior standard deviation of every coefficient, the intercept included; finite and positive.
    intercept : bool
        Whether a constant column is added.

    Examples
    --------
    >>> LogisticRegression(outcome="income", predictors=["age"]).predictors
    ('age',)
    """

    kind: ClassVar[str] = "logistic_regression"
    num_extras: ClassVar[int] = 0

    outcome: str
    predictors: tuple[str, ...] | None = None
    prior_sd: float = 1.0
    intercept: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.predictors, str):
            raise ArgumentError(f"predictors must be a list of column names (got {self.predictors!r}).")
        if self.predictors is not None:
            object.__setattr__(self, "predictors", tuple(self.predictors))
        object.__setattr__(self, "prior_sd", check_positive("prior_sd", self.prior_sd))

    def design(self, schema: Schema) -> Design:
        """Return the design matrix's public description.

        Raises
        ------
        SchemaError, ArgumentError
            If a column is not in the schema, or the outcome is not binary.
        """
        return make_design(schema, outcome=self.outcome, predictors=self.predictors, intercept=self.intercept)

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return one block, ``coefficients``, labelled by the design's columns."""
        return (Parameter(name="coefficients", dims=("coefficient",), coords=(design.labels,)),)

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return the coefficients' prior mean and standard deviation, each of shape (K,)."""
        num_params = len(design.labels)
        return np.zeros(num_params), np.full(num_params, self.prior_sd)

    def log_prior(self, theta: Array, design: Design) -> Array:
        """Return the log prior density, shape (..., K) -> (...)."""
        standardised = theta / self.prior_sd
        constant = math.log(self.prior_sd) + 0.5 * math.log(2.0 * math.pi)
        density: Array = anp.sum(-0.5 * standardised**2 - constant, axis=-1)
        return density

    def log_prior_gradient(self, theta: Array, design: Design) -> Array:
        """Return the gradient of `log_prior`, shape (..., K) -> (..., K)."""
        gradient: Array = -theta / self.prior_sd**2
        return gradient

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return log p(y_b | x_b, theta), shape (..., B, K) -> (..., B)."""
        linear_predictor = anp.sum(batch.x * theta, axis=-1)
        density: Array = batch.y * linear_predictor - anp.logaddexp(0.0, linear_predictor)
        return density

    def score(self, predictors: Array, y: Array) -> Array:
        """Return y - logit^-1(eta), in [-1, 1], for the one linear predictor: (1, ...) -> (1, ...)."""
        # The logistic function written with tanh, which NumPy vectorises: the same to 1e-16 absolute.
        residual: Array = np.tanh(0.5 * predictors)
        residual *= -0.5
        residual += y - 0.5
        return residual

    def gradient_bound(self, design: Design) -> float | None:
        """Return the largest norm of one record's gradient: |residual| <= 1 times the norm of x."""
        return design.feature_norm_bound

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return P(y = 1 | x, theta), theta (M, K) and x (N, F) -> (M, N)."""
        return np.asarray(expit(theta @ x.T))

    def simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return outcomes 0.0 or 1.0: theta (K,) or (..., B, K) and x (B, F) -> (B,) or (..., B).

        Examples
        --------
        >>> model = LogisticRegression(outcome="income")
        >>> model.simulate(np.array([50.0]), np.array([[1.0], [-1.0]]), rng=np.random.default_rng(0))
        array([1., 0.])
        """
        chance = expit((x * theta).sum(axis=-1))
        outcomes: Array = (rng.random(chance.shape) < chance).astype(np.float64)
        return outcomes

    def to_dict(self) -> dict[str, Any]:
        """Return the model's public settings as JSON types."""
        return {
            "kind": self.kind,
            "outcome": self.outcome,
            "predictors": None if self.predictors is None else list(self.predictors),
            "prior_sd": self.prior_sd,
            "intercept": self.intercept,
        }
