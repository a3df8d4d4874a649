import numpy as np
import pytest

from nadpvi.bijectors import softplus, softplus_derivative, softplus_log_derivative

POINTS = np.array([-700.0, -60.0, -37.5, -36.5, -6.0, -0.1, 0.0, 2.0, 40.0, 700.0])


def test_softplus_is_positive_everywhere():
    assert (softplus([-1e6, -800.0, -745.0]) > 0).all()
    assert np.isfinite(np.log(softplus(-1e6)))


@pytest.mark.parametrize("x", POINTS[3:-1])
def test_derivatives_match_finite_differences(x):
    h = 1e-5 * max(1.0, abs(x))
    slope = (softplus(x + h) - softplus(x - h)) / (2 * h)
    np.testing.assert_allclose(softplus_derivative(x), slope, rtol=1e-5, atol=1e-300)
    log_slope = (np.log(softplus(x + h)) - np.log(softplus(x - h))) / (2 * h)
    np.testing.assert_allclose(softplus_log_derivative(x), log_slope, rtol=1e-5)


def test_log_derivative_is_continuous_and_bounded_at_the_far_left():
    values = softplus_log_derivative(POINTS)
    assert np.isfinite(values).all()
    assert (np.diff(values) <= 1e-12).all()
    assert values[0] == 1.0
