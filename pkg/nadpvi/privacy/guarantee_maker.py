"""The guarantee of a run, accounted from the very numbers that the run uses."""

import math

from nadpvi.checks import check_real
from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy.accounting import accountant, epsilon_accounted_afresh, epsilon_spent
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.composition import Run, composed_epsilon
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.parameters import (
    ADD_OR_REMOVE_ONE,
    ONE_RECORD,
    check_noise_multiplier,
    check_num_steps,
    check_records_per_unit,
    check_sampling_rate,
    check_unit,
)
from nadpvi.privacy.selection import Selection
from nadpvi.privacy.selection_accounting import selection_accountant, selection_epsilon

__all__ = ["make_guarantee"]


def make_guarantee(
    *,
    budget: PrivacyBudget | NonPrivate,
    noise_multiplier: float,
    num_steps: int,
    sampling_rate: float,
    clip_norm: float,
    mechanism: str,
    assumed_public: tuple[str, ...],
    unit: str = ONE_RECORD,
    records_per_unit: int = 1,
    discreteness: float = 0.0,
    reason_not_private: str | None = None,
    selection: Selection | None = None,
    curvature_noise_multiplier: float | None = None,
) -> Guarantee:
    """Return the guarantee of a run by accounting the very noise multiplier that it uses.

    Parameters
    ----------
    budget : PrivacyBudget or NonPrivate
        What the run may spend, and under which neighbouring relation.
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
    unit : str
        "one record", or "one person" if each person's records enter a step together or not at all.
    records_per_unit : int
        m, the most records of one unit that are used; noise_multiplier / m is accounted.
    discreteness : float
        xi >= 0 of `nadpvi.privacy.discreteness`: epsilon is accounted at delta * (1 - 2 xi), and rises by
        2 xi.
    reason_not_private : str, optional
        Given for a simulation: the numbers are accounted all the same, and nothing is promised.
    selection : Selection, optional
        Given if the run is the best of a random number of runs with these settings
        (`nadpvi.privacy.selection`).
    curvature_noise_multiplier : float, optional
        Given if a curvature is released after the last step: the sd of its noise over what one record may
        add. Epsilon is that of steps and curvature together, and `discreteness` the sum of both.

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
    records = check_records_per_unit(records_per_unit, unit=check_unit(unit))
    relation = ADD_OR_REMOVE_ONE
    if isinstance(budget, NonPrivate):
        if noise_multiplier != 0:
            raise PrivacyError(
                "a NonPrivate run has noise_multiplier 0; give a PrivacyBudget for a run with noise."
            )
        epsilon, delta = math.inf, 0.0
        name = version = "none"
        reason = reason_not_private or "the run had no noise"
    elif isinstance(budget, PrivacyBudget):
        delta, relation = budget.delta, budget.neighbouring_relation
        name, version, epsilon = _account(
            sigma=check_noise_multiplier(noise_multiplier) / records,
            budget=budget,
            num_steps=steps,
            sampling_rate=rate,
            discreteness=discreteness,
            selection=selection,
            is_private=reason is None,
            curvature_sigma=(
                None if curvature_noise_multiplier is None else curvature_noise_multiplier / records
            ),
        )
        if epsilon > budget.epsilon:
            raise PrivacyError(
                f"noise_multiplier {noise_multiplier:.6g} spends epsilon {epsilon:.6g}, above the budget of "
                f"{budget.epsilon:.6g}; use nadpvi.noise_multiplier for the least that suffices."
            )
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
        neighbouring_relation=relation,
        unit=unit,
        records_per_unit=records,
        selection=selection,
        curvature_noise_multiplier=curvature_noise_multiplier,
    )


def _account(
    *,
    sigma: float,
    budget: PrivacyBudget,
    num_steps: int,
    sampling_rate: float,
    discreteness: float,
    selection: Selection | None,
    is_private: bool,
    curvature_sigma: float | None,
) -> tuple[str, str, float]:
    """Return name and version of the accountant that serves a run, and epsilon."""
    relation = budget.neighbouring_relation
    if selection is not None:
        epsilon = selection_epsilon(
            noise_multiplier=sigma,
            delta=budget.delta,
            num_steps=num_steps,
            sampling_rate=sampling_rate,
            selection=selection,
            discreteness=discreteness,
            neighbouring_relation=relation,
        )
        return (*selection_accountant(), epsilon)
    # A run that promises something is accounted here and now; a file in a cache could say anything.
    names = accountant(sampling_rate, neighbouring_relation=relation)
    if curvature_sigma is not None:
        run = Run(
            noise_multiplier=sigma,
            num_steps=num_steps,
            sampling_rate=sampling_rate,
            discreteness=discreteness,
            curvature_noise_multiplier=curvature_sigma,
        )
        composed = composed_epsilon(
            [run], delta=budget.delta, neighbouring_relation=relation, is_afresh=is_private
        )
        return (*names, composed)
    account = epsilon_accounted_afresh if is_private else epsilon_spent
    epsilon = account(
        noise_multiplier=sigma,
        delta=budget.delta * (1.0 - 2.0 * discreteness),
        num_steps=num_steps,
        sampling_rate=sampling_rate,
        neighbouring_relation=relation,
    )
    return (*names, epsilon + 2.0 * discreteness)


def _check_discreteness(value: float) -> float:
    """Return xi as a float in [0, 0.01], or raise `ArgumentError`."""
    number = check_real("discreteness", value, rule="between 0 and 0.01")
    if not 0.0 <= number <= 0.01:
        raise ArgumentError(f"discreteness must be between 0 and 0.01 (got {value!r}).")
    return number
