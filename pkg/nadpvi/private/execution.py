"""The steps of a private run from start to end, or to an interrupt, with their bookkeeping. Private side."""

import contextlib
import dataclasses
import signal
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from threadpoolctl import threadpool_limits

from nadpvi.callbacks import Callback, StepDone
from nadpvi.containers.release import Release
from nadpvi.errors import FileError
from nadpvi.interrupts import RunInterrupted
from nadpvi.mechanism import Mechanism
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.ledger import EntryState, Ledger
from nadpvi.privacy.noise import NoiseSource
from nadpvi.privacy.randomness import Streams
from nadpvi.private.checkpoint_writer import CheckpointWriter
from nadpvi.private.curvature import release_curvature
from nadpvi.private.dpvi import StepFunction, run
from nadpvi.private.dry_run import warn_of_failure
from nadpvi.private.keeping import Keeper, Trace
from nadpvi.private.records import Records
from nadpvi.progress import track

__all__ = ["Booking", "Part", "carry_out", "run_steps"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Part:
    """Steps that are about to be done: a whole run, or what is left of an interrupted one. Private."""

    mechanism: Mechanism
    records: Records
    noise: NoiseSource
    streams: Streams
    progress: bool
    done: Trace | None = None
    writer: CheckpointWriter | None = None
    callback: Callback | None = None
    take_step: StepFunction | None = None


@dataclass(frozen=True, slots=True)
class Booking:
    """Where the steps of this process are reserved, if anywhere."""

    ledger: Ledger | None
    entry: str | None

    def settle(self, num_steps: int, *, is_complete: bool) -> None:
        """Record how many of the reserved steps were done.

        A ledger that cannot be written must not cost the trace: the reservation counts in full then.
        """
        if self.ledger is None or self.entry is None:
            return
        try:
            entry = next((entry for entry in self.ledger.entries() if entry.id == self.entry), None)
            if entry is None:
                raise FileError(f"{self.ledger.path} no longer holds the run; it was replaced.")
            if entry.state is not EntryState.RESERVED:
                # Somebody has settled it meanwhile; what has been drawn counts all the same.
                if entry.num_steps < num_steps:
                    self.ledger.extend(self.entry, num_steps=num_steps, is_planned=False)
            elif is_complete:
                self.ledger.commit(self.entry)
            elif num_steps:
                self.ledger.amend(self.entry, num_steps=num_steps)
            else:
                self.ledger.void(self.entry)
        except FileError as error:
            warnings.warn(f"the run may count in full in its ledger: {error}", UserWarning, stacklevel=2)


def carry_out(part: Part, *, guarantee: Guarantee, booking: Booking) -> Release:
    """Return the release of all steps.

    Parameters
    ----------
    part : Part
        What is to be done. Private.
    guarantee : Guarantee
        Of the whole run.
    booking : Booking
        Where the steps of `part` are reserved.

    Raises
    ------
    RunInterrupted
        On Ctrl-C after at least one step, or where a callback raised, with the release of the steps that were
        done.
    """
    mechanism, num_steps = part.mechanism, part.mechanism.settings.num_steps
    num_before = 0 if part.done is None else len(part.done.phi)
    try:
        keeper, failure = run_steps(part)
    except Exception:
        if part.writer is not None:
            part.writer.give_up()
        raise
    num_done = keeper.num_done
    with _deaf_to_interrupts():
        # The trace is on disk before anything else is asked for that could fail.
        if part.writer is not None and num_done:
            part.writer.finish(*keeper.trace())
        # Whoever has watched the run may have ended it for what they saw; then all planned steps count.
        is_whole = num_done == num_steps or (part.callback is not None and num_done > num_before)
        num_counted = num_steps if is_whole else num_done
        booking.settle(num_counted - num_before, is_complete=is_whole)
        if not num_done:
            raise KeyboardInterrupt
        if not is_whole:
            guarantee = mechanism.guarantee(part.noise, num_steps=num_done, was_interrupted=True)
        kept = keeper.result()
        warn_of_failure(mechanism.description, kept.final_phi)
        made = mechanism.to_release(kept.trace, guarantee=guarantee, sums=kept.sums, final_phi=kept.final_phi)
        if num_done < num_steps or failure is not None:
            raise RunInterrupted(made, num_done=num_done, num_steps=num_steps, failure=failure) from failure
    if mechanism.curvature_noise_multiplier is not None:
        made = _with_curvature(made, part)
    if part.writer is not None:
        part.writer.give_up()
    return made


def _with_curvature(made: Release, part: Part) -> Release:
    """Return a whole run's release with its curvature; what goes wrong, or Ctrl-C, must not cost the trace.

    All is counted then: whether it went wrong may have depended on the records.
    """
    try:
        noise = part.mechanism.curvature_noise(part.streams)
        curvature, std = release_curvature(made, part.records, mechanism=part.mechanism, noise=noise)
        return dataclasses.replace(made, curvature=curvature, curvature_std=std)
    except (Exception, KeyboardInterrupt) as error:
        num_steps = part.mechanism.settings.num_steps
        raise RunInterrupted(
            made, num_done=num_steps, num_steps=num_steps, failure=error, where="the curvature"
        ) from error


def run_steps(part: Part) -> tuple[Keeper, BaseException | None]:
    """Return what was kept, with fewer steps than planned after an interrupt, and what a callback raised."""
    settings = part.mechanism.settings
    keeper = Keeper(settings, done=part.done)
    failure: BaseException | None = None
    num_before = keeper.num_done
    steps = run(
        part.records,
        settings,
        noise=part.noise,
        streams=part.streams,
        keeper=keeper,
        take_step=part.take_step,
    )
    # The products are too small for BLAS threads: on two busy cores they were measured to cost a factor 7.
    with threadpool_limits(limits=1, user_api="blas"), contextlib.suppress(KeyboardInterrupt):
        for done in track(
            steps, total=settings.num_steps - num_before, description="DP-SGD", enabled=part.progress
        ):
            if part.writer is not None:
                part.writer.offer(*keeper.trace())
            if part.callback is not None and (failure := _failure_of(part.callback, done)) is not None:
                break
    return keeper, failure


def _failure_of(callback: Callback, done: StepDone) -> BaseException | None:
    """Show a callback copies of a step, and return what it raises."""
    try:
        callback(done._replace(phi=done.phi.copy(), noisy_gradient=done.noisy_gradient.copy()))
    except (Exception, SystemExit) as error:  # a user's code may raise anything
        return error
    return None


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ignore a further Ctrl-C or request to end while a result is put together."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
