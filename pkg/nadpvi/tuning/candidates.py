"""Settings to try: a space-filling set around scales that the prior predictive distribution gives."""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from nadpvi.bijectors import inverse_softplus
from nadpvi.config import DPVIConfig
from nadpvi.made_up import prior_draws
from nadpvi.models.base import ExponentialFamily, RecordBatch, SimulatingModel
from nadpvi.schema import Schema

__all__ = ["Scales", "make_candidates", "predictive_scales"]

Array = NDArray[np.float64]

_PRIOR_DRAWS, _RECORDS = 400, 200
_NORM_QUANTILE = 0.99
# Of clip norm over the typical largest gradient, preconditioner, step size over sqrt(D / 2), and the start of
# the scales about the expected one; the last chooses the number of steps.
_LOW = np.array([math.log(0.6), math.log(3.0), math.log(0.3), -0.7, 0.0])
_HIGH = np.array([math.log(2.5), math.log(100.0), math.log(3.0), 0.7, 1.0])
_STEPS = (300, 1000)


class Scales(NamedTuple):
    """What the prior predictive distribution says of a run.

    Attributes
    ----------
    gradient_norm : float
        The norm that one record's gradient in the locations exceeds in one of a hundred cases.
    posterior_sd : float
        Geometric mean over the parameters of the sd that the records alone would leave.
    """

    gradient_norm: float
    posterior_sd: float


def predictive_scales(
    model: ExponentialFamily, *, schema: Schema, num_records: int, rng: np.random.Generator
) -> Scales:
    """Return the scales of a run, from parameters drawn from the prior and records drawn from them.

    A parameter's sd is that of the normal approximation, ``(N I + prior precision)^(-1/2)`` with the Fisher
    information I, the mean square of a record's gradient, averaged over the prior.
    """
    assert isinstance(model, SimulatingModel)  # checked by the caller
    design = model.design(schema)
    theta = prior_draws(model, design, num_draws=_PRIOR_DRAWS, rng=rng)
    x = np.empty((_RECORDS, 0))
    low, high = design.outcome_bounds
    gradients = []
    for one in theta:
        y = np.clip(np.asarray(model.simulate(one, x, rng=rng), dtype=np.float64), low, high)
        statistics = model.statistics(RecordBatch(x=x, y=y), num_params=len(one))
        natural = model.natural_gradient(one)
        gradients.append(statistics @ natural[:-1] + natural[-1])
    found = np.array(gradients)
    _, prior_sd = model.prior_moments(design)
    precision = num_records * np.square(found).mean(axis=(0, 1)) + 1.0 / np.square(prior_sd)
    return Scales(
        gradient_norm=float(np.quantile(np.linalg.norm(found, axis=2), _NORM_QUANTILE)),
        posterior_sd=float(np.exp(-0.5 * np.log(precision).mean())),
    )


def make_candidates(scales: Scales, *, count: int, seed: int) -> list[DPVIConfig]:
    """Return the default settings and `count` - 1 others, from a scrambled Halton sequence."""
    points = qmc.Halton(d=len(_LOW), scramble=True, seed=np.random.default_rng(seed)).random(count - 1)
    return [DPVIConfig(), *(_settings(point, scales) for point in qmc.scale(points, _LOW, _HIGH))]


def _settings(point: Array, scales: Scales) -> DPVIConfig:
    """Return the settings at a point of the space, with three significant digits."""

    def rounded(value: float) -> float:
        return float(f"{value:.3g}")

    start = float(inverse_softplus(np.array(scales.posterior_sd))) + point[3]
    return dataclasses.replace(
        DPVIConfig(),
        clip_norm=rounded(scales.gradient_norm * math.exp(point[0])),
        preconditioner_u=rounded(math.exp(point[1])),
        learning_rate_constant=rounded(math.exp(point[2])),
        initial_u=rounded(max(start, -20.0)),
        num_steps=_STEPS[int(point[4] >= 0.5)],
    )
