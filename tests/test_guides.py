import numpy as np
import pytest

from nadpvi.guides import MeanField


@pytest.fixture(params=["sd", "variance"])
def guide(request):
    return MeanField(scale=request.param)


def test_scale_is_what_its_name_says():
    phi = np.array([0.0, 0.0])
    assert MeanField(scale="sd").standard_deviation(phi)[0] == pytest.approx(np.log(2))
    assert MeanField(scale="variance").standard_deviation(phi)[0] == pytest.approx(np.sqrt(np.log(2)))


def test_sd_derivative_and_entropy_gradient_match_finite_differences(guide):
    phi = np.concatenate([np.zeros(5), [-8.0, -3.0, 0.0, 1.5, 30.0]])
    h = 1e-6
    for k in range(5):
        up, down = phi.copy(), phi.copy()
        up[5 + k] += h
        down[5 + k] -= h
        change = guide.standard_deviation(up)[k] - guide.standard_deviation(down)[k]
        np.testing.assert_allclose(guide.standard_deviation_derivative(phi)[k], change / (2 * h), rtol=1e-6)
        log_change = np.log(guide.standard_deviation(up)[k]) - np.log(guide.standard_deviation(down)[k])
        np.testing.assert_allclose(guide.entropy_gradient(phi)[5 + k], log_change / (2 * h), rtol=1e-6)
    assert (guide.entropy_gradient(phi)[:5] == 0).all()


def test_scale_cannot_reach_zero(guide):
    phi = np.array([0.0, -800.0])
    assert guide.standard_deviation(phi)[0] > 0
    assert np.isfinite(guide.entropy_gradient(phi)).all()
    assert np.isfinite(guide.standard_deviation_derivative(phi)).all()


def test_draws_have_the_stated_moments(guide):
    # 200,000 draws: mean within 5 and sd within 5 of their standard errors (false alarm below 1e-6).
    phi = np.array([1.5, -0.7])
    draws = guide.draw(phi, np.random.default_rng(0).standard_normal((200_000, 1)))
    sd = guide.standard_deviation(phi)[0]
    assert abs(draws.mean() - 1.5) < 5 * sd / np.sqrt(200_000)
    assert abs(draws.std() / sd - 1) < 5 / np.sqrt(400_000)


def test_draw_broadcasts_over_chains(guide):
    phi = np.zeros((2, 3, 8))
    assert guide.draw(phi, np.ones((2, 3, 4))).shape == (2, 3, 4)


def test_labels_put_locations_first():
    assert MeanField().labels(["a", "b"]) == ("mu[a]", "mu[b]", "u[a]", "u[b]")
