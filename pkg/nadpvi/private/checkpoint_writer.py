"""A checkpoint that follows its run, and what happens where it cannot be written. Private side."""

import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nadpvi.attempts import mark_spent, note_steps
from nadpvi.errors import FileError, PrivacyError
from nadpvi.private.checkpoint import Checkpoint

__all__ = ["CheckpointWriter"]

Array = NDArray[np.float64]

_SECONDS_BETWEEN_WRITES = 10.0


class CheckpointWriter:
    """Keeps a checkpoint file up to date while a run goes on.

    Parameters
    ----------
    path : Path
        The file.
    start : Checkpoint
        Where the run stands now.
    """

    def __init__(self, path: Path, start: Checkpoint) -> None:
        self._path = path
        self._start = start
        self._due = time.monotonic() + _SECONDS_BETWEEN_WRITES
        self._has_failed = False

    def offer(self, phi: Array, noisy_gradient: Array) -> None:
        """Write the trace so far, arrays of shape (t, D), if the last writing is long enough ago."""
        if time.monotonic() >= self._due:
            self.write(phi, noisy_gradient)

    def write(self, phi: Array, noisy_gradient: Array) -> None:
        """Write the trace so far, arrays of shape (t, D) with t >= 1.

        A disk that cannot take it must not cost the run itself: that is said once, and the run goes on.
        """
        try:
            replace(self._start, phi=phi, noisy_gradient=noisy_gradient).save(self._path)
            note_steps(self._start.attempt, len(phi))
        except FileError as error:
            if not self._has_failed:
                warnings.warn(f"no checkpoint was written: {error}", UserWarning, stacklevel=2)
            self._has_failed = True
        else:
            self._has_failed = False
        self._due = time.monotonic() + _SECONDS_BETWEEN_WRITES

    def finish(self, phi: Array, noisy_gradient: Array) -> None:
        """Write the trace with which the run ends, arrays of shape (t, D) with t >= 1.

        The trace is about to be published. If it cannot be written, an older checkpoint must not be resumed,
        because that would give the steps after it a second time: it is deleted.
        """
        self.write(phi, noisy_gradient)
        if self._has_failed:
            self._path.unlink(missing_ok=True)
            warnings.warn(f"{self._path} was deleted, as it is older than the release.", stacklevel=2)

    def give_up(self) -> None:
        """Record that the run failed: its steps are spent, and it must not be resumed."""
        try:
            mark_spent(self._start.attempt)
        except (FileError, PrivacyError):
            self._path.unlink(missing_ok=True)
            warnings.warn(f"{self._path} was deleted, as its run has ended.", stacklevel=2)
