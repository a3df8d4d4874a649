"""Which Stan engines this machine has: one of them to sample with, or all of them to report on."""

from dataclasses import dataclass

from nadpvi.engines.base import Engine
from nadpvi.engines.cmdstan import CmdStanEngine
from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.errors import ArgumentError, EngineError

__all__ = ["ENGINE_NAMES", "EngineStatus", "describe_engines", "find_engine"]

ENGINE_NAMES = ("auto", "cmdstan", "stanli")

# In order of preference: compiled Stan is faster on long runs, the interpreter needs no compiler.
_ENGINES: dict[str, type[CmdStanEngine] | type[EmbeddedEngine]] = {
    "cmdstan": CmdStanEngine,
    "stanli": EmbeddedEngine,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """Whether an engine can be used here.

    Attributes
    ----------
    name : str
    is_found : bool
    version : str or None
        None when not found.
    detail : str or None
        Why it was not found, and the remedy; None when found.
    """

    name: str
    is_found: bool
    version: str | None
    detail: str | None


def describe_engines() -> list[EngineStatus]:
    """Return the state of every engine, in the order in which "auto" tries them; never raises."""
    statuses = []
    for name, engine_type in _ENGINES.items():
        try:
            version = engine_type().version
        except EngineError as error:
            statuses.append(EngineStatus(name=name, is_found=False, version=None, detail=str(error)))
        else:
            statuses.append(EngineStatus(name=name, is_found=True, version=version, detail=None))
    return statuses


def find_engine(name: str = "auto") -> Engine:
    """Return an engine that is ready to sample.

    Parameters
    ----------
    name : {"auto", "cmdstan", "stanli"}
        "auto" takes CmdStan where it is installed completely, else stanli; `describe_engines` says why one
        was passed over.

    Raises
    ------
    ArgumentError
        If the name is unknown.
    EngineError
        If the engine, or with "auto" every engine, is missing; the message holds the remedy.
    """
    if name not in ENGINE_NAMES:
        raise ArgumentError(f"engine must be one of {', '.join(map(repr, ENGINE_NAMES))} (got {name!r}).")
    if name != "auto":
        return _ENGINES[name]()
    reasons = []
    for engine_type in _ENGINES.values():
        try:
            return engine_type()
        except EngineError as error:
            reasons.append(str(error))
    raise EngineError(f"no Stan engine is usable. {' '.join(reasons)}")
