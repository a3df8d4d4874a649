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

from nadpvi.engines.base import SamplerSettings, StanData, StanDraws, check_data, make_sample_stats, shorten
from nadpvi.engines.programs import read_sources
from nadpvi.errors import EngineError

__all__ = ["EmbeddedEngine", "load_stanli"]

SUPPORTED = (0, 24)

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PRINT = re.compile(r"\bprint\s*\(")
_redirect_lock = threading.Lock()


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
        quiet = _stdout_to_stderr() if _prints(read_sources(program_path)) else contextlib.nullcontext()
        with quiet:
            fit = self._run(program_path, plain_data, settings)
        columns = {
            column: np.ascontiguousarray(fit.sampler_stats[:, :, index])
            for index, column in enumerate(self._stanli.SAMPLER_COLUMNS)
        }
        variables = {name: np.array(fit.draws(name)) for name in fit.variables}
        return StanDraws(variables=variables, sample_stats=make_sample_stats(columns))

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
