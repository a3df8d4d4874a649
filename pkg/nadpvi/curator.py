"""The curator's one call: a private table in, a `Release` out. Private side."""

import contextlib
import dataclasses
import functools
import signal
import threading
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.containers.storage import package_versions
from nadpvi.description import ModelDescription
from nadpvi.dpvi import Settings, Trace, make_settings, run
from nadpvi.dry_run import check_model
from nadpvi.errors import ArgumentError
from nadpvi.interrupts import RunInterrupted
from nadpvi.models import Model
from nadpvi.privacy.accounting import noise_multiplier
from nadpvi.privacy.discreteness import discreteness_cost
from nadpvi.privacy.guarantee import Guarantee, NonPrivate, PrivacyBudget, make_guarantee
from nadpvi.privacy.ledger import Ledger
from nadpvi.privacy.noise import (
    GRID_UNITS,
    DiscreteGaussianNoise,
    NoiseSource,
    NoNoise,
    SimulatedGaussianNoise,
)
from nadpvi.privacy.randomness import Streams, check_seed, make_streams
from nadpvi.progress import track
from nadpvi.records import Records, make_records
from nadpvi.schema import Schema
from nadpvi.tables import TableLike, to_table

__all__ = ["release"]


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
    progress: bool = False,
) -> Release:
    """Return the DP-SGD trace of `model` fitted to `table`, under one differential privacy guarantee.

    This is the only function that spends a privacy budget. Everything that can be wrong with the public
    arguments is found before `table` is opened, and everything wrong with the table before the first noisy
    step.

    Parameters
    ----------
    model : Model
        What to fit, such as ``nadpvi.models.LogisticRegression(outcome="income")``.
    table : DataFrame, mapping of columns, or path
        One row per person. A path is a CSV or Parquet file.
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
    DataError
        If the table does not follow the schema; no budget has been spent.
    RunInterrupted
        On Ctrl-C after at least one step. It carries the partial release, accounted for the steps that were
        drawn; save it, because that much of the budget is spent.
    """
    settings_in = config if config is not None else DPVIConfig()
    _check_types(model, schema=schema, privacy=privacy, config=settings_in)
    if insecure_seed is not None:
        check_seed("insecure_seed", insecure_seed)
    description = ModelDescription(model=model, schema=schema, guide=settings_in.guide)
    check_model(description)
    sigma, discreteness = _noise_multiplier(privacy, settings_in, dimension=len(description.phi_labels))
    settings = make_settings(description, settings_in, noise_multiplier=sigma)

    streams = make_streams(insecure_seed=insecure_seed)
    noise = _noise_source(sigma, settings=settings, streams=streams)
    guarantee = _guarantee(
        privacy, noise, settings=settings, noise_multiplier=sigma, discreteness=discreteness
    )
    if ledger is not None:
        ledger.check(guarantee)
    records = make_records(to_table(table), description.design)
    entry = None if ledger is None else ledger.reserve(guarantee, label=label)
    num_done, trace = _run(records, settings, noise=noise, streams=streams, progress=progress)
    finish = functools.partial(
        _make_release, description=description, config=settings_in, settings=settings, noise_multiplier=sigma
    )
    if num_done == settings.num_steps:
        if ledger is not None and entry is not None:
            ledger.commit(entry)
        return finish(trace, guarantee=guarantee)
    with _deaf_to_interrupts():
        if ledger is not None and entry is not None:
            ledger.amend(entry, num_steps=num_done) if num_done else ledger.void(entry)
        if not num_done:
            raise KeyboardInterrupt
        partial = dataclasses.replace(settings, num_steps=num_done)
        spent = _guarantee(
            privacy, noise, settings=partial, noise_multiplier=sigma, discreteness=discreteness
        )
        raise RunInterrupted(finish(trace, guarantee=spent), num_steps=settings.num_steps)


def _make_release(
    trace: Trace,
    *,
    description: ModelDescription,
    config: DPVIConfig,
    settings: Settings,
    noise_multiplier: float,
    guarantee: Guarantee,
) -> Release:
    """Return the trace with everything public that belongs to it."""
    prior_mean, prior_sd = description.phi_prior_moments()
    return Release(
        phi=trace.phi,
        noisy_gradient=trace.noisy_gradient,
        noise_multiplier=noise_multiplier,
        clip_norm=settings.clip_norm,
        sampling_rate=settings.sampling_rate,
        preconditioner=settings.preconditioner,
        learning_rate=settings.learning_rate,
        model_prior_mean=prior_mean,
        model_prior_sd=prior_sd,
        phi_labels=description.phi_labels,
        guarantee=guarantee,
        description=description,
        config=config,
        versions=package_versions(),
    )


def _run(
    records: Records, settings: Settings, *, noise: NoiseSource, streams: Streams, progress: bool
) -> tuple[int, Trace]:
    """Return how many steps were done and their trace; fewer than asked for after an interrupt."""
    steps = run(records, settings, noise=noise, streams=streams)
    num_done, trace = 0, Trace(phi=settings.initial_phi[None], noisy_gradient=settings.initial_phi[None])
    # The products are too small for BLAS threads: on two busy cores they were measured to cost a factor 7.
    with threadpool_limits(limits=1, user_api="blas"), contextlib.suppress(KeyboardInterrupt):
        for num_done, trace in track(  # noqa: B007 (the last values are what counts)
            steps, total=settings.num_steps, description="DP-SGD", enabled=progress
        ):
            pass
    return num_done, Trace(phi=trace.phi[:num_done], noisy_gradient=trace.noisy_gradient[:num_done])


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ignore a second Ctrl-C while the first one's partial result is put together."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _check_types(model: object, *, schema: object, privacy: object, config: object) -> None:
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


def _noise_multiplier(
    privacy: PrivacyBudget | NonPrivate, config: DPVIConfig, *, dimension: int
) -> tuple[float, float]:
    """Return the least sigma that keeps the run within its budget, and the price of discrete noise in it.

    The price falls as sigma grows, so that of a first sigma covers the second.
    """
    if isinstance(privacy, NonPrivate):
        return 0.0, 0.0
    calibrate = functools.partial(
        noise_multiplier, num_steps=config.num_steps, sampling_rate=config.sampling_rate
    )
    first = calibrate(epsilon=privacy.epsilon, delta=privacy.delta)
    price = discreteness_cost(
        noise_multiplier=first,
        grid_units=GRID_UNITS,
        num_steps=config.num_steps,
        dimension=dimension,
        epsilon=privacy.epsilon,
    )
    sigma = calibrate(epsilon=privacy.epsilon - 2.0 * price, delta=privacy.delta * (1.0 - 2.0 * price))
    return max(first, sigma), price


def _noise_source(sigma: float, *, settings: Settings, streams: Streams) -> NoiseSource:
    """Return exact noise for a real release, NumPy's for a simulation, none for a non-private run."""
    dimension = len(settings.initial_phi)
    if sigma == 0.0:
        return NoNoise(dimension=dimension)
    if streams.noise is not None:
        return SimulatedGaussianNoise(streams.noise, noise_multiplier=sigma, dimension=dimension)
    return DiscreteGaussianNoise(noise_multiplier=sigma, dimension=dimension, num_steps=settings.num_steps)


def _guarantee(
    privacy: PrivacyBudget | NonPrivate,
    noise: NoiseSource,
    *,
    settings: Settings,
    noise_multiplier: float,
    discreteness: float,
) -> Guarantee:
    """Return the guarantee of this run, accounted from the very numbers that it uses."""
    simulated = "its noise and sampling came from a seed, for simulation"
    return make_guarantee(
        budget=privacy,
        noise_multiplier=noise_multiplier,
        num_steps=settings.num_steps,
        sampling_rate=settings.sampling_rate,
        clip_norm=settings.clip_norm,
        mechanism=noise.mechanism,
        discreteness=discreteness if noise.is_private else 0.0,
        assumed_public=(
            "schema",
            "model, which treats every record by itself",
            "configuration (guide, steps, sampling rate, clip norm, preconditioner, learning rate, start)",
            "delta",
        ),
        reason_not_private=simulated if noise_multiplier > 0 and not noise.is_private else None,
    )
