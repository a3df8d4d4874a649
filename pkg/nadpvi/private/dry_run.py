"""A model is tried on made-up records before any real one is read. Private side, but no private data.

What would void the guarantee or waste the budget shows here: a likelihood that does not give one number a
record, records that influence each other, values that are not finite at the prior.
"""

import warnings
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.errors import ModelError, NadpviError, PrivacyError
from nadpvi.made_up import edge_records, prior_draws
from nadpvi.models.base import RecordBatch
from nadpvi.models.prior_check import check_log_prior, gradient_of
from nadpvi.private.batches import block_rows
from nadpvi.private.gradients import autograd_route
from nadpvi.private.score import SCORE_ROWS
from nadpvi.private.separation import check_crowd, check_places, check_separate
from nadpvi.private.trial import (
    NUM_RECORDS,
    finite_first,
    first_gradient,
    gradient_rows,
    made_up,
    name_of,
    value_of,
)
from nadpvi.public_term import prior_score

__all__ = ["check_model", "warn_of_failure"]

Array = NDArray[np.float64]

_NUM_DRAWS = 3


def check_model(description: ModelDescription, *, num_draws: int) -> None:
    """Raise unless the model behaves on made-up records as the mechanism needs.

    A finite test cannot prove that records never influence each other; the guarantee therefore also lists it
    among its assumptions.

    Parameters
    ----------
    description : ModelDescription
    num_draws : int
        S of the run, which fixes how long its blocks are.

    Raises
    ------
    ModelError
        If the model's likelihood, prior or simulator fails, gives a wrong shape or values that are not
        finite, or if likelihood or prior cannot be differentiated or do not depend on theta.
    PrivacyError
        If one record's gradient changes when the others do.

    Warns
    -----
    UserWarning
        If the model fails for records at the schema's public bounds.
    """
    rng = np.random.default_rng(0)
    model, name = description.model, name_of(description, "log_likelihood")
    theta = prior_draws(model, description.design, num_draws=_NUM_DRAWS, rng=rng)
    check_log_prior(
        lambda value: model.log_prior(value, description.design),
        theta,
        blocks=description.parameters,
        name=name_of(description, "log_prior"),
    )
    _check_prior_gradient(description, theta)
    batch = made_up(description, rng=rng)
    value = value_of(description, theta, batch, name=name)
    _check_value(value, name=name)
    first = finite_first(description, batch, name=name)
    _check_repeatable(description, batch, first, name=name)
    general = first_gradient(description, batch, name=name, route=autograd_route)
    if not np.allclose(first, general, rtol=1e-8, atol=1e-10):
        raise ModelError(
            f"{name} and the model's own score give different gradients: a subclass that changes one must "
            "change the other."
        )
    edges = [*edge_records(description.design, num_records=NUM_RECORDS, rng=rng)]
    for shift in range(NUM_RECORDS):
        # Whichever record holds the batch's largest or smallest value, it is among the others once.
        turned = RecordBatch(x=np.roll(batch.x, shift, axis=0), y=np.roll(batch.y, shift))
        check_separate(description, turned, edges=edges, name=name, rng=rng)
    num_noise = description.guide.num_noise(len(description.names))
    draw_values = max(num_draws * num_noise, len(description.phi_labels))
    check_places(description, num_records=block_rows(draw_values), name=name, rng=rng)
    for row in range(NUM_RECORDS):
        one = slice(row, row + 1)
        alone = value_of(description, theta, RecordBatch(x=batch.x[one], y=batch.y[one]), name=name)
        if alone.shape != (_NUM_DRAWS, 1) or not np.allclose(alone, value[:, one], rtol=1e-9, atol=1e-12):
            raise PrivacyError(
                f"{name} gives a record another value when it is alone: do not use its place, the number of "
                "records, or any figure of the batch."
            )
    _warn_of_edges(description, edges, name=name)
    check_crowd(description, theta, num_records=SCORE_ROWS, name=name, rng=rng)


def warn_of_failure(description: ModelDescription, phi: Array) -> None:
    """Warn if the model fails on made-up records at `phi`, shape (D,), where a run has ended.

    Real records on which a model fails count as zero, and nothing may tell whether there were any. This asks
    the model about made-up ones instead.
    """
    name = name_of(description, "log_likelihood")
    try:
        batch = made_up(description, rng=np.random.default_rng(0))
        gradient = first_gradient(description, batch, name=name, phi=phi)
        is_sound = bool(np.isfinite(gradient).all())
    except NadpviError:
        is_sound = False
    if not is_sound:
        warnings.warn(
            f"{name} fails on made-up records at the run's last iterate; real records on which it fails "
            "counted as zero. Write it so that it stays finite there.",
            UserWarning,
            stacklevel=2,
        )


def _check_repeatable(description: ModelDescription, batch: RecordBatch, first: Array, *, name: str) -> None:
    """Raise if the same records give another gradient when asked for again."""
    if not np.array_equal(first, first_gradient(description, batch, name=name)):
        raise ModelError(
            f"{name} gives another value when it is called again: it must not draw random numbers or "
            "remember earlier calls."
        )


def _warn_of_edges(description: ModelDescription, edges: Iterable[RecordBatch], *, name: str) -> None:
    """Warn if the model fails for records at the public bounds, where clamping puts real ones.

    That is no reason to refuse it: a table need not reach its bounds, and a record on which a model fails
    counts as zero, which protects it all the more. But nothing tells afterwards that it happened.
    """
    try:
        is_sound = all(np.isfinite(gradient_rows(description, edge, name=name)).all() for edge in edges)
    except ModelError as error:
        # That theta does not matter to such records is no failure.
        is_sound = isinstance(error.__cause__, UserWarning)
    if not is_sound:
        warnings.warn(
            f"{name} is not finite for a record at the public bounds of its columns, which hold whatever "
            "lies beyond; such records would count as zero, and nothing would show it. Move the bounds, or "
            "write it so that it stays finite there.",
            UserWarning,
            stacklevel=3,
        )


def _check_value(value: Array, *, name: str) -> None:
    """Raise unless the likelihood gave one finite number for each record under each draw."""
    if value.shape != (_NUM_DRAWS, NUM_RECORDS):
        raise ModelError(
            f"{name} must give one number a record: shape ({_NUM_DRAWS}, {NUM_RECORDS}) for {_NUM_DRAWS} "
            f"draws and {NUM_RECORDS} records (got {value.shape})."
        )
    if not np.isfinite(value).all():
        raise ModelError(
            f"{name} is not finite at ordinary values of the parameters: write it so that it stays finite "
            "within the public bounds (log1p, logaddexp), or narrow the prior or the bounds."
        )


def _check_prior_gradient(description: ModelDescription, theta: Array) -> None:
    """Raise unless a model's own gradient of its log prior, if it has one, is that of its log prior."""
    model, design = description.model, description.design
    own = prior_score(model, theta, design=design)
    general = gradient_of(lambda value: model.log_prior(value, design))(theta)
    if not np.allclose(own, general, rtol=1e-8, atol=1e-10 * np.abs(general).max()):
        raise ModelError(
            f"{name_of(description, 'log_prior')} and the model's own gradient of it differ: a subclass that "
            "changes one must change the other."
        )
