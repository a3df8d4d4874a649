"""Names in the prose of README and docs: options, public names, files and make targets are there."""

import importlib
import re
from pathlib import Path

import pytest
import typer.main

import nadpvi as na
from nadpvi.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
# Options of other programs: benchmarks/engine.py on the page of speed, the Opacus example.
FOREIGN = {
    "--cases",
    "--tools",
    "--cores",
    "--rounds",
    "--seconds",
    "--name",
    "--repetitions",
    "--runs",
    "--help",
}
# Folders of the checkout whose files the prose names.
FOLDERS = ("tests", "benchmarks", "examples", "docs", "stan")


def inline_code(page: Path) -> list[str]:
    """The pieces of code in a page's prose and tables."""
    return _INLINE.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))


def all_options() -> set[str]:
    """Every option of every command."""
    found, waiting = set(), [typer.main.get_command(app)]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        found |= {
            option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]
        }
    return found


def unknown_options(codes: list[str]) -> set[str]:
    ours = [code for code in codes if not code.startswith("python ")]
    written = {option for code in ours for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)}
    return written - all_options() - FOREIGN


def is_there(name: str) -> bool:
    """Whether a dotted name leads somewhere, from the package down."""
    parts = name.split(".")
    found, path = na, "nadpvi"
    for part in parts[1:]:
        path = f"{path}.{part}"
        if not hasattr(found, part):
            try:
                found = importlib.import_module(path)
            except ImportError:
                return False
        else:
            found = getattr(found, part)
    return True


def unknown_names(codes: list[str]) -> set[str]:
    written = {name for code in codes for name in re.findall(r"(?<![\w./])(?:na|nadpvi)(?:\.\w+)+", code)}
    # A file name such as nadpvi.toml is none of the package's.
    return {name for name in written if not is_there(name)}


def missing_files(codes: list[str]) -> set[str]:
    """Paths that the prose names and the checkout lacks; a star or a word in capitals stands for some."""
    pattern = rf"(?<![\w/.])(?:{'|'.join(FOLDERS)})/[\w./-]*\w"
    written = {path for code in codes for path in re.findall(pattern, code) if "*" not in code}
    return {path for path in written if not re.search(r"[A-Z]{3}", path) and not (ROOT / path).exists()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_in_prose_are_there(page):
    codes = inline_code(page)
    assert unknown_options(codes) == set()
    assert unknown_names(codes) == set()
    assert missing_files(codes) == set()


def test_make_targets_are_there():
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        asked = {target for code in inline_code(page) for target in re.findall(r"^make ([\w-]+)$", code)}
        assert asked <= made, page.name


def test_what_is_not_there_is_told():
    assert unknown_options(["nadpvi infer --draws 5 --drawz"]) == {"--drawz"}
    assert unknown_names(["na.infer(release)", "na.infr", "nadpvi.coverage.tarp_", "nadpvi.theory"]) == {
        "na.infr",
        "nadpvi.coverage.tarp_",
    }
    assert missing_files(["tests/test_wall.py", "tests/test_wal.py", "docs/results/NAME.md"]) == {
        "tests/test_wal.py"
    }
