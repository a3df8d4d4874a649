"""What a shell completes, asked the way the shell asks."""

import os
import subprocess
import sys

import pytest
from typer.main import get_command

from nadpvi.cli.app import app
from nadpvi.guides import guide_by_name
from nadpvi.inference.methods import METHODS
from nadpvi.models import MODELS
from nadpvi.planning.resolve import SETTINGS


def ask(instruction, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "nadpvi"],
        env={**os.environ, "_NADPVI_COMPLETE": instruction, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("nadpvi re", {"release", "resume"}),
        ("nadpvi infer --met", {"--method"}),
        ("nadpvi infer --method ex", {"exact"}),
    ],
)
def test_bash_is_offered_what_fits(words, offered):
    found = ask("complete_bash", COMP_WORDS=words, COMP_CWORD=str(words.count(" ")))
    assert set(found.split()) >= offered
    assert all(word.startswith(words.split()[-1]) for word in found.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_that_is_installed_asks_nadpvi(shell):
    script = ask(f"source_{shell}")
    assert "_NADPVI_COMPLETE" in script
    assert f"complete_{shell}" in script


@pytest.mark.parametrize(
    ("command", "option", "known"),
    [
        ("release", "model", MODELS),
        ("infer", "method", ["auto", *METHODS]),
        ("plan", "settings", SETTINGS),
        ("fit", "guide", ["mean_field", "full_rank", "low_rank"]),
        ("coverage", "name", ["beta-bernoulli"]),
    ],
)
def test_names_are_those_that_are_known(command, option, known):
    (parameter,) = (each for each in get_command(app).commands[command].params if each.name == option)
    offered = [item.value for item in parameter.shell_complete(None, "")]
    assert set(offered) >= set(known)
    first = sorted(known)[0]
    assert [item.value for item in parameter.shell_complete(None, first[:4])] == [
        name for name in offered if name.startswith(first[:4])
    ]
    if option == "guide":
        assert {guide_by_name(f"{n}:2" if n == "low_rank" else n).kind for n in offered} == set(offered)
