"""The CmdStan engine: compiled Stan programs, run and read through cmdstanpy."""

import json
import logging
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
    StanValue,
    check_data,
    make_sample_stats,
    shorten,
)
from nadpvi.engines.programs import save_log
from nadpvi.engines.toolchain import CmdStanInstallation, build_program, find_cmdstan
from nadpvi.errors import EngineError

__all__ = ["CmdStanEngine", "load_cmdstanpy"]

_SIGNIFICANT_FIGURES = 17  # a float64 survives the CSV file; CmdStan's default of 8 would round phi_star


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
        raise EngineError(
            "cmdstanpy is not installed: pip install cmdstanpy, or use engine='stanli'."
        ) from None
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
        with _quiet_cmdstanpy, tempfile.TemporaryDirectory(prefix="nadpvi-") as folder:
            try:
                fit = self._run(executable, plain_data, settings, Path(folder))
                return self._collect(fit, settings)
            except (RuntimeError, ValueError, OSError) as error:
                if isinstance(error, EngineError):
                    raise
                raise self._explain(program_path.name, error, Path(folder)) from None

    def _run(
        self, executable: Path, data: dict[str, StanValue], settings: SamplerSettings, folder: Path
    ) -> Any:
        """Run every chain and return cmdstanpy's fit."""
        data_file = folder / "data.json"
        data_file.write_text(json.dumps(data, allow_nan=False), encoding="utf-8")
        return self._cmdstanpy.CmdStanModel(exe_file=str(executable)).sample(
            data=str(data_file),
            chains=settings.chains,
            seed=settings.seed,
            iter_warmup=settings.warmup,
            iter_sampling=settings.draws,
            adapt_delta=settings.adapt_delta,
            max_treedepth=settings.max_treedepth,
            sig_figs=_SIGNIFICANT_FIGURES,
            output_dir=str(folder),
            show_progress=False,
        )

    def _collect(self, fit: Any, settings: SamplerSettings) -> StanDraws:
        """Return the draws of a fit, after checking that every chain delivered all of them."""
        shape = (settings.chains, settings.draws)
        found = (fit.chains, fit.num_draws_sampling)
        if found != shape:
            raise EngineError(
                f"CmdStan returned {found[0]} chains of {found[1]} draws, not {shape[0]} of {shape[1]}."
            )
        columns = {
            name: np.ascontiguousarray(values.reshape(shape[::-1]).T)
            for name, values in fit.method_variables().items()
        }
        variables = {
            name: np.array(values, dtype=np.float64).reshape(shape + values.shape[1:])
            for name, values in fit.stan_variables().items()
        }
        return StanDraws(variables=variables, sample_stats=make_sample_stats(columns))

    def _explain(self, program: str, error: Exception, folder: Path) -> EngineError:
        """Return a short error: Stan's own first complaint, and the path of the full log."""
        consoles = [path.read_text(errors="replace") for path in sorted(folder.glob("*-stdout.txt"))]
        full_log = "\n".join([str(error), *consoles])
        log = save_log(full_log, name=f"{Path(program).stem}-run")
        complaints = re.findall(r"^(?:Exception|Error|Rejecting|Initialization).*$", full_log, re.MULTILINE)
        known = dict.fromkeys(line.strip() for line in complaints if "Error during sampling" not in line)
        reason = shorten("\n".join(known) or str(error), max_lines=12)
        where = f"\nfull log: {log}" if log else ""
        return EngineError(f"CmdStan could not run {program}: {reason}{where}")
