"""The guide's draws in pairs of opposite noise, and what the pairs spare the clip norm."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import digamma, logit, polygamma

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.guides.antithetic import antithetic, draw_antithetic, num_independent
from nadpvi.models import BernoulliBeta
from nadpvi.models.base import RecordBatch
from nadpvi.privacy.noise import NoNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.dpvi import State, public_gradient, step
from nadpvi.private.gradients import gradient_function
from nadpvi.private.records import Records
from nadpvi.settings import make_settings

SCHEMA = na.Schema.from_dict({"columns": {"y": {"kind": "binary", "levels": ["0", "1"]}}})


@pytest.mark.parametrize("num_draws", [1, 2, 3, 10, 11])
def test_draws_come_in_pairs_and_an_odd_one_stands_alone(num_draws):
    rng, same = np.random.default_rng(1), np.random.default_rng(1)
    draws = draw_antithetic(rng, num_draws=num_draws, size=3)
    fresh = num_independent(num_draws)
    assert draws.shape == (num_draws, 3)
    np.testing.assert_array_equal(draws[:fresh], same.standard_normal((fresh, 3)))
    np.testing.assert_array_equal(draws[fresh:], -draws[: num_draws // 2])
    assert len(np.unique(np.abs(draws))) == fresh * 3


def test_leading_axes_are_steps_of_their_own():
    fresh = np.random.default_rng(2).standard_normal((4, 3, 2))
    together = antithetic(fresh, out=np.empty((4, 5, 2)))
    for one, whole in zip(fresh, together, strict=True):
        np.testing.assert_array_equal(whole, antithetic(one, out=np.empty((5, 2))))


def test_a_step_uses_pairs():
    """Seen in the scale's gradient of one record, which independent draws would fill with chance."""
    description = ModelDescription(model=BernoulliBeta(outcome="y"), schema=SCHEMA, guide=na.MeanField())
    config = na.DPVIConfig(
        num_steps=1, sampling_rate=1.0, clip_norm=100.0, preconditioner_u=1.0, learning_rate=0.1
    )
    settings = make_settings(description, config, noise_multiplier=0.0)
    record = Records(x=np.empty((1, 0)), y=np.ones(1))
    _, found = step(
        State(0, settings.initial_phi),
        records=record,
        settings=settings,
        noise=NoNoise(dimension=2),
        streams=make_streams(insecure_seed=3),
    )
    draws = draw_antithetic(make_streams(insecure_seed=3).monte_carlo, num_draws=10, size=1)
    gradients = gradient_function(
        description.model,
        guide=na.MeanField(),
        phi=settings.initial_phi,
        standard_normal=draws,
        preconditioner=np.ones(2),
    )
    expected = gradients(RecordBatch(x=record.x, y=record.y)).weighted_rows(np.ones(1))[0]
    public = public_gradient(description, phi=settings.initial_phi, standard_normal=draws)
    np.testing.assert_allclose(found, expected + public, rtol=1e-9)


@pytest.mark.parametrize("share", [0.3, 0.05, 0.01])
def test_the_default_clip_norm_does_not_shift_the_location(share):
    """A rare outcome at default settings without noise: with independent draws the shift is 3 posterior sds.

    The posterior of the logit under Beta(a, b) has mean digamma(a) - digamma(b).
    """
    ones = round(5000 * share)
    table = pd.DataFrame({"y": ["1"] * ones + ["0"] * (5000 - ones)})
    model = BernoulliBeta(outcome="y", prior_alpha=1.0, prior_beta=1.0)
    config = na.DPVIConfig(
        num_steps=2500, sampling_rate=0.5, learning_rate=4e-4 * 0.05 / share, initial_mu=float(logit(share))
    )
    run = na.release(
        model,
        table,
        schema=SCHEMA,
        privacy=na.NonPrivate(),
        config=config,
        collapse=True,
        insecure_seed=1,
    )
    assert run.clip_norm == 1.0
    alpha, beta = 1.0 + ones, 1.0 + 5000 - ones
    sd = np.sqrt(polygamma(1, alpha) + polygamma(1, beta))
    shift = (run.phi[500:, 0].mean() - (digamma(alpha) - digamma(beta))) / sd
    assert abs(shift) < 0.15
