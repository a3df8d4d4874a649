"""The prior spread over records, as the paper does: same optimum, a public record count, and said aloud."""

import math

import numpy as np
import pytest

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.guides.antithetic import draw_antithetic
from nadpvi.models.base import RecordBatch
from nadpvi.privacy.noise import NoNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.dpvi import State, public_gradient, step
from nadpvi.private.gradients import gradient_function
from nadpvi.private.records import make_records
from nadpvi.settings import make_settings

MODEL = na.models.LogisticRegression(outcome="y")


def config(**changes):
    return na.DPVIConfig(
        **{
            "num_steps": 5,
            "sampling_rate": 1.0,
            "learning_rate": 1e-3,
            "prior_term": "per_record",
            "num_records": 200,
        }
        | changes
    )


def test_without_clipping_both_terms_give_one_trace(schema, table):
    arguments = {"schema": schema, "privacy": na.NonPrivate(), "insecure_seed": 3}
    spread = na.release(MODEL, table, config=config(clip_norm=1e6), **arguments)
    public = na.release(
        MODEL, table, config=config(clip_norm=1e6, prior_term="public", num_records=None), **arguments
    )
    np.testing.assert_allclose(spread.noisy_gradient, public.noisy_gradient, rtol=1e-9, atol=1e-9)


def test_the_count_is_the_user_s_and_not_the_table_s(schema, table):
    arguments = {"schema": schema, "privacy": na.NonPrivate(), "insecure_seed": 3}
    # Away from the mean of the prior, where its gradient would be zero.
    right = na.release(MODEL, table, config=config(clip_norm=1e6, initial_mu=0.3), **arguments)
    half = na.release(
        MODEL, table, config=config(clip_norm=1e6, initial_mu=0.3, num_records=100), **arguments
    )
    assert (right.noisy_gradient[0] != half.noisy_gradient[0]).all()


def test_the_prior_is_clipped_with_each_record(schema, table):
    """One step against a plain loop over records."""
    settings_in = config(clip_norm=0.3, preconditioner_u=2.0)
    description = ModelDescription(model=MODEL, schema=schema, guide=settings_in.guide)
    settings = make_settings(description, settings_in, noise_multiplier=0.0)
    records = make_records(table, description.design)
    noise = NoNoise(dimension=len(settings.initial_phi))
    _, found = step(
        State(0, settings.initial_phi),
        records=records,
        settings=settings,
        noise=noise,
        streams=make_streams(insecure_seed=9),
    )
    num_params = len(description.names)
    rng = make_streams(insecure_seed=9).monte_carlo
    draws = draw_antithetic(rng, num_draws=10, size=num_params)
    beta, phi = settings.preconditioner, settings.initial_phi
    share = beta * public_gradient(description, phi=phi, standard_normal=draws) / 200
    total = np.zeros_like(phi)
    for x, y in zip(records.x, records.y, strict=True):
        gradients = gradient_function(
            MODEL, guide=settings_in.guide, phi=phi, standard_normal=draws, preconditioner=beta
        )
        one = gradients(RecordBatch(x=x[None], y=y[None]))
        gradient = one.weighted_rows(np.ones(1))[0] + share
        total += gradient * min(1.0, 0.3 / np.linalg.norm(gradient))
    np.testing.assert_allclose(found, total / beta, rtol=1e-7)


def test_the_guarantee_lists_the_count(schema, table):
    made = na.release(
        MODEL,
        table,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=1, delta=1e-5),
        config=config(learning_rate=None, num_records=210),
    )
    assert any("210" in item and "number of records" in item for item in made.guarantee.assumed_public)
    assert "210" in made.guarantee.sentence()
    assert made.config.num_records == 210


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_records": None}, "needs num_records"),
        ({"num_records": 0}, "num_records"),
        ({"num_records": 2.5}, "num_records"),
        ({"num_records": math.nan}, "num_records"),
        ({"prior_term": "public"}, "leave it out"),
        ({"prior_term": "per record"}, "prior_term must be"),
    ],
)
def test_settings_that_make_no_sense(changes, message):
    with pytest.raises(na.ArgumentError, match=message):
        config(**changes)


def test_settings_survive_json():
    assert na.DPVIConfig.from_dict(config().to_dict()) == config()
