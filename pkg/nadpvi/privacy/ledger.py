"""The ledger of a data set: every run that spends privacy on it, and the cap on all of them together.

A run is *reserved* before its first noisy step and *settled* afterwards: committed, amended to the steps that
were really drawn, or voided. A reservation counts in full until it is settled, so that a killed run can only
be over-counted. The file is described in `nadpvi.privacy.ledger_file`.
"""

import contextlib
import os
import secrets
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nadpvi.errors import ArgumentError, FileError
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.composition import composed_epsilon
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.ledger_entry import EntryState, LedgerEntry, apply_event, check_label
from nadpvi.privacy.ledger_file import (
    LedgerContents,
    append_event,
    create_file,
    hold_lock,
    now,
    read_file,
    repair_event,
)
from nadpvi.privacy.ledger_rules import check_run, counted_runs, event_on, part_of, total_relation
from nadpvi.privacy.parameters import check_delta, check_num_steps

__all__ = ["EntryState", "Ledger", "LedgerEntry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The runs on one data set, in an append-only file that several processes may share.

    Make one with `Ledger.create` or `Ledger.open`. Every call reads the file anew; a lock file with ``.lock``
    added to its name lies beside it.

    Parameters
    ----------
    path : Path
        The file.
    label : str
        The user's own name for the data set.
    cap : PrivacyBudget or None
        What all runs together may spend.

    Examples
    --------
    >>> import tempfile
    >>> from nadpvi.privacy.guarantee_maker import make_guarantee
    >>> planned = make_guarantee(
    ...     budget=PrivacyBudget(epsilon=1, delta=1e-5), noise_multiplier=40.0, num_steps=100,
    ...     sampling_rate=1, clip_norm=1.0, mechanism="discrete Gaussian", assumed_public=("schema",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger.create(f"{folder}/people.ledger", label="people")
    ...     for name in ("first", "second"):
    ...         ledger.commit(ledger.reserve(planned, label=name))
    ...     print(f"{planned.epsilon:.4f} {ledger.total():.4f}")
    0.9263 1.3565
    """

    path: Path
    label: str
    cap: PrivacyBudget | None

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], *, label: str, cap: PrivacyBudget | None = None
    ) -> "Ledger":
        """Return a new, empty ledger. Its label is public.

        Raises
        ------
        ArgumentError
            If the label is not one line of text, or the cap no `PrivacyBudget`.
        FileError
            If the file exists or cannot be written.
        """
        if not isinstance(cap, PrivacyBudget | None):
            raise ArgumentError(f"cap must be a PrivacyBudget(epsilon=, delta=) (got {type(cap).__name__}).")
        target = Path(path).resolve()
        create_file(target, label=check_label(label), cap=cap)
        return cls.open(target)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Ledger":
        """Return the ledger in a file.

        Raises
        ------
        FileError
            If the file is missing, is no ledger, was edited, or comes from a newer version.
        """
        # Resolved, so that two names of one file share one lock.
        target = Path(path).resolve()
        contents = read_file(target)
        return cls(path=target, label=contents.label, cap=contents.cap)

    @property
    def is_torn(self) -> bool:
        """Whether the last line is cut off, so that `repair` is needed."""
        return bool(self._read().torn)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Return all runs in the order in which they were reserved."""
        return tuple(self._read().entries.values())

    def total_delta(self) -> float | None:
        """Return the delta of `total`: the cap's, else the smallest of the runs that count, else None."""
        if self.cap is not None:
            return self.cap.delta
        return min((entry.guarantee.delta for entry in self.entries() if entry.is_counted), default=None)

    def total_relation(self) -> str:
        """Return the neighbouring relation of `total`.

        The cap's; without a cap "replace_one" if any run that counts states it, else "add_or_remove_one".
        """
        return total_relation(self._read())

    def unit(self) -> str | None:
        """Return what all runs that count protect, "one record" or "one person"; None without runs."""
        return next((run.unit for run in counted_runs(self._read())), None)

    def total(self, delta: float | None = None) -> float:
        """Return the epsilon at `delta` of all runs that count, composed; at `total_delta` when omitted.

        It holds under the neighbouring relation `total_relation`, whatever each run's own guarantee states.

        Raises
        ------
        ArgumentError
            If `delta` is out of range, or too small for these runs.
        FileError
            If the last line is cut off: it may have been a reservation. See `repair`.
        """
        chosen = self.total_delta() if delta is None else check_delta(delta)
        contents = _whole(self.path, self._read())
        runs, relation = counted_runs(contents), total_relation(contents)
        return 0.0 if chosen is None else composed_epsilon(runs, delta=chosen, neighbouring_relation=relation)

    def check(self, guarantee: Guarantee) -> None:
        """Raise what `reserve` would raise for this run now, and write nothing.

        For before data are opened: a run that cannot be afforded should not read them.
        """
        check_run(self.path, _whole(self.path, self._read()), guarantee)

    def reserve(self, guarantee: Guarantee, *, label: str) -> str:
        """Return the id of a new entry for a run that is about to start, once it is safely on disk.

        Call it before the first noisy step. A run that is not private is recorded and does not count.

        Raises
        ------
        PrivacyError
            If all runs together would exceed the cap, or this run protects another unit than those before;
            nothing has been written.
        FileError
            If the file cannot be read or written, or its last line is cut off; do not start the run.
        """
        if not isinstance(guarantee, Guarantee):
            raise ArgumentError(f"guarantee must be a Guarantee (got {type(guarantee).__name__}).")
        event: dict[str, Any] = {
            "event": "reserve",
            "id": secrets.token_hex(8),
            "time": now(),
            "label": check_label(label),
            "guarantee": guarantee.to_dict(),
        }
        with hold_lock(self.path):
            contents = _whole(self.path, read_file(self.path))
            check_run(self.path, contents, guarantee)
            append_event(self.path, contents, event)
        return str(event["id"])

    def commit(self, entry_id: str) -> None:
        """Record that a run finished; it has counted in full since it was reserved.

        Raises
        ------
        ArgumentError
            If no reservation of this id is open.
        FileError
            If the file cannot be read or written. The run still counts in full.
        """
        self._settle(entry_id, event="commit")

    def amend(self, entry_id: str, *, num_steps: int) -> None:
        """Record that a run was interrupted after `num_steps` >= 1 noisy gradients, burn-in included.

        Raises
        ------
        ArgumentError
            If no reservation of this id is open, or it is for fewer steps.
        FileError
            If the file cannot be read or written. The run still counts in full.
        """
        self._settle(entry_id, event="amend", num_steps=check_num_steps(num_steps))

    def void(self, entry_id: str) -> None:
        """Record that no noisy gradient of a run left the process, so that it does not count.

        Raises
        ------
        ArgumentError
            If no reservation of this id is open.
        FileError
            If the file cannot be read or written. The run still counts in full.
        """
        self._settle(entry_id, event="void")

    def extend(self, entry_id: str, *, num_steps: int, is_planned: bool = True) -> None:
        """Record that more steps of a settled run have come to light: `num_steps` in all.

        Parameters
        ----------
        entry_id : str
            An entry that was amended or voided.
        num_steps : int
            Above what counts so far, and at most what was planned.
        is_planned : bool
            Whether the steps are still to be made public, so that the cap may refuse it; steps that are out
            already are recorded whatever the cap says.

        Raises
        ------
        ArgumentError
            If no such entry is settled, or `num_steps` is out of range.
        PrivacyError
            If all runs together would exceed the cap.
        FileError
            If the file cannot be read or written.
        """
        with hold_lock(self.path):
            contents = _whole(self.path, read_file(self.path))
            record = event_on(contents, entry_id, event="extend", num_steps=check_num_steps(num_steps))
            before, after = contents.entries.get(entry_id), apply_event(record, contents.entries)
            if is_planned and before is not None and after.guarantee.is_private:
                further = part_of(after.guarantee, start=before.num_steps, stop=after.num_steps)
                check_run(self.path, contents, further)
            append_event(self.path, contents, record)

    def repair(self) -> int:
        """Close a last line that is cut off, and return its length in bytes. It counts nothing.

        A run starts only after its reservation is whole on disk, so a line that nadpvi itself left behind
        stands for no run. Only a person can tell whether the file was cut otherwise, as by a partial copy.

        Raises
        ------
        ArgumentError
            If the last line is whole.
        """
        with hold_lock(self.path):
            contents = read_file(self.path)
            if not contents.torn:
                raise ArgumentError(f"{self.path} ends with a whole line; there is nothing to repair.")
            append_event(self.path, contents, repair_event(contents.torn))
        return len(contents.torn)

    def _settle(self, entry_id: str, *, event: str, **details: int) -> None:
        """Append the event that closes a reservation."""
        with hold_lock(self.path):
            contents = _whole(self.path, read_file(self.path))
            record = event_on(contents, entry_id, event=event, **details)
            apply_event(record, contents.entries)
            append_event(self.path, contents, record)

    def _read(self) -> LedgerContents:
        """Return the contents; what looks torn may be a line that another process is writing."""
        contents = read_file(self.path)
        if contents.torn:
            # Without the right to lock, the first reading stands.
            with contextlib.suppress(FileError), hold_lock(self.path):
                contents = read_file(self.path)
        return contents


def _whole(path: Path, contents: LedgerContents) -> LedgerContents:
    """Return the contents if the file ends with a whole line."""
    if contents.torn:
        raise FileError(
            f"the last line of {path} is cut off and may have been a reservation; unless the file was copied "
            f"only in part, close the line with: nadpvi ledger {shlex.quote(str(path))} --repair"
        )
    return contents
