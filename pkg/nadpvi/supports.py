"""Where a parameter's values live, and the smooth maps there from the unconstrained scale.

The transforms and their log-Jacobians are those of Stan 2.35 (Stan Reference Manual, chapter "Constraint
Transforms"), coordinate for coordinate. The simplex is the stick-breaking one, which Stan replaced in 2.37.
Maps towards the support are written with ``autograd.numpy``, so that models differentiate through them.
"""

import math
from typing import Protocol

import autograd.numpy as anp
import numpy as np
from numpy.typing import NDArray

__all__ = ["SUPPORTS", "Support", "log_levels_after"]

Array = NDArray[np.float64]
Shape = tuple[int, ...]

# What exp gives is held between exp(-700) and exp(700): scales and shares neither vanish nor overflow. A
# covariance squares its Cholesky diagonal.
_LARGEST_EXPONENT = 700.0


def log_levels_after(num_breaks: int) -> Array:
    """Return log(C - k) for k = 1, ..., C - 1, the offsets of Stan's stick breaking; 0 for two levels."""
    return np.asarray(np.log(np.arange(num_breaks, 0.0, -1.0)))


class Support(Protocol):
    """A set of values of one shape, with its map from unconstrained coordinates.

    Everything broadcasts over leading axes: "..." stands for any number of them.
    """

    rule: str
    """What a value must be, in words that follow "must be"."""
    event_axes: int
    """How many trailing axes belong together: 0 for single entries, 1 for vectors, 2 for matrices."""

    def num_unconstrained(self, shape: Shape) -> int:
        """Return k, the number of unconstrained coordinates of a value of `shape`."""
        ...

    def constrain(self, z: Array, shape: Shape) -> Array:
        """Return the value at unconstrained `z`: (..., k) -> (..., *shape)."""
        ...

    def log_jacobian(self, z: Array, shape: Shape) -> Array:
        """Return log |det d value / d z| over the value's free coordinates: (..., k) -> (...)."""
        ...

    def contains(self, value: Array) -> bool:
        """Tell whether an array of values lies in the support."""
        ...

    def unconstrain(self, value: Array, shape: Shape) -> Array:
        """Return the unconstrained coordinates of a value: (..., *shape) -> (..., k).

        Of values that rounding has put on the edge of the support, the result is finite.
        """
        ...


class _Real:
    """Any finite number, entry by entry: the identity."""

    rule = "finite"
    event_axes = 0

    def num_unconstrained(self, shape: Shape) -> int:
        return math.prod(shape)

    def constrain(self, z: Array, shape: Shape) -> Array:
        return _shaped(z, shape)

    def log_jacobian(self, z: Array, shape: Shape) -> Array:
        # A term of z, so that autodiff sees a function of it.
        return _summed(0.0 * z, 1)

    def contains(self, value: Array) -> bool:
        return bool(np.isfinite(value).all())

    def unconstrain(self, value: Array, shape: Shape) -> Array:
        return np.array(_flat(value, shape))


class _Positive(_Real):
    """Numbers above 0, entry by entry: exp."""

    rule = "above 0"

    def constrain(self, z: Array, shape: Shape) -> Array:
        return _shaped(_exp(z), shape)

    def log_jacobian(self, z: Array, shape: Shape) -> Array:
        return _summed(_held(z), 1)

    def contains(self, value: Array) -> bool:
        return super().contains(value) and bool((value > 0).all())

    def unconstrain(self, value: Array, shape: Shape) -> Array:
        return _log(_flat(value, shape))


class _UnitInterval(_Real):
    """Numbers between 0 and 1, entry by entry: the logistic function."""

    rule = "between 0 and 1, both excluded"

    def constrain(self, z: Array, shape: Shape) -> Array:
        # Not 1 / (1 + exp(-z)), which overflows, and precise for small shares as well.
        return _shaped(anp.exp(-_log1p_exp(-anp.maximum(z, -_LARGEST_EXPONENT))), shape)

    def log_jacobian(self, z: Array, shape: Shape) -> Array:
        return _summed(-anp.abs(z) - 2.0 * anp.log1p(anp.exp(-anp.abs(z))), 1)

    def contains(self, value: Array) -> bool:
        return super().contains(value) and bool(((value > 0) & (value < 1)).all())

    def unconstrain(self, value: Array, shape: Shape) -> Array:
        flat = _flat(value, shape)
        return _log(flat) - _log(1.0 - flat)


class _Ordered:
    """Increasing vectors along the last axis: the first entry, then log differences."""

    rule = "increasing along its last axis"
    event_axes = 1

    def num_unconstrained(self, shape: Shape) -> int:
        return math.prod(shape)

    def constrain(self, z: Array, shape: Shape) -> Array:
        vectors = _shaped(z, shape)
        first = vectors[..., :1]
        later = first + anp.cumsum(_exp(vectors[..., 1:]), axis=-1)
        return _array(anp.concatenate([first, later], axis=-1))

    def log_jacobian(self, z: Array, shape: Shape) -> Array:
        return _summed(_held(_shaped(z, shape)[..., 1:]), len(shape))

    def contains(self, value: Array) -> bool:
        return bool(np.isfinite(value).all() and (np.diff(value, axis=-1) > 0).all())

    def unconstrain(self, value: Array, shape: Shape) -> Array:
        steps = _log(np.diff(value, axis=-1))
        return _flat(np.concatenate([value[..., :1], steps], axis=-1), shape)


class _Simplex:
    """Vectors of positive entries that sum to 1 along the last axis: stick-breaking.

    With n entries, ``z = 0`` is the vector of 1/n.
    """

    rule = "positive with sum 1 along its last axis"
    event_axes = 1

    def num_unconstrained(self, shape: Shape) -> int:
        return math.prod(shape[:-1]) * (shape[-1] - 1)

    def constrain(self, z: Array, shape: Shape) -> Array:
        breaks, log_stick = self._broken(z, shape)
        log_parts = log_stick[..., :-1] - _log1p_exp(-breaks)
        log_values = anp.concatenate([log_parts, log_stick[..., -1:]], axis=-1)
        return _array(anp.exp(anp.maximum(log_values, -_LARGEST_EXPONENT)))

    def log_jacobian(self, z: Array, shape: Shape) -> Array:
        breaks, log_stick = self._broken(z, shape)
        return _summed(log_stick[..., :-1] - _log1p_exp(-breaks) - _log1p_exp(breaks), len(shape))

    def _broken(self, z: Array, shape: Shape) -> tuple[Array, Array]:
        """Return the logits of each break, and the log length of the stick before each and after the last."""
        num_breaks = shape[-1] - 1
        logits = _shaped(z, (*shape[:-1], num_breaks)) - log_levels_after(num_breaks)
        left = anp.cumsum(-_log1p_exp(logits), axis=-1)
        whole = np.zeros((*logits.shape[:-1], 1))
        return logits, _array(anp.concatenate([whole, left], axis=-1))

    def contains(self, value: Array) -> bool:
        return bool((value > 0).all() and np.allclose(value.sum(axis=-1), 1.0, rtol=0.0, atol=1e-8))

    def unconstrain(self, value: Array, shape: Shape) -> Array:
        num_breaks = shape[-1] - 1
        # What is left after each break, summed from the end, where the small parts are.
        after: Array = np.cumsum(value[..., :0:-1], axis=-1)[..., ::-1]
        logits = _log(value[..., :-1]) - _log(after) + log_levels_after(num_breaks)
        return _flat(logits, (*shape[:-1], num_breaks))


class _Covariance:
    """Small symmetric positive-definite matrices: the Cholesky factor by rows, with log diagonal."""

    rule = "a symmetric positive-definite matrix"
    event_axes = 2

    def num_unconstrained(self, shape: Shape) -> int:
        size = shape[-1]
        return math.prod(shape[:-2]) * (size * (size + 1) // 2)

    def constrain(self, z: Array, shape: Shape) -> Array:
        size = shape[-1]
        rows, columns = np.tril_indices(size)
        entries = _shaped(z, (*shape[:-2], len(rows)))
        entries = anp.where(rows == columns, _exp(entries, largest=_LARGEST_EXPONENT / 2), entries)
        # A constant 0/1 matrix puts the entries in place; indexing would be differentiated far more slowly.
        places = np.zeros((len(rows), size * size))
        places[np.arange(len(rows)), rows * size + columns] = 1.0
        factor = anp.reshape(anp.dot(entries, places), (*entries.shape[:-1], size, size))
        return _array(anp.matmul(factor, anp.swapaxes(factor, -1, -2)))

    def log_jacobian(self, z: Array, shape: Shape) -> Array:
        size = shape[-1]
        rows, columns = np.tril_indices(size)
        # Each diagonal entry (k from 0) to the power size - k + 1, its own exp included, and twice each.
        weights = np.where(rows == columns, size - rows + 1.0, 0.0)
        entries = _held(_shaped(z, (*shape[:-2], len(rows))), largest=_LARGEST_EXPONENT / 2) * weights
        return _summed(entries, len(shape) - 1) + math.prod(shape[:-2]) * size * math.log(2.0)

    def contains(self, value: Array) -> bool:
        if not np.isfinite(value).all() or not np.allclose(value, np.swapaxes(value, -1, -2), rtol=1e-8):
            return False
        try:
            np.linalg.cholesky(value)
        except np.linalg.LinAlgError:
            return False
        return True

    def unconstrain(self, value: Array, shape: Shape) -> Array:
        # By eigenvalues of the correlations and QR: a plain Cholesky factorisation fails on matrices that are
        # singular to rounding.
        sd = np.sqrt(np.diagonal(value, axis1=-2, axis2=-1))
        sizes, axes = np.linalg.eigh(value / (sd[..., :, None] * sd[..., None, :]))
        sizes = np.maximum(sizes, np.finfo(np.float64).eps)
        root = np.sqrt(sizes)[..., :, None] * np.swapaxes(axes, -1, -2) * sd[..., None, :]
        upper = np.linalg.qr(root).R
        upper = upper * np.where(np.diagonal(upper, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., :, None]
        rows, columns = np.tril_indices(shape[-1])
        entries: Array = np.array(upper[..., columns, rows], dtype=np.float64)
        entries[..., rows == columns] = _log(entries[..., rows == columns])
        return _flat(entries, (*shape[:-2], len(rows)))


SUPPORTS: dict[str, Support] = {
    "real": _Real(),
    "positive": _Positive(),
    "unit_interval": _UnitInterval(),
    "ordered": _Ordered(),
    "simplex": _Simplex(),
    "covariance": _Covariance(),
}
"""Every support by the name that `nadpvi.models.Parameter` takes."""


def _array(value: object) -> Array:
    """Return an untyped autograd result under its type."""
    return value  # type: ignore[return-value]


def _shaped(z: Array, shape: Shape) -> Array:
    """Return (..., k) as (..., *shape)."""
    return _array(anp.reshape(z, (*z.shape[:-1], *shape)))


def _flat(value: Array, shape: Shape) -> Array:
    """Return (..., *shape) as (..., k)."""
    lead = value.shape[: value.ndim - len(shape)]
    return value.reshape(*lead, math.prod(shape))


def _summed(value: Array, num_axes: int) -> Array:
    """Return the sum over the last `num_axes` axes."""
    return _array(anp.sum(value, axis=tuple(range(-num_axes, 0))))


def _exp(z: Array, *, largest: float = _LARGEST_EXPONENT) -> Array:
    """Return exp(z), held between exp(-largest) and exp(largest)."""
    return _array(anp.exp(_held(z, largest=largest)))


def _held(z: Array, *, largest: float = _LARGEST_EXPONENT) -> Array:
    """Return z as the exponential sees it: where that stands still, so does the Jacobian.

    Else the density of a proper prior would rise again far out, without end.
    """
    return _array(anp.clip(z, -largest, largest))


def _log(value: Array) -> Array:
    """Return the logarithm, held above that of exp(-700)."""
    held: Array = np.log(np.maximum(value, math.exp(-_LARGEST_EXPONENT)))
    return held


def _log1p_exp(x: Array) -> Array:
    """Return log(1 + exp(x)) without overflow, as autodiff can follow it."""
    return _array(anp.maximum(x, 0.0) + anp.log1p(anp.exp(-anp.abs(x))))
