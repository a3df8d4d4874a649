"""What a run may spend: a privacy budget, or the explicit choice of no privacy at all."""

from dataclasses import dataclass

from nadpvi.privacy.parameters import (
    ADD_OR_REMOVE_ONE,
    check_delta,
    check_epsilon,
    check_neighbouring_relation,
)

__all__ = ["NonPrivate", "PrivacyBudget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyBudget:
    """The (epsilon, delta) that one run may spend, and between which data sets it holds.

    Parameters
    ----------
    epsilon : float
        Finite and > 0.
    delta : float
        In (0, 1); choose it far below one over the number of records.
    neighbouring_relation : str
        "add_or_remove_one": nobody can tell whether one unit (a record, or a person) is there at all.
        "replace_one": nobody can tell its values, while the number of units counts as public.

    Raises
    ------
    ArgumentError
        If a value is outside its range.

    Examples
    --------
    >>> PrivacyBudget(epsilon=1, delta=1e-5)
    PrivacyBudget(epsilon=1.0, delta=1e-05, neighbouring_relation='add_or_remove_one')
    """

    epsilon: float
    delta: float
    neighbouring_relation: str = ADD_OR_REMOVE_ONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta))
        check_neighbouring_relation(self.neighbouring_relation)


@dataclass(frozen=True, slots=True, kw_only=True)
class NonPrivate:
    """The explicit switch for a run without noise: epsilon is infinite and nothing is protected."""
