"""DP-SGD variational inference: from private records to a `Release`. Private side."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.config import DPVIConfig
from nadpvi.description import ModelDescription
from nadpvi.dpsgd import check_exact_sums, clipped_sum, release_gradient
from nadpvi.errors import ArgumentError, ModelError, NadpviError
from nadpvi.gradients import gradient_function
from nadpvi.models.base import Model, RecordBatch
from nadpvi.privacy.noise import NoiseSource
from nadpvi.privacy.randomness import Streams
from nadpvi.privacy.sampling import poisson_sample
from nadpvi.records import Records

__all__ = ["Settings", "State", "Trace", "make_settings", "run", "step"]

Array = NDArray[np.float64]

# Rows per block times draws times parameters: 5 MB in the largest temporary, small enough to stay in cache
# where it matters and large enough to keep Python out of the way.
_BLOCK_VALUES = 600_000


class State(NamedTuple):
    """Where a run stands: the number of finished steps and the current iterate, shape (D,)."""

    num_steps: int
    phi: Array


class Trace(NamedTuple):
    """Iterates and the noisy gradients computed at them, each of shape (T, D)."""

    phi: Array
    noisy_gradient: Array


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
    """

    description: ModelDescription
    num_steps: int
    sampling_rate: float
    clip_norm: float
    monte_carlo_samples: int
    preconditioner: Array
    learning_rate: Array
    initial_phi: Array


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


def step(
    state: State, *, records: Records, settings: Settings, noise: NoiseSource, streams: Streams
) -> tuple[State, Array]:
    """Return the next state and the noisy gradient that led to it (Eq. 58).

    The likelihood part is sampled, clipped, summed and noised; the public prior and entropy terms are
    added afterwards, times the sampling rate, so that they cost no clip norm and need no record count.
    """
    num_params = len(settings.initial_phi) // 2
    standard_normal = streams.monte_carlo.standard_normal((settings.monte_carlo_samples, num_params))
    indices = poisson_sample(
        streams.subsample, num_records=len(records.y), sampling_rate=settings.sampling_rate
    )
    total = np.zeros_like(state.phi)
    gradients_of = gradient_function(
        settings.description.model,
        guide=settings.description.guide,
        phi=state.phi,
        standard_normal=standard_normal,
        preconditioner=settings.preconditioner,
    )
    for block in _blocks(records, indices, num_rows=block_rows(standard_normal.size)):
        try:
            gradients = gradients_of(block.batch)
        except Exception as error:  # a model's own code, whose message may show a record
            raise ModelError(
                f"the model failed on a record at step {state.num_steps}: {type(error).__name__}. It must "
                "not fail, whatever a record holds; count the budget as spent."
            ) from None
        total += clipped_sum(
            gradients,
            clip_norm=settings.clip_norm,
            grid_units=noise.grid_units,
            num_records=block.num_records,
        )
    noisy = release_gradient(
        total, noise=noise, clip_norm=settings.clip_norm, preconditioner=settings.preconditioner
    )
    noisy += settings.sampling_rate * public_gradient(
        settings.description, phi=state.phi, standard_normal=standard_normal
    )
    return State(state.num_steps + 1, state.phi - settings.learning_rate * noisy), noisy


def public_gradient(description: ModelDescription, *, phi: Array, standard_normal: Array) -> Array:
    """Return the gradient of -E_q log p(theta) - entropy(q), shape (D,): no record is involved.

    Parameters
    ----------
    description : ModelDescription
        Gives the prior and the guide.
    phi : ndarray, shape (D,)
        Current iterate.
    standard_normal : ndarray, shape (S, K)
        The step's shared draws.
    """
    guide = description.guide
    prior_gradient = prior_score(description.model, guide.draw(phi, standard_normal))
    expected = guide.pull_back(phi, theta_gradient=prior_gradient, standard_normal=standard_normal)
    gradient: Array = -expected - guide.entropy_gradient(phi)
    return gradient


def prior_score(model: Model, theta: Array) -> Array:
    """Return the gradient of the model's log prior, by its own formula where it has one, else by autodiff."""
    formula: Callable[[Array], Array] | None = getattr(model, "log_prior_gradient", None)
    if formula is not None:
        return formula(theta)
    from autograd import grad

    gradient: Array = grad(lambda value: model.log_prior(value).sum())(theta)
    return gradient


def run(
    records: Records, settings: Settings, *, noise: NoiseSource, streams: Streams
) -> Iterator[tuple[int, Trace]]:
    """Yield (steps done, trace so far) after every step; the trace's arrays are filled in place.

    Rows beyond the steps done are zero. The caller owns the loop, so that it can show progress or stop.
    """
    check_exact_sums(num_records=len(records.y), grid_units=noise.grid_units)
    shape = (settings.num_steps, len(settings.initial_phi))
    trace = Trace(phi=np.zeros(shape), noisy_gradient=np.zeros(shape))
    state = State(0, settings.initial_phi)
    for index in range(settings.num_steps):
        trace.phi[index] = state.phi
        # An overflow shows in the check below; NumPy's own warning would only say so less clearly.
        with np.errstate(all="ignore"):
            state, noisy = step(state, records=records, settings=settings, noise=noise, streams=streams)
        trace.noisy_gradient[index] = noisy
        if not np.isfinite(state.phi).all():
            raise NadpviError(
                f"the run diverged at step {index} of {settings.num_steps}; noise was drawn, so its "
                "budget counts as spent: lower learning_rate_constant before the next."
            )
        yield index + 1, trace


class _Block(NamedTuple):
    """A batch of fixed shape whose first `num_records` rows are records; the rest are zeros."""

    batch: RecordBatch
    num_records: int


def block_rows(draw_values: int) -> int:
    """Return how many rows each block has: a multiple of 64, fixed by S * K = `draw_values` alone.

    At most 1,024: padding costs as much as records do, and a small model's batches are small.
    """
    return max(64, min(1024, _BLOCK_VALUES // draw_values // 64 * 64))


def _blocks(records: Records, indices: NDArray[np.int64], *, num_rows: int) -> Iterator[_Block]:
    """Yield the sampled records in zero-padded blocks of one shape; nothing for an empty batch.

    The shape must not depend on the batch: a matrix product picks its kernel by shape, so that otherwise one
    record's arrival could move the last bit of another's gradient, and truncation a whole grid unit.
    """
    # One buffer serves all blocks of a step: each is used up before the next is asked for.
    x, y = np.empty((num_rows, records.x.shape[1])), np.empty(num_rows)
    for start in range(0, len(indices), num_rows):
        chosen = indices[start : start + num_rows]
        np.take(records.x, chosen, axis=0, out=x[: len(chosen)], mode="clip")
        np.take(records.y, chosen, out=y[: len(chosen)], mode="clip")
        x[len(chosen) :] = 0.0
        y[len(chosen) :] = 0.0
        yield _Block(RecordBatch(x=x, y=y), len(chosen))
