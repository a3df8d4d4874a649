"""Known faults of neighbouring tools, part H: coverage tests."""

import numpy as np
import pytest
from coverage_cases import scored, simulate

from nadpvi.coverage import calibration_ranks, calibration_test, coverage_test, score_draws, score_many
from nadpvi.errors import ArgumentError


def test_h2_both_wrong_scales_are_flagged_at_400_and_the_right_one_is_not():
    assert not coverage_test(scored(400)["joint"], seed=1).is_rejected
    for factor in (0.5, 2.0):
        assert coverage_test(scored(400, sd_factor=factor)["joint"], seed=1).is_rejected


def test_h2_a_calibrated_normal_stays_near_the_diagonal():
    """N = 400, 200 draws, within 0.03 of it: 7 % of such experiments are not, with twenty references.

    With one reference 83 % of curves leave 0.03 somewhere, so that it is no bound for a single one.
    """
    test = coverage_test(scored(400, num_draws=200)["joint"], seed=1)
    assert np.abs(test.coverage - (1 - test.alphas)).max() < 0.03
    assert (test.band[0] <= test.coverage).all()
    assert (test.coverage <= test.band[1]).all()


def test_h2_ties_are_neither_all_inside_nor_all_outside():
    """All counted draws equal the truth: coverage follows the diagonal instead of 0 or 1 everywhere."""
    draws, truth = simulate(300, num_draws=100)
    draws[:, 10:] = truth[:, None]  # the first ten place the references
    scores = score_many(draws, truth, seeds=range(300))
    test = coverage_test(scores["joint"], seed=1)
    assert test.rmse < 0.05


def test_h2_constant_draws_are_refused():
    draws, truth = simulate(5, num_params=3)
    draws[2, :, 1] = 4.25
    with pytest.raises(ArgumentError, match="must not all be equal; see replicate 2, parameter 1") as caught:
        score_many(draws, truth, seeds=range(5))
    assert "4.25" not in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_h2_what_is_not_finite_is_refused(bad):
    draws, truth = simulate(5, num_params=3)
    spoilt = draws.copy()
    spoilt[3, 150, 2] = bad
    with pytest.raises(ArgumentError, match="draws must be finite; see replicate 3, parameter 2"):
        score_many(spoilt, truth, seeds=range(5))
    truth[1, 0] = bad
    with pytest.raises(ArgumentError, match="truth must be finite; see replicate 1, parameter 0"):
        score_many(draws, truth, seeds=range(5))
    ranks = np.random.default_rng(1).random((20, 2))
    ranks[4, 1] = bad
    with pytest.raises(ArgumentError, match="ranks must be finite; see replicate 4"):
        coverage_test(ranks, seed=1)
    with pytest.raises(ArgumentError, match="places must be finite; see replicate 4"):
        calibration_test(ranks)


def test_h2_few_replicates_are_refused_or_noted():
    ranks = np.random.default_rng(2).random((100, 1))
    for few in (0, 5, 9):
        with pytest.raises(ArgumentError, match=rf"at least 10 replicates \(got {few}\)"):
            coverage_test(ranks[:few], seed=1)
        with pytest.raises(ArgumentError, match=rf"at least 10 replicates \(got {few}\)"):
            calibration_test(ranks[:few])
    assert "only gross faults" in coverage_test(ranks[:50], seed=1).notes[0]
    assert coverage_test(ranks, seed=1).notes == ()


def test_h2_few_draws_are_refused():
    draws, truth = simulate(2, num_draws=49)
    with pytest.raises(ArgumentError, match=r"at least 50 draws of each replicate \(got 49\)"):
        score_many(draws, truth, seeds=range(2))


def test_h2_p_values_are_never_zero():
    """(r + 1) / (n + 1) of 9,999 simulations, however wrong the posterior."""
    ranks = np.full((500, 3), 1.0)
    assert coverage_test(ranks, seed=1).p_value == 1e-4
    assert calibration_test(ranks).p_value.tolist() == [1e-4] * 3
    assert coverage_test((np.arange(500) + 0.5)[:, None] / 500, seed=1).p_value == 1.0


def test_h2_the_same_seed_gives_the_same_curve():
    first, second = (scored(60, num_params=2, seed=3) for _ in range(2))
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])
    one, two = (coverage_test(first["joint"], seed=5) for _ in range(2))
    for name in ("coverage", "coverage_sd", "band", "rmse", "rmse_sd", "p_value"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    other = coverage_test(first["joint"], seed=6)
    assert other.rmse_sd != one.rmse_sd
    assert (other.rmse, other.p_value) == (one.rmse, one.p_value)


def test_h2_replicates_do_not_share_random_numbers_with_what_used_their_seed():
    """A caller's own generator of the same seed gives other numbers than those that break ties."""
    draws, truth = simulate(1, num_draws=100)
    found = score_draws(draws[0], truth[0], seed=9, num_references=3)
    step = found["joint"] * 91
    assert not np.isin(np.round(step % 1.0, 9), np.round(np.random.default_rng(9).random(50), 9)).any()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"draws": np.zeros(60)}, "draws must have shape"),
        ({"draws": np.zeros((60, 2))}, "draws must have shape"),
        ({"truth": []}, "draws must have shape"),
        ({"seed": -1}, "whole numbers that are not negative"),
        ({"seed": (1, 2.5)}, "whole numbers that are not negative"),
        ({"num_references": 0}, "num_references must be a whole number"),
        ({"reference_seed": -1}, "reference_seed must be"),
        ({"reference_centre": [1.0, 2.0]}, "reference_centre must be finite"),
        ({"reference_centre": [np.nan]}, "reference_centre must be finite"),
    ],
)
def test_h2_arguments_are_refused_in_one_line(change, said):
    draws, truth = simulate(1, num_draws=60)
    with pytest.raises(ArgumentError, match=said) as caught:
        score_draws(**{"draws": draws[0], "truth": truth[0], "seed": 1, **change})
    assert "\n" not in str(caught.value)


def test_h2_ranks_out_of_range_are_refused():
    ranks = np.random.default_rng(3).integers(0, 100, (20, 1))
    with pytest.raises(ArgumentError, match=r"ranks must be in \[0, 1\]"):
        coverage_test(ranks, seed=1)
    with pytest.raises(ArgumentError, match="from 0 to num_draws"):
        calibration_ranks(ranks, num_draws=50, seed=1)
    with pytest.raises(ArgumentError, match="from 0 to num_draws"):
        calibration_ranks(ranks / 7.0, num_draws=100, seed=1)
    with pytest.raises(ArgumentError, match="ranks must have shape"):
        coverage_test(np.ones((20, 2, 2)), seed=1)
    with pytest.raises(ArgumentError, match="seeds must hold one seed for each of 3"):
        score_many(*simulate(3), seeds=[1])
