"""The Gaussian mechanism's privacy curve in closed form.

References
----------
.. [1] Balle and Wang (2018). Improving the Gaussian mechanism for differential privacy: analytical
   calibration and optimal denoising. ICML 35, Theorem 8.
"""

import math

from scipy.optimize import brentq
from scipy.special import erf, erfcx, ndtr

from nadpvi.errors import ArgumentError

__all__ = ["gaussian_epsilon", "gaussian_mu"]

# Beyond this, mu/2 - epsilon/mu has no digits left.
_MAX_MU = 1e9


def _log_delta(mu: float, epsilon: float) -> float:
    """Return log delta of the Gaussian mechanism with sensitivity over noise `mu`, for epsilon >= 0.

    Theorem 8 of [1]_ is Phi(a) - exp(epsilon) Phi(b) with a = mu/2 - epsilon/mu and b = a - mu. As
    exp(epsilon) phi(b) = phi(a), the factor exp(-a^2/2) comes out of both terms and nothing underflows.
    """
    a = mu / 2 - epsilon / mu
    if a > 5:
        return math.log(float(ndtr(a)) - 0.5 * math.exp(-a * a / 2) * float(erfcx((mu - a) / math.sqrt(2))))
    x, width = -a / math.sqrt(2), mu / math.sqrt(2)
    if mu < 1e-4:
        # The two terms cancel; width times the slope in the middle is exact to 1e-9.
        middle = x + width / 2
        gap = width * (2 / math.sqrt(math.pi) - 2 * middle * float(erfcx(middle)))
    else:
        gap = float(erfcx(x)) - float(erfcx(x + width))
    return -a * a / 2 + math.log(gap / 2)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon >= 0 of the Gaussian mechanism at `delta`, at most 1e-8 above the exact value."""
    if float(erf(mu / math.sqrt(8))) <= delta:
        return 0.0
    # At this epsilon a <= -sqrt(2 log(1/delta)), so that Phi(a) alone is below delta.
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    log_delta = math.log(delta)
    root = brentq(lambda epsilon: _log_delta(mu, epsilon) - log_delta, 0.0, high, xtol=1e-300, rtol=1e-12)
    return float(root) * (1 + 1e-8)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest sensitivity over noise at which the Gaussian mechanism is (epsilon, delta)-private.

    Raises
    ------
    ArgumentError
        If `epsilon` is beyond about 5e17.
    """
    log_delta = math.log(delta)

    def at(quantile: float) -> float:
        """Return the mu at which a equals `quantile`."""
        root = math.hypot(quantile, math.sqrt(2 * epsilon))
        return quantile + root if quantile > 0 else 2 * epsilon / (root - quantile)

    # Phi(a) bounds delta from above, and delta rounds to 1 at a = 10.
    low, high = at(-1 - math.sqrt(-2 * log_delta)), at(10.0)
    if high > _MAX_MU:
        raise ArgumentError(f"epsilon must be below about 5e17 to be accounted (got {epsilon:.6g}).")
    root = brentq(
        lambda log_mu: _log_delta(math.exp(log_mu), epsilon) - log_delta,
        math.log(low),
        math.log(high),
        xtol=1e-12,
        rtol=1e-12,
    )
    return math.exp(float(root))
