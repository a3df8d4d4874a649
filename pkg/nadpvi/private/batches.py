"""Sampled records in blocks of one shape, and a model's code run over them. Private side."""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nadpvi.models.base import RecordBatch
from nadpvi.private.records import Records

__all__ = ["Block", "Workspace", "block_rows", "blocks", "evaluated"]

_T = TypeVar("_T")
Array = NDArray[np.float64]

# Rows per block times draws times parameters: with ten draws, a block's features take 240 KB, so that the
# few arrays of that size which a block needs stay in a core's own cache while one pass after another runs
# over them. 512 rows at 57 parameters.
_BLOCK_VALUES = 300_000

# A batch of 500 nearly always fits, and half of it would not be padding.
_MOST_ROWS = 640

_CACHE_LINE = 64  # bytes


class Block(NamedTuple):
    """A batch of fixed shape whose first `num_records` rows are records; the rest repeat the first. Private.

    `multiplicities` (B,), if there are any, says how many times each row counts; the padding's are zero.
    """

    batch: RecordBatch
    num_records: int
    multiplicities: Array | None = None

    def __repr__(self) -> str:
        return "Block(private)"


class Workspace:
    """Arrays that one run uses again at every step, by name. Private; for one thread."""

    __slots__ = ("_arrays",)

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def array(self, name: str, shape: tuple[int, ...], *, dtype: Any = np.float64) -> NDArray[Any]:
        """Return the array of a name, its content that of the last use; a new one if the shape is new."""
        array = self._arrays.get(name)
        if array is None or array.shape != shape or array.dtype != dtype:
            array = self._arrays[name] = _aligned(shape, dtype=np.dtype(dtype))
        return array

    def __repr__(self) -> str:
        return "Workspace(private)"


def _aligned(shape: tuple[int, ...], *, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an empty array that starts where a cache line does, for the sake of speed."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _CACHE_LINE, dtype=np.uint8)
    start = -memory.ctypes.data % _CACHE_LINE
    array: NDArray[Any] = memory[start : start + size].view(dtype).reshape(shape)
    return array


def block_rows(draw_values: int) -> int:
    """Return how many rows each block has: a multiple of 64, fixed by `draw_values` alone.

    That is the most values that a record needs at once: S * K, or D if that is more. At most 640 rows:
    padding costs as much as records do, and a small model's batches are small. At least 64: with fewer, a
    matrix product could treat a row by its place among them.
    """
    return max(64, min(_MOST_ROWS, _BLOCK_VALUES // draw_values // 64 * 64))


def blocks(
    records: Records,
    rows: NDArray[np.int64],
    *,
    num_rows: int,
    multiplicities: NDArray[np.int64] | None = None,
    workspace: Workspace | None = None,
) -> Iterator[Block]:
    """Yield the sampled rows in padded float64 blocks of one shape; nothing for an empty batch.

    The shape must not depend on the batch: a matrix product picks its kernel by shape, so that otherwise one
    record's arrival could move the last bit of another's gradient, and truncation a whole grid unit.

    Parameters
    ----------
    records : Records
        Private.
    rows : ndarray of int64, shape (B,)
        Which rows of `records`.
    num_rows : int
        How many rows each block has.
    multiplicities : ndarray of int64, shape (B,), optional
        How many times each row counts; once when omitted.
    workspace : Workspace, optional
        Keeps the blocks' memory from step to step.
    """
    kept = Workspace() if workspace is None else workspace
    # One buffer serves all blocks of a step: each is used up before the next is asked for.
    x, y = kept.array("x", (num_rows, records.x.shape[1])), kept.array("y", (num_rows,))
    times = None if multiplicities is None else kept.array("times", (num_rows,))
    for start in range(0, len(rows), num_rows):
        chosen = rows[start : start + num_rows]
        for stored, out, name in ((records.x, x, "stored x"), (records.y, y, "stored y")):
            if not out.size:  # a model without features
                continue
            _gather(stored, chosen, out=out, buffer=_buffer(kept, stored, out, name))
        if times is not None and multiplicities is not None:
            times[: len(chosen)] = multiplicities[start : start + num_rows]
            times[len(chosen) :] = 0.0
        yield Block(RecordBatch(x=x, y=y), len(chosen), times)


def _buffer(workspace: Workspace, stored: NDArray[Any], out: Array, name: str) -> NDArray[Any]:
    """Return where records are gathered in the type of their storage: in the block itself, if it is that."""
    return out if stored.dtype == out.dtype else workspace.array(name, out.shape, dtype=stored.dtype)


def _gather(stored: NDArray[Any], chosen: NDArray[np.int64], *, out: Array, buffer: NDArray[Any]) -> None:
    """Fill a block with the chosen records and, below them, the first of them again.

    What the padding gives is masked. It is a record of the block, so that a model which raises on other
    values, on zeros say, fails by a record of the block and by nothing else: or else a block with padding
    would be lost where one more record, which leaves none, would bring all of it back.
    """
    # An index is in range by its making; "clip" spares the check, and a copy that the check would need.
    stored.take(chosen, axis=0, out=buffer[: len(chosen)], mode="clip")
    if buffer is not out:
        out[: len(chosen)] = buffer[: len(chosen)]
    out[len(chosen) :] = out[0]


def evaluated(block: Block, evaluate: Callable[[RecordBatch], _T]) -> Iterator[tuple[_T, Block]]:
    """Yield what a model's code gives for a block, and the block that it is of.

    Where it raises, the block is halved, in the same padded shape, until what fails stands alone; that
    row is left out. Errors and warnings are dropped: they may show a record.
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
        yield result, block
        return
    for start, stop in parts:
        yield from evaluated(_part(block, start, stop), evaluate)


def _part(block: Block, start: int, stop: int) -> Block:
    """Return some records of a block as a block of the same shape."""
    batch, times = block.batch, block.multiplicities
    return Block(
        RecordBatch(x=_moved(batch.x, start, stop), y=_moved(batch.y, start, stop)),
        stop - start,
        None if times is None else _moved(times, start, stop, padding=0.0),
    )


def _moved(whole: Array, start: int, stop: int, *, padding: float | None = None) -> Array:
    """Return some rows at the top of an array of one shape, and the first of them, or a number, below."""
    part = np.empty_like(whole)
    part[: stop - start] = whole[start:stop]
    part[stop - start :] = whole[start] if padding is None else padding
    return part
