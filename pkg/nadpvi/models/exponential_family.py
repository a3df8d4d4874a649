"""What the conjugate models share: a likelihood that is linear in statistics, and a prior of the same form.

A model states its natural parameters, log partition, statistics and base measure once; the likelihood, the
prior with its Jacobian and the gradients follow. Records are outcomes alone: there are no predictors.
"""

import dataclasses
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, polygamma

from nadpvi.design import Design, make_design
from nadpvi.models.base import Parameter, RecordBatch
from nadpvi.schema import Schema

__all__ = ["ConjugateModel", "PriorRecords", "draw_log_gamma", "log_gamma_moments"]

Array = NDArray[np.float64]


class PriorRecords(NamedTuple):
    """A conjugate prior of unconstrained theta, Jacobian included, as records that were seen before.

    The log density is ``statistics . natural(theta) - weight * log_partition(theta) + tilt . theta -
    log_normaliser``. The posterior adds the records' statistics and their number to the first two.

    Parameters
    ----------
    statistics : ndarray, shape (P,)
        Sum of the imagined records' statistics.
    weight : float
        Their number, not always whole.
    log_normaliser : float
        Makes the density integrate to 1.
    tilt : ndarray, shape (K,), or 0.0
        What a log density linear in theta adds.
    """

    statistics: Array
    weight: float
    log_normaliser: float
    tilt: Array | float = 0.0


class ConjugateModel(ABC):
    """log p(y | theta) = natural(theta) . statistics(y) - log_partition(theta) + log_base(y), and its prior.

    Subclasses are frozen dataclasses whose fields are the outcome's name and the prior's settings.
    """

    __slots__ = ()

    kind: ClassVar[str]
    outcome_kind: ClassVar[str]

    outcome: str

    @abstractmethod
    def parameters(self, design: Design) -> tuple[Parameter, ...]:
        """Return the named parameter blocks."""

    @abstractmethod
    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return the exact prior mean and standard deviation of unconstrained theta, each of shape (K,)."""

    @abstractmethod
    def draw_prior(self, design: Design, *, num_draws: int, rng: np.random.Generator) -> Array:
        """Return independent prior draws of unconstrained theta, shape (`num_draws`, K)."""

    @abstractmethod
    def natural(self, theta: Array) -> Array:
        """Return the natural parameters, (..., K) -> (..., P), written with ``autograd.numpy``."""

    @abstractmethod
    def log_partition(self, theta: Array) -> Array:
        """Return the log partition, (..., K) -> (...), written with ``autograd.numpy``."""

    @abstractmethod
    def natural_gradient(self, theta: Array) -> Array:
        """Return d/d theta of the P natural parameters and of minus the log partition, (..., P + 1, K)."""

    @abstractmethod
    def sufficient(self, y: Array, *, num_params: int) -> Array:
        """Return the sufficient statistics of outcomes, (...) -> (..., P)."""

    @abstractmethod
    def log_base(self, y: Array) -> Array | float:
        """Return the part of the log likelihood that theta does not enter."""

    @abstractmethod
    def prior_records(self, num_params: int) -> PriorRecords:
        """Return the prior as records seen before, for K = `num_params`."""

    @abstractmethod
    def mean_outcome(self, theta: Array) -> Array:
        """Return E[y | theta], or the probability of each level: (M, K) -> (M,) or (M, C)."""

    @abstractmethod
    def draw_outcomes(self, theta: Array, *, rng: np.random.Generator) -> Array:
        """Return one outcome for each theta, (..., K) -> (...)."""

    @abstractmethod
    def outcome_quantile(self, theta: Array, share: Array) -> Array:
        """Return the outcome that so large a share of outcomes is at most, 0 < share < 1.

        Theta (..., K) and shares (...) broadcast against each other.
        """

    def design(self, schema: Schema) -> Design:
        """Return the design: the outcome's coding, and no features.

        Raises
        ------
        SchemaError, ArgumentError
            If the outcome is not in the schema, or its column is of another kind than the model needs.
        """
        design = make_design(
            schema,
            outcome=self.outcome,
            predictors=(),
            intercept=False,
            outcome_kind=self.outcome_kind,
            allow_no_features=True,
        )
        self.check_design(design)
        return design

    def check_design(self, design: Design) -> None:  # noqa: B027 (most models ask no more of a column)
        """Raise unless the outcome's levels or bounds suit the model."""

    def statistics(self, batch: RecordBatch, *, num_params: int) -> Array:
        """Return the sufficient statistics of each record, shape (B, P)."""
        return self.sufficient(batch.y, num_params=num_params)

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return log p(y_b | theta), normalised in y: (..., B, K) -> (..., B)."""
        statistics = self.sufficient(batch.y, num_params=theta.shape[-1])
        explained = anp.sum(self.natural(theta) * statistics, axis=-1)
        density: Array = explained - self.log_partition(theta) + self.log_base(batch.y)
        return density

    def log_prior(self, theta: Array, design: Design) -> Array:
        """Return the log prior density of unconstrained theta, its Jacobian included: (..., K) -> (...)."""
        prior = self.prior_records(theta.shape[-1])
        explained = anp.sum(self.natural(theta) * prior.statistics, axis=-1)
        tilted = anp.sum(theta * prior.tilt, axis=-1)
        density: Array = explained - prior.weight * self.log_partition(theta) + tilted - prior.log_normaliser
        return density

    def log_prior_gradient(self, theta: Array, design: Design) -> Array:
        """Return the gradient of `log_prior`, (..., K) -> (..., K)."""
        prior = self.prior_records(theta.shape[-1])
        natural = self.natural_gradient(theta)
        gradient: Array = prior.statistics @ natural[..., :-1, :] + prior.weight * natural[..., -1, :]
        gradient += prior.tilt
        return gradient

    def gradient_bound(self, design: Design) -> float | None:
        """Return a bound on the norm of one record's gradient in theta; None, as most models have none."""
        return None

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return E[y | theta], or class probabilities: theta (M, K), x (N, 0) -> (M, N) or (M, N, C)."""
        return np.repeat(self.mean_outcome(theta)[:, None], len(x), axis=1)

    def simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return outcomes y ~ p(y | theta): theta (K,) or (..., B, K) and x (B, 0) -> (B,) or (..., B)."""
        shape = np.broadcast_shapes(theta.shape[:-1], x.shape[:-1])
        return self.draw_outcomes(np.broadcast_to(theta, (*shape, theta.shape[-1])), rng=rng)

    def to_dict(self) -> dict[str, Any]:
        """Return the model's public settings as JSON types."""
        content: dict[str, Any] = {"kind": self.kind}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            content[field.name] = list(value) if isinstance(value, tuple) else value
        return content


def log_gamma_moments(shape: float | Array, rate: float = 1.0) -> tuple[Array, Array]:
    """Return mean and standard deviation of the logarithm of a Gamma(`shape`, `rate`) variable.

    Examples
    --------
    >>> mean, sd = log_gamma_moments(1.0)
    >>> round(float(mean), 4), round(float(sd), 4)
    (-0.5772, 1.2825)
    """
    return digamma(shape) - np.log(rate), np.sqrt(polygamma(1, shape))


def draw_log_gamma(shape: float | Array, *, size: int | tuple[int, ...], rng: np.random.Generator) -> Array:
    """Return the logarithms of Gamma(`shape`, 1) variables.

    Small shapes give variables below the smallest float, whose logarithms are ordinary numbers. A variable of
    shape + 1 times U^(1/shape), U uniform, has the distribution asked for: this is its logarithm.
    """
    larger = np.log(rng.standard_gamma(np.asarray(shape) + 1.0, size=size))
    logarithms: Array = larger - rng.standard_exponential(size) / shape
    return logarithms
