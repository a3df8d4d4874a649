"""Public settings of a run, resolved to numbers for one model and one noise level."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nadpvi.config import DPVIConfig
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
    num_records: int | None = None


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
    guide = config.guide
    dimension = guide.num_variational(num_params)
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
    _check_stability(description, base=base, sampling_rate=config.sampling_rate)
    return Settings(
        description=description,
        num_steps=config.num_steps,
        sampling_rate=config.sampling_rate,
        clip_norm=clip_norm,
        monte_carlo_samples=config.monte_carlo_samples,
        preconditioner=preconditioner,
        learning_rate=base * preconditioner,
        initial_phi=guide.initial(num_params=num_params, mu=config.initial_mu, u=config.initial_u),
        num_records=config.num_records,
    )


def _check_stability(description: ModelDescription, *, base: float, sampling_rate: float) -> None:
    """Refuse a step size with which the prior alone makes the iterates diverge.

    Under a prior of sd s a location moves by base * kappa * mu / s^2 a step; from twice mu on, it overshoots
    further each time. The records can only add to that curvature.
    """
    _, prior_sd = description.phi_prior_moments()
    growth = base * sampling_rate / float(np.nanmin(prior_sd)) ** 2
    if not math.isfinite(growth) or growth >= 2.0:
        raise ArgumentError(
            f"learning_rate {base:.3g} must diverge under a prior sd of {np.nanmin(prior_sd):.3g}: lower "
            "learning_rate_constant or raise prior_sd."
        )


def resolve_clip_norm(description: ModelDescription, config: DPVIConfig) -> float:
    """Return the configured clip norm, or else the model's own bound for its schema."""
    if config.clip_norm is not None:
        return config.clip_norm
    bound = description.model.gradient_bound(description.design)
    if bound is None:
        raise ArgumentError(
            f"clip_norm must be given: {description.model.kind} has no gradient bound for this schema."
        )
    return float(bound)
