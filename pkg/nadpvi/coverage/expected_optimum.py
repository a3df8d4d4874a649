"""The Gaussian-mechanism optimum before there are data: what its posterior's sd is expected to be."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nadpvi.coverage.clamping import choose_upper
from nadpvi.coverage.gaussian_optimum import (
    COUNT_KINDS,
    SUM_KINDS,
    gaussian_mechanism_optimum,
    simulate_statistics,
)
from nadpvi.design import Design
from nadpvi.errors import ArgumentError
from nadpvi.made_up import prior_draws
from nadpvi.models.base import Model
from nadpvi.privacy.accounting_gaussian import gaussian_mu

__all__ = ["ExpectedOptimum", "expected_optimum", "statistics_prior"]

Array = NDArray[np.float64]

_MOST_TABLES, _FEWEST_TABLES = 40, 4
_MOST_PRODUCTS = 4e9  # of all convolutions together, some two seconds
_REACH = 18.0  # in noise sds, of the counts that have weight
_CLAMP_SIMULATIONS = 8


class ExpectedOptimum(NamedTuple):
    """The optimum's expected posterior sd of theta, shape (K,); or None, and the reason in words."""

    sd: Array | None
    reason: str


def statistics_prior(model: Any, design: Design) -> list[float] | None:
    """Return a model's prior as `gaussian_mechanism_optimum` takes it; None for a model unknown to it.

    Examples
    --------
    >>> from nadpvi.models import BernoulliBeta
    >>> from nadpvi.schema import Schema
    >>> schema = Schema.from_dict({"columns": {"well": {"kind": "binary", "levels": ["no", "yes"]}}})
    >>> model = BernoulliBeta(outcome="well", prior_alpha=2.0, prior_beta=3.0)
    >>> statistics_prior(model, model.design(schema))
    [2.0, 3.0]
    """
    if model.kind == "bernoulli_beta":
        return [model.prior_alpha, model.prior_beta]
    if model.kind == "categorical_dirichlet":
        prior = model.prior_records(len(design.outcome_levels) - 1)
        return [*prior.statistics.tolist(), float(prior.weight - prior.statistics.sum())]
    return [model.prior_shape, model.prior_rate] if model.kind in SUM_KINDS else None


def expected_optimum(
    model: Model, design: Design, *, num_records: int, epsilon: float, delta: float
) -> ExpectedOptimum:
    """Return the median of the optimum's posterior sds over tables that are drawn from the prior.

    Neighbours are those of adding or removing one record.

    Parameters
    ----------
    model, design : Model and Design
        Sums are of outcomes clamped where that serves them best (`choose_upper`), within their public bounds.
    num_records : int
        N.
    epsilon, delta : float
        The budget.

    Examples
    --------
    >>> from nadpvi.models import BernoulliBeta
    >>> from nadpvi.schema import Schema
    >>> model = BernoulliBeta(outcome="well", prior_alpha=10, prior_beta=10)
    >>> schema = Schema.from_dict({"columns": {"well": {"kind": "binary", "levels": ["no", "yes"]}}})
    >>> found = expected_optimum(model, model.design(schema), num_records=5000, epsilon=0.1, delta=1e-5)
    >>> 0.03 < found.sd.item() < 0.04
    True
    """
    prior = statistics_prior(model, design)
    if prior is None:
        return ExpectedOptimum(
            None, "not known but for Bernoulli, categorical, exponential and Poisson outcomes by themselves"
        )
    tables = _num_tables(model.kind, num_levels=len(prior), noise_std=1.0 / gaussian_mu(epsilon, delta))
    if tables < _FEWEST_TABLES:
        return ExpectedOptimum(None, "too much noise on too many levels to be worked out here")
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta}
    try:
        upper = None
        if model.kind in SUM_KINDS:
            chosen = choose_upper(
                model.kind,
                prior=prior,
                num_records=num_records,
                seed=0,
                num_simulations=_CLAMP_SIMULATIONS,
                **budget,
            )
            upper = min(chosen, design.outcome_bounds[1])
        theta = prior_draws(model, design, num_draws=tables, rng=np.random.default_rng(0))
        statistics = simulate_statistics(model.kind, theta, num_records=num_records, seed=1, upper=upper)
        found = gaussian_mechanism_optimum(model.kind, statistics, prior=prior, seed=2, upper=upper, **budget)
    except ArgumentError as error:
        return ExpectedOptimum(None, str(error).rstrip("."))
    return ExpectedOptimum(np.median(found.sd, axis=0), "")


def _num_tables(kind: str, *, num_levels: int, noise_std: float) -> int:
    """Return how many tables can be worked out in a moment: sums over counts grow with noise and levels."""
    if kind not in COUNT_KINDS:
        return _MOST_TABLES
    products = (num_levels * (_REACH * noise_std + 2.0)) ** 2
    return min(_MOST_TABLES, math.floor(_MOST_PRODUCTS / products))
