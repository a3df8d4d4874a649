"""Records that were encoded elsewhere are held to what the schema's encoding gives."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.encoding import encode_features, make_design
from nadpvi.models import BernoulliBeta, CategoricalDirichlet, LogisticRegression, PoissonGamma
from nadpvi.private.inputs import Reading, read_records
from nadpvi.private.records import make_records

SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "ill": {"kind": "binary", "levels": ["no", "yes"]},
            "party": {"kind": "categorical", "levels": ["a", "b", "c"]},
            "visits": {"kind": "count", "upper": 20},
        }
    }
)
MODELS = {
    "bernoulli": BernoulliBeta(outcome="ill"),
    "categorical": CategoricalDirichlet(outcome="party"),
    "poisson": PoissonGamma(outcome="visits", prior_shape=2.0, prior_rate=1.0),
    "logistic": LogisticRegression(outcome="ill", predictors=["age"]),
}


def read(name, *, x=None, y):
    y = np.asarray(y, dtype=float)
    features = np.empty((len(y), 0)) if x is None else np.asarray(x)
    return read_records(
        na.Records(x=features, y=y),
        ModelDescription(model=MODELS[name], schema=SCHEMA, guide=na.MeanField()),
        reading=Reading(),
        rng=np.random.default_rng(0),
    )


@pytest.mark.parametrize(
    ("name", "y"),
    [
        ("bernoulli", [-1, 1, 1]),
        ("bernoulli", [0, 1, 2]),
        ("categorical", [1, 2, 3]),
        ("poisson", [0, -1, 3]),
        ("poisson", [0, 1, 21]),
    ],
)
def test_outcomes_out_of_range_are_refused(name, y):
    with pytest.raises(na.DataError, match="records must have outcomes from 0 to"):
        read(name, y=y)


@pytest.mark.parametrize("name", ["bernoulli", "categorical", "poisson"])
def test_codes_and_counts_are_whole(name):
    with pytest.raises(na.DataError, match="whole numbers as outcomes"):
        read(name, y=[0, 0.5, 1])
    assert len(read(name, y=[0, 1, 1]).y) == 3


@pytest.mark.parametrize("age", [-0.01, 1.01, 40.0])
def test_features_are_scaled_by_their_bounds(age):
    with pytest.raises(na.DataError, match="features between the ends"):
        read("logistic", x=[[1.0, 0.3], [1.0, age]], y=[0, 1])


def test_single_precision_is_given_its_rounding():
    x = np.nextafter(np.ones((2, 2), dtype=np.float32), np.float32(2))
    assert read("logistic", x=x, y=[0, 1]).x.dtype == np.float32


def test_a_mapping_of_a_linear_regression_leaves_the_model_s_default_in_place():
    schema = na.Schema(columns=(*SCHEMA.columns, dataclasses.replace(SCHEMA["age"], name="score")))
    every = na.models.LinearRegression(outcome="score", predictors=["age"])
    some = na.models.LinearRegression(outcome="score", predictors=["age"], prior_sd={"age": 3.0})
    _, plain = every.prior_moments(every.design(schema))
    _, mapped = some.prior_moments(some.design(schema))
    assert mapped[0] == plain[0]
    assert mapped[1] == pytest.approx(1.5 * plain[1])


def ranged_schema(**settings):
    column = na.RealColumn(name="age", lower=20, upper=100, **settings)
    return na.Schema(columns=(column, SCHEMA["ill"], SCHEMA["visits"]))


@pytest.mark.parametrize(
    ("feature_range", "expected"), [((-1, 1), [-1.0, 0.0, 1.0]), ((20, 100), [20.0, 60.0, 100.0])]
)
def test_a_feature_range_says_where_the_bounds_are_mapped_to(feature_range, expected):
    schema = ranged_schema(feature_range=feature_range)
    design = LogisticRegression(outcome="ill").design(na.Schema.from_dict(schema.to_dict()))
    table = {"age": [-5.0, 60.0, 400.0], "visits": [0, 10, 20], "ill": ["no", "yes", "no"]}
    x = encode_features(design, pd.DataFrame(table)).x
    assert x[:, 1].tolist() == expected
    assert x[:, 2].tolist() == [0.0, 0.5, 1.0]
    assert design.feature_bounds == ((1.0, *sorted(expected)[:1], 0.0), (1.0, *sorted(expected)[2:], 1.0))
    worst = np.linalg.norm(np.maximum(*np.abs(design.feature_bounds)))
    assert design.feature_norm_bound == pytest.approx(worst)
    # No record's gradient is longer than the model says.
    assert LogisticRegression(outcome="ill").gradient_bound(design) == pytest.approx(worst)


def test_records_are_held_to_their_feature_range():
    description = ModelDescription(
        model=LogisticRegression(outcome="ill", predictors=["age"]),
        schema=ranged_schema(feature_range=(-2, 2)),
        guide=na.MeanField(),
    )

    def read_age(age, constant=1.0):
        records = na.Records(x=np.array([[1.0, 0.0], [constant, age]]), y=np.array([0.0, 1.0]))
        return read_records(records, description, reading=Reading(), rng=np.random.default_rng(0))

    assert read_age(-2.0).x[1, 1] == -2.0
    for wrong in ({"age": 2.1}, {"age": -2.1}, {"age": 0.0, "constant": 0.5}):
        with pytest.raises(na.DataError, match="feature_range"):
            read_age(**wrong)


@pytest.mark.parametrize("wrong", [(1, 0), (0, 0), 3, (0, np.inf), ("0", "1"), (0, 1, 2)])
def test_a_feature_range_ascends(wrong):
    with pytest.raises(na.SchemaError, match="feature_range must"):
        ranged_schema(feature_range=wrong)


@pytest.mark.parametrize("gain", [0, 100])
def test_features_too_large_for_their_storage_are_refused_by_their_bounds(gain, tmp_path):
    """One row alone would overflow, or none: the bounds decide, before the table is opened."""
    design = make_design(SCHEMA, outcome="ill", formula="ill ~ scaled(age, 0, 1e39)")
    table = {"age": [gain, 0], "ill": ["no", "yes"]}
    assert make_records(table, design).x.max() in (1.0, 1e39)
    for source in (table, tmp_path / "absent.csv"):
        with pytest.raises(na.ArgumentError, match=r"ends at 3\.4e38"):
            make_records(source, design, storage="float32")
