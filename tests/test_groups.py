"""Commands whose options are named in dataclasses, and step sizes that follow replaced settings."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import nadpvi as na
from nadpvi.cli.groups import with_groups
from nadpvi.errors import ArgumentError
from nadpvi.planning.pace import with_kept_pace

Size = Annotated[int, typer.Option("--size", help="How large.")]
Colour = Annotated[str, typer.Option("--colour", help="Which colour.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    size: Size
    colour: Colour = "red"


def paint(look: Look, name: Annotated[str, typer.Argument()], loud: bool = False) -> None:
    """Paint it."""
    typer.echo(f"{name} {look} {loud}")


@pytest.fixture
def invoke():
    app = typer.Typer()
    app.command()(with_groups(paint))
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def bare(look: Look) -> None:
    """As Python 3.13 has docstrings: without indentation."""


bare.__doc__ = "Paint.\n\nExample:\n  paint house \\\n    --size 3\n"


def indented(look: Look) -> None:
    r"""Paint.

    Example:
      paint house \
        --size 3
    """


class TestGroups:
    @pytest.mark.parametrize("command", [bare, indented])
    def test_lines_of_an_example_are_kept(self, command):
        app = typer.Typer(rich_markup_mode=None)
        app.command()(with_groups(command))
        shown = CliRunner().invoke(app, ["--help"]).output
        assert "  Example:\n    paint house \\\n      --size 3\n" in shown

    def test_the_dataclass_is_filled_in(self, invoke):
        done = invoke("house", "--size", "3", "--loud")
        assert done.output == "house Look(size=3, colour='red') True\n"
        assert "colour='blue'" in invoke("house", "--size", "3", "--colour", "blue").output

    def test_a_field_without_default_must_be_given(self, invoke):
        done = invoke("house")
        assert done.exit_code == 2
        assert "--size" in done.output

    def test_help_has_all_of_it_what_must_be_given_first(self, invoke):
        shown = invoke("--help").output
        assert "Paint it." in shown
        assert "look" not in shown.lower()
        places = [shown.index(text) for text in ("--size", "How large.", "--colour", "--loud")]
        assert places == sorted(places)


class TestPace:
    BASE = na.DPVIConfig(
        num_steps=300,
        sampling_rate=0.1,
        preconditioner_u=20.0,
        learning_rate=0.06,
        learning_rate_factors={"mu[a]": 0.5, "u[a]": 2.0},
    )

    @pytest.mark.parametrize("num_steps", [300, 900])
    @pytest.mark.parametrize("sampling_rate", [0.05, 0.5])
    @pytest.mark.parametrize("preconditioner_u", [5.0, 80.0])
    def test_iterates_move_as_far_in_all(self, num_steps, sampling_rate, preconditioner_u):
        def way(config, label):
            weight = config.preconditioner_u if label == "u[a]" else 1.0
            step = config.learning_rate * config.learning_rate_factors[label] * weight
            return step * config.sampling_rate * config.num_steps

        moved = with_kept_pace(
            self.BASE, num_steps=num_steps, sampling_rate=sampling_rate, preconditioner_u=preconditioner_u
        )
        assert moved.num_steps == num_steps
        for label in ("mu[a]", "u[a]"):
            assert way(moved, label) == pytest.approx(way(self.BASE, label))

    def test_fewer_steps_are_no_larger(self):
        assert with_kept_pace(self.BASE, num_steps=100).learning_rate == self.BASE.learning_rate

    def test_nothing_given_changes_nothing(self):
        assert with_kept_pace(self.BASE) == self.BASE

    def test_bad_numbers_are_named(self):
        """A rate or number of 0 would divide by zero otherwise."""
        for name in ("num_steps", "sampling_rate", "preconditioner_u"):
            with pytest.raises(ArgumentError, match=name):
                with_kept_pace(self.BASE, **{name: 0})
        with pytest.raises(ArgumentError, match="learning_rate"):
            with_kept_pace(na.DPVIConfig(), num_steps=100)
