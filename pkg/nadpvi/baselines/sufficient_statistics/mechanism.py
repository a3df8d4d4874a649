"""Bayesian inference from sufficient statistics that were released once with noise. Public side.

After Bernstein and Sheldon [1]_, [2]_: the mechanism and its guarantee.

Two mechanisms, each on the whole vector of sums at once, with independent noise for every sum:

- "laplace": (epsilon, 0)-DP, noise of scale (L1 sensitivity) / epsilon;
- "gaussian": (epsilon, delta)-DP, noise whose standard deviation the analytic Gaussian mechanism asks for.

Sums are of units that public bounds fix, never of units found in the data.

References
----------
.. [1] Bernstein and Sheldon (2018). Differentially private Bayesian inference for exponential families.
   NeurIPS 31.
.. [2] Bernstein and Sheldon (2019). Differentially private Bayesian linear regression. NeurIPS 32.
"""

import math
from dataclasses import dataclass

from nadpvi.baselines.sufficient_statistics.families import StatisticsFamily
from nadpvi.baselines.sufficient_statistics.gibbs import NoiseKind, check_noise
from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting_gaussian import gaussian_mu
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.noise import GRID_UNITS
from nadpvi.privacy.parameters import ADD_OR_REMOVE_ONE, REPLACE_ONE

__all__ = ["StatisticsGuarantee", "StatisticsMechanism", "make_statistics_mechanism"]

# What the grid of a real release may cost, as a share of epsilon and delta: `nadpvi.privacy.discreteness`.
_SLACK = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsGuarantee:
    """What the release of noisy statistics promises. All of it is public.

    Parameters
    ----------
    is_private : bool
        False for a simulation; then nothing is promised.
    epsilon, delta : float
        What is spent; delta is 0 for the Laplace mechanism.
    neighbouring_relation : str
        "add_or_remove_one": the number of records is private, and part of what was noised.
        "replace_one": it counts as public.
    sensitivity : float
        Of the whole vector, in the norm of the mechanism, L1 or L2.
    noise_scale : float
        Laplace scale or normal standard deviation of each sum's own noise.
    mechanism : str
        How the noise was drawn.
    assumed_public : tuple of str
        What the promise takes to be public knowledge.
    """

    is_private: bool
    epsilon: float
    delta: float
    neighbouring_relation: str
    sensitivity: float
    noise_scale: float
    mechanism: str
    assumed_public: tuple[str, ...]

    def sentence(self) -> str:
        """Return one plain sentence that states the guarantee.

        Examples
        --------
        >>> StatisticsGuarantee(
        ...     is_private=False, epsilon=0.1, delta=0.0, neighbouring_relation="replace_one",
        ...     sensitivity=1.0, noise_scale=10.0, mechanism="Laplace noise",
        ...     assumed_public=("schema",)).sentence()
        'NOT PRIVATE, a simulation of (0.1, 0)-DP: Laplace noise of scale 10 at sensitivity 1.'
        """
        pair = f"({self.epsilon:.6g}, {self.delta:g})"
        run = f"{self.mechanism} of scale {self.noise_scale:.6g} at sensitivity {self.sensitivity:.6g}"
        if not self.is_private:
            return f"NOT PRIVATE, a simulation of {pair}-DP: {run}."
        replaces = self.neighbouring_relation == REPLACE_ONE
        change = "Replacing one record by another" if replaces else "Adding or removing one record"
        return (
            f"{change} changes the probability of any released statistics by at most a factor "
            f"exp({self.epsilon:.6g}) plus {self.delta:g} ({run}; assumed public: "
            f"{', '.join(self.assumed_public)}; this covers one release, the budgets of further ones on the "
            "same records add up, and a person with several records is protected only record by record)."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsMechanism:
    """What is summed, and the noise that a budget asks for. Make one with `make_statistics_mechanism`.

    Parameters
    ----------
    family : StatisticsFamily
        What is summed.
    noise : "laplace" or "gaussian"
        The law of the noise.
    epsilon, delta : float
        What it spends; delta 0 with Laplace noise.
    sensitivity : float
        Of the whole vector, rounding to the grid of a real release included.
    noise_scale : float
        Laplace scale or standard deviation, in units of the statistics.
    """

    family: StatisticsFamily
    noise: NoiseKind
    epsilon: float
    delta: float
    sensitivity: float
    noise_scale: float

    @property
    def neighbouring_relation(self) -> str:
        """What neighbouring data sets differ by."""
        return REPLACE_ONE if self.family.has_public_count else ADD_OR_REMOVE_ONE

    def guarantee(self, *, is_private: bool, mechanism: str) -> StatisticsGuarantee:
        """Return what a release promises whose noise was drawn as `mechanism` says."""
        public = ["schema", "model", "bounds"]
        if self.family.has_public_count:
            public.append("number of records")
        return StatisticsGuarantee(
            is_private=is_private,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbouring_relation=self.neighbouring_relation,
            sensitivity=self.sensitivity,
            noise_scale=self.noise_scale,
            mechanism=mechanism,
            assumed_public=tuple(public),
        )


def make_statistics_mechanism(
    family: StatisticsFamily, *, privacy: PrivacyBudget, noise: NoiseKind
) -> StatisticsMechanism:
    """Return the mechanism that spends a budget on one release of all statistics.

    Parameters
    ----------
    family : StatisticsFamily
        What is summed.
    privacy : PrivacyBudget
        epsilon, delta and the neighbouring relation, which must be that of the family. Laplace noise spends
        epsilon and none of delta.
    noise : "laplace" or "gaussian"
        The law of the noise.

    Raises
    ------
    ArgumentError
        If relations differ or an argument is of the wrong type.

    Examples
    --------
    >>> from nadpvi.baselines.sufficient_statistics.counts import CountStatistics
    >>> coin = CountStatistics(codes=(1.0, 0.0), concentration=(1.0, 1.0), labels=("yes", "no"),
    ...                        has_public_count=False)
    >>> budget = PrivacyBudget(epsilon=0.1, delta=1e-5)
    >>> round(make_statistics_mechanism(coin, privacy=budget, noise="laplace").noise_scale, 4)
    10.0
    >>> round(make_statistics_mechanism(coin, privacy=budget, noise="gaussian").noise_scale, 2)
    30.75
    """
    if not isinstance(privacy, PrivacyBudget):
        raise ArgumentError(f"privacy must be a PrivacyBudget (got {type(privacy).__name__}).")
    replaces = privacy.neighbouring_relation == REPLACE_ONE
    if replaces != family.has_public_count:
        raise ArgumentError("the statistics must be those of the budget's neighbouring relation.")
    is_laplace = check_noise(noise) == "laplace"
    sensitivity = family.sensitivity("l1" if is_laplace else "l2")
    if replaces:
        # Each of two records is truncated to the grid by itself, so that a sum may change by one unit more.
        number = len(family.labels)
        sensitivity += (number if is_laplace else math.sqrt(number)) / GRID_UNITS
    if is_laplace:
        scale = sensitivity / privacy.epsilon * (1.0 + 1e-12)
    else:
        share = 1.0 - _SLACK
        scale = sensitivity / gaussian_mu(privacy.epsilon * share, privacy.delta * share)
    return StatisticsMechanism(
        family=family,
        noise=noise,
        epsilon=privacy.epsilon,
        delta=0.0 if is_laplace else privacy.delta,
        sensitivity=sensitivity,
        noise_scale=scale,
    )
