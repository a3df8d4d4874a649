"""The curator's calls: a private table in, a `Release` out, whatever happens on the way. Private side."""

import os
import secrets
from dataclasses import replace
from pathlib import Path

from nadpvi.attempts import hold_attempt, note_steps
from nadpvi.callbacks import Callback, check_callback
from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.containers.storage import check_netcdf, check_writable
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError, FileError
from nadpvi.made_up import Covariates
from nadpvi.mechanism import make_mechanism
from nadpvi.models import Model
from nadpvi.planning.resolve import resolve_config
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.ledger import Ledger
from nadpvi.privacy.randomness import check_seed, make_streams
from nadpvi.private.checkpoint import new_checkpoint
from nadpvi.private.checkpoint_writer import CheckpointWriter
from nadpvi.private.dry_run import check_model
from nadpvi.private.execution import Booking, Part, carry_out
from nadpvi.private.inputs import Reading, read_records
from nadpvi.private.records import Records
from nadpvi.schema import Schema
from nadpvi.tables import TableLike

__all__ = ["check_ledger", "check_types", "release"]


def release(
    model: Model,
    table: TableLike | Records,
    *,
    schema: Schema,
    privacy: PrivacyBudget | NonPrivate,
    config: DPVIConfig | None = None,
    num_records: int | None = None,
    settings: str | None = None,
    covariates: Covariates | None = None,
    insecure_seed: int | None = None,
    ledger: Ledger | None = None,
    label: str = "release",
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool = False,
    callback: Callback | None = None,
    collapse: bool = False,
    storage: str = "float64",
) -> Release:
    """Return the DP-SGD trace of `model` fitted to `table`, under one differential privacy guarantee.

    This function and `resume` are the only ones that spend a privacy budget. Everything that can be wrong
    with the public arguments is found before `table` is opened, and everything wrong with the table before
    the first noisy step.

    Parameters
    ----------
    model : Model
        What to fit, such as ``nadpvi.models.LogisticRegression(outcome="income")``.
    table : DataFrame, mapping of columns, path, or Records
        One row per record; with ``schema.person``, any number of rows per person. A path is a CSV or Parquet
        file, read in parts. `Records` are rows that were encoded before, memory-mapped or with counts.
    schema : Schema
        Public description of the columns; never read off the table.
    privacy : PrivacyBudget or NonPrivate
        The budget, or the explicit switch for a run without noise.
    config : DPVIConfig, optional
        Public settings of the run. In their place:
    num_records : int, optional
        A guess at the number of records, from public knowledge (never count the table for it): settings are
        then chosen for it, as `nadpvi.suggest_config` does, at no cost of privacy.
    settings : {"suggested", "published", "plain"}, optional
        "suggested", the rule where `num_records` is given; the paper's own for this kind of model; or
        ``DPVIConfig()`` as it is, the rule where nothing is given.
    covariates : DataFrame or callable, optional
        With `num_records`: public predictors, as for `nadpvi.suggest_config`.
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
    callback : callable, optional
        Called after every step with a `StepDone`: quantities that are released anyway, and nothing else. What
        it raises ends the run. Since what it has seen may be why, the steps that were planned all count then,
        as they do when a run with a callback is interrupted.
    collapse : bool
        Store identical encoded rows once, with their number: the same mechanism, at the cost of the distinct
        rows alone. Not with a person column.
    storage : {"float64", "float32"}
        How features are stored; float32 halves the memory. Arithmetic is float64 always.

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
        If the checkpoint's place is unsuitable, or netCDF is missing; `table` has not been opened.
    DataError
        If the table does not follow the schema; no budget has been spent.
    RunInterrupted
        On Ctrl-C after at least one step, or where a callback raised. It carries the partial release,
        accounted for the steps that were drawn; save it, because that much of the budget is spent.
    """
    check_netcdf()
    check_types(model, schema=schema, privacy=privacy, config=DPVIConfig() if config is None else config)
    check_ledger(ledger)
    check_callback(callback)
    reading = Reading(collapse=collapse, storage=storage)
    if insecure_seed is not None:
        check_seed("insecure_seed", insecure_seed)
    if covariates is not None and covariates is table:
        raise ArgumentError("covariates must be public, and this is the private table: leave it out.")
    resolved = resolve_config(
        model,
        privacy,
        config,
        schema=schema,
        settings=settings,
        num_records=num_records,
        covariates=covariates,
    )
    description = ModelDescription(model=model, schema=schema, guide=resolved.guide)
    if checkpoint is not None:
        _check_checkpoint(
            checkpoint, description, privacy=privacy, config=resolved, insecure_seed=insecure_seed
        )
    check_model(description, num_draws=resolved.monte_carlo_samples)
    mechanism = make_mechanism(description, privacy=privacy, config=resolved)
    secret = secrets.token_bytes(32)
    streams = make_streams(insecure_seed=insecure_seed, secret=secret)
    noise = mechanism.noise_source(streams, num_steps=resolved.num_steps)
    guarantee = mechanism.guarantee(noise, num_steps=resolved.num_steps)
    if ledger is not None:
        ledger.check(guarantee)
    records = read_records(table, description, reading=reading, rng=streams.rows)
    part = Part(
        mechanism=mechanism,
        records=records,
        noise=noise,
        streams=streams,
        progress=progress,
        callback=callback,
    )
    if checkpoint is None:
        entry = None if ledger is None else ledger.reserve(guarantee, label=label)
        return carry_out(part, guarantee=guarantee, booking=Booking(ledger, entry))
    start = new_checkpoint(
        mechanism,
        records=records,
        secret=secret,
        label=label,
        reading=reading,
        was_watched=callback is not None,
    )
    with hold_attempt(start.attempt):
        note_steps(start.attempt, 0)
        if ledger is not None:
            entry = ledger.reserve(guarantee, label=label)
            start = replace(start, ledger=str(ledger.path), entry=entry)
        saved = replace(part, writer=CheckpointWriter(Path(checkpoint), start))
        return carry_out(saved, guarantee=guarantee, booking=Booking(ledger, start.entry))


def _check_checkpoint(
    checkpoint: str | os.PathLike[str],
    description: ModelDescription,
    *,
    privacy: PrivacyBudget | NonPrivate,
    config: DPVIConfig,
    insecure_seed: int | None,
) -> None:
    """Refuse a checkpoint where one makes no sense, or cannot be written."""
    if isinstance(privacy, NonPrivate) or insecure_seed is not None:
        raise ArgumentError("checkpoint is for private runs: a simulation can be run again.")
    if config.keep != "trace" or config.thin != 1:
        raise ArgumentError('checkpoint needs the whole trace: leave keep at "trace" and thin at 1.')
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
