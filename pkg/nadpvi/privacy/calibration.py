"""From a budget to the noise of a real run: calibrated for continuous noise, plus the price of a grid."""

import functools
import math
from typing import Any

from scipy.optimize import brentq

from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting import noise_multiplier
from nadpvi.privacy.accounting_bounds import full_batch_mu
from nadpvi.privacy.accounting_gaussian import gaussian_mu
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.composition import Run, composed_epsilon
from nadpvi.privacy.discreteness import discreteness_cost
from nadpvi.privacy.noise import GRID_UNITS
from nadpvi.privacy.selection import Selection
from nadpvi.privacy.selection_accounting import selection_epsilon, selection_noise_multiplier

__all__ = ["calibrated_noise_multiplier", "calibrated_split"]

_LEAST_DELTA = 1e-100
_MOST_DOUBLINGS = 20
_SPLIT_TOLERANCE = 1e-4  # of epsilon, by which a split budget may stay below what is given


def calibrated_noise_multiplier(
    privacy: PrivacyBudget | NonPrivate,
    *,
    num_steps: int,
    sampling_rate: float,
    dimension: int,
    records_per_unit: int = 1,
    selection: Selection | None = None,
) -> tuple[float, float]:
    """Return the least sigma that keeps a run within its budget, and the price of discrete noise in it.

    Parameters
    ----------
    privacy : PrivacyBudget or NonPrivate
        `NonPrivate` gives 0 and 0.
    num_steps, sampling_rate
        T and kappa.
    dimension : int
        D.
    records_per_unit : int
        m >= 1: how many records of one unit of privacy enter a step together. Their sum has m times the
        sensitivity of one, so that sigma is m times what one record needs.
    selection : Selection, optional
        The run is the best of a random number of runs, and the budget is for all of them.

    Returns
    -------
    tuple of float
        sigma, per clip norm of one record, and xi of `nadpvi.privacy.discreteness`. The price falls as sigma
        grows, so that of a first sigma covers the second.
    """
    if isinstance(privacy, NonPrivate):
        return 0.0, 0.0
    _check_delta(privacy)
    run: dict[str, Any] = {
        "num_steps": num_steps,
        "sampling_rate": sampling_rate,
        "neighbouring_relation": privacy.neighbouring_relation,
    }
    price_of = functools.partial(discreteness_cost, grid_units=GRID_UNITS, epsilon=privacy.epsilon)
    trace_price = functools.partial(price_of, num_steps=num_steps, dimension=dimension)
    if selection is None:
        first = noise_multiplier(epsilon=privacy.epsilon, delta=privacy.delta, **run)
        price = trace_price(noise_multiplier=records_per_unit * first)
        run |= {"epsilon": privacy.epsilon - 2.0 * price, "delta": privacy.delta * (1.0 - 2.0 * price)}
        wanted = max(first, noise_multiplier(**run))
    else:
        run |= {"delta": privacy.delta, "selection": selection}
        wanted = selection_noise_multiplier(epsilon=privacy.epsilon, **run)
        price = trace_price(noise_multiplier=records_per_unit * wanted)
        price += price_of(noise_multiplier=selection.score_noise_multiplier, num_steps=1, dimension=1)
        while selection_epsilon(noise_multiplier=wanted, discreteness=price, **run) > privacy.epsilon:
            wanted *= 1.0 + 1e-6
    return _per_unit(wanted, records_per_unit), price


def calibrated_split(
    privacy: PrivacyBudget,
    *,
    share: float,
    num_steps: int,
    sampling_rate: float,
    dimension: int,
    curvature_size: int,
    records_per_unit: int = 1,
) -> tuple[float, float, float]:
    """Return the noise of a run and of the curvature released after it, within one budget.

    Privacy of many noisy steps adds up nearly as the squares of the mu of Gaussian mechanisms do [1]_: the
    steps' noise is what they would need alone over sqrt(1 - share), and the curvature's is then the least
    that both together, accounted exactly, leave room for.

    Parameters
    ----------
    privacy : PrivacyBudget
        For both together.
    share : float
        What part of mu squared the curvature may spend, in (0, 1).
    num_steps, sampling_rate, dimension, records_per_unit
        As in `calibrated_noise_multiplier`.
    curvature_size : int
        How many numbers are released of the curvature.

    Returns
    -------
    tuple of float
        sigma of the steps, per clip norm of one record; that of the curvature, per what one record may add;
        and xi of both together.

    References
    ----------
    .. [1] Dong, Roth and Su (2022). Gaussian differential privacy. JRSS B 84.
    """
    _check_delta(privacy)
    relation, epsilon = privacy.neighbouring_relation, privacy.epsilon
    whole = noise_multiplier(
        epsilon=epsilon,
        delta=privacy.delta,
        num_steps=num_steps,
        sampling_rate=sampling_rate,
        neighbouring_relation=relation,
    )
    steps = whole / math.sqrt(1.0 - share)
    curvature = full_batch_mu(1.0, num_steps=1, relation=relation) / (
        gaussian_mu(epsilon, privacy.delta) * math.sqrt(share)
    )
    # Half of the least noise that is tried bounds the price of all.
    price_of = functools.partial(discreteness_cost, grid_units=GRID_UNITS, epsilon=epsilon)
    price = price_of(noise_multiplier=records_per_unit * steps, num_steps=num_steps, dimension=dimension)
    price += price_of(
        noise_multiplier=0.5 * records_per_unit * curvature, num_steps=1, dimension=curvature_size
    )

    def excess(log_factor: float) -> float:
        run = Run(
            noise_multiplier=steps,
            num_steps=num_steps,
            sampling_rate=sampling_rate,
            discreteness=price,
            curvature_noise_multiplier=curvature * math.exp(log_factor),
        )
        spent = composed_epsilon([run], delta=privacy.delta, neighbouring_relation=relation)
        return spent / epsilon - 1.0 + 0.5 * _SPLIT_TOLERANCE

    low, high = -math.log(2.0), math.log(2.0)
    if excess(low) <= 0.0:
        found = low
    else:
        while excess(high) > 0.0:
            high += math.log(2.0)
            if high > _MOST_DOUBLINGS * math.log(2.0):
                raise ArgumentError(
                    f"curvature_share={share:g} leaves the curvature no budget to speak of; raise it."
                )
        found = float(brentq(excess, low, high, xtol=1e-6))
        while excess(found) > 0.5 * _SPLIT_TOLERANCE:
            found += 1e-5
    return (
        _per_unit(steps, records_per_unit),
        _per_unit(curvature * math.exp(found), records_per_unit),
        price,
    )


def _check_delta(privacy: PrivacyBudget) -> None:
    """Refuse a delta below what the proof of exact noise covers."""
    if privacy.delta < _LEAST_DELTA:
        raise ArgumentError(
            f"delta must be at least {_LEAST_DELTA:g} for exact noise (got {privacy.delta:g}): its proof "
            "leaves out events of smaller probability."
        )


def _per_unit(wanted: float, records_per_unit: int) -> float:
    """Return the noise per record whose quotient, which is what is accounted, is at least `wanted`."""
    total = records_per_unit * wanted
    while total / records_per_unit < wanted:  # it may round down
        total = math.nextafter(total, math.inf)
    return total
