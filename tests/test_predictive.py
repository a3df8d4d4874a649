"""Predictions of every model: one number a row, or one chance a level."""

import numpy as np
import pytest
from test_models import EXAMPLES, SCHEMA

from nadpvi import ArgumentError, predictive
from nadpvi.description import ModelDescription
from nadpvi.encoding import encode_features
from nadpvi.guides import MeanField
from nadpvi.made_up import made_up_table, prior_draws


@pytest.fixture(params=sorted(EXAMPLES))
def described(request):
    return ModelDescription(model=EXAMPLES[request.param], schema=SCHEMA, guide=MeanField())


def test_rows_are_averages_over_draws_in_any_blocks(described, monkeypatch):
    model, design = described.model, described.design
    rng = np.random.default_rng(0)
    theta = prior_draws(model, design, num_draws=6, rng=rng)
    table = made_up_table(SCHEMA, num_records=25, rng=rng)
    expected = model.predict_mean(theta, encode_features(design, table).x).mean(axis=0)
    assert expected.shape == (25, 4) if model.kind == "categorical_dirichlet" else len(expected) == 25
    for values in (1, 30, 10**7):
        monkeypatch.setattr(predictive, "_BLOCK_VALUES", values)
        found = predictive.predict_mean(described, theta=theta, table=table)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_incomplete_rows_are_nan_in_every_level(described):
    if not described.design.predictors:
        pytest.skip("every row is complete without predictors")
    rng = np.random.default_rng(0)
    theta = prior_draws(described.model, described.design, num_draws=3, rng=rng)
    table = made_up_table(SCHEMA, num_records=4, rng=rng)
    table.loc[2, "age"] = np.nan
    found = predictive.predict_mean(described, theta=theta, table=table)
    assert len(found) == 4
    assert np.isnan(found[2]).all()
    assert np.isfinite(np.delete(found, 2, axis=0)).all()


def test_an_empty_table_keeps_its_axes(described):
    theta = prior_draws(described.model, described.design, num_draws=3, rng=np.random.default_rng(0))
    table = made_up_table(SCHEMA, num_records=2, rng=np.random.default_rng(0)).head(0)
    one = described.model.predict_mean(theta, np.zeros((1, described.design.num_features)))
    assert predictive.predict_mean(described, theta=theta, table=table).shape == (0, *one.shape[2:])


def test_intervals_are_quantiles_over_draws_in_any_blocks(described, monkeypatch):
    model, design = described.model, described.design
    rng = np.random.default_rng(1)
    theta = prior_draws(model, design, num_draws=40, rng=rng)
    table = made_up_table(SCHEMA, num_records=9, rng=rng)
    draws = np.sort(model.predict_mean(theta, encode_features(design, table).x), axis=0)
    for values in (1, 500, 10**7):
        monkeypatch.setattr(predictive, "_BLOCK_VALUES", values)
        found = predictive.predict_intervals(described, theta=theta, table=table, probability=0.5)
        np.testing.assert_allclose(found.mean, draws.mean(axis=0), rtol=1e-12)
        # A quarter of 39 gaps, and three quarters: between the tenth and eleventh draw, as linear ones go.
        np.testing.assert_allclose(found.lower, 0.25 * draws[9] + 0.75 * draws[10], rtol=1e-12)
        np.testing.assert_allclose(found.upper, 0.75 * draws[29] + 0.25 * draws[30], rtol=1e-12)
    assert (found.lower <= found.upper).all()


def test_a_chances_interval_is_that_of_its_linear_predictor():
    """The logistic function is monotone, so that quantiles pass through it."""
    described = ModelDescription(model=EXAMPLES["logistic_plain"], schema=SCHEMA, guide=MeanField())
    theta = np.random.default_rng(2).normal(0.7, 0.3, size=(20_001, 1))
    found = predictive.predict_intervals(described, theta=theta, table={"age": [100.0]}, probability=0.9)
    expected = 1 / (1 + np.exp(-(0.7 + 0.3 * np.array([-1.6449, 1.6449]))))
    # The sd of such a quantile is 0.0045 on the linear scale; four of them.
    np.testing.assert_allclose([found.lower[0], found.upper[0]], expected, atol=0.25 * 4 * 0.0045)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.5, float("nan"), "most"])
def test_an_interval_has_a_content(described, probability):
    theta = prior_draws(described.model, described.design, num_draws=3, rng=np.random.default_rng(0))
    table = made_up_table(SCHEMA, num_records=2, rng=np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="probability"):
        predictive.predict_intervals(described, theta=theta, table=table, probability=probability)


def test_a_frame_names_the_levels(described):
    theta = prior_draws(described.model, described.design, num_draws=3, rng=np.random.default_rng(0))
    table = made_up_table(SCHEMA, num_records=2, rng=np.random.default_rng(0))
    found = predictive.predict_intervals(described, theta=theta, table=table)
    frame = predictive.predictions_frame(found, design=described.design)
    if found.mean.ndim == 1:
        assert list(frame) == ["mean", "lower", "upper"]
        return
    levels = described.design.outcome_levels
    assert list(frame) == [f"{part}[{level}]" for level in levels for part in ("mean", "lower", "upper")]
    np.testing.assert_array_equal(frame[[f"mean[{level}]" for level in levels]], found.mean)
    np.testing.assert_allclose(frame.filter(like="mean").sum(axis=1), 1.0)
