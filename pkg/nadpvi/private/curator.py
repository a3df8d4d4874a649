"""The curator's calls: a private table in, a `Release` out, whatever happens on the way. Private side."""

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from nadpvi.attempts import check_usable, hold_attempt, is_known, mark_spent, note_steps
from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.containers.storage import check_writable
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError, FileError, PrivacyError
from nadpvi.mechanism import make_mechanism
from nadpvi.models import Model
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.ledger import EntryState, Ledger
from nadpvi.privacy.randomness import check_seed, make_streams
from nadpvi.private.checkpoint import Checkpoint, new_attempt, new_checkpoint
from nadpvi.private.checkpoint_writer import CheckpointWriter
from nadpvi.private.dpvi import Trace
from nadpvi.private.dry_run import check_model
from nadpvi.private.execution import Booking, Part, carry_out
from nadpvi.private.records import make_records
from nadpvi.schema import Schema
from nadpvi.tables import TableLike, to_table

__all__ = ["check_ledger", "check_types", "partial_release", "release", "resume"]


def release(
    model: Model,
    table: TableLike,
    *,
    schema: Schema,
    privacy: PrivacyBudget | NonPrivate,
    config: DPVIConfig | None = None,
    insecure_seed: int | None = None,
    ledger: Ledger | None = None,
    label: str = "release",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> Release:
    """Return the DP-SGD trace of `model` fitted to `table`, under one differential privacy guarantee.

    This function and `resume` are the only ones that spend a privacy budget. Everything that can be wrong
    with the public arguments is found before `table` is opened, and everything wrong with the table before
    the first noisy step.

    Parameters
    ----------
    model : Model
        What to fit, such as ``nadpvi.models.LogisticRegression(outcome="income")``.
    table : DataFrame, mapping of columns, or path
        One row per record; with ``schema.person``, any number of rows per person. A path is a CSV or Parquet
        file.
    schema : Schema
        Public description of the columns; never read off the table.
    privacy : PrivacyBudget or NonPrivate
        The budget, or the explicit switch for a run without noise.
    config : DPVIConfig, optional
        Public settings of the run.
    insecure_seed : int, optional
        For simulation only: makes noise and sampling reproducible, so the result is stamped not private.
        The seed itself is stored nowhere.
    ledger : Ledger, optional
        The data set's ledger: the run is reserved in it before the first noisy step, and refused if it would
        exceed the ledger's cap.
    label : str
        Name of this run in the ledger.
    checkpoint : path, optional
        A new file that is kept up to date, about every ten seconds and on Ctrl-C, so that a run that is
        killed can be resumed. Private: keep it with the table, and delete it once the release is saved.
    progress : bool
        Show a progress bar on stderr when that is a terminal.

    Returns
    -------
    Release

    Raises
    ------
    ArgumentError, SchemaError
        If a public argument is unsuitable; `table` has not been opened.
    PrivacyError
        If the ledger's cap does not allow the run; `table` has not been opened.
    FileError
        If the checkpoint's place is unsuitable; `table` has not been opened.
    DataError
        If the table does not follow the schema; no budget has been spent.
    RunInterrupted
        On Ctrl-C after at least one step. It carries the partial release, accounted for the steps that were
        drawn; save it, because that much of the budget is spent.
    """
    settings = config if config is not None else DPVIConfig()
    check_types(model, schema=schema, privacy=privacy, config=settings)
    check_ledger(ledger)
    if insecure_seed is not None:
        check_seed("insecure_seed", insecure_seed)
    description = ModelDescription(model=model, schema=schema, guide=settings.guide)
    if checkpoint is not None:
        _check_checkpoint(checkpoint, description=description, privacy=privacy, insecure_seed=insecure_seed)
    check_model(description)
    mechanism = make_mechanism(description, privacy=privacy, config=settings)
    secret = secrets.token_bytes(32)
    streams = make_streams(insecure_seed=insecure_seed, secret=secret)
    noise = mechanism.noise_source(streams, num_steps=settings.num_steps)
    guarantee = mechanism.guarantee(noise, num_steps=settings.num_steps)
    if ledger is not None:
        ledger.check(guarantee)
    records = make_records(to_table(table), description.design, person=schema.person, rng=streams.rows)
    part = Part(mechanism=mechanism, records=records, noise=noise, streams=streams, progress=progress)
    if checkpoint is None:
        entry = None if ledger is None else ledger.reserve(guarantee, label=label)
        return carry_out(part, guarantee=guarantee, booking=Booking(ledger, entry))
    start = new_checkpoint(mechanism, records=records, secret=secret, label=label)
    with hold_attempt(start.attempt):
        note_steps(start.attempt, 0)
        if ledger is not None:
            entry = ledger.reserve(guarantee, label=label)
            start = replace(start, ledger=str(ledger.path), entry=entry)
        saved = replace(part, writer=CheckpointWriter(Path(checkpoint), start))
        return carry_out(saved, guarantee=guarantee, booking=Booking(ledger, start.entry))


def resume(
    checkpoint: str | os.PathLike[str],
    table: TableLike,
    *,
    ledger: Ledger | None = None,
    progress: bool = False,
) -> Release:
    """Return the whole release of an interrupted run, going on from its checkpoint with fresh noise.

    The steps that were done are kept and count once; those that are left get noise and samples of their own.
    A checkpoint can be resumed once: this call replaces it with one of its own. Delete that once the release
    is saved. Steps after the last
    checkpoint of a run that was killed are drawn anew; the old ones have died with their process unseen.

    Parameters
    ----------
    checkpoint : path
        The file of ``release(..., checkpoint=)``.
    table : DataFrame, mapping of columns, or path
        The very table of the interrupted run.
    ledger : Ledger, optional
        The ledger in which the run was reserved, if it has moved; found by itself otherwise.
    progress : bool
        As for `release`.

    Raises
    ------
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
    with _held(path) as old:
        check_usable(old.attempt, num_steps=old.num_steps, to_resume=True)
        if not old.steps_left:
            raise PrivacyError(f"the run of {path} is complete; its release is that of partial_release.")
        mechanism = old.mechanism
        check_model(mechanism.description)
        streams = make_streams(insecure_seed=None, secret=old.secret)
        noise = mechanism.noise_source(streams, num_steps=old.steps_left)
        guarantee = mechanism.guarantee(noise, num_steps=mechanism.settings.num_steps, was_interrupted=True)
        left = mechanism.guarantee(noise, num_steps=old.steps_left, was_interrupted=True)
        if (book := _booked_in(old, ledger)) is not None:
            _settle(old, book)
            book.check(left)
        schema = mechanism.description.schema
        records = make_records(
            to_table(table), mechanism.description.design, person=schema.person, rng=streams.rows
        )
        old.check_records(records)
        new = replace(old, attempt=new_attempt(), was_interrupted=True, entry_start=old.num_steps)
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
        guarantee = mechanism.guarantee(noise, num_steps=old.num_steps, was_interrupted=was_interrupted)
        if (book := _booked_in(old, ledger)) is not None:
            _settle(old, book)
        return mechanism.to_release(phi=old.phi, noisy_gradient=old.noisy_gradient, guarantee=guarantee)


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


def _check_checkpoint(
    checkpoint: str | os.PathLike[str],
    *,
    description: ModelDescription,
    privacy: PrivacyBudget | NonPrivate,
    insecure_seed: int | None,
) -> None:
    """Refuse a checkpoint where one makes no sense, or cannot be written."""
    if isinstance(privacy, NonPrivate) or insecure_seed is not None:
        raise ArgumentError("checkpoint is for private runs: a simulation can be run again.")
    if Path(checkpoint).exists():
        raise FileError(
            f"{checkpoint} exists, and a checkpoint is never replaced: resume it, or delete it if useless."
        )
    check_writable(checkpoint, overwrite=False)
    # What a resumed run will read back.
    ModelDescription.from_dict(description.to_dict())


def check_ledger(ledger: object) -> None:
    """Refuse a ledger that is none, such as its path."""
    if not isinstance(ledger, Ledger | None):
        raise ArgumentError(f"ledger must be a Ledger, from Ledger.open(path) (got {type(ledger).__name__}).")


def check_types(model: object, *, schema: object, privacy: object, config: object) -> None:
    """Refuse arguments of the wrong kind, naming each."""
    expected = (
        ("model", model, Model, "a model, such as nadpvi.models.LogisticRegression(...)"),
        ("schema", schema, Schema, "a Schema, such as Schema.from_toml(path)"),
        ("privacy", privacy, PrivacyBudget | NonPrivate, "a PrivacyBudget(epsilon=, delta=)"),
        ("config", config, DPVIConfig, "a DPVIConfig"),
    )
    for name, value, kind, wanted in expected:
        if not isinstance(value, kind):
            raise ArgumentError(f"{name} must be {wanted} (got {type(value).__name__}).")
