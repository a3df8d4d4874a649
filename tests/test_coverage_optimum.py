"""The Gaussian-mechanism optimum: against brute force, against no noise, and calibrated itself."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import digamma, expit, gammaln, polygamma

from nadpvi.coverage import (
    choose_upper,
    gaussian_mechanism_optimum,
    non_private_moments,
    simulate_statistics,
)
from nadpvi.coverage.noisy_counts import count_moments
from nadpvi.coverage.noisy_sums import share_moments, sum_moments
from nadpvi.errors import ArgumentError
from nadpvi.models import BernoulliBeta, CategoricalDirichlet, ExponentialGamma, PoissonGamma
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon
from nadpvi.schema import Schema

BUDGET = {"epsilon": 0.1, "delta": 1e-5}
PRIORS = {
    "bernoulli_beta": [10, 10],
    "categorical_dirichlet": [5, 3, 5, 2],
    "exponential_gamma": [8, 2],
    "poisson_gamma": [8, 2],
}
UPPER = {"exponential_gamma": 0.6, "poisson_gamma": 7.0}
MODELS = {
    "bernoulli_beta": BernoulliBeta(outcome="y", prior_alpha=10, prior_beta=10),
    "categorical_dirichlet": CategoricalDirichlet(outcome="y", concentration=[5, 3, 5, 2]),
    "exponential_gamma": ExponentialGamma(outcome="y", prior_shape=8, prior_rate=2),
    "poisson_gamma": PoissonGamma(outcome="y", prior_shape=8, prior_rate=2),
}
COLUMNS = {
    "bernoulli_beta": {"kind": "binary", "levels": ["0", "1"]},
    "categorical_dirichlet": {"kind": "categorical", "levels": ["a", "b", "c", "d"]},
    "exponential_gamma": {"kind": "real", "lower": 0, "upper": 10},
    "poisson_gamma": {"kind": "count", "upper": 40},
}


def design(kind):
    return MODELS[kind].design(Schema.from_dict({"columns": {"y": COLUMNS[kind]}}))


def prior_draws(kind, size, *, seed):
    return MODELS[kind].draw_prior(design(kind), num_draws=size, rng=np.random.default_rng(seed))


def test_the_design_s_figure():
    """Beta(10, 10), N = 5,000, epsilon 0.1: 0.033 where the non-private posterior has 0.028."""
    made = gaussian_mechanism_optimum("bernoulli_beta", [[2500, 2500]], prior=[10, 10], seed=0, **BUDGET)
    exact = non_private_moments("bernoulli_beta", [[2500, 2500]], prior=[10, 10])
    assert made.sd[0, 0] == pytest.approx(0.033, abs=5e-4)
    assert exact.sd[0, 0] == pytest.approx(0.028, abs=5e-4)
    # The delta method, with the noise of both counts.
    assert made.sd[0, 0] == pytest.approx(np.sqrt(4 / 5020 + 2 * (made.noise_std / 2510) ** 2), rel=0.02)


def test_the_noise_is_that_of_the_analytic_gaussian_mechanism():
    for epsilon in (0.1, 1.0, 3.0):
        made = gaussian_mechanism_optimum(
            "bernoulli_beta", [[5, 5]], prior=[1, 1], epsilon=epsilon, delta=1e-5, seed=0
        )
        assert gaussian_epsilon(1.0 / made.noise_std, 1e-5) == pytest.approx(epsilon, rel=1e-6)


def brute_force(noisy, *, prior, noise_std):
    """Return mean and sd of a logit, summing over all pairs of counts."""
    heads, tails = np.meshgrid(np.arange(0.0, 700.0), np.arange(0.0, 700.0), indexing="ij")
    logarithm = -0.5 * (np.square(heads - noisy[0]) + np.square(tails - noisy[1])) / noise_std**2
    # Beta-binomial, given a number of records that may be any.
    logarithm += stats.betabinom.logpmf(heads, heads + tails, *prior)
    weight = np.exp(logarithm - logarithm.max())
    weight /= weight.sum()
    centre = digamma(heads + prior[0]) - digamma(tails + prior[1])
    within = polygamma(1, heads + prior[0]) + polygamma(1, tails + prior[1])
    mean = (weight * centre).sum()
    return mean, np.sqrt((weight * (within + np.square(centre - mean))).sum())


@pytest.mark.parametrize("prior", [(2.0, 3.0), (20.0, 40.0), (0.3, 0.4)])
@pytest.mark.parametrize(
    "noisy", [(250.3, 310.8), (12.0, 300.0), (-60.0, 150.0), (-30.0, -10.0), (-120.0, -90.0)]
)
def test_noisy_counts_by_brute_force(noisy, prior):
    mean, sd = count_moments(np.array(noisy), concentrations=np.array(prior), noise_std=30.0)
    np.testing.assert_allclose((mean[0], sd[0]), brute_force(noisy, prior=prior, noise_std=30.0), rtol=1e-8)


def test_levels_of_a_die_by_importance_sampling():
    """Counts drawn around the noisy ones and weighted; 4 levels, to 2 %."""
    rng = np.random.default_rng(1)
    noisy, prior, noise_std = np.array([40.0, 90.0, 120.0, 10.0]), np.array([5.0, 3.0, 5.0, 2.0]), 12.0
    drawn = np.round(noisy + 1.2 * noise_std * rng.standard_normal((400_000, 4)))
    counts = drawn[(drawn >= 0).all(axis=1)]
    logarithm = np.square((counts - noisy) / noise_std) * (0.5 / 1.2**2 - 0.5)
    logarithm = (logarithm + gammaln(counts + prior) - gammaln(counts + 1.0)).sum(axis=1)
    total = counts.sum(axis=1)
    logarithm += gammaln(total + 1.0) - gammaln(total + prior.sum())
    weight = np.exp(logarithm - logarithm.max())
    gammas = rng.gamma(counts + prior)
    rest = np.cumsum(gammas[:, ::-1], axis=1)[:, ::-1][:, 1:]
    theta = np.log(gammas[:, :-1] / rest) + np.log([3.0, 2.0, 1.0])
    mean = np.average(theta, axis=0, weights=weight)
    sd = np.sqrt(np.average(np.square(theta - mean), axis=0, weights=weight))
    found = count_moments(noisy, concentrations=prior, noise_std=noise_std)
    np.testing.assert_allclose(found[0], mean, atol=0.02 * sd.min())
    np.testing.assert_allclose(found[1], sd, rtol=0.02)


def test_noisy_sums_by_two_dimensional_quadrature():
    """Exponential outcomes that are never clamped: the sum given the rate is gamma distributed, exactly."""
    noisy, prior, upper, noise_std = np.array([30.0, 270.0]), np.array([8.0, 2.0]), 5.0, 6.0
    theta = np.linspace(-1.5, 2.0, 141)
    num_records = np.arange(240, 361, 2)
    share = np.linspace(1e-3, 80.0, 161)[:, None, None]  # the sum of y/U
    log_density = stats.gamma.logpdf(share, num_records, scale=1.0 / (np.exp(theta)[:, None] * upper))
    log_density -= 0.5 * np.square((share - noisy[0]) / noise_std)
    log_density -= 0.5 * np.square((num_records - share - noisy[1]) / noise_std)
    density = np.exp(log_density - log_density.max()).sum(axis=(0, 2))
    density *= np.exp(prior[0] * theta - prior[1] * np.exp(theta))
    density /= density.sum()
    mean = density @ theta
    sd = np.sqrt(density @ np.square(theta - mean))
    found = sum_moments("exponential_gamma", noisy, prior=prior, upper=upper, noise_std=noise_std)
    assert found[0][0] == pytest.approx(mean, abs=0.03 * sd)
    assert found[1][0] == pytest.approx(sd, rel=0.02)


@pytest.mark.parametrize("upper", [1.0, 3.0, 20.0])
def test_moments_of_clamped_outcomes(upper):
    theta = np.array([-6.0, -1.0, 0.5, 2.5])
    mean, variance = share_moments("exponential_gamma", theta, upper=upper)
    for index, rate in enumerate(np.exp(theta)):
        waiting = stats.expon(scale=1.0 / rate)
        moments = [
            integrate.quad(lambda y, p=power, w=waiting: y**p * w.pdf(y), 0.0, upper)[0] / upper**power
            + waiting.sf(upper)
            for power in (1, 2)
        ]
        assert mean[index] == pytest.approx(moments[0], rel=1e-7)
        assert variance[index] == pytest.approx(moments[1] - moments[0] ** 2, rel=1e-6)
    counts = np.arange(400.0)
    mean, variance = share_moments("poisson_gamma", theta, upper=upper)
    for index, rate in enumerate(np.exp(theta)):
        shares, weight = np.minimum(counts, upper) / upper, stats.poisson(rate).pmf(counts)
        assert mean[index] == pytest.approx(weight @ shares, rel=1e-9)
        assert variance[index] == pytest.approx(weight @ shares**2 - (weight @ shares) ** 2, rel=1e-6)


@pytest.mark.parametrize("kind", PRIORS)
def test_without_noise_it_is_the_non_private_posterior(kind):
    theta = prior_draws(kind, 5, seed=2)
    statistics = simulate_statistics(kind, theta, num_records=3000, seed=1)
    upper = {"exponential_gamma": 1e3, "poisson_gamma": 1e3}.get(kind)
    made = gaussian_mechanism_optimum(
        kind, statistics, prior=PRIORS[kind], epsilon=1e7, delta=1e-5, seed=1, upper=upper
    )
    exact = non_private_moments(kind, statistics, prior=PRIORS[kind])
    np.testing.assert_allclose(made.sd, exact.sd, rtol=0.01)
    # A sum of 3,000 waiting times is not quite normal.
    assert (np.abs(made.mean - exact.mean) < 0.1 * exact.sd).all()


@pytest.mark.parametrize("kind", PRIORS)
def test_statistics_and_theta_are_those_of_the_models(kind):
    """Prior moments to rounding, and levels or mean outcomes within 4 standard errors."""
    nothing = np.zeros((1, len(PRIORS[kind])))
    prior = non_private_moments(kind, nothing, prior=PRIORS[kind])
    mean, sd = MODELS[kind].prior_moments(design(kind))
    np.testing.assert_allclose((prior.mean[0], prior.sd[0]), (mean, sd), rtol=1e-12)
    theta = prior_draws(kind, 3, seed=3)
    found = simulate_statistics(kind, theta, num_records=20_000, seed=4) / 20_000
    expected = MODELS[kind].mean_outcome(theta)
    if kind == "bernoulli_beta":
        np.testing.assert_allclose(expected, expit(theta[:, 0]))
        np.testing.assert_allclose(found[:, 0], expected, atol=4 * 0.5 / np.sqrt(20_000))
    elif kind == "categorical_dirichlet":
        np.testing.assert_allclose(found, expected, atol=4 * 0.5 / np.sqrt(20_000))
    else:
        sd_of_one = expected if kind == "exponential_gamma" else np.sqrt(expected)
        np.testing.assert_array_less(np.abs(found[:, 1] - expected), 4 * sd_of_one / np.sqrt(20_000))


@pytest.mark.parametrize("kind", PRIORS)
def test_the_optimum_is_calibrated(kind):
    """z of 300 truths from the prior: mean square within 4 standard errors of 1, 0.67; and noise matters."""
    theta = prior_draws(kind, 300, seed=5)
    upper = UPPER.get(kind)
    statistics = simulate_statistics(kind, theta, num_records=5000, seed=6, upper=upper)
    made = gaussian_mechanism_optimum(kind, statistics, prior=PRIORS[kind], seed=7, upper=upper, **BUDGET)
    z = (theta - made.mean) / made.sd
    np.testing.assert_allclose(np.square(z).mean(axis=0), 1.0, atol=4 * np.sqrt(2 / 300))
    exact = non_private_moments(
        kind, simulate_statistics(kind, theta, num_records=5000, seed=6), prior=PRIORS[kind]
    )
    assert (made.sd > exact.sd * 0.999).mean() > 0.99
    assert (np.square((theta - made.mean) / exact.sd).mean(axis=0) > 1.2).all()


def test_clamping_keeps_the_records():
    theta = np.array([[0.0], [1.0]])
    whole = simulate_statistics("exponential_gamma", theta, num_records=500, seed=1)
    clamped = simulate_statistics("exponential_gamma", theta, num_records=500, seed=1, upper=1e6)
    np.testing.assert_array_equal(whole, clamped)
    narrow = simulate_statistics("exponential_gamma", theta, num_records=500, seed=1, upper=0.5)
    assert (narrow[:, 1] < whole[:, 1]).all()
    assert (narrow[:, 1] <= 250).all()


def test_the_chosen_clamp_beats_a_wide_one():
    """The published schema's bound of 10 would make the limit nine times as wide."""
    upper = choose_upper(
        "exponential_gamma", prior=[8, 2], num_records=5000, seed=1, num_simulations=10, **BUDGET
    )
    theta = prior_draws("exponential_gamma", 20, seed=8)

    def median_sd(bound):
        statistics = simulate_statistics("exponential_gamma", theta, num_records=5000, seed=1, upper=bound)
        made = gaussian_mechanism_optimum(
            "exponential_gamma", statistics, prior=[8, 2], seed=2, upper=bound, **BUDGET
        )
        return np.median(made.sd)

    best = median_sd(upper)
    assert best < min(median_sd(upper / 4), median_sd(4 * upper))
    assert best < median_sd(10.0) / 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "normal"}, "kind must be one of"),
        ({"statistics": [[1.0, 2.0, 3.0]]}, "a column for each number of the prior"),
        ({"statistics": [1.0, 2.0]}, "a column for each number of the prior"),
        ({"statistics": np.empty((0, 2))}, "a column for each number of the prior"),
        ({"statistics": [[1.0, -2.0]]}, "finite and not negative"),
        ({"statistics": [[1.0, np.nan]]}, "finite and not negative"),
        ({"prior": [0.0, 1.0]}, "prior must be finite and positive"),
        (
            {"statistics": [[1.0, 2.0, 3.0]], "prior": [1, 1, 1]},
            "prior of bernoulli_beta must be two numbers",
        ),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"seed": -1}, "seed must be"),
        ({"upper": 3.0}, "upper must be left out"),
        ({"neighbouring_relation": "replace_one"}, "neighbouring_relation must be 'add_or_remove_one'"),
        ({"kind": "poisson_gamma"}, "upper must be finite and positive"),
        ({"kind": "poisson_gamma", "upper": 2.5}, "upper must be a whole number"),
        ({"kind": "exponential_gamma", "upper": 1.0, "statistics": [[5.0, 6.0]]}, "sums of clamped outcomes"),
    ],
)
def test_arguments_are_refused(change, said):
    good = {"kind": "bernoulli_beta", "statistics": [[5.0, 6.0]], "prior": [1.0, 1.0], "seed": 1, **BUDGET}
    with pytest.raises(ArgumentError, match=said) as caught:
        gaussian_mechanism_optimum(**{**good, **change})
    assert "\n" not in str(caught.value)


def test_a_clamp_is_chosen_for_sums_only():
    settings = {"num_records": 100, "seed": 1, **BUDGET}
    with pytest.raises(ArgumentError, match="others need no clamp"):
        choose_upper("bernoulli_beta", prior=[1, 1], **settings)
    with pytest.raises(ArgumentError, match="prior of poisson_gamma must be two numbers"):
        choose_upper("poisson_gamma", prior=[1, 1, 1], **settings)


def test_noise_that_hides_all_records_is_handled_or_refused():
    """A thousand imagined records, none real: numbers of too many sizes, said in one line."""
    with pytest.raises(
        ArgumentError, match="must not hold 1000 imagined records where noise hides all real ones"
    ):
        count_moments(np.full(3, -150.0), concentrations=np.array([500.0, 200.0, 300.0]), noise_std=30.0)
    for kind in UPPER:
        for prior in ([0.01, 0.01], [8.0, 2.0], [500.0, 0.1]):
            found = sum_moments(
                kind, np.array([-90.0, -60.0]), prior=np.array(prior), upper=5.0, noise_std=30.0
            )
            shape, rate = prior
            # Next to nothing is known but the prior.
            assert found[0][0] == pytest.approx(
                digamma(shape) - np.log(rate), abs=0.8 * np.sqrt(polygamma(1, shape))
            )
            assert found[1][0] == pytest.approx(np.sqrt(polygamma(1, shape)), rel=0.5)
