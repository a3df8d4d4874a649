"""Child processes of the CmdStan engine, chains and builds, none of which outlives its run.

Signals that would end this process are held back while children run, acted on once the children have ended,
and never raised in the middle of starting one, so that no child can be lost track of.
"""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["describe_exit", "run_processes"]

_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_SECONDS = 0.02
_GRACE_SECONDS = 1.0


@contextlib.contextmanager
def _held_signals() -> Iterator[list[int]]:
    """Yield a list that collects ending signals; on leaving, act on the first of them.

    A signal whose handler is the caller's own is left alone, and outside the main thread, where Python sets
    no handlers, all are.
    """
    received: list[int] = []
    before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING_SIGNALS:
            handler = signal.getsignal(number)
            if handler in (signal.SIG_DFL, signal.default_int_handler):
                signal.signal(number, lambda number, _frame: received.append(number))
                before[number] = handler
    try:
        yield received
    finally:
        for held, earlier in before.items():
            signal.signal(held, earlier)
    if received:
        if before[received[0]] is signal.default_int_handler:
            raise KeyboardInterrupt
        # an exception where the signal would have ended Python at once, so that temporary files go too
        raise SystemExit(128 + received[0])


def _signaller(process: subprocess.Popen[bytes], *, own_group: bool) -> Callable[[int], None]:
    """Return a function that signals a process, or all of its group."""

    def send(number: int) -> None:
        # macOS refuses to signal a group whose members have all ended
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if own_group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    return send


def _stop(processes: Sequence[subprocess.Popen[bytes]], *, own_group: bool) -> None:
    """End processes: by asking, and after a second by force."""
    senders = [_signaller(process, own_group=own_group) for process in processes]
    deadline = time.monotonic() + _GRACE_SECONDS
    try:
        for send in senders:
            send(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass
    finally:
        for send in senders:
            send(signal.SIGKILL)
        for process in processes:
            process.wait()


def _start(
    command: Sequence[str], console: Path, *, cwd: Path | None, own_group: bool
) -> subprocess.Popen[bytes]:
    """Start a command that writes all it says to a file."""
    with console.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0 if own_group else None,
        )


def run_processes(
    commands: Sequence[Sequence[str]],
    *,
    consoles: Sequence[Path],
    max_parallel: int = 1,
    cwd: Path | None = None,
    own_group: bool = False,
    timeout: float | None = None,
) -> list[int | None]:
    """Return the exit code of every command; after the first failure the others are ended.

    Whatever makes this function leave, an interrupt included, all children have ended by then.

    Parameters
    ----------
    commands : sequence of sequences of str
        Programs and their arguments; no shell is involved.
    consoles : sequence of Path
        For each command the file that receives its output and its error messages.
    max_parallel : int
        How many run at a time, at least 1.
    cwd : Path or None
        Working folder of all commands.
    own_group : bool
        Whether a command leads a process group that is ended as one: for make, which starts compilers.
    timeout : float or None
        Seconds after which the commands are ended.

    Returns
    -------
    list of int or None
        Negative: the signal that ended the command. None: not run, or ended because another one failed.

    Raises
    ------
    TimeoutError
        If the commands had not all ended in time.
    OSError
        If a command cannot be started.
    KeyboardInterrupt, SystemExit
        If this process was told to end by SIGINT, SIGTERM or SIGHUP meanwhile.
    """
    codes: list[int | None] = [None] * len(commands)
    waiting = list(range(len(commands)))
    running: dict[int, subprocess.Popen[bytes]] = {}
    deadline = None if timeout is None else time.monotonic() + timeout
    with _held_signals() as received:
        try:
            while (waiting or running) and not received and not any(codes):
                while waiting and len(running) < max_parallel and not received:
                    index = waiting.pop(0)
                    running[index] = _start(commands[index], consoles[index], cwd=cwd, own_group=own_group)
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError(f"not done within {timeout:g} seconds")
                time.sleep(_POLL_SECONDS)
                for index, process in list(running.items()):
                    codes[index] = process.poll()
                    if codes[index] is not None:
                        del running[index]
        finally:
            _stop(list(running.values()), own_group=own_group)
    return codes


def describe_exit(code: int | None) -> str:
    """Return what an exit code says, in words.

    Examples
    --------
    >>> describe_exit(70), describe_exit(-9)
    ('ended with exit code 70', 'was ended by SIGKILL')
    """
    if code is None:
        return "was not run to its end"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
