"""Exact Laplace noise on an integer grid, for statistics that are released once under pure epsilon.

The discrete Laplace distribution on the integers is its own mechanism: at sensitivity Delta (in grid units,
L1) and scale b it is (Delta / b, 0)-DP exactly [1]_, so that nothing has to be paid for the grid.

References
----------
.. [1] Ghosh, Roughgarden and Sundararajan (2012). Universally utility-maximizing privacy mechanisms. SIAM
   Journal on Computing 41(6).
"""

import numpy as np
from numpy.typing import NDArray

from nadpvi.checks import check_count, check_positive
from nadpvi.errors import PrivacyError
from nadpvi.privacy.noise import GRID_UNITS

__all__ = ["draw_discrete_laplace"]

_LARGEST_EXACT = 2**52


def draw_discrete_laplace(scale: float, *, dimension: int) -> NDArray[np.float64]:
    """Return independent discrete Laplace values in grid units, integers, shape (`dimension`,).

    Guarantees
    ----------
    - Every value is drawn by OpenDP's exact sampler from the operating system's generator, with scale
      `scale` * `GRID_UNITS`; each coordinate has a draw of its own.
    - A value that float64 could not hold exactly raises `PrivacyError`; it is never rounded.

    Parameters
    ----------
    scale : float
        b > 0, in units of the statistics; one unit is `GRID_UNITS` of the grid.
    dimension : int
        How many values.

    Raises
    ------
    PrivacyError
        If the scale, or a value, exceeds the exact range of the grid.

    Examples
    --------
    >>> values = draw_discrete_laplace(10.0, dimension=3)
    >>> values.shape, bool((values == np.round(values)).all())
    ((3,), True)
    """
    import opendp.prelude as dp
    from opendp.mod import enable_features

    scale, dimension = check_positive("scale", scale), check_count("dimension", dimension)
    message = "Laplace noise exceeds the exact range of its grid; the budget is too small for it."
    # 40 scales: beyond, a value could leave the exact integers of float64.
    if scale * GRID_UNITS * 40.0 > _LARGEST_EXACT:
        raise PrivacyError(message)
    enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64"), size=dimension), dp.l1_distance(T="i64")
    values = np.asarray(dp.m.make_laplace(*space, scale=scale * GRID_UNITS)([0] * dimension))
    if values.dtype != np.int64 or np.abs(values).max() > _LARGEST_EXACT:
        raise PrivacyError(message)
    return values.astype(np.float64)
