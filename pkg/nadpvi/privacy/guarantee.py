"""What a run promises about privacy: the budget asked for, and the guarantee on record."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nadpvi.checks import check_positive, check_real
from nadpvi.errors import ArgumentError
from nadpvi.markup import html_note, html_pairs
from nadpvi.privacy.guarantee_words import change_in_words, limits_in_words, run_in_words
from nadpvi.privacy.parameters import (
    ADD_OR_REMOVE_ONE,
    ONE_RECORD,
    check_delta,
    check_neighbouring_relation,
    check_noise_multiplier,
    check_num_steps,
    check_records_per_unit,
    check_sampling_rate,
    check_unit,
)
from nadpvi.privacy.selection import Selection

__all__ = ["Guarantee"]

_INFINITY = "infinity"
_MAY_BE_INFINITE = ("epsilon", "clip_norm")
_TEXTS = ("mechanism", "accountant", "accountant_version")
# Words of the mechanisms in `nadpvi.privacy.noise` behind which there is no promise.
_NOT_PRIVATE = ("simulation", "seeded", "no noise")
_MOST_DISCRETENESS = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The privacy guarantee of one run, with everything that it rests on. All of it is public.

    Make one with `nadpvi.privacy.guarantee_maker.make_guarantee`, which accounts the noise actually used.

    Parameters
    ----------
    is_private : bool
        False for a simulation or a run without noise; then nothing is promised, whatever the numbers.
    epsilon, delta : float
        What was accounted; epsilon is infinite and delta 0 without noise.
    noise_multiplier : float
        Noise standard deviation per unit of clip norm.
    num_steps : int
        Noisy gradients drawn, burn-in included.
    sampling_rate : float
        Probability in (0, 1] with which each record enters each step.
    clip_norm : float
        L2 bound on one record's preconditioned gradient; infinite only without noise.
    mechanism : str
        How the noise was drawn.
    accountant, accountant_version : str
        What computed epsilon.
    assumed_public : tuple of str
        What the promise takes to be public knowledge.
    discreteness : float
        xi in [0, 0.01], what accounting discrete noise as continuous costs (`nadpvi.privacy.discreteness`);
        epsilon holds 2 xi.
    reason_not_private : str or None
        Why nothing is promised; None for a private run.
    neighbouring_relation : str
        "add_or_remove_one" or "replace_one": how the data sets differ that nobody can tell apart.
    unit : str
        "one record" or "one person": what they differ by.
    records_per_unit : int
        m >= 1, 1 for a record: at most so many records of one unit are used. They enter a step together,
        each clipped, so that m clip norms are the sensitivity and noise_multiplier / m is what is accounted.
    sampler : str
        "poisson", the only one that is accounted.
    selection : Selection or None
        Given if this is the best of a random number of runs, each with these settings; epsilon is then that
        of all of them and their scores (`nadpvi.privacy.selection`).
    curvature_noise_multiplier : float or None
        Given if, after the last step, a curvature was released as well, one noisy sum over all records: the
        noise's standard deviation over what one record may add to it. Epsilon is that of both together.
    """

    is_private: bool
    epsilon: float
    delta: float
    noise_multiplier: float
    num_steps: int
    sampling_rate: float
    clip_norm: float
    mechanism: str
    accountant: str
    accountant_version: str
    assumed_public: tuple[str, ...]
    discreteness: float = 0.0
    reason_not_private: str | None = None
    neighbouring_relation: str = ADD_OR_REMOVE_ONE
    unit: str = ONE_RECORD
    records_per_unit: int = 1
    sampler: str = "poisson"
    selection: Selection | None = None
    curvature_noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.is_private, bool):
            raise ArgumentError(f"is_private must be true or false (got {self.is_private!r}).")
        _check_texts(self)
        values: dict[str, Any] = {
            "records_per_unit": check_records_per_unit(self.records_per_unit, unit=check_unit(self.unit)),
            "num_steps": check_num_steps(self.num_steps),
            "sampling_rate": check_sampling_rate(self.sampling_rate),
            "discreteness": _check_discreteness(self.discreteness),
        }
        without_noise = not self.is_private and self.noise_multiplier == 0
        # Without noise a run may go unclipped.
        if not (without_noise and self.clip_norm == math.inf):
            values["clip_norm"] = check_positive("clip_norm", self.clip_norm)
        if without_noise:
            if (self.epsilon, self.delta) != (math.inf, 0):
                raise ArgumentError("without noise, epsilon must be infinite and delta 0.")
            values |= {"noise_multiplier": 0.0, "delta": 0.0}
        else:
            values["noise_multiplier"] = check_noise_multiplier(self.noise_multiplier)
            values["delta"] = check_delta(self.delta)
            rule = "a finite number of at least 0"
            values["epsilon"] = check_real("epsilon", self.epsilon, rule=rule)
            if values["epsilon"] < 0:
                raise ArgumentError(f"epsilon must be {rule} (got {self.epsilon!r}).")
            if values["epsilon"] < 2.0 * values["discreteness"]:
                raise ArgumentError("epsilon holds twice discreteness, and must not be below that.")
        if not isinstance(self.selection, Selection | None):
            raise ArgumentError(f"selection must be a Selection (got {type(self.selection).__name__}).")
        if self.selection is not None and self.neighbouring_relation != ADD_OR_REMOVE_ONE:
            raise ArgumentError(f'a selection is accounted under "{ADD_OR_REMOVE_ONE}" only.')
        if self.curvature_noise_multiplier is not None:
            if self.selection is not None or without_noise:
                raise ArgumentError("a curvature is released by single runs with noise only.")
            values["curvature_noise_multiplier"] = check_noise_multiplier(self.curvature_noise_multiplier)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as JSON types; an infinite number is the string "infinity"."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["assumed_public"] = list(self.assumed_public)
        data["selection"] = None if self.selection is None else dataclasses.asdict(self.selection)
        for name in _MAY_BE_INFINITE:
            if data[name] == math.inf:
                data[name] = _INFINITY
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Guarantee":
        """Return the guarantee that `to_dict` gave.

        Raises
        ------
        ArgumentError
            If a key is unknown or missing, or a value is outside its range.
        """
        if not isinstance(data, Mapping):
            raise ArgumentError(f"a guarantee must be a mapping (got {type(data).__name__}).")
        known = [field.name for field in dataclasses.fields(cls)]
        if unknown := sorted(str(key) for key in data if key not in known):
            raise ArgumentError(
                f"guarantee has unknown keys {', '.join(unknown)}; known: {', '.join(known)}."
            )
        values = dict(data)
        if values.get("unit") == ONE_RECORD:
            # Files from before people were a unit do not say so.
            values.setdefault("records_per_unit", 1)
        # Nor do those from before a choice among candidates could be made.
        values.setdefault("selection", None)
        # Nor those from before a curvature could be released.
        values.setdefault("curvature_noise_multiplier", None)
        if missing := [name for name in known if name not in values]:
            raise ArgumentError(f"guarantee lacks {', '.join(missing)}.")
        for name in _MAY_BE_INFINITE:
            if values[name] == _INFINITY:
                values[name] = math.inf
        if not isinstance(values["assumed_public"], list | tuple):
            raise ArgumentError("assumed_public must be a list of texts.")
        values["assumed_public"] = tuple(values["assumed_public"])
        values["selection"] = _selection(values["selection"])
        return cls(**values)

    def _repr_html_(self) -> str:
        stamp = "Private:" if self.is_private else ""
        numbers = {
            name: value for name, value in self.to_dict().items() if isinstance(value, int | float | str)
        }
        return html_note(stamp, self.sentence(), is_good=self.is_private) + html_pairs(
            "Guarantee", numbers.items()
        )

    def _what(self) -> str:
        """Return what is released, in words."""
        return "trace" if self.curvature_noise_multiplier is None else "trace and curvature"

    def sentence(self) -> str:
        """Return one plain sentence that states the whole guarantee, for a data officer."""
        pair = f"({self.epsilon:.6g}, {self.delta:g})"
        public = ", ".join(self.assumed_public) if self.assumed_public else "nothing"
        run = run_in_words(
            unit=self.unit,
            num_steps=self.num_steps,
            sampling_rate=self.sampling_rate,
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
            mechanism=self.mechanism,
            selection=self.selection,
            curvature_noise_multiplier=self.curvature_noise_multiplier,
        )
        if not self.is_private:
            accounted = f"the settings simulated are those of (epsilon, delta) = {pair}"
            if self.epsilon == math.inf:
                accounted = "epsilon is infinite"
            return f"NOT PRIVATE, because {self.reason_not_private}: {accounted}; {run}."
        change = change_in_words(
            unit=self.unit,
            records_per_unit=self.records_per_unit,
            neighbouring_relation=self.neighbouring_relation,
        )
        limits = limits_in_words(
            unit=self.unit,
            neighbouring_relation=self.neighbouring_relation,
            is_selected=self.selection is not None,
        )
        return (
            f"{change} changes the probability of any released {self._what()} by at most a "
            f"factor exp({self.epsilon:.6g}) plus {self.delta:g} ((epsilon, delta) = {pair}; {run}; "
            f"accounted by {self.accountant}, version {self.accountant_version}; assumed public: {public}; "
            f"{limits})."
        )


def _selection(value: object) -> Selection | None:
    """Return what `to_dict` wrote of a selection, or raise `ArgumentError`."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) != {"mean_runs", "score_noise_multiplier"}:
        raise ArgumentError("selection must hold mean_runs and score_noise_multiplier, or be null.")
    return Selection(**value)


def _check_discreteness(value: object) -> float:
    """Return xi as a float in its range, or raise `ArgumentError`."""
    rule = f"between 0 and {_MOST_DISCRETENESS}"
    number = check_real("discreteness", value, rule=rule)
    if not 0.0 <= number <= _MOST_DISCRETENESS:
        raise ArgumentError(f"discreteness must be {rule} (got {value!r}).")
    return number


def _check_texts(guarantee: Guarantee) -> None:
    """Refuse texts that are not texts, what is not accounted, and a missing or idle reason."""
    for name in _TEXTS:
        value = getattr(guarantee, name)
        if not isinstance(value, str) or not value:
            raise ArgumentError(f"{name} must be a text (got {value!r}).")
        _check_printable(name, value)
    check_neighbouring_relation(guarantee.neighbouring_relation)
    if guarantee.sampler != "poisson":
        raise ArgumentError("sampler must be 'poisson', the only one that is accounted.")
    public = guarantee.assumed_public
    if not isinstance(public, tuple) or not all(isinstance(item, str) for item in public):
        raise ArgumentError("assumed_public must be a tuple of texts.")
    for item in public:
        _check_printable("assumed_public", item)
    reason = guarantee.reason_not_private
    if guarantee.is_private != (reason is None) or not isinstance(reason, str | None) or reason == "":
        raise ArgumentError("reason_not_private must be a text if is_private is false, and None otherwise.")
    _check_printable("reason_not_private", reason or "")
    if guarantee.is_private:
        _check_promising(guarantee)


def _check_printable(name: str, value: str) -> None:
    """Refuse what could write a line of its own, or move a terminal's cursor, where a guarantee is shown."""
    if not value.isprintable():
        raise ArgumentError(f"{name} must be printable, on one line (got {value!r}).")


def _check_promising(guarantee: Guarantee) -> None:
    """Refuse a promise that its own words contradict."""
    if any(word in guarantee.mechanism.lower() for word in _NOT_PRIVATE):
        raise ArgumentError(
            f"is_private must be false with a mechanism that promises nothing (got {guarantee.mechanism!r})."
        )
    if not guarantee.assumed_public:
        raise ArgumentError("assumed_public must name something: the settings of a run are never secret.")
