"""How sharp a posterior at the same budget could be, where a model has sufficient statistics."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.coverage import gaussian_mechanism_optimum
from nadpvi.coverage.expected_optimum import statistics_prior
from nadpvi.coverage.gaussian_optimum import SUM_KINDS
from nadpvi.experiments.blocks import Block

__all__ = ["optimum_sd"]

Array = NDArray[np.float64]

_CHILD = 90


def _statistics(kind: str, outcomes: Array, *, num_levels: int, upper: float | None) -> list[float]:
    """Return the statistics of one table as `nadpvi.coverage.gaussian_mechanism_optimum` takes them."""
    if kind == "bernoulli_beta":
        ones = float(outcomes.sum())
        return [ones, len(outcomes) - ones]
    if kind == "categorical_dirichlet":
        counts = np.bincount(outcomes.astype(int), minlength=num_levels)
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
    prior = statistics_prior(setting.model, setting.model.design(setting.schema))
    if prior is None or (kind in SUM_KINDS and upper is None):
        return None
    statistics = [
        _statistics(kind, np.asarray(table.records.y, dtype=np.float64), num_levels=len(prior), upper=upper)
        for table in block.tables
    ]
    return gaussian_mechanism_optimum(
        kind,
        statistics,
        prior=prior,
        epsilon=block.budget.epsilon,
        delta=block.budget.delta,
        seed=block.draw_seed(0, child=_CHILD),
        upper=upper,
    ).sd
