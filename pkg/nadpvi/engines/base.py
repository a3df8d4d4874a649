"""What every Stan engine takes and gives: checked settings and data in, all draws of all chains out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count, check_positive, check_probability
from nadpvi.engines.data import StanData
from nadpvi.errors import ArgumentError, EngineError

__all__ = [
    "Engine",
    "MAX_CHAINS",
    "MAX_ITERATIONS",
    "MAX_SEED",
    "MAX_STORED_VALUES",
    "MAX_TREEDEPTH",
    "OptimizerSettings",
    "SAMPLER_COLUMNS",
    "SamplerSettings",
    "StanDraws",
    "StanMode",
    "check_seed",
    "check_storage",
    "make_sample_stats",
    "shorten",
]

Array = NDArray[np.generic]

MAX_SEED = 2**31 - 1
# Both engines count in 32 bits and wrap silently beyond; these bounds are far below, and beyond any use.
MAX_CHAINS = 1_000
MAX_ITERATIONS = 10**7
MAX_TREEDEPTH = 30
# 16 GiB of float64.
MAX_STORED_VALUES = 2**31
_LARGEST = {
    "chains": MAX_CHAINS,
    "warmup": MAX_ITERATIONS,
    "draws": MAX_ITERATIONS,
    "max_treedepth": MAX_TREEDEPTH,
}
MAX_ERROR_LINES = 15
_MAX_LINE = 300

# Stan's sampler columns under the names and types that ArviZ gives them.
SAMPLER_COLUMNS: Mapping[str, tuple[str, type[np.generic]]] = {
    "lp__": ("lp", np.float64),
    "accept_stat__": ("acceptance_rate", np.float64),
    "stepsize__": ("step_size", np.float64),
    "treedepth__": ("tree_depth", np.int64),
    "n_leapfrog__": ("n_steps", np.int64),
    "divergent__": ("diverging", np.bool_),
    "energy__": ("energy", np.float64),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StanDraws:
    """Draws of every chain that was asked for, warm-up left out.

    Attributes
    ----------
    variables : dict of str to ndarray, shape (chain, draw, ...)
        Each parameter, transformed parameter and generated quantity in its declared shape. A variable of
        size zero is absent.
    sample_stats : dict of str to ndarray, shape (chain, draw)
        lp, acceptance_rate, step_size, tree_depth, n_steps, diverging and energy, as ArviZ names them.
    """

    variables: dict[str, NDArray[np.float64]]
    sample_stats: dict[str, Array]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StanMode:
    """A mode of a program's density on its unconstrained scale, that is, Jacobian included.

    Attributes
    ----------
    variables : dict of str to ndarray
        Each parameter, transformed parameter and generated quantity at the mode, in its declared shape. A
        variable of size zero is absent.
    log_density : float
        The program's target there, plus the log-Jacobian.
    """

    variables: dict[str, NDArray[np.float64]]
    log_density: float


class Engine(Protocol):
    """Runs Stan programs. Implementations hold no state that a run could change."""

    @property
    def name(self) -> str:
        """Short name, as given to `engine=`."""

    @property
    def version(self) -> str:
        """Version of the program that samples."""

    def prepare(self, program_path: Path) -> None:
        """Do everything that sampling a program needs and its data do not matter for: compile it.

        `sample` does the same where it has not been done. Before a privacy budget is spent, call this, so
        that a toolchain that fails, fails early.

        Raises
        ------
        EngineError
            If the program cannot be compiled: at most 15 lines, with the remedy.
        FileError
            If the program cannot be read by an engine that compiles it.
        """

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
        """Return NUTS draws of a Stan program: all chains, or an `EngineError`.

        Parameters
        ----------
        program_path : Path
            The .stan file.
        data : mapping of str to int, float or array
            The program's data; ints where Stan declares int, everything finite.
        chains : int
            1 to 1,000.
        warmup, draws : int
            1 to 10**7 each, per chain.
        seed : int
            0 <= seed <= 2**31 - 1. One seed and one engine give one result; engines differ from each other.
        adapt_delta : float
            Target acceptance rate in (0, 1).
        max_treedepth : int
            1 to 30.

        Raises
        ------
        ArgumentError
            If a setting or an entry of `data` is not as above, or all chains together would draw more than
            memory holds; raised before anything runs.
        EngineError
            If the program does not compile or a chain fails: at most 15 lines.
        """

    def optimize(
        self,
        program_path: Path,
        data: StanData,
        *,
        seed: int,
        max_iterations: int = 2000,
        init_radius: float = 2.0,
    ) -> StanMode:
        """Return a mode of a Stan program by L-BFGS, Jacobian included.

        It is a local one, known to about a hundredth of the posterior's sd.

        Parameters
        ----------
        program_path, data
            As in `sample`.
        seed : int
            0 <= seed <= 2**31 - 1; draws the start.
        max_iterations : int
            1 to 10**7.
        init_radius : float
            The start is uniform within plus or minus this on the unconstrained scale, > 0.

        Raises
        ------
        ArgumentError
            If a setting or an entry of `data` is out of range.
        EngineError
            If the program does not compile, or the search fails or does not end.
        """


def check_seed(seed: object) -> int:
    """Return the seed as an int.

    Raises
    ------
    ArgumentError
        Unless it is a whole number, Python's or NumPy's, in [0, 2**31 - 1].

    Examples
    --------
    >>> check_seed(np.int64(3))
    3
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed <= MAX_SEED:
        raise ArgumentError(f"seed must be an integer in [0, 2**31 - 1] (got {seed!r}).")
    return int(seed)


def check_storage(*, chains: int, draws: int, values_per_draw: int) -> None:
    """Raise unless the draws of all chains together fit 2**31 numbers, which is 16 GiB.

    Raises
    ------
    ArgumentError
        If they do not; the message gives the largest number of draws that does.

    Examples
    --------
    >>> check_storage(chains=4, draws=1000, values_per_draw=50)
    """
    most = MAX_STORED_VALUES // values_per_draw
    if chains * draws > most:
        raise ArgumentError(
            f"draws must be at most {most // chains} with chains={chains}, as each draw holds at least "
            f"{values_per_draw} numbers and memory is planned for 2**31 of them (got {draws})."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """Settings of one run, checked; see `Engine.sample`."""

    chains: int
    warmup: int
    draws: int
    seed: int
    adapt_delta: float = 0.8
    max_treedepth: int = 10

    def __post_init__(self) -> None:
        for name, most in _LARGEST.items():
            count = check_count(name, getattr(self, name))
            if count > most:
                raise ArgumentError(f"{name} must be at most {most} (got {count}).")
            object.__setattr__(self, name, count)
        # what every program has: the sampler's columns and one parameter
        check_storage(chains=self.chains, draws=self.draws, values_per_draw=len(SAMPLER_COLUMNS) + 1)
        object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "adapt_delta", check_probability("adapt_delta", self.adapt_delta))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """Settings of one search, checked; see `Engine.optimize`."""

    seed: int
    max_iterations: int = 2000
    init_radius: float = 2.0

    def __post_init__(self) -> None:
        count = check_count("max_iterations", self.max_iterations)
        if count > MAX_ITERATIONS:
            raise ArgumentError(f"max_iterations must be at most {MAX_ITERATIONS} (got {count}).")
        object.__setattr__(self, "max_iterations", count)
        object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "init_radius", check_positive("init_radius", self.init_radius))


def make_sample_stats(columns: Mapping[str, NDArray[np.float64]]) -> dict[str, Array]:
    """Return Stan's sampler columns, shape (chain, draw), under ArviZ's names and with its types.

    Raises
    ------
    EngineError
        If a column is missing, so that trouble cannot go unseen.
    """
    missing = [column for column in SAMPLER_COLUMNS if column not in columns]
    if missing:
        raise EngineError(f"the engine's output lacks the sampler columns {', '.join(missing)}.")
    return {name: columns[column].astype(kind) for column, (name, kind) in SAMPLER_COLUMNS.items()}


def shorten(message: str, *, max_lines: int = MAX_ERROR_LINES) -> str:
    r"""Return the message without blank lines and overlong lines, at most `max_lines` lines.

    Examples
    --------
    >>> shorten("one\n\ntwo\nthree", max_lines=2)
    'one\n[...]'
    """
    lines = [re.sub(r"\s+$", "", line)[:_MAX_LINE] for line in message.splitlines() if line.strip()]
    if len(lines) > max_lines:
        lines = [*lines[: max_lines - 1], "[...]"]
    return "\n".join(lines)
