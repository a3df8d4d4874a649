"""The curator's calls after an interrupt: go on from a checkpoint, or publish what it holds. Private side."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nadpvi.attempts import check_usable, hold_attempt, is_known, mark_spent, note_steps
from nadpvi.callbacks import Callback, check_callback
from nadpvi.containers.release import Release
from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.models import Model
from nadpvi.privacy.ledger import EntryState, Ledger
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.checkpoint import Checkpoint, new_attempt
from nadpvi.private.checkpoint_writer import CheckpointWriter
from nadpvi.private.curator import check_ledger
from nadpvi.private.dry_run import check_model
from nadpvi.private.execution import Booking, Part, carry_out
from nadpvi.private.inputs import read_records
from nadpvi.private.keeping import Keeper, Trace
from nadpvi.private.records import Records
from nadpvi.tables import TableLike

__all__ = ["partial_release", "resume"]


def resume(
    checkpoint: str | os.PathLike[str],
    table: TableLike | Records,
    *,
    model: Model | None = None,
    ledger: Ledger | None = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Release:
    """Return the whole release of an interrupted run, going on from its checkpoint with fresh noise.

    The steps that were done are kept and count once; those that are left get noise and samples of their own.
    A checkpoint can be resumed once: this call replaces it with one of its own. Delete that once the release
    is saved. Steps after the last checkpoint of a run that was killed are drawn anew; the old ones have died
    with their process unseen.

    Parameters
    ----------
    checkpoint : path
        The file of ``release(..., checkpoint=)``.
    table : DataFrame, mapping of columns, or path
        The very table of the interrupted run.
    model : Model, optional
        Your own model's functions, which no file holds; the other models are in the checkpoint.
    ledger : Ledger, optional
        The ledger in which the run was reserved, if it has moved; found by itself otherwise.
    progress, callback
        As for `release`.

    Raises
    ------
    ArgumentError
        If the functions of a model of your own are needed, or `model` is another than the interrupted run's.
    PrivacyError
        If table or settings are not those of the interrupted run, if the checkpoint was resumed or finished
        before, is an older copy or still being written, or if a ledger's cap no longer allows the steps that
        are left. Nothing has been spent.
    FileError
        If the checkpoint is damaged, or the ledger is missing.
    RunInterrupted
        As for `release`; the checkpoint can be resumed again.
    """
    path = Path(checkpoint)
    check_ledger(ledger)
    check_callback(callback)
    with _held(path) as old:
        check_usable(old.attempt, num_steps=old.num_steps, to_resume=True)
        if not old.steps_left:
            raise PrivacyError(f"the run of {path} is complete; its release is that of partial_release.")
        mechanism = old.mechanism if model is None else old.mechanism.with_model(model)
        check_model(mechanism.description, num_draws=mechanism.settings.monte_carlo_samples)
        streams = make_streams(insecure_seed=None, secret=old.secret)
        noise = mechanism.noise_source(streams, num_steps=old.steps_left)
        guarantee = mechanism.guarantee(noise, num_steps=mechanism.settings.num_steps, was_interrupted=True)
        left = mechanism.guarantee(noise, num_steps=old.steps_left, was_interrupted=True, with_curvature=True)
        if (book := _booked_in(old, ledger)) is not None:
            _settle(old, book)
            book.check(left)
        records = read_records(table, mechanism.description, reading=old.reading, rng=streams.rows)
        old.check_records(records)
        # With the mechanism as it was read: the fingerprint is of its very digits, and a model that was given
        # again may have prior moments that differ in the last.
        new = replace(
            old,
            attempt=new_attempt(),
            was_interrupted=True,
            was_watched=old.was_watched or callback is not None,
            entry_start=old.num_steps,
        )
        with hold_attempt(new.attempt):
            if book is not None:
                entry = book.reserve(left, label=old.label)
                new = replace(new, ledger=str(book.path), entry=entry)
            mark_spent(old.attempt)
            note_steps(new.attempt, new.num_steps)
            new.save(path)
            part = Part(
                mechanism=mechanism,
                records=records,
                noise=noise,
                streams=streams,
                progress=progress,
                done=Trace(phi=old.phi, noisy_gradient=old.noisy_gradient),
                callback=callback,
                writer=CheckpointWriter(path, new),
            )
            return carry_out(part, guarantee=guarantee, booking=Booking(book, new.entry))


def partial_release(checkpoint: str | os.PathLike[str], *, ledger: Ledger | None = None) -> Release:
    """Return what a checkpoint holds as a release, with the epsilon of the steps that were done.

    No record is read and nothing is spent. The ledger, if there is one, is told how many steps it is.

    Parameters
    ----------
    checkpoint : path
        The file of ``release(..., checkpoint=)``; it can still be resumed afterwards.
    ledger : Ledger, optional
        As for `resume`.

    Raises
    ------
    PrivacyError
        If the run is still going on, the checkpoint is an older copy, or these steps exceed the ledger's cap.
    FileError
        If the checkpoint is damaged, or the ledger is missing.
    """
    check_ledger(ledger)
    with _held(Path(checkpoint)) as old:
        # Without steps left it may be had again; otherwise its run has failed, or has gone on elsewhere.
        check_usable(old.attempt, num_steps=old.num_steps, to_resume=old.steps_left > 0)
        mechanism = old.mechanism
        noise = mechanism.noise_source(make_streams(insecure_seed=None), num_steps=1)
        was_interrupted = old.was_interrupted or old.steps_left > 0
        guarantee = mechanism.guarantee(
            noise,
            # Whoever has watched the run may have ended it for what they saw.
            num_steps=mechanism.settings.num_steps if old.was_watched else old.num_steps,
            was_interrupted=was_interrupted and not old.was_watched,
            with_curvature=old.was_watched,
        )
        if (book := _booked_in(old, ledger)) is not None:
            _settle(old, book)
        kept = Keeper(mechanism.settings, done=Trace(old.phi, old.noisy_gradient)).result()
        return mechanism.to_release(kept.trace, guarantee=guarantee, final_phi=kept.final_phi)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[Checkpoint]:
    """Yield the checkpoint in a file while no other process can go on from it."""
    attempt = Checkpoint.load(path).attempt
    with hold_attempt(attempt):
        # Read again under the lock: the run may have gone on while it was waited for.
        checkpoint = Checkpoint.load(path)
        if checkpoint.attempt != attempt:
            raise PrivacyError(
                f"{path} was resumed by another process meanwhile; try again when it has ended."
            )
        yield checkpoint


def _booked_in(old: Checkpoint, ledger: Ledger | None) -> Ledger | None:
    """Return the ledger that knows an interrupted run, or None if it was in none."""
    if old.ledger is None or old.entry is None:
        if ledger is not None:
            raise ArgumentError("ledger is not that of the interrupted run, which was in none; leave it out.")
        return None
    book = Ledger.open(old.ledger) if ledger is None else ledger
    if all(entry.id != old.entry for entry in book.entries()):
        raise ArgumentError(f"{book.path} does not hold the interrupted run; give its own ledger.")
    return book


def _settle(old: Checkpoint, book: Ledger) -> None:
    """Bring the entry of a checkpoint's steps up to date before they are published or gone on from.

    Steps that a killed run drew after its newest checkpoint have been seen by nobody, so that its entry can
    be closed at the checkpoint's. That holds where this machine has seen the run start and knows that the
    checkpoint is its newest; otherwise the entry goes on counting in full.
    """
    num_steps = old.num_steps - old.entry_start
    (entry,) = (entry for entry in book.entries() if entry.id == old.entry)
    if entry.state is not EntryState.RESERVED:
        if entry.num_steps < num_steps:
            book.extend(entry.id, num_steps=num_steps)
    elif is_known(old.attempt):
        Booking(book, entry.id).settle(num_steps, is_complete=not old.steps_left)
