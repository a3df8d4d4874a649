"""Time and peak memory of one DP-SGD step: ours, bare matrix products, the same step in JAX, and Opacus.

Each tool runs in a process of its own, all are started before the first is timed, and they take turns: every
round times each tool once, in rotating order, and a ratio is the median over rounds of the ratio within a
round, so that a machine that slows down slows all of them down. JAX and Opacus are optional.

``python benchmarks/engine.py`` writes ``results/engine.json`` and ``results/engine.md`` and the tables of
``docs/speed.md``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _shared import machine, write_result
from engine_cases import CASES, CHECK_ROWS, SEED, write_case
from engine_tables import write_tables
from engine_worker import TOOLS

WORKER = Path(__file__).with_name("engine_worker.py")

# Values in a block of the exact noise: a round draws whole blocks, so that their cost is in the time.
NOISE_BLOCK = 20_000


class Worker:
    """A tool in its process."""

    def __init__(self, tool: str, case: str, folder: Path, *, cores: Sequence[int]) -> None:
        self.tool = tool
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), tool, case, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | thread_settings(len(cores)),
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        self.facts = self._answer()
        self.rounds: list[dict[str, float]] = []
        self.steps = 0

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.tool}: the worker ended with code {self._process.wait()}")
        return json.loads(line)

    def warm_up(self, *, seconds: float, dimension: int) -> None:
        """Check the gradient, let the tool compile, and choose how many steps a round has."""
        self.facts |= self.ask(do="check", rows=CHECK_ROWS)
        self.ask(do="time", steps=3)
        took = self.ask(do="time", steps=20)["wall"] / 1e3
        self.steps = int(np.clip(round(seconds / took), 5, 20_000))
        if self.tool == "real":
            # The last block of a round is waited for, so that a round must be long beside one.
            block = NOISE_BLOCK // dimension
            self.steps = block * max(1, round(max(seconds, 1.0) / took / block))

    def run_round(self) -> None:
        """Time one round."""
        answer = self.ask(do="time", steps=self.steps)
        self.rounds.append({key: answer[key] for key in ("wall", "processor")})
        self.facts |= {key: answer[key] for key in ("peak MB", "imported MB")}

    def stop(self) -> None:
        """End the process."""
        self.ask_stop()
        self._process.wait()

    def ask_stop(self) -> None:
        """Tell the process to end."""
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self._process.stdin.write(json.dumps({"do": "stop"}) + "\n")
            self._process.stdin.close()


def thread_settings(count: int) -> dict[str, str]:
    """Return the environment that gives every library `count` threads."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    settings = dict.fromkeys(names, str(count))
    if count == 1:
        settings["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    return settings


def measure(
    case: str, folder: Path, *, tools: Sequence[str], cores: Sequence[int], rounds: int, seconds: float
) -> dict[str, Any]:
    """Return one case's times: tools that are not installed are named as such."""
    sizes = write_case(CASES[case](), folder)
    started = [Worker(tool, case, folder, cores=cores) for tool in tools]
    workers = [worker for worker in started if "missing" not in worker.facts]
    for worker in workers:
        worker.warm_up(seconds=seconds, dimension=sizes["D"])
    before = os.getloadavg()[0]
    for turn in range(rounds):
        for place in range(len(workers)):
            workers[(turn + place) % len(workers)].run_round()
    for worker in workers:
        worker.stop()
    bare = [worker.rounds for worker in workers if worker.tool.startswith("bare")]
    base = {
        clock: np.min([[entry[clock] for entry in entries] for entries in bare], axis=0)
        for clock in ("wall", "processor")
    }
    return {
        "title": CASES[case]().title,
        "sizes": sizes,
        "load average before and after": [before, os.getloadavg()[0]],
        "tools": {worker.tool: summary(worker, base=base) for worker in started},
    }


def summary(worker: Worker, *, base: dict[str, np.ndarray]) -> dict[str, Any] | str:
    """Return a tool's times and memory, or that it is not installed."""
    if "missing" in worker.facts:
        return "not installed"
    wall, processor = (np.array([entry[clock] for entry in worker.rounds]) for clock in base)
    return {
        "version": worker.facts["version"],
        "ms a step": float(np.median(wall)),
        "ms a step, quartiles": np.quantile(wall, [0.25, 0.75]).tolist(),
        "processor ms a step": float(np.median(processor)),
        "over bare": float(np.median(wall / base["wall"])),
        "processor time over bare": float(np.median(processor / base["processor"])),
        "steps a round": worker.steps,
        "peak MB": worker.facts["peak MB"],
        "peak MB after imports": worker.facts["imported MB"],
        "gradient's error": worker.facts["error"],
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.25, help="of each tool in a round, about")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), choices=list(TOOLS))
    parser.add_argument("--cores", nargs="+", type=int, default=[1, 2], help="runs with so many cores each")
    parser.add_argument("--name", default="engine", help="of the result")
    arguments = parser.parse_args()
    available = sorted(os.sched_getaffinity(0))
    runs: dict[str, Any] = {}
    for count in arguments.cores:
        for case in arguments.cases:
            with tempfile.TemporaryDirectory() as folder:
                found = measure(
                    case,
                    Path(folder),
                    tools=arguments.tools,
                    cores=available[-count:],
                    rounds=arguments.rounds,
                    seconds=arguments.seconds,
                )
            runs.setdefault(str(count), {})[case] = found
            for tool, facts in found["tools"].items():
                shown = (
                    facts
                    if isinstance(facts, str)
                    else f"{facts['ms a step']:.3f} ms, {facts['over bare']:.2f}"
                )
                print(f"{count} core(s), {case}, {tool}: {shown}", flush=True)
    result = {
        "machine": machine(),
        "settings": {"rounds": arguments.rounds, "seconds": arguments.seconds, "seed": SEED},
        "runs, by cores": runs,
    }
    print("written:", write_result(arguments.name, result).name)
    write_tables(result, arguments.name)


if __name__ == "__main__":
    main()
