"""One tool in a process of its own: it loads a case, then does as many steps as it is asked for.

``python engine_worker.py TOOL CASE FOLDER`` answers requests, one JSON object a line: {"do": "check"},
{"do": "time", "steps": n} and {"do": "stop"}. It is started by ``engine.py``.
"""

import importlib
import json
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

__all__ = ["Inputs", "TOOLS", "Tool", "poisson_sample"]

# The module of each tool, the function that makes it, and the option it takes.
TOOLS = {
    "bare": ("engine_ours", "make_bare", "whole"),
    "bare, blocks": ("engine_ours", "make_bare", "blocks"),
    "simulation": ("engine_ours", "make_step", "simulation"),
    "real": ("engine_ours", "make_step", "real"),
    "jax, float32": ("engine_jax", "make_step", "float32"),
    "jax, float64": ("engine_jax", "make_step", "float64"),
    "opacus, hooks": ("engine_opacus", "make_step", "hooks"),
    "opacus, vmap": ("engine_opacus", "make_step", "vmap"),
}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What every tool gets: the case's name, its public numbers and its encoded records."""

    case: str
    public: dict[str, Any]
    x: np.ndarray
    y: np.ndarray

    @classmethod
    def load(cls, case: str, folder: Path) -> "Inputs":
        """Return a case that ``engine_cases.write_case`` wrote."""
        public = json.loads((folder / "case.json").read_text())
        return cls(case=case, public=public, x=np.load(folder / "x.npy"), y=np.load(folder / "y.npy"))


class Tool(Protocol):
    """A step that can be repeated."""

    version: str

    def step(self) -> None:
        """Do one step; it may still be under way on return."""
        ...

    def finish(self) -> None:
        """Wait for the last step."""
        ...

    def gradient(self, normal: np.ndarray, num_rows: int) -> np.ndarray | None:
        """Return the step's gradient on all of the first rows without noise; None where there is no such."""
        ...


def poisson_sample(rng: np.random.Generator, *, num_records: int, sampling_rate: float) -> np.ndarray:
    """Return a Poisson subsample by geometric gaps, for the tools that have no such sampler."""
    expected = num_records * sampling_rate
    size = int(expected + 8.0 * np.sqrt(expected) + 16.0)
    positions = np.cumsum(rng.geometric(sampling_rate, size=size)) - 1
    return positions[: int(np.searchsorted(positions, num_records))]


def peak_mb() -> float:
    """Return this process's peak resident memory in MB (Linux counts in KB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def time_steps(tool: Tool, *, steps: int) -> dict[str, float]:
    """Return milliseconds a step, by the wall and of processors."""
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(steps):
        tool.step()
    tool.finish()
    return {
        "wall": 1e3 * (time.perf_counter() - wall) / steps,
        "processor": 1e3 * (time.process_time() - processor) / steps,
    }


def check(tool: Tool, folder: Path, *, num_rows: int) -> dict[str, float | None]:
    """Return the largest error of a tool's gradient over the largest entry of the reference."""
    found = tool.gradient(np.load(folder / "normal.npy"), num_rows)
    if found is None:
        return {"error": None}
    expected = np.load(folder / "gradient.npy")
    return {"error": float(np.abs(found - expected).max() / np.abs(expected).max())}


def main() -> None:
    """Serve requests until told to stop."""
    name, case, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    module, function, option = TOOLS[name]
    try:
        made_by = importlib.import_module(module)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    imported = peak_mb()
    inputs = Inputs.load(case, folder)
    tool: Tool = getattr(made_by, function)(inputs, option)
    print(json.dumps({"version": tool.version}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "stop":
            break
        if request["do"] == "check":
            answer: dict[str, Any] = check(tool, folder, num_rows=request["rows"])
        else:
            answer = time_steps(tool, steps=request["steps"])
        print(json.dumps(answer | {"peak MB": peak_mb(), "imported MB": imported}), flush=True)


if __name__ == "__main__":
    main()
