"""Is the sum over a Poisson sample what the Gaussian of Eq. (9) says? Against the engine's own samples.

Step sizes are so small that iterates stay where they are: every step is then another sample of the same
gradients. 40,000 of them a case. Moments are compared in their standard errors: within 4.5 of them, the 60
numbers of this file would fail by chance under one seed in 2,000.
"""

import itertools
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit
from theory_cases import BUDGET, RATE, errors_of

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.models import BernoulliBeta, CategoricalDirichlet, ExponentialGamma, PoissonGamma
from nadpvi.private.replicates import replicate_seeds, simulate_releases
from nadpvi.theory import subsampled_sum

REPLICATES, STEPS = 200, 200
SOUND, WRONG = 4.5, 8.0
SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "wait": {"kind": "real", "lower": 0, "upper": 50},
            "heads": {"kind": "binary", "levels": ["no", "yes"]},
            "blood": {"kind": "categorical", "levels": ["0", "A", "B"]},
            "visits": {"kind": "count", "upper": 40},
        }
    }
)


class Case(NamedTuple):
    """A model, a table, where the iterates stay, and the records' gradients there, shape (N, K)."""

    model: object
    table: np.ndarray
    theta: np.ndarray
    gradients: np.ndarray
    sampling_rate: float
    clip_norm: float = 100.0

    @property
    def clipped(self):
        norms = np.linalg.norm(self.gradients, axis=1, keepdims=True)
        return self.gradients / np.maximum(norms / self.clip_norm, 1.0)


def coin(num_heads, num_records, *, theta, sampling_rate=0.1):
    table = np.repeat([1.0, 0.0], [num_heads, num_records - num_heads])
    model = BernoulliBeta(outcome="heads", prior_alpha=10.0, prior_beta=10.0)
    return Case(model, table, np.array([theta]), (expit(theta) - table)[:, None], sampling_rate)


def waits(num_records, *, sampling_rate=0.1, clip_norm=100.0):
    table = np.random.default_rng(num_records).exponential(0.5, num_records)
    model = ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0)
    theta = np.log([2.0])
    return Case(model, table, theta, (2.0 * table - 1.0)[:, None], sampling_rate, clip_norm)


def visits():
    """Counts whose gradients are clipped above 3."""
    table = np.random.default_rng(1).poisson(2.0, 2000).astype(float)
    model = PoissonGamma(outcome="visits", prior_shape=3.0, prior_rate=1.5)
    return Case(model, table, np.log([1.5]), (1.5 - table)[:, None], 0.3, 3.0)


def blood():
    """Three levels by stick breaking; away from the optimum, so that coordinates are correlated."""
    table = np.repeat([0.0, 1.0, 2.0], [900, 400, 700])
    model = CategoricalDirichlet(outcome="blood", concentration=(5.0, 5.0, 5.0))
    shares = expit(np.array([1.0, -0.5]) - np.log([2.0, 1.0]))
    gradients = np.stack([shares[0] - (table == 0), (table > 0) * (shares[1] - (table == 1))], axis=1)
    return Case(model, table, np.array([1.0, -0.5]), gradients, 0.1)


CASES = {"coin": coin(300, 1000, theta=0.4), "waits": waits(1000), "visits": visits(), "blood": blood()}


def sums_of(case, *, privacy=None, num_replicates=REPLICATES):
    """Return the engine's noisy sums less the public part, shape (R * T, K), and sigma * C."""
    size = len(case.theta)
    description = ModelDescription(model=case.model, schema=SCHEMA, guide=na.MeanField())
    traces = simulate_releases(
        case.model,
        [case.table] * num_replicates,
        schema=SCHEMA,
        privacy=na.NonPrivate() if privacy is None else privacy,
        seeds=replicate_seeds(2, num_replicates=num_replicates),
        config=na.DPVIConfig(
            num_steps=STEPS,
            sampling_rate=case.sampling_rate,
            clip_norm=case.clip_norm,
            learning_rate=1e-12,
            monte_carlo_samples=2,
            initial_mu=dict(zip(description.names, case.theta.tolist(), strict=True)),
            initial_u=-25.0,
        ),
    )
    prior = case.model.log_prior_gradient(case.theta, case.model.design(SCHEMA))
    values = traces.noisy_gradient[..., :size].reshape(-1, size) + case.sampling_rate * prior
    return values, traces.mechanism.noise_multiplier * case.clip_norm


def chance(values):
    """Return how far an empirical distribution function is from its own, but under one seed in 10,000.

    Of Dvoretzky, Kiefer and Wolfowitz, with Massart's constant.
    """
    return np.sqrt(np.log(2.0 / 1e-4) / (2 * len(values)))


def distance_to_gaussian(values, expected):
    """Return the largest difference between distribution functions, of one coordinate."""
    sd = np.sqrt(expected.covariance[0, 0])
    return stats.kstest(values[:, 0], stats.norm(expected.mean[0], sd).cdf).statistic


@pytest.fixture(scope="module", params=CASES)
def sampled(request):
    case = CASES[request.param]
    return request.param, case, sums_of(case)[0]


class TestMoments:
    def test_of_the_engines_sums(self, sampled):
        _, case, values = sampled
        expected = subsampled_sum(case.clipped, sampling_rate=case.sampling_rate)
        assert np.abs(errors_of(values, expected.mean)).max() < SOUND
        centred = values - expected.mean
        outer = np.einsum("ni,nj->nij", centred, centred)
        assert np.abs(errors_of(outer, expected.covariance)).max() < SOUND
        cubes = (centred / np.sqrt(np.diag(expected.covariance))) ** 3
        assert np.abs(errors_of(cubes, expected.skewness)).max() < SOUND

    def test_other_covariances_are_wrong(self, sampled):
        """Without 1 - kappa, and about the mean gradient, as samples of one size would have it."""
        name, case, values = sampled
        rows, rate = case.clipped, case.sampling_rate
        centred = values - rate * rows.sum(axis=0)
        outer = np.einsum("ni,nj->nij", centred, centred)
        away = rows - rows.mean(axis=0)
        wrong = [rate * rows.T @ rows]
        if name != "waits":  # whose table has nearly the mean that the iterate says
            wrong.append(rate * (1 - rate) * away.T @ away)
        for covariance in wrong:
            assert np.abs(errors_of(outer, covariance)).max() > WRONG

    def test_rows_that_are_clipped_count_as_clipped(self):
        case = CASES["visits"]
        values, _ = sums_of(case)
        assert 0.01 < (case.gradients < -case.clip_norm).mean() < 0.2
        unclipped = subsampled_sum(case.gradients, sampling_rate=case.sampling_rate)
        assert abs(errors_of(values, unclipped.mean)[0]) > WRONG

    def test_with_privacy_noise(self):
        case = coin(24_000, 40_000, theta=0.4, sampling_rate=RATE)._replace(clip_norm=1.0)
        values, noise_std = sums_of(case, privacy=BUDGET)
        expected = subsampled_sum(case.clipped, sampling_rate=RATE, noise_std=noise_std)
        squares = (values - expected.mean) ** 2
        assert abs(errors_of(squares, expected.covariance[0])[0]) < SOUND
        assert abs(errors_of(squares, noise_std**2)[0]) > WRONG
        assert abs(distance_to_gaussian(values, expected)) < chance(values)

    def test_of_all_subsets(self):
        """Mean, covariance and skewness of eight gradients, summed over the 256 samples there are."""
        rows = np.random.default_rng(3).gamma(1.0, size=(8, 2)) - [0.5, 1.0]
        is_in = np.array(list(itertools.product([0.0, 1.0], repeat=8)))
        weights = np.prod(np.where(is_in, 0.3, 0.7), axis=1)
        sums = is_in @ rows
        centred = sums - weights @ sums
        found = subsampled_sum(rows, sampling_rate=0.3)
        np.testing.assert_allclose(found.mean, weights @ sums, rtol=1e-12)
        np.testing.assert_allclose(found.covariance, (centred.T * weights) @ centred, rtol=1e-12)
        expected = weights @ centred**3 / (weights @ centred**2) ** 1.5
        np.testing.assert_allclose(found.skewness, expected, rtol=1e-12)

    def test_counts_stand_for_records(self):
        rows, counts = np.array([[1.0, 0.5], [-2.0, 0.1]]), np.array([7, 3])
        together = subsampled_sum(rows, sampling_rate=0.3, counts=counts, noise_std=[0.5, 2.0])
        apart = subsampled_sum(np.repeat(rows, counts, axis=0), sampling_rate=0.3, noise_std=[0.5, 2.0])
        for one, other in zip(together, apart, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)

    def test_everything_enters_at_rate_one(self):
        found = subsampled_sum([[1.0], [2.0]], sampling_rate=1.0)
        assert found.mean == 3.0
        assert found.covariance == found.skewness == found.distance_bound == 0.0

    def test_shapes_and_ranges_are_checked(self):
        for wrong in (
            {"sampling_rate": 0.0},
            {"sampling_rate": 1.1},
            {"sampling_rate": 0.1, "counts": [1, 2]},
        ):
            with pytest.raises(ArgumentError):
                subsampled_sum([[1.0]], **wrong)


class TestDistance:
    """How far the distribution functions are apart."""

    @pytest.mark.parametrize("num_records", [100, 400])
    def test_it_is_what_skewness_makes_it(self, num_records):
        """Exponential records, the most skewed of the models: 0.03 with ten records a sample."""
        case = waits(num_records)
        values, _ = sums_of(case)
        expected = subsampled_sum(case.gradients, sampling_rate=0.1)
        found = distance_to_gaussian(values, expected)
        assert abs(found - expected.expected_distance[0]) < chance(values)
        assert found < expected.distance_bound[0]
        if num_records == 100:
            assert found > 2 * chance(values)

    def test_published_settings_are_near_a_gaussian(self):
        """N = 5,000, kappa = 0.1: as far as 20,000 samples tell, without any help from the privacy noise."""
        case = waits(5000)
        values, _ = sums_of(case, num_replicates=100)
        expected = subsampled_sum(case.gradients, sampling_rate=0.1)
        assert expected.expected_distance < 0.006
        assert distance_to_gaussian(values, expected) < chance(values)

    def test_a_few_coins_are_not(self):
        """Two records a sample, one of them in forty a head: the bound says it, and the sums show it."""
        case = coin(1, 40, theta=-2.0, sampling_rate=0.05)
        values, _ = sums_of(case)
        expected = subsampled_sum(case.gradients, sampling_rate=0.05)
        found = distance_to_gaussian(values, expected)
        assert 0.1 < found < expected.distance_bound[0] + chance(values)

    def test_privacy_noise_brings_it_nearer(self):
        rows = waits(100).gradients
        alone = subsampled_sum(rows, sampling_rate=0.1)
        sd = np.sqrt(alone.covariance[0])
        noisy = subsampled_sum(rows, sampling_rate=0.1, noise_std=np.sqrt(3.0) * sd)
        np.testing.assert_allclose(noisy.expected_distance, alone.expected_distance / 8.0)
        np.testing.assert_allclose(noisy.distance_bound, alone.distance_bound / 8.0)
