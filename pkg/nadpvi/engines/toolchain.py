"""A CmdStan installation on this machine, and how it builds a program.

make splits paths at blanks and reads brackets as archive members, so a program is built in a temporary
folder with a plain path and only the finished executable moves to the cache, in one step.
"""

import os
import platform
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nadpvi.engines.base import shorten
from nadpvi.engines.processes import describe_exit, run_processes
from nadpvi.engines.programs import content_key, read_sources, save_log
from nadpvi.errors import EngineError
from nadpvi.folders import cache_dir

__all__ = ["CmdStanInstallation", "USE_STANLI", "build_program", "find_cmdstan"]

_PARTS = ("makefile", "bin/stanc", "src/cmdstan/main.cpp")
_COMPILERS = ("clang++", "g++", "c++")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./-]+")
USE_STANLI = "use engine='stanli' (on the command line: --engine stanli)"
_INSTALL_HINT = f"run `install_cmdstan` (it comes with cmdstanpy), or {USE_STANLI}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CmdStanInstallation:
    """A complete CmdStan: its folder and version."""

    path: Path
    version: str


def _version_key(folder: Path) -> tuple[int, ...]:
    """Return the numbers in cmdstan-2.37.0, a release candidate sorting below its release."""
    numbers, _, candidate = folder.name.removeprefix("cmdstan-").partition("-rc")
    key = tuple(int(part) for part in re.findall(r"\d+", numbers))
    return (*key, int(candidate) - 1000 if candidate.isdigit() else 0)


def _cmdstan_folder() -> Path:
    """Return the folder that CMDSTAN names, else the newest one under ~/.cmdstan, as cmdstanpy does."""
    named = os.environ.get("CMDSTAN", "")
    if named:
        folder = Path(named).expanduser()
        if not folder.is_dir():
            raise EngineError(
                f"CMDSTAN names {named}, which is not a folder: correct or unset it, or {_INSTALL_HINT}."
            )
        return folder
    home = Path("~/.cmdstan").expanduser()
    found = [folder for folder in home.glob("cmdstan-*") if folder.is_dir()]
    if not found:
        raise EngineError(f"CmdStan is not installed: {_INSTALL_HINT}.")
    return max(found, key=_version_key)


def _check_builders() -> None:
    """Raise unless make and a C++ compiler can be found and the cache can be written to."""
    make = os.environ.get("MAKE", "make")
    if shutil.which(make) is None:
        raise EngineError(f"CmdStan needs {make!r}, which is not on the PATH: install it, or {USE_STANLI}.")
    named = os.environ.get("CXX", "").split()
    compilers = (named[0],) if named else _COMPILERS
    if not any(shutil.which(compiler) for compiler in compilers):
        raise EngineError(
            f"CmdStan needs a C++ compiler ({', '.join(compilers)}), and none is on the PATH: "
            f"install one, or {USE_STANLI}."
        )
    folder = cache_dir()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise EngineError(
            f"the program cache {cache_dir()} cannot be written to: "
            f"set NADPVI_CACHE_DIR to a folder that can, or {USE_STANLI}."
        )


def find_cmdstan() -> CmdStanInstallation:
    """Return the CmdStan installation to use, complete with make, a compiler and a writable cache.

    Raises
    ------
    EngineError
        If any of it is missing: one line with the remedy.
    """
    folder = _cmdstan_folder()
    missing = [part for part in _PARTS if not (folder / part).is_file()]
    if missing:
        raise EngineError(f"CmdStan at {folder} is incomplete ({missing[0]} is missing): {_INSTALL_HINT}.")
    _check_builders()
    text = (folder / "makefile").read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^CMDSTAN_VERSION\s*:?=\s*(\S+)", text, re.MULTILINE)
    return CmdStanInstallation(path=folder.resolve(), version=match.group(1) if match else "unknown")


def _plain_folder() -> Path:
    """Return a new temporary folder whose path make can read."""
    candidates = [Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")]
    for candidate in candidates:
        if _PLAIN_PATH.fullmatch(str(candidate)) and os.access(candidate, os.W_OK):
            return Path(tempfile.mkdtemp(prefix="nadpvi-", dir=candidate))
    raise EngineError(
        f"make cannot build in {candidates[0]} (blanks or special characters): set TMPDIR to a plain path."
    )


def _run(command: list[str], *, cwd: Path, console: Path, program: str) -> None:
    """Run one step of the build; on failure keep its whole output in a log and raise a short error."""
    try:
        (code,) = run_processes([command], consoles=[console], cwd=cwd, own_group=True)
    except OSError as error:
        raise EngineError(
            f"{program} cannot be compiled, as {command[0]} does not start ({error.strerror}): "
            f"mend the CmdStan installation, or {USE_STANLI}."
        ) from None
    if code == 0:
        return
    output = console.read_text(encoding="utf-8", errors="replace")
    log = save_log(output, name=f"{Path(program).stem}-build")
    lines = output.splitlines()
    first = next((i for i, line in enumerate(lines) if re.search(r"\berror\b", line, re.IGNORECASE)), 0)
    where = f"\nfull log: {log}" if log else ""
    reason = shorten("\n".join(lines[first:]), max_lines=12) or describe_exit(code)
    raise EngineError(f"{program} does not compile: {reason}{where}\nIf the program is right, {USE_STANLI}.")


def build_program(program_path: Path, cmdstan: CmdStanInstallation) -> Path:
    """Return the executable of a Stan program, building it unless the cache holds it.

    Raises
    ------
    EngineError
        If the program does not compile (at most 15 lines, with line and column) or cannot be cached.
    FileError
        If the program cannot be read.
    """
    sources = read_sources(program_path)
    key = content_key(sources, toolchain=f"{cmdstan.version} {cmdstan.path} {platform.machine()}")
    executable = cache_dir() / "programs" / key / "program"
    if executable.is_file():
        return executable
    folder = _plain_folder()
    try:
        for name, text in sources.items():
            target = folder / "sources" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        source = folder / "program.stan"
        source.write_text(sources[program_path.name], encoding="utf-8")
        includes = f"--include-paths={folder / 'sources'}"
        # stanc alone first: its complaints come without make's noise, and under the program's own name
        name_in_messages = f"--filename-in-msg={program_path.name}"
        stanc = [str(cmdstan.path / "bin" / "stanc"), name_in_messages, includes]
        console, shown = folder / "console.txt", program_path.name
        _run([*stanc, f"--o={folder / 'check.hpp'}", str(source)], cwd=folder, console=console, program=shown)
        make = [os.environ.get("MAKE", "make"), f"STANCFLAGS+={includes}", str(folder / "program")]
        _run(make, cwd=cmdstan.path, console=console, program=shown)
        _publish(folder / "program", executable)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return executable


def _publish(built: Path, executable: Path) -> None:
    """Move a finished executable into the cache so that no other process ever sees half of it."""
    try:
        executable.parent.mkdir(parents=True, exist_ok=True)
        partial = executable.with_name(f"program-{os.getpid()}.part")
        shutil.copy2(built, partial)
        os.replace(partial, executable)
    except OSError as error:
        raise EngineError(
            f"cannot write to the program cache {cache_dir()} ({error.strerror}): "
            f"set NADPVI_CACHE_DIR to a folder that can be written to, or {USE_STANLI}."
        ) from None
