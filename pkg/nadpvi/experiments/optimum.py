"""How sharp a posterior at the same budget could be, where a model has sufficient statistics."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nadpvi.coverage import gaussian_mechanism_optimum
from nadpvi.coverage.gaussian_optimum import SUM_KINDS
from nadpvi.experiments.blocks import Block

__all__ = ["optimum_sd"]

Array = NDArray[np.float64]

_CHILD = 90

_PRIORS: dict[str, Callable[[Any], list[float]]] = {
    "bernoulli_beta": lambda model: [model.prior_alpha, model.prior_beta],
    "categorical_dirichlet": lambda model: list(model.concentration),
    "exponential_gamma": lambda model: [model.prior_shape, model.prior_rate],
    "poisson_gamma": lambda model: [model.prior_shape, model.prior_rate],
}


def _statistics(kind: str, outcomes: Array, *, model: Any, upper: float | None) -> list[float]:
    """Return the statistics of one table as `nadpvi.coverage.gaussian_mechanism_optimum` takes them."""
    if kind == "bernoulli_beta":
        ones = float(outcomes.sum())
        return [ones, len(outcomes) - ones]
    if kind == "categorical_dirichlet":
        counts = np.bincount(outcomes.astype(int), minlength=len(model.concentration))
        return [float(count) for count in counts]
    most = np.inf if upper is None else upper
    return [float(len(outcomes)), float(np.minimum(outcomes, most).sum())]


def optimum_sd(block: Block) -> Array | None:
    """Return the posterior sd of theta had all sufficient statistics been released once with Gaussian noise.

    At the block's budget, one row a replicate, shape (R, K); None for a model without such statistics, or
    with sums whose bound for this purpose is not given.
    """
    setting = block.setting
    kind, upper = setting.model.kind, setting.optimum_upper
    if kind not in _PRIORS or (kind in SUM_KINDS and upper is None):
        return None
    statistics = [
        _statistics(kind, np.asarray(table.records.y, dtype=np.float64), model=setting.model, upper=upper)
        for table in block.tables
    ]
    return gaussian_mechanism_optimum(
        kind,
        statistics,
        prior=_PRIORS[kind](setting.model),
        epsilon=block.budget.epsilon,
        delta=block.budget.delta,
        seed=block.draw_seed(0, child=_CHILD),
        upper=upper,
    ).sd
