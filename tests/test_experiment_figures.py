"""What an experiment's figures draw: fitted lines, single parameters, and bounds on the worst of them."""

import numpy as np
import pytest

from nadpvi.coverage import coverage_curve, coverage_rmse, coverage_rmse_bound, coverage_test
from nadpvi.errors import ArgumentError
from nadpvi.experiments.api import run_experiment, write_result
from nadpvi.experiments.configuration import load_experiment
from nadpvi.experiments.fits import gradient_fits

THREE_LEVELS = """
title = "A test"
seed = 5
delta = 1e-5
draws = 100

[source]
kind = "categorical-dirichlet"
num_records = 300
concentration = [5.0, 5.0, 5.0]

[settings.plain]
num_steps = 200
clip_norm = 1.0

[settings.shorter]
num_steps = 150
clip_norm = 1.0

[[arms]]
settings = "plain"
epsilon = [1.0, 2.0]
methods = ["exact", "last_iterate"]
replicates = 12

[[arms]]
settings = "plain"
epsilon = [1.0]
methods = ["exact"]
replicates = 4

[[arms]]
settings = "shorter"
epsilon = [1.0]
methods = ["last_iterate"]
replicates = 3
"""


@pytest.fixture
def experiment(tmp_path):
    path = tmp_path / "three.toml"
    path.write_text(THREE_LEVELS)
    return load_experiment(str(path))


def test_the_fitted_line_leaves_the_known_noise(experiment):
    assert gradient_fits(experiment, done=()) == []
    fits = gradient_fits(experiment, done=[task.name for task in experiment.tasks()])
    assert [fit["settings"] for fit in fits] == [
        "plain, epsilon 1",
        "plain, epsilon 2",
        "shorter, epsilon 1",
    ]
    ratios = []
    for fit in fits:
        labels = [coordinate["label"] for coordinate in fit["coordinates"]]
        assert labels == ["mu[probabilities[0]]", "mu[probabilities[1]]", "u[probabilities[0]]"]
        for one in fit["coordinates"]:
            phi, noisy = np.array(one["phi"]), np.array(one["noisy_gradient"])
            assert len(phi) == len(noisy) == 120
            assert one["slope"] > 0
            assert phi.min() - 3 * np.ptp(phi) < one["phi_star"] < phi.max() + 3 * np.ptp(phi)
            ratios.append((noisy - one["slope"] * (phi - one["phi_star"])).std() / one["noise_std"])
    # 120 residuals of 9 coordinates: the mean's standard error is 0.02; subsampling adds a little.
    assert 0.93 < np.mean(ratios) < 1.1


def test_figures_of_a_few_parameters(experiment, tmp_path):
    result = run_experiment(experiment, folder=tmp_path / "tasks")
    first, second = (write_result(result, tmp_path / name) for name in ("one", "two"))
    images = {path.name: path for path in first if path.suffix == ".svg"}
    assert set(images) == {"three.svg", "three-marginals.svg", "three-gradients.svg"}
    for path, again in zip(first, second, strict=True):
        assert path.read_bytes() == again.read_bytes(), path.name
    page = (tmp_path / "one" / "three.md").read_text()
    assert all(f"(<{name}>)" in page for name in images)
    curve = result.curves[0]
    assert np.shape(curve["marginals"]) == (2, 99)  # a simplex of three has two free coordinates
    assert "marginals" not in next(c for c in result.curves if c["settings"].endswith("3 tables"))


def test_a_curve_without_its_test():
    ranks = np.random.default_rng(1).random((40, 3))
    np.testing.assert_array_equal(coverage_curve(ranks), coverage_test(ranks, seed=1).coverage)
    # Of four ranks' curve by hand: below 1 - alpha lie all four at alpha = 0.01, two at 0.5.
    curve = coverage_curve(np.tile([0.1, 0.4, 0.6, 0.9], 3))
    assert curve[0] == 1.0
    assert curve[49] == 0.5


def test_the_worst_parameter_of_perfect_posteriors_stays_below_its_bound():
    rng = np.random.default_rng(2)
    bound = coverage_rmse_bound(50, num_curves=4)
    worst = [max(coverage_rmse(column) for column in rng.random((4, 50))) for _ in range(400)]
    share = np.mean(np.array(worst) > bound)
    assert 0.01 < share < 0.085  # 0.05 with a standard error of 0.011
    assert coverage_rmse_bound(50) == coverage_test(rng.random(50), seed=1).null_bound_95
    with pytest.raises(ArgumentError, match="num_replicates"):
        coverage_rmse_bound(9)
