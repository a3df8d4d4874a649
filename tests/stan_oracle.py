"""Genuine compiled Stan as an oracle: log density and gradient of a program through PyStan.

PyStan runs an event loop, prints and warns at import, so it lives in a process of its own: this file, run as
a script, reads a job from standard input and writes the answer to the file that the job names.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from nadpvi.engines.programs import inlined_program


def missing_part() -> str | None:
    """Say what compiled Stan lacks on this machine, or None."""
    if importlib.util.find_spec("stan") is None:
        return "PyStan is not installed (pip install pystan)"
    compiler = os.environ.get("CXX", "c++").split()[0]
    if shutil.which(compiler) is None and shutil.which("g++") is None:
        return "there is no C++ compiler"
    return None


def evaluate(program: Path, cases: list[tuple[dict, np.ndarray]]) -> list[tuple[float, np.ndarray]]:
    """Return (log density with Jacobian and constants, gradient) for each (data, unconstrained point)."""
    job = {
        "code": inlined_program(program),  # PyStan takes one text
        "cases": [
            {"data": {k: np.asarray(v).tolist() for k, v in data.items()}, "point": list(map(float, point))}
            for data, point in cases
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        job["answer"] = str(Path(folder) / "answer.json")
        result = subprocess.run(
            [sys.executable, __file__], input=json.dumps(job), capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr[-3000:]
        answers = json.loads(Path(job["answer"]).read_text())
    return [(value, np.array(gradient)) for value, gradient in answers]


def main() -> None:
    job = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        import stan

        answers = []
        for case in job["cases"]:
            model = stan.build(job["code"], data=case["data"])
            answers.append((model.log_prob(case["point"]), list(model.grad_log_prob(case["point"]))))
    Path(job["answer"]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
