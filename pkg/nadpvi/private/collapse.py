"""Identical encoded rows merged into one row with a count. Private side."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CountedRows", "collapsed"]

_CHUNK = 2**16
# Odd 64-bit constants that mix a row's words into one; nothing but speed hangs on them.
_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)


class CountedRows(NamedTuple):
    """Features (R, F), outcomes (R,) and how many records each row stands for (R,). Private."""

    x: NDArray[np.float32] | NDArray[np.float64]
    y: NDArray[np.float64]
    counts: NDArray[np.int64]

    def __repr__(self) -> str:
        return "CountedRows(private)"


def collapsed(rows: CountedRows) -> CountedRows:
    """Return the rows with those of equal bits in x and y merged, in the order of their first appearance.

    Guarantees
    ----------
    - As a multiset of records, the result is the same table: whether two rows are merged is decided by
      comparing all their bits. The hash only brings candidates together; where two different rows share one,
      a row may come twice, each time with a part of its records.
    - If nothing is merged the arrays come back as they are.
    """
    hashes = _hashes(rows)
    order = np.argsort(hashes, kind="stable")
    is_new = np.ones(len(order), dtype=np.bool_)
    hashes = hashes[order]
    candidates = 1 + np.flatnonzero(hashes[1:] == hashes[:-1])
    for start in range(0, len(candidates), _CHUNK):
        later = candidates[start : start + _CHUNK]
        is_new[later] = ~_are_equal(rows, order[later], order[later - 1])
    if is_new.all():
        return rows
    starts = np.flatnonzero(is_new)
    counts = np.add.reduceat(rows.counts[order], starts)
    firsts = order[starts]
    by_appearance = np.argsort(firsts)
    firsts = firsts[by_appearance]
    return CountedRows(x=rows.x[firsts], y=rows.y[firsts], counts=counts[by_appearance])


def _bits(array: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.unsignedinteger]:
    """Return an array's bits as whole numbers of the same shape, without a copy."""
    return array.view(np.uint32 if array.dtype == np.float32 else np.uint64)


def _are_equal(rows: CountedRows, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which pairs of rows have equal bits in x and y."""
    x, y = _bits(rows.x), _bits(rows.y)
    equal: NDArray[np.bool_] = (y[first] == y[second]) & (x[first] == x[second]).all(axis=1)
    return equal


def _hashes(rows: CountedRows) -> NDArray[np.uint64]:
    """Return one number a row, equal for rows of equal bits."""
    hashes = np.empty(len(rows.y), dtype=np.uint64)
    for start in range(0, len(hashes), _CHUNK):
        part = slice(start, start + _CHUNK)
        mixed = _bits(rows.y[part]).astype(np.uint64)
        for words in _bits(rows.x[part]).T:
            mixed ^= mixed >> _SHIFT
            mixed *= _FACTOR
            mixed ^= words
        mixed ^= mixed >> _SHIFT
        hashes[part] = mixed * _FACTOR
    return hashes
