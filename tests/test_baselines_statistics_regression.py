"""Linear regression from noisy products: moments, posteriors by brute force, calibration."""

import numpy as np
import pytest
from statistics_cases import ADD, REPLACE, narrowed, uniform_p_value

import nadpvi as na
from nadpvi.baselines.sufficient_statistics.gibbs import sample_statistics
from nadpvi.baselines.sufficient_statistics.mechanism import make_statistics_mechanism
from nadpvi.baselines.sufficient_statistics.predictors import (
    PredictorMoments,
    gaussian_moments,
    nearest_psd,
    noisy_moments,
    pair_indices,
)
from nadpvi.baselines.sufficient_statistics.records import simulate_statistics, true_statistics
from nadpvi.baselines.sufficient_statistics.regression import RegressionStatistics
from nadpvi.baselines.sufficient_statistics.regression_settings import RegressionSettings
from nadpvi.baselines.sufficient_statistics.release import make_statistics_family
from nadpvi.errors import ArgumentError


def make_regression(size, *, is_public=True, has_public_count=True, bound=5.0):
    """Return statistics of a constant and size - 1 standard normal predictors."""
    is_constant = np.arange(size) == 0
    moments = gaussian_moments(is_constant.astype(float), np.diag(~is_constant).astype(float))
    return RegressionStatistics(
        settings=RegressionSettings(
            x_lower=np.where(is_constant, 1.0, -bound),
            x_upper=np.where(is_constant, 1.0, bound),
            y_lower=-8.0,
            y_upper=8.0,
            prior_mean=np.linspace(0.3, -0.2, size),
            prior_sd=np.full(size, 1.5),
            prior_shape=10.0,
            prior_scale=4.0,
            has_public_count=has_public_count,
            moments=moments if is_public else None,
        )
    )


def draw_prior(settings, *, number, rng):
    """Return theta (number, K) from the normal-inverse-gamma prior."""
    variance = settings.prior_scale / rng.standard_gamma(settings.prior_shape, (number, 1))
    white = rng.standard_normal((number, len(settings.prior_mean)))
    w = settings.prior_mean + settings.prior_sd * np.sqrt(variance) * white
    return np.concatenate([w, np.log(variance)], axis=1)


def draw_records(theta, *, number, rng):
    """Return x (number, F) and y (number,)."""
    size = len(theta) - 1
    x = np.concatenate([np.ones((number, 1)), rng.standard_normal((number, size - 1))], axis=1)
    return x, x @ theta[:-1] + np.exp(0.5 * theta[-1]) * rng.standard_normal(number)


@pytest.mark.parametrize("has_public_count", [True, False])
def test_moments_of_a_record_are_those_of_simulated_records(has_public_count):
    """Means and covariances of 400,000 records within 5 standard errors; deviations have that covariance."""
    rng = np.random.default_rng(1)
    theta = np.array([0.4, -0.7, 0.3, np.log(0.5)])
    family = make_regression(3, has_public_count=has_public_count)
    ready, _, _ = family.start(np.ones((1, len(family.labels))), num_records=np.ones(1))
    moments = ready.moments(theta[None])
    x, y = draw_records(theta, number=400_000, rng=rng)
    values = family.record_statistics(y, x=x)
    error = values.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - moments.mean[0]) <= 5 * error + 1e-12).all()
    centred = values - values.mean(axis=0)
    found = np.cov(values.T)
    spread = np.sqrt(np.maximum((centred**2).T @ centred**2 / len(values) - found**2, 0.0) / len(values))
    np.testing.assert_array_less(np.abs(found - moments.covariance[0]), 5 * spread + 1e-12)
    deviations = ready.draw_deviation(np.tile(theta, (200_000, 1)), rng=rng)
    scale = np.sqrt(np.outer(*[moments.covariance[0].diagonal()] * 2))
    np.testing.assert_array_less(np.abs(np.cov(deviations.T) - moments.covariance[0]), 0.02 * scale + 1e-12)


def test_gaussian_moments_are_those_of_simulated_predictors():
    rng = np.random.default_rng(2)
    mean, cov = np.array([1.0, 0.5]), np.array([[0.0, 0.0], [0.0, 2.0]])
    x = np.stack([np.ones(500_000), 0.5 + np.sqrt(2.0) * rng.standard_normal(500_000)], axis=1)
    rows, columns = pair_indices(2)
    products = x[:, rows] * x[:, columns]
    moments = gaussian_moments(mean, cov)
    np.testing.assert_allclose(moments.second, x.T @ x / len(x), atol=0.02)
    np.testing.assert_allclose(moments.products, np.cov(products.T), atol=0.2)


def test_noisy_moments_are_possible_whatever_the_noise():
    """A noiseless X'X gives its own means and covariances; one of noise alone gives some all the same."""
    rng = np.random.default_rng(3)
    x = np.concatenate([np.ones((900, 1)), 0.3 * rng.standard_normal((900, 2))], axis=1)
    matrix = (x.T @ x)[None]
    clean = noisy_moments(matrix, num_records=np.array([900.0]))
    np.testing.assert_allclose(clean.second, matrix / 900, rtol=1e-12)
    noise = 1e4 * rng.standard_normal((5, 3, 3))
    found = noisy_moments(noise + np.swapaxes(noise, 1, 2), num_records=np.full(5, 900.0))
    assert np.linalg.eigvalsh(found.second).min() > -1e-9
    assert np.linalg.eigvalsh(found.products).min() > -1e-9
    assert (found.second[:, 0, 0] == 1.0).all()


def test_nearest_psd_projects():
    rng = np.random.default_rng(4)
    half = rng.standard_normal((6, 4, 4))
    positive = half @ np.swapaxes(half, 1, 2)
    np.testing.assert_allclose(nearest_psd(positive), positive, atol=1e-12)
    symmetric = half + np.swapaxes(half, 1, 2)
    projected = nearest_psd(symmetric)
    assert np.linalg.eigvalsh(projected).min() > -1e-12
    # The projection onto a convex cone: what is taken away is orthogonal to what is left.
    np.testing.assert_allclose(((symmetric - projected) * projected).sum(axis=(1, 2)), 0.0, atol=1e-12)


def weighted_moments(draws, log_weight):
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    mean = weight @ draws
    return mean, np.sqrt(weight @ (draws - mean) ** 2), 1.0 / (weight**2).sum()


@pytest.mark.parametrize(("size", "epsilon"), [(1, 0.5), (2, 0.2), (2, 1.0)])
def test_the_posterior_is_that_of_brute_force(size, epsilon):
    """Against 400,000 prior draws weighted by the normal density of the noisy sums; tolerance 0.08 sd."""
    rng = np.random.default_rng(5)
    family = make_regression(size, bound=4.0)
    privacy = na.PrivacyBudget(epsilon=epsilon, delta=1e-5, neighbouring_relation=REPLACE)
    mechanism = make_statistics_mechanism(family, privacy=privacy, noise="gaussian")
    truth = draw_prior(family.settings, number=1, rng=rng)
    x, y = draw_records(truth[0], number=500, rng=rng)
    noisy = simulate_statistics(mechanism, family.record_statistics(y, x=x).sum(axis=0)[None], rng=rng)
    ready, _, _ = family.start(noisy, num_records=np.array([500.0]))
    draws = draw_prior(family.settings, number=400_000, rng=rng)
    log_weight = np.empty(len(draws))
    for part in np.array_split(np.arange(len(draws)), 20):
        moments = ready.moments(draws[part])
        total = 500 * moments.covariance + mechanism.noise_scale**2 * np.eye(noisy.shape[1])
        residual = noisy - 500 * moments.mean
        solved = np.linalg.solve(total, residual[:, :, None])[:, :, 0]
        log_weight[part] = -0.5 * (np.linalg.slogdet(total)[1] + (residual * solved).sum(axis=1))
    mean, sd, effective = weighted_moments(draws, log_weight)
    assert effective > 2000
    found = sample_statistics(
        family,
        np.tile(noisy, (100, 1)),
        noise="gaussian",
        noise_scale=mechanism.noise_scale,
        num_records=500,
        draws=100,
        thin=4,
        rng=rng,
    ).theta.reshape(-1, size + 1)
    assert (np.abs(found.mean(axis=0) - mean) < 0.08 * sd).all()
    np.testing.assert_allclose(found.std(axis=0), sd, rtol=0.08)


SETTINGS = {
    "Laplace, public moments": (REPLACE, "laplace", True, 1.0, 2),
    "Gaussian, public moments, N noisy": (ADD, "gaussian", True, 1.0, 2),
    "Gaussian, public moments, three predictors": (ADD, "gaussian", True, 1.0, 4),
    # With more predictors, or less budget, noisy moments are too narrow: `statistics_posterior` says so.
    "Gaussian, noisy moments": (REPLACE, "gaussian", False, 4.0, 2),
    "Laplace, noisy moments, N noisy": (ADD, "laplace", False, 8.0, 2),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_it_is_calibrated_for_its_own_mechanism(case):
    """200 tables from the prior: ranks of each coordinate uniform (p above 1e-3), half the width rejected.

    Coverage of 90 % intervals within 4 standard errors. False alarm about 0.3 % a case.
    """
    relation, noise, is_public, epsilon, size = SETTINGS[case]
    rng = np.random.default_rng(sum(map(ord, case)))
    family = make_regression(size, is_public=is_public, has_public_count=relation == REPLACE)
    privacy = na.PrivacyBudget(epsilon=epsilon, delta=1e-5, neighbouring_relation=relation)
    mechanism = make_statistics_mechanism(family, privacy=privacy, noise=noise)
    truth = draw_prior(family.settings, number=200, rng=rng)
    records = [draw_records(theta, number=1500, rng=rng) for theta in truth]
    sums = true_statistics(mechanism, [y for _, y in records], x=[x for x, _ in records])
    found = sample_statistics(
        family,
        simulate_statistics(mechanism, sums, rng=rng),
        noise=noise,
        noise_scale=mechanism.noise_scale,
        num_records=1500 if relation == REPLACE else None,
        draws=99,
        warmup=500,
        thin=8,
        rng=rng,
    ).theta
    low, high = np.quantile(found, [0.05, 0.95], axis=1)
    covered = ((low < truth) & (truth < high)).mean(axis=0)
    assert (np.abs(covered - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 200)).all(), covered
    halved = narrowed(found, factor=0.5)
    for k in range(truth.shape[1]):
        ranks, wrong = ((draws[:, :, k] < truth[:, None, k]).sum(axis=1) for draws in (found, halved))
        assert uniform_p_value(ranks, num_draws=99) > 1e-3
        assert uniform_p_value(wrong, num_draws=99) < 1e-4


def test_ten_dimensions_run_on_the_upper_triangle():
    """A constant, ten predictors and the outcome: 77 products with N public; far too noisy, yet finite."""
    rng = np.random.default_rng(6)
    family = make_regression(11, is_public=False)
    assert len(family.labels) == len(set(family.labels)) == 77
    privacy = na.PrivacyBudget(epsilon=0.1, delta=1e-5, neighbouring_relation=REPLACE)
    mechanism = make_statistics_mechanism(family, privacy=privacy, noise="laplace")
    truth = draw_prior(family.settings, number=3, rng=rng)
    records = [draw_records(theta, number=500, rng=rng) for theta in truth]
    sums = true_statistics(mechanism, [y for _, y in records], x=[x for x, _ in records])
    found = sample_statistics(
        family,
        simulate_statistics(mechanism, sums, rng=rng),
        noise="laplace",
        noise_scale=mechanism.noise_scale,
        num_records=500,
        draws=20,
        warmup=20,
        rng=rng,
    )
    assert found.theta.shape == (3, 20, 12)
    assert np.isfinite(found.theta).all()


def test_moments_must_fit():
    with pytest.raises(ArgumentError, match="second and products must have shapes"):
        PredictorMoments(second=np.eye(2), products=np.eye(2))
    with pytest.raises(ArgumentError, match="x must be given"):
        make_regression(2).record_statistics(np.ones(3))


@pytest.mark.parametrize("feature_range", [(0.0, 1.0), (-6.0, 6.0), (2.0, 7.0), (-9.0, -4.0)])
def test_no_record_within_a_feature_range_exceeds_the_sensitivity(feature_range):
    """Bounds are those of the encoded feature, wherever a schema maps the column's own to."""
    columns = (
        na.RealColumn(name="x", lower=-3.0, upper=5.0, feature_range=feature_range),
        na.RealColumn(name="y", lower=-10.0, upper=10.0),
    )
    family = make_statistics_family(
        na.models.LinearRegression(outcome="y"),
        na.Schema(columns=columns),
        neighbouring_relation="add_or_remove_one",
    )
    corners = np.array([(1.0, x) for x in feature_range for _ in range(2)])
    moved = np.abs(family.record_statistics(np.array([-10.0, 10.0] * 2), x=corners))
    assert moved.sum(axis=1).max() == pytest.approx(family.sensitivity("l1"))
    assert np.sqrt(np.square(moved).sum(axis=1)).max() == pytest.approx(family.sensitivity("l2"))
