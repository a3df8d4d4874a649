"""Every code block of the README and of the tutorial, run as a reader would run it.

A page's blocks are run in order in one empty folder: Python in one namespace, console lines as processes of
their own through ``python -m nadpvi``. A TOML block that starts with a comment which is a file name is saved
under it. What a page takes to be there already is made up here (`INPUTS`). Two kinds of console lines are not
run: ``make ...``, which is CI itself, and ``source ...``, which activates an environment. The only thing done
behind the reader's back: releases are real, so their diagnoses are chance, and `InferenceWarning` is allowed.
"""

import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import nadpvi as na

ROOT = Path(__file__).parents[1]
NOT_RUN = ("make ", "source ")
_FENCED = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE_NAME = re.compile(r"# ([\w.-]+\.toml)\n")


class Block(NamedTuple):
    """A fenced block: where it is, its language, its text."""

    line: int
    language: str
    text: str


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for match in _FENCED.finditer(page):
        yield Block(page.count("\n", 0, match.start()) + 1, match.group(1), match.group(2))


def commands(text: str) -> list[list[str]]:
    """The nadpvi commands of a console block, as argument lists; any other command fails."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith((*NOT_RUN, "#")):
            continue
        first, *rest = shlex.split(line, comments=True)
        assert first == "nadpvi", f"{line!r} is neither nadpvi's nor excepted"
        found.append(rest)
    return found


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


def run_page(path: Path, folder: Path) -> dict[str, int]:
    """Run all blocks of a page in a folder, and count them by language."""
    namespace: dict[str, object] = {"__name__": "page"}
    counted: dict[str, int] = {}
    for block in blocks(path.read_text(encoding="utf-8")):
        counted[block.language] = counted.get(block.language, 0) + 1
        if block.language == "python":
            # Blank lines in front give tracebacks the page's own line numbers.
            code = compile("\n" * block.line + block.text, str(path), "exec")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", na.InferenceWarning)
                exec(code, namespace)  # noqa: S102
        elif block.language == "console":
            for arguments in commands(block.text):
                run_command(arguments, folder)
        elif block.language == "toml":
            name = _FILE_NAME.match(block.text)
            assert name is not None, f"{path.name}, line {block.line}: the block does not name its file"
            (folder / name.group(1)).write_text(block.text, encoding="utf-8")
        else:
            assert block.language == "text", f"{path.name}, line {block.line}: what is {block.language!r}?"
    return counted


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
    counted = run_page(ROOT / name, tmp_path)
    assert {
        language: counted.get(language, 0) >= number for language, number in at_least.items()
    } == dict.fromkeys(at_least, True)


def test_a_block_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The test can fail: a Python error, a refused command, a foreign command, an unnamed file."""
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    for text, error, message in (
        ("```python\n1 / 0\n```", ZeroDivisionError, "division"),
        ("```console\nnadpvi summary missing.nc\n```", AssertionError, "missing.nc"),
        ("```console\nrm -r people\n```", AssertionError, "neither"),
        ("```toml\n[columns]\n```", AssertionError, "does not name"),
        ("```yaml\na: 1\n```", AssertionError, "yaml"),
    ):
        page.write_text(text + "\n", encoding="utf-8")
        with pytest.raises(error, match=message):
            run_page(page, tmp_path)


def test_blocks_share_names_and_files_and_skip_what_is_excepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```toml\n# a.toml\n[x]\n```\n```console\nmake demo\n```\n"
        "```python\nfrom pathlib import Path\n```\n```python\nassert Path('a.toml').is_file()\n```\n",
        encoding="utf-8",
    )
    assert run_page(page, tmp_path) == {"toml": 1, "console": 1, "python": 2}
    assert commands("nadpvi a \\\n  b  # why\nmake x\n") == [["a", "b"]]
