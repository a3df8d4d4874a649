"""Epsilon of a run of DP-SGD in milliseconds: near what the accountant gives, and no bound on it.

The privacy loss of one step is put on a grid so that its mean stays what it is, and composed by FFT. What
this gives only ever decides whether a number on record is accounted in full, in
`nadpvi.privacy.guarantee_check`.
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.optimize import brentq
from scipy.special import logsumexp

from nadpvi.privacy.accounting_bounds import full_batch_mu, total_variation
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon
from nadpvi.privacy.accounting_loss import PrivacyLoss, SubsampledRun, make_run

__all__ = ["quick_epsilon"]

Array = NDArray[np.float64]


@functools.lru_cache(maxsize=256)
def quick_epsilon(
    *, noise_multiplier: float, delta: float, num_steps: int, sampling_rate: float, neighbouring_relation: str
) -> float:
    """Return about what `nadpvi.epsilon_spent` returns, and exactly that at sampling rate 1.

    Parameters
    ----------
    noise_multiplier, delta, num_steps, sampling_rate, neighbouring_relation
        As there, and checked by the caller.

    Returns
    -------
    float
        Epsilon >= 0, in natural units.

    Examples
    --------
    >>> settings = {"noise_multiplier": 2.1, "delta": 1e-5, "num_steps": 3000, "sampling_rate": 0.05}
    >>> found = quick_epsilon(**settings, neighbouring_relation="add_or_remove_one")
    >>> bool(abs(found / 6.482046 - 1) < 0.01)  # 6.482046 is what is accounted
    True
    """
    if sampling_rate == 1.0:
        mu = full_batch_mu(noise_multiplier, num_steps=num_steps, relation=neighbouring_relation)
        return gaussian_epsilon(mu, delta)
    if total_variation([(noise_multiplier, sampling_rate, num_steps)], neighbouring_relation) <= delta:
        return 0.0
    run = make_run(
        noise_multiplier,
        num_steps=num_steps,
        sampling_rate=sampling_rate,
        neighbouring_relation=neighbouring_relation,
    )
    width = run.composed_width(1e-300)
    return max(_epsilon(*_composed(run, loss, width), delta=delta) for loss in run.losses)


def _composed(run: SubsampledRun, loss: PrivacyLoss, width: float) -> tuple[Array, Array]:
    """Return the loss of all steps in one direction as values in rising order and their masses."""
    interval, mass = run.first_interval(), np.exp(loss.log_weight)
    place = loss.values / interval
    left = np.floor(place)
    points = int(left.max()) + 2
    size = fft.next_fast_len(max(points, 2 * math.ceil(width / interval) + 2), real=True)
    below = left.astype(np.int64)
    one_step = np.bincount(below, weights=mass * (1 - (place - left)), minlength=size)
    one_step += np.bincount(below + 1, weights=mass * (place - left), minlength=size)
    total = fft.irfft(fft.rfft(one_step) ** run.num_steps, size)
    # The grid is a circle; what is kept of it starts half a round before the mean.
    start = max(0, round(run.num_steps * float(mass @ place)) - size // 2)
    masses = np.roll(np.maximum(total, 0.0), -(start % size))
    # The loss is known above its least value; E exp(-loss) = 1 places it.
    least = float(logsumexp(loss.log_weight - loss.values))
    return run.num_steps * least + interval * (start + np.arange(size)), masses


def _epsilon(values: Array, masses: Array, *, delta: float) -> float:
    """Return the epsilon >= 0 at which E[1 - exp(epsilon - loss)]_+ is `delta`."""
    # Only losses above epsilon count, so that no exponential overflows.
    first = int(np.searchsorted(values, 0.0))
    values, masses = values[first:], masses[first:]

    def excess(epsilon: float) -> float:
        """Return how far delta at this epsilon is above what is asked for."""
        above = int(np.searchsorted(values, epsilon))
        return -float(masses[above:] @ np.expm1(epsilon - values[above:])) - delta

    if not values.size or excess(0.0) <= 0.0:
        return 0.0
    return float(brentq(excess, 0.0, float(values[-1]), rtol=1e-6))
