"""Large tables and many parameters: seconds and peak resident memory of whole private runs.

Every case runs in a process of its own, whose peak resident memory the operating system tells
(`resource.getrusage`; pages of mapped files count while they are resident). Tables are made by the benchmark
in a temporary folder, part by part from a seed, by another process. ``python benchmarks/size.py`` writes
``benchmarks/results/size.{json,md}``; ``--scale 0.01`` takes a hundredth of all rows. How time grows with
the batch, D and S is in ``benchmarks/scaling.py``.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

COLUMNS = 20
PART = 250_000
SEED = 11
BUDGET = {"epsilon": 1.0, "delta": 1e-8}


def numeric_schema(names: list[str]):
    import nadpvi as na

    columns = {name: {"kind": "real", "lower": 0, "upper": 1} for name in names}
    return na.Schema.from_dict({"columns": columns | {"y": {"kind": "binary", "levels": ["0", "1"]}}})


def level_schema():
    import nadpvi as na

    levels = {"kind": "categorical", "levels": [f"level {i}" for i in range(8)]}
    return na.Schema.from_dict(
        {"columns": {f"c{i}": levels for i in range(3)} | {"y": {"kind": "binary", "levels": ["0", "1"]}}}
    )


def names_of(num_columns: int) -> list[str]:
    return [f"c{i}" for i in range(num_columns)]


def parts_of(num_rows: int):
    """Yield generators of the parts of a table and their sizes."""
    import numpy as np

    for number, start in enumerate(range(0, num_rows, PART)):
        yield np.random.default_rng([SEED, number]), min(PART, num_rows - start)


def numeric_part(rng, num_rows: int) -> dict[str, Any]:
    import numpy as np

    x = rng.random((COLUMNS, num_rows), dtype=np.float32)
    chance = 1.0 / (1.0 + np.exp(-(x[0] - x[1])))
    return dict(zip(names_of(COLUMNS), x, strict=True)) | {
        "y": (rng.random(num_rows) < chance).astype(np.int8)
    }


def make_parquet(path: Path, num_rows: int, part_of: Callable[..., dict[str, Any]]) -> None:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    writer = None
    for rng, size in parts_of(num_rows):
        part = pyarrow.table(part_of(rng, size))
        if writer is None:
            writer = ParquetWriter(path, part.schema)
        writer.write_table(part)
    writer.close()


def level_part(rng, num_rows: int) -> dict[str, Any]:
    import numpy as np

    levels = np.array([f"level {i}" for i in range(8)])
    columns = {f"c{i}": levels[rng.integers(0, 8, num_rows)] for i in range(3)}
    return columns | {"y": rng.integers(0, 2, num_rows).astype(np.int8)}


def make_csv(path: Path, num_rows: int) -> None:
    import pandas as pd

    for number, (rng, size) in enumerate(parts_of(num_rows)):
        pd.DataFrame(numeric_part(rng, size)).round(4).to_csv(path, mode="a", header=number == 0, index=False)


def make_columns(folder: Path, num_rows: int) -> None:
    import numpy as np

    open_memmap = np.lib.format.open_memmap
    arrays = {
        name: open_memmap(folder / f"{name}.npy", mode="w+", dtype=values.dtype, shape=(num_rows,))
        for name, values in numeric_part(np.random.default_rng(0), 1).items()
    }
    for number, (rng, size) in enumerate(parts_of(num_rows)):
        for name, values in numeric_part(rng, size).items():
            arrays[name][number * PART : number * PART + size] = values


def make_encoded(folder: Path, num_rows: int) -> None:
    import numpy as np

    open_memmap = np.lib.format.open_memmap
    x = open_memmap(folder / "x.npy", mode="w+", dtype=np.float32, shape=(num_rows, COLUMNS + 1))
    y = open_memmap(folder / "y.npy", mode="w+", dtype=np.float64, shape=(num_rows,))
    x[:, 0] = 1.0
    for number, (rng, size) in enumerate(parts_of(num_rows)):
        part = numeric_part(rng, size)
        rows = slice(number * PART, number * PART + size)
        y[rows] = part.pop("y")
        x[rows, 1:] = np.stack(list(part.values()), axis=1)


def private_run(table, *, schema, rate: float, num_steps: int, **options: Any) -> dict[str, float]:
    """Return seconds until the first step and per later step of a private run."""
    import nadpvi as na
    from nadpvi.description import ModelDescription
    from nadpvi.mechanism import make_mechanism

    settings = {name: options.pop(name) for name in ("keep", "burn_in") if name in options}
    config = na.DPVIConfig(num_steps=num_steps, sampling_rate=rate, **settings)
    model, moments = na.models.LogisticRegression(outcome="y"), []
    description = ModelDescription(model=model, schema=schema, guide=config.guide)
    # The noise is calibrated once and its scale kept, so that the time below is that of the table.
    make_mechanism(description, privacy=na.PrivacyBudget(**BUDGET), config=config)
    start = time.perf_counter(), time.process_time()
    na.release(
        model,
        table,
        schema=schema,
        privacy=na.PrivacyBudget(**BUDGET),
        config=config,
        callback=lambda _: moments.append((time.perf_counter(), time.process_time())),
        **options,
    )
    elapsed, processor = (
        (last - first) / (num_steps - 1) for first, last in zip(moments[0], moments[-1], strict=True)
    )
    return {
        "sampling rate": rate,
        "reading, s": moments[0][0] - start[0] - elapsed,
        "reading, processor s": moments[0][1] - start[1] - processor,
        "per step, ms": 1e3 * elapsed,
        "per step, processor ms": 1e3 * processor,
    }


def run_parquet(folder: Path) -> dict[str, float]:
    schema = numeric_schema(names_of(COLUMNS))
    return private_run(folder / "t.parquet", schema=schema, rate=0.001, num_steps=200, storage="float32")


def run_csv(folder: Path) -> dict[str, float]:
    schema = numeric_schema(names_of(COLUMNS))
    return private_run(folder / "t.csv", schema=schema, rate=0.001, num_steps=200, storage="float32")


def run_columns(folder: Path) -> dict[str, float]:
    import numpy as np

    names = names_of(COLUMNS)
    table = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in (*names, "y")}
    return private_run(table, schema=numeric_schema(names), rate=0.001, num_steps=200, storage="float32")


def run_encoded(folder: Path) -> dict[str, float]:
    import numpy as np

    from nadpvi.private.records import Records

    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y"))
    schema = numeric_schema(names_of(COLUMNS))
    return private_run(Records(x=x, y=y), schema=schema, rate=0.001, num_steps=200)


def run_levels(folder: Path, *, collapse: bool) -> dict[str, float]:
    return private_run(
        folder / "t.parquet", schema=level_schema(), rate=0.01, num_steps=200, collapse=collapse,
        storage="float32",
    )  # fmt: skip


def run_frequencies(folder: Path) -> dict[str, float]:
    """Run on a frequency table of 1,000 rows with nearly as many records as exact sums allow."""
    import numpy as np

    from nadpvi.private.records import Records

    rng = np.random.default_rng(SEED)
    num_records = int(folder.name)
    counts = 1 + rng.multinomial(num_records - 1000, np.full(1000, 1e-3))
    x = np.column_stack([np.ones(1000), rng.random((1000, COLUMNS))])
    records = Records(x=x, y=rng.integers(0, 2, 1000), counts=counts)
    return private_run(records, schema=numeric_schema(names_of(COLUMNS)), rate=0.01, num_steps=200)


def run_wide(folder: Path) -> dict[str, float]:
    """Run with K = 50,000 coefficients, D = 100,000, on 2,000 records; running sums instead of the trace."""
    import numpy as np

    import nadpvi as na
    from nadpvi.private.records import Records

    num_records, num_params = 2000, 50_000
    rng = np.random.default_rng(SEED)
    x = np.empty((num_records, num_params), dtype=np.float32)
    for row in x:
        row[:] = rng.random(num_params, dtype=np.float32) < 0.01
    x.setflags(write=False)
    levels = {"kind": "categorical", "levels": [f"word {i}" for i in range(num_params - 1)]}
    schema = na.Schema.from_dict({"columns": {"word": levels, "y": {"kind": "binary", "levels": ["0", "1"]}}})
    return private_run(
        Records(x=x, y=rng.integers(0, 2, num_records)), schema=schema, rate=0.1, num_steps=20, keep="sums"
    )


MAKERS: dict[str, Callable[[Path, int], None]] = {
    "numeric parquet": lambda folder, rows: make_parquet(folder / "t.parquet", rows, numeric_part),
    "level parquet": lambda folder, rows: make_parquet(folder / "t.parquet", rows, level_part),
    "csv": lambda folder, rows: make_csv(folder / "t.csv", rows),
    "columns": make_columns,
    "encoded": make_encoded,
}

# Name: what makes its table, how many rows, what runs.
CASES: dict[str, tuple[str | None, int, Callable[[Path], dict[str, float]]]] = {
    "Parquet, 20 columns, stored as float32": ("numeric parquet", 10_000_000, run_parquet),
    "mapped columns, 20, stored as float32": ("columns", 10_000_000, run_columns),
    "mapped records, encoded before, 21 features": ("encoded", 10_000_000, run_encoded),
    "CSV, 20 columns, stored as float32": ("csv", 1_000_000, run_csv),
    "Parquet, 3 columns of 8 levels": ("level parquet", 10_000_000, lambda f: run_levels(f, collapse=False)),
    "the same, collapsed": ("level parquet", 10_000_000, lambda f: run_levels(f, collapse=True)),
    "frequency table, 1,000 rows": (None, 200_000_000, run_frequencies),
    "D = 100,000, running sums": (None, 2000, run_wide),
}


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def child(arguments: list[str]) -> str:
    """Return the last line that this script prints in a process of its own."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=True, env=environment
    )
    return done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""


def measure(name: str, folder: Path) -> None:
    """Run a case and print what it took."""
    import nadpvi as na

    na.__all__  # noqa: B018  (what is imported anyway counts as the start)
    import pandas  # noqa: F401

    before = peak_gigabytes()
    found = CASES[name][2](folder)
    print(json.dumps(found | {"peak memory, GB": peak_gigabytes(), "of which imports, GB": before}))


def main() -> None:
    """Measure all cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows")
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--make", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        kind, folder, num_rows = arguments.make
        MAKERS[kind](Path(folder), int(num_rows))
        return
    if arguments.measure:
        measure(arguments.measure[0], Path(arguments.measure[1]))
        return
    # Nothing large is imported here: a child's peak begins with its parent's.
    results = {}
    with tempfile.TemporaryDirectory() as root:
        made: tuple[str, Path] | None = None
        for name, (kind, rows, _) in CASES.items():
            if arguments.only not in name:
                continue
            num_rows = max(1000, int(rows * arguments.scale)) if name[:2] != "D " else rows
            if kind is None:
                folder = Path(root) / str(num_rows)
            elif made is not None and made[0] == kind:
                folder = made[1]
            else:
                if made is not None:
                    for file in made[1].iterdir():
                        file.unlink()
                folder = Path(root) / kind.replace(" ", "-")
                folder.mkdir()
                child(["--make", kind, str(folder), str(num_rows)])
                made = (kind, folder)
            found = {"records": num_rows} | json.loads(child(["--measure", name, str(folder)]))
            results[name] = found
            print(name, found, flush=True)
    if arguments.scale == 1.0 and not arguments.only:
        write(results)


def write(results: dict[str, dict[str, float]]) -> None:
    from _shared import RESULTS, machine, write_result

    facts = machine()
    print("written:", write_result("size", {"machine": facts, "cases": results}).name)
    lines = [
        "# Large tables",
        "",
        "Whole private runs of logistic regression (ten draws a step, exact noise, one BLAS thread), each in",
        "a process of its own. Peak memory is resident memory with everything in it: Python and its packages",
        "(0.2 GB), the reading, the records, the run, and the resident pages of mapped files. Seconds are",
        "wall time, with those of the process in brackets: other work shared the machine. Written by",
        "`benchmarks/size.py`.",
        "",
        "| table | records | sampling rate | reading, s | | step, ms | | peak memory, GB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        lines.append(
            f"| {name} | {found['records']:,} | {found['sampling rate']} | {found['reading, s']:.3g} | "
            f"({found['reading, processor s']:.3g}) | {found['per step, ms']:.3g} | "
            f"({found['per step, processor ms']:.3g}) | {found['peak memory, GB']:.2f} |"
        )
    lines += ["", "Machine: " + ", ".join(f"{key} {value}" for key, value in facts.items()) + "."]
    (RESULTS / "size.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
