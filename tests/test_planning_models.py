"""Planning for every model of the registry: a forecast, or one line that says why not."""

import numpy as np
import pytest
from test_models import EXAMPLES, SCHEMA

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.encoding import encode_features
from nadpvi.guides import FullRank, MeanField
from nadpvi.made_up import made_up_records, made_up_table, prior_draws
from nadpvi.models import CustomModel, MultinomialLogisticRegression, Parameter, PoissonRegression
from nadpvi.planning.curvature import expected_information, information_evenness
from nadpvi.planning.outcomes import outcome_warnings
from nadpvi.planning.plan import plan

BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-6)
CONFIG = na.DPVIConfig(num_steps=300, sampling_rate=1.0, clip_norm=4.0)


def make_plan(model, *, config=CONFIG):
    return plan(model, BUDGET, config, schema=SCHEMA, num_records=20_000, measure_time=False)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_every_model_can_be_planned_for(name):
    made = make_plan(EXAMPLES[name])
    description = ModelDescription(model=EXAMPLES[name], schema=SCHEMA, guide=MeanField())
    assert made.names == description.names
    for value in (made.prior_sd, made.non_private_sd, made.private_sd, made.noise_sd, made.relaxation_steps):
        assert np.isfinite(value).all()
        assert (value > 0).all()
    assert (made.non_private_sd < made.private_sd).all()
    assert (made.private_sd < made.prior_sd).all()
    assert 0.0 <= made.clipped_share <= 1.0


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_plan_without_a_clip_norm_needs_a_bound(name):
    model, config = EXAMPLES[name], na.DPVIConfig(num_steps=300, sampling_rate=1.0)
    if model.gradient_bound(model.design(SCHEMA)) is not None:
        assert make_plan(model, config=config).clip_norm > 0
    else:
        with pytest.raises(na.ArgumentError, match="clip_norm must be given"):
            make_plan(model, config=config)


def test_information_of_counts_is_their_mean_rate_times_the_features():
    # J = E[rate x x']: 22,000 scores against 400,000 direct averages; entries agree within 6 %.
    model = PoissonRegression(outcome="visits", predictors=["age", "sex"], prior_mean=0.5, prior_sd=0.4)
    description = ModelDescription(model=model, schema=SCHEMA, guide=MeanField())
    found = expected_information(description, rng=np.random.default_rng(0))
    rng = np.random.default_rng(1)
    x = encode_features(description.design, made_up_table(SCHEMA, num_records=400_000, rng=rng)).x
    rate = np.exp((x * prior_draws(model, description.design, num_draws=len(x), rng=rng)).sum(axis=1))
    np.testing.assert_allclose(found, (x * rate[:, None]).T @ x / len(x), rtol=0.06)


def test_made_up_outcomes_keep_to_the_bounds_of_their_column():
    model = PoissonRegression(outcome="visits", predictors=["age"], prior_mean=4.0)
    design = model.design(SCHEMA)
    arguments = {"theta": np.array([5.0, 1.0]), "num_records": 200}
    held = made_up_records(model, design, rng=np.random.default_rng(0), **arguments)
    free = made_up_records(model, design, rng=np.random.default_rng(0), clamp=False, **arguments)
    assert held.y.max() == 40.0
    assert free.y.max() > 100.0
    np.testing.assert_array_equal(held.y, np.minimum(free.y, 40.0))


def test_a_wide_prior_of_rates_is_warned_of_and_a_wider_one_refused():
    narrow = PoissonRegression(outcome="visits", predictors=["age", "sex"], prior_sd=0.5)
    wide = PoissonRegression(outcome="visits", predictors=["age", "sex"], prior_sd=1.2)
    description = ModelDescription(model=wide, schema=SCHEMA, guide=MeanField())
    assert information_evenness(description, rng=np.random.default_rng(0)) < 0.05
    assert any("the prior is wide" in line for line in make_plan(wide).warnings)
    assert not any("the prior is wide" in line for line in make_plan(narrow).warnings)
    with pytest.raises(na.ModelError, match="cannot be planned for under this prior") as caught:
        make_plan(PoissonRegression(outcome="visits", prior_sd=3.0))
    assert len(str(caught.value).splitlines()) == 1


def test_levels_of_every_categorys_block_are_counted():
    model = MultinomialLogisticRegression(outcome="party", predictors=["job"])
    made = make_plan(model)
    margins = [m for name, m in zip(made.names, made.margin, strict=True) if "job[" in name]
    assert len(margins) == 9
    np.testing.assert_allclose(made.drowning_count, 20_000 / (3 * min(margins)))


def test_other_guides_are_refused():
    with pytest.raises(na.ArgumentError, match="derived for the MeanField guide"):
        make_plan(EXAMPLES["logistic"], config=na.DPVIConfig(guide=FullRank(), clip_norm=3.0))


def test_a_model_without_an_outcome_is_refused():
    from autograd import numpy as anp

    model = CustomModel(
        name="where ages lie",
        outcome=None,
        predictors=["age"],
        parameters=[Parameter(name="centre")],
        log_prior=lambda p: -0.5 * p["centre"] ** 2,
        log_likelihood=lambda p, x, y: -0.5 * (x[:, 0] - p["centre"]) ** 2 + 0.0 * anp.sum(x, axis=1),
        simulate=lambda p, x, rng: 0.0 * p["centre"],
    )
    with pytest.raises(na.ModelError, match="it has no outcome"):
        make_plan(model)


OUTCOMES = {
    "in another unit": (
        na.models.LinearRegression(outcome="y"),
        {"kind": "real", "lower": 0, "upper": 100},
        "beyond",
    ),
    "narrow": (
        na.models.LinearRegression(outcome="y"),
        {"kind": "real", "lower": -50, "upper": 50},
        "allows -50 to 50",
    ),
    "fitting": (na.models.LinearRegression(outcome="y"), {"kind": "real", "lower": -2, "upper": 2}, None),
    "wide counts": (
        na.models.PoissonGamma(outcome="y", prior_shape=8, prior_rate=0.2),
        {"kind": "count", "upper": 30},
        "beyond",
    ),
    "low counts": (
        na.models.PoissonGamma(outcome="y", prior_shape=8, prior_rate=2),
        {"kind": "count", "upper": 900},
        None,
    ),
    "binary": (na.models.LogisticRegression(outcome="y"), {"kind": "binary", "levels": ["n", "y"]}, None),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_a_prior_that_does_not_fit_the_outcomes_bounds_is_said(case):
    model, column, words = OUTCOMES[case]
    schema = na.Schema.from_dict({"columns": {"y": column, "dose": {"kind": "real", "lower": 0, "upper": 1}}})
    described = ModelDescription(model=model, schema=schema, guide=na.MeanField())
    found = outcome_warnings(described, rng=np.random.default_rng(0))
    if words is None:
        assert found == []
    else:
        assert words in found[0]
        assert "choose the model's priors" in found[0].lower()


def test_a_plan_says_so_first():
    model, column, _ = OUTCOMES["in another unit"]
    schema = na.Schema.from_dict({"columns": {"y": column, "dose": {"kind": "real", "lower": 0, "upper": 1}}})
    made = na.plan(
        model, BUDGET, na.DPVIConfig(clip_norm=5.0), schema=schema, num_records=1000, measure_time=False
    )
    assert "of the outcomes that the prior expects" in made.warnings[0]
