"""Simulation-based calibration of each method on the post-processing model itself.

The p-values of longer runs are on the page of ``benchmarks/methods_agree.py``.
"""

import warnings

import pytest
from sbc_cases import narrowed, rank_p_values, sample_in_parts, simulate

from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.errors import InferenceWarning
from nadpvi.inference.exact import sample_exact
from nadpvi.inference.laplace import sample_laplace

# The smallest of three p-values: false alarm 0.3 %; and what a posterior of half the sd must fall below.
UNIFORM, REJECTED = 1e-3, 1e-4
DRAWS = 199


@pytest.mark.parametrize("use_tau", [False, True])
def test_exact_ranks_are_uniform(use_tau):
    model, truth = simulate(500, use_tau=use_tau, seed=1)
    fitted = sample_exact(model, draws=DRAWS, chains=1, seed=5)
    found = rank_p_values(fitted, truth, num_bins=20)
    assert min(found.values()) > UNIFORM, found
    for factor in (0.5, 0.75, 1.5):
        wrong = rank_p_values(narrowed(fitted, factor=factor), truth, num_bins=20)
        assert min(wrong.values()) < REJECTED, (factor, wrong)


def test_nuts_ranks_are_uniform():
    model, truth = simulate(100, use_tau=True, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InferenceWarning)
        fitted = sample_in_parts(model, engine=EmbeddedEngine(), draws=DRAWS)
    found = rank_p_values(fitted, truth, num_bins=10)
    assert min(found.values()) > UNIFORM, found
    wrong = rank_p_values(narrowed(fitted, factor=0.5), truth, num_bins=10)
    assert min(wrong.values()) < REJECTED, wrong


def test_laplace_ranks_are_uniform_where_the_curvature_is_well_known():
    """Elsewhere they are not, and are no more than reported on the benchmark's page."""
    known = {"v_prior": (40.0, 5.0), "num_steps": 4000, "step_size": 0.1}
    model, truth = simulate(100, use_tau=False, seed=1, **known)
    fitted = sample_laplace(model, draws=DRAWS, chains=1, seed=5)
    found = rank_p_values(fitted, truth, num_bins=10)
    assert min(found.values()) > UNIFORM, found
    wrong = rank_p_values(narrowed(fitted, factor=0.5), truth, num_bins=10)
    assert min(wrong.values()) < REJECTED, wrong
    model, truth = simulate(500, use_tau=True, seed=1)
    hard = rank_p_values(sample_laplace(model, draws=DRAWS, chains=1, seed=5), truth, num_bins=20)
    assert hard["v"] < REJECTED  # the benchmark would have something else to say
