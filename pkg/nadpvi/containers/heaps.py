"""Damage in a netCDF file on which the HDF5 library never returns."""

import struct

__all__ = ["has_endless_heap"]

# HDF5's "global heap" holds texts and lists of varying length: signature, version 1, three zeros, size in
# bytes; then objects of a place, a count of references, four zeros and a size, each padded to eight bytes.
_HEAP = b"GCOL\x01\x00\x00\x00"
_SIZE, _OBJECT = struct.Struct("<Q"), struct.Struct("<HHIQ")
_FREE = 0


def has_endless_heap(content: bytes) -> bool:
    """Return whether a file's heap has free space of no size, from which the library does not go on.

    Examples
    --------
    >>> heap = b"GCOL" + bytes([1, 0, 0, 0]) + bytes([48]) + bytes(7)
    >>> has_endless_heap(heap + bytes(8) + bytes([32]) + bytes(23))
    False
    >>> has_endless_heap(heap + bytes(32))
    True
    """
    start = content.find(_HEAP)
    while start >= 0:
        place = start + len(_HEAP) + _SIZE.size
        if place > len(content):
            return False
        stop = min(start + _SIZE.unpack_from(content, start + len(_HEAP))[0], len(content))
        while place + _OBJECT.size <= stop:
            index, _, _, size = _OBJECT.unpack_from(content, place)
            if index == _FREE and size == 0:
                return True
            place += size if index == _FREE else _OBJECT.size + -(-size // 8) * 8
        start = content.find(_HEAP, start + 1)
    return False
