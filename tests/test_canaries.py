"""Planted values that must be found nowhere: what a run writes, prints and logs is searched for them.

Real processes run with every folder they could write to inside one fresh folder and with logging at its most
talkative; afterwards every byte, every netCDF variable and attribute, every name and stream is searched.
"""

import contextlib
import gzip
import io
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
import traceback
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest

import nadpvi as na

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")

REAL = 47.31872956  # one person's cell, inside its bounds
SCALED = REAL / 100.0
LEVEL = "zqCanaryLevelQz"  # a level that the schema does not list
IDENT = "ID-plum-93157"  # in a column that the schema does not list
HEADING = "wolframite_secret_heading"  # the name of such a column
ROW = 6007  # where a bad cell is
NUM_RECORDS = 7919
SEED = 918273645546372819

TOML = """
[columns.age]
kind = "real"
lower = 0
upper = 100
[columns.job]
kind = "categorical"
levels = ["clerk", "nurse"]
[columns.y]
kind = "binary"
levels = ["no", "yes"]
"""


def whole_number(number):
    """Return a pattern for a number standing by itself, with or without separators."""
    digits = "[,_' ]?".join(str(number))
    return re.compile(rb"(?<![0-9A-Za-z.])" + digits.encode() + rb"(?![0-9A-Za-z])")


def bytes_of(number, formats):
    return [struct.pack(order + kind, number) for kind in formats for order in "<>"]


# Name -> patterns in text and raw bytes. Whole numbers of four digits are searched as words and as eight
# bytes: four bytes of that kind occur in HDF5's own bookkeeping.
PATTERNS = {
    "real": [
        *[re.compile(re.escape(text.encode())) for text in ("47.3187", "4.73187", "473187", REAL.hex())],
        *[re.compile(re.escape(raw)) for raw in bytes_of(REAL, "df")],
    ],
    "scaled real": [
        re.compile(re.escape(SCALED.hex().encode())),
        *[re.compile(re.escape(raw)) for raw in bytes_of(SCALED, "df")],
    ],
    **{
        name: [
            re.compile(re.escape(text.encode(code)), re.IGNORECASE)
            for code in ("utf-8", "utf-16-le", "utf-32-le")
        ]
        for name, text in (("level", LEVEL), ("id", IDENT), ("heading", HEADING))
    },
    "row": [whole_number(ROW), whole_number(ROW + 1), whole_number(ROW + 2)],
    "number of records": [
        whole_number(NUM_RECORDS),
        *[re.compile(re.escape(raw)) for raw in bytes_of(NUM_RECORDS, "qd")],
    ],
    "seed": [
        re.compile(str(SEED).encode()),
        re.compile(f"{SEED:x}".encode(), re.IGNORECASE),
        *[re.compile(re.escape(raw)) for raw in bytes_of(SEED, "qd")],
    ],
}
NUMBERS = {"real": REAL, "scaled real": SCALED, "number of records": NUM_RECORDS, "seed": SEED}


def in_bytes(content):
    """Return the names of the canaries in raw bytes, unpacked first where they are compressed."""
    found = {name for name, patterns in PATTERNS.items() if any(p.search(content) for p in patterns)}
    if content[:2] == b"\x1f\x8b":
        with contextlib.suppress(OSError, EOFError):
            found |= in_bytes(gzip.decompress(content))
    if content[:2] == b"PK":
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                found |= in_bytes(name.encode()) | in_bytes(archive.read(name))
    if content[:8] == b"\x89HDF\r\n\x1a\n":
        found |= in_hdf5(content)
    return found


def in_array(values):
    """Return the names of the canaries among numbers or texts."""
    array = np.asarray(values)
    if array.dtype.kind in "OSUV":
        return in_bytes(repr(array.tolist()).encode())
    if array.dtype.kind not in "iuf" or array.size == 0:
        return set()
    wide = array.astype(np.float64)
    found = set()
    for name, number in NUMBERS.items():
        close = np.abs(wide - number) <= 1e-10 * number
        if (close | (wide == np.float64(np.float32(number)))).any():
            found.add(name)
    return found


def in_hdf5(content):
    """Return the names of the canaries among a file's groups, variables and attributes."""
    found = set()

    def visit(name, item):
        found.update(in_bytes(name.encode()))
        for key, value in item.attrs.items():
            found.update(in_bytes(key.encode()) | in_array(value))
        if isinstance(item, h5py.Dataset):
            found.update(in_array(item[()]))

    with h5py.File(io.BytesIO(content)) as file:
        visit("/", file)
        file.visititems(visit)
    return found


def search(folder, *, streams=None, skip=()):
    """Return every (place, canary) under a folder and in the streams, apart from the files to skip."""
    found = set()
    for path in sorted(Path(folder).rglob("*")):
        place = str(path.relative_to(folder))
        if path in skip:
            continue
        found |= {(f"name of {place}", name) for name in in_bytes(path.name.encode())}
        if path.is_file():
            found |= {(place, name) for name in in_bytes(path.read_bytes())}
    for place, text in (streams or {}).items():
        found |= {(place, name) for name in in_bytes(text.encode())}
    return found


class TestTheSearchItself:
    """A leak planted in each kind of place is found, and ordinary content is not."""

    TEXTS = (
        ("real", repr(REAL)), ("real", f"{REAL:.4f}"), ("real", f"{REAL:.8e}"), ("real", f"{SCALED}"),
        ("real", REAL.hex()), ("scaled real", SCALED.hex()), ("level", f"got '{LEVEL.lower()}'"),
        ("id", f'["{IDENT}"]'), ("heading", f"columns: {HEADING}"), ("row", f"line {ROW + 2}:"),
        ("number of records", f"{NUM_RECORDS} rows"), ("number of records", f"N={NUM_RECORDS:,}."),
        ("seed", f"seed={SEED}"), ("seed", hex(SEED)),
    )  # fmt: skip

    @pytest.mark.parametrize(("name", "text"), TEXTS)
    def test_text_in_streams_files_names_and_archives(self, tmp_path, name, text):
        assert ("stderr", name) in search(tmp_path, streams={"stderr": f"warning: {text}\n"})
        (tmp_path / "a.log").write_text(f"DEBUG {text} end")
        with gzip.open(tmp_path / "b.gz", "wt") as file:
            file.write(text)
        with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("inner", f"<{text}>" * 5)
        assert {(place, name) for place in ("a.log", "b.gz", "c.zip")} <= search(tmp_path)
        (tmp_path / f"tmp-{text.replace('/', '')}").mkdir()
        assert any(place.startswith("name of") for place, found in search(tmp_path) if found == name)
        assert search(tmp_path, skip=list(tmp_path.iterdir())) == set()

    @pytest.mark.parametrize("code", ["utf-16-le", "utf-32-le"])
    def test_text_in_wide_encodings(self, tmp_path, code):
        (tmp_path / "a.bin").write_bytes(b"\x00\x01" + LEVEL.encode(code))
        assert search(tmp_path) == {("a.bin", "level")}

    @pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", ">f4"])
    @pytest.mark.parametrize(("name", "number"), [("real", REAL), ("scaled real", SCALED)])
    def test_raw_bytes_of_reals(self, tmp_path, dtype, name, number):
        (tmp_path / "a.bin").write_bytes(b"\x07" + np.array([1.5, number], dtype=dtype).tobytes())
        assert search(tmp_path) == {("a.bin", name)}

    @pytest.mark.parametrize("dtype", ["<i8", ">i8", "<f8"])
    @pytest.mark.parametrize(("name", "number"), [("number of records", NUM_RECORDS), ("seed", SEED)])
    def test_raw_bytes_of_whole_numbers(self, tmp_path, dtype, name, number):
        (tmp_path / "a.bin").write_bytes(np.array([3, number], dtype=dtype).tobytes())
        assert search(tmp_path) == {("a.bin", name)}

    @pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "i8", "u2"])
    @pytest.mark.parametrize("where", ["variable", "attribute"])
    def test_numbers_in_compressed_netcdf(self, tmp_path, dtype, where):
        number, name = (REAL, "real") if dtype.startswith("f") else (NUM_RECORDS, "number of records")
        values = np.arange(5000).astype(dtype)
        values[3777] = number
        with h5py.File(tmp_path / "a.nc", "w") as file:
            group = file.create_group("inner")
            if where == "variable":
                group.create_dataset("x", data=values, compression="gzip", shuffle=True)
            else:
                group.attrs["x"] = values[3770:3780]
        assert search(tmp_path) == {("a.nc", name)}

    def test_texts_in_netcdf(self, tmp_path):
        with h5py.File(tmp_path / "a.nc", "w") as file:
            file.attrs["header"] = json.dumps({"rows": NUM_RECORDS})
            file.create_dataset("x", data=np.array([LEVEL] * 3, dtype=object), dtype=h5py.string_dtype())
        assert search(tmp_path) == {("a.nc", "number of records"), ("a.nc", "level")}

    def test_ordinary_content_is_no_leak(self, tmp_path):
        rng = np.random.default_rng(0)
        (tmp_path / "a.bin").write_bytes(rng.bytes(300_000))
        noise = {f"x{i}": rng.normal(size=20_000) * 10.0**i for i in range(-1, 3)}
        with h5py.File(tmp_path / "b.nc", "w") as file:
            for name, values in noise.items():
                file.create_dataset(name, data=values)
            file.create_dataset("step", data=np.arange(7000))
        (tmp_path / "c.json").write_text('{"id": "a87919b", "x": 0.7919, "y": 17919, "z": 47.318}')
        assert search(tmp_path) == set()


def rows(**changes):
    """Return the private table, each change (row, value) applied to its column."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "age": rng.integers(0, 100, NUM_RECORDS).astype(float),
            "job": rng.choice(["clerk", "nurse"], NUM_RECORDS),
            "y": rng.choice(["no", "yes"], NUM_RECORDS),
            HEADING: [f"q{i}" for i in range(NUM_RECORDS)],
        }
    ).astype(object)
    table.loc[11, "age"] = REAL
    table.loc[11, HEADING] = IDENT
    for name, value in changes.items():
        table.loc[ROW, name] = value
    return table


# Python reads it at its start: every record of every logger to stderr and to a file.
TALKATIVE = """
import logging, os, sys
logging.basicConfig(level=1, handlers=[
    logging.StreamHandler(), logging.FileHandler(os.path.join(os.environ["TMPDIR"], "everything.log"))])
logging.captureWarnings(False)
logging.getLogger("start").log(1, "logging is on")
"""

DRIVER = """
import sys
{setup}
from nadpvi.cli.app import main
sys.argv[0] = "nadpvi"
main()
"""

# A user's model that cannot stand one value, and says so with everything it knows.
PICKY = """
import nadpvi, nadpvi.private.gradients
from nadpvi.models import registry
class Picky(nadpvi.models.LogisticRegression):
    def log_likelihood(self, theta, batch):
        if (batch.x == 47.31872956 / 100.0).any():
            raise ValueError(f"cannot handle {batch.x.tolist()} {batch.y} of %d")
        return nadpvi.models.LogisticRegression.log_likelihood(self, theta, batch)
registry.MODELS["logistic_regression"] = Picky
nadpvi.private.gradients._route_of = lambda kind: nadpvi.private.gradients.autograd_route
"""
PICKY = PICKY.replace("%d", str(NUM_RECORDS))
CRAMPED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))"
# Steps are being made, and most of them are still to come.
STEPPING = """
import pathlib
import nadpvi.private.dpvi
original = nadpvi.private.dpvi.step
def step(state, **arguments):
    if state.num_steps == 3:
        pathlib.Path("started").touch()
    return original(state, **arguments)
nadpvi.private.dpvi.step = step
"""
EAGER = "import nadpvi.private.checkpoint_writer as writer; writer._SECONDS_BETWEEN_WRITES = 0.0"


class Run:
    """One command in a fresh folder of its own; `found` are the canaries in all that it left."""

    def __init__(self, root, *, table, command, setup=None, debug=False, stdout=subprocess.PIPE):
        self.root, self.work = root, root / "work"
        self.inputs = [self.work / "people.csv", self.work / "people.toml"]
        for folder in ("work", "home", "tmp", "site"):
            (root / folder).mkdir(parents=True)
        table.to_csv(self.inputs[0], index=False)
        self.inputs[1].write_text(TOML)
        (root / "site" / "sitecustomize.py").write_text(TALKATIVE)
        na.Ledger.create(self.work / "people.ledger", label="people")
        self.environment = self._environment(debug)
        self.process = self.start(command, setup=setup, stdout=stdout)

    def _environment(self, debug):
        dropped = ("NADPVI_CACHE_DIR", "NADPVI_STATE_DIR", "NADPVI_DEBUG")
        environment = {key: value for key, value in os.environ.items() if key not in dropped}
        home = self.root / "home"
        environment |= {f"XDG_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
        environment |= {name: str(self.root / "tmp") for name in ("TMPDIR", "TEMP", "TMP", "XDG_RUNTIME_DIR")}
        return environment | {
            "HOME": str(home),
            "MPLCONFIGDIR": str(home / "matplotlib"),
            "PYTHONPATH": os.pathsep.join(
                [str(self.root / "site"), *filter(None, [environment.get("PYTHONPATH")])]
            ),
            "PYTHONWARNINGS": "default",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **({"NADPVI_DEBUG": "1"} if debug else {}),
        }

    def start(self, command, *, setup=None, stdout=subprocess.PIPE):
        head = ["-m", "nadpvi"] if setup is None else ["-c", DRIVER.format(setup=setup)]
        return subprocess.Popen(
            [sys.executable, *head, *map(str, command)],
            cwd=self.work,
            env=self.environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def signal_midway(self, number, *, when):
        """Send a signal once a file is there."""
        while self.process.poll() is None and not (self.work / when).exists():
            time.sleep(0.05)
        self.process.send_signal(number)

    def finish(self):
        out, self.stderr = self.process.communicate(timeout=300)
        self.stdout = out or ""
        self.code = self.process.returncode
        streams = {"stdout": self.stdout, "stderr": self.stderr}
        self.found = search(self.root, streams=streams, skip=self.inputs)
        return self

    @property
    def left(self):
        """The files beside the inputs."""
        return {path.name for path in self.work.iterdir()} - {path.name for path in self.inputs}


MODEL = ["people.csv", "--schema", "people.toml", "--outcome", "y", "--epsilon", "1", "--delta", "1e-5"]
BOOK = ["--ledger", "people.ledger", "--label", "one"]
SAMPLED = [*MODEL, "--sampling-rate", "0.5", *BOOK]
# A full batch is accounted in closed form, at once.
FULL = [*MODEL, "--sampling-rate", "1", *BOOK]
LONG = ["--steps", "7000", "-o", "r.nc"]
KEPT = ["--checkpoint", "people.checkpoint"]


def killed_and_resumed(root):
    """Kill a run without warning once it has a checkpoint, then write what that holds."""
    run = Run(root, table=rows(), command=["release", *FULL, *LONG, *KEPT], setup=EAGER)
    run.signal_midway(signal.SIGKILL, when="people.checkpoint")
    run.finish()
    killed, run.killed_code, run.killed_left = run.found, run.code, run.left
    run.process = run.start(["resume", "people.checkpoint", "--partial", "-o", "r.nc"])
    run.finish()
    run.found |= killed
    return run


def interrupted(root, number, *options):
    run = Run(root, table=rows(), command=["release", *options, *LONG], setup=STEPPING)
    run.signal_midway(number, when="started")
    return run.finish()


def plain(root, **arguments):
    return Run(root, **arguments).finish()


def full_stdout(root):
    with open("/dev/full", "w") as full:
        return plain(root, table=rows(), command=FAST, stdout=full)


RELEASE = ["release", *SAMPLED, "--steps", "40", "-o", "r.nc"]
FAST = ["release", *FULL, "--steps", "40", "-o", "r.nc"]
FEW = ["--draws", "25", "--chains", "2", "--warmup", "60", "--engine", "stanli"]
FIT = ["fit", *SAMPLED, "--steps", "40", *KEPT, "--release", "r.nc", "-o", "p.nc", *FEW]
SCENARIOS = {
    "release": lambda root: plain(root, table=rows(), command=RELEASE),
    "fit": lambda root: plain(root, table=rows(), command=FIT),
    "simulation": lambda root: plain(
        root, table=rows(), command=[*RELEASE, "--json", "--insecure-seed", SEED]
    ),
    "bad cell": lambda root: plain(root, table=rows(age=f"{REAL} years"), command=FAST, debug=True),
    "unknown level": lambda root: plain(root, table=rows(job=LEVEL), command=FAST, debug=True),
    "missing column": lambda root: plain(root, table=rows().drop(columns="job"), command=FAST, debug=True),
    "failing model": lambda root: plain(root, table=rows(), command=FAST, setup=PICKY, debug=True),
    "SIGINT": lambda root: interrupted(root, signal.SIGINT, *SAMPLED, *KEPT),
    "SIGTERM": lambda root: interrupted(root, signal.SIGTERM, *FULL),
    "SIGKILL": killed_and_resumed,
    "full disk": lambda root: plain(root, table=rows(), command=FAST, setup=CRAMPED, debug=True),
    "full stdout": full_stdout,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All scenarios, two at a time."""
    root = tmp_path_factory.mktemp("canaries")
    with ThreadPoolExecutor(2) as pool:
        futures = {name: pool.submit(scenario, root / name) for name, scenario in SCENARIOS.items()}
        return {name: future.result() for name, future in futures.items()}


class TestNothingPrivateIsLeftAnywhere:
    """Each scenario went as it should, was as talkative as it can be, and left no canary."""

    @pytest.mark.parametrize("name", SCENARIOS)
    def test_no_canary_is_found(self, runs, name):
        assert runs[name].found == set()

    @pytest.mark.parametrize("name", SCENARIOS)
    def test_logging_was_on_and_the_inputs_hold_the_canaries(self, runs, name):
        run = runs[name]
        assert "logging is on" in run.stderr
        assert "logging is on" in (run.root / "tmp" / "everything.log").read_text()
        planted = {canary for place, canary in search(run.root) if place.endswith("people.csv")}
        assert {"real", "id", "heading"} <= planted

    @pytest.mark.parametrize("name", ["release", "fit", "simulation"])
    def test_runs_that_succeed(self, runs, name):
        run = runs[name]
        assert run.code == 0, run.stderr
        assert run.left >= ({"r.nc", "p.nc"} if name == "fit" else {"r.nc"})
        assert "people.checkpoint" not in run.left
        assert na.Release.load(run.work / "r.nc").is_private is (name != "simulation")
        assert len(na.Ledger.open(run.work / "people.ledger").entries()) == 1

    @pytest.mark.parametrize(
        ("name", "error"),
        [("bad cell", '"age"'), ("unknown level", '"job"'), ("missing column", '"job"')],
    )
    def test_runs_that_fail_on_the_table(self, runs, name, error):
        run = runs[name]
        assert run.code == 1
        assert "Traceback" in run.stderr  # NADPVI_DEBUG shows all there is
        assert (
            f"DataError: {'the table has no column' if name == 'missing column' else 'column'} {error}"
            in run.stderr
        )
        assert "r.nc" not in run.left
        assert na.Ledger.open(run.work / "people.ledger").entries() == ()

    def test_a_run_whose_model_fails_inside(self, runs):
        run = runs["failing model"]
        # The record on which it fails counts as zero, and nothing tells that there is one.
        assert run.code == 0, run.stderr
        assert "cannot handle" not in run.stderr
        assert na.Release.load(run.work / "r.nc").is_private

    @pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
    def test_runs_that_are_interrupted_midway(self, runs, name):
        run = runs[name]
        assert run.code == 130, run.stderr
        partial = na.Release.load(run.work / "r.nc")
        assert 0 < partial.num_steps < 7000
        assert ("people.checkpoint" in run.left) is (name == "SIGINT")

    def test_a_run_that_is_killed_midway(self, runs):
        run = runs["SIGKILL"]
        assert run.killed_code == -signal.SIGKILL
        assert "people.checkpoint" in run.killed_left
        assert "r.nc" not in run.killed_left
        assert run.code == 0, run.stderr
        assert 0 < na.Release.load(run.work / "r.nc").num_steps < 7000

    def test_runs_whose_disk_or_output_is_full(self, runs):
        assert runs["full disk"].code == 1
        assert "File too large" in runs["full disk"].stderr
        assert runs["full disk"].left <= {"people.ledger", "people.ledger.lock"}
        assert runs["full stdout"].code == 1
        assert na.Release.load(runs["full stdout"].work / "r.nc").is_private


def shown(error):
    """Return every text that a report of an exception shows: arguments, notes, the chain, the traceback."""
    texts, seen = ["".join(traceback.format_exception(error))], []
    while error is not None and error not in seen:
        seen.append(error)
        texts += [repr(error), str(error), repr(error.args), *getattr(error, "__notes__", [])]
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(texts)


class TestExceptionsShowNothing:
    """What is raised in the user's own process holds no canary in message, arguments, chain or traceback."""

    @pytest.fixture
    def schema(self, tmp_path):
        (tmp_path / "people.toml").write_text(TOML)
        return na.Schema.from_toml(tmp_path / "people.toml")

    @pytest.mark.parametrize(
        ("changes", "kind"),
        [
            ({"age": f"{REAL} years"}, na.DataError),
            ({"age": None}, na.DataError),
            ({"age": REAL * 1j}, na.DataError),
            ({"age": (REAL, LEVEL)}, na.DataError),
            ({"job": LEVEL}, na.DataError),
            ({"job": f" {LEVEL} "}, na.DataError),
            ({"job": REAL}, na.DataError),
            ({"job": {LEVEL: REAL}}, na.DataError),
            ({"y": LEVEL}, na.DataError),
            ({"y": REAL}, na.DataError),
            ({"y": float("nan")}, na.DataError),
        ],
    )
    @pytest.mark.parametrize("source", ["frame", "mapping", "file"])
    def test_cells_that_cannot_be_read(self, schema, tmp_path, changes, kind, source):
        table = pd.concat([rows().iloc[[11]], pd.DataFrame([{**rows().iloc[12].to_dict(), **changes}])])
        if source == "mapping":
            table = {name: list(table[name]) for name in table}
        elif source == "file":
            table.to_csv(tmp_path / "people.csv", index=False)
            table = tmp_path / "people.csv"
        self.check(table, schema, kind=kind)

    @pytest.mark.parametrize(
        "ids",
        [
            [IDENT, None],
            [IDENT, ""],
            [IDENT, {IDENT: REAL}],
            [IDENT, (LEVEL,)],
            [REAL, float("inf")],
            [REAL, REAL * 1j],
            [IDENT.encode(), IDENT],
            pd.to_datetime(["2047-03-18", "2047-03-19"]),
        ],
        ids=["none", "blank", "a mapping", "a tuple", "infinite", "complex", "bytes", "dates"],
    )
    def test_ids_that_are_none(self, ids):
        schema = na.Schema.from_dict(
            {
                "columns": {"y": {"kind": "binary", "levels": ["no", "yes"]}},
                "person": {"column": "pid", "max_rows": 2},
            }
        )
        self.check({"pid": ids, "y": ["no", "yes"]}, schema, kind=na.DataError)

    @pytest.mark.parametrize(
        "table",
        [
            {HEADING: [LEVEL], IDENT: [REAL]},
            {LEVEL: [1.0, 2.0], "age": [REAL]},
            {"age": [[REAL]], "job": ["clerk"], "y": ["no"]},
            {"age": np.array([[REAL]]), "job": ["clerk"], "y": ["no"]},
            {"age": REAL, "job": LEVEL, "y": "no"},
            {"age": pd.to_datetime(["2047-03-18"]), "job": ["clerk"], "y": ["no"]},
            pd.DataFrame([[REAL, LEVEL, "no"]], columns=["age", "age", "y"]),
            pd.DataFrame([[REAL, LEVEL]], columns=[LEVEL, LEVEL]),
            [[REAL, LEVEL]],
            np.array([[REAL]]),
            iter([REAL]),
        ],
        ids=[
            "other columns", "lengths differ", "a list in a cell", "a matrix as a column", "no columns",
            "dates", "a name twice", "a level as a name twice", "a list", "an array", "an iterator",
        ],
    )  # fmt: skip
    def test_tables_that_are_none(self, schema, table):
        self.check(table, schema)

    @pytest.mark.parametrize(
        "content",
        [
            f"age,job,y\n{REAL},clerk,no,{LEVEL}\n",
            f'age,job,y\n{REAL},"{LEVEL},no\n',
            f"{REAL},{LEVEL},{IDENT}\n{REAL},clerk,no\n",
            f"age;job;y\n{REAL};{LEVEL};no\n",
            f"age,job,y\n{REAL},{LEVEL}\x00,no\n",
            f"{LEVEL},{LEVEL}\n{REAL},1\n",
            "",
            f"age,job,y\n{REAL},{LEVEL}\udcff,no\n",
        ],
        ids=["wide", "open quote", "no header", "semicolons", "NUL", "names twice", "empty", "not UTF-8"],
    )
    def test_files_that_are_none(self, schema, tmp_path, content):
        (tmp_path / "people.csv").write_text(content, errors="surrogateescape")
        self.check(tmp_path / "people.csv", schema)

    def test_a_run_that_is_interrupted(self, schema, monkeypatch):
        import nadpvi.private.dpvi

        original = nadpvi.private.dpvi.step

        def step(state, **arguments):
            if state.num_steps == 2:
                raise KeyboardInterrupt(f"{arguments['records'].x.tolist()}")
            return original(state, **arguments)

        monkeypatch.setattr(nadpvi.private.dpvi, "step", step)
        error = self.check(rows(), schema, kind=na.RunInterrupted)
        assert error.release.num_steps == 2

    @staticmethod
    def check(table, schema, *, kind=na.NadpviError):
        """Return the error of a release from `table`, after searching all that it shows."""
        with pytest.raises(kind) as caught:
            na.release(
                na.models.LogisticRegression(outcome="y"),
                table,
                schema=schema,
                privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
                config=na.DPVIConfig(num_steps=5, sampling_rate=1.0),
            )
        # The traceback quotes source lines; this file's own hold no canary but by name.
        assert in_bytes(shown(caught.value).encode()) == set()
        return caught.value
