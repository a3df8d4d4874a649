"""Ranges of the parameters of DP-SGD and its budget, checked in one place before any data is opened."""

from nadpvi.checks import check_count, check_positive, check_probability, check_real
from nadpvi.errors import ArgumentError

__all__ = [
    "ADD_OR_REMOVE_ONE",
    "LEAST_NOISE",
    "ONE_PERSON",
    "ONE_RECORD",
    "REPLACE_ONE",
    "check_delta",
    "check_epsilon",
    "check_neighbouring_relation",
    "check_noise_multiplier",
    "check_num_steps",
    "check_records_per_unit",
    "check_sampling_rate",
    "check_unit",
]

ADD_OR_REMOVE_ONE, REPLACE_ONE = "add_or_remove_one", "replace_one"
ONE_RECORD, ONE_PERSON = "one record", "one person"
LEAST_NOISE = 1e-3
_MOST_STEPS = 10**12
_MOST_RECORDS = 10**6


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


def check_neighbouring_relation(value: object) -> str:
    """Return a neighbouring relation that can be accounted, or raise `ArgumentError`."""
    if not isinstance(value, str) or value not in (ADD_OR_REMOVE_ONE, REPLACE_ONE):
        raise ArgumentError(
            f'neighbouring_relation must be "{ADD_OR_REMOVE_ONE}" or "{REPLACE_ONE}" (got {value!r}).'
        )
    return value


def check_unit(value: object) -> str:
    """Return a unit of privacy, or raise `ArgumentError`."""
    if not isinstance(value, str) or value not in (ONE_RECORD, ONE_PERSON):
        raise ArgumentError(f'unit must be "{ONE_RECORD}" or "{ONE_PERSON}" (got {value!r}).')
    return value


def check_records_per_unit(value: object, *, unit: str) -> int:
    """Return how many records one unit may have in a step, 1 for a record, or raise `ArgumentError`."""
    records = check_count("records_per_unit", value)
    if records > _MOST_RECORDS:
        raise ArgumentError(f"records_per_unit must be at most {_MOST_RECORDS:,} (got {value!r}).")
    if unit == ONE_RECORD and records != 1:
        raise ArgumentError(f'records_per_unit must be 1 when unit is "{ONE_RECORD}" (got {value!r}).')
    return records
