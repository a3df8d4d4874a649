"""Your own model: named parameters, a log prior and the log likelihood of one record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray

from nadpvi.design import Design
from nadpvi.errors import ArgumentError
from nadpvi.models.base import RecordBatch
from nadpvi.models.custom_functions import UserFunction, UserFunctions
from nadpvi.models.custom_prior import prior_moments_of
from nadpvi.models.custom_recorded import Blocks, RecordedModel
from nadpvi.models.parameters import log_jacobian

__all__ = ["CustomModel"]

Array = NDArray[np.float64]

# Draws times records times parameters of one block of predictions: 32 MB.
_BLOCK_VALUES = 4_000_000


@dataclass(frozen=True, init=False)
class CustomModel(RecordedModel):
    """A model written by its user in a few functions.

    Each function gets the parameters as ``p``, a mapping from name to constrained value with the axes of
    draws and records in front. It is written with ``autograd.numpy``, without assignment to array elements,
    and treats every record by itself; a dry run on made-up records checks that before a table is opened.

    Parameters
    ----------
    name : str
        What the model is called in messages and files.
    outcome : str or None
        The column that y holds; None for a model whose data are the features.
    parameters : list of Parameter, or function
        The named parameters; or a function that returns them for the labels of the F features, so that a
        block of coefficients can follow the schema.
    log_prior : function ``(p) -> (S,)``
        Log density of the constrained values, each of shape ``(S, *shape)``: one number a draw. The Jacobian
        of their transforms is added for you.
    log_likelihood : function ``(p, x, y) -> (S, B)``
        log p(y | x, p) of each record under each draw: values have shape ``(S, B, *shape)``, x is (B, F), and
        y (B,).
    predictors : sequence of str, optional
        Columns that x holds, coded as in every model: numbers scaled to [0, 1], levels as 0/1. None stands
        for every column but the outcome.
    intercept : bool
        Whether x starts with a column of ones.
    outcome_kind : "real", "count", "binary" or "categorical"
        What y is: a number clamped to the public bounds of its column, 0/1, or the level's place from 0.
    simulate : function ``(p, x, rng) -> (S, B)``, optional
        Draws outcomes; shapes as in `log_likelihood`. Planning needs it.
    predict : function ``(p, x) -> (S, B)``, optional
        E[y | x, p]; `Posterior.predict` needs it. (S, B, C) class probabilities for categorical outcomes.
    prior_mean, prior_sd : float or sequence of K floats, optional
        The prior's mean and standard deviation on the unconstrained scale, both or neither. When omitted,
        they are worked out from `log_prior`, its peak and curvature: see `nadpvi.models.custom_prior`.
    gradient_bound : float, optional
        A public bound on the norm of one record's gradient in unconstrained theta; the default clip norm.

    Raises
    ------
    ArgumentError
        If an argument is of the wrong type, or parameters do not fit together.

    Examples
    --------
    Survival times with a Weibull distribution:

    >>> import nadpvi as na
    >>> import autograd.numpy as anp
    >>> weibull = CustomModel(
    ...     name="weibull",
    ...     outcome="days",
    ...     parameters=[na.models.Parameter(name=name, support="positive") for name in ("shape", "scale")],
    ...     log_prior=lambda p: anp.log(p["shape"]) - p["shape"] - 0.01 * p["scale"],
    ...     log_likelihood=lambda p, x, y: (
    ...         anp.log(p["shape"] / y)
    ...         + p["shape"] * anp.log(y / p["scale"])
    ...         - (y / p["scale"]) ** p["shape"]
    ...     ),
    ...     simulate=lambda p, x, rng: p["scale"] * rng.weibull(p["shape"]),
    ... )
    >>> schema = na.Schema.from_dict({"columns": {"days": {"kind": "real", "lower": 1, "upper": 1000}}})
    >>> mean, sd = weibull.prior_moments(weibull.design(schema))
    >>> mean.round(3).tolist(), sd.round(3).tolist()  # of log(shape) and log(scale)
    ([0.423, 4.028], [0.803, 1.283])
    """

    functions: UserFunctions
    simulate: Callable[..., Array] | None = field(compare=False, repr=False)
    """Draws outcomes, as a `nadpvi.models.base.SimulatingModel` does; None if the user gave no function."""

    def __init__(
        self,
        *,
        name: str,
        outcome: str | None,
        parameters: Blocks,
        log_prior: UserFunction,
        log_likelihood: UserFunction,
        predictors: Sequence[str] | None = (),
        intercept: bool = False,
        outcome_kind: str = "real",
        simulate: UserFunction | None = None,
        predict: UserFunction | None = None,
        prior_mean: float | Sequence[float] | None = None,
        prior_sd: float | Sequence[float] | None = None,
        gradient_bound: float | None = None,
    ) -> None:
        settings: dict[str, Any] = {
            "name": name,
            "outcome": outcome,
            "blocks": parameters,
            "predictors": predictors,
            "intercept": intercept,
            "outcome_kind": outcome_kind,
            "prior_mean": prior_mean,
            "prior_sd": prior_sd,
            "bound": gradient_bound,
        }
        super().__init__(**settings)
        functions = UserFunctions(
            log_prior=log_prior, log_likelihood=log_likelihood, simulate=simulate, predict=predict
        )
        object.__setattr__(self, "functions", functions)
        object.__setattr__(self, "simulate", None if simulate is None else self._simulate)

    def prior_moments(self, design: Design) -> tuple[Array, Array]:
        """Return prior mean and standard deviation of unconstrained theta, each of shape (K,).

        Raises
        ------
        ModelError
            If they were not given and the prior is improper.
        """
        if self.prior_mean is not None:
            return super().prior_moments(design)
        return prior_moments_of(
            lambda theta: self.log_prior(theta, design),
            blocks=self.parameters(design),
            name=self.functions.name_of("log_prior"),
        )

    def log_prior(self, theta: Array, design: Design) -> Array:
        """Return the log prior density of unconstrained theta, its Jacobian included: (..., K) -> (...)."""
        blocks = self.parameters(design)
        flat = anp.reshape(theta, (-1, theta.shape[-1]))
        density = self.functions.prior_density(flat, blocks=blocks) + log_jacobian(blocks, flat)
        shaped: Array = anp.reshape(density, theta.shape[:-1])
        return shaped

    def log_likelihood(self, theta: Array, batch: RecordBatch) -> Array:
        """Return one log likelihood per record: theta (..., B, K) and B records -> (..., B)."""
        return self._per_record("log_likelihood", theta, records=(batch.x, batch.y))

    def predict_mean(self, theta: Array, x: Array) -> Array:
        """Return E[y | theta, x]: theta (M, K) and features (N, F) -> (M, N), or (M, N, C) for classes.

        Raises
        ------
        ArgumentError
            If the model has no `predict`.
        """
        if self.functions.predict is None:
            raise ArgumentError(f"model {self.name} cannot predict: make it with predict=.")
        rows = max(1, _BLOCK_VALUES // theta.size)
        starts = range(0, max(1, len(x)), rows)
        parts = [
            self._per_record("predict", theta[:, None], records=(x[start : start + rows],))
            for start in starts
        ]
        return np.concatenate(parts, axis=1, dtype=np.float64)

    def _simulate(self, theta: Array, x: Array, *, rng: np.random.Generator) -> Array:
        """Return outcomes: theta (K,) or (..., B, K) and x (B, F) -> (B,) or (..., B)."""
        theta = theta if theta.ndim > 1 else theta[None]
        return self._per_record("simulate", theta, records=(x,), rest=(rng,))

    def _per_record(
        self, role: str, theta: Array, *, records: tuple[Array, ...], rest: tuple[Any, ...] = ()
    ) -> Array:
        """Return what one of the functions gives for each record."""
        if callable(self.blocks):
            raise ArgumentError(f"the parameters of {self.name} depend on the schema: use settled(design).")
        return self.functions.per_record(role, theta, blocks=self.blocks, records=records, rest=rest)

    def settled(self, design: Design) -> "CustomModel":
        """Return the same model with its parameters and prior moments fixed for one design.

        Raises
        ------
        ModelError
            If the prior is improper.
        """
        mean, sd = self.prior_moments(design)
        return CustomModel(
            name=self.name,
            outcome=self.outcome,
            parameters=self.parameters(design),
            predictors=self.predictors,
            intercept=self.intercept,
            outcome_kind=self.outcome_kind,
            prior_mean=mean.tolist(),
            prior_sd=sd.tolist(),
            gradient_bound=self.bound,
            **self.functions.by_name(),
        )
