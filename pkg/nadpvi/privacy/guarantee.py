"""What a run promises about privacy: the budget asked for, and the guarantee on record."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nadpvi.checks import check_positive, check_real
from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy.accounting import accountant, epsilon_accounted_afresh, epsilon_spent
from nadpvi.privacy.parameters import (
    check_delta,
    check_epsilon,
    check_noise_multiplier,
    check_num_steps,
    check_sampling_rate,
)

__all__ = ["Guarantee", "NonPrivate", "PrivacyBudget", "make_guarantee"]

_INFINITY = "infinity"
_MAY_BE_INFINITE = ("epsilon", "clip_norm")
_TEXTS = ("neighbouring_relation", "unit", "sampler", "mechanism", "accountant", "accountant_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyBudget:
    """The (epsilon, delta) that one run may spend.

    Parameters
    ----------
    epsilon : float
        Finite and > 0.
    delta : float
        In (0, 1); choose it far below one over the number of records.

    Examples
    --------
    >>> PrivacyBudget(epsilon=1, delta=1e-5)
    PrivacyBudget(epsilon=1.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))


@dataclass(frozen=True, slots=True, kw_only=True)
class NonPrivate:
    """The explicit switch for a run without noise: epsilon is infinite and nothing is protected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The privacy guarantee of one run, with everything that it rests on. All of it is public.

    Make one with `make_guarantee`, which accounts the noise actually used.

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
        xi >= 0, what accounting discrete noise as continuous costs (`nadpvi.privacy.discreteness`); epsilon
        holds 2 xi.
    reason_not_private : str or None
        Why nothing is promised; None for a private run.
    neighbouring_relation, unit, sampler : str
        "add_or_remove_one", "one record" and "poisson": the only ones that are accounted.
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
    neighbouring_relation: str = "add_or_remove_one"
    unit: str = "one record"
    sampler: str = "poisson"

    def __post_init__(self) -> None:
        if not isinstance(self.is_private, bool):
            raise ArgumentError(f"is_private must be true or false (got {self.is_private!r}).")
        _check_texts(self)
        values: dict[str, Any] = {
            "num_steps": check_num_steps(self.num_steps),
            "sampling_rate": check_sampling_rate(self.sampling_rate),
            "discreteness": check_real(
                "discreteness", self.discreteness, rule="a finite number of at least 0"
            ),
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
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as JSON types; an infinite number is the string "infinity"."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["assumed_public"] = list(self.assumed_public)
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
        if missing := [name for name in known if name not in data]:
            raise ArgumentError(f"guarantee lacks {', '.join(missing)}.")
        values = dict(data)
        for name in _MAY_BE_INFINITE:
            if values[name] == _INFINITY:
                values[name] = math.inf
        if not isinstance(values["assumed_public"], list | tuple):
            raise ArgumentError("assumed_public must be a list of texts.")
        values["assumed_public"] = tuple(values["assumed_public"])
        return cls(**values)

    def sentence(self) -> str:
        """Return one plain sentence that states the whole guarantee, for a data officer."""
        pair = f"({self.epsilon:.6g}, {self.delta:g})"
        public = ", ".join(self.assumed_public) if self.assumed_public else "nothing"
        run = (
            f"{self.num_steps} noisy gradients, each over a Poisson sample that every record enters "
            f"independently with probability {self.sampling_rate:g}, clipped to L2 norm {self.clip_norm:.6g} "
            f"per record, with noise of {self.noise_multiplier:g} clip norms ({self.mechanism})"
        )
        if not self.is_private:
            accounted = f"the settings simulated are those of (epsilon, delta) = {pair}"
            if self.epsilon == math.inf:
                accounted = "epsilon is infinite"
            return f"NOT PRIVATE, because {self.reason_not_private}: {accounted}; {run}."
        return (
            f"Adding or removing {self.unit} changes the probability of any released trace by at most a "
            f"factor exp({self.epsilon:.6g}) plus {self.delta:g} ((epsilon, delta) = {pair}; {run}; "
            f"accounted by {self.accountant}, version {self.accountant_version}; assumed public: {public}; "
            "this covers one run, the budgets of further runs on the same records add up, and a person with "
            "several records is protected only record by record)."
        )


def make_guarantee(
    *,
    budget: PrivacyBudget | NonPrivate,
    noise_multiplier: float,
    num_steps: int,
    sampling_rate: float,
    clip_norm: float,
    mechanism: str,
    assumed_public: tuple[str, ...],
    discreteness: float = 0.0,
    reason_not_private: str | None = None,
) -> Guarantee:
    """Return the guarantee of a run by accounting the very noise multiplier that it uses.

    Parameters
    ----------
    budget : PrivacyBudget or NonPrivate
        What the run may spend.
    noise_multiplier : float
        Noise standard deviation per unit of clip norm; 0 exactly for `NonPrivate`.
    num_steps : int
        Every noisy gradient that is drawn, burn-in included.
    sampling_rate : float
        Poisson inclusion probability in (0, 1].
    clip_norm : float
        L2 bound > 0 on one record's preconditioned gradient.
    mechanism : str
        How the noise is drawn, in words.
    assumed_public : tuple of str
        What the promise takes to be public, such as "schema".
    discreteness : float
        xi >= 0 of `nadpvi.privacy.discreteness`: epsilon is accounted at delta * (1 - 2 xi), and rises by
        2 xi.
    reason_not_private : str, optional
        Given for a simulation: the numbers are accounted all the same, and nothing is promised.

    Raises
    ------
    ArgumentError
        If an argument is outside its range.
    PrivacyError
        If the noise is too small for the budget, or noise and budget contradict each other.

    Examples
    --------
    >>> guarantee = make_guarantee(
    ...     budget=PrivacyBudget(epsilon=4.4, delta=1e-5), noise_multiplier=10.0, num_steps=100,
    ...     sampling_rate=1, clip_norm=2.0, mechanism="discrete Gaussian", assumed_public=("schema",))
    >>> round(guarantee.epsilon, 6)
    4.377178
    """
    reason = reason_not_private
    steps, rate = check_num_steps(num_steps), check_sampling_rate(sampling_rate)
    discreteness = _check_discreteness(discreteness)
    if isinstance(budget, NonPrivate):
        if noise_multiplier != 0:
            raise PrivacyError(
                "a NonPrivate run has noise_multiplier 0; give a PrivacyBudget for a run with noise."
            )
        epsilon, delta = math.inf, 0.0
        name = version = "none"
        reason = reason_not_private or "the run had no noise"
    elif isinstance(budget, PrivacyBudget):
        delta = budget.delta
        # A run that promises something is accounted here and now; a file in a cache could say anything.
        account = epsilon_spent if reason is not None else epsilon_accounted_afresh
        epsilon = account(
            noise_multiplier=noise_multiplier,
            delta=delta * (1.0 - 2.0 * discreteness),
            num_steps=steps,
            sampling_rate=rate,
        )
        epsilon += 2.0 * discreteness
        if epsilon > budget.epsilon:
            raise PrivacyError(
                f"noise_multiplier {noise_multiplier:.6g} spends epsilon {epsilon:.6g}, above the budget of "
                f"{budget.epsilon:.6g}; use nadpvi.noise_multiplier for the least that suffices."
            )
        name, version = accountant(rate)
    else:
        raise ArgumentError(f"budget must be a PrivacyBudget or NonPrivate() (got {type(budget).__name__}).")
    return Guarantee(
        is_private=reason is None,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        num_steps=steps,
        sampling_rate=rate,
        clip_norm=clip_norm,
        mechanism=mechanism,
        accountant=name,
        accountant_version=version,
        assumed_public=assumed_public,
        discreteness=discreteness,
        reason_not_private=reason,
    )


def _check_discreteness(value: float) -> float:
    """Return xi as a float in [0, 0.01], or raise `ArgumentError`."""
    number = check_real("discreteness", value, rule="between 0 and 0.01")
    if not 0.0 <= number <= 0.01:
        raise ArgumentError(f"discreteness must be between 0 and 0.01 (got {value!r}).")
    return number


def _check_texts(guarantee: Guarantee) -> None:
    """Refuse texts that are not texts, relations that are not accounted, and a missing or idle reason."""
    for name in _TEXTS:
        value = getattr(guarantee, name)
        if not isinstance(value, str) or not value:
            raise ArgumentError(f"{name} must be a text (got {value!r}).")
    fixed = {"neighbouring_relation": "add_or_remove_one", "unit": "one record", "sampler": "poisson"}
    for name, only in fixed.items():
        if getattr(guarantee, name) != only:
            raise ArgumentError(f"{name} must be {only!r}, the only one that is accounted.")
    public = guarantee.assumed_public
    if not isinstance(public, tuple) or not all(isinstance(item, str) for item in public):
        raise ArgumentError("assumed_public must be a tuple of texts.")
    reason = guarantee.reason_not_private
    if guarantee.is_private != (reason is None) or not isinstance(reason, str | None) or reason == "":
        raise ArgumentError("reason_not_private must be a text if is_private is false, and None otherwise.")
