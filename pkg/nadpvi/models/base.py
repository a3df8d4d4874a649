"""What a model must say about itself: the protocol that every model file follows."""

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from nadpvi.encoding import Design
from nadpvi.models.parameters import Parameter
from nadpvi.schema import Schema

__all__ = [
    "CurvatureModel",
    "ExponentialFamily",
    "LinearModel",
    "Model",
    "Parameter",
    "RecordBatch",
    "SimulatingModel",
]

Array = NDArray[np.float64]


class RecordBatch(NamedTuple):
    """B encoded records: features `x` with shape (B, F) and outcome `y` with shape (B,). Private."""

    x: Array
    y: Array

    def __repr__(self) -> str:
        return "RecordBatch(private)"


@runtime_checkable
class Model(Protocol):
    """A Bayesian model of one record given theta, K unconstrained parameters.

    ``log_prior`` and ``log_likelihood`` are written with ``autograd.numpy`` and broadcast over leading
    axes, so that one reverse pass gives every record's gradient.
    """

    kind: ClassVar[str]

    def design(self, schema: Schema) -> Design:
        """Return which columns the model reads and how they are encoded."""
        ...

    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return the named parameter blocks; their unconstrained coordinates, in order, make up theta."""
        ...

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return prior mean and standard deviation of unconstrained theta, each of shape (K,)."""
        ...

    def log_prior(self, theta: Array, design: Design) -> Array:
        """Return the log prior density of unconstrained theta, its Jacobian included: (..., K) -> (...)."""
        ...

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return one log likelihood per record: theta (..., B, K) and B records -> (..., B)."""
        ...

    def gradient_bound(self, design: Design) -> float | None:
        """Return a public bound on the norm of one record's gradient in theta, or None."""
        ...

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return E[y | theta, x]: theta (M, K) and features (N, F) -> (M, N)."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the model's public settings as JSON types."""
        ...


@runtime_checkable
class LinearModel(Model, Protocol):
    """A model that sees the features only through J linear predictors, besides E parameters of its own.

    Theta is J blocks of F coefficients, one block a predictor, and then the E others. Gradients are matrix
    products; the general path must give the same numbers.
    """

    num_extras: ClassVar[int]

    def score(self, predictors: Array | Sequence[Array], y: Array) -> Array:
        """Return the derivatives of log p(y | predictors) in each predictor and each further parameter.

        Parameters
        ----------
        predictors : ndarray, shape (J + E, ...), or, with E > 0, sequence of J + E ndarray
            The linear predictors ``x @ coefficients``, whose trailing axes broadcast against `y`, and, after
            them, the further parameters, which broadcast against the linear predictors.
        y : ndarray
            Outcomes.

        Returns
        -------
        ndarray, shape (J + E, ...)
            A new array.
        """
        ...


@runtime_checkable
class CurvatureModel(LinearModel, Protocol):
    """A model that says what a record tells of its linear predictors, by the features alone."""

    def curvature_weights(self, mean: Array, sd: Array, *, extras: tuple[Array, Array]) -> Array:
        """Return the expected information of one record on its J linear predictors, which are normal.

        It is E[-d^2 log p / d predictors d predictors'] over the outcome, which the model draws, and over the
        predictors. A record's own outcome plays no part. Every operation is elementwise in the records.

        Parameters
        ----------
        mean, sd : ndarray, shape (J, B)
            Of each record's linear predictors, independent.
        extras : pair of ndarray, shape (E,)
            Means and sds of the further parameters, normal and independent.

        Returns
        -------
        ndarray, shape (J, J, B)
            Positive semi-definite, of a Frobenius norm of at most `curvature_weight_bound`.
        """
        ...

    def curvature_weight_bound(self, *, extras: tuple[Array, Array]) -> float | None:
        """Return the largest norm of any record's weights, > 0, or None where it has no bound."""
        ...


@runtime_checkable
class ExponentialFamily(Model, Protocol):
    """A model with log p(y | theta) = natural(theta) . statistics(y) - log_partition(theta) + h(y).

    A record's gradient is then linear in its P statistics, so that those of a batch are one matrix product.
    """

    def statistics(self, batch: RecordBatch, *, num_params: int) -> Array:
        """Return the sufficient statistics of each record, shape (B, P), where theta has K = `num_params`."""
        ...

    def natural_gradient(self, theta: Array) -> Array:
        """Return d/d theta of the P natural parameters and, last, of minus the log partition.

        Parameters
        ----------
        theta : ndarray, shape (..., K)

        Returns
        -------
        ndarray, shape (..., P + 1, K)
        """
        ...


@runtime_checkable
class SimulatingModel(Model, Protocol):
    """A model that can draw outcomes: what planning and simulation studies need, and a private run does not.

    ``simulate`` and ``log_likelihood`` must describe one distribution, normalised in y.
    """

    def simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return outcomes y ~ p(y | x, theta), one a record.

        Parameters
        ----------
        theta : ndarray, shape (K,) or (..., B, K)
            Unconstrained parameters; they broadcast against the records as in `log_likelihood`, so that
            (S, 1, K) gives S tables and (B, K) gives every record its own theta.
        x : ndarray, shape (B, F)
            Features.
        rng : numpy.random.Generator

        Returns
        -------
        ndarray, shape (B,) or (..., B)
        """
        ...
