"""Whether the epsilon on record is at least what the settings on record spend.

A guarantee holds all that its accounting rests on, so that whoever reads one can account it again. What that
cannot show is whether the settings themselves are true: a file is as good as where it comes from.
"""

import functools

from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting import epsilon_accounted_afresh
from nadpvi.privacy.accounting_quick import quick_epsilon
from nadpvi.privacy.composition import Run, composed_epsilon
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.selection_accounting import selection_epsilon

__all__ = ["accounted_epsilon", "check_accounted", "check_stated"]

# `quick_epsilon` is up to this far below what is accounted, rarely more above it.
_QUICK_MARGIN = 0.01
# Versions of the accountant agree to this; with little noise its own bounds are wider.
_TOLERANCE, _LITTLE_NOISE_TOLERANCE, _LITTLE_NOISE = 1e-3, 5e-3, 0.2


def check_stated(guarantee: Guarantee) -> None:
    """Raise `ArgumentError` if the epsilon on record is plainly below what its settings spend.

    Takes hundredths of a second for subsampled runs, once a process for equal settings: epsilon is computed
    to about 1 % first, and accounted in full only where the one on record is below that, or belongs to a
    choice among runs or to a run with a curvature.
    """
    if guarantee.noise_multiplier == 0:
        return
    if guarantee.selection is None and guarantee.curvature_noise_multiplier is None:
        quick = quick_epsilon(
            noise_multiplier=guarantee.noise_multiplier / guarantee.records_per_unit,
            delta=guarantee.delta * (1.0 - 2.0 * guarantee.discreteness),
            num_steps=guarantee.num_steps,
            sampling_rate=guarantee.sampling_rate,
            neighbouring_relation=guarantee.neighbouring_relation,
        )
        if guarantee.epsilon - 2.0 * guarantee.discreteness >= (1.0 - _QUICK_MARGIN) * quick:
            return
    check_accounted(guarantee)


def check_accounted(guarantee: Guarantee) -> None:
    """Raise `ArgumentError` if the epsilon on record is below what its settings spend, accounted in full.

    Takes up to seconds, once a process for equal settings. No number comes from the cache on disk.

    Raises
    ------
    ArgumentError
        If epsilon is more than 0.1 % too small (0.5 % for noise multipliers below 0.2), or the settings are
        none that can be accounted.
    """
    if guarantee.noise_multiplier == 0:
        return
    try:
        accounted = accounted_epsilon(guarantee)
    except ArgumentError as error:
        raise ArgumentError(f"guarantee cannot be accounted: {error}") from None
    sigma = guarantee.noise_multiplier / guarantee.records_per_unit
    tolerance = _LITTLE_NOISE_TOLERANCE if sigma < _LITTLE_NOISE else _TOLERANCE
    if guarantee.epsilon < (1.0 - tolerance) * accounted:
        raise ArgumentError(
            f"guarantee states epsilon {guarantee.epsilon:.6g} at delta {guarantee.delta:g}, but a run as it "
            f"describes spends epsilon {accounted:.6g}; do not rely on it."
        )


def accounted_epsilon(guarantee: Guarantee) -> float:
    """Return the epsilon that a run with noise spends, from everything else that its guarantee holds."""
    sigma, xi = guarantee.noise_multiplier / guarantee.records_per_unit, guarantee.discreteness
    if guarantee.selection is not None:
        return _selected(
            noise_multiplier=sigma,
            delta=guarantee.delta,
            num_steps=guarantee.num_steps,
            sampling_rate=guarantee.sampling_rate,
            selection=guarantee.selection,
            discreteness=xi,
            neighbouring_relation=guarantee.neighbouring_relation,
        )
    if guarantee.curvature_noise_multiplier is not None:
        return _composed(
            Run(
                noise_multiplier=sigma,
                num_steps=guarantee.num_steps,
                sampling_rate=guarantee.sampling_rate,
                discreteness=xi,
                curvature_noise_multiplier=guarantee.curvature_noise_multiplier / guarantee.records_per_unit,
            ),
            delta=guarantee.delta,
            neighbouring_relation=guarantee.neighbouring_relation,
        )
    epsilon = epsilon_accounted_afresh(
        noise_multiplier=sigma,
        delta=guarantee.delta * (1.0 - 2.0 * xi),
        num_steps=guarantee.num_steps,
        sampling_rate=guarantee.sampling_rate,
        neighbouring_relation=guarantee.neighbouring_relation,
    )
    return epsilon + 2.0 * xi


_selected = functools.lru_cache(maxsize=64)(selection_epsilon)


@functools.lru_cache(maxsize=64)
def _composed(run: Run, *, delta: float, neighbouring_relation: str) -> float:
    """Return the epsilon of a run with its curvature, computed once a process."""
    return composed_epsilon([run], delta=delta, neighbouring_relation=neighbouring_relation, is_afresh=True)
