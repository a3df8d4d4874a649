"""Standard normal noise in pairs of opposite sign, for the guide's draws of a step.

The gradient of a scale is the mean over draws of a record's score times the draw's noise. Within a narrow q
the score hardly changes from draw to draw, so that with independent draws this mean is mostly the score times
a mean of noise: chance, which a large preconditioner of the scales turns into most of the gradient's norm,
and on which clipping then falls. In pairs of opposite sign that term vanishes, and so does the error that the
draws leave in the locations, to first order; expectations stay as they are (antithetic variates: Hammersley
and Morton 1956).
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["antithetic", "draw_antithetic", "num_independent"]

Array = NDArray[np.float64]


def num_independent(num_draws: int) -> int:
    """Return how many of S draws are independent of each other: half of them, rounded up.

    Examples
    --------
    >>> [num_independent(num_draws) for num_draws in (1, 2, 3, 10)]
    [1, 1, 2, 5]
    """
    return num_draws - num_draws // 2


def antithetic(independent: Array, *, out: Array) -> Array:
    """Fill `out`, shape (..., S, M), with independent noise, (..., ceil(S / 2), M), and with its opposites.

    With an odd S the last independent draw stays without an opposite.

    Examples
    --------
    >>> antithetic(np.array([[1.0], [2.0]]), out=np.empty((3, 1))).ravel().tolist()
    [1.0, 2.0, -1.0]
    """
    fresh, num_draws = independent.shape[-2], out.shape[-2]
    out[..., :fresh, :] = independent
    np.negative(independent[..., : num_draws - fresh, :], out=out[..., fresh:, :])
    return out


def draw_antithetic(rng: np.random.Generator, *, num_draws: int, size: int) -> Array:
    """Return noise for S = `num_draws` draws of M = `size` numbers, shape (S, M), in opposite pairs."""
    fresh = rng.standard_normal((num_independent(num_draws), size))
    return antithetic(fresh, out=np.empty((num_draws, size)))
