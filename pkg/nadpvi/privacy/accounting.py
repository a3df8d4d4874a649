"""Privacy accounting of DP-SGD: the noise a budget needs, and the budget that a noise level spends.

One run is `num_steps` releases of a sum of per-record vectors of norm at most 1 (in units of the clip norm),
each over an independent Poisson sample of the records, plus Gaussian noise of standard deviation
`noise_multiplier`. Neighbours differ by one record, added or removed, or replaced by another. At sampling
rate 1 this is one Gaussian mechanism with ``mu = sqrt(num_steps) / noise_multiplier``, or twice that if a
record is replaced, and is accounted in closed form [1]_; below 1 by dp-accounting's privacy loss
distributions of the worst pairs of outputs (`nadpvi.privacy.accounting_loss`).

References
----------
.. [1] Balle and Wang (2018). Improving the Gaussian mechanism for differential privacy: analytical
   calibration and optimal denoising. ICML 35, Theorem 8.
"""

from collections.abc import Callable
from functools import lru_cache

from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting_bounds import (
    central_limit_noise,
    check_exposure,
    check_reach,
    full_batch_mu,
    round_up,
    total_variation,
)
from nadpvi.privacy.accounting_cache import ALGORITHM_VERSION, cached_number, dp_accounting_version
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon, gaussian_mu
from nadpvi.privacy.accounting_pld import MIN_NOISE, UnresolvedError, calibrated_noise, pld_epsilon
from nadpvi.privacy.parameters import (
    ADD_OR_REMOVE_ONE,
    LEAST_NOISE,
    REPLACE_ONE,
    check_delta,
    check_epsilon,
    check_neighbouring_relation,
    check_noise_multiplier,
    check_num_steps,
    check_sampling_rate,
)

__all__ = ["accountant", "epsilon_accounted_afresh", "epsilon_spent", "noise_multiplier"]


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    num_steps: int,
    sampling_rate: float,
    neighbouring_relation: str = ADD_OR_REMOVE_ONE,
) -> float:
    """Return the smallest noise multiplier that keeps a run of DP-SGD within its privacy budget.

    Parameters
    ----------
    epsilon : float
        Privacy budget, finite and > 0.
    delta : float
        In (0, 1); choose it far below one over the number of records.
    num_steps : int
        Number of noisy gradients >= 1, burn-in included.
    sampling_rate : float
        Poisson inclusion probability in (0, 1].
    neighbouring_relation : str
        "add_or_remove_one", or "replace_one" with the number of records public.

    Returns
    -------
    float
        Noise standard deviation per unit of clip norm, rounded up to six significant digits, at most about
        0.1 % above the exact value and never below it: `epsilon_spent` of this very number is at most
        `epsilon`.

    Raises
    ------
    ArgumentError
        If an argument is outside its range, or the budget outside what the accountant can resolve.

    Examples
    --------
    >>> noise_multiplier(epsilon=1.0, delta=1e-5, num_steps=100, sampling_rate=1)
    37.3064
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    num_steps, sampling_rate = check_num_steps(num_steps), check_sampling_rate(sampling_rate)
    relation = check_neighbouring_relation(neighbouring_relation)
    check_reach(delta, num_steps=num_steps, sampling_rate=sampling_rate)
    if sampling_rate < 1:
        check_exposure(delta, num_steps=num_steps, sampling_rate=sampling_rate)
    inputs: dict[str, float | str] = {
        "epsilon": epsilon,
        "delta": delta,
        "num_steps": num_steps,
        "sampling_rate": sampling_rate,
        "neighbouring_relation": relation,
    }

    def compute() -> float:
        try:
            return _smallest_noise(epsilon, delta, num_steps, sampling_rate, relation)
        except UnresolvedError as error:
            reachable = _reachable(error.noise_multiplier, delta, num_steps, sampling_rate, relation)
            raise ArgumentError(
                f"epsilon must be {reachable} to be accounted over num_steps={num_steps} at "
                f"sampling_rate={sampling_rate:.6g} (got {epsilon:.6g})."
            ) from None

    return cached_number("noise_multiplier", inputs, compute=compute)


def epsilon_spent(
    *,
    noise_multiplier: float,
    delta: float,
    num_steps: int,
    sampling_rate: float,
    neighbouring_relation: str = ADD_OR_REMOVE_ONE,
) -> float:
    """Return the epsilon that a run of DP-SGD with this noise spends at `delta`.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation per unit of clip norm; at least 0.001, or 0.02 when sampling_rate < 1.
    delta : float
        In (0, 1).
    num_steps : int
        Number of noisy gradients >= 1, burn-in included.
    sampling_rate : float
        Poisson inclusion probability in (0, 1].
    neighbouring_relation : str
        "add_or_remove_one", or "replace_one" with the number of records public.

    Returns
    -------
    float
        An upper bound >= 0 on the exact epsilon, within about 0.1 % of it, or 0.5 % for noise multipliers
        below 0.2.

    Raises
    ------
    ArgumentError
        If an argument is outside its range, or outside what the accountant can resolve.

    Examples
    --------
    >>> round(epsilon_spent(noise_multiplier=10, delta=1e-5, num_steps=100, sampling_rate=1), 6)
    4.377178
    """
    return _epsilon(noise_multiplier, delta, num_steps, sampling_rate, neighbouring_relation, spent=_spent)


def epsilon_accounted_afresh(
    *,
    noise_multiplier: float,
    delta: float,
    num_steps: int,
    sampling_rate: float,
    neighbouring_relation: str = ADD_OR_REMOVE_ONE,
) -> float:
    """Return `epsilon_spent` without the cache on disk: for a guarantee, which no file may decide.

    Parameters and errors are those of `epsilon_spent`; equal calls of one process are computed once.
    """
    return _epsilon(
        noise_multiplier, delta, num_steps, sampling_rate, neighbouring_relation, spent=_spent_afresh
    )


def _epsilon(
    noise_multiplier: float,
    delta: float,
    num_steps: int,
    sampling_rate: float,
    neighbouring_relation: str,
    *,
    spent: Callable[[float, float, int, float, str], float],
) -> float:
    """Check the arguments and return what `spent` gives."""
    sigma, delta = check_noise_multiplier(noise_multiplier), check_delta(delta)
    num_steps, sampling_rate = check_num_steps(num_steps), check_sampling_rate(sampling_rate)
    relation = check_neighbouring_relation(neighbouring_relation)
    check_reach(delta, num_steps=num_steps, sampling_rate=sampling_rate)
    if sampling_rate < 1 and sigma < MIN_NOISE:
        raise ArgumentError(
            f"noise_multiplier must be at least {MIN_NOISE} when sampling_rate is below 1 (got {sigma:.6g})."
        )
    try:
        return spent(sigma, delta, num_steps, sampling_rate, relation)
    except UnresolvedError:
        raise ArgumentError(
            f"noise_multiplier {sigma:.6g} cannot be accounted to 0.1 % over num_steps={num_steps} at "
            f"sampling_rate={sampling_rate:.6g}: epsilon is too small; take fewer steps or less noise."
        ) from None


def accountant(sampling_rate: float, *, neighbouring_relation: str = ADD_OR_REMOVE_ONE) -> tuple[str, str]:
    """Return name and version of the accountant that serves this sampling rate and relation."""
    relation = check_neighbouring_relation(neighbouring_relation)
    if check_sampling_rate(sampling_rate) == 1.0:
        return "analytic Gaussian mechanism (Balle and Wang 2018)", f"nadpvi accounting {ALGORITHM_VERSION}"
    name = "dp-accounting privacy loss distribution, connect the dots"
    if relation == REPLACE_ONE:
        name += ", substitution"
    return name, f"{dp_accounting_version()}, nadpvi accounting {ALGORITHM_VERSION}"


def _spent(sigma: float, delta: float, num_steps: int, sampling_rate: float, relation: str) -> float:
    """Return epsilon, by the accountant of this sampling rate, from the cache on disk where it is there."""
    if sampling_rate == 1.0 or total_variation([(sigma, sampling_rate, num_steps)], relation) <= delta:
        return _compute(sigma, delta, num_steps, sampling_rate, relation)
    inputs: dict[str, float | str] = {
        "noise_multiplier": sigma,
        "delta": delta,
        "num_steps": num_steps,
        "sampling_rate": sampling_rate,
        "neighbouring_relation": relation,
    }
    return cached_number(
        "epsilon_spent", inputs, compute=lambda: _compute(sigma, delta, num_steps, sampling_rate, relation)
    )


@lru_cache(maxsize=256)
def _spent_afresh(sigma: float, delta: float, num_steps: int, sampling_rate: float, relation: str) -> float:
    """Return epsilon as this process has computed it."""
    return _compute(sigma, delta, num_steps, sampling_rate, relation)


def _compute(sigma: float, delta: float, num_steps: int, sampling_rate: float, relation: str) -> float:
    """Return epsilon, by the accountant of this sampling rate."""
    if sampling_rate == 1.0:
        return gaussian_epsilon(full_batch_mu(sigma, num_steps=num_steps, relation=relation), delta)
    if total_variation([(sigma, sampling_rate, num_steps)], relation) <= delta:
        return 0.0
    return pld_epsilon(
        noise_multiplier=sigma,
        delta=delta,
        num_steps=num_steps,
        sampling_rate=sampling_rate,
        neighbouring_relation=relation,
    )


def _smallest_noise(
    epsilon: float, delta: float, num_steps: int, sampling_rate: float, relation: str
) -> float:
    """Return the noise multiplier of a budget on six digits, raised until its own accounting is within it."""
    mu = gaussian_mu(epsilon, delta)
    if sampling_rate == 1.0:
        sigma = full_batch_mu(1.0, num_steps=num_steps, relation=relation) / mu
        if sigma < LEAST_NOISE:
            raise UnresolvedError(noise_multiplier=sigma)
    else:
        sigma = calibrated_noise(
            epsilon=epsilon,
            delta=delta,
            num_steps=num_steps,
            sampling_rate=sampling_rate,
            neighbouring_relation=relation,
            start=central_limit_noise(
                mu, num_steps=num_steps, sampling_rate=sampling_rate, relation=relation
            ),
        )
    for _ in range(20):
        sigma = round_up(sigma)
        spent = _spent(sigma, delta, num_steps, sampling_rate, relation)
        if spent <= epsilon:
            return sigma
        sigma *= 1.0002
    raise UnresolvedError(noise_multiplier=sigma)


def _reachable(sigma: float, delta: float, num_steps: int, sampling_rate: float, relation: str) -> str:
    """Return, in words, the side of the range of epsilon that a search ending at `sigma` ran out of."""
    least = LEAST_NOISE if sampling_rate == 1.0 else MIN_NOISE
    if sigma <= least:
        return f"at most {_spent(least, delta, num_steps, sampling_rate, relation):.4g}"
    while sigma > 2 * least:
        sigma /= 2
        try:
            lowest = _spent(sigma, delta, num_steps, sampling_rate, relation)
            return f"at least about {lowest:.2g} (less with fewer steps)"
        except UnresolvedError:
            continue
    return "larger and num_steps smaller"
