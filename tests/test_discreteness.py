"""The bound between discrete and rounded continuous Gaussian noise, against the distributions themselves."""

import math

import numpy as np
import pytest
from scipy import stats

import nadpvi as na
from nadpvi.privacy.discreteness import discreteness_cost


def log_ratio(scale, reach):
    """log P(rounded normal = k) - log P(discrete Gaussian = k) for |k| <= reach, without cancellation."""
    k = np.arange(-reach, reach + 1)
    left = np.abs(k) - 0.5
    # P(R = k) from survival functions on one side, where both are small and their difference is exact enough.
    rounded = stats.norm.sf(left / scale) - stats.norm.sf((left + 1) / scale)
    support = np.arange(-60 * int(scale) - 60, 60 * int(scale) + 61)
    discrete = np.exp(-(k**2) / (2 * scale**2)) / np.exp(-(support**2) / (2 * scale**2)).sum()
    return np.log(rounded) - np.log(discrete), k


@pytest.mark.parametrize("scale", [10.0, 13.7, 40.0])
def test_pointwise_bounds_of_the_proof(scale):
    ratio, k = log_ratio(scale, int(8 * scale))
    assert (ratio >= math.log1p(-1 / (24 * scale**2)) - 1e-9).all()
    assert (ratio <= k**2 / (8 * scale**4) + 1e-9).all()
    assert np.abs(ratio).max() <= 200 / scale**2
    # The lower bound is attained to leading order at k = 0, so the formula is not off by a factor.
    assert ratio[len(k) // 2] == pytest.approx(-1 / (24 * scale**2), rel=0.05)


def test_cost_is_the_bound_times_all_values():
    cost = discreteness_cost(noise_multiplier=2.0, grid_units=2**20, num_steps=70, dimension=30, epsilon=1.0)
    assert cost == pytest.approx(200 * 70 * 30 / (2.0 * 2**20) ** 2, rel=1e-12)


@pytest.mark.parametrize(
    "changes", [{"grid_units": 1}, {"grid_units": 2**10}, {"epsilon": 800.0}, {"num_steps": 10**13}]
)
def test_a_useless_bound_is_refused(changes):
    base = {"noise_multiplier": 1.0, "grid_units": 2**24, "num_steps": 1000, "dimension": 100, "epsilon": 1.0}
    with pytest.raises(na.PrivacyError, match="fewer steps"):
        discreteness_cost(**base | changes)


def test_the_guarantee_on_record_includes_it(schema, table):
    config = na.DPVIConfig(num_steps=50, sampling_rate=0.3)
    budget = na.PrivacyBudget(epsilon=0.7, delta=1e-6)
    made = na.release(
        na.models.LogisticRegression(outcome="y"), table, schema=schema, privacy=budget, config=config
    )
    cost = discreteness_cost(
        noise_multiplier=made.noise_multiplier, grid_units=2**24, num_steps=50, dimension=12, epsilon=0.7
    )
    continuous = na.epsilon_spent(
        noise_multiplier=made.noise_multiplier, delta=1e-6 * (1 - 2 * cost), num_steps=50, sampling_rate=0.3
    )
    assert 0 < cost < 1e-8
    assert made.guarantee.epsilon == pytest.approx(continuous + 2 * cost, rel=1e-9)
    assert continuous < made.guarantee.epsilon <= 0.7
