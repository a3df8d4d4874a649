"""Privacy of several runs of DP-SGD on the same records, composed through their privacy losses.

Epsilons do not add up: the loss of all runs together is the sum of independent losses, and epsilon is read
off the tail of that sum. Full-batch runs are Gaussian mechanisms, whose ``mu`` add in squares; subsampled
ones are composed on grids (`nadpvi.privacy.composition_pld`).

What a run does does not depend on the neighbouring relation that its guarantee states, so that all runs are
accounted under the one that is asked for. The unit of privacy is another matter: a run that enters every
record by itself says nothing about people who have several, so runs of unlike units are not composed.

Choices among candidates (`nadpvi.privacy.selection`) are accounted through Renyi divergences, other runs
through privacy losses, which do not compose with each other: where there are both, each kind is accounted at
half of delta and the two epsilons are added. That holds in whatever order they happened: a step of a single
run is a randomised image of its worst pair of outputs, and these may all be drawn before anything else.

A later run may depend on what earlier ones released in everything but its noise multiplier, sampling rate and
number of steps: these are taken as chosen without regard to earlier outcomes.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nadpvi.checks import check_count, check_real
from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy.accounting import epsilon_accounted_afresh, epsilon_spent
from nadpvi.privacy.accounting_bounds import full_batch_mu, total_variation
from nadpvi.privacy.accounting_cache import cached_number
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon
from nadpvi.privacy.accounting_pld import MAX_STEPS, MIN_NOISE, smallest_delta
from nadpvi.privacy.composition_pld import PART_STEPS, compose_runs
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.parameters import (
    ADD_OR_REMOVE_ONE,
    ONE_RECORD,
    check_delta,
    check_neighbouring_relation,
    check_noise_multiplier,
    check_num_steps,
    check_sampling_rate,
    check_unit,
)
from nadpvi.privacy.selection import Selection
from nadpvi.privacy.selection_accounting import SelectedRun, composed_selection_epsilon

__all__ = ["Run", "check_same_unit", "composed_epsilon"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the accountant needs to know of a run of DP-SGD.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation over what one unit of privacy may add to a sum: per clip norm for a record,
        per m clip norms for a person with up to m records. At least 0.001, or 0.02 when sampling_rate < 1.
    num_steps : int
        Number of noisy gradients drawn, >= 1.
    sampling_rate : float
        Poisson inclusion probability in (0, 1].
    count : int
        How many such runs there were, >= 1.
    discreteness : float
        xi of each run, in [0, 0.01]: its discrete noise is accounted as continuous at this price
        (`nadpvi.privacy.discreteness`).
    unit : str
        "one record" or "one person".
    selection : Selection or None
        Given if this is the best of a random number of such runs.
    curvature_noise_multiplier : float or None
        Given if each run ended with a noisy curvature, one sum over all records: its noise's standard
        deviation over what one unit of privacy may add to it.
    """

    noise_multiplier: float
    num_steps: int
    sampling_rate: float
    count: int = 1
    discreteness: float = 0.0
    unit: str = ONE_RECORD
    selection: Selection | None = None
    curvature_noise_multiplier: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", check_noise_multiplier(self.noise_multiplier))
        if self.curvature_noise_multiplier is not None:
            if self.selection is not None:
                raise ArgumentError("a choice among candidates releases no curvature.")
            checked = check_noise_multiplier(self.curvature_noise_multiplier)
            object.__setattr__(self, "curvature_noise_multiplier", checked)
        object.__setattr__(self, "num_steps", check_num_steps(self.num_steps))
        object.__setattr__(self, "sampling_rate", check_sampling_rate(self.sampling_rate))
        object.__setattr__(self, "count", check_count("count", self.count))
        rule = "in [0, 0.01]"
        object.__setattr__(self, "discreteness", check_real("discreteness", self.discreteness, rule=rule))
        if not 0.0 <= self.discreteness <= 0.01:
            raise ArgumentError(f"discreteness must be {rule} (got {self.discreteness!r}).")
        check_unit(self.unit)
        if not isinstance(self.selection, Selection | None):
            raise ArgumentError(f"selection must be a Selection (got {type(self.selection).__name__}).")
        if self.selection is None and self.sampling_rate < 1 and self.noise_multiplier < MIN_NOISE:
            raise ArgumentError(
                f"noise_multiplier must be at least {MIN_NOISE} when sampling_rate is below 1 "
                f"(got {self.noise_multiplier:.6g})."
            )

    @classmethod
    def from_guarantee(cls, guarantee: Guarantee, *, num_steps: int | None = None) -> "Run":
        """Return the run behind a guarantee, cut to the first `num_steps` steps if given.

        A run that is cut has not come to its curvature, which follows the last step.

        Raises
        ------
        PrivacyError
            If the guarantee promises nothing, or its records were sampled otherwise than is composed here.
        """
        if not guarantee.is_private:
            raise PrivacyError("a run that is not private cannot be composed with private ones.")
        if guarantee.sampler != "poisson":
            raise PrivacyError(f"a run with the sampler {guarantee.sampler} cannot be composed with others.")
        steps = guarantee.num_steps if num_steps is None else check_num_steps(num_steps)
        curvature = guarantee.curvature_noise_multiplier if steps >= guarantee.num_steps else None
        return cls(
            noise_multiplier=guarantee.noise_multiplier / guarantee.records_per_unit,
            num_steps=steps,
            sampling_rate=guarantee.sampling_rate,
            # The price of discrete noise is in proportion to the number of steps.
            discreteness=guarantee.discreteness * min(1.0, steps / guarantee.num_steps),
            unit=guarantee.unit,
            selection=guarantee.selection,
            curvature_noise_multiplier=(
                None if curvature is None else curvature / guarantee.records_per_unit
            ),
        )


def check_same_unit(runs: Sequence[Run]) -> None:
    """Raise `PrivacyError` if runs protect unlike units, so that no one number covers them together."""
    if len({run.unit for run in runs}) > 1:
        raise PrivacyError(
            "runs that protect one record and runs that protect one person cannot be accounted together; "
            "keep a ledger for each unit."
        )


def composed_epsilon(
    runs: Sequence[Run],
    *,
    delta: float,
    neighbouring_relation: str = ADD_OR_REMOVE_ONE,
    is_afresh: bool = False,
) -> float:
    """Return the epsilon at `delta` of all runs together on the same records.

    Parameters
    ----------
    runs : sequence of Run
        In any order, chosen one after the other or at once; none spends nothing.
    delta : float
        In (0, 1).
    neighbouring_relation : str
        "add_or_remove_one" or "replace_one", whatever the runs' own guarantees state.
    is_afresh : bool
        Compute every number here and now, without the cache on disk: for a guarantee, which no file may
        decide.

    Returns
    -------
    float
        An upper bound >= 0 on the exact epsilon, within about 0.1 % of it.

    Raises
    ------
    ArgumentError
        If `delta` is too small, or the runs too many or too noisy, to be accounted.
    PrivacyError
        If some runs protect one record and others one person, or if a choice among candidates is to be
        accounted under "replace_one".

    Examples
    --------
    >>> run = Run(noise_multiplier=20.0, num_steps=100, sampling_rate=1)
    >>> round(composed_epsilon([run] * 4, delta=1e-5), 6)
    4.377178
    """
    delta, relation = check_delta(delta), check_neighbouring_relation(neighbouring_relation)
    for run in runs:
        if not isinstance(run, Run):
            raise ArgumentError(f"runs must hold Run objects (got {type(run).__name__}).")
    check_same_unit(runs)
    chosen = [run for run in runs if run.selection is not None]
    single = [run for run in runs if run.selection is None]
    share = delta / 2 if chosen and single else delta
    epsilon = _single_epsilon(single, delta=share, relation=relation, is_afresh=is_afresh) if single else 0.0
    if chosen:
        selected = [_selected(run) for run in chosen for _ in range(run.count)]
        epsilon += composed_selection_epsilon(selected, delta=share, neighbouring_relation=relation)
    return epsilon


def _selected(run: Run) -> SelectedRun:
    """Return one choice among candidates as its accountant sees it."""
    if run.selection is None:
        raise ArgumentError("the run is no choice among candidates.")
    return SelectedRun(
        selection=run.selection,
        noise_multiplier=run.noise_multiplier,
        num_steps=run.num_steps,
        sampling_rate=run.sampling_rate,
        discreteness=run.discreteness,
    )


def _single_epsilon(runs: Sequence[Run], *, delta: float, relation: str, is_afresh: bool) -> float:
    """Return the epsilon at `delta` of runs each of which is released."""
    steps: Counter[tuple[float, float]] = Counter()
    discreteness = 0.0
    for run in runs:
        steps[run.noise_multiplier, run.sampling_rate] += run.num_steps * run.count
        if run.curvature_noise_multiplier is not None:
            steps[run.curvature_noise_multiplier, 1.0] += run.count
        discreteness += run.discreteness * run.count
    if 2.0 * discreteness >= 1.0:
        raise ArgumentError("the runs are too many, or their noise too coarse, to be accounted together.")
    # The factors exp(xi) between discrete and continuous traces of independent runs multiply.
    lengths = {run.num_steps for run in runs}
    usable = delta * (1.0 - 2.0 * discreteness)
    continuous = _continuous_epsilon(
        steps, delta=usable, lengths=lengths, relation=relation, is_afresh=is_afresh
    )
    return continuous + 2.0 * discreteness


def _continuous_epsilon(
    steps: Mapping[tuple[float, float], int],
    *,
    delta: float,
    lengths: Collection[int],
    relation: str,
    is_afresh: bool,
) -> float:
    """Return epsilon for numbers of steps by noise multiplier and rate; single runs had these `lengths`."""
    groups = sorted((sigma, rate, number) for (sigma, rate), number in steps.items())
    mu = math.hypot(
        *(full_batch_mu(sigma, num_steps=n, relation=relation) for sigma, rate, n in groups if rate == 1.0)
    )
    subsampled = [group for group in groups if group[1] < 1.0]
    if not subsampled:
        return gaussian_epsilon(mu, delta) if mu > 0 else 0.0
    if total_variation(groups, relation) <= delta:
        return 0.0
    if len(groups) == 1:
        sigma, rate, number = groups[0]
        # The accountant of one run may fail on many runs that it resolves singly; parts serve those.
        is_within_reach = number <= PART_STEPS or number in lengths
        if is_within_reach and number <= MAX_STEPS and delta >= smallest_delta(number):
            spent = epsilon_accounted_afresh if is_afresh else epsilon_spent
            return spent(
                noise_multiplier=sigma,
                delta=delta,
                num_steps=number,
                sampling_rate=rate,
                neighbouring_relation=relation,
            )

    def compute() -> float:
        return compose_runs(subsampled, gaussian_mu=mu, delta=delta, neighbouring_relation=relation)

    if is_afresh:
        return compute()
    inputs: dict[str, float | str] = {"delta": delta, "gaussian_mu": mu, "neighbouring_relation": relation}
    for i, (sigma, rate, number) in enumerate(subsampled):
        inputs |= {f"noise_multiplier_{i}": sigma, f"sampling_rate_{i}": rate, f"num_steps_{i}": number}
    return cached_number("composed_epsilon", inputs, compute=compute)
