"""One run in a ledger, and how the ledger's events make and change it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting import epsilon_spent
from nadpvi.privacy.composition import Run, composed_epsilon
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.parameters import check_num_steps

__all__ = ["EntryState", "LedgerEntry", "apply_event", "check_label"]

_MAX_LABEL = 200
_KEYS = {
    "reserve": {"event", "id", "time", "label", "guarantee"},
    "commit": {"event", "id", "time"},
    "amend": {"event", "id", "time", "num_steps"},
    "void": {"event", "id", "time"},
    "extend": {"event", "id", "time", "num_steps"},
}


class EntryState(StrEnum):
    """What is known of a run."""

    RESERVED = "reserved"
    COMMITTED = "committed"
    AMENDED = "amended"
    VOID = "void"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One run in a ledger.

    Parameters
    ----------
    id : str
        Random hexadecimal name of the entry.
    time : str
        When it was reserved: UTC, ISO 8601.
    label : str
        The user's own name for the run.
    guarantee : Guarantee
        What the run was planned to promise.
    state : EntryState
        What became of it.
    num_steps : int
        Noisy gradients that count: those planned, those drawn if it was amended, 0 if it is void.
    """

    id: str
    time: str
    label: str
    guarantee: Guarantee
    state: EntryState
    num_steps: int

    @property
    def is_counted(self) -> bool:
        """Whether the run spends privacy: it is neither void nor simulated nor without noise."""
        return self.guarantee.is_private and self.state is not EntryState.VOID

    @property
    def run(self) -> Run:
        """What the accountant needs to know of it; only for an entry that counts."""
        return Run.from_guarantee(self.guarantee, num_steps=self.num_steps)

    @property
    def epsilon(self) -> float:
        """Epsilon of this run alone at its own delta, for the steps that count; 0 if void."""
        if self.state is EntryState.VOID:
            return 0.0
        if self.num_steps == self.guarantee.num_steps or self.guarantee.epsilon == math.inf:
            return self.guarantee.epsilon
        if self.is_counted:
            relation = self.guarantee.neighbouring_relation
            return composed_epsilon([self.run], delta=self.guarantee.delta, neighbouring_relation=relation)
        return epsilon_spent(
            noise_multiplier=self.guarantee.noise_multiplier / self.guarantee.records_per_unit,
            delta=self.guarantee.delta,
            num_steps=self.num_steps,
            sampling_rate=self.guarantee.sampling_rate,
            neighbouring_relation=self.guarantee.neighbouring_relation,
        )


def apply_event(event: Mapping[str, Any], entries: Mapping[str, LedgerEntry]) -> LedgerEntry:
    """Return the entry that an event makes or changes.

    Raises
    ------
    ArgumentError
        If the event does not follow from what is there: an id that is taken, unknown or settled, or more
        steps than were reserved.
    """
    kind, entry_id = event.get("event"), event.get("id")
    if not isinstance(kind, str) or set(event) != _KEYS.get(kind):
        raise ArgumentError("this nadpvi knows no such event.")
    if not isinstance(entry_id, str) or not isinstance(event["time"], str):
        raise ArgumentError("id and time must be texts.")
    entry = entries.get(entry_id)
    if kind == "reserve":
        if entry is not None:
            raise ArgumentError(f"cannot reserve entry {entry_id!r}: the id is taken.")
        guarantee = Guarantee.from_dict(event["guarantee"])
        return LedgerEntry(
            id=entry_id,
            time=event["time"],
            label=check_label(event["label"]),
            guarantee=guarantee,
            state=EntryState.RESERVED,
            num_steps=guarantee.num_steps,
        )
    if kind == "extend" and entry is not None and entry.state is not EntryState.RESERVED:
        return _extended(entry, check_num_steps(event["num_steps"]))
    if entry is None or entry.state is not EntryState.RESERVED or kind == "extend":
        state = "unknown" if entry is None else f"{entry.state} already" if kind != "extend" else entry.state
        raise ArgumentError(f"cannot {kind} entry {entry_id!r}: it is {state}.")
    if kind == "commit":
        return replace(entry, state=EntryState.COMMITTED)
    if kind == "void":
        return replace(entry, state=EntryState.VOID, num_steps=0)
    if entry.guarantee.selection is not None:
        raise ArgumentError("a choice among candidates cannot be amended: commit it, or void it.")
    num_steps = check_num_steps(event["num_steps"])
    if num_steps > entry.num_steps:
        raise ArgumentError(
            f"num_steps must be at most the {entry.num_steps} reserved (got {num_steps}); reserve further "
            "steps before drawing them."
        )
    return replace(entry, state=EntryState.AMENDED, num_steps=num_steps)


def _extended(entry: LedgerEntry, num_steps: int) -> LedgerEntry:
    """Return a settled entry with more steps than were thought to have been seen."""
    if not entry.num_steps < num_steps <= entry.guarantee.num_steps:
        raise ArgumentError(
            f"num_steps must be above the {entry.num_steps} that count and at most the "
            f"{entry.guarantee.num_steps} planned (got {num_steps})."
        )
    return replace(entry, state=EntryState.AMENDED, num_steps=num_steps)


def check_label(value: object) -> str:
    """Return a label if it is one line of printable text, else raise `ArgumentError`."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > _MAX_LABEL:
        raise ArgumentError(f"label must be one line of at most {_MAX_LABEL} characters (got {value!r}).")
    return value
