"""Outcomes of every kind, count columns, and models without predictors or without an outcome."""

import json

import numpy as np
import pandas as pd
import pytest

from nadpvi import ArgumentError, DataError, SchemaError
from nadpvi.columns import CountColumn
from nadpvi.encoding import Design, encode_features, encode_outcome, make_design
from nadpvi.made_up import made_up_table
from nadpvi.schema import Schema

COUNT = {"kind": "count", "lower": 1, "upper": 9, "missing": "drop", "missing_values": ["", "-1", "n/a"]}
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "wage": {"kind": "real", "lower": 0, "upper": 99, "transform": "log1p"},
            "height": {"kind": "real", "lower": 1, "upper": 2},
            "visits": COUNT,
            "job": {"kind": "categorical", "levels": ["a", "b", "c"], "unknown": "drop"},
            "well": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)


def outcome(name, kind, cells, **options):
    design = make_design(SCHEMA, outcome=name, predictors=(), outcome_kind=kind)
    return encode_outcome(design, {name: cells}, **options)


def test_each_kind_of_outcome_has_its_numbers():
    assert outcome("well", "binary", ["yes", "no"]).y.tolist() == [1.0, 0.0]
    assert outcome("job", "categorical", ["c", "a", "b"]).y.tolist() == [2.0, 0.0, 1.0]
    assert outcome("well", "categorical", ["yes", "no"]).y.tolist() == [1.0, 0.0]
    assert outcome("height", "real", ["1.75", 5, -np.inf]).y.tolist() == [1.75, 2.0, 1.0]
    assert outcome("visits", "count", ["3", 4.0, True, 1000, -5, np.inf]).y.tolist() == [3, 4, 1, 9, 1, 9]
    np.testing.assert_array_equal(outcome("wage", "real", [12, 1e9]).y, np.log1p([12.0, 99.0]))


def test_outcomes_know_their_levels_and_bounds():
    def design(name, kind):
        return make_design(SCHEMA, outcome=name, outcome_kind=kind)

    assert design("job", "categorical").outcome_levels == ("a", "b", "c")
    assert design("job", "categorical").outcome_bounds == (0.0, 2.0)
    assert design("well", "binary").outcome_levels == ("no", "yes")
    assert design("visits", "count").outcome_bounds == (1.0, 9.0)
    assert design("wage", "real").outcome_bounds == (0.0, float(np.log1p(99.0)))
    with pytest.raises(SchemaError, match='outcome "wage" is a number and has no levels'):
        _ = design("wage", "real").outcome_levels


@pytest.mark.parametrize(
    ("name", "kind", "rule"),
    [
        ("wage", "binary", '"wage" must be a binary column; declare kind = "binary"'),
        ("wage", "categorical", '"wage" must be a categorical column; declare kind = "categorical"'),
        ("visits", "real", '"visits" must be a real column; declare kind = "real"'),
        ("wage", "count", '"wage" must be a count column; declare kind = "count"'),
        ("job", "count", '"job" must be a count column'),
    ],
)
def test_an_outcome_of_another_kind_is_refused_with_the_remedy(name, kind, rule):
    with pytest.raises(SchemaError) as caught:
        make_design(SCHEMA, outcome=name, outcome_kind=kind)
    assert rule in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_unknown_kind_of_outcome_is_refused():
    with pytest.raises(ArgumentError, match='one of "binary", "categorical", "real", "count"'):
        make_design(SCHEMA, outcome="well", outcome_kind="ordinal")


@pytest.mark.parametrize("kind", ["binary", "categorical", "real", "count", None])
def test_designs_of_every_kind_travel_as_json(kind):
    name = {"binary": "well", "categorical": "job", "real": "wage", "count": "visits"}.get(kind)
    design = make_design(SCHEMA, outcome=name, **({} if kind is None else {"outcome_kind": kind}))
    assert design.outcome_kind == kind
    assert Design.from_dict(json.loads(json.dumps(design.to_dict()))) == design


def test_a_model_without_outcome_reads_features_alone():
    design = make_design(SCHEMA, outcome=None, predictors=["height"], intercept=False)
    assert design.schema.names == ("height",)
    table = {"height": [1.5, 2.0]}
    assert encode_features(design, table).x.tolist() == [[0.5], [1.0]]
    y, has_outcome = encode_outcome(design, table)
    assert y.tolist() == [0.0, 0.0]
    assert has_outcome.all()
    for helper in ("outcome_levels", "outcome_bounds"):
        with pytest.raises(SchemaError, match="no outcome"):
            getattr(design, helper)
    with pytest.raises(SchemaError, match="outcome or a predictor"):
        make_design(SCHEMA, outcome=None, predictors=())


def test_a_model_without_features_is_a_choice_of_the_model():
    arguments = {"outcome": "visits", "outcome_kind": "count", "predictors": (), "intercept": False}
    with pytest.raises(SchemaError, match="a predictor or an intercept"):
        make_design(SCHEMA, **arguments)
    design = make_design(SCHEMA, **arguments, allow_no_features=True)
    assert encode_features(design, {"visits": [1, 2, 3]}).x.shape == (3, 0)
    assert design.labels == ()
    assert Design.from_dict(design.to_dict()) == design


def test_counts_as_predictors_are_scaled():
    design = make_design(SCHEMA, outcome="well", predictors=["visits"], intercept=False)
    x, is_complete = encode_features(design, {"visits": [1, "5", 9, 50, "n/a", -1, None]})
    assert x.ravel().tolist() == [0.0, 0.5, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert is_complete.tolist() == [True] * 4 + [False] * 3
    assert design.feature_norm_bound == 1.0


@pytest.mark.parametrize("cell", [2.5, "2.5", "two", "1e-3", pd.Timestamp("2020-01-01")])
def test_a_cell_that_is_no_whole_number_is_refused_by_column_alone(cell):
    cells = pd.Series([3, cell, 4], dtype=object)
    with pytest.raises(DataError, match='column "visits" holds a fraction or text') as caught:
        outcome("visits", "count", cells)
    assert str(cell) not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert outcome("visits", "count", cells, on_problem="incomplete").is_complete.tolist() == [
        True,
        False,
        True,
    ]


def test_whole_numbers_of_any_spelling_are_counts():
    cells = pd.Series(["3", " 3.0 ", "3e0", 3, 3.0, np.float32(3), np.int8(3)], dtype=object)
    assert outcome("visits", "count", cells).y.tolist() == [3.0] * 7


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"upper": 1.5}, "upper must be a whole number from 0 to 2^53 (got 1.5)"),
        ({"upper": 2**60}, "upper must be a whole number from 0 to 2^53"),
        ({"upper": 5, "lower": -1}, "lower must be a whole number from 0"),
        ({"upper": 5, "lower": 5}, "lower must be below upper (got 5 and 5)"),
        ({"upper": "5"}, "upper must be a number (got '5')"),
        ({}, "upper is not given; a count column needs it"),
        ({"upper": 5, "transform": "log1p"}, 'unknown setting "transform"'),
        ({"upper": 5, "missing": "zero"}, 'missing must be "refuse" or "drop"'),
    ],
)
def test_a_wrong_count_column_is_one_line(settings, rule):
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict({"columns": {"n": {"kind": "count", **settings}}})
    assert rule in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_count_column_travels_as_json():
    assert SCHEMA["visits"] == CountColumn(
        name="visits", lower=1, upper=9, missing="drop", missing_values=("", "-1", "n/a")
    )
    assert Schema.from_dict(json.loads(json.dumps(SCHEMA.to_dict()))) == SCHEMA


def test_made_up_counts_fill_their_bounds():
    cells = made_up_table(SCHEMA, num_records=500, rng=np.random.default_rng(0))["visits"]
    assert sorted(set(cells)) == list(range(1, 10))
