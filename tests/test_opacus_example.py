"""The worked example of a trace from elsewhere: Opacus's own optimizer, small."""

import sys
from pathlib import Path

import numpy as np
import pytest

import nadpvi as na

pytest.importorskip("opacus", reason="Opacus is not installed (extra opacus); its example is not tried.")
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import opacus_logistic as example

STEPS = 200


@pytest.fixture(scope="module")
def trained():
    return example.train(*example.make_records(0), num_steps=STEPS, seed=3)


def test_what_is_recorded_is_the_step_itself(trained):
    """phi before its step, the noisy gradient with weight decay: plain gradient steps to rounding."""
    assert trained.phi.shape == (STEPS + 1, 5)
    assert trained.noisy_gradient.shape == (STEPS, 5)
    assert (trained.phi[0] == 0).all()
    np.testing.assert_allclose(
        np.diff(trained.phi, axis=0), -example.LEARNING_RATE * trained.noisy_gradient, rtol=1e-9, atol=1e-12
    )


def test_noise_is_that_of_the_sum(trained):
    """Around a line in phi the last 150 sums vary by sigma * C and by the sample, no more and no less.

    The sample's variance is known at the optimum; 5 standard errors of a variance.
    """
    made = example.to_release(trained, privacy=None)
    x, y = example.make_records(0)
    each = (1 / (1 + np.exp(-x @ example.optimum(x, y))) - y)[:, None] * x
    sample = example.SAMPLING_RATE * (1 - example.SAMPLING_RATE) * (each**2).sum(axis=0)
    expected = made.noise_std**2 + sample
    phi, gradient = made.phi[-150:], made.noisy_gradient[-150:]
    design = np.column_stack([np.ones(150), phi])
    _, squares, *_ = np.linalg.lstsq(design, gradient)
    np.testing.assert_allclose(squares / (150 - 6) / expected, 1.0, atol=5 * np.sqrt(2 / 144))
    assert (made.noise_std**2 > 0.1 * expected).all()


def test_other_normalisations_are_refused(trained):
    given = {
        "phi": trained.phi,
        "noisy_gradient": trained.noisy_gradient,
        "noise_multiplier": trained.noise_multiplier,
        "clip_norm": example.CLIP_NORM,
        "sampling_rate": example.SAMPLING_RATE,
    }
    with pytest.raises(na.ArgumentError, match="loss='sum'"):
        na.Release.from_arrays(**given)
    with pytest.raises(na.ArgumentError, match="record phi before each step"):
        na.Release.from_arrays(
            **given | {"phi": trained.phi[1:]}, loss="mean", num_records=example.NUM_RECORDS
        )


@pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")  # 200 steps are a short window
def test_guarantee_and_posterior(trained):
    made = example.to_release(trained, privacy=example.BUDGET)
    assert 0.99 < made.guarantee.epsilon <= 1.0
    posterior = na.infer(made, method="exact", seed=0)
    truth = example.optimum(*example.make_records(0))
    table = posterior.summary()
    assert list(table.index) == list(example.LABELS)
    # 5 coefficients, each within 5 posterior sds.
    assert (np.abs((table["mean"] - truth) / table["sd"]) < 5).all()
