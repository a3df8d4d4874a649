"""What this machine knows of interrupted runs: which checkpoints are the newest, and which have been used.

Every continuation of a run is an *attempt* with a random name of its own. While it runs, it holds a lock,
which the system frees if the process is killed. Beside the lock stand the number of steps in its newest
checkpoint, and a mark once it has been resumed, has finished or has failed: from then on it must not be
resumed, since the same steps would be drawn twice. All are files in the user's state folder, so that a copy
of a checkpoint is known as well as the original. A copy taken to another machine is not: there a data set's
ledger counts what is resumed.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_state_path

from nadpvi.errors import FileError, PrivacyError

__all__ = ["STATE_DIR_VARIABLE", "check_usable", "hold_attempt", "is_known", "mark_spent", "note_steps"]

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


def note_steps(attempt: str, num_steps: int) -> None:
    """Record, on disk, that somebody may have seen `num_steps` steps of an attempt.

    Raises
    ------
    FileError
        If the state folder cannot be written.
    """
    path = _file(attempt, "steps")
    aside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        _write(aside, str(num_steps))
        os.replace(aside, path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise FileError(f"cannot write {path}: {error.strerror or error}.") from error


def is_known(attempt: str) -> bool:
    """Return whether an attempt was started by this user on this machine, and may still be resumed."""
    return _file(attempt, "steps").exists() and not _file(attempt, "spent").exists()


def check_usable(attempt: str, *, num_steps: int, to_resume: bool) -> None:
    """Raise `PrivacyError` if a checkpoint with `num_steps` steps is not the newest, or must not be resumed.

    An older copy would give the steps after it a second time.
    """
    if to_resume and _file(attempt, "spent").exists():
        raise PrivacyError(
            "this checkpoint was resumed or finished before, or its run failed, and a second continuation "
            "would spend its budget twice; resume the newest checkpoint, or start a new run."
        )
    path = _file(attempt, "steps")
    try:
        newest = int(path.read_text()) if path.exists() else 0
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}, which tells the newest checkpoint: {error}.") from error
    if num_steps < newest:
        raise PrivacyError(
            f"this is an older copy of a checkpoint, with {num_steps} steps where the run has {newest}; use "
            "the newest one, or start a new run."
        )


def mark_spent(attempt: str) -> None:
    """Record, on disk and once, that an attempt must not be resumed any more.

    Raises
    ------
    PrivacyError
        If that is on record already.
    FileError
        If the state folder cannot be written.
    """
    path = _file(attempt, "spent")
    try:
        _write(path, "")
    except FileExistsError:
        raise PrivacyError("this checkpoint is being used elsewhere; start a new run.") from None
    except OSError as error:
        raise FileError(f"cannot write {path}: {error.strerror or error}.") from error


def _write(path: Path, text: str) -> None:
    """Make a file that must not exist yet, and see it safely on disk."""
    with open(path, "x") as handle:
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
