"""nadpvi doctor: what this machine has."""

import platform

from nadpvi.cli import options
from nadpvi.cli.console import print_json, print_text
from nadpvi.containers.storage import package_versions
from nadpvi.engines.discover import describe_engines, find_engine
from nadpvi.errors import EngineError

__all__ = ["doctor"]


def doctor(json: options.Json = False) -> None:
    """Show which Stan engines and packages this machine has.

    The engine that would run is named as well.

    Example: nadpvi doctor
    """
    engines = describe_engines()
    try:
        chosen: str | None = find_engine("auto").name
    except EngineError:
        chosen = None
    versions = {"python": platform.python_version(), **package_versions()}
    if json:
        rows = [
            {"name": e.name, "found": e.is_found, "version": e.version, "detail": e.detail} for e in engines
        ]
        print_json({"engines": rows, "chosen": chosen, "versions": versions})
        return
    for engine in engines:
        state = f"found {engine.version}" if engine.is_found else f"not found: {engine.detail}"
        print_text(f"{engine.name}: {state}")
    print_text(f"engine that would run: {chosen or 'none; install one with pip install stanli'}")
    for name, number in versions.items():
        print_text(f"{name} {number}")
