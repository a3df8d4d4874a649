"""Processes of one CmdStan program on one set of data: their commands, files, failures and time limit."""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nadpvi.engines.base import OptimizerSettings, StanMode, shorten
from nadpvi.engines.csv_files import read_mode
from nadpvi.engines.data import StanValue
from nadpvi.engines.processes import describe_exit, run_processes
from nadpvi.engines.programs import save_log
from nadpvi.engines.toolchain import USE_STANLI
from nadpvi.errors import EngineError, FileError

__all__ = ["CmdStanRun"]

_SIGNIFICANT_FIGURES = 17  # a float64 survives the CSV file; CmdStan's default of 8 would round phi_star

# What a healthy chain says as well: a proposal that was rejected, progress, and the settings it runs with.
_HARMLESS = re.compile(
    r"^Informational Message: (?s:.*?)^but if this warning occurs often.*$|^Iteration: .*$|^ *\w+( = .*)?$",
    re.MULTILINE,
)
_COMPLAINT = re.compile(
    r"^ *(?:Exception|Error|Rejecting|Initialization|Unrecoverable|terminate|Line search).*$", re.MULTILINE
)
_OUT_OF_ITERATIONS = "Maximum number of iterations hit"


@dataclass(frozen=True, slots=True, kw_only=True)
class CmdStanRun:
    """One program, its data and the files of the processes that run it."""

    program: str
    executable: Path
    folder: Path
    timeout: float | None

    def write(self, data: Mapping[str, StanValue]) -> None:
        """Write the data that every process reads."""
        with self.starting():
            text = json.dumps(data, allow_nan=False)
            (self.folder / "data.json").write_text(text, encoding="utf-8")

    def file(self, name: str, ending: str) -> Path:
        """Return where a process, such as "chain 1", writes its draws (csv) or its messages (txt)."""
        return self.folder / f"{name.replace(' ', '-')}.{ending}"

    def optimize(self, settings: OptimizerSettings) -> StanMode:
        """Search for a mode, leaving it in the file that laplace starts from."""
        self.start(
            ["optimize"],
            f"init={settings.init_radius!r}",
            *("method=optimize", "jacobian=1", f"iter={settings.max_iterations}"),
            "algorithm=lbfgs",
            seed=settings.seed,
        )
        if _OUT_OF_ITERATIONS in self.file("optimize", "txt").read_text(encoding="utf-8", errors="replace"):
            raise EngineError(
                f"CmdStan found no mode of {self.program} in {settings.max_iterations} iterations: raise "
                "max_iterations."
            )
        with self.reading():
            return read_mode(self.file("optimize", "csv"), name="optimize")

    def start(self, names: Sequence[str], *arguments: str, seed: int) -> None:
        """Run a process for each name, ids counted from 1, and return when all have written their files."""
        commands = [
            [
                _command_name(self.executable),
                f"id={index}",
                *("random", f"seed={seed}"),
                *("data", f"file={self.folder / 'data.json'}"),
                *("output", f"file={self.file(name, 'csv')}", f"sig_figs={_SIGNIFICANT_FIGURES}"),
                *arguments,
            ]
            for index, name in enumerate(names, start=1)
        ]
        consoles = [self.file(name, "txt") for name in names]
        with self.starting():
            codes = run_processes(
                commands, consoles=consoles, max_parallel=os.cpu_count() or 1, timeout=self.timeout
            )
        for name, code in zip(names, codes, strict=True):
            if code:
                raise self._explain(name, f"{name} {describe_exit(code)}")
            if code == 0 and not self.file(name, "csv").is_file():
                raise self._explain(name, f"{name} ended without writing its draws")

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Turn what the system refuses, and a run that takes too long, into one line."""
        try:
            yield
        except TimeoutError as error:
            raise EngineError(
                f"CmdStan could not run {self.program}: {error}, so it was ended: raise timeout, or "
                "ask for less."
            ) from None
        except OSError as error:
            is_start = error.filename == _command_name(self.executable)
            what = f"{self.executable} does not start" if is_start else "the temporary folder fails"
            raise EngineError(
                f"CmdStan could not run {self.program}: {what} ({error.strerror}): "
                f"mend that, or {USE_STANLI}."
            ) from None

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Turn an output file that cannot be read into one line."""
        try:
            yield
        except FileError as error:
            raise EngineError(f"CmdStan ran {self.program}, but its output cannot be read: {error}") from None

    def _explain(self, name: str, event: str) -> EngineError:
        """Return a short error: what became of a process, its first complaints, the path of its full log."""
        console = self.file(name, "txt").read_text(encoding="utf-8", errors="replace")
        # the folder is deleted with this run: what Stan calls data.json is all that still means something
        console = console.replace(f"{self.folder}/", "")
        log = save_log(f"{event}\n{console}", name=f"{Path(self.program).stem}-run")
        unusual = _HARMLESS.sub("", console)
        lines = _COMPLAINT.findall(unusual) or [line for line in unusual.splitlines() if line.strip()][-6:]
        reason = shorten("\n".join(dict.fromkeys(line.strip() for line in lines)), max_lines=12)
        where = f"\nfull log: {log}" if log else ""
        return EngineError(
            f"CmdStan could not run {self.program}: {event}.{reason and chr(10)}{reason}{where}"
        )


def _command_name(executable: Path) -> str:
    """Return an executable under a name that no search path is asked for."""
    return str(executable.absolute())
