"""The embedded engine: stanli interprets Stan programs in-process, without a C++ compiler."""

import contextlib
import ctypes
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nadpvi.engines.base import (
    OptimizerSettings,
    SamplerSettings,
    StanDraws,
    StanMode,
    make_sample_stats,
    shorten,
)
from nadpvi.engines.data import StanData, check_data
from nadpvi.engines.programs import read_sources
from nadpvi.errors import EngineError

__all__ = ["EmbeddedEngine", "load_stanli"]

SUPPORTED = (0, 24)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PRINT = re.compile(r"\bprint\s*\(")
_redirect_lock = threading.Lock()

_MAX_RESTARTS = 20
_ROUNDING = 1e-12
# In nats: a mode that is missed by so much is a thousandth of an sd away.
_LEAST_GAIN = 1e-6


def load_stanli() -> Any:
    """Return the stanli module.

    Raises
    ------
    EngineError
        If it is not installed, cannot be loaded, or has a version that this package was not tested with.
    """
    try:
        import stanli
    except (ImportError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EngineError(
            f"stanli cannot be imported ({reason}): pip install 'stanli>=0.24,<0.25'."
        ) from None
    version = tuple(int(part) for part in re.findall(r"\d+", stanli.__version__)[:2])
    if version != SUPPORTED:
        raise EngineError(f"stanli {stanli.__version__} is not supported: pip install 'stanli>=0.24,<0.25'.")
    return stanli


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send what native code writes to stdout to stderr instead.

    File descriptors belong to the whole process, so this is used only for programs that print, and by one
    thread at a time.
    """
    flush_native = ctypes.CDLL(None).fflush
    with _redirect_lock:
        sys.stdout.flush()
        flush_native(None)
        saved = os.dup(1)
        os.dup2(2, 1)
        try:
            yield
        finally:
            flush_native(None)
            os.dup2(saved, 1)
            os.close(saved)


def _prints(sources: dict[str, str]) -> bool:
    """Tell whether a program has a print statement: the only native output of stanli at refresh=0."""
    return any(_PRINT.search(_COMMENT.sub(" ", text)) for text in sources.values())


class EmbeddedEngine:
    """Samples with stanli.

    A stanli model shared by threads returns wrong numbers, so each run builds its own; nothing is kept.

    Raises
    ------
    EngineError
        If stanli is missing or of another version than 0.24.
    """

    name = "stanli"

    def __init__(self) -> None:
        self._stanli = load_stanli()

    @property
    def version(self) -> str:
        """Version of stanli."""
        return str(self._stanli.__version__)

    def prepare(self, program_path: Path) -> None:
        """Do nothing: stanli has no compiler that could fail; see `Engine.prepare`."""

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
        with self._quiet(program_path):
            fit = self._run(program_path, plain_data, settings)
        columns = {
            column: np.ascontiguousarray(fit.sampler_stats[:, :, index])
            for index, column in enumerate(self._stanli.SAMPLER_COLUMNS)
        }
        variables = {name: np.array(fit.draws(name)) for name in fit.variables}
        return StanDraws(variables=variables, sample_stats=make_sample_stats(columns))

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
        plain_data = check_data(data)
        program_path = Path(program_path)
        with self._quiet(program_path):
            best = self._search(program_path, plain_data, settings)
        names = [name for name, dims in best.variables.items() if 0 not in dims]
        return StanMode(
            variables={name: np.array(best[name], dtype=np.float64) for name in names},
            log_density=float(best.lp),
        )

    def _search(self, program_path: Path, data: dict[str, Any], settings: OptimizerSettings) -> Any:
        """Build a model and search for its mode, again from each end until nothing is gained any more."""
        try:
            model = self._stanli.Model(stan_file=str(program_path), data=data, seed=settings.seed)
            run = {"seed": settings.seed, "iter": settings.max_iterations}
            best = model.optimize(init_radius=settings.init_radius, **run)
            for _ in range(_MAX_RESTARTS):
                # it stops where the relative change of the objective is small, which may be early
                again = model.optimize(init=best.unconstrained, **run)
                gain, best = again.lp - best.lp, max(best, again, key=lambda found: found.lp)
                if not gain > max(_LEAST_GAIN, _ROUNDING * abs(best.lp)):
                    return best
        except RuntimeError as error:
            raise EngineError(shorten(f"stanli could not run {program_path.name}: {error}")) from None
        raise EngineError(
            f"stanli found no mode of {program_path.name} in {_MAX_RESTARTS} searches of at most "
            f"{settings.max_iterations} iterations: raise max_iterations."
        )

    def _quiet(self, program_path: Path) -> contextlib.AbstractContextManager[None]:
        """Keep what a program prints away from standard output."""
        return _stdout_to_stderr() if _prints(read_sources(program_path)) else contextlib.nullcontext()

    def _run(self, program_path: Path, data: dict[str, Any], settings: SamplerSettings) -> Any:
        """Build a model and sample it once."""
        try:
            model = self._stanli.Model(stan_file=str(program_path), data=data, seed=settings.seed)
            return model.sample(
                chains=settings.chains,
                seed=settings.seed,
                warmup=settings.warmup,
                samples=settings.draws,
                delta=settings.adapt_delta,
                max_depth=settings.max_treedepth,
                refresh=0,
            )
        except RuntimeError as error:
            # stanli compiles the text, so its messages call every program 'string'
            message = str(error).replace("in 'string'", f"in '{program_path.name}'")
            raise EngineError(shorten(f"stanli could not run {program_path.name}: {message}")) from None
