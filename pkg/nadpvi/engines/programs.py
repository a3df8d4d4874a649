"""Where Stan programs are, and how they are read; they are built in the user's cache.

Programs are never compiled in place: the installed package may be read-only, and make cannot handle blanks
and brackets in paths. The cache is keyed by content, so that an edited program is rebuilt and an unchanged
one is not.
"""

import hashlib
import os
import re
import tempfile
from pathlib import Path

from nadpvi.errors import ArgumentError, EngineError, FileError
from nadpvi.folders import cache_dir

__all__ = ["content_key", "inlined_program", "program_path", "read_sources", "save_log"]

_INCLUDE = re.compile(r"^[^\S\n]*#include[^\S\n]+[\"<]?([^\"<>\s]+)[\">]?[^\S\n]*(?://.*)?$", re.MULTILINE)


def _program_folders() -> tuple[Path, Path]:
    """Return the folder of an installed wheel and that of a checkout."""
    package = Path(__file__).resolve().parent.parent
    return package / "stan", package.parent.parent / "stan"


def program_path(name: str) -> Path:
    """Return the path of a Stan program shipped with this package, such as "gradient_model".

    Raises
    ------
    ArgumentError
        If there is no such program; the known ones are listed.
    EngineError
        If the installation lacks its Stan programs altogether.
    """
    for folder in _program_folders():
        if folder.is_dir():
            known = {path.stem: path for path in sorted(folder.glob("*.stan"))}
            if name in known:
                return known[name]
            raise ArgumentError(f"there is no Stan program {name!r}; known: {', '.join(known)}.")
    raise EngineError("the Stan programs are missing from this installation: reinstall nadpvi.")


def read_sources(path: Path) -> dict[str, str]:
    """Return the text of a program and of the files it includes, by path relative to the program's folder.

    Raises
    ------
    FileError
        If the program or an included file cannot be read.
    """
    sources: dict[str, str] = {}
    waiting = [path.name]
    while waiting:
        name = waiting.pop()
        if name in sources:
            continue
        try:
            text = (path.parent / name).read_text(encoding="utf-8")
        except OSError as error:
            raise FileError(f"cannot read the Stan program {path.parent / name}: {error.strerror}.") from None
        except UnicodeDecodeError:
            raise FileError(f"the Stan program {path.parent / name} is not UTF-8 text.") from None
        sources[name] = text
        waiting.extend(_INCLUDE.findall(text))
    return sources


def inlined_program(path: Path) -> str:
    """Return the text of a program with every included file in its place, for a Stan that takes one text.

    Raises
    ------
    FileError
        If the program or an included file cannot be read, or a file includes itself.
    """
    return _inlined(path.name, read_sources(path), ())


def _inlined(name: str, sources: dict[str, str], outer: tuple[str, ...]) -> str:
    """Return one source with the sources that it includes in their places."""
    if name in outer:
        raise FileError(f"the Stan program {outer[0]} includes {name} within itself.")
    inner = (*outer, name)
    return _INCLUDE.sub(lambda match: _inlined(match[1], sources, inner).rstrip("\n"), sources[name])


def content_key(sources: dict[str, str], *, toolchain: str) -> str:
    """Return a short hash of the sources and of what they are built with."""
    digest = hashlib.sha256(toolchain.encode())
    for name in sorted(sources):
        digest.update(f"\0{name}\0{sources[name]}".encode())
    return digest.hexdigest()[:20]


def save_log(text: str, *, name: str) -> Path | None:
    """Write a full engine log and return its path, or None where no folder can be written to."""
    for folder in (cache_dir() / "logs", Path(tempfile.gettempdir())):
        path = folder / f"nadpvi-{name}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError:
            continue
        return path
    return None
