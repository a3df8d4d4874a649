"""The noise that is added is the noise that is accounted."""

import numpy as np
import pytest
from scipy import stats

from nadpvi.privacy.noise import GRID_UNITS, DiscreteGaussianNoise, NoNoise, SimulatedGaussianNoise


def draws(source, steps):
    return np.array([source.draw() for _ in range(steps)])


def test_discrete_noise_is_integer_and_has_the_accounted_scale():
    # 40,000 values: the sd's relative standard error is 0.35 %; 5 of them, false alarm 6e-7.
    source = DiscreteGaussianNoise(noise_multiplier=1.7, dimension=50)
    values = draws(source, 800)
    assert values.shape == (800, 50)
    assert (values == np.round(values)).all()
    scale = 1.7 * GRID_UNITS
    assert abs(values.std() / scale - 1) < 5 * 0.0036
    assert stats.kstest(values.ravel() / scale, "norm").pvalue > 1e-6
    assert source.is_private


def test_a_wrong_scale_would_be_rejected():
    values = draws(DiscreteGaussianNoise(noise_multiplier=1.7 / 2, dimension=50), 800)
    assert abs(values.std() / (1.7 * GRID_UNITS) - 1) > 5 * 0.0036


def test_discrete_noise_matches_its_probability_mass_function(monkeypatch):
    # On a coarse grid every integer is visible: chi-square against exp(-k^2 / 2 s^2), p above 1e-6.
    monkeypatch.setattr("nadpvi.privacy.noise.GRID_UNITS", 2)
    values = draws(DiscreteGaussianNoise(noise_multiplier=0.9, dimension=100), 400).ravel()
    support = np.arange(-6, 7)
    mass = np.exp(-(support**2) / (2 * 1.8**2))
    full = np.exp(-(np.arange(-60, 61) ** 2) / (2 * 1.8**2)).sum()
    observed = np.array([(values == k).sum() for k in support])
    inside = observed.sum()
    expected = mass / mass.sum() * inside
    assert abs(inside / len(values) - mass.sum() / full) < 5e-3
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_steps_and_coordinates_are_independent():
    values = draws(DiscreteGaussianNoise(noise_multiplier=1.0, dimension=4), 8000) / GRID_UNITS
    lagged = (values[1:] * values[:-1]).mean(axis=0) * np.sqrt(7999)
    crossed = (values.T @ values / np.sqrt(8000))[np.triu_indices(4, 1)]
    assert (np.abs(lagged) < 5).all()
    assert (np.abs(crossed) < 5).all()


def test_two_sources_differ():
    first = DiscreteGaussianNoise(noise_multiplier=1.0, dimension=3).draw()
    second = DiscreteGaussianNoise(noise_multiplier=1.0, dimension=3).draw()
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
    values = draws(DiscreteGaussianNoise(noise_multiplier=sigma, dimension=10), 100)
    assert 0.8 < values.std() / (sigma * GRID_UNITS) < 1.2
