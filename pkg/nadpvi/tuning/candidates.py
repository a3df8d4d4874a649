"""Settings to try: a space-filling set around those that are suggested."""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from nadpvi.config import DPVIConfig
from nadpvi.planning.pace import with_kept_pace
from nadpvi.planning.rounding import rounded

__all__ = ["make_candidates"]

Array = NDArray[np.float64]

# Logarithms of factors of the clip norm, the preconditioner and the step sizes of locations and of scales;
# what is added to the start of the scales; and what chooses the number of steps.
_LOW = np.array([math.log(0.75), math.log(0.1), math.log(0.5), math.log(0.5), -0.7, 0.0])
_HIGH = np.array([math.log(1.5), math.log(3.0), math.log(2.0), math.log(2.0), 0.7, 1.0])
_MORE_STEPS = 3


def make_candidates(base: DPVIConfig, *, count: int, seed: int) -> list[DPVIConfig]:
    """Return `base` and `count` - 1 settings around it, from a scrambled Halton sequence.

    Parameters
    ----------
    base : DPVIConfig
        From `nadpvi.suggest_config`.
    count, seed : int
        How many, and the seed of the sequence.
    """
    points = qmc.Halton(d=len(_LOW), scramble=True, seed=np.random.default_rng(seed)).random(count - 1)
    return [base, *(_moved(base, point) for point in qmc.scale(points, _LOW, _HIGH))]


def _moved(base: DPVIConfig, point: Array) -> DPVIConfig:
    """Return the settings at a point of the space, with three significant digits."""
    # As suggested ones have.
    assert base.clip_norm is not None
    clip, preconditioner, step, scale_step = np.exp(point[:4])
    longer = _MORE_STEPS if point[5] >= 0.5 else 1
    # Three times the steps of a third of the size: the same scatter of the iterates, in smaller steps.
    paced = with_kept_pace(
        base, num_steps=base.num_steps * longer, preconditioner_u=base.preconditioner_u * preconditioner
    )
    assert paced.learning_rate is not None
    factors = {
        label: rounded(factor if label.startswith("mu[") else factor * scale_step / step)
        for label, factor in (paced.learning_rate_factors or {}).items()
    }
    return dataclasses.replace(
        paced,
        clip_norm=rounded(base.clip_norm * clip),
        preconditioner_u=rounded(paced.preconditioner_u),
        learning_rate=rounded(paced.learning_rate * step),
        learning_rate_factors=factors,
        initial_u=_moved_scales(base.initial_u, by=float(point[4])),
    )


def _moved_scales(start: float | Mapping[str, float], *, by: float) -> float | dict[str, float]:
    """Return the start of the scales, or of each, moved by a step."""
    if isinstance(start, Mapping):
        return {name: _moved_scale(u, by=by) for name, u in start.items()}
    return _moved_scale(start, by=by)


def _moved_scale(start: float, *, by: float) -> float:
    """Return one start moved by a step."""
    return rounded(max(start + by, -20.0))
