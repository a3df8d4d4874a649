"""nadpvi plan: what a run will cost and what it can tell, before there is any table."""

from dataclasses import dataclass
from typing import Annotated

import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_json, print_text, say, warnings_as_lines
from nadpvi.cli.described import RunOptions, described_run
from nadpvi.cli.files import check_files
from nadpvi.cli.run_file import RunFile
from nadpvi.cli.wording import in_flags
from nadpvi.gradient_model.sums import DEFAULT_BURN_IN

__all__ = ["plan"]

NumRecords = Annotated[
    int, typer.Option("--num-records", help="Your public guess at how many records there are.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun(RunOptions):
    """A run that a number of records must be guessed for."""

    num_records: NumRecords


def plan(
    run: PlannedRun,
    file: RunFile,
    burn_in: options.BurnIn = None,
    force: options.Force = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Say what a release would cost and tell.

    Reads no table and spends nothing: the number of records is your own guess.

    Example:
      nadpvi plan --schema people.toml --outcome employed \
        --epsilon 1 --delta 1e-5 --num-records 30000
    """
    from nadpvi.planning.plan import plan as make_plan

    check_files([file.write_config], inputs=[run.schema, file.config], overwrite=force)
    say("trying the model on made-up records ...", quiet=quiet)
    with warnings_as_lines():
        per_record = run.prior_term == "per_record"
        chooses = run.settings == "suggested" or (run.settings is None and not per_record)
        described = described_run(run, num_records=run.num_records if chooses or per_record else None)
        made = make_plan(
            described.model,
            described.budget,
            described.config,
            schema=described.schema,
            num_records=run.num_records,
            burn_in=DEFAULT_BURN_IN if burn_in is None else burn_in,
        )
    file.write(overwrite=force)
    if json:
        print_json(made.to_dict())
    else:
        print_text(made.report())
    for line in made.warnings:
        say(f"nadpvi: warning: {in_flags(line)}")
