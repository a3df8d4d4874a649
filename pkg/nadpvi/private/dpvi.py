"""DP-SGD variational inference: from private records to a `Release`. Private side."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.encoding import Design
from nadpvi.errors import DivergenceError
from nadpvi.models.base import Model
from nadpvi.privacy.noise import NoiseSource
from nadpvi.privacy.randomness import Streams
from nadpvi.privacy.sampling import poisson_sample
from nadpvi.private.batches import block_rows, blocks, evaluated
from nadpvi.private.dpsgd import check_exact_sums, clipped_sum, release_gradient
from nadpvi.private.gradients import gradient_function, with_shared_term
from nadpvi.private.records import Records
from nadpvi.settings import Settings

__all__ = ["State", "Trace", "public_gradient", "run", "step"]

Array = NDArray[np.float64]


class State(NamedTuple):
    """Where a run stands: the number of finished steps and the current iterate, shape (D,)."""

    num_steps: int
    phi: Array


class Trace(NamedTuple):
    """Iterates and the noisy gradients computed at them, each of shape (T, D)."""

    phi: Array
    noisy_gradient: Array


def step(
    state: State, *, records: Records, settings: Settings, noise: NoiseSource, streams: Streams
) -> tuple[State, Array]:
    """Return the next state and the noisy gradient that led to it (Eq. 58).

    The likelihood part is sampled, clipped, summed and noised. The public prior and entropy terms are
    added afterwards, times the sampling rate, so that they cost no clip norm and need no record count; or,
    with a public record count, each record carries its share of them and is clipped with it (Eq. 56).

    Guarantees
    ----------
    - Whether a step fails does not depend on a record: one on which the model fails contributes zero, like
      one whose gradient is not finite.
    """
    streams.check_process()
    num_params = len(settings.initial_phi) // 2
    standard_normal = streams.monte_carlo.standard_normal((settings.monte_carlo_samples, num_params))
    public = public_gradient(settings.description, phi=state.phi, standard_normal=standard_normal)
    share = None if settings.num_records is None else settings.preconditioner * public / settings.num_records
    # What is sampled is a unit of privacy: all the rows of a person enter together.
    units = poisson_sample(
        streams.subsample, num_records=records.num_units, sampling_rate=settings.sampling_rate
    )
    total = np.zeros_like(state.phi)
    gradients_of = gradient_function(
        settings.description.model,
        guide=settings.description.guide,
        phi=state.phi,
        standard_normal=standard_normal,
        preconditioner=settings.preconditioner,
    )
    for block in blocks(records, records.rows_of(units), num_rows=block_rows(standard_normal.size)):
        for gradients, num_records in evaluated(block, gradients_of):
            if share is not None:
                gradients = with_shared_term(gradients, share=share, num_rows=len(block.batch.y))
            total += clipped_sum(
                gradients,
                clip_norm=settings.clip_norm,
                grid_units=noise.grid_units,
                num_records=num_records,
            )
    noisy = release_gradient(
        total, noise=noise, clip_norm=settings.clip_norm, preconditioner=settings.preconditioner
    )
    if share is None:
        noisy += settings.sampling_rate * public
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
    theta = guide.draw(phi, standard_normal)
    prior_gradient = prior_score(description.model, theta, design=description.design)
    expected = guide.pull_back(phi, theta_gradient=prior_gradient, standard_normal=standard_normal)
    gradient: Array = -expected - guide.entropy_gradient(phi)
    return gradient


def prior_score(model: Model, theta: Array, *, design: Design) -> Array:
    """Return the gradient of the model's log prior, by its own formula where it has one, else by autodiff."""
    formula: Callable[[Array, Design], Array] | None = getattr(model, "log_prior_gradient", None)
    if formula is not None:
        return formula(theta, design)
    from autograd import grad

    gradient: Array = grad(lambda value: model.log_prior(value, design).sum())(theta)
    return gradient


def run(
    records: Records,
    settings: Settings,
    *,
    noise: NoiseSource,
    streams: Streams,
    done: Trace | None = None,
) -> Iterator[tuple[int, Trace]]:
    """Yield (steps done, trace so far) after every step; the trace's arrays are filled in place.

    Rows beyond the steps done are zero. The caller owns the loop, so that it can show progress or stop.

    Parameters
    ----------
    records : Records
        Private.
    settings : Settings
        Of the whole run, T steps.
    noise : NoiseSource
        For the steps that are left.
    streams : Streams
        Fresh ones.
    done : Trace, optional
        The first t < T steps of an interrupted run, which goes on from there.
    """
    check_exact_sums(num_records=len(records.y), grid_units=noise.grid_units)
    shape = (settings.num_steps, len(settings.initial_phi))
    trace = Trace(phi=np.zeros(shape), noisy_gradient=np.zeros(shape))
    state = State(0, settings.initial_phi)
    if done is not None:
        state = State(len(done.phi), done.phi[-1] - settings.learning_rate * done.noisy_gradient[-1])
        trace.phi[: state.num_steps] = done.phi
        trace.noisy_gradient[: state.num_steps] = done.noisy_gradient
    for index in range(state.num_steps, settings.num_steps):
        trace.phi[index] = state.phi
        # An overflow shows in the check below; NumPy's own warning would only say so less clearly.
        with np.errstate(all="ignore"):
            state, noisy = step(state, records=records, settings=settings, noise=noise, streams=streams)
        trace.noisy_gradient[index] = noisy
        if not np.isfinite(state.phi).all():
            raise DivergenceError(
                f"the run diverged at step {index} of {settings.num_steps}; noise was drawn, so its "
                "budget counts as spent: lower learning_rate_constant before the next."
            )
        yield index + 1, trace
