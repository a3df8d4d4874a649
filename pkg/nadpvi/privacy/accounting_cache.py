"""A disk cache for accounted numbers: one small JSON file a key.

Accounting takes up to seconds and is asked for the same few settings again and again. A cache can only
save time here, never change a number: an entry that cannot be read, or that was not written for exactly
these inputs and this version of the accountant, counts as absent.
"""

import contextlib
import functools
import hashlib
import json
import logging
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from nadpvi.folders import cache_dir

__all__ = ["ALGORITHM_VERSION", "cached_number", "dp_accounting_version"]

# Raise by one whenever a change to the accounting modules can change a number.
ALGORITHM_VERSION = 2

_logger = logging.getLogger(__name__)


@functools.lru_cache(maxsize=1)
def dp_accounting_version() -> str:
    """Return the version of the installed dp-accounting, without importing it."""
    return metadata.version("dp-accounting")


def cached_number(name: str, inputs: Mapping[str, float | str], *, compute: Callable[[], float]) -> float:
    """Return the number on disk for these inputs, or compute it and store it.

    Plain JSON on purpose, not one of the caching libraries: those store pickles, and a pickle that somebody
    else may have written runs code when it is read.

    Parameters
    ----------
    name : str
        What is computed; part of the key.
    inputs : mapping of str to float or str
        Every input that the number depends on.
    compute : callable
        Called without arguments when there is no entry. Its exceptions pass through; nothing is stored then.

    Returns
    -------
    float
        A finite number, identical with and without the cache.
    """
    key = {
        "name": name,
        "inputs": dict(inputs),
        "dp_accounting": dp_accounting_version(),
        "algorithm": ALGORITHM_VERSION,
    }
    path = cache_dir() / "accounting" / f"{_digest(key)}.json"
    stored = _read(path, key)
    if stored is not None:
        return stored
    value = compute()
    _write(path, key, value)
    return value


def _digest(content: Any) -> str:
    """Return a hash of JSON content that does not depend on the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _read(path: Path, key: dict[str, Any]) -> float | None:
    """Return the stored number if the entry is whole and was written for this key, else None."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        _logger.debug("ignored unreadable cache entry %s: %s", path, error)
        return None
    if isinstance(entry, dict) and entry.get("key") == key:
        value = entry.get("value")
        # The checksum catches a flipped digit that is still valid JSON.
        if isinstance(value, float) and math.isfinite(value) and entry.get("check") == _digest([key, value]):
            return value
    _logger.debug("ignored cache entry %s: not written for these inputs", path)
    return None


def _write(path: Path, key: dict[str, Any], value: float) -> None:
    """Store the number under a temporary name and rename it, so that readers never meet half a file."""
    text = json.dumps({"key": key, "value": value, "check": _digest([key, value])}, indent=1)
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except OSError as error:
        _logger.debug("could not store cache entry %s: %s", path, error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
