"""Made-up records: what the design could have encoded, by the schema alone."""

import numpy as np
import pytest

import nadpvi as na
from nadpvi.encoding import encode_features, encode_outcome
from nadpvi.made_up import made_up_records, made_up_table, prior_draws
from nadpvi.models import LogisticRegression

NUM = 6000


@pytest.fixture
def design(schema):
    return LogisticRegression(outcome="y").design(schema)


@pytest.fixture
def records(design):
    rng = np.random.default_rng(0)
    return made_up_records(
        LogisticRegression(outcome="y"), design, theta=np.zeros(6), num_records=NUM, rng=rng
    )


def test_features_are_what_the_design_encodes(design, records):
    x = records.x
    assert design.labels[0] == "Intercept"
    assert (x[:, 0] == 1.0).all()
    groups = [i for i, label in enumerate(design.labels) if label.startswith("job[")]
    assert len(groups) == 3
    assert (x[:, groups].sum(axis=1) == 1.0).all()
    assert ((x >= 0.0) & (x <= 1.0)).all()
    assert set(np.unique(records.y)) == {0.0, 1.0}


def test_numbers_are_uniform_on_the_encoded_scale_and_levels_equally_frequent(design, records):
    from scipy import stats

    for label in ("age", "gain"):  # gain enters as log1p
        values = records.x[:, design.labels.index(label)]
        assert stats.kstest(values, "uniform").pvalue > 1e-4
    counts = records.x[:, [i for i, label in enumerate(design.labels) if "[" in label]].sum(axis=0)
    assert stats.chisquare(counts).pvalue > 1e-4
    # A wrong scale is told apart: uniform on the raw scale would be far from uniform after log1p.
    assert stats.kstest(np.log1p(np.random.default_rng(1).random(NUM)), "uniform").pvalue < 1e-4


def test_every_policy_of_the_schema_accepts_the_table():
    schema = na.Schema.from_dict(
        {
            "columns": {
                "a": {"kind": "real", "lower": -3, "upper": 1e6},
                "b": {"kind": "real", "lower": -0.5, "upper": 2, "transform": "log1p"},
                "c": {"kind": "categorical", "levels": ["", "0", "1", "refuse", "é"], "missing": "drop"},
                "y": {"kind": "binary", "levels": ["0", "1"]},
            }
        }
    )
    table = made_up_table(schema, num_records=500, rng=np.random.default_rng(2))
    design = LogisticRegression(outcome="y").design(schema)
    assert encode_features(design, table).is_complete.all()
    assert encode_outcome(design, table).is_complete.all()
    assert table["a"].between(-3, 1e6).all()
    assert table["b"].between(-0.5, 2).all()


def test_outcomes_follow_the_model_where_it_can_simulate(design):
    sure = np.zeros((50, 6))
    sure[:, 0] = np.where(np.arange(50) % 2, 60.0, -60.0)
    model = LogisticRegression(outcome="y")
    made = made_up_records(model, design, theta=sure, num_records=50, rng=np.random.default_rng(3))
    np.testing.assert_array_equal(made.y, np.arange(50) % 2)


def test_outcomes_are_levels_where_it_cannot(design):
    class Silent(LogisticRegression):
        simulate = None

    made = made_up_records(
        Silent(outcome="y"), design, theta=np.full(6, 60.0), num_records=400, rng=np.random.default_rng(4)
    )
    assert 120 < made.y.sum() < 280


def test_prior_draws_have_the_priors_moments(design):
    model = LogisticRegression(outcome="y", prior_sd=3.0)
    draws = prior_draws(model, design, num_draws=20_000, rng=np.random.default_rng(5))
    assert draws.shape == (20_000, 6)
    np.testing.assert_allclose(draws.std(axis=0), 3.0, rtol=0.03)
    np.testing.assert_allclose(draws.mean(axis=0), 0.0, atol=0.1)
