"""A model is tried on made-up records before any real one is read. Private side, but no private data.

What would void the guarantee or waste the budget shows here: a likelihood that does not give one number a
record, records that influence each other, values that are not finite at the prior.
"""

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.errors import ModelError, NadpviError, PrivacyError
from nadpvi.gradients import gradient_function
from nadpvi.models import RecordBatch

__all__ = ["check_model"]

Array = NDArray[np.float64]

_NUM_RECORDS = 7


def check_model(description: ModelDescription) -> None:
    """Raise unless the model behaves on made-up records as the mechanism needs.

    A finite test cannot prove that records never influence each other; the guarantee therefore also lists it
    among its assumptions.

    Raises
    ------
    ModelError
        If the model fails, or gives a wrong shape or values that are not finite.
    PrivacyError
        If one record's gradient changes when the others do.
    """
    rng = np.random.default_rng(0)
    num_params = len(description.names)
    batch = _made_up(rng, description)
    theta = rng.standard_normal((3, 1, num_params))
    name = f"{type(description.model).__name__}.log_likelihood"
    try:
        value = np.asarray(description.model.log_likelihood(theta, batch))
    except NadpviError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise ModelError(f"{name} failed on made-up records: {type(error).__name__}: {error}") from error
    if value.shape != (3, _NUM_RECORDS):
        raise ModelError(
            f"{name} must give one number a record: shape (3, {_NUM_RECORDS}) for 3 draws and {_NUM_RECORDS} "
            f"records (got {value.shape})."
        )
    if not np.isfinite(value).all():
        raise ModelError(f"{name} is not finite at ordinary values of the parameters.")
    _check_separate(description, batch=batch, rng=rng, name=name)


def _made_up(rng: np.random.Generator, description: ModelDescription) -> RecordBatch:
    """Return records that the design could have encoded: features in [0, 1], outcomes 0 or 1."""
    shape = (_NUM_RECORDS, description.design.num_features)
    return RecordBatch(x=rng.random(shape), y=rng.integers(0, 2, _NUM_RECORDS).astype(float))


def _check_separate(
    description: ModelDescription, *, batch: RecordBatch, rng: np.random.Generator, name: str
) -> None:
    """Raise if the first record's gradient depends on the records after it."""
    others = _made_up(rng, description)
    mixed = RecordBatch(
        x=np.vstack([batch.x[:1], others.x[1:]]), y=np.concatenate([batch.y[:1], 1.0 - batch.y[1:]])
    )
    first = _first_gradient(description, batch, name=name)
    if not np.array_equal(first, _first_gradient(description, mixed, name=name)):
        raise PrivacyError(
            f"{name} lets records influence each other: the gradient of one changes with the others. Each "
            "record's value must depend on that record and theta alone."
        )


def _first_gradient(description: ModelDescription, batch: RecordBatch, *, name: str) -> Array:
    """Return the first record's gradient by the route that a run would take."""
    num_params = len(description.names)
    dimension = description.guide.num_variational(num_params)
    noise = np.random.default_rng(1).standard_normal((2, num_params))
    try:
        gradients = gradient_function(
            description.model,
            guide=description.guide,
            phi=np.full(dimension, 0.1),
            standard_normal=noise,
            preconditioner=np.ones(dimension),
        )(batch)
        first: Array = gradients.weighted_rows(np.ones(len(batch.y)))[0]
    except NadpviError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise ModelError(
            f"{name} cannot be differentiated: {type(error).__name__}: {error}. Write it with autograd.numpy "
            "and without assignment to array elements."
        ) from error
    return first
