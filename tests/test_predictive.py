"""Predictions of every model: one number a row, or one chance a level."""

import numpy as np
import pytest
from test_models import EXAMPLES, SCHEMA

from nadpvi import predictive
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
