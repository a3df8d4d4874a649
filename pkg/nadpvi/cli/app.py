"""Entry point: which commands there are, and how errors leave the process."""

import io
import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nadpvi.cli import schema
from nadpvi.cli.coverage import coverage
from nadpvi.cli.demo import demo
from nadpvi.cli.doctor import doctor
from nadpvi.cli.export import export
from nadpvi.cli.groups import with_groups
from nadpvi.cli.ledger import ledger
from nadpvi.cli.plan import plan
from nadpvi.cli.predict import predict
from nadpvi.cli.report import report
from nadpvi.cli.resume import resume
from nadpvi.cli.run import fit, infer, release
from nadpvi.cli.summary import summary
from nadpvi.cli.wording import in_flags
from nadpvi.errors import ArgumentError, FileError, NadpviError, SchemaError

__all__ = ["app", "main"]

# Newer Typers have a copy of Click inside, whose errors are not those of Click.
UsageError: type[Any] = typer.BadParameter.__mro__[1]


class _Road(TyperGroup):
    """Commands in the order of the road; Typer puts a group, which `schema` is, behind all commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names as they are listed: the schema comes first."""
        return sorted(self.commands, key=lambda name: name != "schema")


app = typer.Typer(
    name="nadpvi",
    cls=_Road,
    help="Noise-aware differentially private Bayesian inference.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
# In the order of the road, which is that of --help.
COMMANDS = (
    plan,
    release,
    resume,
    infer,
    fit,
    summary,
    predict,
    report,
    export,
    coverage,
    ledger,
    doctor,
    demo,
)
for command in COMMANDS:
    app.command()(with_groups(command))
schemas = typer.Typer(
    help="Write or check the public description of a table.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for part in (schema.init, schema.check):
    schemas.command()(with_groups(part))
app.add_typer(schemas, name="schema")


def _show_version(value: bool) -> None:
    """Print the version and stop."""
    if value:
        from importlib.metadata import version

        sys.stdout.write(f"nadpvi {version('nadpvi')}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")
    ] = False,
) -> None:
    """Noise-aware differentially private Bayesian inference."""
    if debug:
        os.environ["NADPVI_DEBUG"] = "1"


def main() -> None:
    """Run the command line; errors are one line on stderr.

    Exit codes: 0 success, 1 failure, 2 bad usage, 130 interrupted.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal cannot show must not cost a result that is already computed.
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code = app(prog_name="nadpvi", standalone_mode=False)
        finally:
            # Here, not at the interpreter's exit, where a full disk would be a traceback.
            sys.stdout.flush()
        if code:
            sys.exit(code)
    except UsageError as error:
        sys.stderr.write(_usage(error))
        sys.exit(2)
    except NadpviError as error:
        _fail(error, code=2 if isinstance(error, ArgumentError | SchemaError) else 1)
    except BrokenPipeError:
        # The reader of a pipe has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if os.environ.get("NADPVI_DEBUG"):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.stderr.write(f"nadpvi: error: {error.strerror or error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("nadpvi: interrupted\n")
        sys.exit(130)
    except SystemExit as stop:
        if stop.code == 130:
            sys.stderr.write("nadpvi: interrupted\n")
        raise


def _usage(error: Any) -> str:
    """Return what is wrong with a command line, as one line and one about where to look."""
    if error.ctx is None:
        return f"nadpvi: error: {_one_line(error)}\n"
    if type(error).__name__ == "NoArgsIsHelpError":
        return f"{error.ctx.get_help()}\n"
    return f"nadpvi: error: {_one_line(error)}\nSee: {error.ctx.command_path} --help\n"


def _one_line(error: Any) -> str:
    """Return the parser's message without its line breaks."""
    return " ".join(str(error.format_message()).split())


def _interrupt(*_: object) -> None:
    """End the run the way Ctrl-C does: what was drawn is saved, one line, no traceback.

    Stan's sampler listens to SIGINT alone, so that is what it gets, unless that is ignored, as under nohup.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def _fail(error: NadpviError, *, code: int) -> None:
    """Print the error as one line, or with its traceback in debug mode, and exit."""
    if os.environ.get("NADPVI_DEBUG"):
        raise error
    # What is wrong inside a file has the file's names.
    message = str(error) if isinstance(error, FileError) else in_flags(error)
    sys.stderr.write(f"nadpvi: error: {message}\n")
    sys.exit(code)
