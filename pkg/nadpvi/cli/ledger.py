"""nadpvi ledger: what has been spent on a data set, and what its cap leaves."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_frame, print_json, print_text, say, warnings_as_lines
from nadpvi.errors import ArgumentError
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.ledger import EntryState, Ledger, LedgerEntry
from nadpvi.privacy.parameters import ADD_OR_REMOVE_ONE, REPLACE_ONE

__all__ = ["ledger"]

_NEIGHBOURS = {
    ADD_OR_REMOVE_ONE: "adding or removing {unit}",
    REPLACE_ONE: "replacing {unit} by another",
}
_COLUMNS = {"label": "", "epsilon": ".6g", "delta": ".3g", "steps": "d", "state": ""}


def ledger(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The ledger of a data set.")],
    create: Annotated[bool, typer.Option("--create", help="Make FILE, a new and empty ledger.")] = False,
    label: Annotated[
        str | None, typer.Option("--label", help="With --create: a public name for the data set.")
    ] = None,
    cap_epsilon: Annotated[
        float | None, typer.Option("--cap-epsilon", help="With --create: what all runs together may spend.")
    ] = None,
    cap_delta: Annotated[
        float | None, typer.Option("--cap-delta", help="With --create: the delta of the cap.")
    ] = None,
    neighbouring_relation: Annotated[
        str | None,
        typer.Option(
            "--neighbouring-relation",
            help="With --create and a cap: add_or_remove_one (default) or replace_one.",
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Close a last line that was cut off; it counts nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    r"""Show or create a data set's ledger of what was spent.

    Every run in the ledger FILE, the epsilon of all of them together, and what the cap leaves.

    Example:
      nadpvi ledger people.ledger --create --label people \
        --cap-epsilon 3 --cap-delta 1e-5
      nadpvi ledger people.ledger
    """
    if create and repair:
        raise ArgumentError("--create and --repair exclude each other.")
    if not create and (label, cap_epsilon, cap_delta, neighbouring_relation) != (None, None, None, None):
        raise ArgumentError(
            "--label, --cap-epsilon, --cap-delta and --neighbouring-relation go with --create; a ledger "
            "keeps its own."
        )
    with warnings_as_lines():
        if create:
            cap = _cap(cap_epsilon, cap_delta, relation=neighbouring_relation)
            opened = Ledger.create(file, label=_label(label), cap=cap)
        else:
            opened = Ledger.open(file)
        if repair:
            say(f"closed a last line of {opened.repair()} bytes that was cut off; it counts nothing.")
        _print(opened, as_json=json)


def _label(label: str | None) -> str:
    """Return the label of a new ledger."""
    if label is None:
        raise ArgumentError("--create needs --label, a public name for the data set.")
    return label


def _cap(epsilon: float | None, delta: float | None, *, relation: str | None) -> PrivacyBudget | None:
    """Return the cap of a new ledger."""
    if epsilon is None and delta is None:
        if relation is not None:
            raise ArgumentError(
                "--neighbouring-relation is that of a cap; give --cap-epsilon and --cap-delta."
            )
        return None
    if epsilon is None or delta is None:
        raise ArgumentError("--cap-epsilon and --cap-delta go together; give both or neither.")
    if relation is None:
        return PrivacyBudget(epsilon=epsilon, delta=delta)
    return PrivacyBudget(epsilon=epsilon, delta=delta, neighbouring_relation=relation)


def _print(opened: Ledger, *, as_json: bool) -> None:
    """Print the runs, then the total; a ledger whose last line is cut off has runs but no total."""
    entries, cap, delta = opened.entries(), opened.cap, opened.total_delta()
    relation, unit = opened.total_relation(), opened.unit()
    if not as_json:
        print_text(f"ledger of {opened.label}: {opened.path}")
        if entries:
            print_frame(_frame(entries), title="Runs, oldest first (UTC)", formats=_COLUMNS)
    total = opened.total()
    if as_json:
        print_json(
            {
                "label": opened.label,
                "cap": None if cap is None else dataclasses.asdict(cap),
                "total": {
                    "epsilon": total,
                    "delta": delta,
                    "neighbouring_relation": relation,
                    "unit": unit,
                },
                "runs": [_facts(entry) for entry in entries],
            }
        )
        return
    counted = sum(entry.is_counted for entry in entries)
    at = "" if delta is None else f" at delta {delta:g}"
    print_text(f"total: epsilon {total:.6g}{at}, {counted} of {len(entries)} runs counted and composed")
    if unit is not None:
        print_text(f"the total is for: {_NEIGHBOURS[relation].format(unit=unit)}")
    if cap is None:
        print_text("cap: none")
    else:
        left = max(cap.epsilon - total, 0.0)
        at = f"at delta {cap.delta:g}, {cap.neighbouring_relation}"
        print_text(f"cap: epsilon {cap.epsilon:.6g} {at}; left: {left:.6g}")


def _frame(entries: tuple[LedgerEntry, ...]) -> pd.DataFrame:
    """Return the table of the runs."""
    from rich.markup import escape

    rows = [
        {
            "label": escape(entry.label),
            "epsilon": entry.epsilon,
            "delta": entry.guarantee.delta,
            "steps": entry.num_steps,
            "state": _state(entry),
        }
        for entry in entries
    ]
    frame = pd.DataFrame(rows, index=[entry.time for entry in entries], columns=list(_COLUMNS))
    return frame.astype({"steps": object}).rename_axis("time")


def _state(entry: LedgerEntry) -> str:
    """Return what became of a run, in words."""
    if not entry.guarantee.is_private:
        return f"{entry.state}, not private, not counted"
    return {
        EntryState.RESERVED: "reserved, counted in full",
        EntryState.COMMITTED: "committed",
        EntryState.AMENDED: f"amended, {entry.num_steps} of {entry.guarantee.num_steps} steps",
        EntryState.VOID: "void, not counted",
    }[entry.state]


def _facts(entry: LedgerEntry) -> dict[str, Any]:
    """Return a run as JSON types."""
    return {
        "id": entry.id,
        "time": entry.time,
        "label": entry.label,
        "epsilon": entry.epsilon,
        "delta": entry.guarantee.delta,
        "num_steps": entry.num_steps,
        "state": str(entry.state),
        "is_counted": entry.is_counted,
        "guarantee": entry.guarantee.to_dict(),
    }
