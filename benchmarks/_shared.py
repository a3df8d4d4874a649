"""What the benchmarks share: the machine they ran on, timing, and where results go."""

import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def mean_seconds(call: Callable[[], object], *, repeats: int) -> float:
    """Return the mean wall time of `repeats` calls."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def machine() -> dict[str, Any]:
    """Return what a reader must know to judge a timing."""
    packages = ("numpy", "scipy", "stanli", "opendp")
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def write_result(name: str, result: dict[str, Any]) -> Path:
    """Write a result beside the benchmarks as JSON and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(result, indent=2) + "\n")
    return path
