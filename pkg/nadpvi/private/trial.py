"""A model's code called on made-up records, with messages that name it. Private side, but no private data."""

import warnings
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.errors import ModelError, NadpviError
from nadpvi.made_up import made_up_records, prior_draws
from nadpvi.models.base import RecordBatch
from nadpvi.models.custom import CustomModel
from nadpvi.private.gradients import GradientFunction, gradient_function

__all__ = [
    "NUM_RECORDS",
    "finite_first",
    "first_gradient",
    "gradient_rows",
    "made_up",
    "name_of",
    "tried",
    "value_of",
]

_T = TypeVar("_T")
Array = NDArray[np.float64]

NUM_RECORDS = 7
_WRITE_DIFFERENTIABLY = (
    "write it with autograd.numpy (and autograd.scipy) and without assignment to array elements."
)


def name_of(description: ModelDescription, role: str) -> str:
    """Return what the author of a model calls one of its functions."""
    model = description.model
    return (
        model.functions.name_of(role) if isinstance(model, CustomModel) else f"{type(model).__name__}.{role}"
    )


def made_up(description: ModelDescription, *, rng: np.random.Generator) -> RecordBatch:
    """Return records that the design could have encoded, each from its own draw of theta."""
    model, design, name = description.model, description.design, name_of(description, "simulate")
    theta = prior_draws(model, design, num_draws=NUM_RECORDS, rng=rng)
    batch = tried(
        lambda: made_up_records(model, design, theta=theta, num_records=NUM_RECORDS, rng=rng), name=name
    )
    if batch.y.shape != (NUM_RECORDS,):
        raise ModelError(
            f"{name} must give one outcome a record: shape ({NUM_RECORDS},) for {NUM_RECORDS} records (got "
            f"{batch.y.shape})."
        )
    if not np.isfinite(batch.y).all():
        raise ModelError(f"{name} draws outcomes that are not finite at ordinary values of the parameters.")
    return batch


def value_of(description: ModelDescription, theta: Array, batch: RecordBatch, *, name: str) -> Array:
    """Return the log likelihood of each record under each theta, shape (S, B) if the model is sound."""
    draws, records = theta[:, None, :].copy(), RecordBatch(x=batch.x.copy(), y=batch.y.copy())
    for array in (draws, *records):
        array.flags.writeable = False
    return np.asarray(tried(lambda: description.model.log_likelihood(draws, records), name=name))


def tried(call: Callable[[], _T], *, name: str) -> _T:
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


def finite_first(description: ModelDescription, batch: RecordBatch, *, name: str) -> Array:
    """Return the first record's gradient, or raise if it is not finite."""
    first = first_gradient(description, batch, name=name)
    if not np.isfinite(first).all():
        raise ModelError(f"{name} has a gradient that is not finite at ordinary values of the parameters.")
    return first


def first_gradient(
    description: ModelDescription,
    batch: RecordBatch,
    *,
    name: str,
    route: Callable[..., GradientFunction] = gradient_function,
    phi: Array | None = None,
    row: int = 0,
) -> Array:
    """Return one record's gradient, by default the first's on the way that a run would take."""
    gradient: Array = gradient_rows(description, batch, name=name, route=route, phi=phi)[row]
    return gradient


def gradient_rows(
    description: ModelDescription,
    batch: RecordBatch,
    *,
    name: str,
    route: Callable[..., GradientFunction] = gradient_function,
    phi: Array | None = None,
) -> Array:
    """Return each record's gradient, (B, D), by default on the way that a run would take."""
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
        rows: Array = gradients.weighted_rows(np.ones(len(batch.y)))
    except NadpviError:
        raise
    except UserWarning as error:
        raise ModelError(f"{name} does not depend on theta, so that there is nothing to fit.") from error
    except Exception as error:  # a user's code may raise anything
        raise ModelError(
            f"{name} cannot be differentiated ({type(error).__name__}: {str(error).rstrip('.')}); "
            f"{_WRITE_DIFFERENTIABLY}"
        ) from error
    return rows
