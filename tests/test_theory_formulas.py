"""Do the closed forms of theory agree with what they are the closed forms of? No simulation."""

import numpy as np
import pytest

from nadpvi.diagnostics.dynamics import known_dynamics
from nadpvi.errors import ArgumentError
from nadpvi.theory import expected_squared_distance, iterate_law, stationary_covariance


@pytest.fixture
def law():
    rng = np.random.default_rng(4)
    basis = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    noise = rng.standard_normal((4, 6))
    return {
        "curvature": basis @ np.diag([0.5, 1.0, 2.0, 5.0]) @ basis.T,
        "sampling_rate": 0.3,
        "learning_rate": np.array([0.2, 0.5, 0.7, 1.0]),
        "noise_covariance": noise @ noise.T,
    }


def test_law_is_the_recursion_of_the_step(law):
    """The mean and the covariance, one step after the other, and where they end."""
    start, optimum = np.arange(4.0), np.array([3.0, -1.0, 0.5, 2.0])
    pull = 0.3 * law["learning_rate"][:, None] * law["curvature"]
    kick = law["noise_covariance"] * np.outer(law["learning_rate"], law["learning_rate"])
    mean, covariance = start, np.zeros((4, 4))
    for step in range(400):
        if step in (0, 1, 2, 7):
            found = iterate_law(step, start=start, phi_star=optimum, **law)
            np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
            np.testing.assert_allclose(found.covariance, covariance, rtol=1e-9, atol=1e-12)
        mean = mean - pull @ (mean - optimum)
        keep = np.eye(4) - pull
        covariance = keep @ covariance @ keep.T + kick
    np.testing.assert_allclose(stationary_covariance(**law), covariance, rtol=1e-6)


def test_continuous_law_is_that_of_many_small_steps(law):
    """A thousandth of the step size and a thousand times the noise variance is nearly continuous."""
    start, optimum = np.arange(4.0), np.zeros(4)
    fine = law | {
        "learning_rate": law["learning_rate"] / 1000,
        "noise_covariance": law["noise_covariance"] * 1000,
    }
    expected = iterate_law(5, start=start, phi_star=optimum, is_continuous=True, **law)
    found = iterate_law(5000, start=start, phi_star=optimum, **fine)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=2e-3)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("is_continuous", [False, True])
def test_squared_distance_is_the_trace_whatever_the_axes(law, is_continuous):
    """The corrected last line of section 11; the printed one agrees at sampling rate 1 alone."""
    values = np.array([0.5, 1.0, 2.0, 5.0])
    for rate in (0.1, 0.6, 1.0):
        law |= {"sampling_rate": rate, "learning_rate": 0.3, "noise_covariance": 4.0 * np.eye(4)}
        settled = stationary_covariance(**law, is_continuous=is_continuous)
        found = expected_squared_distance(
            values, sampling_rate=rate, learning_rate=0.3, noise_std=2.0, is_continuous=is_continuous
        )
        np.testing.assert_allclose(found, np.trace(settled), rtol=1e-12)
        printed = 0.3 * 4.0 / rate * np.sum(1 / (2 * values - 0.3 * values**2))
        assert np.isclose(found, printed, rtol=0.05) == (rate == 1.0 and not is_continuous)


def test_diagnostics_take_the_same_law():
    """`known_dynamics` knows the slope alone, and corrects it for a bias that a long window has not."""
    for step in (0.01, 0.3, 1.2):
        dynamics = known_dynamics(
            step=np.array([step]),
            learning_rate=np.array([0.5]),
            noise_sd=np.array([3.0]),
            root_spread=np.array([1.0]),
            num_steps=10**7,
        )
        settled = stationary_covariance(
            [[step / 0.5]], sampling_rate=1.0, learning_rate=0.5, noise_covariance=[[9.0]]
        )
        np.testing.assert_allclose(dynamics.sd**2, settled[0], rtol=1e-4)


@pytest.mark.parametrize("step", [0.0, -0.1, 2.0, 7.0])
def test_iterates_that_never_settle_are_refused(step):
    law = {"sampling_rate": 0.5, "learning_rate": 2.0, "noise_covariance": [[1.0]]}
    with pytest.raises(ArgumentError, match="between 0 and 2"):
        stationary_covariance([[step]], **law)
    with pytest.raises(ArgumentError, match="between 0 and 2"):
        expected_squared_distance([step], sampling_rate=0.5, learning_rate=2.0, noise_std=1.0)
    if step > 0:
        assert stationary_covariance([[step]], is_continuous=True, **law) > 0


def test_shapes_and_ranges_are_checked(law):
    for wrong in (
        {"noise_covariance": np.eye(3)},
        {"curvature": np.ones((4, 3))},
        {"learning_rate": -1.0},
        {"sampling_rate": 1.5},
    ):
        with pytest.raises(ArgumentError):
            stationary_covariance(**law | wrong)
