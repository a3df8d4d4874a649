"""nadpvi resume: go on with a private run that was interrupted or killed."""

from pathlib import Path
from typing import Annotated

import typer

from nadpvi.cli import options
from nadpvi.cli.console import say, warnings_as_lines
from nadpvi.cli.saving import make_and_save, report_release, save_release
from nadpvi.containers.storage import check_not_an_input, check_writable
from nadpvi.errors import ArgumentError
from nadpvi.privacy.ledger import Ledger

__all__ = ["resume"]


def resume(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="The file that --checkpoint named. PRIVATE.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the release is written.")],
    table: Annotated[
        Path | None,
        typer.Argument(metavar="TABLE", help="The private table, the same as before.", show_default=False),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Do not go on: write the steps that were done, at their cost.")
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", help="The run's ledger, if it has moved; else found by itself.")
    ] = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with a release that was interrupted.

    It goes on from its CHECKPOINT on the same TABLE, with fresh noise, once. Every step counts once, in the
    guarantee and in the ledger. The checkpoint is deleted when the whole release is on disk.

    Example: nadpvi resume people.checkpoint people.csv -o release.nc
    """
    from nadpvi.private import resume as going_on
    from nadpvi.private.checkpoint import Checkpoint

    if (table is None) is not partial:
        raise ArgumentError("give either the TABLE, to go on, or --partial, to stop here.")
    booked = Checkpoint.load(checkpoint).ledger
    inputs = [path for path in (checkpoint, table, ledger, booked) if path is not None]
    check_not_an_input([output], inputs=inputs)
    check_writable(output, overwrite=force)
    with warnings_as_lines():
        book = None if ledger is None else Ledger.open(ledger)
        if table is None:
            made = going_on.partial_release(checkpoint, ledger=book)
            save_release(made, output, overwrite=force)
        else:
            private = table
            made = make_and_save(
                lambda: going_on.resume(checkpoint, private, ledger=book, progress=not quiet),
                output=output,
                overwrite=force,
                checkpoint=checkpoint,
                table=private,
            )
    report_release(made, output, as_json=json)
    if partial and made.config is not None and made.num_steps < made.config.num_steps:
        say(f"{checkpoint} can still be resumed.", quiet=quiet)
