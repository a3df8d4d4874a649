"""One mistake, one or two lines: what is wrong and what to do, no cell of the table, and nothing spent.

Each entry is a command line as a user would type it, with one thing wrong with it or with one of its files.
"""

import shutil
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from cli_cases import contents, run_here

import nadpvi as na
import nadpvi.private.dpvi

SCHEMA = """
[columns.age]
kind = "real"
lower = 0
upper = 100

[columns.job]
kind = "categorical"
levels = ["clerk", "nurse", "other"]

[columns.ill]
kind = "binary"
levels = ["no", "yes"]
"""
RUN = 'table = "people.csv"\nschema = "people.toml"\noutcome = "ill"\nepsilon = 1\ndelta = 1e-5\nsteps = 40\n'
BUDGET = ["--epsilon", "1", "--delta", "1e-5"]
MODEL = ["--schema", "people.toml", "--outcome", "ill"]
SHORT = ["--steps", "40", "--ledger", "people.ledger", "-q"]
RELEASE = ["release", "people.csv", *MODEL, *BUDGET, *SHORT, "-o", "new.nc"]
FIT = ["fit", *RELEASE[1:-2], "--release", "new.nc", "-o", "p.nc", "--method", "exact"]
INFER = ["infer", "release.nc", "-o", "p.nc", "--method", "exact", "-q"]
PLAN = ["plan", *MODEL, *BUDGET, "--num-records", "1000", "-q"]
PREDICT = ["predict", "posterior.nc", "new.csv"]
# Cells that must not be seen anywhere: a name that no model uses, and ages with digits of their own.
SECRET = "Sentinel-77"


class Mistake(NamedTuple):
    """A command line, the exit code, what its message must say, and what was done to the files before."""

    words: list[str]
    code: int
    needles: tuple[str, ...]
    spoil: Callable | None = None


def people():
    """Return the private table: 60 rows, every age and every name to be recognised."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": [f"{value:.5f}" for value in rng.uniform(10, 90, 60)],
            "job": rng.choice(["clerk", "nurse", "other"], 60),
            "ill": rng.choice(["no", "yes"], 60),
            "name": [f"{SECRET}-{number}" for number in range(60)],
        }
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder in which nothing is wrong: every file that the mistakes start from."""
    folder = tmp_path_factory.mktemp("whole")
    table = people()
    table.to_csv(folder / "people.csv", index=False)
    table.drop(columns=["ill", "name"]).to_csv(folder / "new.csv", index=False)
    (folder / "people.toml").write_text(SCHEMA)
    (folder / "run.toml").write_text(RUN)
    cap = na.PrivacyBudget(epsilon=1.2, delta=1e-5)
    na.Ledger.create(folder / "people.ledger", label="people", cap=cap)
    schema, model = na.Schema.from_toml(folder / "people.toml"), na.models.LogisticRegression(outcome="ill")
    config = na.DPVIConfig(num_steps=40)
    shared = {"schema": schema, "privacy": na.PrivacyBudget(epsilon=1, delta=1e-5), "config": config}
    made = na.release(model, folder / "people.csv", insecure_seed=1, **shared)
    made.save(folder / "release.nc")
    assert run_here("infer", folder / "release.nc", "-o", folder / "posterior.nc", "--method", "exact",
                    "--draws", 20).returncode == 0  # fmt: skip
    original = nadpvi.private.dpvi.step

    def step(state, **parts):
        if state.num_steps == 13:
            raise KeyboardInterrupt
        return original(state, **parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nadpvi.private.dpvi, "step", step)
        with pytest.raises(na.RunInterrupted):
            na.release(model, folder / "people.csv", checkpoint=folder / "people.checkpoint", **shared)
    return folder


@pytest.fixture
def folder(whole, tmp_path, monkeypatch):
    place = tmp_path / "study"
    shutil.copytree(whole, place)
    monkeypatch.chdir(place)
    return place


def text(name, old, new):
    """Return what replaces a text in a file once."""

    def spoil(folder):
        before = (folder / name).read_text()
        assert old in before
        (folder / name).write_text(before.replace(old, new, 1))

    return spoil


def content(name, data):
    """Return what gives a file another content."""
    return lambda folder: (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def first_row(line):
    """Return what puts a row in front of the others of the private table."""

    def spoil(folder):
        head, *rows = (folder / "people.csv").read_text().splitlines()
        (folder / "people.csv").write_text("\n".join([head, line, *rows]) + "\n")

    return spoil


def damaged(name):
    """Return what flips one byte in the middle of a file."""

    def spoil(folder):
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 0xFF
        (folder / name).write_bytes(bytes(data))

    return spoil


def cut(name):
    """Return what leaves the first half of a file."""

    def spoil(folder):
        data = (folder / name).read_bytes()
        (folder / name).write_bytes(data[: len(data) // 2])

    return spoil


def spent(folder):
    """Spend most of the ledger's cap."""
    done = run_here(*RELEASE[:-1], "earlier.nc")
    assert done.returncode == 0, done.stderr


def swap(words, *changes):
    """Return a command line with words in the place of others, found by the word before."""
    words = list(words)
    for option, value in zip(changes[::2], changes[1::2], strict=True):
        words[words.index(option) + 1] = value
    return words


def without(words, option):
    """Return a command line without an option and its value."""
    place = words.index(option)
    return [*words[:place], *words[place + 2 :]]


TABLE = {
    "no table": Mistake(swap(RELEASE, "release", "absent.csv"), 1, ("absent.csv", "does not exist")),
    "table is a folder": Mistake(swap(RELEASE, "release", "."), 1, ("table .", "cannot be read")),
    "semicolons": Mistake(
        RELEASE,
        1,
        ("semicolon", "commas"),
        lambda folder: people().to_csv(folder / "people.csv", index=False, sep=";"),
    ),
    "no such column": Mistake(RELEASE, 1, ('"age"', "names are compared"), text("people.csv", "age", "Age")),
    "no header": Mistake(
        RELEASE,
        1,
        ("first line must hold the column names",),
        lambda folder: people().to_csv(folder / "people.csv", index=False, header=False),
    ),
    "duplicate header": Mistake(RELEASE, 1, ("same name", "rename"), text("people.csv", "name", "age")),
    "empty name": Mistake(RELEASE, 1, ("column 4", "empty name"), text("people.csv", "name", "")),
    "empty file": Mistake(RELEASE, 1, ("people.csv is empty", "column names"), content("people.csv", "")),
    "header only": Mistake(RELEASE, 1, ("the table", "row"), content("people.csv", "age,job,ill\n")),
    "unknown level": Mistake(RELEASE, 1, ('"job"', "unknown"), first_row(f"50.12345,{SECRET},no,{SECRET}")),
    "missing cell": Mistake(RELEASE, 1, ('"age"', "missing"), first_row(f",nurse,no,{SECRET}")),
    "text for a number": Mistake(RELEASE, 1, ('"age"',), first_row(f"{SECRET},nurse,no,{SECRET}")),
    "a field too many": Mistake(
        RELEASE, 1, ("line 2", "5 fields", "quotes"), first_row(f"50.12345,nurse,no,{SECRET},x")
    ),
    "an open quote": Mistake(RELEASE, 1, ("not valid CSV",), first_row(f'50.12345,nurse,no,"{SECRET}')),
    "not UTF-8": Mistake(
        RELEASE,
        1,
        ("people.csv", "UTF-8"),
        content("people.csv", "age,job,ill\n1,nurse,n\xf6\n".encode("latin-1")),
    ),
    "not Parquet": Mistake(
        swap(RELEASE, "release", "people.parquet"),
        1,
        ("people.parquet", "Parquet"),
        lambda folder: shutil.copy(folder / "people.csv", folder / "people.parquet"),
    ),
}
RUNS = {
    "epsilon 0": Mistake(swap(RELEASE, "--epsilon", "0"), 2, ("epsilon", "positive")),
    "epsilon below 0": Mistake(swap(RELEASE, "--epsilon", "-1"), 2, ("epsilon", "positive")),
    "epsilon nan": Mistake(swap(RELEASE, "--epsilon", "nan"), 2, ("epsilon",)),
    "epsilon in words": Mistake(swap(RELEASE, "--epsilon", "one"), 2, ("--epsilon",)),
    "delta 0": Mistake(swap(RELEASE, "--delta", "0"), 2, ("delta",)),
    "delta 1": Mistake(swap(RELEASE, "--delta", "1"), 2, ("delta",)),
    "delta 2": Mistake(swap(RELEASE, "--delta", "2"), 2, ("delta",)),
    "no delta": Mistake(without(RELEASE, "--delta"), 2, ("--delta",)),
    "clip norm 0": Mistake([*RELEASE, "--clip-norm", "0"], 2, ("--clip-norm", "positive")),
    "sampling rate 1.5": Mistake([*RELEASE, "--sampling-rate", "1.5"], 2, ("--sampling-rate", "(0, 1]")),
    "sampling rate 0": Mistake([*RELEASE, "--sampling-rate", "0"], 2, ("--sampling-rate",)),
    "no steps": Mistake(swap(RELEASE, "--steps", "0"), 2, ("--steps",)),
    "no steps of suggested settings": Mistake(
        [*swap(RELEASE, "--steps", "0"), "--num-records", "60"], 2, ("--steps",)
    ),
    "half a step": Mistake(swap(RELEASE, "--steps", "2.5"), 2, ("--steps",)),
    "curvature share 2": Mistake([*RELEASE, "--curvature-share", "2"], 2, ("--curvature-share", "0.9")),
    "initial u 99": Mistake([*RELEASE, "--initial-u", "99"], 2, ("--initial-u", "30")),
    "seed -1": Mistake([*RELEASE, "--insecure-seed", "-1"], 2, ("--insecure-seed",)),
    "unknown model": Mistake([*RELEASE, "--model", "probt"], 2, ("probt", "logistic_regression")),
    "unknown settings": Mistake([*RELEASE, "--settings", "best"], 2, ("best", "suggested")),
    "settings without their number": Mistake(
        [*RELEASE, "--settings", "suggested"], 2, ("suggested", "--num-records")
    ),
    "no records": Mistake([*RELEASE, "--num-records", "0"], 2, ("--num-records",)),
    "unknown guide": Mistake([*RELEASE, "--guide", "low_rank"], 2, ("low_rank", "RANK")),
    "unknown storage": Mistake([*RELEASE, "--storage", "float16"], 2, ("float16", "float32")),
    "unknown neighbours": Mistake(
        [*RELEASE, "--neighbouring-relation", "one"], 2, ("--neighbouring-relation", "replace_one")
    ),
    "prior term without a number": Mistake(
        [*RELEASE, "--prior-term", "per_record"], 2, ("per_record", "--num-records")
    ),
    "unknown prior term": Mistake([*RELEASE, "--prior-term", "private"], 2, ("--prior-term", "public")),
    "prior sd 0": Mistake([*RELEASE, "--prior-sd", "0"], 2, ("--prior-sd must",)),
    "model setting without value": Mistake(
        [*RELEASE, "--model-setting", "prior_sd"], 2, ("prior_sd", "name=value")
    ),
    "unknown model setting": Mistake(
        [*RELEASE, "--model-setting", "sd=2"], 2, ("logistic_regression", "prior_sd")
    ),
    "outcome not in the schema": Mistake(swap(RELEASE, "--outcome", "sick"), 2, ('"sick"', "schema")),
    "outcome of the wrong kind": Mistake(swap(RELEASE, "--outcome", "age"), 2, ('"age"', "binary")),
    "predictor not in the schema": Mistake([*RELEASE, "--predictor", "height"], 2, ('"height"',)),
    "predictor twice": Mistake([*RELEASE, "--predictor", "age", "--predictor", "age"], 2, ('"age"',)),
    "outcome as predictor": Mistake([*RELEASE, "--predictor", "ill"], 2, ('"ill"', "outcome")),
    "no number of records": Mistake(without(PLAN, "--num-records"), 2, ("--num-records",)),
    "plan without steps": Mistake([*PLAN, "--steps", "0"], 2, ("--steps",)),
    "misspelt option": Mistake([*RELEASE, "--clipnorm", "1"], 2, ("--clipnorm", "--clip-norm")),
    "misspelt command": Mistake(["relese", *RELEASE[1:]], 2, ("relese", "release")),
    "a word too many": Mistake([*RELEASE, "other.csv"], 2, ("other.csv",)),
    "a forgotten value": Mistake(RELEASE[:-1], 2, ("-o",)),
}
FORMULA = ["plan", "--schema", "people.toml", *BUDGET, "--num-records", "100", "-q", "--formula"]
FORMULAS = {
    "code in a formula": Mistake(
        [*FORMULA, "ill ~ {open('pwned','w').write('x')}"], 2, ("formula", "{", "columns and calls")
    ),
    "a method in a formula": Mistake([*FORMULA, "ill ~ age.mean()"], 2, ("age.mean()", "code")),
    "a formula that looks at other rows": Mistake([*FORMULA, "ill ~ scale(age)"], 2, ("scale()", "bounds")),
    "knots from the data": Mistake([*FORMULA, "ill ~ bs(age, df=4)"], 2, ("knots", "written out")),
    "a formula's unknown column": Mistake([*FORMULA, "ill ~ height"], 2, ('"height"', "schema")),
    "a formula without outcome": Mistake([*FORMULA, "age + job"], 2, ("formula", "~")),
    "a formula cut short": Mistake([*FORMULA, "ill ~ age +"], 2, ("formula", "cannot be read")),
    "neither outcome nor formula": Mistake(FORMULA[:-1], 2, ("--outcome", "--formula")),
}
SCHEMAS = {
    "a schema from the table": Mistake(["schema", "init", "people.csv"], 2, ("people.csv", "--codebook")),
    "an unknown kind of column": Mistake(["schema", "init", "age:rael:0,1"], 2, ('"rael"', "real")),
    "no columns to describe": Mistake(["schema", "init"], 2, ("column", "nadpvi schema init")),
    "schema exists": Mistake(
        ["schema", "init", "age:real:0,1", "-o", "people.toml"], 1, ("people.toml exists", "--force")
    ),
    "no schema to check": Mistake(["schema", "check", "absent.toml"], 1, ("absent.toml", "does not exist")),
    "a table to check": Mistake(["schema", "check", "people.csv"], 2, ("people.csv", "TOML")),
    "no schema": Mistake(swap(RELEASE, "--schema", "absent.toml"), 1, ("absent.toml", "does not exist")),
    "schema not TOML": Mistake(
        RELEASE, 2, ("people.toml", "TOML", "line 3"), text("people.toml", '"real"', "real")
    ),
    "the table as schema": Mistake(swap(RELEASE, "--schema", "people.csv"), 2, ("people.csv", "TOML")),
    "bounds crossed": Mistake(
        RELEASE, 2, ('"age"', "lower"), text("people.toml", "lower = 0", "lower = 200")
    ),
    "one level": Mistake(RELEASE, 2, ('"ill"', "level"), text("people.toml", '["no", "yes"]', '["yes"]')),
    "a level twice": Mistake(RELEASE, 2, ('"ill"', "level"), text("people.toml", '"no"', '"yes"')),
    "unknown key": Mistake(RELEASE, 2, ('"age"', "lowest", "lower"), text("people.toml", "lower", "lowest")),
    "unknown kind": Mistake(RELEASE, 2, ('"age"', "kind", "real"), text("people.toml", '"real"', '"float"')),
    "no columns": Mistake(RELEASE, 2, ("columns.NAME",), content("people.toml", "")),
}
FILES = {
    "a posterior for a release": Mistake(
        swap(INFER, "infer", "posterior.nc"), 1, ("posterior.nc", "release")
    ),
    "a release for a posterior": Mistake(
        swap(PREDICT, "predict", "release.nc"), 1, ("release.nc", "posterior")
    ),
    "a table for a release": Mistake(
        swap(INFER, "infer", "people.csv"), 1, ("people.csv", "not a file that nadpvi")
    ),
    "no release": Mistake(swap(INFER, "infer", "absent.nc"), 1, ("absent.nc",)),
    "a damaged release": Mistake(INFER, 1, ("release.nc", "damaged"), damaged("release.nc")),
    "half a release": Mistake(INFER, 1, ("release.nc",), cut("release.nc")),
    "a damaged posterior": Mistake(
        ["summary", "posterior.nc"], 1, ("posterior.nc",), damaged("posterior.nc")
    ),
    "a checkpoint for a release": Mistake(
        swap(INFER, "infer", "people.checkpoint"), 1, ("people.checkpoint",)
    ),
    "no folder for the output": Mistake(swap(RELEASE, "-o", "no/new.nc"), 1, ("no", "create it")),
    "output exists": Mistake(swap(RELEASE, "-o", "release.nc"), 1, ("release.nc exists", "--force")),
    "output is the table": Mistake(
        [*swap(RELEASE, "-o", "people.csv"), "--force"], 2, ("people.csv", "input")
    ),
    "output is a folder": Mistake(swap(RELEASE, "-o", "."), 1, ("regular file",)),
    "output is the ledger": Mistake(
        [*swap(RELEASE, "-o", "people.ledger"), "--force"], 2, ("people.ledger", "input")
    ),
    "one output for two": Mistake(swap(FIT, "-o", "new.nc"), 2, ("different",)),
    "checkpoint is the output": Mistake(
        [*RELEASE, "--checkpoint", "new.nc"], 2, ("--checkpoint", "different")
    ),
    "checkpoint exists": Mistake(
        [*RELEASE, "--checkpoint", "people.checkpoint"], 1, ("people.checkpoint", "resume")
    ),
    "posterior exists": Mistake(swap(INFER, "-o", "posterior.nc"), 1, ("posterior.nc exists", "--force")),
    "predictions over the rows": Mistake([*PREDICT, "-o", "new.csv", "--force"], 2, ("new.csv", "input")),
    "a report of a release": Mistake(
        ["report", "release.nc", "-o", "r.html", "-q"], 1, ("release.nc", "posterior")
    ),
    "a report that exists": Mistake(
        ["report", "posterior.nc", "-o", "new.csv", "-q"], 1, ("new.csv exists", "--force")
    ),
    "no row to predict": Mistake(swap(PREDICT, "posterior.nc", "absent.csv"), 1, ("absent.csv",)),
    "a predictor missing": Mistake(PREDICT, 1, ('"job"',), text("new.csv", "job", "work")),
    "Stan data over the release": Mistake(
        ["export", "release.nc", "--stan-data", "release.nc", "--program", "stan", "--force"],
        2,
        ("release.nc", "input"),
    ),
    "a file for the program's folder": Mistake(
        ["export", "release.nc", "--stan-data", "d.json", "--program", "people.csv"], 1, ("people.csv",)
    ),
}
LEDGERS = {
    "over the cap": Mistake(RELEASE, 1, ("people.ledger", "cap"), spent),
    "no ledger": Mistake(swap(RELEASE, "--ledger", "absent"), 1, ("absent", "--create")),
    "a table for a ledger": Mistake(swap(RELEASE, "--ledger", "people.csv"), 1, ("people.csv", "ledger")),
    "ledger exists": Mistake(
        ["ledger", "people.ledger", "--create", "--label", "x"], 1, ("people.ledger", "exists")
    ),
    "ledger without label": Mistake(["ledger", "new", "--create"], 2, ("--label",)),
    "half a cap": Mistake(
        ["ledger", "new", "--create", "--label", "x", "--cap-epsilon", "1"], 2, ("--cap-delta", "both")
    ),
    "a label for an old ledger": Mistake(
        ["ledger", "people.ledger", "--label", "x"], 2, ("--label", "--create")
    ),
    "another table to resume": Mistake(
        ["resume", "people.checkpoint", "new.csv", "-o", "new.nc", "-q"], 1, ("the table", '"ill"')
    ),
    "a changed table to resume": Mistake(
        ["resume", "people.checkpoint", "people.csv", "-o", "new.nc", "-q"],
        1,
        ("table",),
        first_row(f"50.12345,nurse,no,{SECRET}"),
    ),
    "resume without a table": Mistake(
        ["resume", "people.checkpoint", "-o", "new.nc"], 2, ("TABLE", "--partial")
    ),
    "resume a release": Mistake(
        ["resume", "release.nc", "people.csv", "-o", "new.nc"], 1, ("release.nc", "checkpoint")
    ),
}
SAMPLING = {
    "unknown method": Mistake(swap(INFER, "--method", "mcmc"), 2, ("mcmc", "nuts")),
    "unknown engine": Mistake([*INFER, "--engine", "jags"], 2, ("jags", "stanli")),
    "no draws": Mistake([*INFER, "--draws", "0"], 2, ("draws",)),
    "no chains": Mistake([*INFER, "--chains", "0"], 2, ("chains",)),
    "warm-up -1": Mistake([*INFER, "--warmup", "-1"], 2, ("warmup",)),
    "burn-in 1.2": Mistake([*INFER, "--burn-in", "1.2"], 2, ("--burn-in", "[0, 1)")),
    "burn-in in words": Mistake([*INFER, "--burn-in", "most"], 2, ("most", "auto")),
    "sampler seed -1": Mistake([*INFER, "--seed", "-1"], 2, ("seed",)),
    "adapt delta 2": Mistake([*INFER, "--adapt-delta", "2"], 2, ("--adapt-delta",)),
    "unknown prior of the optimum": Mistake([*INFER, "--phi-star-prior", "flat"], 2, ("flat", "model")),
    "unknown prior of the curvature": Mistake([*INFER, "--curvature-prior", "flat"], 2, ("flat", "weak")),
    "bad draws before the budget": Mistake([*FIT, "--draws", "0"], 2, ("draws",)),
    "bad engine before the budget": Mistake([*FIT, "--engine", "jags"], 2, ("jags", "stanli")),
    "content of no interval": Mistake([*PREDICT, "--probability", "2"], 2, ("probability", "1")),
    "content of no summary": Mistake(["summary", "posterior.nc", "--probability", "0"], 2, ("probability",)),
    "unknown experiment": Mistake(["coverage", "beta"], 1, ("beta", "choose from")),
    "no workers": Mistake(["coverage", "beta-bernoulli", "--workers", "0"], 2, ("workers",)),
}
CONFIG = ["release", "--config", "run.toml", "-o", "new.nc", "-q"]
CONFIGS = {
    "no run file": Mistake(swap(CONFIG, "--config", "absent.toml"), 1, ("absent.toml", "does not exist")),
    "run file not TOML": Mistake(CONFIG, 2, ("run.toml", "TOML", "line 3"), text("run.toml", '"ill"', "ill")),
    "run file with an unknown key": Mistake(
        CONFIG, 2, ("run.toml", "step", "steps"), text("run.toml", "steps", "step")
    ),
    "run file with a text for a number": Mistake(
        CONFIG, 2, ("run.toml", "epsilon", "number"), text("run.toml", "= 1\n", '= "1"\n')
    ),
    "the table as run file": Mistake(swap(CONFIG, "--config", "people.csv"), 2, ("people.csv", "TOML")),
    "run file without the outcome": Mistake(
        CONFIG, 2, ("--outcome",), text("run.toml", 'outcome = "ill"\n', "")
    ),
    "run file over the schema": Mistake(
        [*CONFIG, "--write-config", "people.toml", "--force"], 2, ("people.toml", "input")
    ),
}
MISTAKES = {**TABLE, **RUNS, **FORMULAS, **SCHEMAS, **FILES, **LEDGERS, **SAMPLING, **CONFIGS}


def test_there_are_many():
    assert len(MISTAKES) >= 40
    assert len(MISTAKES) == sum(map(len, (TABLE, RUNS, FORMULAS, SCHEMAS, FILES, LEDGERS, SAMPLING, CONFIGS)))


@pytest.mark.parametrize("words", [RELEASE, FIT, INFER, PLAN, PREDICT, CONFIG], ids=lambda words: words[0])
def test_without_the_mistake_it_would_run(folder, words):
    """A command line that is wrong in two ways would be refused for the wrong one."""
    done = run_here(*words)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", MISTAKES)
def test_one_mistake(folder, name):
    mistake = MISTAKES[name]
    if mistake.spoil is not None:
        mistake.spoil(folder)
    before = contents(folder)
    done = run_here(*mistake.words)
    assert done.returncode == mistake.code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= 2, done.stderr
    assert lines[0].startswith("nadpvi: error: ")
    assert len(lines) == 1 or lines[1].startswith("See: nadpvi")
    for needle in mistake.needles:
        assert needle in done.stderr
    cells = {cell for column in ("age", "name") for cell in people()[column]}
    assert not [cell for cell in {*cells, SECRET, "50.12345"} if cell in done.stderr]
    assert contents(folder) == before
