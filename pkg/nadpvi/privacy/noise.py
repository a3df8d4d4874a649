"""Where the noise of a DP-SGD step comes from, and on which grid sums are taken.

A real release adds integer noise to an integer sum: per-record gradients are truncated toward zero onto a
grid of `GRID_UNITS` units per clip norm (`nadpvi.private.dpsgd`), the sum is exact, and the noise is OpenDP's
discrete Gaussian, sampled in exact arithmetic from the operating system's generator [1]_. No
floating-point rounding of the private sum or of the noise can then leak. A simulation uses NumPy instead,
and its release is stamped not private.

References
----------
.. [1] Canonne, Kamath and Steinke (2020). The discrete Gaussian for differential privacy. NeurIPS 33.
"""

import math
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import PrivacyError

__all__ = ["GRID_UNITS", "DiscreteGaussianNoise", "NoNoise", "NoiseSource", "SimulatedGaussianNoise"]

Array = NDArray[np.float64]

# Fine enough that truncation moves a sum of 10,000 records by at most 6e-4 clip norms; coarse enough that
# 2^37 records and more still sum exactly in 64-bit integers (`nadpvi.private.dpsgd.check_exact_sums`).
GRID_UNITS = 2**24

# OpenDP has a fixed cost per call; one call then serves many steps.
_BLOCK_VALUES = 20_000


class NoiseSource(Protocol):
    """Noise for the summed, clipped gradient, in units of the grid or, without one, of the clip norm."""

    grid_units: int | None
    is_private: bool
    mechanism: str

    def draw(self) -> Array:
        """Return the noise of one step, shape (D,)."""
        ...


class DiscreteGaussianNoise:
    """Discrete Gaussian noise on the grid, exact and from a cryptographic generator.

    Guarantees
    ----------
    - Every value is an integer number of grid units, drawn by OpenDP's exact sampler.
    - The scale is `noise_multiplier` * `GRID_UNITS`: the multiplier times the sensitivity that the
      clipper guarantees on the grid.
    - A value that float64 could not hold exactly raises `PrivacyError`; it is never rounded.

    Parameters
    ----------
    noise_multiplier : float
        sigma > 0, noise standard deviation per clip norm.
    dimension : int
        D, the length of the gradient.
    num_steps : int
        How many vectors will be drawn.
    """

    def __init__(self, *, noise_multiplier: float, dimension: int, num_steps: int) -> None:
        import opendp.prelude as dp
        from opendp.mod import enable_features

        # 20 standard deviations: beyond, a value could leave the exact integers of float64.
        if noise_multiplier * GRID_UNITS * 20.0 > 2**52:
            raise PrivacyError(
                f"noise_multiplier {noise_multiplier:.4g} exceeds the exact range of the noise grid; the "
                "budget is too small for it."
            )
        enable_features("contrib")
        self._process = os.getpid()
        self.grid_units: int | None = GRID_UNITS
        self.is_private = True
        self.mechanism = (
            f"discrete Gaussian on a grid of 2^-{GRID_UNITS.bit_length() - 1} clip norms "
            f"(OpenDP {dp.__version__}), accounted as continuous with a bound on the difference"
        )
        block = min(num_steps, max(1, _BLOCK_VALUES // dimension))
        space = dp.vector_domain(dp.atom_domain(T="i64"), size=block * dimension), dp.l2_distance(T="f64")
        self._measurement = dp.m.make_gaussian(*space, scale=noise_multiplier * GRID_UNITS)
        self._shape = (block, dimension)
        self._rows_left = num_steps
        self._rows: Iterator[Array] = iter(())
        # OpenDP leaves the interpreter free while it samples, so the next block is drawn on the other core.
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nadpvi-noise")
        self._pending: Future[Array] | None = None
        self._request_block()

    def draw(self) -> Array:
        """Return the noise of one step in grid units, shape (D,), integer-valued.

        Raises
        ------
        PrivacyError
            If more vectors are drawn than were announced, or a value is beyond the exact range.
        """
        if os.getpid() != self._process:
            raise PrivacyError(
                "a noise source must not be shared with a forked process: its noise would repeat."
            )
        row = next(self._rows, None)
        if row is None:
            if self._pending is None:
                raise PrivacyError("more noise was drawn than steps were announced.")
            self._rows = iter(self._pending.result())
            self._request_block()
            row = next(self._rows)
        return row

    def _request_block(self) -> None:
        """Start drawing the next block, if there is one, and let the worker end after the last."""
        num_rows = min(self._rows_left, self._shape[0])
        self._rows_left -= num_rows
        self._pending = self._worker.submit(self._draw_block, num_rows) if num_rows else None
        if self._pending is None:
            self._worker.shutdown(wait=False)

    def _draw_block(self, num_rows: int) -> Array:
        """Return fresh noise for the next steps, each value used once."""
        values = np.asarray(self._measurement(np.zeros(math.prod(self._shape), dtype=np.int64)))
        if values.dtype != np.int64 or np.abs(values).max() > 2**52:
            raise PrivacyError("noise exceeds the exact range of the grid; the budget is too small for it.")
        return values.astype(np.float64).reshape(self._shape)[:num_rows]


class SimulatedGaussianNoise:
    """Gaussian noise from a seeded NumPy generator: fast, reproducible, and not private.

    Parameters
    ----------
    rng : numpy.random.Generator
        The noise stream of a simulation.
    noise_multiplier : float
        sigma > 0, noise standard deviation per clip norm.
    dimension : int
        D, the length of the gradient.
    """

    def __init__(self, rng: np.random.Generator, *, noise_multiplier: float, dimension: int) -> None:
        self.grid_units: int | None = None
        self.is_private = False
        self.mechanism = "floating-point Gaussian from a seeded generator (simulation)"
        self._rng = rng
        self._scale = noise_multiplier
        self._dimension = dimension

    def draw(self) -> Array:
        """Return the noise of one step in clip norms, shape (D,)."""
        return self._scale * self._rng.standard_normal(self._dimension)


class NoNoise:
    """No noise at all: the explicit non-private switch.

    Parameters
    ----------
    dimension : int
        D, the length of the gradient.
    """

    def __init__(self, *, dimension: int) -> None:
        self.grid_units: int | None = None
        self.is_private = False
        self.mechanism = "no noise"
        self._zeros = np.zeros(dimension)

    def draw(self) -> Array:
        """Return zeros, shape (D,)."""
        return self._zeros
