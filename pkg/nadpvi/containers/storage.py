"""Files that are whole or absent: netCDF through h5netcdf, written aside, then renamed."""

import json
import os
import secrets
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import xarray as xr

from nadpvi.errors import ArgumentError, FileError

__all__ = [
    "HEADER",
    "check_writable",
    "package_versions",
    "parse_header",
    "read_netcdf",
    "write_atomically",
]

# One attribute holds everything that is not an array: netCDF attributes cannot hold None, bool or dicts.
HEADER = "nadpvi_header"

_T = TypeVar("_T")

_RECORDED_PACKAGES = ("nadpvi", "numpy", "scipy", "xarray", "dp-accounting", "opendp", "stanli", "cmdstanpy")


def package_versions() -> dict[str, str]:
    """Return the versions that a result depends on, by distribution name."""
    return {name: version(name) for name in _RECORDED_PACKAGES}


def check_writable(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return `path` as a `Path` after checking that a file may be put there.

    Raises
    ------
    FileError
        If its folder is missing or not writable, if it is a folder or special file, or if it exists and
        `overwrite` is false.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        raise FileError(f"{target} is not a regular file; name another output file.")
    if target.exists() and not overwrite:
        raise FileError(f"{target} exists; choose another name or allow it to be replaced (--force).")
    if not target.parent.is_dir():
        raise FileError(f"folder {target.parent} does not exist; create it first.")
    if not os.access(target.parent, os.W_OK):
        raise FileError(f"folder {target.parent} is not writable; choose another one.")
    return target


def write_atomically(
    write: Callable[[Path], object], path: str | os.PathLike[str], *, overwrite: bool
) -> Path:
    """Call `write` on a temporary name beside `path`, flush it to disk, then rename it into place.

    Raises
    ------
    FileError
        If the place is unsuitable (`check_writable`) or writing failed; no half-written file is left.
    """
    target = check_writable(path, overwrite=overwrite)
    # A fresh name each time: a failed HDF5 write can leave its file locked in this process.
    aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        write(aside)
        with open(aside, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(aside, target)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}.") from error
    finally:
        aside.unlink(missing_ok=True)
    return target


def read_netcdf(path: str | os.PathLike[str], *, load: Callable[[Path], _T]) -> _T:
    """Return ``load(path)``, with a missing or foreign file turned into one line."""
    source = Path(path)
    if not source.is_file():
        raise FileError(f"{source} does not exist or is not a file.")
    try:
        return load(source)
    except (OSError, ValueError, KeyError) as error:
        raise FileError(f"{source} is not a file that nadpvi wrote, or it is damaged.") from error


def parse_header(data: xr.Dataset | xr.DataTree, *, kind: str, version: int) -> dict[str, Any]:
    """Return the JSON header of a file after checking what it is.

    Raises
    ------
    ArgumentError
        If the file holds something else, or was written by a newer format version.
    """
    text = data.attrs.get(HEADER)
    if not isinstance(text, str):
        raise ArgumentError(f"this file has no nadpvi header; expected a {kind} file.")
    header: dict[str, Any] = json.loads(text)
    if header.get("kind") != kind:
        raise ArgumentError(f"this file holds a {header.get('kind')}; expected a {kind} file.")
    if not isinstance(header.get("format_version"), int) or header["format_version"] > version:
        raise ArgumentError(
            f"this {kind} file has format version {header.get('format_version')}; this nadpvi reads up to "
            f"{version}. Install a newer nadpvi."
        )
    return header


def file_kind(path: str | os.PathLike[str]) -> str:
    """Return what a file holds by its header: ``release`` or ``posterior``.

    Raises
    ------
    FileError
        If the file is missing, damaged or not a netCDF file.
    ArgumentError
        If it has no nadpvi header.
    """

    def load(source: Path) -> object:
        with xr.open_dataset(source, engine="h5netcdf") as data:
            return data.attrs.get(HEADER)

    text = read_netcdf(path, load=load)
    if not isinstance(text, str):
        raise ArgumentError(f"{path} has no nadpvi header; expected a release or posterior file.")
    return str(json.loads(text).get("kind"))
