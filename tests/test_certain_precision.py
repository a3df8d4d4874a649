"""What a model's own prior adds to a curvature for certain: not the inverse of a marginal variance."""

import numpy as np
import pytest

import nadpvi as na
from nadpvi.bijectors import softplus
from nadpvi.description import ModelDescription
from nadpvi.gradient_model import make_gradient_model
from nadpvi.gradient_model.certain_precision import certain_precision, certain_prior_sd
from nadpvi.gradient_model.dense.known import make_dense_prior

GUIDE = na.MeanField()
NORMAL_PRIOR = {"prior_mean": 0.0, "prior_precision_factor": 1.0, "prior_shape": 2.0, "prior_scale": 1.0}
SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "visits": {"kind": "count", "upper": 50},
            "job": {"kind": "categorical", "levels": ["a", "b", "c"]},
            "y": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)
MODELS = {
    "linear": na.models.LinearRegression(outcome="age", predictors=["job"], prior_sd=3.0),
    "negative binomial": na.models.NegativeBinomialRegression(
        outcome="visits", predictors=["job"], prior_sd={"job": 0.5}
    ),
    "logistic": na.models.LogisticRegression(outcome="y", predictors=["job"], prior_sd=2.0),
    "multinomial": na.models.MultinomialLogisticRegression(outcome="job", predictors=["y"]),
}


def described(model):
    made = ModelDescription(model=model, schema=SCHEMA, guide=GUIDE)
    return made, np.linspace(-1.5, 0.5, len(made.phi_labels))


def expected_curvature(made, phi, *, step=0.1):
    """Minus the second differences of E_q[log prior] in the locations, by 20,000 draws with common noise."""
    size = len(made.names)
    noise = np.random.default_rng(0).standard_normal((20_000, size))

    def expected(at):
        return made.model.log_prior(GUIDE.draw(at, noise), made.design).mean()

    shifts = step * np.eye(len(phi))[:size]
    return -np.array([expected(phi + d) - 2 * expected(phi) + expected(phi - d) for d in shifts]) / step**2


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_curvature_of_the_expected_log_prior(name):
    made, phi = described(MODELS[name])
    count = len(made.names) - made.model.num_extras
    found = certain_precision(made, center=phi)
    np.testing.assert_allclose(found[:count], expected_curvature(made, phi)[:count], rtol=0.03)
    assert (found[:count] > 0).all()
    np.testing.assert_array_equal(found[count:], np.zeros(made.model.num_extras))


def test_in_linear_regression_it_follows_the_variance():
    """Given s2 a coefficient's prior variance is s2 * 9; the marginal one expects s2 near 1/38."""
    made, phi = described(MODELS["linear"])
    log_variance = phi[4]
    mean = np.exp(-log_variance + 0.5 * softplus(phi[9]) ** 2)
    found = certain_precision(made, center=phi)
    np.testing.assert_allclose(found[:4], np.full(4, mean / 9), rtol=1e-12)
    _, marginal_sd = made.phi_prior_moments()
    assert (found[:4] < 0.5 / marginal_sd[:4] ** 2).all()
    sd = certain_prior_sd(made, prior_sd=marginal_sd, center=phi)
    np.testing.assert_allclose(sd[:4], found[:4] ** -0.5)
    assert np.isinf(sd[4])
    assert np.isnan(sd[5:]).all()


def test_other_models_are_left_as_they_are():
    made, phi = described(na.models.Normal(outcome="age", **NORMAL_PRIOR))
    np.testing.assert_array_equal(certain_precision(made, center=phi), np.zeros(len(made.names)))
    _, sd = made.phi_prior_moments()
    np.testing.assert_array_equal(certain_prior_sd(made, prior_sd=sd, center=phi), sd)
    np.testing.assert_array_equal(certain_prior_sd(None, prior_sd=np.ones(2), center=phi), np.ones(2))


def test_both_curvature_priors_use_it(table, schema):
    """Residuals of sd 30, where the prior expects 1/6: the marginal precision is far too large."""
    made = na.release(
        na.models.LinearRegression(outcome="age", predictors=["job"], prior_sd=0.1),
        table,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=8.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=400, sampling_rate=0.2, clip_norm=50.0),
        insecure_seed=4,
    )
    center = make_gradient_model(made).sums.phi_bar
    expected = certain_precision(made.description, center=center)[:4]
    marginal = made.model_prior_sd[:4] ** -2
    assert (expected < 0.5 * marginal).all()
    np.testing.assert_allclose(make_dense_prior(made, center=center).precision, expected)
    assert (make_dense_prior(made).precision < 0.5 * marginal).all()
    settled = softplus(make_gradient_model(made, curvature_prior="model").v_prior_mean[:4])
    assert (settled > expected).all()
    assert (settled < 0.5 * marginal).all()
