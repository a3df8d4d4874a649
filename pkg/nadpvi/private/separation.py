"""Whether records influence each other, tried on made-up ones. Private side, but no private data."""

import contextlib
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from nadpvi.description import ModelDescription
from nadpvi.errors import ModelError, PrivacyError
from nadpvi.models.base import RecordBatch
from nadpvi.private.trial import NUM_RECORDS, finite_first, first_gradient, made_up, value_of

__all__ = ["check_crowd", "check_places", "check_separate"]

Array = NDArray[np.float64]

_CROWD_PARTS = 4


def check_separate(
    description: ModelDescription,
    batch: RecordBatch,
    *,
    edges: Iterable[RecordBatch],
    name: str,
    rng: np.random.Generator,
) -> None:
    """Raise if the first record's gradient depends on the records after it."""
    first = finite_first(description, batch, name=name)
    others = _companions(description, batch, rng=rng)
    found = [first_gradient(description, other, name=name) for other in others]
    for edge in edges:
        # A model may look for values that only a table has which reaches the bounds. That it fails there is
        # told elsewhere.
        with contextlib.suppress(ModelError):
            company = _with_first(batch, x=edge.x, y=edge.y)
            found.append(first_gradient(description, company, name=name))
    if not all(np.array_equal(first, other) for other in found):
        raise PrivacyError(
            f"{name} lets records influence each other: the gradient of one changes with the others. "
            "Each record's value must depend on that record and theta alone."
        )


def check_places(
    description: ModelDescription, *, num_records: int, name: str, rng: np.random.Generator
) -> None:
    """Raise if a record's gradient changes with its place in a block, its company, or what came before.

    The block is as long as a run's. Last bits are not compared: they are the matrix product's.
    """
    others = [made_up(description, rng=rng) for _ in range(_CROWD_PARTS)]
    crowd, _ = _crowd(others, num_records=num_records, rng=rng)
    record = made_up(description, rng=rng)
    # As a run fills up a block that has one record only.
    alone = RecordBatch(x=np.repeat(record.x[:1], num_records, axis=0), y=np.full(num_records, record.y[0]))
    expected = first_gradient(description, alone, name=name)
    for place in (0, num_records // 2, num_records - 1):
        for company in (crowd, alone):
            batch = RecordBatch(x=company.x.copy(), y=company.y.copy())
            batch.x[place], batch.y[place] = record.x[0], record.y[0]
            found = first_gradient(description, batch, name=name, row=place)
            if not np.allclose(found, expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max()):
                raise PrivacyError(
                    f"{name} lets records influence each other: the gradient of one changes with its place, "
                    "with the others, or with earlier calls. It must depend on that record and theta alone."
                )


def check_crowd(
    description: ModelDescription, theta: Array, *, num_records: int, name: str, rng: np.random.Generator
) -> None:
    """Raise if a record's log likelihood changes in a block as long as those of a private score."""
    others = [made_up(description, rng=rng) for _ in range(_CROWD_PARTS)]
    known = np.hstack([value_of(description, theta, other, name=name) for other in others])
    crowd, chosen = _crowd(others, num_records=num_records, rng=rng)
    expected = known[:, chosen]
    if not np.allclose(value_of(description, theta, crowd, name=name), expected, rtol=1e-9, atol=1e-12):
        raise PrivacyError(
            f"{name} gives a record another value among {num_records} records: do not use its place, the "
            "number of records, or any figure of the batch."
        )


def _crowd(
    others: list[RecordBatch], *, num_records: int, rng: np.random.Generator
) -> tuple[RecordBatch, NDArray[np.int64]]:
    """Return as many records as asked for, drawn from those of several batches, and which they are."""
    x, y = np.vstack([other.x for other in others]), np.concatenate([other.y for other in others])
    chosen = rng.integers(len(y), size=num_records)
    return RecordBatch(x=x[chosen], y=y[chosen]), chosen


def _companions(
    description: ModelDescription, batch: RecordBatch, *, rng: np.random.Generator
) -> Iterator[RecordBatch]:
    """Yield batches of one shape that have only their first record in common."""
    for _ in range(3):
        other = made_up(description, rng=rng)
        yield _with_first(batch, x=other.x, y=other.y)
    # All rows from one extreme: whatever figure of the batch a model uses, one of these moves it.
    for row in (np.argmin(batch.y), np.argmax(batch.y)):
        yield _with_first(
            batch, x=np.repeat(batch.x[[row]], NUM_RECORDS, axis=0), y=np.full(NUM_RECORDS, batch.y[row])
        )
    # What fills the rest of a block in a run.
    yield RecordBatch(x=np.repeat(batch.x[:1], NUM_RECORDS, axis=0), y=np.full(NUM_RECORDS, batch.y[0]))


def _with_first(batch: RecordBatch, *, x: Array, y: Array) -> RecordBatch:
    """Return the records (x, y) with the first one replaced by that of `batch`."""
    return RecordBatch(x=np.vstack([batch.x[:1], x[1:]]), y=np.concatenate([batch.y[:1], y[1:]]))
