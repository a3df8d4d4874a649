"""From a budget to the noise of a real run: calibrated for continuous noise, plus the price of a grid."""

import functools
import math
from typing import Any

from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting import noise_multiplier
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.discreteness import discreteness_cost
from nadpvi.privacy.noise import GRID_UNITS
from nadpvi.privacy.selection import Selection
from nadpvi.privacy.selection_accounting import selection_epsilon, selection_noise_multiplier

__all__ = ["calibrated_noise_multiplier"]

_LEAST_DELTA = 1e-100


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
    if privacy.delta < _LEAST_DELTA:
        raise ArgumentError(
            f"delta must be at least {_LEAST_DELTA:g} for exact noise (got {privacy.delta:g}): its proof "
            "leaves out events of smaller probability."
        )
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
    total = records_per_unit * wanted
    while total / records_per_unit < wanted:  # what is accounted is the quotient, which may round down
        total = math.nextafter(total, math.inf)
    return total, price
