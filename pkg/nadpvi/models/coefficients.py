"""Normal priors of regression coefficients, one number for all or some of their own.

A setting is a number, or a mapping from labels or column names to numbers that overrides the default where it
says something. It is kept as sorted pairs, so that a model stays immutable and can be compared.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_positive, check_real
from nadpvi.columns import listed, quoted
from nadpvi.design import Design
from nadpvi.errors import ArgumentError

__all__ = [
    "PriorSetting",
    "check_prior_setting",
    "coefficient_values",
    "normal_log_density",
    "setting_to_json",
]

Array = NDArray[np.float64]
PriorSetting = float | Mapping[str, float] | tuple[tuple[str, float], ...]


def check_prior_setting(name: str, value: object, *, is_scale: bool) -> PriorSetting:
    """Return a setting as a float or as sorted pairs, or raise.

    Parameters
    ----------
    name : str
        The argument's name, for messages.
    value : object
        A number, a mapping from names to numbers, or the pairs of an earlier check.
    is_scale : bool
        Whether the numbers must be positive.

    Raises
    ------
    ArgumentError
        If it is none of these, or a number is out of range.

    Examples
    --------
    >>> check_prior_setting("prior_sd", {"job": 2, "age": 1.5}, is_scale=True)
    (('age', 1.5), ('job', 2.0))
    """
    check = check_positive if is_scale else check_real
    if isinstance(value, Mapping):
        value = tuple(value.items())
    if not isinstance(value, tuple):
        return check(name, value)
    if not all(
        isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str) for pair in value
    ):
        raise ArgumentError(f"{name} must be a number, or a mapping from column names or labels to numbers.")
    return tuple(sorted((key, check(f"{name} of {quoted(key)}", number)) for key, number in value))


def setting_to_json(setting: PriorSetting) -> float | dict[str, float]:
    """Return a checked setting as JSON types."""
    return dict(setting) if isinstance(setting, Mapping | tuple) else setting


@functools.lru_cache(maxsize=64)
def coefficient_values(
    design: Design, setting: tuple[tuple[str, float], ...], *, name: str, default: float
) -> Array:
    """Return one number a coefficient, shape (F,), read-only: its label's, else its term's, else `default`.

    Raises
    ------
    ArgumentError
        If the setting names neither a label nor a term; the known ones are listed.
    """
    named = dict(setting)
    groups = design.groups
    unknown = [key for key in named if key not in design.labels and key not in groups]
    if unknown:
        known = list(dict.fromkeys([*design.labels[: int(design.intercept)], *groups, *design.labels]))
        raise ArgumentError(
            f"{name} names {listed(unknown)}, which is no coefficient or column of the model; it knows "
            f"{listed(known)}."
        )
    by_label = {
        label: named[column] for column, labels in groups.items() for label in labels if column in named
    }
    values = np.array([named.get(label, by_label.get(label, default)) for label in design.labels])
    values.setflags(write=False)
    return values


def normal_log_density(value: Array, *, mean: Any, sd: Any) -> Array:
    """Return the log density of independent normals, summed over the last axis: (..., K) -> (...)."""
    standardised = (value - mean) / sd
    constant = np.log(sd) + 0.5 * math.log(2.0 * math.pi)
    density: Array = anp.sum(-0.5 * standardised**2 - constant, axis=-1)
    return density
