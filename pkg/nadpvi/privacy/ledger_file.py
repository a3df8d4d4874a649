"""The file behind a ledger: lines that are chained, read with suspicion, and only ever appended.

The first line says what the file is; the others are events:

- ``reserve``: a run is about to start; holds its planned guarantee. On disk before the first noisy step.
- ``commit``: the run finished. ``amend``: it was interrupted after so many steps. ``void``: it failed before
  any noisy gradient left the process.
- ``extend``: more of its steps were seen than it was amended to.
- ``repair``: a person has looked at a line that was cut off, and closed it.

Every line carries a checksum over itself and all lines before it, so that an edit, a repeated line or one
lost in the middle is refused. It guards against accidents, not against somebody who computes it anew, and no
file can show that whole lines are missing at its end: take care with old copies.

A last line without its end of line counts if it is whole, and is *torn* if it is not even JSON: power failed,
or the file was copied in part. It may have been a reservation, so nothing is added or summed up until a
person closes it; the lines before it can be read. In a living process a write that fails takes its own bytes
back.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nadpvi.errors import ArgumentError, FileError
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.ledger_entry import LedgerEntry, apply_event, check_label

__all__ = [
    "LedgerContents",
    "append_event",
    "create_file",
    "hold_lock",
    "now",
    "read_file",
    "repair_event",
]

_KIND = "nadpvi ledger"
_FORMAT_VERSION = 2  # version 1 had no neighbouring relation in its cap: it was add or remove one
_LOCK_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContents:
    """A ledger file as read: its header, its entries, and how it ends."""

    label: str
    cap: PrivacyBudget | None
    check: str
    entries: dict[str, LedgerEntry] = field(default_factory=dict)
    ends_line: bool = True
    torn: bytes = b""


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def create_file(path: Path, *, label: str, cap: PrivacyBudget | None) -> None:
    """Write the first line of a new ledger, or raise `FileError`; a file that exists is left alone."""
    header = {
        "kind": _KIND,
        "format_version": _FORMAT_VERSION,
        "time": now(),
        "label": label,
        "cap": None if cap is None else dataclasses.asdict(cap),
    }
    try:
        with open(path, "xb"):
            pass
    except FileExistsError:
        raise FileError(f"{path} exists, and a ledger is never replaced; choose another name.") from None
    except OSError as error:
        raise FileError(f"cannot create {path}: {error.strerror or error}.") from error
    try:
        _append(path, _encode(header, previous=""))
    except FileError:
        path.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Keep other processes and threads from writing to the ledger; raise `FileError` if that fails."""
    # Beside the ledger, as filelock truncates the file that it locks.
    lock = FileLock(path.with_name(f"{path.name}.lock"))
    try:
        lock.acquire(timeout=_LOCK_SECONDS)
    except Timeout:
        raise FileError(f"{path} has been locked by another process for two minutes; try later.") from None
    except OSError as error:
        raise FileError(f"cannot lock {path}: {error.strerror or error}.") from error
    try:
        yield
    finally:
        lock.release()


def append_event(path: Path, contents: LedgerContents, event: dict[str, Any]) -> None:
    """Append an event to a file that holds `contents`, flushed to disk, or raise `FileError`.

    The caller holds the lock since it read them.
    """
    line = _encode(event, previous=contents.check)
    _append(path, line if contents.ends_line else b"\n" + line)


def repair_event(torn: bytes) -> dict[str, Any]:
    """Return the event that closes a torn line, which it names by its hash."""
    return {"event": "repair", "time": now(), "sha256": hashlib.sha256(torn).hexdigest()}


def read_file(path: Path) -> LedgerContents:
    """Return what a ledger file holds.

    Raises
    ------
    FileError
        If it is missing, no ledger, from a newer version, or if a line is not what was written.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"{path} does not exist; create a ledger with --create or Ledger.create.") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}.") from error
    *lines, tail = data.split(b"\n")
    contents = _read_header(path, lines[0] if lines else tail)
    if not lines:
        return replace(contents, ends_line=False)
    for number, line in enumerate(lines[1:], start=2):
        event = _decode(line, previous=contents.check)
        if event is None and number < len(lines):
            repair = _decode(lines[number], previous=contents.check)
            if repair is not None and repair.get("sha256") == hashlib.sha256(line).hexdigest():
                continue
        contents = _add(path, contents, event, number=number)
    if not tail:
        return contents
    event = _decode(tail, previous=contents.check)
    if event is None and not _is_json(tail):
        return replace(contents, ends_line=False, torn=tail)
    return replace(_add(path, contents, event, number=len(lines) + 1), ends_line=False)


def _read_header(path: Path, line: bytes) -> LedgerContents:
    """Return what the first line says: a ledger without entries."""
    if not line:
        raise FileError(f"{path} is empty: its creation was cut short. Delete it and create it again.")
    header = _parse(line)
    if header is None or header.get("kind") != _KIND:
        raise FileError(f"{path} is not a ledger, or its first line was cut off.")
    version = header.get("format_version")
    if isinstance(version, int) and version > _FORMAT_VERSION:
        raise FileError(
            f"{path} has format version {version}; this nadpvi reads up to {_FORMAT_VERSION}. "
            "Install a newer nadpvi."
        )
    if _decode(line, previous="") is None or version not in (1, _FORMAT_VERSION):
        raise FileError(_damaged(path, 1))
    try:
        cap = None if header["cap"] is None else PrivacyBudget(**header["cap"])
        return LedgerContents(label=check_label(header["label"]), cap=cap, check=header["check"])
    except (KeyError, TypeError, ArgumentError):
        raise FileError(_damaged(path, 1)) from None


def _add(
    path: Path, contents: LedgerContents, event: dict[str, Any] | None, *, number: int
) -> LedgerContents:
    """Return the contents after one more event, or raise `FileError` if it does not follow from them."""
    if event is None:
        raise FileError(_damaged(path, number))
    check = event.pop("check")
    if event.get("event") == "repair":
        return replace(contents, check=check)
    try:
        entry = apply_event(event, contents.entries)
    except ArgumentError as error:
        raise FileError(f"{path}, line {number}: {error}") from error
    return replace(contents, check=check, entries={**contents.entries, entry.id: entry})


def _damaged(path: Path, number: int) -> str:
    """Return the message for a line that is not what was written."""
    return f"{path}, line {number} is not what nadpvi wrote: it was edited or damaged. Restore the file."


def _append(path: Path, data: bytes) -> None:
    """Append bytes in one write and flush them to disk; if they do not fit, take them back."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            size = os.fstat(handle).st_size
            try:
                rest = data
                while rest:
                    rest = rest[os.write(handle, rest) :]
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, size)
                raise
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise FileError(f"cannot write to {path}: {error.strerror or error}.") from error


def _encode(record: dict[str, Any], *, previous: str) -> bytes:
    """Return the line of a record that follows a line with the checksum `previous`."""
    text = json.dumps(record, allow_nan=False)
    check = hashlib.sha256(f"{previous}{text}".encode()).hexdigest()
    return json.dumps({**record, "check": check}, allow_nan=False).encode() + b"\n"


def _decode(line: bytes, *, previous: str) -> dict[str, Any] | None:
    """Return the record in a line, with its checksum, or None if it is not exactly what `_encode` gave."""
    record = _parse(line)
    if record is None:
        return None
    rest = {key: value for key, value in record.items() if key != "check"}
    try:
        return record if _encode(rest, previous=previous) == line + b"\n" else None
    except ValueError:
        return None


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line, or None."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _is_json(line: bytes) -> bool:
    """Return whether a line is whole, whatever it holds."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
