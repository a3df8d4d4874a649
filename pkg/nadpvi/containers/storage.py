"""Files that are whole or absent: netCDF made in memory, written aside, then put in its place.

HDF5 never writes to the disk itself: when a disk is full it raises errors of several kinds, leaves the file
locked and can take the process down. Bytes are written with plain system calls instead.
"""

import contextlib
import errno
import functools
import io
import json
import os
import secrets
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import xarray as xr

from nadpvi.containers.checksum import CHECKSUM, HEADER, is_intact
from nadpvi.containers.heaps import has_endless_heap
from nadpvi.errors import ArgumentError, FileError, NadpviError

__all__ = [
    "HEADER",
    "as_path",
    "check_netcdf",
    "check_not_an_input",
    "check_writable",
    "file_kind",
    "load_file",
    "package_versions",
    "to_netcdf",
    "write_bytes",
]

_T = TypeVar("_T")

_RECORDED_PACKAGES = ("nadpvi", "numpy", "scipy", "xarray", "dp-accounting", "opendp", "stanli", "cmdstanpy")

# What a forged or foreign header can make the readers raise.
_FOREIGN = (KeyError, TypeError, AttributeError, ValueError, IndexError, RecursionError, OverflowError)

# Where hard links do not exist, or not here.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}


def package_versions() -> dict[str, str]:
    """Return the versions that a result depends on, by distribution name, of those that are installed."""
    return dict(_package_versions())


@functools.cache
def _package_versions() -> tuple[tuple[str, str], ...]:
    """Look the versions up once: it takes longer than a small run."""
    versions = {}
    for name in _RECORDED_PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    return tuple(versions.items())


def as_path(path: object, *, name: str = "path") -> Path:
    """Return what names a file as a `Path`, or raise `ArgumentError`."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise ArgumentError(f"{name} must be a text or a path (got {type(path).__name__}).")
    return Path(path)


def check_writable(path: str | os.PathLike[str], *, overwrite: bool, is_private: bool = False) -> Path:
    """Return `path` as a `Path` after checking that a file may be put there.

    Raises
    ------
    FileError
        If its folder is missing or not writable, if it is a folder or special file, or if it exists and
        `overwrite` is false, or is a link to nothing. A ledger, and a checkpoint unless `is_private`, is not
        replaced even so.
    ArgumentError
        If `path` is no path.
    """
    target = as_path(path)
    try:
        if target.exists() and not target.is_file():
            raise FileError(f"{target} is not a regular file; name another output file.")
        if overwrite and not is_private and (kind := _irreplaceable(target)):
            raise FileError(f"{target} is a {kind}, which nothing replaces; choose another name.")
        if target.exists() and not overwrite:
            raise FileError(f"{target} exists; choose another name or allow it to be replaced (--force).")
        if target.is_symlink() and not target.exists() and not overwrite:
            raise FileError(
                f"{target} is a link to a file that does not exist; remove the link, or choose another name."
            )
        if not target.parent.is_dir():
            raise FileError(f"folder {target.parent} does not exist; create it first.")
        if not os.access(target.parent, os.W_OK | os.X_OK):
            raise FileError(f"folder {target.parent} is not writable; choose another one.")
    except FileError:
        raise
    except (OSError, ValueError) as error:
        raise FileError(f"cannot use {target}: {_reason(error)}.") from error
    return target


def _irreplaceable(target: Path) -> str | None:
    """Return what a file is if replacing it would lose what a budget's count or a run's end depends on."""
    if not target.is_file():
        return None
    content = target.read_bytes()
    if content.startswith(b'{"kind": "nadpvi ledger"'):
        return "ledger"
    return "checkpoint" if b'"kind": "checkpoint"' in content else None


def check_not_an_input(
    outputs: Iterable[str | os.PathLike[str]], *, inputs: Iterable[str | os.PathLike[str]]
) -> None:
    """Raise `ArgumentError` if an output is the same file as an input, whatever the two are called."""
    for target in outputs:
        for source in inputs:
            with contextlib.suppress(OSError):
                if os.path.samefile(target, source):
                    raise ArgumentError(f"{target} is an input of this command; write the output elsewhere.")


def check_netcdf() -> None:
    """Raise `FileError` unless netCDF files can be read and written here.

    Called before a budget is spent or a fit begun: what cannot be saved is lost.
    """
    try:
        import h5netcdf  # noqa: F401
        import h5py  # noqa: F401
    except (ImportError, ValueError, RuntimeError) as error:  # what a broken build of h5py raises
        raise FileError(
            f"netCDF files cannot be read or written: {error}; pip install --upgrade h5netcdf h5py."
        ) from error


def to_netcdf(data: xr.Dataset | xr.DataTree) -> memoryview | bytes:
    """Return the bytes of a netCDF 4 file; see `check_netcdf`."""
    check_netcdf()
    content: memoryview | bytes = data.to_netcdf(engine="h5netcdf")
    return content


def write_bytes(
    content: memoryview | bytes,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    private: bool = False,
) -> Path:
    """Write a file, whole or not at all, and return its path; a private one only its owner can read.

    A view is released, whatever happens.

    Raises
    ------
    FileError
        If the place is unsuitable (`check_writable`), writing failed, or, without `overwrite`, another
        process has made the file meanwhile. No half-written file is left.
    """
    # From Python 3.13 on a buffer that is collected with its view, as after an error, complains on stderr.
    with content if isinstance(content, memoryview) else contextlib.nullcontext():
        return _write(
            content, check_writable(path, overwrite=overwrite, is_private=private), overwrite, private
        )


def _write(content: memoryview | bytes, target: Path, overwrite: bool, private: bool) -> Path:
    """Write to a file aside and give it its name."""
    aside = target.with_name(f".nadpvi-{secrets.token_hex(8)}.part")
    try:
        mode = 0o600 if private else 0o666
        with open(aside, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        if overwrite:
            os.replace(aside, target)
        else:
            _link(aside, target)
    except FileExistsError as error:
        raise FileError(f"{target} was made by another process meanwhile; choose another name.") from error
    except (OSError, ValueError) as error:
        raise FileError(f"cannot write {target}: {_reason(error)}.") from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
    return target


def _link(aside: Path, target: Path) -> None:
    """Give the file its name unless that is taken, in one step where the file system can."""
    try:
        os.link(aside, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError(str(target)) from error
        os.replace(aside, target)


def _reason(error: Exception) -> str:
    """Return why the system refused, in its own words."""
    return str(getattr(error, "strerror", None) or error)


def load_file(
    path: str | os.PathLike[str],
    *,
    kind: str,
    format_version: int,
    build: Callable[[xr.DataTree, dict[str, Any]], _T],
    summed_since: int | None = None,
) -> _T:
    """Return ``build(tree, header)`` for a file of ours.

    Parameters
    ----------
    path : path
        A netCDF file.
    kind : str
        What it must hold: ``release`` or ``posterior``.
    format_version : int
        The newest version that can be read.
    build : callable
        Makes the container; what it raises on a forged header becomes one line.
    summed_since : int, optional
        The first version whose files hold a checksum (`nadpvi.containers.checksum`).

    Raises
    ------
    FileError
        If the file is missing, foreign or damaged, holds something else, or is of a newer format.
    """
    tree = _read_tree(path)
    header = _header(tree, path)
    if header.get("kind") != kind:
        raise FileError(f"{path} holds a {header.get('kind')}; expected a {kind}.")
    found = _format_version(header, path, newest=format_version)
    is_due = summed_since is not None and found >= summed_since
    # A damaged version number must not turn the check off.
    if (is_due or CHECKSUM in header) and not is_intact(tree, header):
        raise FileError(
            f"{path} is damaged or edited: what it holds does not have its checksum; use another copy."
        )
    try:
        return build(tree, header)
    except NadpviError as error:
        raise FileError(f"{path} is damaged or edited: {error}") from error
    except _FOREIGN as error:
        raise FileError(
            f"{path} is damaged or edited: its header or variables are not as nadpvi wrote them."
        ) from error


def _format_version(header: dict[str, Any], path: str | os.PathLike[str], *, newest: int) -> int:
    """Return the version of a file's format, or raise `FileError` if it cannot be read here."""
    found = header.get("format_version")
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise FileError(f"{path} is damaged or edited: there is no format version {found!r}.")
    if found > newest:
        raise FileError(f"{path} has format version {found}, newer than {newest}; install a newer nadpvi.")
    return found


def file_kind(path: str | os.PathLike[str]) -> str:
    """Return what a file holds by its header: ``release`` or ``posterior``.

    Raises
    ------
    FileError
        If the file is missing, foreign or damaged.
    """
    return str(_header(_read_tree(path), path).get("kind"))


def _read_tree(path: str | os.PathLike[str]) -> xr.DataTree:
    """Read a whole netCDF file into memory and close it."""
    check_netcdf()
    import h5py

    place = as_path(path)
    try:
        content = place.read_bytes()
    except (OSError, ValueError) as error:
        raise FileError(f"cannot read {path}: {_reason(error)}.") from error
    if has_endless_heap(content):
        raise FileError(f"{path} is not a file that nadpvi wrote, or it is damaged.")
    try:
        # h5netcdf leaves a half-made object, which complains on standard error, where it meets this damage.
        with h5py.File(io.BytesIO(content), "r") as file:
            file.attrs.get("_nc3_strict")
        with xr.open_datatree(io.BytesIO(content), engine="h5netcdf") as tree:
            return tree.load()
    except (OSError, RuntimeError, *_FOREIGN) as error:
        raise FileError(f"{path} is not a file that nadpvi wrote, or it is damaged.") from error


def _header(tree: xr.DataTree, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the JSON header of a file."""
    text = tree.attrs.get(HEADER)
    try:
        header = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise FileError(f"{path} has no nadpvi header; expected a release or a posterior.")
    return header
