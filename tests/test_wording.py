"""Messages on the command line name the flag that was typed, not Python's setting."""

import pytest
import typer
from cli_cases import run_here

from nadpvi.cli import wording
from nadpvi.cli.app import app
from nadpvi.cli.wording import FLAGS, in_flags, running_command


def flags_of(command):
    """Return the long flags of a command, or of all commands of a group."""
    parts = getattr(command, "commands", {"": command}).values()
    return {flag for part in parts for option in part.params for flag in option.opts}


COMMANDS = typer.main.get_command(app).commands


def test_the_running_command_is_one_of_the_commands(monkeypatch):
    assert set(COMMANDS) == wording.COMMANDS
    for words, command in (
        (["nadpvi", "-q", "summary", "r.nc"], "summary"),
        (["pytest", "tests/test_wording.py"], None),
        (["pytest"], None),
    ):
        monkeypatch.setattr("sys.argv", words)
        assert running_command() == command


@pytest.mark.parametrize("setting", FLAGS)
def test_every_flag_of_the_table_is_there(setting):
    flag, commands = FLAGS[setting]
    for command in commands:
        assert flag.split()[0] in flags_of(COMMANDS[command]), command


def test_every_flag_with_another_spelling_is_in_the_table():
    # Options of the road's own commands: those of files and outputs are no settings.
    named = {flag.split()[0] for flag, _ in FLAGS.values()}
    settings = set().union(*(flags_of(COMMANDS[name]) for name in ("plan", "release", "infer")))
    assert {flag for flag in settings if "-" in flag[2:]} - named == {"--write-config"}


CHANGED = (
    ("release", "num_steps must be at least 1.", "--steps must be at least 1."),
    ("infer", "raise learning_rate_constant.", "raise release --learning-rate-constant."),
    ("infer", "use method='dense'.", "use --method dense."),
    ("plan", "settings='suggested' needs num_records.", "--settings suggested needs --num-records."),
    ("release", "config=DPVIConfig(clip_norm=...) instead.", "--clip-norm instead."),
    ("infer", "raise burn_in (or burn_in='auto'), or wait.", "raise --burn-in (or --burn-in auto), or wait."),
    ("export", "give subsampling_noise=False.", "give --no-subsampling-noise."),
    ("infer", "burn_in=0.9 leaves 3 steps: lower burn_in.", "--burn-in 0.9 leaves 3 steps: lower --burn-in."),
    (
        "fit",
        "raise adapt_delta (or learning_rate_factors of these), or wait.",
        "raise --adapt-delta, or wait.",
    ),
)
# A user's own names, and words that are only words.
KEPT = (
    'column "clip_norm" is not in the table.',
    "mu[burn_in], u[job[num_steps]] (got 'burn_in').",
    "too few effective draws; raise draws.",
    "the method and its settings are public.",
)


@pytest.mark.parametrize(
    ("command", "message", "shown"), [*CHANGED, *(("release", text, text) for text in KEPT)]
)
def test_settings_are_named_as_flags(command, message, shown):
    assert in_flags(message, command=command) == shown


def test_errors_and_warnings_of_a_command_name_flags(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_here("schema", "init", "age:real:0,9", "ill:binary:no,yes", "-o", "people.toml")
    plan = ["plan", "--schema", "people.toml", "--outcome", "ill", "--epsilon", "0.01", "--delta", "1e-9"]
    wrong = run_here(*plan, "--num-records", "100", "--sampling-rate", "1.5")
    assert wrong.stderr.splitlines()[-1].startswith("nadpvi: error: --sampling-rate must be in (0, 1]")
    warned = run_here(*plan, "--num-records", "100", "-q").stderr
    assert "lower --clip-norm" in warned
    assert "clip_norm" not in warned
