"""DP-SGD variational inference: from private records to a `Release`. Private side."""

import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.errors import DivergenceError
from nadpvi.models.base import Model, RecordBatch
from nadpvi.privacy.noise import NoiseSource
from nadpvi.privacy.randomness import Streams
from nadpvi.privacy.sampling import poisson_sample
from nadpvi.private.dpsgd import check_exact_sums, clipped_sum, release_gradient
from nadpvi.private.gradients import gradient_function, with_shared_term
from nadpvi.private.records import Records
from nadpvi.settings import Settings

__all__ = ["Block", "State", "Trace", "blocks", "evaluated", "run", "step"]

Array = NDArray[np.float64]
_T = TypeVar("_T")

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


class Block(NamedTuple):
    """A batch of fixed shape whose first `num_records` rows are records; the rest are zeros."""

    batch: RecordBatch
    num_records: int


def block_rows(draw_values: int) -> int:
    """Return how many rows each block has: a multiple of 64, fixed by S * K = `draw_values` alone.

    At most 1,024: padding costs as much as records do, and a small model's batches are small.
    """
    return max(64, min(1024, _BLOCK_VALUES // draw_values // 64 * 64))


def blocks(records: Records, indices: NDArray[np.int64], *, num_rows: int) -> Iterator[Block]:
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
        yield Block(RecordBatch(x=x, y=y), len(chosen))


def evaluated(block: Block, evaluate: Callable[[RecordBatch], _T]) -> Iterator[tuple[_T, int]]:
    """Yield what a model's code gives for a block, and how many of its rows are records.

    Where it raises, the block is halved, in the same zero-padded shape, until what fails stands alone; that
    record is left out. Errors and warnings are dropped: they may show a record.
    """
    try:
        with warnings.catch_warnings():
            # A warning may show a record, too.
            warnings.simplefilter("ignore")
            result = evaluate(block.batch)
    except Exception:  # a model's own code may raise anything
        half = block.num_records // 2
        parts = ((0, half), (half, block.num_records)) if half else ()
    else:
        yield result, block.num_records
        return
    for start, stop in parts:
        yield from evaluated(_part(block, start, stop), evaluate)


def _part(block: Block, start: int, stop: int) -> Block:
    """Return some records of a block as a block of the same shape."""
    x, y = np.zeros_like(block.batch.x), np.zeros_like(block.batch.y)
    x[: stop - start] = block.batch.x[start:stop]
    y[: stop - start] = block.batch.y[start:stop]
    return Block(RecordBatch(x=x, y=y), stop - start)
