"""The CmdStan engine: compiled Stan programs, a process for each chain, read through cmdstanpy.

The chains are started here rather than by cmdstanpy, which hands them to threads: after an interrupt those
threads, and the chains, would go on.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count, check_positive
from nadpvi.engines.base import (
    MAX_ITERATIONS,
    OptimizerSettings,
    SamplerSettings,
    StanDraws,
    StanMode,
)
from nadpvi.engines.cmdstan_run import CmdStanRun
from nadpvi.engines.csv_files import load_cmdstanpy, quiet_cmdstanpy, read_approximation, read_chains
from nadpvi.engines.data import StanData, check_data
from nadpvi.engines.toolchain import CmdStanInstallation, build_program, find_cmdstan
from nadpvi.errors import ArgumentError, EngineError

__all__ = ["CmdStanEngine", "NormalApproximation"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NormalApproximation:
    """Draws from Laplace's approximation: a normal on the unconstrained scale, at the mode.

    Attributes
    ----------
    variables : dict of str to ndarray, shape (draw, ...)
        As in `StanDraws`, independent draws.
    log_density, log_approximation : ndarray, shape (draw,)
        Log density of the program and of the normal at each draw, each up to a constant.
    """

    variables: dict[str, NDArray[np.float64]]
    log_density: NDArray[np.float64]
    log_approximation: NDArray[np.float64]


class CmdStanEngine:
    """Samples with CmdStan, building each program once into the user's cache.

    Parameters
    ----------
    installation : CmdStanInstallation or None
        Where CmdStan is; by default looked up by `find_cmdstan`. Unused when `executable` is given.
    executable : Path or None
        A ready executable to run in place of building the program that `sample` is given.
    timeout : float or None
        Seconds, > 0, after which a run (all chains of it) is ended with an `EngineError`; building a program
        does not count.

    Raises
    ------
    EngineError
        If CmdStan or cmdstanpy is missing, or `executable` is not a file.
    """

    name = "cmdstan"

    def __init__(
        self,
        *,
        installation: CmdStanInstallation | None = None,
        executable: Path | None = None,
        timeout: float | None = None,
    ) -> None:
        self._timeout = None if timeout is None else check_positive("timeout", timeout)
        self._executable = None if executable is None else Path(executable)
        if self._executable is None:
            # before cmdstanpy, whose import takes a second that a machine without CmdStan should not pay
            self._installation = installation or find_cmdstan()
            load_cmdstanpy()
            self._version = self._installation.version
        else:
            self._version = _executable_version(self._executable)

    @property
    def version(self) -> str:
        """Version of CmdStan."""
        return self._version

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
        with self._run_of(program_path, data) as run:
            run.start(
                [f"chain {chain}" for chain in range(1, settings.chains + 1)],
                *("method=sample", f"num_samples={settings.draws}", f"num_warmup={settings.warmup}"),
                *("algorithm=hmc", "engine=nuts", f"max_depth={settings.max_treedepth}"),
                *("adapt", "engaged=1", f"delta={settings.adapt_delta!r}"),
                seed=settings.seed,
            )
            return self._collect(run, settings)

    def _collect(self, run: CmdStanRun, settings: SamplerSettings) -> StanDraws:
        """Return the draws of all chains, after checking that every chain delivered all of them."""
        names = [f"chain {chain}" for chain in range(1, settings.chains + 1)]
        with run.reading():
            found = read_chains([run.file(name, "csv") for name in names], names=names).draws
        shape = found.sample_stats["lp"].shape
        if shape != (settings.chains, settings.draws):
            raise EngineError(
                f"CmdStan returned {shape[0]} chains of {shape[1]} draws, not {settings.chains} of "
                f"{settings.draws}."
            )
        return found

    def optimize(
        self,
        program_path: Path,
        data: StanData,
        *,
        seed: int,
        max_iterations: int = 2000,
        init_radius: float = 2.0,
    ) -> StanMode:
        """Return a mode of a Stan program by L-BFGS; see `Engine.optimize`."""
        settings = OptimizerSettings(seed=seed, max_iterations=max_iterations, init_radius=init_radius)
        with self._run_of(program_path, data) as run:
            return run.optimize(settings)

    def laplace(
        self,
        program_path: Path,
        data: StanData,
        *,
        draws: int,
        seed: int,
        max_iterations: int = 2000,
        init_radius: float = 2.0,
    ) -> NormalApproximation:
        """Return draws from the normal at the mode of a Stan program, by CmdStan's laplace method.

        Parameters
        ----------
        program_path, data, seed, max_iterations, init_radius
            As in `Engine.optimize`, which it starts with.
        draws : int
            1 to 10**7 independent draws.

        Raises
        ------
        ArgumentError
            If a setting or an entry of `data` is out of range.
        EngineError
            If the program does not compile, the search fails, or the density has no proper mode.
        """
        settings = OptimizerSettings(seed=seed, max_iterations=max_iterations, init_radius=init_radius)
        count = check_count("draws", draws)
        if count > MAX_ITERATIONS:
            raise ArgumentError(f"draws must be at most {MAX_ITERATIONS} (got {count}).")
        with self._run_of(program_path, data) as run:
            run.optimize(settings)
            mode = f"mode={run.file('optimize', 'csv')}"
            run.start(["laplace"], "method=laplace", mode, "jacobian=1", f"draws={count}", seed=settings.seed)
            with run.reading():
                variables, columns = read_approximation(run.file("laplace", "csv"), name="laplace")
        return NormalApproximation(
            variables=variables,
            log_density=columns["log_p__"],
            log_approximation=columns["log_q__"],
        )

    @contextlib.contextmanager
    def _run_of(self, program_path: Path, data: StanData) -> Iterator[CmdStanRun]:
        """Yield a run of a program on its data, in a folder that is gone afterwards."""
        plain_data = check_data(data)
        path = Path(program_path)
        executable = self._executable_for(path)
        with quiet_cmdstanpy, tempfile.TemporaryDirectory(prefix="nadpvi-") as name:
            run = CmdStanRun(
                program=path.name, executable=executable, folder=Path(name), timeout=self._timeout
            )
            run.write(plain_data)
            yield run


def _executable_version(executable: Path) -> str:
    """Return the Stan version that an executable reports."""
    cmdstanpy = load_cmdstanpy()
    if not executable.is_file():
        raise EngineError(f"the Stan executable {executable} does not exist.")
    with quiet_cmdstanpy:
        info = cmdstanpy.CmdStanModel(exe_file=str(executable)).exe_info()
    parts = [info.get(f"stan_version_{part}") for part in ("major", "minor", "patch")]
    if None in parts:
        raise EngineError(f"{executable} does not run as a CmdStan executable.")
    return ".".join(str(part) for part in parts)
