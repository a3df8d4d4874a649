"""Every code block of the README, the tutorial and the command line's page, run as a reader would run it.

Console lines are processes of their own (``python -m nadpvi``). What a page takes to be there already is
made up here (`INPUTS`). Two kinds of console lines are not run: ``make ...``, which is CI itself, and
``source ...``, which activates an environment. The guides' blocks: tests/test_docs_guides.py.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from page_runner import calls, check_command, commands, part_of_a_schema, run_page

ROOT = Path(__file__).parents[1]


def run_command(arguments: list[str], folder: Path) -> None:
    """Run nadpvi in a folder; a failure shows what it wrote."""
    done = subprocess.run(
        [sys.executable, "-m", "nadpvi", *arguments],
        cwd=folder,
        env=os.environ | {"COLUMNS": "110"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"nadpvi {shlex.join(arguments)}\n{done.stdout}\n{done.stderr}"


def people_of_the_readme(folder: Path) -> None:
    """The private table that the README's schema describes, and new rows to predict."""
    rng = np.random.default_rng(5)
    size = 3000
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 100, size),
            "education": rng.choice(["primary", "secondary", "tertiary"], size),
            "employed": rng.choice(["no", "yes", None], size, p=[0.4, 0.55, 0.05]),
        }
    )
    table.to_csv(folder / "people.csv", index=False)
    table.head(20).drop(columns="employed").to_csv(folder / "new_people.csv", index=False)


# Page, what it takes to be there, and how many blocks of each language it has at least.
INPUTS: dict[str, tuple[Callable[[Path], None], dict[str, int]]] = {
    "README.md": (people_of_the_readme, {"python": 1, "console": 4, "toml": 1}),
    "docs/cli.md": (people_of_the_readme, {"console": 8, "toml": 2}),
    "docs/tutorial.md": (lambda folder: None, {"python": 5, "console": 5, "toml": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_blocks_run_as_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_inputs, at_least = INPUTS[name]
    monkeypatch.chdir(tmp_path)
    make_inputs(tmp_path)
    counted = run_page(ROOT / name, tmp_path, run=run_command)
    assert {
        language: counted.get(language, 0) >= number for language, number in at_least.items()
    } == dict.fromkeys(at_least, True)


def test_a_block_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The test can fail: Python errors, refused, foreign and mistyped commands, a file without a name."""
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    for text, error, message in (
        ("```python\n1 / 0\n```", ZeroDivisionError, "division"),
        ("```console\nnadpvi summary missing.nc\n```", AssertionError, "missing.nc"),
        ("```console\nrm -r people\n```", AssertionError, "neither"),
        ("```toml\n[columns]\n```", AssertionError, "does not name"),
        ("```text\nnadpvi summary a.nc --jsn\n```", Exception, "--jsn"),
        ("```yaml\na: 1\n```", AssertionError, "yaml"),
    ):
        page.write_text(text + "\n", encoding="utf-8")
        with pytest.raises(error, match=message):
            run_page(page, tmp_path, run=run_command)


def test_commands_that_are_not_run_are_parsed():
    check_command(["schema", "init", "age:real:18,100", "-o", "people.toml"])
    check_command(["--install-completion"])
    for arguments, message in (
        (["demo", "--colour"], "--colour"),
        (["infer"], "release_file"),
        (["schema", "init", "--where", "x"], "--where"),
        (["--completion"], "--completion"),
    ):
        with pytest.raises(Exception, match=message):
            check_command(arguments)


def test_parts_of_schemas_are_read_with_the_columns_around_them():
    columns = {"age": {"kind": "real", "lower": 0, "upper": 100}}
    part_of_a_schema('[counts]\ncolumn = "n"\n', columns)
    for text in ('[count]\ncolumn = "n"\n', "[person]\n", '[person]\ncolumn = "age"\nmax_row = 3\n'):
        with pytest.raises(Exception, match=r"count|column|max_row"):
            part_of_a_schema(text, columns)


def test_blocks_share_names_and_files_and_skip_what_is_excepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```toml\n# a.toml\n[x]\n```\n```console\nmake demo\n```\n"
        "```python\nfrom pathlib import Path\n```\n```python\nassert Path('a.toml').is_file() and here\n```\n"
        "```python\nimport opacus_is_far\n```\n",
        encoding="utf-8",
    )
    counted = run_page(page, tmp_path, run=run_command, namespace={"here": True}, not_run=("opacus_is_far",))
    assert counted == {"toml": 1, "console": 1, "python": 3}
    assert commands("nadpvi a \\\n  b  # why\nmake x\n") == [["a", "b"]]
    assert calls("f(1, a=2)\nb.g(c=f(d=1))") == {("f", "a"), ("b.g", "c"), ("f", "d")}
