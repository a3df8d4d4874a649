"""What the entries of a ledger add up to, and which further run they and the cap admit."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy.composition import Run, composed_epsilon
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.ledger_file import LedgerContents, now
from nadpvi.privacy.parameters import ADD_OR_REMOVE_ONE, REPLACE_ONE

__all__ = ["check_run", "counted_runs", "event_on", "part_of", "total_relation"]


def counted_runs(contents: LedgerContents) -> list[Run]:
    """Return the runs that spend privacy, as the accountant sees them."""
    return [entry.run for entry in contents.entries.values() if entry.is_counted]


def check_run(path: Path, contents: LedgerContents, guarantee: Guarantee) -> None:
    """Refuse a run of another unit, or one that would bring all runs together above the cap."""
    if not isinstance(guarantee, Guarantee):
        raise ArgumentError(f"guarantee must be a Guarantee (got {type(guarantee).__name__}).")
    if not guarantee.is_private:
        return
    cap, runs = contents.cap, counted_runs(contents)
    if runs and runs[0].unit != guarantee.unit:
        raise PrivacyError(
            f"the runs in {path} protect {runs[0].unit} and this run protects {guarantee.unit}, so that no "
            "one number covers them together; keep another ledger for this run."
        )
    if cap is None:
        _check_choice(path, contents, guarantee)
        return
    composed = functools.partial(
        composed_epsilon, delta=cap.delta, neighbouring_relation=cap.neighbouring_relation
    )
    total = composed([*runs, Run.from_guarantee(guarantee)])
    if total > cap.epsilon:
        raise PrivacyError(
            f"the cap of {path} is epsilon {cap.epsilon:.6g} at delta {cap.delta:g}; {composed(runs):.6g} is "
            f"spent, and this run would bring it to {total:.6g}. Take a smaller epsilon or fewer steps for "
            "this run."
        )


def _check_choice(path: Path, contents: LedgerContents, guarantee: Guarantee) -> None:
    """Refuse a run without which `path` has a total and with which it has none."""
    counted = [entry.guarantee for entry in contents.entries.values() if entry.is_counted]
    everything = [*counted, guarantee]
    replaces = any(one.neighbouring_relation == REPLACE_ONE for one in everything)
    if replaces and any(one.selection is not None for one in everything):
        raise PrivacyError(
            f'{path} would hold runs under "{REPLACE_ONE}" and a choice among candidates, which is accounted '
            f'under "{ADD_OR_REMOVE_ONE}" only; keep another ledger for this run.'
        )


def total_relation(contents: LedgerContents) -> str:
    """Return the neighbouring relation under which all runs that count are accounted."""
    if contents.cap is not None:
        return contents.cap.neighbouring_relation
    counted = (entry.guarantee for entry in contents.entries.values() if entry.is_counted)
    replaces = any(guarantee.neighbouring_relation == REPLACE_ONE for guarantee in counted)
    return REPLACE_ONE if replaces else ADD_OR_REMOVE_ONE


def event_on(contents: LedgerContents, entry_id: str, *, event: str, **details: int) -> dict[str, Any]:
    """Return an event on an entry. Its time is that of the reservation: how long a run took is private."""
    entry = contents.entries.get(entry_id)
    return {"event": event, "id": entry_id, "time": now() if entry is None else entry.time, **details}


def part_of(guarantee: Guarantee, *, start: int, stop: int) -> Guarantee:
    """Return the guarantee of a run's steps from `start` to `stop`, the accountant's view of them.

    The curvature follows the last step, and belongs to the part that holds it.
    """
    share = guarantee.discreteness * (stop - start) / guarantee.num_steps
    curvature = guarantee.curvature_noise_multiplier if stop == guarantee.num_steps else None
    return dataclasses.replace(
        guarantee, num_steps=stop - start, discreteness=share, curvature_noise_multiplier=curvature
    )
