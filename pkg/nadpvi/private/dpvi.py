"""DP-SGD variational inference: from private records to a `Release`. Private side."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.callbacks import StepDone
from nadpvi.errors import DivergenceError
from nadpvi.guides.antithetic import draw_antithetic
from nadpvi.privacy.noise import NoiseSource
from nadpvi.privacy.randomness import Streams
from nadpvi.privacy.sampling import poisson_sample
from nadpvi.private.batches import Workspace, block_rows, blocks, evaluated
from nadpvi.private.dpsgd import check_exact_sums, clipped_sum, release_gradient
from nadpvi.private.gradients import GradientFunction, gradient_function, with_shared_term
from nadpvi.private.keeping import Keeper
from nadpvi.private.records import Records
from nadpvi.public_term import public_gradient
from nadpvi.settings import Settings

__all__ = ["State", "StepFunction", "run", "sampled_sum", "step"]

Array = NDArray[np.float64]


class State(NamedTuple):
    """Where a run stands: the number of finished steps and the current iterate, shape (D,)."""

    num_steps: int
    phi: Array


class StepFunction(Protocol):
    """One way to take a step; `step` is that of ordinary DP-SGD."""

    def __call__(
        self,
        state: State,
        *,
        records: Records,
        settings: Settings,
        noise: NoiseSource,
        streams: Streams,
        workspace: Workspace | None = None,
    ) -> tuple[State, Array]:
        """Return the next state and the noisy gradient, shape (D,), that led to it."""
        ...


def step(
    state: State,
    *,
    records: Records,
    settings: Settings,
    noise: NoiseSource,
    streams: Streams,
    workspace: Workspace | None = None,
) -> tuple[State, Array]:
    """Return the next state and the noisy gradient that led to it (Eq. 58).

    The likelihood part is sampled, clipped, summed and noised. The public prior and entropy terms are
    added afterwards, times the sampling rate, so that they cost no clip norm and need no record count; or,
    with a public record count, each record carries its share of them and is clipped with it (Eq. 56).
    `workspace` keeps the blocks' memory for the next step.

    Guarantees
    ----------
    - Whether a step fails does not depend on a record: one on which the model fails contributes zero, like
      one whose gradient is not finite.
    """
    streams.check_process()
    guide = settings.description.guide
    num_noise = guide.num_noise(guide.num_params(len(state.phi)))
    standard_normal = draw_antithetic(
        streams.monte_carlo, num_draws=settings.monte_carlo_samples, size=num_noise
    )
    theta = guide.draw(state.phi, standard_normal)
    gradients_of = gradient_function(
        settings.description.model,
        guide=guide,
        phi=state.phi,
        standard_normal=standard_normal,
        theta=theta,
        preconditioner=settings.preconditioner,
        workspace=workspace,
    )
    public = public_gradient(
        settings.description, phi=state.phi, standard_normal=standard_normal, theta=theta
    )
    share = None if settings.num_records is None else settings.preconditioner * public / settings.num_records
    total = sampled_sum(
        gradients_of,
        dimension=len(state.phi),
        num_rows=block_rows(max(standard_normal.size, len(state.phi))),
        records=records,
        settings=settings,
        noise=noise,
        streams=streams,
        share=share,
        workspace=workspace,
    )
    noisy = release_gradient(
        total, noise=noise, clip_norm=settings.clip_norm, preconditioner=settings.preconditioner
    )
    if share is None:
        noisy += settings.sampling_rate * public
    following = settings.advance(state.num_steps, phi=state.phi, noisy_gradient=noisy)
    return State(state.num_steps + 1, following), noisy


def sampled_sum(
    gradients_of: GradientFunction,
    *,
    dimension: int,
    num_rows: int,
    records: Records,
    settings: Settings,
    noise: NoiseSource,
    streams: Streams,
    share: Array | None = None,
    workspace: Workspace | None = None,
) -> NDArray[Any]:
    """Return the sum of a Poisson sample's clipped gradients, as `clipped_sum` counts it. Private.

    Parameters
    ----------
    gradients_of : callable
        Gives a block's per-record gradients.
    dimension : int
        How many coordinates they have.
    num_rows : int
        How many rows each block has.
    records, settings, noise, streams, workspace
        As in `step`.
    share : ndarray, shape (`dimension`,), optional
        What each record carries besides its own gradient, clipped with it.
    """
    rows, multiplicities = sampled_rows(records, streams=streams, sampling_rate=settings.sampling_rate)
    # Whole numbers on a grid.
    total: NDArray[Any] = np.zeros(dimension, np.float64 if noise.grid_units is None else np.int64)
    sampled = blocks(records, rows, num_rows=num_rows, multiplicities=multiplicities, workspace=workspace)
    for block in sampled:
        for gradients, part in evaluated(block, gradients_of):
            if share is not None:
                gradients = with_shared_term(gradients, share=share, num_rows=num_rows)
            total += clipped_sum(
                gradients,
                clip_norm=settings.clip_norm,
                grid_units=noise.grid_units,
                num_records=part.num_records,
                multiplicities=part.multiplicities,
            )
    return total


def sampled_rows(
    records: Records, *, streams: Streams, sampling_rate: float
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Return which rows enter a step, and how many times each, None for once. Private.

    Guarantees
    ----------
    - Every unit of privacy enters independently with probability `sampling_rate`: a record, or a person with
      all of their rows together. Identical records that share a row enter one by one.
    """
    if records.sampler is not None:
        return records.sampler.draw(streams.subsample, sampling_rate=sampling_rate)
    units = poisson_sample(streams.subsample, num_records=records.num_units, sampling_rate=sampling_rate)
    return records.rows_of(units), None


def run(
    records: Records,
    settings: Settings,
    *,
    noise: NoiseSource,
    streams: Streams,
    keeper: Keeper,
    take_step: StepFunction | None = None,
) -> Iterator[StepDone]:
    """Yield each step once `keeper` has it, until the run is whole; its arrays are the keeper's own.

    The caller owns the loop, so that it can show progress or stop.

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
    keeper : Keeper
        Takes in the steps. If it holds some already, the run goes on from there.
    take_step : callable, optional
        How a step is taken; as `step` does when omitted.

    Raises
    ------
    DivergenceError
        If an iterate is not finite.
    """
    check_exact_sums(num_records=records.num_records, grid_units=noise.grid_units)
    workspace = Workspace()
    advance = step if take_step is None else take_step
    state = State(keeper.num_done, keeper.next_phi)
    while state.num_steps < settings.num_steps:
        # An overflow shows in the check below; NumPy's own warning would only say so less clearly.
        with np.errstate(all="ignore"):
            following, noisy = advance(
                state,
                records=records,
                settings=settings,
                noise=noise,
                streams=streams,
                workspace=workspace,
            )
        if not (np.isfinite(following.phi).all() and np.isfinite(noisy).all()):
            raise DivergenceError(
                f"the run diverged at step {state.num_steps} of {settings.num_steps}; noise was drawn, so "
                "its budget counts as spent: lower learning_rate_constant, or set box_mu and box_u, before "
                "the next."
            )
        keeper.add(state.phi, noisy)
        yield StepDone(following.num_steps, settings.num_steps, state.phi, noisy)
        state = following
