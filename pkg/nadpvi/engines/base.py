"""What every Stan engine takes and gives: checked settings and data in, all draws of all chains out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count, check_probability
from nadpvi.errors import ArgumentError, EngineError

__all__ = [
    "Engine",
    "MAX_SEED",
    "SAMPLER_COLUMNS",
    "SamplerSettings",
    "StanData",
    "StanDraws",
    "StanValue",
    "check_data",
    "check_seed",
    "make_sample_stats",
    "shorten",
]

Array = NDArray[np.generic]
StanValue = int | float | list[object]
StanData = Mapping[str, object]

MAX_SEED = 2**31 - 1
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


class Engine(Protocol):
    """Runs Stan programs. Implementations hold no state that a run could change."""

    @property
    def name(self) -> str:
        """Short name, as given to `engine=`."""

    @property
    def version(self) -> str:
        """Version of the program that samples."""

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
        chains, warmup, draws : int
            At least 1 each; `draws` and `warmup` count per chain.
        seed : int
            0 <= seed <= 2**31 - 1. One seed and one engine give one result; engines differ from each other.
        adapt_delta : float
            Target acceptance rate in (0, 1).
        max_treedepth : int
            At least 1.

        Raises
        ------
        ArgumentError
            If a setting or an entry of `data` is not as above; raised before anything runs.
        EngineError
            If the program does not compile or a chain fails: at most 15 lines.
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
        for name in ("chains", "warmup", "draws", "max_treedepth"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        object.__setattr__(self, "seed", check_seed(self.seed))
        object.__setattr__(self, "adapt_delta", check_probability("adapt_delta", self.adapt_delta))


def check_data(data: StanData) -> dict[str, StanValue]:
    """Return the data as plain ints, floats and nested lists, ready for JSON.

    Whether a number is int or real stays as it was given: 20.0 is not turned into 20, and Stan refuses it
    where the program declares an int.

    Raises
    ------
    ArgumentError
        If an entry is not numeric or not finite; the entry is named.

    Examples
    --------
    >>> check_data({"N": np.int64(2), "y": np.array([1.0, 2.5])})
    {'N': 2, 'y': [1.0, 2.5]}
    """
    checked: dict[str, StanValue] = {}
    for name, value in data.items():
        array = np.asarray(value)
        if array.size == 0:
            array = array.astype(np.float64)
        if array.dtype.kind not in "iufb":
            raise ArgumentError(f"Stan data {name!r} must be numeric (got {type(value).__name__}).")
        if array.dtype.kind == "b":
            array = array.astype(np.int64)
        finite = np.isfinite(array)
        if not finite.all():
            count = int(array.size - np.count_nonzero(finite))
            raise ArgumentError(
                f"Stan data {name!r} must be finite ({count} of {array.size} entries are not)."
            )
        checked[name] = array.tolist()
    return checked


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
