"""Where the coordinates of phi stand when theta is made up of linear predictors. No records are seen here."""

import itertools
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.guides import Guide

__all__ = ["LinearLayout", "Run", "WeightBlock", "make_layout"]

Indices = NDArray[np.intp]


class Run(NamedTuple):
    """Weights [start:stop] of a block: one feature's on adjacent sources, or adjacent features' on one.

    The other slice has length 1.
    """

    start: int
    stop: int
    features: slice
    sources: slice


class WeightBlock(NamedTuple):
    """The guide's weights that move one predictor's coefficients: places in phi, features, sources, runs."""

    places: Indices
    features: Indices
    sources: Indices
    runs: tuple[Run, ...]


class LinearLayout(NamedTuple):
    """Places in phi, for J predictors of F features and E further parameters.

    Attributes
    ----------
    num_params, num_predictors, num_features : int
        K, J and F.
    extras : tuple of ndarray of int
        For each further parameter, the coordinates of phi that move it.
    extra_bases : tuple of ndarray of int
        The bases that they move it along.
    extra_places : ndarray of int
        `extras`, joined.
    blocks : tuple of WeightBlock
        One a predictor; empty for a guide without weights.
    """

    num_params: int
    num_predictors: int
    num_features: int
    extras: tuple[Indices, ...]
    extra_bases: tuple[Indices, ...]
    extra_places: Indices
    blocks: tuple[WeightBlock, ...]

    @property
    def num_coefficients(self) -> int:
        """J F, how many parameters stand before the further ones."""
        return self.num_predictors * self.num_features


@lru_cache(maxsize=32)
def make_layout(guide: Guide, *, num_params: int, num_features: int, num_extras: int) -> LinearLayout:
    """Return the layout for theta of J blocks of F = `num_features` coefficients and `num_extras` others.

    It is the same in all steps of a run, and kept.
    """
    phi = guide.initial(mean=np.zeros(num_params), u=0.0)
    indices = guide.factors(phi, np.zeros((1, guide.num_noise(num_params))))
    moved, bases = indices.theta_index, indices.base_index
    num_coefficients = num_params - num_extras
    num_predictors = num_coefficients // num_features
    extras = tuple(np.flatnonzero(moved == num_coefficients + e) for e in range(num_extras))
    blocks = []
    if len(phi) > 2 * num_params:
        for j in range(num_predictors):
            is_here = (moved >= j * num_features) & (moved < (j + 1) * num_features)
            is_here[: 2 * num_params] = False
            places = np.flatnonzero(is_here)
            features = moved[places] - j * num_features
            sources = bases[places] - 1 - num_params
            blocks.append(WeightBlock(places, features, sources, _runs(features, sources)))
    return LinearLayout(
        num_params=num_params,
        num_predictors=num_predictors,
        num_features=num_features,
        extras=extras,
        extra_bases=tuple(bases[places] for places in extras),
        extra_places=np.concatenate(extras) if extras else np.empty(0, dtype=np.intp),
        blocks=tuple(blocks),
    )


def _runs(features: Indices, sources: Indices) -> tuple[Run, ...]:
    """Return a block's weights in as few runs as one pass finds."""
    # Along a run one step in (feature, source) repeats.
    steps = np.diff(np.stack([features, sources]), axis=1).T.tolist()
    bounds, current = [0] if len(features) else [], None
    for place, step in enumerate(steps, start=1):
        if step not in ([0, 1], [1, 0]) or (current is not None and step != current):
            bounds.append(place)
            current = None
        else:
            current = step
    return tuple(
        Run(
            low,
            high,
            slice(int(features[low]), int(features[high - 1]) + 1),
            slice(int(sources[low]), int(sources[high - 1]) + 1),
        )
        for low, high in itertools.pairwise([*bounds, len(features)])
    )
