"""A release for Stan itself: what CmdStan's command line, cmdstanr and other Stans need to sample it."""

import contextlib
import csv
import io
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from nadpvi.containers.release import Release
from nadpvi.containers.storage import as_path, check_writable, write_bytes
from nadpvi.diagnostics.burn_in import choose_burn_in
from nadpvi.engines.data import check_data
from nadpvi.engines.programs import inlined_program, program_path
from nadpvi.errors import ArgumentError, FileError
from nadpvi.gradient_model import GradientModel, make_gradient_model
from nadpvi.inference.curvature_prior import curvature_prior_for
from nadpvi.inference.stan_data import StanDataEntry, make_parameter_data, make_stan_data, make_trace_data

__all__ = ["PROGRAMS", "ExportedFiles", "export_stan"]

PROGRAMS = ("gradient_model", "gradient_model_trace", "parameter_model")
_LABELS = "labels.csv"
_LEFT_OUT = (
    "the release's curvature is left out: the exported program has a diagonal one, whose intervals are too "
    'narrow where coefficients are correlated; infer(method="dense") uses the matrix.'
)


class ExportedFiles(NamedTuple):
    """Where an export is: the data, the Stan program, and what its numbered variables stand for."""

    data: Path
    program: Path
    labels: Path


def export_stan(
    release: Release,
    *,
    data: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    program: Literal["gradient_model", "gradient_model_trace", "parameter_model"] = "gradient_model",
    burn_in: float | Literal["auto"] | None = None,
    phi_star_prior: Literal["trace", "model"] = "trace",
    curvature_prior: Literal["auto", "trace", "weak", "model", "tighter"] = "auto",
    subsampling_noise: bool = True,
    overwrite: bool = False,
) -> ExportedFiles:
    """Write the Stan program and the data that sample a release's posterior without this package.

    The program is one text, needs no include path, and draws the model's parameters as well; Stan 2.29 or
    later compiles it. `Posterior.from_cmdstan` reads the draws back. Costs no privacy.

    Parameters
    ----------
    release : Release
    data : path
        The JSON file to write: numbers to their last digit, under the names that the program declares.
    folder : path
        Gets the program, ``<program>.stan``, and ``labels.csv``, which names its variables; made if missing.
    program : {"gradient_model", "gradient_model_trace", "parameter_model"}
        One posterior written in three ways: on sums, row by row, and on the iterates (Eq. 22). The last two
        are for reading and checking; they are slow.
    burn_in, phi_star_prior, curvature_prior, subsampling_noise
        As in `nadpvi.infer`.
    overwrite : bool
        Whether to replace files that exist.

    Returns
    -------
    ExportedFiles

    Warns
    -----
    UserWarning
        If the release holds a curvature, a matrix, of which no exported program knows.

    Raises
    ------
    ArgumentError
        If a setting is out of range, or the program cannot be used with this release.
    FileError
        If a file exists and `overwrite` is false, or cannot be written. No file is left then that was not
        there before.
    """
    if program not in PROGRAMS:
        raise ArgumentError(f"program must be one of {', '.join(map(repr, PROGRAMS))} (got {program!r}).")
    if isinstance(burn_in, str) and burn_in == "auto":
        burn_in = choose_burn_in(release)
    model = make_gradient_model(
        release,
        burn_in=burn_in,
        phi_star_prior=phi_star_prior,
        curvature_prior=curvature_prior_for(release, curvature_prior),
        subsampling_noise=subsampling_noise,
    )
    content = json.dumps(check_data(_entries(program, model, release)), allow_nan=False)
    text = inlined_program(program_path(program))
    place = as_path(folder, name="folder")
    files = ExportedFiles(as_path(data, name="data"), place / f"{program}.stan", place / _LABELS)
    if len({path.resolve() for path in files}) < len(files):
        raise ArgumentError("the data file must not have the name of a file in the program's folder.")
    _check_place(place, files, overwrite=overwrite)
    labels = _labels(model, release)
    _write_all(zip(files, (content, text, labels), strict=True), overwrite=overwrite)
    if release.curvature is not None:
        warnings.warn(_LEFT_OUT, UserWarning, stacklevel=2)
    return files


def _write_all(contents: Iterable[tuple[Path, str]], *, overwrite: bool) -> None:
    """Write texts to files, and take away the new ones among them if any cannot be written."""
    with contextlib.ExitStack() as undo:
        for path, text in contents:
            is_new = not path.exists()
            write_bytes(text.encode(), path, overwrite=overwrite)
            if is_new:
                undo.callback(path.unlink, missing_ok=True)
        undo.pop_all()


def _entries(program: str, model: GradientModel, release: Release) -> dict[str, StanDataEntry]:
    """Return the data of a program, with the guide where there is one."""
    description = release.description
    guide = None if description is None else description.guide
    blocks = () if description is None else description.parameters
    if program == "gradient_model_trace":
        return make_trace_data(model, release, guide=guide, parameters=blocks)
    if program == "parameter_model":
        return make_parameter_data(model, release, guide=guide, parameters=blocks)
    return make_stan_data(model, guide=guide, parameters=blocks)


def _check_place(folder: Path, files: ExportedFiles, *, overwrite: bool) -> None:
    """Make the folder, after checking that every file may be written."""
    if folder.exists() or files.data.parent.resolve() != folder.resolve():
        check_writable(files.data, overwrite=overwrite)
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise FileError(f"folder {folder.parent} does not exist; create it first.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"cannot make the folder {folder}: {reason}.") from None
    for path in files:
        check_writable(path, overwrite=overwrite)


def _labels(model: GradientModel, release: Release) -> str:
    """Return a CSV table of what each entry of the program's variables stands for."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("variable", "label"))
    table.writerows(_label_rows(model, release))
    return text.getvalue()


def _label_rows(model: GradientModel, release: Release) -> Iterator[tuple[str, str]]:
    """Yield variable[index], as Stan's interfaces write it, and its label."""
    names = ("phi_star", "curvature") if model.tau_prior_scale is None else ("phi_star", "curvature", "tau")
    vectors = {name: model.phi_labels for name in names}
    if release.description is not None:
        vectors["theta"] = release.description.names
        entries = [label for block in release.description.parameters for label in block.entry_labels]
        vectors["model_parameters"] = tuple(entries)
    for name, labels in vectors.items():
        yield from ((f"{name}[{index}]", label) for index, label in enumerate(labels, start=1))
