"""Simulation-based calibration, its band, sharpness, and the figures."""

import importlib

import numpy as np
import pytest
from coverage_cases import scored
from scipy import stats

from nadpvi.arviz_bridge import arviz_version
from nadpvi.coverage import (
    calibration_ranks,
    calibration_test,
    coverage_test,
    sharpness,
)
from nadpvi.coverage.null import uniform_null
from nadpvi.coverage.plots import plot_coverage, plot_ranks
from nadpvi.errors import ArgumentError, FileError


def calibrated(scores):
    places = calibration_ranks(scores["rank"], num_draws=scores["num_draws"], seed=1)
    return calibration_test(places)


@pytest.mark.parametrize("wrong", [{"sd_factor": 0.5}, {"sd_factor": 2.0}, {"shift": 0.5}])
def test_wrong_posteriors_leave_the_band(wrong):
    for seed in range(3):
        found = calibrated(scored(500, num_params=2, seed=seed, num_references=1, **wrong))
        assert found.is_rejected.all()
        outside = (found.ecdf < found.band[0]) | (found.ecdf > found.band[1])
        assert outside.any(axis=1).all()


def test_p_values_of_perfect_ranks_are_not_too_small():
    """1,000 curves: 5 % rejected and outside the band, within 3.5 sds; smallest tails are discrete."""
    found = calibration_test(np.random.default_rng(1).random((200, 1000)))
    outside = ((found.ecdf < found.band[0]) | (found.ecdf > found.band[1])).any(axis=1)
    assert 0.026 < found.is_rejected.mean() < 0.075
    assert 0.026 < outside.mean() < 0.075
    assert (found.is_rejected == outside).mean() > 0.99


def test_ranks_become_uniform_numbers():
    scores = scored(5000, num_draws=60, num_references=1)
    places = calibration_ranks(scores["rank"], num_draws=60, seed=1)
    np.testing.assert_array_equal(np.floor(places * 61), scores["rank"])
    assert stats.kstest(places[:, 0], "uniform").pvalue > 1e-3
    mixed = calibration_ranks(np.array([[0.0], [7.0]] * 5), num_draws=[3, 7] * 5, seed=1)
    np.testing.assert_array_equal(np.floor(mixed[:, 0] * np.array([4, 8] * 5)), [0, 7] * 5)


@pytest.mark.arviz
def test_the_band_is_arviz_s():
    """To two steps of 1/200; ArviZ simulates too, with 1,000 curves."""
    null = uniform_null(200, 99)
    if arviz_version()[0] >= 1:
        # Its grid is of as many points as there are values, so that its band is a little wider.
        module = importlib.import_module("arviz_stats.ecdf_utils")
        prob = module.simulate_confidence_bands(200, 1, null.levels, 0.95, 1000, np.random.default_rng(1))
        band = module.get_pointwise_confidence_band(prob, 200, null.levels)
    else:
        module = importlib.import_module("arviz.stats.ecdf_utils")
        band = module.ecdf_confidence_band(
            200,
            null.levels,
            null.levels,
            prob=0.95,
            method="simulated",
            rvs=lambda size, random_state: random_state.random(size),
            num_trials=1000,
            random_state=np.random.default_rng(1),
        )
    np.testing.assert_allclose(null.band, band, atol=2.01 / 200)


def test_sharpness_is_a_ratio_within_replicates():
    rng = np.random.default_rng(2)
    reference = np.exp(rng.standard_normal((400, 2)))
    found = sharpness(reference * [2.0, 1.1] * rng.uniform(0.9, 1.1, (400, 2)), reference_sd=reference)
    np.testing.assert_allclose(found.ratio, [2.0, 1.1], rtol=0.02)
    assert (found.ratio_low < found.ratio).all()
    assert (found.ratio < found.ratio_high).all()
    np.testing.assert_allclose(found.reference_sd, np.median(reference, axis=0))
    for sd, reference_sd, said in (
        (np.ones(3), np.ones(3), "must both have shape"),
        (np.ones((3, 2)), np.ones((3, 1)), "must both have shape"),
        (np.zeros((3, 1)), np.ones((3, 1)), "^sd must be finite and positive"),
        (np.ones((3, 1)), np.full((3, 1), np.nan), "^reference_sd must be finite"),
    ):
        with pytest.raises(ArgumentError, match=said):
            sharpness(sd, reference_sd=reference_sd)


def test_figures_are_written_once(tmp_path):
    scores = scored(50, num_params=5)
    tests = {"right": coverage_test(scores["joint"], seed=1)}
    curve = plot_coverage(tests, path=tmp_path / "coverage.png")
    ranks = plot_ranks(
        calibrated(scores), labels=["a", "$b", "größe", "d%", "e_{"], path=tmp_path / "ranks.png"
    )
    for path in (curve, ranks):
        assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(FileError):
        plot_coverage(tests, path=tmp_path / "coverage.png")
    with pytest.raises(ArgumentError, match="labels must be 5 names"):
        plot_ranks(calibrated(scores), labels=["a"], path=tmp_path / "other.png")
    with pytest.raises(ArgumentError, match="at least one coverage test"):
        plot_coverage({}, path=tmp_path / "none.png")
