"""nadpvi schema init and check, and --formula: what is written, what is said, and that no table is read."""

import json
from pathlib import Path

import pytest
from cli_cases import contents, run_here

import nadpvi as na
from nadpvi.skeleton import column_from_text, schema_skeleton

SECRET = "s3cret-cell"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_skeleton_is_no_schema_until_it_is_filled_in(folder: Path):
    done = run_here(
        "schema", "init", "age", "education:categorical", "income:binary:no,yes", "-o", "people.toml"
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "3 settings are to be filled in" in done.stderr
    text = (folder / "people.toml").read_text()
    assert text.count('"FILL IN"') == 3
    checked = run_here("schema", "check", "people.toml")
    assert checked.returncode == 2
    assert checked.stdout == ""
    assert checked.stderr == (
        'nadpvi: error: schema column "age": lower is still "FILL IN"; write what is publicly known of it\n'
    )
    for old, new in (('lower = "FILL IN"', "lower = 18"), ('upper = "FILL IN"', "upper = 90"),
                     ('["FILL IN"]', '["a", "b", "c"]')):  # fmt: skip
        text = text.replace(old, new)
    (folder / "people.toml").write_text(text)
    schema = na.Schema.from_toml("people.toml")
    assert schema.names == ("age", "education", "income")
    assert schema["income"].levels == ("no", "yes")
    assert run_here("schema", "check", "people.toml").returncode == 0


def test_what_is_said_of_columns_makes_a_whole_schema(folder: Path):
    done = run_here(
        "schema", "init", "age:real:18,90", "visits:count:20", "stays:count:1,9",
        "pain:ordered:none,mild,severe", 'my "odd" name]:binary:no  way,yes', "a:b:real:-1.5,1e3",
        "id:person:3",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (folder / "s.toml").write_text(done.stdout)
    schema = na.Schema.from_toml("s.toml")
    assert schema == na.Schema(
        columns=(
            na.RealColumn(name="age", lower=18, upper=90),
            na.CountColumn(name="visits", upper=20),
            na.CountColumn(name="stays", lower=1, upper=9),
            na.OrderedColumn(name="pain", levels=("none", "mild", "severe")),
            na.BinaryColumn(name='my "odd" name]', levels=("no  way", "yes")),
            na.RealColumn(name="a:b", lower=-1.5, upper=1000),
        ),
        person=na.Person(column="id", max_rows=3),
    )


CODEBOOK = """\
name,kind,lower,upper,levels,transform,missing,unknown
age,real,18,90,,,drop,50
wage,real,1,1e6,,log,,
smokes,categorical,,,0|1|9,,9,9
country,categorical,,,NA|SE,,,SE
stage,ordered,,,I|II|III,,,
weight,,,,,,,
who,person,,,,,,
"""


def test_a_codebook_and_typed_columns_go_together(folder: Path):
    (folder / "book.csv").write_text(CODEBOOK)
    done = run_here("schema", "init", "--codebook", "book.csv", "y:binary:0,1", "-o", "s.toml", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    text = (folder / "s.toml").read_text().replace('lower = "FILL IN"', "lower = 0")
    (folder / "s.toml").write_text(text.replace('upper = "FILL IN"', "upper = 300"))
    schema = na.Schema.from_toml("s.toml")
    assert schema.names == ("age", "wage", "smokes", "country", "stage", "weight", "y")
    assert (schema["age"].missing, schema["age"].unknown) == ("drop", 50.0)
    assert schema["wage"].transform == "log"
    assert (schema["smokes"].levels, schema["smokes"].missing) == (("0", "1", "9"), "9")
    assert schema["country"].levels == ("NA", "SE")
    assert schema.person == na.Person(column="who")


WRONG = {
    "the table itself": (["people.csv"], "people.csv is a file"),
    "the table as codebook": (["--codebook", "people.csv"], "people.csv is no codebook"),
    "no columns": ([], "name at least one column"),
    "unknown kind": (["age:numeric"], 'unknown kind "numeric"; known ones are "real"'),
    "one bound": (["age:real:18"], "write both bounds, as in age:real:0,100"),
    "bounds the wrong way": (["age:real:90,18"], "lower must be below upper"),
    "no number": (["age:real:young,old"], "lower must be a number"),
    "three levels of a binary": (["y:binary:a,b,c"], "exactly two"),
    "one level": (["job:categorical:a"], "at least two levels"),
    "twice": (["age", "age:count:3"], '"age": is described twice'),
    "two persons": (["a", "b:person", "c:person"], "a second person column"),
    "no rows of a person": (["a", "b:person:0"], "max_rows must be a whole number"),
    "unprintable": (["a\x1bb:count:3"], "unprintable"),
    "unprintable with one bound": (["a\nb:real:3"], "write both bounds, as in NAME:real:0,100"),
    "infinite": (["a:real:1e400,1"], "lower must be finite"),
    "person twice": (["a", "b:person", "b:real:0,1"], '"b": is described twice'),
    "two columns of counts": (["a", "b:counts", "c:counts"], "a second counts column"),
    "no records": (["a", "n:counts:0"], "lower must be below upper"),
    "person and counts": (["a", "b:person", "n:counts"], "a person or counts, not both"),
    "absent codebook": (["--codebook", "absent.csv"], "absent.csv does not exist"),
    "output is the codebook": (["--codebook", "people.csv", "-o", "people.csv", "--force"], "input"),
}


@pytest.mark.parametrize(("arguments", "rule"), WRONG.values(), ids=WRONG.keys())
def test_a_mistake_is_one_line_and_writes_nothing(folder: Path, arguments: list, rule: str):
    (folder / "people.csv").write_text(f"name,age\n{SECRET},3\n")
    before = contents(folder)
    done = run_here("schema", "init", *(arguments if "-o" in arguments else [*arguments, "-o", "s.toml"]))
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert rule in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert SECRET not in done.stderr
    assert contents(folder) == before


def test_an_existing_schema_is_kept(folder: Path):
    (folder / "s.toml").write_text("mine")
    done = run_here("schema", "init", "age", "-o", "s.toml")
    assert done.returncode == 1
    assert (folder / "s.toml").read_text() == "mine"
    assert run_here("schema", "init", "age", "-o", "s.toml", "--force").returncode == 0


TOML = """\
[columns.age]
kind = "real"
lower = 18
upper = 90
missing = "drop"
unknown = "drop"
[columns.education]
kind = "categorical"
levels = ["primary", "secondary", "tertiary"]
[columns.income]
kind = "binary"
levels = ["low", "high"]
missing = "drop"
unknown = "drop"
"""


def test_check_counts_coefficients(folder: Path):
    (folder / "s.toml").write_text(TOML)
    shown = run_here("schema", "check", "s.toml", "--outcome", "income")
    assert shown.returncode == 0
    assert "18 to 90" in shown.stdout
    assert "3 levels: primary, secondary, tertiary" in shown.stdout
    assert "5 coefficients" in shown.stdout
    assert "education[tertiary]" in shown.stdout
    # Of what could stop a run, and of nothing else, the note speaks.
    assert shown.stderr.startswith('note: one missing or unknown cell in "education" would stop a run')
    formula = ["--formula", "income ~ age*education"]
    found = json.loads(run_here("schema", "check", "s.toml", *formula, "--json", "--quiet").stdout)
    assert found["num_coefficients"] == 8 == len(found["coefficients"])
    assert found["coefficients"][-1] == "age:education[tertiary]"
    assert na.Schema.from_dict({"columns": [
        {key: value for key, value in column.items() if key != "coefficients"} for column in found["columns"]
    ]}) == na.Schema.from_toml("s.toml")  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--outcome", "wages"], 'outcome "wages" is not in the schema'),
        (["--outcome", "age"], 'outcome "age" must be a binary column'),
        (["--predictor", "age"], "--predictor goes with --outcome"),
        (["--formula", "income ~ {open('pwned','w')}"], "the sign { has no place"),
        (["--formula", "income ~ scale(age)"], "looks at other rows"),
        (["--formula", "income ~ age", "--predictor", "age"], "leave those out"),
        (["--formula", "age ~ education", "--model", "normal"], 'normal has no setting "formula"'),
    ],
)
def test_check_refuses_a_model_that_does_not_fit(folder: Path, arguments: list, rule: str):
    (folder / "s.toml").write_text(TOML)
    before = contents(folder)
    done = run_here("schema", "check", "s.toml", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert rule in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("broken", "code", "rule"),
    [
        ('[columns.age]\nkind = "real"\nlower = = 3', 2, "line 3"),
        ('[columns.age]\nkind = "reel"', 2, "kind must be one of"),
        ("", 2, "[columns.NAME]"),
        (None, 1, "does not exist"),
    ],
)
def test_check_of_a_broken_file_is_one_line(folder: Path, broken: str | None, code: int, rule: str):
    if broken is not None:
        (folder / "s.toml").write_text(broken)
    done = run_here("schema", "check", "s.toml")
    assert (done.returncode, done.stdout) == (code, "")
    assert rule in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_formula_on_the_command_line_makes_a_release(folder: Path):
    (folder / "s.toml").write_text(TOML)
    rows = ["20,primary,low", "60,tertiary,high", "35,secondary,high"] * 50
    (folder / "people.csv").write_text("age,education,income\n" + "\n".join(rows) + "\n")
    base = ["people.csv", "--schema", "s.toml", "--epsilon", "2", "--delta", "1e-5", "--steps", "20"]
    for mistake in ("income ~ {open('pwned','w').write('x')}", "income ~ poly(age, 2)"):
        done = run_here("release", *base, "--formula", mistake, "-o", "r.nc")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert sorted(path.name for path in folder.iterdir()) == ["people.csv", "s.toml"]
    done = run_here("release", *base, "--formula", "income ~ age*education", "-o", "r.nc")
    assert done.returncode == 0, done.stderr
    assert "mu[age:education[tertiary]]" in na.Release.load("r.nc").phi_labels
    neither = run_here("release", *base, "-o", "r2.nc")
    assert neither.returncode == 2
    assert "give --outcome COLUMN, the column to model, or --formula" in neither.stderr


def test_a_formula_in_a_run_file_runs_nothing_either(folder: Path):
    (folder / "s.toml").write_text(TOML)
    (folder / "run.toml").write_text(
        'schema = "s.toml"\nepsilon = 1.0\ndelta = 1e-5\nnum-records = 500\nsteps = 20\n'
        "formula = \"income ~ {open('pwned','w').write('x')}\"\n"
    )
    done = run_here("plan", "--config", "run.toml")
    assert done.returncode == 2
    assert "the sign { has no place" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["run.toml", "s.toml"]


def test_every_kind_can_be_typed():
    for kind in ("real", "count", "binary", "categorical", "ordered"):
        assert column_from_text(f"x:{kind}") == {"name": "x", "kind": kind}
        text, num_open = schema_skeleton([column_from_text(f"x:{kind}")])
        assert num_open == {"real": 2}.get(kind, 1)
        assert f'kind = "{kind}"' in text


def test_a_frequency_table_s_column_can_be_typed_or_listed(folder: Path):
    (folder / "book.csv").write_text("name,kind,upper,unknown\nn,counts,500,drop\n")
    for given, upper in ((["n:counts"], 10**10), (["n:counts:500"], 500), (["--codebook", "book.csv"], 500)):
        done = run_here("schema", "init", "age:real:0,9", *given, "-o", "s.toml", "--force")
        assert (done.returncode, done.stderr.splitlines()[0][:7]) == (0, "schema:")
        counts = na.Schema.from_toml("s.toml").counts
        assert counts is not None
        assert (counts.column, counts.upper) == ("n", upper)
    assert counts.unknown == "drop"
    assert "counts: n, up to 500 records a row" in run_here("schema", "check", "s.toml").stdout
