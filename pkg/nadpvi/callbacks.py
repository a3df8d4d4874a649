"""What a callback of a run is shown: quantities that are released anyway. Public side."""

import inspect
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError

__all__ = ["Callback", "StepDone", "check_callback"]


class StepDone(NamedTuple):
    """One finished step of a run, as the release will show it.

    Parameters
    ----------
    num_done, num_steps : int
        How many steps are done, and of how many.
    phi, noisy_gradient : ndarray, shape (D,)
        The iterate at which the step's gradient was computed, and that gradient with its noise. Copies, so
        that nothing done to them reaches the run.
    """

    num_done: int
    num_steps: int
    phi: NDArray[np.float64]
    noisy_gradient: NDArray[np.float64]


Callback = Callable[[StepDone], object]


def check_callback(callback: object) -> None:
    """Raise `ArgumentError` unless `callback` is None or can be called with one argument.

    A run that has begun counts in full, so that a function that cannot even be called must be found before.
    """
    if callback is None:
        return
    if not callable(callback):
        raise ArgumentError(f"callback must be a function of a StepDone (got {type(callback).__name__}).")
    try:
        signature = inspect.signature(callback)
    except (TypeError, ValueError):  # some built-in functions do not tell
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ArgumentError(f"callback must take one argument, a StepDone (got {signature}).") from None
