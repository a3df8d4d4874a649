"""Private choice among settings: run a secret number of them and publish the best. Private side."""

import math
from collections.abc import Sequence
from dataclasses import replace

from nadpvi.checks import check_positive
from nadpvi.config import DPVIConfig
from nadpvi.containers.release import Release
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError, DivergenceError
from nadpvi.mechanism import Mechanism, make_mechanism
from nadpvi.models import Model
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.ledger import Ledger
from nadpvi.privacy.randomness import Streams, check_seed, make_streams
from nadpvi.privacy.selection import Selection, draw_num_runs
from nadpvi.private.curator import check_ledger, check_types
from nadpvi.private.dry_run import check_model
from nadpvi.private.execution import Booking, Part, run_steps
from nadpvi.private.keeping import Kept
from nadpvi.private.records import Records, make_records
from nadpvi.private.score import private_score
from nadpvi.schema import Schema
from nadpvi.tables import TableLike

__all__ = ["choose"]


def choose(
    model: Model,
    table: TableLike,
    candidates: Sequence[DPVIConfig],
    *,
    schema: Schema,
    privacy: PrivacyBudget,
    selection: Selection,
    score_bound: float = 4.0,
    insecure_seed: int | None = None,
    ledger: Ledger | None = None,
    label: str = "choice",
) -> Release:
    """Return the best of a random number of runs, each with settings drawn from `candidates`.

    How many runs there are is drawn from `selection`, and each takes one of the candidates at random. A run
    is scored by the records' clipped log likelihood under its last guide, with noise, and only the run with
    the highest score leaves this function. The whole costs more than one run would, two to three times its
    epsilon (Papernot and Steinke 2022): choose settings from public knowledge where you can.

    The number of runs and the losing runs must stay secret. No progress is shown, and nothing can be resumed;
    the time that a call takes tells something about that number, so do not publish it. Ctrl-C leaves nothing
    behind, and a ledger counts the call in full.

    Parameters
    ----------
    model, table, schema, insecure_seed, ledger, label
        As for `nadpvi.release`.
    candidates : sequence of DPVIConfig
        At least two, with one number of steps and one sampling rate.
    privacy : PrivacyBudget
        For the whole, under "add_or_remove_one".
    selection : Selection
        Mean number of runs, and the noise of the score.
    score_bound : float
        One record's log likelihood is clamped to [-score_bound, score_bound], in nats; > 0.

    Returns
    -------
    Release
        The winner, with its own configuration, under the guarantee of the whole.

    Raises
    ------
    ArgumentError, SchemaError, PrivacyError, DataError
        As for `nadpvi.release`: whatever is wrong is found before anything is spent.
    DivergenceError
        If every run diverged; the budget is spent.
    """
    configs = _check_candidates(candidates)
    check_types(model, schema=schema, privacy=privacy, config=configs[0])
    check_ledger(ledger)
    if not isinstance(privacy, PrivacyBudget):
        raise ArgumentError("privacy must be a PrivacyBudget: a choice without noise is not private.")
    if not isinstance(selection, Selection):
        raise ArgumentError(f"selection must be a Selection (got {type(selection).__name__}).")
    bound = check_positive("score_bound", score_bound)
    if insecure_seed is not None:
        check_seed("insecure_seed", insecure_seed)
    mechanisms = []
    for config in configs:
        description = ModelDescription(model=model, schema=schema, guide=config.guide)
        check_model(description, num_draws=config.monte_carlo_samples)
        mechanisms.append(make_mechanism(description, privacy=privacy, config=config, selection=selection))
    streams = make_streams(insecure_seed=insecure_seed)
    guarantee = mechanisms[0].guarantee(
        mechanisms[0].noise_source(streams, num_steps=1), num_steps=configs[0].num_steps
    )
    if ledger is not None:
        ledger.check(guarantee)
    records = make_records(
        table, description.design, person=schema.person, counts=schema.counts, rng=streams.rows
    )
    entry = None if ledger is None else ledger.reserve(guarantee, label=label)
    winner, kept = _best_run(mechanisms, records, streams=streams, selection=selection, bound=bound)
    Booking(ledger, entry).settle(configs[0].num_steps, is_complete=True)
    return winner.to_release(
        kept.trace,
        guarantee=replace(guarantee, clip_norm=winner.settings.clip_norm),
        sums=kept.sums,
        final_phi=kept.final_phi,
    )


def _best_run(
    mechanisms: Sequence[Mechanism],
    records: Records,
    *,
    streams: Streams,
    selection: Selection,
    bound: float,
) -> tuple[Mechanism, Kept]:
    """Return the settings and the trace of the run with the highest private score."""
    best: tuple[Mechanism, Kept] | None = None
    best_score = -math.inf
    for _ in range(draw_num_runs(streams.subsample, selection)):
        mechanism = mechanisms[int(streams.subsample.integers(len(mechanisms)))]
        num_steps = mechanism.settings.num_steps
        part = Part(
            mechanism=mechanism,
            records=records,
            noise=mechanism.noise_source(streams, num_steps=num_steps),
            streams=streams,
            progress=False,
        )
        try:
            keeper, _ = run_steps(part)
        except DivergenceError:
            continue  # seen from the noisy trace alone, so that it is a score like any other: the lowest
        if keeper.num_done < num_steps:
            raise KeyboardInterrupt
        kept = keeper.result()
        score = private_score(
            records,
            description=mechanism.description,
            phi=kept.final_phi,
            bound=bound,
            records_per_unit=mechanism.records_per_unit,
            noise=mechanism.score_noise(streams),
            rng=streams.monte_carlo,
        )
        if score > best_score:
            best, best_score = (mechanism, kept), score
    if best is None:
        raise DivergenceError("every run diverged; the budget is spent. Lower learning_rate_constant.")
    return best


def _check_candidates(candidates: Sequence[DPVIConfig]) -> tuple[DPVIConfig, ...]:
    """Return the candidates if they are such that one budget covers whichever is run."""
    if not isinstance(candidates, Sequence) or not all(isinstance(c, DPVIConfig) for c in candidates):
        raise ArgumentError("candidates must be a list of DPVIConfig.")
    configs = tuple(candidates)
    if len(configs) < 2:
        raise ArgumentError(f"candidates must be at least two (got {len(configs)}); for one, use release.")
    shared = ("num_steps", "sampling_rate", "guide", "prior_term", "num_records")
    if len({tuple(getattr(config, name) for name in shared) for config in configs}) > 1:
        raise ArgumentError(f"candidates must share {', '.join(shared)}; vary the others.")
    return configs
