"""What --help shows: the road in order, a summary of one line each, and examples that would run."""

import re
import shlex
from pathlib import Path

import pytest
from cli_cases import run_here
from typer.main import get_command

from nadpvi.cli.app import app

ROAD = (
    *("schema", "plan", "release", "resume", "infer", "fit", "summary", "predict", "report", "export"),
    *("coverage", "ledger", "doctor", "demo"),
)


def commands(group=None, *, name=()):
    """Return every command that runs, by the words that name it."""
    group = get_command(app) if group is None else group
    found = {}
    for word, command in group.commands.items():
        nested = hasattr(command, "commands")
        found |= commands(command, name=(*name, word)) if nested else {(*name, word): command}
    return found


COMMANDS = commands()


def test_the_road_is_listed_in_order_with_whole_summaries():
    shown = run_here("--help")
    assert shown.returncode == 0
    listed = re.findall(r"^  ([a-z]+)  +(.*)$", shown.stdout.split("Commands:")[1], flags=re.M)
    names = [name for name, _ in listed]
    assert names == [name for name in ROAD if name in names]
    assert {name[0] for name in COMMANDS} == set(names)
    for _, summary in listed:
        assert summary.endswith(".")
        assert not summary.endswith("...")


@pytest.mark.parametrize("name", sorted(COMMANDS), ids=" ".join)
def test_every_command_has_an_example_that_it_understands(name):
    shown = run_here(*name, "--help").stdout
    text = shown.split("Example:")[1].split("\n\n")[0].replace("\\\n", " ")
    examples = [words for words in map(shlex.split, text.splitlines()) if words]
    assert examples
    for words in examples:
        assert words[: len(name) + 1] == ["nadpvi", *name]
        COMMANDS[name].make_context(" ".join(name), words[len(name) + 1 :])


@pytest.mark.parametrize("name", sorted(COMMANDS), ids=" ".join)
def test_every_parameter_is_explained(name):
    for parameter in COMMANDS[name].params:
        assert parameter.help or parameter.name == "help"


def test_no_command_at_all_is_a_question():
    done = run_here()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Commands:" in done.stderr


@pytest.mark.parametrize("name", sorted(COMMANDS), ids=" ".join)
def test_every_command_is_in_the_documentation_with_an_example(name):
    page = (Path(__file__).parents[1] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"`{' '.join(name)}`" in page
    fenced = "\n".join(re.findall(r"^```(?:console|text)\n(.*?)^```$", page, flags=re.S | re.M))
    assert re.search(rf"^nadpvi {' '.join(name)}\b", fenced, flags=re.M)
