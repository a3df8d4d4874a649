"""nadpvi predict: what a posterior says about new rows."""

import io
import sys
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from nadpvi.cli import options
from nadpvi.cli.console import say, warnings_as_lines
from nadpvi.cli.files import check_files
from nadpvi.cli.run_file import RunFile
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.storage import write_bytes
from nadpvi.errors import ArgumentError
from nadpvi.models.custom_recorded import RecordedModel
from nadpvi.table_files import is_parquet

__all__ = ["predict"]


def predict(
    posterior_file: Annotated[
        Path, typer.Argument(help="A posterior, from nadpvi infer.", metavar="POSTERIOR")
    ],
    new_table: Annotated[
        Path, typer.Argument(help="Rows to predict: a CSV or Parquet file.", metavar="ROWS")
    ],
    file: RunFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A CSV or .parquet file; CSV on stdout when omitted."),
    ] = None,
    probability: Annotated[
        float, typer.Option("--probability", help="Content of the equal-tailed interval.")
    ] = 0.9,
    force: options.Force = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict the outcome of new ROWS by a POSTERIOR.

    The mean over its draws, with an interval of that mean. One line a row, in their order; empty where a
    used cell is missing or unknown. A categorical outcome has a mean and an interval for each level. Needs
    no outcome column, and costs no privacy.

    Example: nadpvi predict posterior.nc new_people.csv -o predictions.csv
    """
    inputs = [posterior_file, new_table, file.config]
    check_files([output, file.write_config], inputs=inputs, overwrite=force)
    with warnings_as_lines():
        posterior = Posterior.load(posterior_file)
        model = None if posterior.description is None else posterior.description.model
        if isinstance(model, RecordedModel):
            raise ArgumentError(
                f"{posterior_file} has the custom model {model.name}, whose functions no file holds; "
                "predict in Python: Posterior.load(...).with_model(model).predict(...)."
            )
        found = posterior.predict_table(new_table, probability=probability)
        if output is None:
            found.to_csv(sys.stdout, index=False, lineterminator="\n")
        else:
            write_bytes(_bytes(found, output), output, overwrite=force)
        file.write(overwrite=force)
    if output is not None:
        say(f"predictions: {output}", quiet=quiet)


def _bytes(found: pd.DataFrame, output: Path) -> bytes:
    """Return a table as the file that its name asks for."""
    if not is_parquet(output):
        return found.to_csv(index=False, lineterminator="\n").encode()
    buffer = io.BytesIO()
    try:
        found.to_parquet(buffer, index=False, engine="pyarrow")
    except ImportError:
        raise ArgumentError(
            f"{output}: writing Parquet needs pyarrow; pip install 'nadpvi[parquet]', or write CSV."
        ) from None
    return buffer.getvalue()
