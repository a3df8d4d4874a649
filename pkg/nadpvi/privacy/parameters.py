"""Ranges of the parameters of DP-SGD and its budget, checked in one place before any data is opened."""

from nadpvi.checks import check_count, check_positive, check_probability, check_real
from nadpvi.errors import ArgumentError

__all__ = [
    "LEAST_NOISE",
    "check_delta",
    "check_epsilon",
    "check_noise_multiplier",
    "check_num_steps",
    "check_sampling_rate",
]

LEAST_NOISE = 1e-3
_MOST_STEPS = 10**12


def check_epsilon(value: object) -> float:
    """Return a privacy budget's epsilon as a float, or raise `ArgumentError`."""
    return check_positive("epsilon", value)


def check_delta(value: object) -> float:
    """Return a privacy budget's delta as a float, or raise `ArgumentError`."""
    return check_probability("delta", value)


def check_num_steps(value: object) -> int:
    """Return a number of steps as an int, or raise `ArgumentError`."""
    num_steps = check_count("num_steps", value)
    if num_steps > _MOST_STEPS:
        raise ArgumentError(f"num_steps must be at most 10^12 (got {value!r}).")
    return num_steps


def check_sampling_rate(value: object) -> float:
    """Return a Poisson inclusion probability as a float, or raise `ArgumentError`."""
    sampling_rate = check_real("sampling_rate", value, rule="in (0, 1]")
    if not 0 < sampling_rate <= 1:
        raise ArgumentError(f"sampling_rate must be in (0, 1] (got {value!r}).")
    return sampling_rate


def check_noise_multiplier(value: object) -> float:
    """Return the noise multiplier of a run with noise as a float, or raise `ArgumentError`."""
    rule = f"finite and at least {LEAST_NOISE}; a run without noise must be declared NonPrivate()"
    sigma = check_real("noise_multiplier", value, rule=rule)
    if sigma < LEAST_NOISE:
        raise ArgumentError(f"noise_multiplier must be {rule} (got {value!r}).")
    return sigma
