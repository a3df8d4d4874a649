"""CmdStan's CSV files, read through cmdstanpy: whole, all of one run, every draw of every chain."""

import hashlib
import logging
import math
import os
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.engines.base import StanDraws, StanMode, make_sample_stats
from nadpvi.engines.toolchain import USE_STANLI
from nadpvi.errors import EngineError, FileError

__all__ = [
    "ChainFiles",
    "load_cmdstanpy",
    "quiet_cmdstanpy",
    "read_approximation",
    "read_chains",
    "read_mode",
]

FloatArray = NDArray[np.float64]

# What cmdstanpy makes of a file that is not CmdStan's, or of which a part is missing.
_FOREIGN = (ValueError, RuntimeError, OSError, LookupError, TypeError, AttributeError, AssertionError)
# What all chains of one run have in common.
_SHARED = (
    *("model", "num_samples", "num_warmup", "thin", "delta", "max_depth"),
    *("stan_version_major", "stan_version_minor"),
)
# Sampler columns that hold whole numbers, and the largest that is allowed.
_WHOLE = {"divergent__": 1.0, "treedepth__": math.inf, "n_leapfrog__": math.inf}
_ROWS_LOOKED_AT = 20
_MANTISSA = re.compile(r"[-+]?([0-9]*)\.?([0-9]*)(?:[eE][-+]?[0-9]+)?")


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


quiet_cmdstanpy = _QuietLogger()


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


class ChainFiles(NamedTuple):
    """The draws in the files of one run, one file a chain, and the settings that the first file records.

    ``figures`` is the number of significant digits that the draws were written with.
    """

    draws: StanDraws
    settings: Mapping[str, Any]
    figures: int

    @property
    def version(self) -> str:
        """Version of the CmdStan that sampled."""
        parts = [self.settings.get(f"stan_version_{part}") for part in ("major", "minor", "patch")]
        return ".".join(str(part) for part in parts)

    def number(self, key: str, *, default: float | None, name: str) -> float | None:
        """Return a setting that is a number, or the default where the files do not record it.

        Raises
        ------
        FileError
            If they record something else; `name` is what the first file is called.
        """
        value = self.settings.get(key, default)
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            return value
        raise FileError(f"{name} records {key} = {value}, which is no number.")


class _Chain(NamedTuple):
    """One file: draws first in every array."""

    variables: dict[str, FloatArray]
    columns: dict[str, FloatArray]
    settings: Mapping[str, Any]
    figures: int


def read_chains(files: Sequence[str | os.PathLike[str]], *, names: Sequence[str] | None = None) -> ChainFiles:
    """Return the draws of a sampling run, one file a chain, warm-up left out.

    Parameters
    ----------
    files : sequence of path
        CSV files, at least one.
    names : sequence of str, optional
        What to call them in messages; their paths when omitted.

    Raises
    ------
    FileError
        If a file is missing, cut off or not CmdStan's, or the files are not chains of one run: one line that
        names the file.
    """
    called = [str(path) for path in files] if names is None else list(names)
    if not called:
        raise FileError("no CSV files were given: name one a chain.")
    chains = [_read_chain(Path(path), name) for path, name in zip(files, called, strict=True)]
    first = chains[0]
    for name, chain in zip(called[1:], chains[1:], strict=True):
        _check_same_run(first, chain, names=(called[0], name))
    _check_different_draws(chains, called)
    # one file at a time, so that a run of many draws is not held twice
    stacked = {name: np.stack([chain.columns[name] for chain in chains]) for name in first.columns}
    variables = {
        name: np.stack([chain.variables.pop(name) for chain in chains]) for name in [*first.variables]
    }
    try:
        stats = make_sample_stats(stacked)
    except EngineError as error:
        raise FileError(f"{called[0]} is not of a NUTS run: {error}") from None
    draws = StanDraws(variables=variables, sample_stats=stats)
    return ChainFiles(draws, first.settings, min(chain.figures for chain in chains))


def read_mode(file: Path, *, name: str) -> StanMode:
    """Return the optimum that a file of CmdStan's optimizer holds; `FileError` if it holds none."""
    fit = _read(file, name, method="optimize")
    variables = {}
    for key, value in fit.stan_variables().items():
        array = np.asarray(value, dtype=np.float64)
        if array.ndim == 0 and key not in fit.column_names:
            # cmdstanpy makes a number of an array of one entry, whose column is called key[1] or key[1,1]
            indices = next(column for column in fit.column_names if column.startswith(f"{key}["))
            array = array.reshape((1,) * (indices.count(",") + 1))
        variables[key] = array
    return StanMode(variables=variables, log_density=float(fit.optimized_params_dict["lp__"]))


def read_approximation(file: Path, *, name: str) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Return variables and columns log_p__, log_q__ of a file of CmdStan's laplace method, draws first."""
    fit = _read(file, name, method="laplace")
    variables = {key: np.array(value, dtype=np.float64) for key, value in fit.stan_variables().items()}
    columns = {key: np.array(value, dtype=np.float64) for key, value in fit.method_variables().items()}
    return variables, columns


def _read_chain(path: Path, name: str) -> _Chain:
    """Return what one file holds."""
    fit = _read(path, name, method="sample")
    try:
        kept = fit.num_draws_sampling
        # (draw, 1) a column, as cmdstanpy takes a file for a run of one chain; saved warm-up comes first
        columns = {key: np.array(value[-kept:, 0]) for key, value in fit.method_variables().items()}
        variables = {key: np.array(value, dtype=np.float64) for key, value in fit.stan_variables().items()}
        settings = fit.metadata.cmdstan_config
    except _FOREIGN as error:
        raise FileError(_complaint(name, error, path)) from None
    _check_columns(columns, name)
    return _Chain(variables, columns, settings, _figures(path))


def _check_columns(columns: Mapping[str, FloatArray], name: str) -> None:
    """Raise unless the sampler's columns hold what Stan writes there."""
    for key, values in columns.items():
        if not np.isfinite(values).all():
            raise FileError(f"{name} holds a {key} that is not a finite number.")
        most = _WHOLE.get(key)
        if most is not None and not ((values >= 0) & (values <= most) & (values == np.floor(values))).all():
            kind = "neither 0 nor 1" if most == 1.0 else "no whole number of at least 0"
            raise FileError(f"{name} holds a {key} that is {kind}.")


def _figures(path: Path) -> int:
    """Return how many significant digits a file's numbers have, by its first draws, not by its header."""
    most, rows = 1, 0
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(("#", "lp__")) or not line.strip():
                continue
            for cell in line.split(","):
                found = _MANTISSA.fullmatch(cell.strip())
                if found is not None:
                    most = max(most, len("".join(found.groups()).strip("0")))
            rows += 1
            if rows == _ROWS_LOOKED_AT:
                break
    return most


def _read(path: Path, name: str, *, method: str) -> Any:
    """Return cmdstanpy's fit of one file."""
    if not path.is_file():
        raise FileError(f"{name} does not exist, or is not a file.")
    if path.suffix != ".csv":
        raise FileError(f"{name} must have a name that ends in .csv, as CmdStan's output has.")
    try:
        # cmdstanpy counts what is not a number as well, aloud; it is looked for here
        with quiet_cmdstanpy, np.errstate(invalid="ignore"):
            fit = load_cmdstanpy().from_csv(str(path), method=method)
    except _FOREIGN as error:
        raise FileError(_complaint(name, error, path)) from None
    if fit is None:
        raise FileError(f"{name} is not of CmdStan's method {method}.")
    return fit


def _complaint(name: str, error: BaseException, path: Path) -> str:
    """Return one line: the file and the first cause that cmdstanpy gave."""
    while error.__cause__ is not None:
        error = error.__cause__
    reason = re.sub(r"\s+", " ", str(error)).strip().replace(str(path), name)[:200]
    if reason.startswith("Unable to count"):
        reason = "its end is missing, so the run did not finish"
    if "iter_warmup" in reason:
        return f"{name} is of a run without warm-up, whose draws are not read: sample with num_warmup=1000."
    return f"{name} is not a whole CSV file of CmdStan: {reason or type(error).__name__}"


def _check_same_run(first: _Chain, other: _Chain, *, names: tuple[str, str]) -> None:
    """Raise unless two files can be chains of one run."""
    for key in _SHARED:
        if first.settings.get(key) != other.settings.get(key):
            raise FileError(
                f"{names[1]} and {names[0]} are not chains of one run: {key} is {other.settings.get(key)} "
                f"and {first.settings.get(key)}."
            )
    shapes = [
        {key: value.shape for key, value in (chain.variables | chain.columns).items()}
        for chain in (first, other)
    ]
    if shapes[0] != shapes[1]:
        raise FileError(
            f"{names[1]} and {names[0]} are not chains of one run: they hold different variables."
        )


def _check_different_draws(chains: Sequence[_Chain], names: Sequence[str]) -> None:
    """Raise if two chains are one: a file given twice, or a seed and an id used twice."""
    seen: dict[bytes, str] = {}
    for name, chain in zip(names, chains, strict=True):
        digest = hashlib.sha256()
        for values in (*chain.columns.values(), *chain.variables.values()):
            digest.update(values.tobytes())
        earlier = seen.get(digest.digest())
        if earlier is not None:
            raise FileError(
                f"{name} has the same draws as {earlier}: give each file once, and each chain "
                "an id of its own (id=1, id=2, ...)."
            )
        seen[digest.digest()] = name
