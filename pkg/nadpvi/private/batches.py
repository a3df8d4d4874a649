"""Sampled records in blocks of one shape, and a model's code run over them. Private side."""

import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.models.base import RecordBatch
from nadpvi.private.records import Records

__all__ = ["Block", "block_rows", "blocks", "evaluated"]

_T = TypeVar("_T")

# Rows per block times draws times parameters: 5 MB in the largest temporary, small enough to stay in cache
# where it matters and large enough to keep Python out of the way.
_BLOCK_VALUES = 600_000


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
