"""From a private run to a file: whatever happens, a trace that was paid for ends up on disk."""

import shlex
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from nadpvi.cli.console import print_json, print_text, say
from nadpvi.containers.release import Release
from nadpvi.errors import FileError
from nadpvi.interrupts import RunInterrupted

__all__ = ["make_and_save", "report_release", "save_release"]


def make_and_save(
    make: Callable[[], Release],
    *,
    output: Path,
    overwrite: bool,
    checkpoint: Path | None,
    table: Path,
) -> Release:
    """Return what `make` gives, saved; its checkpoint is deleted once the whole release is on disk.

    Raises
    ------
    RunInterrupted
        If `make` was interrupted; the partial release is on disk then, and a line on stderr says so.
    """
    try:
        made = make()
    except RunInterrupted as stop:
        # From here on the partial trace is all there is; a second signal must not cost it.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        written = save_release(stop.release, output, overwrite=overwrite)
        spent = (
            ""
            if stop.release.guarantee is None
            else f"epsilon {stop.release.guarantee.epsilon:.4g} is spent; "
        )
        again = ""
        if checkpoint is not None and stop.steps_left:
            again = "; go on with: " + shlex.join(
                ["nadpvi", "resume", str(checkpoint), str(table), "-o", str(output), "--force"]
            )
        say(f"nadpvi: {stop}; {spent}partial release: {written}{again}")
        raise
    save_release(made, output, overwrite=overwrite)
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return made


def save_release(made: Release, path: Path, *, overwrite: bool) -> Path:
    """Write a release; if its place fails after the budget was spent, write it to the temporary folder.

    Raises
    ------
    FileError
        If the intended place failed. The message names the rescued file.
    """
    try:
        return made.save(path, overwrite=overwrite)
    except FileError as error:
        try:
            folder = Path(tempfile.mkdtemp(prefix="nadpvi-rescued-"))
            rescued = made.save(folder / "release.nc")
        except OSError as second:
            raise FileError(f"{error} Nor could it be kept in the temporary folder: {second}") from second
        raise FileError(f"{error} The release was written to {rescued} instead; keep it.") from error


def report_release(made: Release, written: Path, *, as_json: bool) -> None:
    """Print what was promised and where the release is."""
    assert made.guarantee is not None  # every release of ours carries one
    if as_json:
        print_json({"release": str(written), "guarantee": made.guarantee.to_dict()})
    else:
        print_text(made.guarantee.sentence())
        print_text(f"release: {written}")
