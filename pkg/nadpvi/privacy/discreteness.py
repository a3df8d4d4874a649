"""What it costs to account discrete Gaussian noise on a fine grid as if it were continuous.

Let Z be the discrete Gaussian on the integers with parameter s, P(Z = k) proportional to exp(-k^2 / 2
s^2), and R the nearest integer to Y ~ Normal(0, s^2). Sums on the grid are integers m, and m + R is m + Y
rounded: releasing m + R is post-processing of the continuous Gaussian mechanism, whose privacy loss is
what is accounted. So only the step from R to Z has to be paid for. With f the normal density of scale s,

    P(R = k) = f(k) * integral over |t| <= 1/2 of cosh(k t / s^2) exp(-t^2 / 2 s^2) dt,

since the odd part of the exponential cancels. From 1 <= cosh(x) <= exp(x^2 / 2) and exp(-x) >= 1 - x,

    1 - 1 / (24 s^2)  <=  P(R = k) / f(k)  <=  exp(k^2 / (8 s^4)).

By Poisson summation the f(k) sum to S with 1 <= S <= 1 + 3 exp(-2 pi^2 s^2), so P(Z = k) = f(k) / S with
S = 1 far below the precision of anything here once s >= 10. Hence for |k| <= 40 s

    |log P(R = k) - log P(Z = k)|  <=  200 / s^2,

and |k| > 40 s has probability below 2 exp(-800) under either. T adaptive steps of D independent
coordinates, given records, batches and the past, multiply these ratios: the two traces' probabilities
differ by a factor within exp(+-xi), xi = 200 T D / s^2, outside an event of probability below 2 T D
exp(-800). If the continuous mechanism is (epsilon, delta)-DP, the discrete one therefore is

    (epsilon + 2 xi, exp(xi) * delta + 2 T D exp(-800) * (1 + exp(epsilon + xi)))-DP.

The last term is below 1e-30 for epsilon <= 700 and T D <= 10^13. Where it matters, at epsilon of a few tens
at most, it is below 1e-300, and the rounding of delta below covers it for any delta of at least 1e-100.

For Renyi divergences, put in the place of Z the hybrid law that is Z where |k| <= 40 s and R elsewhere,
normalised. Its ratio to R is within exp(+-xi) everywhere, and the real trace differs from its trace by at
most 2 T D exp(-800) in total variation, which goes into delta once for each run that is done.
"""

import math

from nadpvi.errors import PrivacyError

__all__ = ["discreteness_cost"]

_TAIL = 40.0
_LARGEST_COST = 1e-2
_LARGEST_EPSILON = 700.0
_MOST_VALUES = 10**13


def discreteness_cost(
    *, noise_multiplier: float, grid_units: int, num_steps: int, dimension: int, epsilon: float
) -> float:
    """Return xi, the price of accounting discrete noise as continuous.

    The discrete mechanism is (epsilon + 2 xi, delta)-DP where the continuous one is
    (epsilon, delta * (1 - 2 xi))-DP; see the module's text.

    Parameters
    ----------
    noise_multiplier : float
        sigma > 0; the noise's scale on the grid is sigma * `grid_units`.
    grid_units : int
        Grid units per clip norm.
    num_steps, dimension : int
        T and D.
    epsilon : float
        What the continuous mechanism spends.

    Raises
    ------
    PrivacyError
        If the grid is too coarse, or epsilon too large, for the bound to be of use.

    Examples
    --------
    >>> round(discreteness_cost(
    ...     noise_multiplier=11.8665, grid_units=2**24, num_steps=1000, dimension=114, epsilon=1.0) * 1e10, 2)
    5.75
    """
    scale = noise_multiplier * grid_units
    cost = num_steps * dimension * _TAIL**2 / 8.0 / scale**2
    if scale < 10.0 or cost > _LARGEST_COST * min(1.0, epsilon):
        raise PrivacyError(
            f"the noise grid is too coarse for {num_steps} steps of {dimension} coordinates with noise "
            f"multiplier {noise_multiplier:g}; use fewer steps."
        )
    if epsilon > _LARGEST_EPSILON or num_steps * dimension > _MOST_VALUES:
        raise PrivacyError(
            f"epsilon {epsilon:g} over {num_steps} steps of {dimension} coordinates is beyond what the exact "
            "noise is accounted for; use fewer steps or a smaller epsilon."
        )
    # exp(xi) * (1 - 2 xi) <= 1 - xi, which leaves xi * delta of room for the tail.
    return math.nextafter(cost, math.inf)
