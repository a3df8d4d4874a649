"""Which checkpoints of interrupted runs have been used: one that is resumed twice would spend twice.

Every continuation of a run is an *attempt* with a random name of its own. While it runs, it holds a lock,
which the system frees if the process is killed; once it has been resumed, or has finished, it is marked as
spent. Both are files in the user's state folder, so that a copy of a checkpoint is known as well as the
original. A copy on another machine is not: a data set's ledger counts what is resumed there.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_state_path

from nadpvi.errors import FileError, PrivacyError

__all__ = ["STATE_DIR_VARIABLE", "check_unspent", "hold_attempt", "mark_spent"]

STATE_DIR_VARIABLE = "NADPVI_STATE_DIR"


@contextlib.contextmanager
def hold_attempt(attempt: str) -> Iterator[None]:
    """Keep every other process of this user from running or resuming an attempt.

    Raises
    ------
    PrivacyError
        If another process runs it now.
    FileError
        If the state folder cannot be written.
    """
    path = _file(attempt, "lock")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise PrivacyError("the run behind this checkpoint is still going on; let it end first.") from None
    except OSError as error:
        raise FileError(f"cannot lock {path}: {error.strerror or error}.") from error
    try:
        yield
    finally:
        lock.release()


def check_unspent(attempt: str) -> None:
    """Raise `PrivacyError` if an attempt was resumed, or finished, before."""
    if _file(attempt, "spent").exists():
        raise PrivacyError(
            "this checkpoint was resumed or finished before, and a second continuation would spend its "
            "budget twice; resume the newest checkpoint, or start a new run."
        )


def mark_spent(attempt: str) -> None:
    """Record, on disk, that an attempt must not be resumed any more.

    Raises
    ------
    FileError
        If the state folder cannot be written.
    """
    path = _file(attempt, "spent")
    try:
        path.touch()
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}.") from error


def _file(attempt: str, suffix: str) -> Path:
    """Return the path of one of an attempt's files; its folder is made if need be."""
    if not re.fullmatch(r"[0-9a-f]{32}", attempt):
        raise FileError("the checkpoint's name of its attempt is damaged.")
    chosen = os.environ.get(STATE_DIR_VARIABLE)
    folder = (Path(chosen) if chosen else user_state_path("nadpvi")) / "attempts"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"cannot make the folder {folder}, where resumed checkpoints are noted: "
            f"{error.strerror or error}; set {STATE_DIR_VARIABLE} to one that is writable."
        ) from error
    return folder / f"{attempt}.{suffix}"
