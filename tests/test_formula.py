"""Formulas: what they mean, that nothing runs or learns, and that every feature keeps its public bounds."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import BSpline

import nadpvi as na
from nadpvi.design import Design
from nadpvi.encoding import encode_features, make_design
from nadpvi.errors import ArgumentError, DataError, NadpviError, SchemaError
from nadpvi.formula import parse_formula
from nadpvi.gradient_model.dense.known import make_dense_prior
from nadpvi.made_up import edge_records, made_up_table
from nadpvi.models import model_from_dict
from nadpvi.private.reading import encode_table
from nadpvi.private.records import make_records
from nadpvi.tables import in_parts

AWKWARD = ("Sprout Length", "class", "1B", "%male", "a/b", "größe", "C", "log", "bs", "knots", "chain", "y")
SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 18, "upper": 90},
            "gain": {"kind": "real", "lower": 0, "upper": 99_999, "transform": "log1p"},
            "depth": {"kind": "real", "lower": -3, "upper": 1, "feature_range": [-3, 1]},
            "visits": {"kind": "count", "lower": 1, "upper": 20},
            "education": {"kind": "categorical", "levels": ["primary", "secondary", "tertiary"]},
            "sex": {"kind": "binary", "levels": ["Female", "Male"]},
            "income": {"kind": "binary", "levels": ["low", "high"]},
        }
    }
)
ROADS = (
    "income ~ age + education * sex + bs(age, knots=[30, 45, 60])",
    "income ~ depth + (age + depth + sex)**2 - age",
    "income ~ 0 + poly(depth, 3, raw=True) * education + I(depth**2):sex",
    "income ~ bs(age, knots=[40], degree=1, include_intercept=True):education - 1",
    "income ~ log(age):sqrt(visits) + log1p(gain) * scaled(age, -2, 3) + I(scaled(log(age), -1, 1)**3)",
    "income ~ . + depth:gain + bs(visits, knots=(5, 10)):bs(age, knots=[50], degree=2)",
    "income ~ 1",
)


def design_of(formula: str, schema: na.Schema = SCHEMA) -> Design:
    return na.models.LogisticRegression(formula=formula).design(schema)


def test_the_issues_formula():
    design = design_of("income ~ age + education * sex + bs(age, knots=[30, 45, 60])")
    assert design.labels == (
        "Intercept",
        "age",
        *(f"education[{level}]" for level in ("primary", "secondary", "tertiary")),
        "sex[Male]",
        *(f"bs(age)[{place}]" for place in range(1, 7)),
        *(f"education[{level}]:sex[Male]" for level in ("primary", "secondary", "tertiary")),
    )
    assert design.predictors == ("age", "education", "sex")
    assert design.schema.names == ("age", "education", "sex", "income")


def test_features_are_what_they_say():
    table = {
        "age": [18.0, 40.0, 1e9],
        "gain": [-5.0, 99.0, 1e9],
        "depth": [-3.0, 0.5, 7.0],
        "visits": [1, 4, 300],
        "education": ["primary", "tertiary", "secondary"],
        "sex": ["Male", "Female", "Male"],
    }
    age, depth = np.array([18.0, 40.0, 90.0]), np.array([-3.0, 0.5, 1.0])
    visits, gain = np.array([1.0, 4.0, 20.0]), np.array([0.0, 99.0, 99_999.0])
    male, share = np.array([1.0, 0.0, 1.0]), (age - 18) / 72
    knots = np.array([18.0] * 4 + [30.0, 45.0, 60.0] + [90.0] * 4)
    expected = {
        "age": share,
        "log(age)": np.log(age / 18) / np.log(5),
        "log1p(gain)": np.log1p(gain) / np.log(1e5),
        "gain": np.log1p(gain) / np.log(1e5),
        "sqrt(visits)": (np.sqrt(visits) - 1) / (np.sqrt(20) - 1),
        "I(depth**3)": depth**3,
        "scaled(age, -2, 3)": -2 + 5 * share,
        "scaled(log(age), low=-1, high=1)": -1 + 2 * np.log(age / 18) / np.log(5),
        "poly(depth, degree=2, raw=True)": np.column_stack([depth, depth**2]),
        "age:sex": share * male,
        "depth:I(depth**2):age": depth**3 * share,
        "bs(age, knots=[30, 45, 60])": BSpline.design_matrix(age, knots, 3).toarray()[:, 1:],
        "C(education)": np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]]),
        "education:sex": np.array([[1, 0, 0], [0, 0, 0], [0, 1, 0]]),
        "education:age": np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0]]) * share[:, None],
    }
    for term, wanted in expected.items():
        x = encode_features(design_of(f"income ~ 0 + {term}"), table).x
        np.testing.assert_allclose(x, np.reshape(wanted, (3, -1)), rtol=0, atol=1e-12, err_msg=term)


def test_several_terms_are_their_features_side_by_side():
    table = made_up_table(SCHEMA, num_records=50, rng=np.random.default_rng(0))
    design = design_of("income ~ bs(age, knots=[50]) + education:sex + age")
    parts = [
        encode_features(design_of(f"income ~ {term} - 1"), table).x
        for term in ("bs(age, knots=[50])", "age", "education:sex")
    ]
    np.testing.assert_array_equal(encode_features(design, table).x, np.hstack([np.ones((50, 1)), *parts]))


@pytest.mark.parametrize(
    ("formula", "predictors", "intercept"),
    [
        ("income ~ age + sex", ["age", "sex"], True),
        ("income~sex+`age`", ["sex", "age"], True),
        ("`income` ~ 0 + C(education) + age", ["education", "age"], False),
        ("income ~ age - 1", ["age"], False),
        ("income ~ .", ["age", "gain", "depth", "visits", "education", "sex"], True),
        ("income ~ . - gain - depth", ["age", "visits", "education", "sex"], True),
        ("income ~ 1", [], True),
        ("income ~", [], True),
    ],
)
def test_a_formula_of_columns_is_a_list_of_predictors(formula: str, predictors: list, intercept: bool):
    plain = make_design(SCHEMA, outcome="income", predictors=predictors, intercept=intercept)
    assert design_of(formula) == plain
    assert design_of(formula).terms is None


@pytest.mark.parametrize("formula", ROADS)
def test_no_row_exceeds_a_bound(formula: str):
    design, rng = design_of(formula), np.random.default_rng(1)
    x = encode_features(design, made_up_table(design.schema, num_records=3_000, rng=rng)).x
    edges = [batch.x for batch in edge_records(design, num_records=300, rng=rng)]
    x = np.vstack([x, *edges])
    low, high = np.array(design.feature_bounds)
    assert (x >= low).all()
    assert (x <= high).all()
    assert np.linalg.norm(x, axis=1).max() <= design.feature_norm_bound * (1 + 1e-12)
    first, second = np.triu_indices(design.num_features)
    products = np.linalg.norm(x[:, first] * x[:, second], axis=1)
    assert products.max() <= design.outer_product_bound * (1 + 1e-12)


def test_bounds_are_not_slack():
    """A bound twice as large as need be would double the noise: each is reached where columns allow it."""
    design = design_of("income ~ 0 + depth:age + education:sex + I(depth**2):sex + bs(visits, knots=[9])")
    assert design.feature_bounds == (
        (*[0.0] * 4, -3.0, 0.0, 0.0, 0.0, 0.0),
        (*[1.0] * 4, 1.0, 1.0, 1.0, 1.0, 9.0),
    )
    row = {"depth": [-3], "age": [90], "education": ["primary"], "sex": ["Male"], "visits": [20]}
    assert design.feature_norm_bound == np.sqrt(9 + 1 + 81 + 1)
    assert np.linalg.norm(encode_features(design, row).x) == pytest.approx(design.feature_norm_bound)


cells = st.one_of(st.floats(allow_nan=False, width=64), st.integers(-(10**6), 10**6).map(float))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(cells, cells, st.sampled_from(["Female", "Male"])), min_size=2, max_size=6))
def test_a_row_does_not_see_the_others(rows: list):
    design = design_of("income ~ 0 + bs(age, knots=[40])*sex + log(age):depth + poly(depth, 3, raw=True)")
    names = ("age", "depth", "sex")
    together = encode_features(design, dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))).x
    alone = [
        encode_features(design, {name: [cell] for name, cell in zip(names, row, strict=True)}).x
        for row in rows
    ]
    np.testing.assert_array_equal(together, np.vstack(alone))
    low, high = np.array(design.feature_bounds)
    assert (low <= together).all()
    assert (together <= high).all()


def test_a_dropped_row_takes_the_same_path():
    """No warning, no error and no trace of an unusable cell, whatever functions it would have entered."""
    schema = na.Schema.from_dict(
        {
            "columns": {
                "age": {"kind": "real", "lower": 18, "upper": 90, "missing": "drop"},
                "job": {"kind": "categorical", "levels": ["a", "b"], "unknown": "drop", "missing": "drop"},
                "y": {"kind": "binary", "levels": ["0", "1"]},
            }
        }
    )
    design = design_of("y ~ log(age) * job + bs(age, knots=[30])", schema)
    table = {"age": ["", "50", "-1e999"], "job": ["a", "z", "b"], "y": [0, 1, 1]}
    with np.errstate(all="raise"):
        x, is_complete = encode_features(design, table)
    assert is_complete.tolist() == [False, False, True]
    assert not x[:2].any()
    records = make_records(table, design)
    np.testing.assert_array_equal(records.x, x[2:])


REFUSED = {
    "curly braces": ("income ~ {age}", "the sign { has no place"),
    "curly braces with code": ("income ~ {__import__('os').getpid()}", "the sign { has no place"),
    "file writer": ("income ~ {open('MARK','w').write('x')}", "the sign { has no place"),
    "call without braces": ("income ~ open(age)", "open() is not among the functions"),
    "attribute": ("income ~ age.values", 'no column "age.values"'),
    "attribute in a call": ("income ~ log(age.values)", "wants a column's name"),
    "method": ("income ~ age.fillna(0)", "would run code"),
    "import": ("income ~ __import__(age)", "__import__() is not among"),
    "eval": ("income ~ eval(age)", "eval() is not among"),
    "call of a call": ("income ~ log(age)(3)", "would run code"),
    "index": ("income ~ age[0]", "would run code"),
    "slice": ("income ~ bs(age[1:], knots=[30])", "wants a column's name"),
    "text": ("income ~ log('age')", "the sign ' has no place"),
    "lambda": ("income ~ I((lambda: 3)())", "whole power alone"),
    "walrus": ("income ~ log(x := age)", "wants a column's name"),
    "comprehension": ("income ~ bs(age, knots=[k for k in age])", "knots that are written out"),
    "stars": ("income ~ log(*age)", "wants a column's name"),
    "double stars": ("income ~ bs(age, **age)", "knows the settings"),
    "scale": ("income ~ scale(age)", "looks at other rows"),
    "center": ("income ~ center(age)", "looks at other rows"),
    "poly": ("income ~ poly(age, 2)", "looks at other rows"),
    "poly not raw": ("income ~ poly(age, 2, raw=False)", "looks at other rows"),
    "bs with df": ("income ~ bs(age, df=4)", "knots that are written out"),
    "bs with knots and df": ("income ~ bs(age, knots=[30], df=4)", "knots that are written out"),
    "bs with computed knots": ("income ~ bs(age, knots=[30 + 1])", "numbers that are written out"),
    "bs with a column as knot": ("income ~ bs(age, knots=[visits])", "numbers that are written out"),
    "bs bounds": ("income ~ bs(age, knots=[30], lower_bound=0)", "knows the settings"),
    "bs outside": ("income ~ bs(age, knots=[95])", "between the column's bounds 18 and 90"),
    "bs not ascending": ("income ~ bs(age, knots=[40, 40])", "must ascend"),
    "bs of degree 9": ("income ~ bs(age, knots=[40], degree=9)", "whole number from 1 to 5"),
    "bs of levels": ("income ~ bs(sex, knots=[0.5])", "needs a number"),
    "contrasts": ("income ~ C(education, contr.treatment)", "too many or too few arguments"),
    "C of a number": ("income ~ C(age)", 'declare kind = "categorical"'),
    "log of zero": ("income ~ log(gain)", "lower bound above 0"),
    "sqrt below zero": ("income ~ sqrt(depth)", "lower bound of at least 0"),
    "log of levels": ("income ~ log(education)", "needs a number"),
    "arithmetic": ("income ~ I(age + visits)", "whole power alone"),
    "fractional power": ("income ~ I(age**0.5)", "whole number from 2 to 10"),
    "huge power": ("income ~ I(age**9999)", "whole number from 2 to 10"),
    "number": ("income ~ age + 3", "cannot be read"),
    "scaled term": ("income ~ 2:age", "the number 2 stands where a column should"),
    "unknown column": ("income ~ wages", 'no column "wages"; the schema knows "age"'),
    "unknown in a call": ("income ~ log(wages)", 'no column "wages"'),
    "unknown in backticks": ("income ~ `my wages`", 'no column "my wages"'),
    "open backtick": ("income ~ `age", "never closed"),
    "open bracket": ("income ~ log(age", "cannot be read"),
    "no operator": ("income ~ age visits", "Missing operator between `age` and `visits`"),
    "no operator beside backticks": ("income ~ age`depth`", "two names stand side by side"),
    "no operator between backticks": ("income ~ log(`age``depth`)", "two names stand side by side"),
    "a column as a setting": ("income ~ bs(age, `depth`=3)", '(got "depth")'),
    "settings out of a column": ("income ~ log(**age)", '(got "**")'),
    "a column called": ("income ~ `age`(2)", '"age" is a column, and no function'),
    "no tilde": ("age + visits", 'one "~"'),
    "two tildes": ("income ~ age ~ visits", 'one "~"'),
    "two parts": ("income ~ age | visits", "cannot be read"),
    "function on the left": ("log(income) ~ age", "must be one column's name"),
    "two outcomes": ("income + age ~ visits", "must be one column's name"),
    "outcome on both sides": ("income ~ age + income", "on both sides"),
    "outcome in a call": ("income ~ age + C(income)", "on both sides"),
    "no outcome": ("~ age", "must be one column's name"),
    "escape code": ("income ~ age\x1b[31m", "unprintable"),
    "explosion by power": ("income ~ (age + gain + depth + visits + sex)**30", "more than 10000 terms"),
    "explosion by stars": ("income ~ " + "*".join(["(age + gain + depth)"] * 12), "more than 10000 terms"),
    "too long": ("income ~ age" + " + age" * 20_000, "at most 50000 characters"),
    "deep": ("income ~ I(" + "-" * 5_000 + "age)", "cannot be read"),
    "same term twice": ("income ~ bs(age, knots=[30]) + bs(age, knots=[40])", 'be called "bs(age)[1]"'),
    "of another type": (3, "it must be a text"),
}


@pytest.mark.parametrize(("formula", "rule"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_in_one_line(formula: object, rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NadpviError) as caught:
        design_of(formula)
    message = str(caught.value)
    assert rule in message
    assert len(message.splitlines()) == 1
    assert message.isprintable()
    assert not list(tmp_path.iterdir())


def test_nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch):
    import formulaic.parser  # noqa: F401  # importing makes named tuples, which is done by eval

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was evaluated")

    monkeypatch.setattr("builtins.eval", refuse)
    monkeypatch.setattr("builtins.exec", refuse)
    for formula in ROADS:
        design = design_of(formula)
        table = made_up_table(design.schema, num_records=5, rng=np.random.default_rng(0))
        assert len(encode_features(design, table).x) == 5


@pytest.mark.parametrize("name", AWKWARD)
def test_a_column_wins_over_whatever_else_has_its_name(name: str):
    columns = {
        name: {"kind": "real", "lower": 1, "upper": 3},
        "out": {"kind": "binary", "levels": ["0", "1"]},
    }
    schema = na.Schema.from_dict({"columns": columns})
    for term, label in ((f"`{name}`", name), (f"log(`{name}`)", f"log({name})"), (".", name)):
        design = design_of(f"out ~ 0 + {term}", schema)
        assert design.labels == (label,)
        assert encode_features(design, {name: [3.0]}).x.tolist() == [[1.0]]
    if name.isidentifier():
        assert design_of(f"out ~ 0 + log({name}):{name}", schema).labels == (f"log({name}):{name}",)
        spline = design_of(f"out ~ 0 + bs({name}, knots=[2], degree=1)", schema)
        assert spline.labels == (f"bs({name})[1]", f"bs({name})[2]")


def test_names_that_differ_in_how_letters_are_written_stay_apart():
    """Python takes a ligature for its letters; a schema does not."""
    columns = {name: {"kind": "real", "lower": 1, "upper": 3} for name in ("ﬁ", "fi", "out")}
    schema = na.Schema.from_dict({"columns": columns})
    parsed = parse_formula("out ~ log(ﬁ) + log(fi)", schema)
    assert [term.columns for term in parsed.terms] == [("ﬁ",), ("fi",)]
    without = na.Schema.from_dict({"columns": {name: columns[name] for name in ("fi", "out")}})
    with pytest.raises(ArgumentError, match="no column"):
        parse_formula("out ~ log(ﬁ)", without)


def test_a_caller_s_variables_are_no_names():
    wages = np.ones(3)
    with pytest.raises(ArgumentError, match='no column "wages"'):
        design_of("income ~ wages")
    assert wages.sum() == 3


@pytest.mark.parametrize("formula", ROADS)
def test_model_and_design_travel_as_json(formula: str):
    model = na.models.LogisticRegression(formula=formula, prior_sd=2.0)
    back = model_from_dict(json.loads(json.dumps(model.to_dict())))
    assert back == model
    assert back.design(SCHEMA) == model.design(SCHEMA)
    design = model.design(SCHEMA)
    assert Design.from_dict(json.loads(json.dumps(design.to_dict(), sort_keys=True))) == design


def test_a_model_without_formula_is_written_as_before():
    assert "formula" not in na.models.LogisticRegression(outcome="income").to_dict()


def test_priors_by_term():
    model = na.models.LogisticRegression(
        formula="income ~ age + education*sex + bs(age, knots=[50], degree=1)",
        prior_sd={"education:sex": 0.5, "bs(age)": 3.0, "bs(age)[1]": 4.0, "education": 2.0},
    )
    _, sd = model.prior_moments(model.design(SCHEMA))
    assert sd.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 4.0, 3.0, 0.5, 0.5, 0.5]
    with pytest.raises(ArgumentError, match='"education:age"'):
        na.models.LogisticRegression(formula="income ~ age", prior_sd={"education:age": 1.0}).design(SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [{"predictors": ["age"]}, {"outcome": "sex"}, {"intercept": False}],
)
def test_one_source_for_each_setting(wrong: dict):
    with pytest.raises(ArgumentError, match="leave those out"):
        na.models.LogisticRegression(formula="income ~ age", **wrong)
    with pytest.raises(ArgumentError, match="needs an outcome"):
        na.models.LogisticRegression()


@pytest.mark.parametrize(
    ("model", "outcome"),
    [
        ("LinearRegression", "age"),
        ("PoissonRegression", "visits"),
        ("MultinomialLogisticRegression", "education"),
    ],
)
def test_every_regression_takes_a_formula(model: str, outcome: str):
    made = getattr(na.models, model)(formula=f"{outcome} ~ sex*depth")
    assert made.outcome == outcome
    assert made.design(SCHEMA).labels == ("Intercept", "sex[Male]", "depth", "sex[Male]:depth")


def test_a_wide_formula_is_read():
    columns = {f"c{place}": {"kind": "real", "lower": 0, "upper": 1} for place in range(1_500)}
    schema = na.Schema.from_dict({"columns": {**columns, "y": {"kind": "binary", "levels": ["0", "1"]}}})
    assert design_of("y ~ " + " + ".join(columns), schema).predictors == tuple(columns)
    assert design_of("y ~ . + c1:c2", schema).num_features == 1_502


def test_a_product_that_floats_cannot_hold_is_refused():
    huge = {"kind": "real", "lower": 0, "upper": 1, "feature_range": [0, 1e200]}
    schema = na.Schema.from_dict({"columns": {"a": huge, "b": huge, "y": {**huge, "feature_range": [0, 1]}}})
    with pytest.raises(SchemaError, match="grows too large"):
        na.models.LinearRegression(formula="y ~ a:b").design(schema)
    with pytest.raises(ArgumentError, match="grows too large"):
        na.models.LinearRegression(formula="y ~ I(a**2)").design(schema)


SMALL = na.DPVIConfig(num_steps=60, sampling_rate=0.2)
FORMULA = "income ~ education * sex + bs(age, knots=[45], degree=1) + I(depth**2)"


@pytest.fixture(scope="module")
def release() -> na.Release:
    table = made_up_table(SCHEMA, num_records=400, rng=np.random.default_rng(5))
    return na.release(
        na.models.LogisticRegression(formula=FORMULA),
        table,
        schema=SCHEMA,
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        config=dataclasses.replace(SMALL, curvature_share=0.2),
        insecure_seed=3,
    )


@pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")
def test_a_release_carries_its_formula(release: na.Release, tmp_path: Path):
    """The file alone gives the encoding back: what is predicted from it is what is predicted here."""
    design = design_of(FORMULA)
    assert release.phi_labels[: design.num_features] == tuple(f"mu[{label}]" for label in design.labels)
    release.save(tmp_path / "release.nc")
    loaded = na.Release.load(tmp_path / "release.nc")
    assert loaded.description.design == design
    posteriors = [
        na.infer(source, method="exact", draws=50, chains=1, seed=1) for source in (release, loaded)
    ]
    new = made_up_table(design.schema, num_records=20, rng=np.random.default_rng(6)).drop(columns="income")
    first, second = (posterior.predict(new) for posterior in posteriors)
    np.testing.assert_array_equal(first, second)
    posteriors[0].save(tmp_path / "posterior.nc")
    np.testing.assert_array_equal(na.Posterior.load(tmp_path / "posterior.nc").predict(new), first)
    theta = posteriors[0].to_datatree()["posterior"]["coefficients"].values[0]
    x = encode_features(design, new).x
    np.testing.assert_allclose(first, (1 / (1 + np.exp(-theta @ x.T))).mean(axis=0), rtol=1e-9)


@pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")
def test_dense_has_no_pattern_for_terms_that_share_columns(release: na.Release):
    prior = make_dense_prior(release)
    assert prior.groups == ()
    assert prior.estimate is not None
    posterior = na.infer(release, method="dense", draws=20, chains=1, warmup=20, seed=1)
    assert np.isfinite(posterior.to_datatree()["posterior"]["coefficients"].values).all()


def test_parts_and_counts_give_the_same_records():
    design = design_of("income ~ bs(age, knots=[45])*sex + education:sex")
    table = made_up_table(design.schema, num_records=100, rng=np.random.default_rng(2))
    table["age"] = np.array([20.0, 50.0])[np.arange(100) % 2]
    whole = make_records(table, design)
    parts = encode_table(in_parts(table, part_rows=7), design, person=None, collapse=False, dtype=np.float64)
    np.testing.assert_array_equal(parts.x, whole.x)
    merged = make_records(table, design, collapse=True)
    assert merged.counts is not None
    np.testing.assert_allclose(merged.counts @ merged.x, whole.x.sum(axis=0))


@pytest.mark.parametrize(
    "terms", ["scaled(age, 0, 1) + scaled(age, -1, 1)", "sex:scaled(age, 0, 1) + sex:scaled(age, 0, 2)"]
)
def test_terms_that_differ_in_scale_alone_have_their_own_remedy(terms):
    with pytest.raises(SchemaError, match="leave all but one of these terms out"):
        design_of(f"income ~ {terms}")


def test_the_first_fault_is_that_of_the_whole_table():
    design = design_of("income ~ age:visits")
    table = {"age": ["20"] * 9 + ["old"], "visits": ["1.5"] + ["1"] * 9, "income": ["low"] * 10}
    for part_rows in (3, 100):
        with pytest.raises(DataError, match='column "age" holds text'):
            encode_table(
                in_parts(table, part_rows=part_rows), design, person=None, collapse=False, dtype=np.float64
            )


def test_a_formula_is_planned_like_any_model():
    made = na.plan(
        na.models.LogisticRegression(formula="income ~ age*sex"),
        na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        SMALL,
        schema=SCHEMA,
        num_records=5_000,
    )
    assert "age:sex[Male]" in made.report()


def numbers_between(low, high):
    columns = {
        "y": {"kind": "binary", "levels": ["n", "y"]},
        "x": {"kind": "real", "lower": low, "upper": high},
    }
    return na.Schema.from_dict({"columns": columns})


@pytest.mark.parametrize(
    ("formula", "low", "high", "rule"),
    [
        ("y ~ scaled(x, 0, 1e100)", 0, 1, "grows too large"),
        ("y ~ scaled(x, 0, 1e90):I(scaled(x, 0, 1e9)**2)", 0, 1, "grows too large"),
        ("y ~ log(x)", 1e15, 1e15 + 1, "one value at both bounds"),
        ("y ~ bs(x, knots=[1e-300])", 0, 1, "knots must ascend"),
        ("y ~ x**1000000000", 0, 1, "exponent"),
        ("y ~ x^100", 0, 1, "exponent"),
    ],
)
def test_constants_that_floats_cannot_tell_are_refused_when_the_design_is_made(formula, low, high, rule):
    """Not after the last step, when the released curvature asks for its bound."""
    with pytest.raises(NadpviError, match=rule) as caught:
        make_design(numbers_between(low, high), outcome="y", formula=formula)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("factor", "rule"),
    [
        ({"kind": "spline", "column": "x", "knots": [0.6, 0.3]}, "knots must ascend"),
        ({"kind": "curve", "column": "x", "function": "log"}, "lower bound"),
        ({"kind": "curve", "column": "x", "powers": [10**9]}, "powers"),
        ({"kind": "curve", "column": "x", "powers": [1.5]}, "powers"),
        ({"kind": "spline", "column": "x", "knots": ["a"]}, "settings"),
        ({"kind": "spline", "column": "x", "knots": [0.5], "more": 1}, "settings"),
        ({"kind": "other", "column": "x"}, "kind"),
        ({"column": "x"}, "kind"),
        ("x", "a term is a list"),
    ],
)
def test_a_design_from_a_file_is_checked_like_one_from_a_formula(factor, rule):
    content = make_design(numbers_between(0, 1), outcome="y", formula="y ~ bs(x, knots=[0.5])").to_dict()
    with pytest.raises(NadpviError, match=rule):
        Design.from_dict({**content, "terms": [[factor]]})
