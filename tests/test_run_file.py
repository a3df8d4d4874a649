"""Run files: what --config reads, what --write-config writes, and what neither may do."""

import tomllib
from pathlib import Path

import pytest
from cli_cases import contents, run_here

import nadpvi as na

SCHEMA = """
[columns.age]
kind = "real"
lower = 0
upper = 100

[columns.y]
kind = "binary"
levels = ["no", "yes"]
"""
RUN = """
schema = "people.toml"
table = "data/people.csv"
outcome = "y"
epsilon = 2
delta = 1e-5
steps = 40
predictor = ["age"]
num-records = 200
settings = "plain"
prior-term = "per_record"
seed = 3

[release]
output = "r.nc"
label = "first"

[infer]
release = "r.nc"
output = "p.nc"
method = "exact"
draws = 20
burn-in = 0.3
subsampling-noise = false
"""


@pytest.fixture
def folder(tmp_path, table, monkeypatch):
    """A folder with a run file, while the current folder is another."""
    place = tmp_path / "study"
    (place / "data").mkdir(parents=True)
    table[["age", "y"]].to_csv(place / "data" / "people.csv", index=False)
    (place / "people.toml").write_text(SCHEMA)
    (place / "run.toml").write_text(RUN)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return place


def test_one_file_drives_the_whole_road(folder):
    planned = run_here("plan", "--config", folder / "run.toml")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("Plan for 200 records")
    made = run_here("release", "--config", folder / "run.toml", "-q")
    assert made.returncode == 0, made.stderr
    config = na.Release.load(folder / "r.nc").config
    assert (config.num_steps, config.num_records, config.prior_term) == (40, 200, "per_record")
    fitted = run_here("infer", "--config", folder / "run.toml", "-q")
    assert fitted.returncode == 0, fitted.stderr
    posterior = na.Posterior.load(folder / "p.nc")
    settings = posterior.settings
    assert (settings["method"], settings["burn_in"]) == ("exact", 0.3)
    assert posterior.groups["posterior"].sizes["draw"] == 20
    assert settings["subsampling_noise"] is False


def test_a_report_takes_test_rows_from_its_own_section_only(folder):
    """The table at the top is the private one: a page that scored it would be under no guarantee."""
    for words in (["release"], ["infer"]):
        assert run_here(*words, "--config", folder / "run.toml", "-q").returncode == 0
    section = '[report]\nposterior = "p.nc"\noutput = "r.html"\nrelease = "r.nc"\n'
    (folder / "run.toml").write_text(RUN + section)
    done = run_here("report", "--config", folder / "run.toml", "--write-config", folder / "one.toml")
    assert done.returncode == 0, done.stderr
    assert "not covered" not in done.stderr
    assert "table" not in tomllib.loads((folder / "one.toml").read_text())
    (folder / "run.toml").write_text(f'{RUN}{section}table = "data/people.csv"\n')
    two = ["--write-config", folder / "two.toml", "-o", folder / "r2.html"]
    done = run_here("report", "--config", folder / "run.toml", *two)
    assert done.returncode == 0, done.stderr
    assert "not covered" in done.stderr
    assert tomllib.loads((folder / "two.toml").read_text())["report"]["table"] == str(
        folder / "data" / "people.csv"
    )


def test_the_command_line_comes_first_and_its_paths_are_its_own(folder):
    done = run_here(
        "release", "--config", folder / "run.toml", "--steps", "30", "--epsilon", "1", "-o", "here.nc", "-q"
    )
    assert done.returncode == 0, done.stderr
    made = na.Release.load("here.nc")
    assert made.config.num_steps == 30
    assert made.guarantee.epsilon <= 1
    assert not (folder / "r.nc").exists()


def test_a_section_comes_before_the_top(folder):
    text = (folder / "run.toml").read_text().replace("[release]", "[release]\nsteps = 25")
    (folder / "run.toml").write_text(text)
    assert run_here("release", "--config", folder / "run.toml", "-q").returncode == 0
    assert na.Release.load(folder / "r.nc").config.num_steps == 25


def test_what_was_asked_can_be_written_and_repeated(folder):
    first = run_here(
        "fit", folder / "data" / "people.csv", "--schema", "../study/people.toml", "--outcome", "y",
        "--epsilon", "1.5", "--delta", "1e-6", "--steps", "30", "--predictor", "age", "--method", "exact",
        "--draws", "20", "--seed", "4", "--model-setting", "prior_sd=0.5", "--no-subsampling-noise",
        "--burn-in", "auto", "--insecure-seed", "7", "-q", "--release", "r1.nc", "-o", "p1.nc",
        "--write-config", "again.toml",
    )  # fmt: skip
    assert first.returncode == 0, first.stderr
    written = tomllib.loads(Path("again.toml").read_text())
    assert written == {
        "table": str(folder / "data" / "people.csv"),
        "schema": "../study/people.toml",
        "outcome": "y",
        "epsilon": 1.5,
        "delta": 1e-6,
        "steps": 30,
        "predictor": ["age"],
        "method": "exact",
        "draws": 20,
        "seed": 4,
        "model-setting": ["prior_sd=0.5"],
        "subsampling-noise": False,
        "burn-in": "auto",
        "insecure-seed": 7,
        "quiet": True,
        "fit": {"release": "r1.nc", "output": "p1.nc"},
    }
    before = na.Posterior.load("p1.nc").summary()
    again = run_here("fit", "--config", "again.toml", "--force")
    assert again.returncode == 0, again.stderr
    assert na.Posterior.load("p1.nc").summary().equals(before)


def test_a_written_file_names_its_files_from_where_it_is(folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = run_here("plan", "--config", "run.toml", "-q", "--write-config", "data/other.toml")
    assert done.returncode == 0, done.stderr
    written = tomllib.loads(Path("data/other.toml").read_text())
    assert (written["schema"], written["num-records"]) == ("../people.toml", 200)
    again = run_here("plan", "--config", "data/other.toml", "-q")
    assert again.stdout.splitlines()[0] == done.stdout.splitlines()[0]


def test_settings_of_a_model_may_be_a_table(folder):
    text = RUN.replace('outcome = "y"', 'outcome = "y"\nmodel-setting = { prior_sd = 0.25 }')
    (folder / "run.toml").write_text(text)
    assert run_here("release", "--config", folder / "run.toml", "-q").returncode == 0
    assert na.Release.load(folder / "r.nc").description.model.prior_sd == 0.25


@pytest.mark.parametrize(
    ("old", "new", "needle"),
    [
        ("steps = 40", "stesp = 40", "unknown key 'stesp'"),
        ("steps = 40", "steps = true", "steps must be a whole number"),
        ("steps = 40", "steps = 2.5", "steps must be a whole number"),
        ("steps = 40", "steps = [40]", "steps must be a whole number"),
        ("epsilon = 2", 'epsilon = "two"', "epsilon must be a number"),
        ("epsilon = 2", "epsilon = nan", "epsilon"),
        ("epsilon = 2", "epsilon = 1979-05-27", "epsilon must be a number"),
        ('predictor = ["age"]', "predictor = [1]", "predictor must be a list of texts"),
        ('outcome = "y"', "outcome = 3", "outcome must be a text"),
        ('schema = "people.toml"', "schema = 3", "schema must be a text, the path"),
        ('schema = "people.toml"', 'schema = "people\\u0000.toml"', "schema must be a text, the path"),
        ("[infer]", "[infre]", "unknown key 'infre'"),
        ("draws = 20", "draw = 20", "[infer]: unknown key 'draw'"),
        ("seed = 3", "force = true", "force is for the command line only"),
        ("seed = 3", 'config = "run.toml"', "config is for the command line only"),
        ("seed = 3", 'output = "r.nc"', "output belongs in a section, such as [release]"),
        ("[release]", 'release = "r.nc"\n[other]', "release belongs in a section"),
        ("[infer]", "[infer", "not valid TOML"),
    ],
)
def test_what_a_file_may_not_say(folder, old, new, needle):
    assert old in RUN
    (folder / "run.toml").write_text(RUN.replace(old, new))
    before = contents(folder.parent)
    done = run_here("release", "--config", folder / "run.toml", "-q")
    assert done.returncode in (1, 2)
    assert needle in done.stderr
    assert done.stderr.count("\n") <= 2
    assert done.stdout == ""
    assert contents(folder.parent) == before


@pytest.mark.parametrize(
    "value",
    [
        "{open('pwned','w').write('x')}",
        "__import__('os').mkdir('pwned')",
        "$(touch pwned)",
        "`touch pwned`",
        "!!python/object/apply:os.mkdir [pwned]",
    ],
)
@pytest.mark.parametrize(
    "key", ["outcome", "predictor", "formula", "model-setting", "schema", "label", "guide"]
)
def test_nothing_in_a_file_is_evaluated(folder, key, value):
    """CASES D7. A label may say anything: it is a name."""
    # A formula stands in the place of an outcome and its predictors.
    replaced = ("outcome =", "predictor =") if key == "formula" else (f"{key} =",)
    value = f"y ~ {value}" if key == "formula" else value
    text = "\n".join(each for each in RUN.splitlines() if not each.startswith(replaced))
    line = f"{key} = ['''{value}''']" if key in ("predictor", "model-setting") else f"{key} = '''{value}'''"
    (folder / "run.toml").write_text(f"{line}\n{text}\n")
    done = run_here("release", "--config", folder / "run.toml", "-q")
    assert done.returncode == (0 if key == "label" else done.returncode or 3)
    assert not [name for name in contents(folder.parent) if "pwned" in name]
    assert not [path for path in folder.parent.rglob("*pwned*")]


def test_a_run_file_is_neither_overwritten_nor_an_output(folder):
    before = contents(folder)
    for target, needle in (
        (folder / "run.toml", "is an input"),
        (folder / "people.toml", "is an input"),
        ("no/run.toml", "does not exist"),
        (folder / "r.nc", "must be different"),
    ):
        done = run_here("release", "--config", folder / "run.toml", "--write-config", target, "-q", "--force")
        assert done.returncode in (1, 2)
        assert needle in done.stderr
        assert contents(folder) == before
