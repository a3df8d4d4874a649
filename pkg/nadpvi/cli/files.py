"""The files of a command, checked before anything else."""

from collections.abc import Iterable
from pathlib import Path

from nadpvi.containers.storage import check_not_an_input, check_writable
from nadpvi.errors import ArgumentError

__all__ = ["check_files"]


def check_files(
    outputs: Iterable[Path | None],
    *,
    inputs: Iterable[Path | None],
    overwrite: bool,
    checkpoint: Path | None = None,
) -> None:
    """Refuse outputs that cannot be written, that are inputs, or that are one and the same.

    Parameters
    ----------
    outputs, inputs : iterable of Path or None
        None is a file that is not asked for.
    overwrite : bool
        Whether outputs may exist.
    checkpoint : Path, optional
        An output as well, whose own rules are checked where it is written.

    Raises
    ------
    ArgumentError, FileError
        If one of them is unsuitable.
    """
    asked = [path for path in outputs if path is not None]
    written = asked if checkpoint is None else [*asked, checkpoint]
    check_not_an_input(written, inputs=[path for path in inputs if path is not None])
    for path in asked:
        check_writable(path, overwrite=overwrite)
    if len({path.resolve() for path in written}) < len(written):
        raise ArgumentError("the output files, --checkpoint among them, must be different.")
