"""Ranks and coverage tests: uniform where a posterior is right, rejected where it is wrong."""

import numpy as np
import pytest
from coverage_cases import scored, simulate
from scipy import stats

from nadpvi.coverage import (
    coverage_rmse_bound,
    coverage_test,
    interval_coverage,
    score_draws,
    score_many,
    summarise_scores,
)
from nadpvi.coverage.null import uniform_null
from nadpvi.coverage.ranks import num_held_out, reference_offsets
from nadpvi.errors import ArgumentError

WRONG = {"halved": {"sd_factor": 0.5}, "doubled": {"sd_factor": 2.0}, "shifted": {"shift": 0.5}}


def test_one_replicate_scores_as_among_many():
    draws, truth = simulate(30, num_params=3, num_draws=800)  # several chunks
    many = score_many(draws, truth, seeds=range(30), num_references=12)
    for index in (0, 17, 29):
        one = score_draws(draws[index], truth[index], seed=index, num_references=12)
        assert one.keys() == many.keys()
        for name, value in one.items():
            np.testing.assert_array_equal(value, many[name][index], err_msg=name)


def test_ranks_count_the_draws_that_are_nearer():
    draws, truth = simulate(1, num_params=2, num_draws=300, seed=3)
    found = score_draws(draws[0], truth[0], seed=1, num_references=5)
    held = num_held_out(300)
    centre, scale = draws[0, :held].mean(axis=0), draws[0, :held].std(axis=0, ddof=1)
    counted = draws[0, held:]
    for index, offset in enumerate(reference_offsets(5, num_params=2, seed=0)):
        point = centre + offset * scale
        far = np.linalg.norm((truth[0] - point) / scale)
        nearer = np.linalg.norm((counted - point) / scale, axis=1) < far
        assert np.floor(found["joint"][index] * (len(counted) + 1)) == nearer.sum()
        for k in range(2):
            nearer = np.abs(counted[:, k] - point[k]) < abs(truth[0, k] - point[k])
            assert np.floor(found["marginal"][index, k] * (len(counted) + 1)) == nearer.sum()
    np.testing.assert_array_equal(found["rank"], (draws[0] < truth[0]).sum(axis=0))


def test_references_are_on_the_scale_of_the_posterior():
    """Ranks do not change when a parameter's unit does."""
    draws, truth = simulate(1, num_params=2, seed=4)
    unit = np.array([1e-6, 1e6])
    before = score_draws(draws[0], truth[0], seed=1)
    after = score_draws(7.0 + unit * draws[0], 7.0 + unit * truth[0], seed=1)
    for name in ("joint", "marginal"):
        np.testing.assert_array_equal(before[name], after[name])


def test_a_longer_list_of_references_begins_with_the_shorter():
    np.testing.assert_array_equal(
        reference_offsets(20, num_params=3, seed=5)[:4], reference_offsets(4, num_params=3, seed=5)
    )


def test_moments_and_scores_of_normal_draws():
    """Closed forms of the normal distribution, within 4 standard errors of a million draws."""
    draws = 2.0 + 3.0 * np.random.default_rng(0).standard_normal((1_000_000, 1))
    for truth in (2.0, 3.0, -6.0):
        found = score_draws(draws, [truth], seed=1, num_references=1)
        z = (truth - 2.0) / 3.0
        crps = 3.0 * (z * (2.0 * stats.norm.cdf(z) - 1.0) + 2.0 * stats.norm.pdf(z) - 1.0 / np.sqrt(np.pi))
        assert found["crps"][0] == pytest.approx(crps, abs=0.012)
        assert found["log_score"][0] == pytest.approx(stats.norm(2.0, 3.0).logpdf(truth), abs=0.02)
        assert found["z"][0] == pytest.approx(z, abs=0.01)
        assert found["covered_90"][0] == float(abs(z) < 1.645)
        assert (found["num_draws"], found["truth"][0]) == (1_000_000, truth)


def test_crps_is_fair_to_few_draws():
    """Its mean over draws does not depend on their number; within 4 standard errors of 20,000 replicates."""
    few, many = (scored(20_000, num_draws=50, num_references=1, seed=s)["crps"] for s in (1, 2))
    exact = 0.3 / np.sqrt(np.pi)
    for values in (few, many):
        assert abs(values.mean() - exact) < 4 * values.std() / np.sqrt(20_000)
    biased = exact * (1.0 + 1.0 / 50)  # with the draw itself among those it is compared with
    assert abs(few.mean() - biased) > 4 * few.std() / np.sqrt(20_000)


def test_ranks_are_uniform_however_few_the_draws():
    """20,000 perfect posteriors of 50 draws at level 1e-3; the published share is rejected there."""
    scores = scored(20_000, num_draws=50, num_params=2, num_references=1, seed=6)
    for ranks in (scores["joint"], scores["marginal"][:, :, 0], scores["marginal"][:, :, 1]):
        assert coverage_test(ranks, seed=1).p_value > 1e-3
        assert stats.kstest(ranks[:, 0], "uniform").pvalue > 1e-3
    steps = 50 - num_held_out(50)
    assert coverage_test(np.floor(scores["joint"] * (steps + 1)) / steps, seed=1).p_value == 1e-4


def test_draws_stuck_on_the_truth_leave_ranks_uniform():
    """Two thirds of draws equal a value that the truth takes as often: ties are split at random."""
    rng = np.random.default_rng(7)
    size, num_draws = 4000, 60
    values = rng.standard_normal((size, num_draws + 1, 2))
    stuck = rng.random((size, num_draws + 1)) < 2 / 3
    stuck[:, 1:11] = False  # they place the references
    values[stuck] = 0.25
    scores = score_many(values[:, 1:], values[:, 0], seeds=range(size), num_references=1)
    for ranks in (scores["joint"][:, 0], scores["marginal"][:, 0, 1]):
        assert stats.kstest(ranks, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    ("size", "mean", "bound"), [(500, 0.0165, 0.030), (1000, 0.012, None), (100_000, 0.0012, None)]
)
def test_the_null_is_that_of_uniform_numbers(size, mean, bound):
    null = uniform_null(size, 99)
    # Exact: the mean square is the mean of level (1 - level) / K; its distribution is Cramer and von Mises'.
    assert np.square(null.rmse).mean() == pytest.approx(
        (null.levels * (1 - null.levels)).mean() / size, rel=0.03
    )
    assert np.quantile(null.rmse, 0.95) == pytest.approx(np.sqrt(0.461 / size), rel=0.03)
    # The design's figures, on a grid that is not known any more.
    assert null.rmse.mean() == pytest.approx(mean, rel=0.05)
    assert bound is None or np.quantile(null.rmse, 0.95) == pytest.approx(bound, rel=0.05)


def test_p_values_of_one_reference_are_uniform():
    """150 perfect experiments, level 1e-3; and the bound is passed by 5 % of them, within 3.5 sds."""
    rng = np.random.default_rng(8)
    found = [coverage_test(rng.random((100, 1)), seed=1) for _ in range(150)]
    assert stats.kstest([test.p_value for test in found], "uniform").pvalue > 1e-3
    assert sum(test.is_rejected for test in found) <= 17
    assert [test.is_rejected for test in found] == [test.rmse >= test.null_bound_95 for test in found]


def test_the_band_is_of_one_reference_and_runs_with_the_alphas():
    """That 95 % of its curves stay inside is tested with the ranks of simulation-based calibration."""
    null = uniform_null(100, 99)
    test = coverage_test(np.random.default_rng(9).random((100, 4)), seed=1)
    np.testing.assert_array_equal(test.band, null.band[:, ::-1])
    assert ((test.band[0] < 1 - test.alphas) & (1 - test.alphas < test.band[1])).all()


@pytest.mark.parametrize("num_params", [1, 4])
def test_a_perfect_posterior_is_rarely_rejected(num_params):
    """40 experiments of 100, twenty references: level at most 5 %, so 7 or more with probability 0.3 %."""
    found = [
        coverage_test(scored(100, num_params=num_params, seed=seed, num_draws=60)["joint"], seed=1)
        for seed in range(40)
    ]
    assert sum(test.is_rejected for test in found) <= 6


@pytest.mark.parametrize("num_params", [1, 4])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_posteriors_are_rejected(name, num_params):
    """At K = 500, jointly and in each coordinate, with each of three seeds; a perfect one passes."""
    for seed in range(3):
        wrong = scored(500, num_params=num_params, num_draws=100, seed=seed, **WRONG[name])
        right = scored(500, num_params=num_params, num_draws=100, seed=seed)
        for ranks in (wrong["joint"], *np.moveaxis(wrong["marginal"], 2, 0)):
            assert coverage_test(ranks, seed=1).is_rejected
        assert coverage_test(right["joint"], seed=1).p_value > 0.01


def test_references_drawn_anew_for_each_replicate_would_hide_a_shift():
    """Why offsets are shared: on either side of the posterior they cancel half an sd of bias."""
    draws, truth = simulate(500, shift=0.5)
    parts = [
        score_draws(draws[index], truth[index], seed=index, num_references=1, reference_seed=index)
        for index in range(500)
    ]
    hidden = coverage_test(np.stack([part["joint"] for part in parts]), seed=1)
    shared = coverage_test(scored(500, shift=0.5)["joint"], seed=1)
    assert hidden.rmse < 0.5 * shared.rmse
    assert shared.is_rejected


def test_the_prior_as_posterior_is_seen_with_a_centre_from_the_data():
    rng = np.random.default_rng(10)
    truth = rng.standard_normal((500, 1))
    data = truth + 0.3 * rng.standard_normal((500, 1))
    draws = rng.standard_normal((500, 200, 1))
    blind = score_many(draws, truth, seeds=range(500))
    seeing = score_many(draws, truth, seeds=range(500), reference_centre=data)
    assert not coverage_test(blind["joint"], seed=1).is_rejected
    assert coverage_test(seeing["joint"], seed=1).is_rejected
    honest = data / 1.09 + np.sqrt(0.09 / 1.09) * rng.standard_normal((500, 200))
    right = score_many(honest[..., None], truth, seeds=range(500), reference_centre=data)
    assert not coverage_test(right["joint"], seed=1).is_rejected


def test_the_bootstrap_sd_is_that_over_experiments():
    """Within a factor of 1.5 of the sd over 60 experiments of 200 posteriors that are too narrow."""
    found = [
        coverage_test(scored(200, sd_factor=0.6, seed=seed, num_draws=100, num_references=5)["joint"], seed=1)
        for seed in range(60)
    ]
    curves = np.stack([test.coverage for test in found])
    claimed = np.mean([test.coverage_sd for test in found], axis=0)
    middle = slice(20, 80)
    assert np.median(claimed[middle] / curves.std(axis=0)[middle]) == pytest.approx(1.0, rel=0.25)
    over_replicates = np.std([test.rmse for test in found])
    over_references = np.mean([test.rmse_per_reference.std() for test in found]) / np.sqrt(5)
    both = np.hypot(over_replicates, over_references)
    assert 1 / 1.5 < np.mean([test.rmse_sd for test in found]) / both < 1.5


def test_the_curve_is_the_share_of_ranks_below_a_level():
    ranks = np.random.default_rng(11).random((50, 2))
    test = coverage_test(ranks, seed=1, num_alphas=4)
    np.testing.assert_allclose(test.alphas, [0.2, 0.4, 0.6, 0.8])
    curves = np.array([[(column < 1 - alpha).mean() for alpha in test.alphas] for column in ranks.T])
    np.testing.assert_allclose(test.coverage, curves.mean(axis=0))
    errors = np.sqrt(np.square(curves - (1 - test.alphas)).mean(axis=1))
    np.testing.assert_allclose(test.rmse_per_reference, errors)
    assert test.rmse == pytest.approx(errors.mean())
    assert (test.num_replicates, test.num_references) == ranks.shape


def test_summary_of_scores():
    summary = summarise_scores(scored(4000, num_params=2, num_references=1))
    np.testing.assert_allclose(summary.rms_z, 1.0, atol=0.05)
    np.testing.assert_allclose(summary.covered_90, 0.9, atol=0.02)
    np.testing.assert_allclose(summary.sd, [0.01, 100.0], rtol=0.01)
    assert (summary.crps_se > 0).all()
    narrow = summarise_scores(scored(4000, num_params=2, num_references=1, sd_factor=0.5))
    assert (narrow.crps > summary.crps).all()
    assert (narrow.log_score < summary.log_score).all()
    with pytest.raises(ArgumentError, match="scores must hold 'z'"):
        summarise_scores({"sd": np.ones((3, 1))})


@pytest.mark.parametrize("num_draws", [50, 150, 1000])
def test_intervals_of_few_draws_hold_as_often_as_they_say(num_draws):
    """Between quantiles of 50 draws a perfect posterior's share would be 0.865, 13 standard errors off."""
    rng = np.random.default_rng(num_draws)
    draws, truth = rng.standard_normal((6_000, num_draws, 1)), rng.standard_normal((6_000, 1))
    found = score_many(draws, truth, seeds=range(6_000), num_references=1)["covered_90"]
    assert found.mean() == pytest.approx(0.9, abs=4 * 0.0035)
    ranks = (draws < truth[:, None]).sum(axis=1)
    np.testing.assert_array_equal(found, interval_coverage(ranks, num_draws=num_draws))


def test_a_bound_for_more_parameters_than_simulations_tell_is_refused():
    with pytest.raises(ArgumentError, match="num_curves must be at most 400"):
        coverage_rmse_bound(500, num_curves=401)
