"""One file per finished task: whole or absent, and trusted only if it holds what the task asks for.

A file is a NumPy archive with the arrays and one more entry, a JSON header. Archives carry a checksum of
every entry, so that a damaged one shows; nothing in it is pickled.
"""

import contextlib
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nadpvi.containers.storage import package_versions, write_bytes
from nadpvi.errors import FileError
from nadpvi.experiments.tasks import Array, Outcome, Task

__all__ = ["Kept", "TaskFolder"]

# No array has this name: names of arrays are identifiers.
_HEADER = "nadpvi-task"
_KIND = "nadpvi task result"
_FORMAT_VERSION = 1

# What reading a damaged or foreign archive can raise.
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, struct.error, ValueError, KeyError, EOFError, OSError, TypeError,
    AttributeError, IndexError, NotImplementedError, RuntimeError, OverflowError, MemoryError,
)  # fmt: skip

# Libraries whose version decides the numbers.
_DECISIVE = ("nadpvi", "numpy", "scipy")


class _Content(NamedTuple):
    """A file's header and arrays."""

    header: Mapping[str, Any]
    arrays: dict[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kept:
    """What a folder holds of a run's tasks: results to use, and how many files are of no use, by reason."""

    outcomes: dict[str, Outcome]
    num_damaged: int
    num_outdated: int
    num_others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    """Where the results of one experiment are.

    Attributes
    ----------
    path : Path
        The folder; made where it is missing.
    experiment : str
        Whose results they are; those of another experiment are refused.
    function : str
        Name of the function that makes them; likewise.
    """

    path: Path
    experiment: str
    function: str

    def __post_init__(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"cannot make folder {self.path}: {reason}.") from error
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise FileError(f"folder {self.path} is not writable; choose another one.")

    def read(self, tasks: Sequence[Task]) -> Kept:
        """Return the results that are there already.

        Raises
        ------
        FileError
            If a task's file cannot be opened, or holds something else or a result of another experiment,
            which writing would replace.
        """
        present = {entry.name for entry in os.scandir(self.path) if entry.name.endswith(".npz")}
        outcomes: dict[str, Outcome] = {}
        num_damaged = num_outdated = 0
        for task in tasks:
            target = self._result(task.name)
            if target.name not in present:
                continue
            content = _read(target)
            if content is None:
                num_damaged += 1
            elif self._is_of(task, content.header, target):
                outcomes[task.name] = _to_outcome(task, content)
            else:
                num_outdated += 1
        return Kept(
            outcomes=outcomes,
            num_damaged=num_damaged,
            num_outdated=num_outdated,
            num_others=len(present - {self._result(task.name).name for task in tasks}),
        )

    def _is_of(self, task: Task, header: Mapping[str, Any], target: Path) -> bool:
        """Return whether a result is the task's, and raise `FileError` if it is somebody else's."""
        for key, ours in (("experiment", self.experiment), ("function", self.function)):
            if header.get(key) != ours:
                raise FileError(
                    f"{target} is a result of {header.get(key) or 'no experiment'}, not of {ours or 'none'}; "
                    "choose another folder, or delete this one."
                )
        # What other versions made may be other numbers, and would pass for those of these versions.
        made_by, now = header.get("versions"), package_versions()
        is_current = isinstance(made_by, Mapping) and all(made_by.get(k) == now[k] for k in _DECISIVE)
        return is_current and header.get("fingerprint") == task.fingerprint(self.function)

    def write(self, task: Task, outcome: Outcome) -> None:
        """Keep a result, or the reason why there is none.

        Raises
        ------
        FileError
            If the file cannot be written; what was there before stays.
        """
        if outcome.error:
            text = f"{outcome.error}\n\n{outcome.details}"
            write_bytes(text.encode(errors="backslashreplace"), self._failure(task.name), overwrite=True)
            return
        header = {
            "kind": _KIND,
            "format_version": _FORMAT_VERSION,
            "experiment": self.experiment,
            "function": self.function,
            "name": task.name,
            "settings": task.settings,
            "seed": task.seed,
            "fingerprint": task.fingerprint(self.function),
            "arrays": sorted(outcome.arrays),
            "seconds": outcome.seconds,
            "warnings": outcome.caught,
            "versions": package_versions(),
        }
        content = _to_bytes(_Content(header, outcome.arrays))
        write_bytes(content, self._result(task.name), overwrite=True)
        with contextlib.suppress(OSError):
            self._failure(task.name).unlink(missing_ok=True)

    def _result(self, name: str) -> Path:
        """Return where a task's arrays go."""
        return self.path / f"{name}.npz"

    def _failure(self, name: str) -> Path:
        """Return where the reason of a task's failure goes."""
        return self.path / f"{name}.failed.txt"


def _to_bytes(content: _Content) -> memoryview:
    """Return a NumPy archive."""
    buffer = io.BytesIO()
    header = np.frombuffer(json.dumps(content.header).encode(), dtype=np.uint8)
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in {_HEADER: header, **content.arrays}.items():
            # Entry by entry: `numpy.savez` has arguments of its own, which an array cannot be called.
            with archive.open(f"{name}.npy", "w") as entry:
                np.lib.format.write_array(entry, array)
    return buffer.getbuffer()


def _read(path: Path) -> _Content | None:
    """Return what a file of ours holds, or None if it is damaged; raise `FileError` if it is not ours."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}.") from error
    try:
        with np.load(io.BytesIO(raw)) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except _UNREADABLE:
        return None
    header = _header(arrays.pop(_HEADER, None))
    if header is None or header.get("kind") != _KIND or header.get("format_version") != _FORMAT_VERSION:
        raise FileError(f"{path} is not a result that this version of nadpvi made; choose another folder.")
    return _Content(header, arrays) if header.get("arrays") == sorted(arrays) else None


def _header(text: Array | None) -> Mapping[str, Any] | None:
    """Return the header in an archive's entry, or None."""
    if text is None or text.dtype != np.uint8:
        return None
    try:
        header = json.loads(text.tobytes())
    except (ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) else None


def _to_outcome(task: Task, content: _Content) -> Outcome:
    """Return the outcome that a file keeps."""
    header = content.header
    return Outcome(task.name, content.arrays, float(header["seconds"]), tuple(header["warnings"]))
