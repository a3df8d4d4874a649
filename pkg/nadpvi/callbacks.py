"""What a callback of a run is shown: quantities that are released anyway. Public side."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Callback", "StepDone"]


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
