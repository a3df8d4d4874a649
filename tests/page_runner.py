"""Pages of the documentation, run as a reader would run them: blocks in order, in one session.

Python blocks share a namespace. Console lines are nadpvi's, and a function that is given runs them. A TOML
block that starts with a comment which is a file name is saved under it; another one is a part of a schema,
and `Schema` must take it together with the columns that the page's setup names. Lines of a text block that
begin with ``nadpvi`` are not run, since they take long or ask for more than a test has, but their options
must be there. Scripts for a shell and for R are checked elsewhere.
"""

import ast
import contextlib
import re
import shlex
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import typer.main

import nadpvi as na
from nadpvi.cli.app import app

NOT_RUN = ("make ", "source ")
ELSEWHERE = ("bash", "r")
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


def check_command(arguments: list[str]) -> None:
    """Parse a command without running it; an option that is not there, or is missing, raises."""
    command, name = typer.main.get_command(app), "nadpvi"
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        command = command.commands[name]
    if name == "nadpvi":  # its own options act when they are parsed
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(arguments) <= known, f"{arguments} are not among {known}"
    else:
        command.make_context(name, list(arguments))


def part_of_a_schema(text: str, columns: Mapping[str, object]) -> None:
    """Read a part of a schema together with the columns of the page's table."""
    na.Schema.from_dict({"columns": dict(columns)} | tomllib.loads(text))


@contextlib.contextmanager
def chance_allowed() -> Iterator[None]:
    """Releases are real, so that their diagnoses are chance: they may warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", na.InferenceWarning)
        yield


def run_page(
    path: Path,
    folder: Path,
    *,
    run: Callable[[list[str], Path], None],
    namespace: dict[str, object] | None = None,
    columns: Mapping[str, object] | None = None,
    not_run: tuple[str, ...] = (),
) -> dict[str, int]:
    """Run all blocks of a page in a folder, and count them by language.

    `namespace` has what Python blocks take to be there, `columns` those of a schema of which TOML blocks
    show a part, and a Python block with one of `not_run` in it is only compiled.
    """
    namespace = {"__name__": "page"} if namespace is None else {"__name__": "page"} | namespace
    counted: dict[str, int] = {}
    for block in blocks(path.read_text(encoding="utf-8")):
        counted[block.language] = counted.get(block.language, 0) + 1
        where = f"{path.name}, line {block.line}"
        if block.language == "python":
            # Blank lines in front give tracebacks the page's own line numbers.
            code = compile("\n" * block.line + block.text, str(path), "exec")
            if not any(text in block.text for text in not_run):
                with chance_allowed():
                    exec(code, namespace)  # noqa: S102
        elif block.language == "console":
            for arguments in commands(block.text):
                run(arguments, folder)
        elif block.language == "toml":
            name = _FILE_NAME.match(block.text)
            assert name is not None or columns is not None, f"{where}: the block does not name its file"
            if name is None:
                part_of_a_schema(block.text, columns)
            else:
                (folder / name.group(1)).write_text(block.text, encoding="utf-8")
        elif block.language == "text":
            lines = "\n".join(line for line in block.text.splitlines() if line.startswith("nadpvi "))
            for arguments in commands(lines):
                check_command(arguments)
        else:
            known = block.language in ELSEWHERE or block.language.startswith("{")
            assert known, f"{where}: what is {block.language!r}?"
    return counted


def calls(code: str) -> set[tuple[str, str]]:
    """Every call of a text with every name that it is given something by, as (function, keyword)."""
    return {
        (ast.unparse(node.func), keyword.arg)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
    }
