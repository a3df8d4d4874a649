"""A checksum in a file's header, over all that the file holds.

It finds damage, and edits by somebody who did not mean to forge: whoever does can compute it anew, so that it
proves nothing about where a file comes from. Sign files that must not be forged.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import xarray as xr

__all__ = ["CHECKSUM", "HEADER", "is_intact", "with_checksum"]

# One attribute holds everything that is not an array: netCDF attributes cannot hold None, bool or dicts.
HEADER = "nadpvi_header"
CHECKSUM = "sha256"

_Data = TypeVar("_Data", xr.Dataset, xr.DataTree)


def with_checksum(data: _Data) -> _Data:
    """Return a file's content with the checksum of its arrays and its header in the header."""
    header = json.loads(data.attrs[HEADER])
    made = data.copy()
    made.attrs[HEADER] = json.dumps(header | {CHECKSUM: _digest(data, header)})
    return made


def is_intact(data: xr.DataTree, header: dict[str, Any]) -> bool:
    """Return whether what a file holds has the checksum in its header."""
    return header.get(CHECKSUM) == _digest(data, header)


def _digest(data: xr.Dataset | xr.DataTree, header: dict[str, Any]) -> str:
    """Return SHA-256 over the header and every variable's place, name, dims, dtype, shape and bytes."""
    found = hashlib.sha256()
    public = {key: value for key, value in header.items() if key != CHECKSUM}
    found.update(json.dumps(public, sort_keys=True).encode())
    for place, dataset in _datasets(data):
        for name in sorted(map(str, dataset.variables)):
            variable = dataset.variables[name]
            dtype, content = _content(variable.to_numpy())
            about = [place, name, list(map(str, variable.dims)), dtype, list(variable.shape), len(content)]
            found.update(json.dumps(about).encode())
            found.update(content)
    return found.hexdigest()


def _datasets(data: xr.Dataset | xr.DataTree) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield the groups of a file in the order of their paths, each with its own variables only."""
    if isinstance(data, xr.Dataset):
        yield "/", data
        return
    for node in sorted(data.subtree, key=lambda node: node.path):
        yield node.path, node.to_dataset(inherit=False)


def _content(values: Any) -> tuple[str, Any]:
    """Return what an array's numbers or texts are called and their bytes, whatever the machine."""
    array = np.asarray(values)
    if array.dtype.kind in "OUT":
        return "text", json.dumps([str(item) for item in array.ravel()]).encode()
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return array.dtype.str, array.tobytes()
