"""A model is tried on made-up records before any real one is read. Private side, but no private data.

What would void the guarantee or waste the budget shows here: a likelihood that does not give one number a
record, records that influence each other, values that are not finite at the prior.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.errors import ModelError, NadpviError, PrivacyError
from nadpvi.made_up import made_up_records, prior_draws
from nadpvi.models.base import RecordBatch
from nadpvi.models.custom import CustomModel
from nadpvi.models.prior_check import check_log_prior
from nadpvi.private.batches import block_rows
from nadpvi.private.gradients import GradientFunction, autograd_route, gradient_function

__all__ = ["check_model", "warn_of_failure"]

_T = TypeVar("_T")
Array = NDArray[np.float64]

_NUM_RECORDS = 7
_NUM_DRAWS = 3
_NUM_RUN_DRAWS = 10  # what a run has by default; it fixes how long its blocks are
_WRITE_DIFFERENTIABLY = (
    "write it with autograd.numpy (and autograd.scipy) and without assignment to array elements."
)


def check_model(description: ModelDescription) -> None:
    """Raise unless the model behaves on made-up records as the mechanism needs.

    A finite test cannot prove that records never influence each other; the guarantee therefore also lists it
    among its assumptions.

    Raises
    ------
    ModelError
        If the model's likelihood, prior or simulator fails, gives a wrong shape or values that are not
        finite, or if likelihood or prior cannot be differentiated or do not depend on theta.
    PrivacyError
        If one record's gradient changes when the others do.
    """
    rng = np.random.default_rng(0)
    model, name = description.model, _name(description, "log_likelihood")
    theta = prior_draws(model, description.design, num_draws=_NUM_DRAWS, rng=rng)
    check_log_prior(
        lambda value: model.log_prior(value, description.design),
        theta,
        blocks=description.parameters,
        name=_name(description, "log_prior"),
    )
    batch = _made_up(description, rng=rng)
    value = _value(description, theta, batch, name=name)
    _check_value(value, name=name)
    first = _finite_first(description, batch, name=name)
    general = _first_gradient(description, batch, name=name, route=autograd_route)
    if not np.allclose(first, general, rtol=1e-8, atol=1e-10):
        raise ModelError(
            f"{name} and the model's own score give different gradients: a subclass that changes one must "
            "change the other."
        )
    for shift in range(_NUM_RECORDS):
        # Whichever record holds the batch's largest or smallest value, it is among the others once.
        turned = RecordBatch(x=np.roll(batch.x, shift, axis=0), y=np.roll(batch.y, shift))
        _check_separate(description, turned, name=name, rng=rng)
    num_noise = description.guide.num_noise(len(description.names))
    draw_values = max(_NUM_RUN_DRAWS * num_noise, len(description.phi_labels))
    _check_places(description, num_records=block_rows(draw_values), name=name, rng=rng)
    for row in range(_NUM_RECORDS):
        one = slice(row, row + 1)
        alone = _value(description, theta, RecordBatch(x=batch.x[one], y=batch.y[one]), name=name)
        if alone.shape != (_NUM_DRAWS, 1) or not np.allclose(alone, value[:, one], rtol=1e-9, atol=1e-12):
            raise PrivacyError(
                f"{name} gives a record another value when it is alone: do not use its place, the number of "
                "records, or any figure of the batch."
            )


def warn_of_failure(description: ModelDescription, phi: Array) -> None:
    """Warn if the model fails on made-up records at `phi`, shape (D,), where a run has ended.

    Real records on which a model fails count as zero, and nothing may tell whether there were any. This asks
    the model about made-up ones instead.
    """
    name = _name(description, "log_likelihood")
    try:
        batch = _made_up(description, rng=np.random.default_rng(0))
        gradient = _first_gradient(description, batch, name=name, phi=phi)
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


def _name(description: ModelDescription, role: str) -> str:
    """Return what the author of a model calls one of its functions."""
    model = description.model
    return (
        model.functions.name_of(role) if isinstance(model, CustomModel) else f"{type(model).__name__}.{role}"
    )


def _made_up(description: ModelDescription, *, rng: np.random.Generator) -> RecordBatch:
    """Return records that the design could have encoded, each from its own draw of theta."""
    model, design, name = description.model, description.design, _name(description, "simulate")
    theta = prior_draws(model, design, num_draws=_NUM_RECORDS, rng=rng)
    batch = _tried(
        lambda: made_up_records(model, design, theta=theta, num_records=_NUM_RECORDS, rng=rng), name=name
    )
    if batch.y.shape != (_NUM_RECORDS,):
        raise ModelError(
            f"{name} must give one outcome a record: shape ({_NUM_RECORDS},) for {_NUM_RECORDS} records (got "
            f"{batch.y.shape})."
        )
    if not np.isfinite(batch.y).all():
        raise ModelError(f"{name} draws outcomes that are not finite at ordinary values of the parameters.")
    return batch


def _check_value(value: Array, *, name: str) -> None:
    """Raise unless the likelihood gave one finite number for each record under each draw."""
    if value.shape != (_NUM_DRAWS, _NUM_RECORDS):
        raise ModelError(
            f"{name} must give one number a record: shape ({_NUM_DRAWS}, {_NUM_RECORDS}) for {_NUM_DRAWS} "
            f"draws and {_NUM_RECORDS} records (got {value.shape})."
        )
    if not np.isfinite(value).all():
        raise ModelError(
            f"{name} is not finite at ordinary values of the parameters: write it so that it stays finite "
            "within the public bounds (log1p, logaddexp), or narrow the prior or the bounds."
        )


def _check_separate(
    description: ModelDescription, batch: RecordBatch, *, name: str, rng: np.random.Generator
) -> None:
    """Raise if the first record's gradient depends on the records after it."""
    first = _finite_first(description, batch, name=name)
    for other in _companions(description, batch, rng=rng):
        if not np.array_equal(first, _first_gradient(description, other, name=name)):
            raise PrivacyError(
                f"{name} lets records influence each other: the gradient of one changes with the others. "
                "Each record's value must depend on that record and theta alone."
            )


def _check_places(
    description: ModelDescription, *, num_records: int, name: str, rng: np.random.Generator
) -> None:
    """Raise if a record's gradient changes with its place in a block, its company, or what came before.

    The block is as long as a run's. Last bits are not compared: they are the matrix product's.
    """
    others = _made_up(description, rng=rng)
    chosen = rng.integers(_NUM_RECORDS, size=num_records)
    crowd = RecordBatch(x=others.x[chosen], y=others.y[chosen])
    record = _made_up(description, rng=rng)
    alone = RecordBatch(x=np.zeros_like(crowd.x), y=np.zeros_like(crowd.y))
    alone.x[0], alone.y[0] = record.x[0], record.y[0]
    expected = _first_gradient(description, alone, name=name)
    for place in (0, num_records // 2, num_records - 1):
        for company in (crowd, RecordBatch(x=np.zeros_like(crowd.x), y=np.zeros_like(crowd.y))):
            batch = RecordBatch(x=company.x.copy(), y=company.y.copy())
            batch.x[place], batch.y[place] = record.x[0], record.y[0]
            found = _first_gradient(description, batch, name=name, row=place)
            if not np.allclose(found, expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max()):
                raise PrivacyError(
                    f"{name} lets records influence each other: the gradient of one changes with its place, "
                    "with the others, or with earlier calls. It must depend on that record and theta alone."
                )


def _companions(
    description: ModelDescription, batch: RecordBatch, *, rng: np.random.Generator
) -> Iterator[RecordBatch]:
    """Yield batches of one shape that have only their first record in common."""
    for _ in range(3):
        other = _made_up(description, rng=rng)
        yield _with_first(batch, x=other.x, y=other.y)
    # All rows from one extreme: whatever figure of the batch a model uses, one of these moves it.
    for row in (np.argmin(batch.y), np.argmax(batch.y)):
        yield _with_first(
            batch, x=np.repeat(batch.x[[row]], _NUM_RECORDS, axis=0), y=np.full(_NUM_RECORDS, batch.y[row])
        )
    # What fills the rest of a block in a run.
    yield _with_first(batch, x=np.zeros_like(batch.x), y=np.zeros_like(batch.y))


def _with_first(batch: RecordBatch, *, x: Array, y: Array) -> RecordBatch:
    """Return the records (x, y) with the first one replaced by that of `batch`."""
    return RecordBatch(x=np.vstack([batch.x[:1], x[1:]]), y=np.concatenate([batch.y[:1], y[1:]]))


def _value(description: ModelDescription, theta: Array, batch: RecordBatch, *, name: str) -> Array:
    """Return the log likelihood of each record under each theta, shape (S, B) if the model is sound."""
    draws, records = theta[:, None, :].copy(), RecordBatch(x=batch.x.copy(), y=batch.y.copy())
    for array in (draws, *records):
        array.flags.writeable = False
    return np.asarray(_tried(lambda: description.model.log_likelihood(draws, records), name=name))


def _tried(call: Callable[[], _T], *, name: str) -> _T:
    """Return what a model's code gives, or raise one line that names it."""
    try:
        with np.errstate(all="ignore"):
            return call()
    except NadpviError:
        raise
    except Exception as error:  # a user's code may raise anything
        if "read-only" in str(error):
            raise ModelError(
                f"{name} writes to the arrays that it is given; {_WRITE_DIFFERENTIABLY}"
            ) from error
        raise ModelError(f"{name} failed on made-up records: {type(error).__name__}: {error}") from error


def _finite_first(description: ModelDescription, batch: RecordBatch, *, name: str) -> Array:
    """Return the first record's gradient, or raise if it is not finite."""
    first = _first_gradient(description, batch, name=name)
    if not np.isfinite(first).all():
        raise ModelError(f"{name} has a gradient that is not finite at ordinary values of the parameters.")
    return first


def _first_gradient(
    description: ModelDescription,
    batch: RecordBatch,
    *,
    name: str,
    route: Callable[..., GradientFunction] = gradient_function,
    phi: Array | None = None,
    row: int = 0,
) -> Array:
    """Return one record's gradient, by default the first's on the way that a run would take."""
    num_params = len(description.names)
    dimension = description.guide.num_variational(num_params)
    num_noise = description.guide.num_noise(num_params)
    noise = np.random.default_rng(1).standard_normal((2, num_noise))
    try:
        # As in a run, what is not finite shows in the values, and only that of the first record counts.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.filterwarnings("error", message="Output seems independent of input")
            gradients = route(
                description.model,
                guide=description.guide,
                phi=np.full(dimension, 0.1) if phi is None else phi,
                standard_normal=noise,
                preconditioner=np.ones(dimension),
            )(batch)
        first: Array = gradients.weighted_rows(np.ones(len(batch.y)))[row]
    except NadpviError:
        raise
    except UserWarning as error:
        raise ModelError(f"{name} does not depend on theta, so that there is nothing to fit.") from error
    except Exception as error:  # a user's code may raise anything
        raise ModelError(
            f"{name} cannot be differentiated ({type(error).__name__}: {str(error).rstrip('.')}); "
            f"{_WRITE_DIFFERENTIABLY}"
        ) from error
    return first
