"""Messages name settings as Python has them; whoever typed a flag reads of the flag."""

import re
import sys
from typing import Final

__all__ = ["COMMANDS", "FLAGS", "in_flags", "running_command"]

COMMANDS: Final = frozenset(
    [
        "plan",
        "schema",
        "release",
        "resume",
        "infer",
        "fit",
        "summary",
        "predict",
        "report",
        "export",
        "coverage",
        "ledger",
        "doctor",
        "demo",
    ]
)
_RUN = ("plan", "release", "fit")
_DRAW = ("infer", "fit")
# A setting in messages, its flag, and the commands that have it: the first is named where another one runs.
FLAGS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "num_steps": ("--steps", ("release", *_RUN)),
    "num_records": ("--num-records", ("release", *_RUN)),
    "sampling_rate": ("--sampling-rate", ("release", *_RUN)),
    "clip_norm": ("--clip-norm", ("release", *_RUN)),
    "preconditioner_u": ("--preconditioner-u", ("release", *_RUN)),
    "curvature_share": ("--curvature-share", ("release", *_RUN)),
    "learning_rate_constant": ("--learning-rate-constant", ("release", *_RUN)),
    "initial_u": ("--initial-u", ("release", *_RUN)),
    "neighbouring_relation": ("--neighbouring-relation", ("release", *_RUN, "ledger")),
    "prior_term": ("--prior-term", ("release", *_RUN)),
    "prior_mean": ("--model-setting prior_mean=...", ("release", *_RUN)),
    "prior_sd": ("--prior-sd", ("release", *_RUN)),
    "predictors": ("--predictor", ("release", *_RUN, "schema")),
    "settings": ("--settings", ("release", *_RUN)),
    "insecure_seed": ("--insecure-seed", ("release", "fit", "demo")),
    "collapse": ("--collapse", ("release", "fit")),
    "burn_in": ("--burn-in", (*_DRAW, "plan", "export")),
    "phi_star_prior": ("--phi-star-prior", (*_DRAW, "export")),
    "curvature_prior": ("--curvature-prior", (*_DRAW, "export")),
    "subsampling_noise": ("--subsampling-noise", (*_DRAW, "export")),
    "adapt_delta": ("--adapt-delta", _DRAW),
    "method": ("--method", _DRAW),
    "draws": ("--draws", _DRAW),
    "chains": ("--chains", _DRAW),
    "warmup": ("--warmup", _DRAW),
    "engine": ("--engine", (*_DRAW, "demo")),
    "seed": ("--seed", (*_DRAW, "demo")),
    "epsilon": ("--epsilon", ("release", *_RUN, "demo")),
    "delta": ("--delta", ("release", *_RUN, "demo")),
    "probability": ("--probability", ("summary", "predict")),
}
_NAMES = "|".join(sorted(FLAGS, key=len, reverse=True))
# Not inside quotes, brackets, backticks or longer names: those are a user's own words.
_FREE = r"(?<![\w\"'`\[.=/-])"
_VALUE = r"'[^']*'|\"[^\"]*\"|\.\.\.|-?[\w.+-]*\w"
_PASSED = re.compile(rf"{_FREE}(config=DPVIConfig\()?({_NAMES})=({_VALUE})(?(1)\)?)")
_NAMED = re.compile(rf"{_FREE}({'|'.join(name for name in FLAGS if '_' in name)})(?![\w\"'`\]])")
_FIRST = re.compile(rf"^({_NAMES})(?= (?:must|has|replaces|was)\b)")
# What has no flag and stands beside something that has.
_WITHOUT_FLAG = " (or learning_rate_factors of these)"


def running_command() -> str | None:
    """Return the command that was typed, the first word that is no option; None in another program."""
    word = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    return word if word in COMMANDS else None


def in_flags(text: object, *, command: str | None = None) -> str:
    """Return a message with the flags of the command line in place of Python's settings.

    Where the command that runs has no such flag, the one that has it is named before it. What is quoted or in
    brackets is a user's own name, and stays.

    Parameters
    ----------
    text : object
        A message, an error or a warning.
    command : str, optional
        The command that runs; that which was typed when omitted.

    Examples
    --------
    >>> in_flags("num_steps must be a whole number of at least 1 (got 0).", command="plan")
    '--steps must be a whole number of at least 1 (got 0).'
    >>> in_flags("take more draws, or use method='dense'.", command="summary")
    'take more draws, or use infer --method dense.'
    """
    runs = running_command() if command is None else command

    def flag(name: str) -> str:
        option, commands = FLAGS[name]
        return option if runs is None or runs in commands else f"{commands[0]} {option}"

    def passed(found: re.Match[str]) -> str:
        name, value = found[2], found[3].strip("'\"")
        if value == "False":
            return flag(name).replace("--", "--no-")
        return flag(name) if value in ("True", "...") else f"{flag(name)} {value}"

    shown = _PASSED.sub(passed, str(text).replace(_WITHOUT_FLAG, ""))
    shown = _NAMED.sub(lambda found: flag(found[1]), shown)
    return _FIRST.sub(lambda found: flag(found[1]), shown)
