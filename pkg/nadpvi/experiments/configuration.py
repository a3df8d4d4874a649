"""What an experiment is: a TOML file, checked, and cut into tasks."""

import dataclasses
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from nadpvi.checks import check_count
from nadpvi.config import DPVIConfig
from nadpvi.coverage.ranks import MIN_DRAWS
from nadpvi.errors import ArgumentError, FileError, NadpviError
from nadpvi.experiments.blocks import SUGGESTED
from nadpvi.experiments.finding import find_experiment
from nadpvi.experiments.methods import METHODS
from nadpvi.experiments.sources import check_source
from nadpvi.experiments.tasks import Task
from nadpvi.inference.api import check_inference
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.randomness import check_seed

__all__ = ["Arm", "Experiment", "load_experiment"]

_ARM_KEYS = {
    "settings",
    "label",
    "epsilon",
    "methods",
    "replicates",
    "block",
    "draws",
    "warmup",
    "infer",
    "source",
}
_ARM_KINDS: tuple[tuple[str, type, str], ...] = (
    ("settings", str, "the name of a table under settings"),
    ("label", str, "a text"),
    ("methods", list, 'a list of names, such as ["exact"]'),
    ("infer", dict, "a table of arguments"),
    ("source", dict, "a table of arguments"),
)
_INFER_KEYS = {"burn_in", "phi_star_prior", "curvature_prior", "subsampling_noise"}
_KEYS = {
    "title",
    "expected",
    "found",
    "seed",
    "references",
    "delta",
    "source",
    "settings",
    "arms",
    "small",
    "draws",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One cell of an experiment: some methods on the same simulated releases.

    Attributes
    ----------
    label : str
        The settings' name, the arm's own label if it has one, and epsilon.
    settings : mapping
        Arguments of `nadpvi.DPVIConfig`, and whether they change what `nadpvi.suggest_config` returns.
    epsilon, delta : float
        Budget of every release.
    methods : tuple of str
        Among ``nadpvi.experiments.methods.METHODS``.
    source : mapping
        Where tables come from: ``kind`` and its arguments.
    replicates, block : int
        How many simulated tables, and how many of them make a task.
    draws, warmup : int
        Posterior draws scored per table, in one chain, and warm-up of methods with chains.
    infer : mapping
        Further arguments of `nadpvi.infer`.
    """

    label: str
    settings: Mapping[str, Any]
    epsilon: float
    delta: float
    methods: tuple[str, ...]
    source: Mapping[str, Any]
    replicates: int
    block: int
    draws: int
    warmup: int
    infer: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Settings, epsilon and number of tables."""
        return f"{self.label}, {self.replicates:,} tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment. Make it with `load_experiment`.

    Attributes
    ----------
    name : str
        Name of its file; of the small version with ``-small`` behind it.
    folder : str
        What the folder of its finished tasks is called.
    command : str
        What runs it.
    title, expected, found : str
        For the report: what is measured, what was expected, and what came out.
    seed : int
        All randomness comes from it.
    references : int
        Reference points of TARP per table.
    arms : tuple of Arm
    """

    name: str
    folder: str
    command: str
    title: str
    expected: str
    found: str
    seed: int
    references: int
    arms: tuple[Arm, ...]

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks, arm after arm; one is a block of replicates with all methods of its arm."""
        return tuple(task for number, arm in enumerate(self.arms) for task in self._tasks_of(number, arm))

    def _tasks_of(self, number: int, arm: Arm) -> Iterator[Task]:
        shared = dataclasses.asdict(arm)
        for name in ("label", "replicates", "block"):
            shared.pop(name)
        shared["methods"] = list(arm.methods)
        for first in range(0, arm.replicates, arm.block):
            count = min(arm.block, arm.replicates - first)
            settings = {**shared, "references": self.references, "first": first, "count": count}
            yield Task(name=f"{number:02d}-{first:06d}", settings=settings, seed=(self.seed,))


def load_experiment(name: str, *, is_small: bool = False) -> Experiment:
    """Return an experiment by name or path.

    Parameters
    ----------
    name : str
        As for `find_experiment`.
    is_small : bool
        Take what the file's table ``small`` sets in place of the arms' own values: the version that tests
        run.

    Raises
    ------
    FileError
        If there is no such file, or it is no TOML.
    ArgumentError
        If an entry is missing, unknown or out of range; the message names it.
    """
    path = find_experiment(name)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise FileError(f"{path.name}: cannot be read as TOML: {error}.") from None
    try:
        made = _experiment(path.stem, data, is_small=is_small)
    except NadpviError as error:
        raise ArgumentError(f"{path.name}: {error}") from None
    flag = " --small" if is_small else ""
    # Files of one stem in two places are two experiments, each with a folder of its own.
    own = f"-{sha256(str(path.resolve()).encode()).hexdigest()[:8]}" if name.endswith(".toml") else ""
    return dataclasses.replace(
        made,
        name=path.stem + flag.replace(" -", ""),
        folder=path.stem + own + flag.replace(" -", ""),
        command=f"nadpvi coverage {shlex.quote(name)}{flag}",
    )


def _experiment(name: str, data: dict[str, Any], *, is_small: bool) -> Experiment:
    """Return the checked experiment."""
    _refuse_unknown("the experiment", data, _KEYS)
    for key in ("title", "seed", "source", "settings", "arms"):
        if key not in data:
            raise ArgumentError(f"the experiment needs {key!r}.")
    for key in ("source", "settings", "small"):
        _check_kind(key, data.get(key, {}), dict, f"a table, [{key}]")
    _check_kind("arms", data["arms"], list, "a list of tables, each under [[arms]]")
    if not data["arms"]:
        raise ArgumentError("arms must hold at least one table, under [[arms]].")
    small = data.get("small", {}) if is_small else {}
    _refuse_unknown("small", small, {"replicates", "draws", "warmup", "settings", "block", "epsilon"})
    arms = [arm for entry in data["arms"] for arm in _arms(entry, data=data, small=small)]
    _check_labels(arms)
    return Experiment(
        name=name,
        folder=name,
        command="",
        title=str(data["title"]),
        expected=str(data.get("expected", "")).strip(),
        found=str(data.get("found", "")).strip(),
        seed=check_seed("seed", data["seed"]),
        references=check_count("references", data.get("references", 20)),
        arms=tuple(arms),
    )


def _arms(entry: dict[str, Any], *, data: dict[str, Any], small: dict[str, Any]) -> Iterator[Arm]:
    """Yield an arm for each epsilon of an entry of the file."""
    _check_kind("arms", entry, dict, "a list of tables, each under [[arms]]")
    _refuse_unknown("an arm", entry, _ARM_KEYS)
    for key in ("settings", "epsilon", "methods", "replicates"):
        if key not in entry:
            raise ArgumentError(f"every arm needs {key!r}.")
    for key, kind, what in _ARM_KINDS:
        if key in entry:
            _check_kind(key, entry[key], kind, what)
    label = entry["settings"]
    if label not in data["settings"]:
        raise ArgumentError(f"settings {label!r} are not defined: choose from {sorted(data['settings'])}.")
    values = {"draws": data.get("draws", 1000), "warmup": 1000, "block": 50, **entry, **small}
    whole = check_count("replicates", entry["replicates"])
    values["replicates"] = min(whole, check_count("replicates", small.get("replicates", whole)))
    settings = {**data["settings"][label], **small.get("settings", {})}
    config = _checked_config(settings)
    source = dict(entry.get("source", {}))
    if source.get("kind", data["source"].get("kind")) == data["source"].get("kind"):
        source = {**data["source"], **source}
    check_source(source)
    _check_methods(entry["methods"])
    inference = entry.get("infer", {})
    _refuse_unknown("infer", inference, _INFER_KEYS)
    if inference.get("burn_in") == "auto":
        raise ArgumentError('burn_in must be a number here: "auto" looks at each release by itself.')
    check_inference(num_steps=config.num_steps, method="exact", **inference)
    own = f", {entry['label']}" if "label" in entry else ""
    counts = {key: check_count(key, values[key]) for key in ("replicates", "block", "draws", "warmup")}
    if counts["draws"] < MIN_DRAWS:
        raise ArgumentError(f"draws must be at least {MIN_DRAWS} to be scored (got {counts['draws']}).")
    _check_kind("epsilon", values["epsilon"], list, "a list of numbers, such as [0.1, 1.0]")
    if not values["epsilon"]:
        raise ArgumentError("epsilon must hold at least one number.")
    for epsilon in values["epsilon"]:
        budget = PrivacyBudget(epsilon=epsilon, delta=data.get("delta", 1e-5))
        yield Arm(
            label=f"{label}{own}, epsilon {budget.epsilon:.12g}",
            settings=settings,
            epsilon=budget.epsilon,
            delta=budget.delta,
            methods=tuple(entry["methods"]),
            source=source,
            infer=dict(inference),
            **counts,
        )


def _check_labels(arms: Sequence[Arm]) -> None:
    """Raise if arms that simulate or infer differently would be told apart by nothing."""
    seen: dict[str, Arm] = {}
    for arm in arms:
        first = seen.setdefault(arm.label, arm)
        if any(getattr(arm, name) != getattr(first, name) for name in ("settings", "source", "infer")):
            raise ArgumentError(
                f"two arms are called {arm.label!r} and differ in source or infer: give each its own label."
            )


def _check_kind(name: str, value: object, kind: type, what: str) -> None:
    """Raise unless an entry of the file is of its kind."""
    if not isinstance(value, kind):
        raise ArgumentError(f"{name} must be {what} (got {value!r}).")


def _check_methods(methods: list[Any]) -> None:
    """Raise unless methods are known, and each named once."""
    if not methods or any(not isinstance(name, str) or name not in METHODS for name in methods):
        raise ArgumentError(f"methods must be among {sorted(METHODS)} (got {methods}).")
    if len(set(methods)) < len(methods):
        raise ArgumentError(f"methods must each be named once (got {methods}).")


def _checked_config(settings: Mapping[str, Any]) -> DPVIConfig:
    """Return the settings as a configuration, or raise."""
    names = {field.name for field in dataclasses.fields(DPVIConfig)}
    _refuse_unknown("settings", settings, {*names, SUGGESTED})
    given = dict(settings)
    _check_kind(SUGGESTED, given.pop(SUGGESTED, False), bool, "true or false")
    return DPVIConfig.from_dict(given)


def _refuse_unknown(what: str, values: Mapping[str, Any], known: set[str]) -> None:
    """Name the first entry that nothing reads."""
    _check_kind(what, values, dict, "a table")
    unknown = sorted(set(values) - known)
    if unknown:
        raise ArgumentError(f"{what} has no entry {unknown[0]!r}: choose from {sorted(known)}.")
