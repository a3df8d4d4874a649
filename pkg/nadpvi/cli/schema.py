"""nadpvi schema: write the public description of a table, and check one. Neither reads a table."""

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from nadpvi.cli import options
from nadpvi.cli.console import print_frame, print_json, print_text, say
from nadpvi.cli.files import check_files
from nadpvi.cli.model import model_from_options
from nadpvi.columns import Column, CountColumn, RealColumn, listed
from nadpvi.containers.storage import write_bytes
from nadpvi.design import Design
from nadpvi.errors import ArgumentError
from nadpvi.factors import column_labels
from nadpvi.schema import Schema
from nadpvi.skeleton import column_from_text, columns_from_codebook, schema_skeleton

__all__ = ["check", "init"]

_FORMATS = {"kind": "", "holds": "", "coefficients": "d", "missing": "", "unknown": ""}


def init(
    columns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COLUMNS",
            help="Columns as NAME, NAME:KIND or NAME:KIND:DETAIL. KIND is real, count, binary, categorical, "
            "ordered, person or counts (of a frequency table); DETAIL are bounds (0,100) or levels (no,yes).",
        ),
    ] = None,
    codebook: Annotated[
        Path | None,
        typer.Option(
            "--codebook",
            help="A public CSV file, a line for each column: name, kind, lower, upper, levels (a|b|c), ...",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the schema is written; shown when omitted.")
    ] = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    r"""Write the skeleton of a schema from COLUMNS that you name.

    The table itself is never read.

    Example:
      nadpvi schema init age:real:18,90 education:categorical \
        employed:binary:no,yes -o people.toml
    """
    check_files([output], inputs=[codebook], overwrite=force)
    for name in columns or ():
        if Path(name).suffix and Path(name).is_file():
            raise ArgumentError(
                f"{name} is a file, where names of columns belong: a schema is never made from the table. "
                "Name them one by one, or give a public description of them by --codebook."
            )
    described = [] if codebook is None else columns_from_codebook(codebook)
    text, num_open = schema_skeleton([*described, *map(column_from_text, columns or ())])
    if output is None:
        print_text(text.rstrip("\n"))
    else:
        write_bytes(text.encode(), output, overwrite=force)
    if num_open:
        say(f'{num_open} settings are to be filled in, where it says "FILL IN".', quiet=quiet)
    if output is not None:
        say(f"schema: {output}; then: nadpvi schema check {output}", quiet=quiet)


def check(
    schema: Annotated[Path, typer.Argument(help="A schema, in TOML.", metavar="SCHEMA")],
    outcome: options.Outcome = None,
    predictor: options.Predictors = None,
    formula: options.Formula = None,
    model: options.Model = "logistic_regression",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Check a SCHEMA, and show its columns.

    With an outcome or a formula it tells the coefficients of a model of them as well.

    Example: nadpvi schema check people.toml --formula "income ~ age + education * sex"
    """
    described = Schema.from_toml(schema)
    design = None
    if outcome is not None or formula is not None:
        made = model_from_options(
            model, outcome=outcome, predictors=predictor, formula=formula, prior_sd=None, settings=None
        )
        design = made.design(described)
    elif predictor:
        raise ArgumentError("--predictor goes with --outcome; name the column that is explained.")
    if json:
        print_json(_as_json(described, design))
    else:
        _print(described, design)
    refusing = [column.name for column in described.columns if "refuse" in (column.missing, column.unknown)]
    if refusing:
        say(
            f"note: one missing or unknown cell in {listed(refusing)} would stop a run, and so show that it "
            'is there; "drop", or a level or number that it counts as, would not.',
            quiet=quiet,
        )


def _print(schema: Schema, design: Design | None) -> None:
    """Show the columns, and what a design makes of them."""
    frame = pd.DataFrame(
        {
            "kind": [column.kind for column in schema.columns],
            "holds": [_holds(column) for column in schema.columns],
            "coefficients": [len(column_labels(column)) for column in schema.columns],
            "missing": [str(column.missing) for column in schema.columns],
            "unknown": [str(column.unknown) for column in schema.columns],
        },
        index=pd.Index(schema.names, name="column"),
    )
    print_frame(frame, title=f"{len(schema.columns)} columns", formats=_FORMATS)
    if schema.person is not None:
        print_text(f"person: {schema.person.column}, up to {schema.person.max_rows} rows each")
    if schema.counts is not None:
        print_text(f"counts: {schema.counts.column}, up to {schema.counts.upper} records a row")
    if design is not None:
        print_text(
            f"outcome: {design.outcome}; {design.num_features} coefficients, no row of features longer than "
            f"{design.feature_norm_bound:.4g}:"
        )
        print_text("  " + ", ".join(design.labels))


def _holds(column: Column) -> str:
    """Return a column's bounds, or how many levels it has and the first of them."""
    if isinstance(column, RealColumn | CountColumn):
        ends = f"{column.lower:g} to {column.upper:g}"
        transform = getattr(column, "transform", None)
        return ends if transform is None else f"{ends}, {transform}"
    shown = ", ".join(column.levels[:3]) + (", ..." if len(column.levels) > 3 else "")
    return f"{len(column.levels)} levels: {shown}"


def _as_json(schema: Schema, design: Design | None) -> dict[str, Any]:
    """Return what is shown as JSON types."""
    content: dict[str, Any] = schema.to_dict()
    for entry, column in zip(content["columns"], schema.columns, strict=True):
        entry["coefficients"] = list(column_labels(column))
    if design is not None:
        low, high = design.feature_bounds
        content |= {
            "outcome": design.outcome,
            "coefficients": list(design.labels),
            "num_coefficients": design.num_features,
            "feature_norm_bound": design.feature_norm_bound,
            "feature_bounds": [list(pair) for pair in zip(low, high, strict=True)],
        }
    return content
