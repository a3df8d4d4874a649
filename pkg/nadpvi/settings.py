"""Public settings of a run, resolved to numbers for one model and one noise level."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nadpvi.columns import listed, quoted
from nadpvi.config import DEFAULT_INITIAL_U, DPVIConfig
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError

__all__ = ["Settings", "make_settings", "resolve_clip_norm"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Settings:
    """Public settings of a run, resolved to numbers.

    Parameters
    ----------
    description : ModelDescription
        Model, schema and guide.
    num_steps, sampling_rate, clip_norm, monte_carlo_samples
        T, kappa, C and S.
    preconditioner, learning_rate, initial_phi : ndarray, shape (D,)
        beta, lambda and the start.
    early_steps : int
        How many of the first steps have step sizes of their own.
    early_learning_rate : ndarray, shape (D,)
        Those step sizes.
    lower, upper : ndarray, shape (D,)
        The box that iterates stay in; infinite where there is none.
    keep, thin, burn_in
        What of the trace is kept.
    num_records : int or None
        The public N over which prior and entropy are spread; None where they are added after the noise.
    """

    description: ModelDescription
    num_steps: int
    sampling_rate: float
    clip_norm: float
    monte_carlo_samples: int
    preconditioner: Array
    learning_rate: Array
    initial_phi: Array
    early_steps: int
    early_learning_rate: Array
    lower: Array
    upper: Array
    keep: str
    thin: int
    burn_in: float
    num_records: int | None = None

    def kept_steps(self, num_done: int) -> range:
        """Return which of a run's first steps, counted from 0, its release holds one by one.

        Every `thin`-th from the last of the whole run back; with keep="sums" that last one alone.
        """
        thin = self.thin if self.keep == "trace" else self.num_steps
        return range((self.num_steps - 1) % thin, num_done, thin)

    def advance(self, index: int, *, phi: Array, noisy_gradient: Array) -> Array:
        """Return the iterate after step `index`, counted from 0: one step of Eq. 58, then the box."""
        following = phi - self.learning_rate_at(index) * noisy_gradient
        # A run without a box shows an overflow; one with a box still shows what is not a number.
        np.maximum(following, self.lower, out=following)
        return np.minimum(following, self.upper, out=following)

    def learning_rate_at(self, index: int) -> Array:
        """Return the step sizes of step `index`, counted from 0, shape (D,)."""
        return self.early_learning_rate if index < self.early_steps else self.learning_rate


def make_settings(description: ModelDescription, config: DPVIConfig, *, noise_multiplier: float) -> Settings:
    """Return the settings of a run, with the defaults that depend on model and noise filled in.

    The step size is ``sqrt(2) * lambda_c * beta / (sigma * C * sqrt(T * D))`` (Eq. 55 and 13.2).

    Raises
    ------
    ArgumentError
        If a default cannot be derived: no clip norm and no bound, or no noise and no learning rate.
    """
    clip_norm = resolve_clip_norm(description, config)
    num_params = len(description.names)
    dimension = len(description.phi_labels)
    preconditioner = np.concatenate(
        [np.ones(num_params), np.full(dimension - num_params, config.preconditioner_u)]
    )
    if config.learning_rate is not None:
        base = config.learning_rate
    elif noise_multiplier > 0:
        constant = config.learning_rate_constant
        factor = math.sqrt(dimension / 2) if constant is None else constant
        base = (
            math.sqrt(2) * factor / (noise_multiplier * clip_norm * math.sqrt(config.num_steps * dimension))
        )
    else:
        raise ArgumentError("learning_rate must be given for a run without noise.")
    plain = np.ones(dimension)
    factors = _replaced(plain, config, "learning_rate_factors", labels=description.phi_labels)
    early = _replaced(plain * config.early_factor, config, "early_factors", labels=description.phi_labels)
    learning_rate = base * preconditioner * factors
    _check_stability(
        description,
        learning_rate=learning_rate * np.maximum(early, 1.0),
        sampling_rate=config.sampling_rate,
    )
    lower, upper = _box(config, num_params=num_params, dimension=dimension)
    start, _ = description.model.prior_moments(description.design)
    start = _replaced(start, config, "initial_mu", labels=description.names)
    scales = _replaced(np.full(num_params, DEFAULT_INITIAL_U), config, "initial_u", labels=description.names)
    for name, values, part in (
        ("mu", start, slice(num_params)),
        ("u", scales, slice(num_params, 2 * num_params)),
    ):
        _check_start(description, values, name=name, lower=lower[part], upper=upper[part])
    return Settings(
        description=description,
        num_steps=config.num_steps,
        sampling_rate=config.sampling_rate,
        clip_norm=clip_norm,
        monte_carlo_samples=config.monte_carlo_samples,
        preconditioner=preconditioner,
        learning_rate=learning_rate,
        initial_phi=config.guide.initial(mean=start, u=scales),
        early_steps=config.early_steps,
        early_learning_rate=learning_rate * early,
        lower=lower,
        upper=upper,
        keep=config.keep,
        thin=config.thin,
        burn_in=config.burn_in,
        num_records=config.num_records,
    )


def _check_start(
    description: ModelDescription, start: Array, *, name: str, lower: Array, upper: Array
) -> None:
    """Raise unless every location, or scale, starts within its box: at the edge it could stay there."""
    outside = np.flatnonzero((start < lower) | (start > upper))
    if outside.size:
        worst = outside[0]
        raise ArgumentError(
            f"box_{name} must hold the start {start[worst]:g} of {description.names[worst]} (got "
            f"{lower[worst]:g} to {upper[worst]:g}): widen it or set initial_{name}."
        )


def _replaced(values: Array, config: DPVIConfig, name: str, *, labels: tuple[str, ...]) -> Array:
    """Return `values` with what the setting `name` gives in their places: one number for all, or by label."""
    given: float | Mapping[str, float] | None = getattr(config, name)
    if given is None:
        return values
    if not isinstance(given, Mapping):
        return np.full(len(values), given)
    places = {label: place for place, label in enumerate(labels)}
    replaced = values.copy()
    for label, value in given.items():
        if label not in places:
            raise ArgumentError(f"{name} names {quoted(label)}; the labels are {listed(labels)}.")
        replaced[places[label]] = value
    return replaced


def _box(config: DPVIConfig, *, num_params: int, dimension: int) -> tuple[Array, Array]:
    """Return the lower and upper bounds of iterates, each of shape (D,)."""
    unbounded = (-math.inf, math.inf)
    pairs = (config.box_mu or unbounded,) * num_params + (config.box_u or unbounded,) * (
        dimension - num_params
    )
    bounds = np.array(pairs)
    return bounds[:, 0], bounds[:, 1]


def _check_stability(description: ModelDescription, *, learning_rate: Array, sampling_rate: float) -> None:
    """Refuse a step size with which the prior alone makes the iterates diverge.

    Under a prior of sd s a location moves by lambda * kappa * mu / s^2 a step; from twice mu on, it
    overshoots further each time. The records can only add to that curvature.
    """
    _, prior_sd = description.phi_prior_moments()
    growth = learning_rate * sampling_rate / prior_sd**2
    worst = int(np.nanargmax(growth))
    if not math.isfinite(growth[worst]) or growth[worst] >= 2.0:
        raise ArgumentError(
            f"learning_rate {learning_rate[worst]:.3g} of {description.phi_labels[worst]} must diverge under "
            f"a prior sd of {prior_sd[worst]:.3g}: lower learning_rate_constant (or learning_rate_factors of "
            "this one) or widen the prior."
        )


def resolve_clip_norm(description: ModelDescription, config: DPVIConfig) -> float:
    """Return the configured clip norm, or else the model's own bound for its schema."""
    if config.clip_norm is not None:
        return config.clip_norm
    bound = description.model.gradient_bound(description.design)
    if bound is None:
        raise ArgumentError(
            f"clip_norm must be given: {description.model.kind} has no gradient bound for this schema. Or "
            "leave all settings out and give num_records, a public guess: they are then chosen for it."
        )
    return float(bound)
