"""The noise that is added is the noise that is accounted."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from nadpvi import PrivacyError
from nadpvi.privacy.noise import GRID_UNITS, DiscreteGaussianNoise, NoNoise, SimulatedGaussianNoise


def draws(source, steps):
    return np.array([source.draw() for _ in range(steps)])


def test_discrete_noise_is_integer_and_has_the_accounted_scale():
    # 40,000 values: the sd's relative standard error is 0.35 %; 5 of them, false alarm 6e-7.
    source = DiscreteGaussianNoise(noise_multiplier=1.7, dimension=50, num_steps=800)
    values = draws(source, 800)
    assert values.shape == (800, 50)
    assert (values == np.round(values)).all()
    scale = 1.7 * GRID_UNITS
    assert abs(values.std() / scale - 1) < 5 * 0.0036
    assert stats.kstest(values.ravel() / scale, "norm").pvalue > 1e-6
    assert source.is_private


def test_a_wrong_scale_would_be_rejected():
    values = draws(DiscreteGaussianNoise(noise_multiplier=1.7 / 2, dimension=50, num_steps=800), 800)
    assert abs(values.std() / (1.7 * GRID_UNITS) - 1) > 5 * 0.0036


def test_discrete_noise_matches_its_probability_mass_function(monkeypatch):
    # On a coarse grid every integer is visible: chi-square against exp(-k^2 / 2 s^2), p above 1e-6.
    monkeypatch.setattr("nadpvi.privacy.noise.GRID_UNITS", 2)
    values = draws(DiscreteGaussianNoise(noise_multiplier=0.9, dimension=100, num_steps=400), 400).ravel()
    support = np.arange(-6, 7)
    mass = np.exp(-(support**2) / (2 * 1.8**2))
    full = np.exp(-(np.arange(-60, 61) ** 2) / (2 * 1.8**2)).sum()
    observed = np.array([(values == k).sum() for k in support])
    inside = observed.sum()
    expected = mass / mass.sum() * inside
    assert abs(inside / len(values) - mass.sum() / full) < 5e-3
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_steps_and_coordinates_are_independent():
    values = (
        draws(DiscreteGaussianNoise(noise_multiplier=1.0, dimension=4, num_steps=8000), 8000) / GRID_UNITS
    )
    lagged = (values[1:] * values[:-1]).mean(axis=0) * np.sqrt(7999)
    crossed = (values.T @ values / np.sqrt(8000))[np.triu_indices(4, 1)]
    assert (np.abs(lagged) < 5).all()
    assert (np.abs(crossed) < 5).all()


def test_two_sources_differ():
    first = DiscreteGaussianNoise(noise_multiplier=1.0, dimension=3, num_steps=1).draw()
    second = DiscreteGaussianNoise(noise_multiplier=1.0, dimension=3, num_steps=1).draw()
    assert (first != second).any()


def test_simulated_noise_is_reproducible_and_says_so():
    first = SimulatedGaussianNoise(np.random.default_rng(1), noise_multiplier=2.0, dimension=3)
    second = SimulatedGaussianNoise(np.random.default_rng(1), noise_multiplier=2.0, dimension=3)
    np.testing.assert_array_equal(first.draw(), second.draw())
    assert not first.is_private
    assert "simulation" in first.mechanism


def test_no_noise_is_not_private():
    source = NoNoise(dimension=3)
    assert not source.draw().any()
    assert not source.is_private


@pytest.mark.parametrize("sigma", [0.3, 37.0, 1e4])
def test_any_reasonable_sigma_can_be_drawn(sigma):
    values = draws(DiscreteGaussianNoise(noise_multiplier=sigma, dimension=10, num_steps=100), 100)
    assert 0.8 < values.std() / (sigma * GRID_UNITS) < 1.2


@pytest.mark.parametrize("num_steps", [1, 2, 999, 1000, 2500])
def test_exactly_the_announced_number_of_steps_can_be_drawn(num_steps):
    source = DiscreteGaussianNoise(noise_multiplier=1.0, dimension=20, num_steps=num_steps)
    values = draws(source, num_steps)
    assert len(np.unique(values)) > 0.99 * values.size  # fresh values, no block used twice
    with pytest.raises(PrivacyError, match="more noise was drawn"):
        source.draw()


def test_noise_beyond_the_exact_range_is_refused_before_any_is_drawn():
    with pytest.raises(PrivacyError, match="exact range"):
        DiscreteGaussianNoise(noise_multiplier=1e9, dimension=20, num_steps=1)


def test_a_forked_process_cannot_repeat_the_noise():
    source = DiscreteGaussianNoise(noise_multiplier=1.0, dimension=4, num_steps=10)
    source.draw()
    source._process += 1  # what a child would see
    with pytest.raises(PrivacyError, match="forked"):
        source.draw()


def test_a_source_that_is_not_used_up_ends_with_its_process():
    code = (
        "from nadpvi.privacy.noise import DiscreteGaussianNoise as N\n"
        "n = N(noise_multiplier=1.0, dimension=100, num_steps=5000); n.draw(); print('done')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "done\n"
