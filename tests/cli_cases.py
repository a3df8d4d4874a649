"""The command line inside this process: what a user types, and what comes out."""

import contextlib
import io
import signal
import sys
from typing import NamedTuple
from unittest import mock

from nadpvi.cli.app import main


class Done(NamedTuple):
    """As `subprocess.run` has it; an error that would be a traceback is raised instead."""

    returncode: int
    stdout: str
    stderr: str


def run_here(*arguments):
    """Run a command in the current folder."""
    out, err = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    typed = ["nadpvi", *map(str, arguments)]
    try:
        with (
            mock.patch.object(sys, "argv", typed),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        signal.signal(signal.SIGTERM, handler)
    return Done(code, out.getvalue(), err.getvalue())


def contents(folder):
    """Return every file below a folder with its bytes, to see whether anything was written."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
