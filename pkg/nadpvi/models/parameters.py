"""The named parameters of a model: what the posterior shows, and how theta's coordinates make them up."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError
from nadpvi.supports import SUPPORTS

__all__ = [
    "Parameter",
    "check_parameters",
    "constrain",
    "log_jacobian",
    "parts_of",
    "unconstrain",
    "unconstrain_draws",
    "unconstrained_labels",
]

Array = NDArray[np.float64]

# What the posterior's own variables and axes are called.
_TAKEN = ("phi_star", "curvature", "tau", "chain", "draw", "phi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A named block of model parameters, as the posterior will show it.

    Parameters
    ----------
    name : str
        Variable name, such as ``coefficients``.
    support : str
        Where its values live, a key of `nadpvi.supports.SUPPORTS`: "real", "positive", "unit_interval" (entry
        by entry), "ordered", "simplex" (vectors along the last axis) or "covariance" (a small matrix).
    dims : sequence of str
        Names of its dimensions; none for a number. A covariance takes two, or one that names both rows and
        columns: ``("feature",)`` becomes ``("feature", "feature_2")``.
    coords : sequence of (sequence of str, or int)
        Unique labels along each dimension; a whole number n stands for the labels "0" to "n-1".

    Raises
    ------
    ArgumentError
        If a name is not usable, the support is unknown, or dims and coords do not fit it.

    Examples
    --------
    >>> Parameter(name="weights", support="simplex", dims=["component"], coords=[3]).labels
    ('weights[0]', 'weights[1]')
    >>> Parameter(name="spread", support="covariance", dims=["axis"], coords=[["x", "y"]]).labels
    ('spread[x, x]', 'spread[y, x]', 'spread[y, y]')
    """

    name: str
    support: str = "real"
    dims: tuple[str, ...] = ()
    coords: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        _check_name("a parameter's name", self.name)
        if self.support not in SUPPORTS:
            raise ArgumentError(
                f"parameter {self.name}: support must be one of {sorted(SUPPORTS)} (got {self.support!r})."
            )
        dims, coords = _listed(self.name, "dims", self.dims), _listed(self.name, "coords", self.coords)
        if len(dims) != len(coords):
            raise ArgumentError(
                f"parameter {self.name}: every dimension needs its coords (got {len(dims)} dims and "
                f"{len(coords)} coords)."
            )
        labels = tuple(_labels(self.name, entry) for entry in coords)
        if self.support == "covariance" and len(dims) == 1:
            _check_name(f"parameter {self.name}: a dimension's name", dims[0])
            dims, labels = (dims[0], f"{dims[0]}_2"), (labels[0], labels[0])
        for dim in dims:
            _check_name(f"parameter {self.name}: a dimension's name", dim)
        if len({*dims, self.name}) != len(dims) + 1:
            raise ArgumentError(f"parameter {self.name}: dims must differ from each other and from the name.")
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "coords", labels)
        self._check_axes()

    def _check_axes(self) -> None:
        """Refuse a shape that the support does not have."""
        needed = SUPPORTS[self.support].event_axes
        if self.support == "covariance" and (len(self.dims) != 2 or self.shape[0] != self.shape[1]):
            raise ArgumentError(
                f"parameter {self.name}: a covariance is one square matrix; give one dim, or two of one size "
                f"(got shape {self.shape})."
            )
        if len(self.dims) < needed:
            raise ArgumentError(
                f"parameter {self.name}: support {self.support!r} is for vectors; give dims and coords."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one constrained value; () for a number."""
        return tuple(len(labels) for labels in self.coords)

    @property
    def num_unconstrained(self) -> int:
        """How many coordinates of theta it takes."""
        return SUPPORTS[self.support].num_unconstrained(self.shape)

    @property
    def labels(self) -> tuple[str, ...]:
        """One label an unconstrained coordinate, in theta's order.

        A number has its name, a real vector its coords, everything else ``name[coord]``; of a simplex the
        last entry has none, of a covariance the entries above the diagonal have none.
        """
        if not self.dims:
            return (self.name,)
        if self.support == "real" and len(self.dims) == 1:
            return self.coords[0]
        if self.support == "covariance":
            rows, columns = np.tril_indices(self.shape[0])
            pairs = zip(rows, columns, strict=True)
            return tuple(f"{self.name}[{self.coords[0][r]}, {self.coords[1][c]}]" for r, c in pairs)
        if self.support == "simplex":
            return self._named(*self.coords[:-1], self.coords[-1][:-1])
        return self._named(*self.coords)

    @property
    def entry_labels(self) -> tuple[str, ...]:
        """One label an entry of the constrained value, last axis fastest, named as `labels` names them."""
        if not self.dims or (self.support == "real" and len(self.dims) == 1):
            return self.labels
        return self._named(*self.coords)

    def _named(self, *coords: tuple[str, ...]) -> tuple[str, ...]:
        """Return ``name[coord, coord]`` for every combination."""
        return tuple(f"{self.name}[{', '.join(entry)}]" for entry in itertools.product(*coords))

    def to_dict(self) -> dict[str, Any]:
        """Return the parameter as JSON types."""
        return {
            "name": self.name,
            "support": self.support,
            "dims": list(self.dims),
            "coords": [list(labels) for labels in self.coords],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Parameter":
        """Return the parameter that `to_dict` described; missing or unknown keys are refused."""
        known = {"name", "support", "dims", "coords"}
        if not isinstance(data, Mapping) or set(data) != known:
            raise ArgumentError(f"a parameter's description needs exactly {sorted(known)}.")
        return cls(name=data["name"], support=data["support"], dims=data["dims"], coords=data["coords"])


def check_parameters(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Return parameters that together make up a theta, or raise.

    Raises
    ------
    ArgumentError
        If there is none, a variable's or a coordinate's name is used twice, or one dimension has two sets of
        labels.
    """
    blocks = tuple(parameters)
    if not blocks or not all(isinstance(block, Parameter) for block in blocks):
        raise ArgumentError("parameters must be a list of at least one nadpvi.models.Parameter.")
    names = Counter(block.name for block in blocks)
    dims = {dim for block in blocks for dim in block.dims}
    for name, count in names.items():
        if count > 1 or name in dims:
            raise ArgumentError(f"two parameters, or one and a dimension, are called {name}; rename one.")
    seen: dict[str, tuple[str, ...]] = {}
    for block in blocks:
        for dim, labels in zip(block.dims, block.coords, strict=True):
            if seen.setdefault(dim, labels) != labels:
                raise ArgumentError(
                    f"dimension {dim} has two sets of labels; give each set its own dimension."
                )
    for label, count in Counter(unconstrained_labels(blocks)).items():
        if count > 1:
            raise ArgumentError(f"two coordinates would be called {label}; rename a parameter or a label.")
    if not unconstrained_labels(blocks):
        raise ArgumentError("a model needs a parameter that can vary (a simplex of one entry cannot).")
    return blocks


def unconstrained_labels(parameters: Sequence[Parameter]) -> tuple[str, ...]:
    """Return labels of theta's K coordinates."""
    return tuple(label for block in parameters for label in block.labels)


def constrain(parameters: Sequence[Parameter], theta: Array) -> dict[str, Array]:
    """Return the values at theta by parameter name: (..., K) -> (..., *shape); autograd can follow it.

    Examples
    --------
    >>> blocks = (Parameter(name="a"), Parameter(name="rate", support="positive"))
    >>> {name: value.tolist() for name, value in constrain(blocks, np.array([[2.0, 0.0]])).items()}
    {'a': [2.0], 'rate': [1.0]}
    """
    return {
        block.name: SUPPORTS[block.support].constrain(theta[..., part], block.shape)
        for block, part in parts_of(parameters)
    }


def log_jacobian(parameters: Sequence[Parameter], theta: Array) -> Array:
    """Return the log-Jacobian of `constrain`, summed over parameters: (..., K) -> (...)."""
    terms = [
        SUPPORTS[block.support].log_jacobian(theta[..., part], block.shape)
        for block, part in parts_of(parameters)
    ]
    # Not started at 0, so that a single term stays what it is.
    return sum(terms[1:], start=terms[0])


def unconstrain(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> Array:
    """Return theta at named values, the inverse of `constrain`: leading axes are kept.

    Raises
    ------
    ArgumentError
        If a parameter has no value, or one of a wrong shape or outside its support.
    """
    arrays = {}
    for block in parameters:
        support = SUPPORTS[block.support]
        if block.name not in values:
            raise ArgumentError(f"no value for parameter {block.name}.")
        value = arrays[block.name] = np.asarray(values[block.name], dtype=np.float64)
        if value.ndim < len(block.shape) or value.shape[value.ndim - len(block.shape) :] != block.shape:
            raise ArgumentError(f"{block.name} must have shape {block.shape} (got {value.shape}).")
        if not support.contains(value):
            raise ArgumentError(f"{block.name} must be {support.rule}.")
    return unconstrain_draws(parameters, arrays)


def unconstrain_draws(parameters: Sequence[Parameter], draws: Mapping[str, Array]) -> Array:
    """Return theta at draws of every parameter: as `unconstrain`, but rounding may have reached an edge."""
    parts = [SUPPORTS[block.support].unconstrain(draws[block.name], block.shape) for block in parameters]
    lead = np.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return np.concatenate([np.broadcast_to(part, (*lead, part.shape[-1])) for part in parts], axis=-1)


def parts_of(parameters: Sequence[Parameter]) -> list[tuple[Parameter, slice]]:
    """Return each block with its place in theta."""
    sizes = [block.num_unconstrained for block in parameters]
    starts = itertools.accumulate(sizes[:-1], initial=0)
    places = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    return list(zip(parameters, places, strict=True))


def _check_name(what: str, name: object) -> None:
    """Refuse names that the posterior's file or its own variables cannot live beside."""
    if not isinstance(name, str) or not name or "/" in name or name in _TAKEN:
        raise ArgumentError(f"{what} must be a text without '/' and none of {list(_TAKEN)} (got {name!r}).")


def _listed(name: str, what: str, given: object) -> tuple[Any, ...]:
    """Return dims or coords as a tuple."""
    if not isinstance(given, list | tuple):
        raise ArgumentError(
            f"parameter {name}: {what} must be a list, one entry a dimension (got {given!r})."
        )
    return tuple(given)


def _labels(name: str, entry: object) -> tuple[str, ...]:
    """Return one dimension's labels."""
    if isinstance(entry, int) and not isinstance(entry, bool) and entry > 0:
        return tuple(str(index) for index in range(entry))
    if (
        not isinstance(entry, list | tuple)
        or not entry
        or not all(isinstance(label, str) for label in entry)
        or len(set(entry)) != len(entry)
    ):
        raise ArgumentError(
            f"parameter {name}: coords must hold, for each dimension, a list of unique texts or their number "
            f"(got {entry!r})."
        )
    return tuple(entry)
