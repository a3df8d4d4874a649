"""The CmdStan engine: compiled Stan programs, a process for each chain, read through cmdstanpy.

The chains are started here rather than by cmdstanpy, which hands them to threads: after an interrupt those
threads, and the chains, would go on.
"""

import json
import logging
import os
import re
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

from nadpvi.engines.base import (
    SamplerSettings,
    StanData,
    StanDraws,
    check_data,
    make_sample_stats,
    shorten,
)
from nadpvi.engines.processes import describe_exit, run_processes
from nadpvi.engines.programs import save_log
from nadpvi.engines.toolchain import USE_STANLI, CmdStanInstallation, build_program, find_cmdstan
from nadpvi.errors import EngineError

__all__ = ["CmdStanEngine", "load_cmdstanpy"]

_SIGNIFICANT_FIGURES = 17  # a float64 survives the CSV file; CmdStan's default of 8 would round phi_star

# What a healthy chain says as well: a proposal that was rejected, progress, and the settings it runs with.
_HARMLESS = re.compile(
    r"^Informational Message: (?s:.*?)^but if this warning occurs often.*$|^Iteration: .*$|^ *\w+( = .*)?$",
    re.MULTILINE,
)
_COMPLAINT = re.compile(
    r"^ *(?:Exception|Error|Rejecting|Initialization|Unrecoverable|terminate).*$", re.MULTILINE
)


class _QuietLogger:
    """Silences cmdstanpy's logger while any thread runs it, and restores it after the last one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._was_disabled = False

    def __enter__(self) -> None:
        logger = logging.getLogger("cmdstanpy")
        with self._lock:
            if self._runs == 0:
                self._was_disabled = logger.disabled
                logger.disabled = True
            self._runs += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._runs -= 1
            if self._runs == 0:
                logging.getLogger("cmdstanpy").disabled = self._was_disabled


_quiet_cmdstanpy = _QuietLogger()


def load_cmdstanpy() -> Any:
    """Return the cmdstanpy module.

    Raises
    ------
    EngineError
        If it is not installed.
    """
    try:
        import cmdstanpy
    except ImportError:
        raise EngineError(f"cmdstanpy is not installed: pip install cmdstanpy, or {USE_STANLI}.") from None
    return cmdstanpy


class CmdStanEngine:
    """Samples with CmdStan, building each program once into the user's cache.

    Parameters
    ----------
    installation : CmdStanInstallation or None
        Where CmdStan is; by default looked up by `find_cmdstan`. Unused when `executable` is given.
    executable : Path or None
        A ready executable to run in place of building the program that `sample` is given.

    Raises
    ------
    EngineError
        If CmdStan or cmdstanpy is missing, or `executable` is not a file.
    """

    name = "cmdstan"

    def __init__(
        self, *, installation: CmdStanInstallation | None = None, executable: Path | None = None
    ) -> None:
        self._executable = None if executable is None else Path(executable)
        if self._executable is None:
            # before cmdstanpy, whose import takes a second that a machine without CmdStan should not pay
            self._installation = installation or find_cmdstan()
            self._cmdstanpy = load_cmdstanpy()
            self._version = self._installation.version
        else:
            self._cmdstanpy = load_cmdstanpy()
            self._version = self._executable_version(self._executable)

    @property
    def version(self) -> str:
        """Version of CmdStan."""
        return self._version

    def _executable_version(self, executable: Path) -> str:
        """Return the Stan version that an executable reports."""
        if not executable.is_file():
            raise EngineError(f"the Stan executable {executable} does not exist.")
        with _quiet_cmdstanpy:
            info = self._cmdstanpy.CmdStanModel(exe_file=str(executable)).exe_info()
        parts = [info.get(f"stan_version_{part}") for part in ("major", "minor", "patch")]
        if None in parts:
            raise EngineError(f"{executable} does not run as a CmdStan executable.")
        return ".".join(str(part) for part in parts)

    def _executable_for(self, program_path: Path) -> Path:
        """Return the executable to run for a program."""
        if self._executable is not None:
            return self._executable
        return build_program(program_path, self._installation)

    def prepare(self, program_path: Path) -> None:
        """Build the executable of a Stan program unless the cache holds it; see `Engine.prepare`."""
        self._executable_for(Path(program_path))

    def sample(
        self,
        program_path: Path,
        data: StanData,
        *,
        chains: int,
        warmup: int,
        draws: int,
        seed: int,
        adapt_delta: float = 0.8,
        max_treedepth: int = 10,
    ) -> StanDraws:
        """Return NUTS draws of a Stan program; see `Engine.sample`."""
        settings = SamplerSettings(
            chains=chains,
            warmup=warmup,
            draws=draws,
            seed=seed,
            adapt_delta=adapt_delta,
            max_treedepth=max_treedepth,
        )
        plain_data = check_data(data)
        program_path = Path(program_path)
        executable = self._executable_for(program_path)
        with _quiet_cmdstanpy, tempfile.TemporaryDirectory(prefix="nadpvi-") as name:
            folder = Path(name)
            try:
                (folder / "data.json").write_text(json.dumps(plain_data, allow_nan=False), encoding="utf-8")
                codes = _run_chains(executable, settings, folder)
            except OSError as error:
                is_start = error.filename == _command_name(executable)
                what = f"{executable} does not start" if is_start else "the temporary folder fails"
                raise EngineError(
                    f"CmdStan could not run {program_path.name}: {what} ({error.strerror}): "
                    f"mend that, or {USE_STANLI}."
                ) from None
            _check_chains(program_path.name, codes, folder)
            return self._collect(program_path.name, settings, folder)

    def _collect(self, program: str, settings: SamplerSettings, folder: Path) -> StanDraws:
        """Return the draws of all chains, after checking that every chain delivered all of them."""
        files = [str(_chain_file(folder, chain, "csv")) for chain in range(1, settings.chains + 1)]
        try:
            fit = self._cmdstanpy.from_csv(files, method="sample")
            columns, variables = fit.method_variables(), fit.stan_variables()
        except (RuntimeError, ValueError, OSError) as error:
            reason = re.sub(rf"{re.escape(str(folder))}/chain-(\d+)\.csv", r"chain \1", str(error))
            raise EngineError(
                shorten(f"CmdStan ran {program}, but its output cannot be read: {reason}")
            ) from None
        shape = (settings.chains, settings.draws)
        found = (fit.chains, fit.num_draws_sampling)
        if found != shape:
            raise EngineError(
                f"CmdStan returned {found[0]} chains of {found[1]} draws, not {shape[0]} of {shape[1]}."
            )
        return StanDraws(
            variables={
                name: np.array(values, dtype=np.float64).reshape(shape + values.shape[1:])
                for name, values in variables.items()
            },
            sample_stats=make_sample_stats(
                {
                    name: np.ascontiguousarray(values.reshape(shape[::-1]).T)
                    for name, values in columns.items()
                }
            ),
        )


def _command_name(executable: Path) -> str:
    """Return an executable under a name that no search path is asked for."""
    return str(executable.absolute())


def _chain_file(folder: Path, chain: int, ending: str) -> Path:
    """Return where a chain, counted from 1, writes its draws (csv) or its messages (txt)."""
    return folder / f"chain-{chain}.{ending}"


def _run_chains(executable: Path, settings: SamplerSettings, folder: Path) -> list[int | None]:
    """Run every chain on folder/data.json and return their exit codes."""
    chains = range(1, settings.chains + 1)
    commands = [
        [
            _command_name(executable),
            f"id={chain}",
            *("random", f"seed={settings.seed}"),
            *("data", f"file={folder / 'data.json'}"),
            *("output", f"file={_chain_file(folder, chain, 'csv')}", f"sig_figs={_SIGNIFICANT_FIGURES}"),
            *("method=sample", f"num_samples={settings.draws}", f"num_warmup={settings.warmup}"),
            *("algorithm=hmc", "engine=nuts", f"max_depth={settings.max_treedepth}"),
            *("adapt", "engaged=1", f"delta={settings.adapt_delta!r}"),
        ]
        for chain in chains
    ]
    return run_processes(
        commands,
        consoles=[_chain_file(folder, chain, "txt") for chain in chains],
        max_parallel=os.cpu_count() or 1,
    )


def _check_chains(program: str, codes: list[int | None], folder: Path) -> None:
    """Raise, with the first cause that CmdStan gave, unless every chain ended well and wrote a file."""
    for chain, code in enumerate(codes, start=1):
        if code:
            raise _explain(program, f"chain {chain} {describe_exit(code)}", chain, folder)
        if code == 0 and not _chain_file(folder, chain, "csv").is_file():
            raise _explain(program, f"chain {chain} ended without writing its draws", chain, folder)


def _explain(program: str, event: str, chain: int, folder: Path) -> EngineError:
    """Return a short error: what became of a chain, its own first complaints, the path of its full log."""
    console = _chain_file(folder, chain, "txt").read_text(encoding="utf-8", errors="replace")
    # the folder is deleted with this run: what Stan calls data.json is all that still means something
    console = console.replace(f"{folder}/", "")
    log = save_log(f"{event}\n{console}", name=f"{Path(program).stem}-run")
    unusual = _HARMLESS.sub("", console)
    lines = _COMPLAINT.findall(unusual) or [line for line in unusual.splitlines() if line.strip()][-6:]
    reason = shorten("\n".join(dict.fromkeys(line.strip() for line in lines)), max_lines=12)
    where = f"\nfull log: {log}" if log else ""
    return EngineError(f"CmdStan could not run {program}: {event}.{reason and chr(10)}{reason}{where}")
