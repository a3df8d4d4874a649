"""Contract of every registered model: one list, the same demands on each."""

import json

import numpy as np
import pytest

from nadpvi import ArgumentError, SchemaError
from nadpvi.guides import MeanField
from nadpvi.models import MODELS, LogisticRegression, RecordBatch, model_from_dict
from nadpvi.models.base import LinearModel, Model, SimulatingModel
from nadpvi.private.dpvi import prior_score
from nadpvi.private.gradients import autograd_route, gradient_function

EXAMPLES = {"logistic_regression": LogisticRegression(outcome="y", prior_sd=1.3)}


def records(num_records=13, num_params=6, seed=0):
    rng = np.random.default_rng(seed)
    return RecordBatch(x=rng.normal(size=(num_records, num_params)), y=rng.integers(0, 2, num_records) * 1.0)


def guide_point(guide, num_params=6, samples=4, seed=1):
    rng = np.random.default_rng(seed)
    phi = np.concatenate([rng.normal(size=num_params), rng.normal(size=num_params) - 1.0])
    return phi, rng.standard_normal((samples, num_params))


def test_every_registered_model_has_an_example():
    assert set(EXAMPLES) == set(MODELS)


@pytest.fixture(params=sorted(EXAMPLES))
def model(request):
    return EXAMPLES[request.param]


@pytest.fixture(params=["sd", "variance"])
def guide(request):
    return MeanField(scale=request.param)


def test_follows_the_protocol(model):
    assert isinstance(model, Model)


def test_description_round_trip(model):
    assert model_from_dict(json.loads(json.dumps(model.to_dict()))) == model


def test_log_likelihood_gives_one_number_a_record_and_keeps_records_apart(model):
    batch = records()
    theta = np.random.default_rng(3).normal(size=(5, 1, 6))
    full = model.log_likelihood(theta, batch)
    assert full.shape == (5, 13)
    alone = [
        model.log_likelihood(theta, RecordBatch(batch.x[b : b + 1], batch.y[b : b + 1])) for b in range(13)
    ]
    np.testing.assert_allclose(np.concatenate(alone, axis=1), full, rtol=1e-13)


def record_loss(model, guide, phi, noise, batch, b):
    """The record's own loss, written as a plain loop over draws."""
    one = RecordBatch(x=batch.x[b : b + 1], y=batch.y[b : b + 1])
    total = 0.0
    for draw in noise:
        theta = guide.draw(phi, draw)
        total -= float(model.log_likelihood(theta[None, :], one)[0])
    return total / len(noise)


def test_autograd_path_equals_plain_loop_and_finite_differences(model, guide):
    batch = records()
    phi, noise = guide_point(guide)
    beta = np.ones(12)
    rows = autograd_route(model, guide=guide, phi=phi, standard_normal=noise, preconditioner=beta)(batch).rows
    assert rows.shape == (13, 12)
    h = 1e-5
    for b in range(13):
        alone = RecordBatch(x=batch.x[b : b + 1], y=batch.y[b : b + 1])
        single = autograd_route(model, guide=guide, phi=phi, standard_normal=noise, preconditioner=beta)(
            alone
        ).rows[0]
        np.testing.assert_allclose(rows[b], single, rtol=1e-10, atol=1e-13)
        for d in range(12):
            up, down = phi.copy(), phi.copy()
            up[d] += h
            down[d] -= h
            slope = (
                record_loss(model, guide, up, noise, batch, b)
                - record_loss(model, guide, down, noise, batch, b)
            ) / (2 * h)
            np.testing.assert_allclose(rows[b, d], slope, rtol=2e-6, atol=2e-9)


def test_fast_path_equals_autograd_path(model, guide):
    batch = records(num_records=50)
    phi, noise = guide_point(guide)
    rng = np.random.default_rng(7)
    beta = np.exp(rng.normal(size=12))
    weights = rng.random(50)
    slow = autograd_route(model, guide=guide, phi=phi, standard_normal=noise, preconditioner=beta)(batch)
    fast = gradient_function(model, guide=guide, phi=phi, standard_normal=noise, preconditioner=beta)(batch)
    if isinstance(model, LinearModel):
        assert type(fast) is not type(slow)
    for name in ("weighted_sum", "weighted_rows"):
        np.testing.assert_allclose(
            getattr(fast, name)(weights),
            getattr(slow, name)(weights),
            rtol=1e-10,
            atol=1e-12,
        )
    np.testing.assert_allclose(fast.squared_norms(), slow.squared_norms(), rtol=1e-10)


def test_weighted_sum_is_the_sum_of_weighted_rows(model, guide):
    batch = records(num_records=20)
    phi, noise = guide_point(guide)
    weights, beta = np.linspace(0, 1, 20), np.linspace(0.5, 2, 12)
    gradients = gradient_function(model, guide=guide, phi=phi, standard_normal=noise, preconditioner=beta)(
        batch
    )
    rows = gradients.weighted_rows(weights)
    np.testing.assert_allclose(rows.sum(axis=0), gradients.weighted_sum(weights), rtol=1e-12, atol=1e-12)


def test_score_has_mean_zero_under_the_model():
    # Exact: sum over the two outcomes of p(y) * d log p(y) / d theta is zero at every theta.
    model = EXAMPLES["logistic_regression"]
    eta = np.linspace(-30, 30, 41)
    p = model.predict_mean(eta[:, None], np.ones((1, 1)))[:, 0]
    mean = p * model.score(eta[None], np.ones(41))[0] + (1 - p) * model.score(eta[None], np.zeros(41))[0]
    np.testing.assert_allclose(mean, 0.0, atol=1e-15)


def test_simulate_follows_the_broadcasting_of_the_likelihood(model):
    if not isinstance(model, SimulatingModel):
        pytest.skip("draws no outcomes")
    x = records().x
    rng = np.random.default_rng(0)
    for shape, expected in (((6,), (13,)), ((4, 1, 6), (4, 13)), ((13, 6), (13,)), ((4, 13, 6), (4, 13))):
        theta = np.random.default_rng(1).normal(size=shape)
        y = model.simulate(theta, x, rng=rng)
        assert y.shape == expected
        assert y.dtype == np.float64
        assert np.shape(model.log_likelihood(theta, RecordBatch(x=x, y=y))) == expected
        again = [model.simulate(theta, x, rng=np.random.default_rng(5)) for _ in range(2)]
        np.testing.assert_array_equal(*again)


def test_simulate_and_likelihood_are_one_distribution(model):
    # If y is drawn from p(y | theta), the score has mean zero and second moment minus the mean Hessian.
    # 40,000 draws; z-scores of 6 + 21 figures, so that 4.5 gives a false alarm in about one of 5,000 seeds.
    if not isinstance(model, SimulatingModel):
        pytest.skip("draws no outcomes")
    from autograd import elementwise_grad, hessian

    rng = np.random.default_rng(9)
    num = 40_000
    theta = 0.7 * rng.normal(size=6)
    x = rng.normal(size=(num, 6))
    batch = RecordBatch(x=x, y=model.simulate(theta, x, rng=rng))
    tiled = np.repeat(theta[None], num, axis=0)
    scores = elementwise_grad(lambda value: model.log_likelihood(value, batch))(tiled)
    standard_error = scores.std(axis=0) / np.sqrt(num)
    assert (np.abs(scores.mean(axis=0)) < 4.5 * standard_error).all()
    products = scores[:, :, None] * scores[:, None, :]
    curvature = -hessian(lambda value: model.log_likelihood(value[None, :], batch).sum())(theta) / num
    distance = (products.mean(axis=0) - curvature) / (products.std(axis=0) / np.sqrt(num))
    assert np.abs(distance).max() < 4.5
    # Outcomes of another theta are told apart.
    other = RecordBatch(x=x, y=model.simulate(theta + 0.1, x, rng=rng))
    shifted = elementwise_grad(lambda value: model.log_likelihood(value, other))(tiled)
    assert (np.abs(shifted.mean(axis=0)) > 4.5 * standard_error).any()


def test_prior_gradient_equals_autodiff(model):
    from autograd import grad

    theta = np.random.default_rng(4).normal(size=(5, 6))
    expected = grad(lambda value: model.log_prior(value, None).sum())(theta)
    np.testing.assert_allclose(prior_score(model, theta, design=None), expected, rtol=1e-12)
    hidden = type("Hidden", (type(model),), {"log_prior_gradient": None})(**settings_of(model))
    np.testing.assert_array_equal(prior_score(hidden, theta, design=None), expected)


def settings_of(model):
    return {name: value for name, value in model.to_dict().items() if name != "kind"}


def test_prior_density_matches_scipy():
    from scipy import stats

    theta = np.random.default_rng(0).normal(size=(3, 4))
    model = LogisticRegression(outcome="y", prior_sd=2.5)
    expected = stats.norm(0, 2.5).logpdf(theta).sum(axis=-1)
    np.testing.assert_allclose(model.log_prior(theta, None), expected, rtol=1e-13)


def test_extreme_logits_have_finite_gradients(guide):
    # The gradient saturates at 0 or 1 times x; nothing overflows.
    model = EXAMPLES["logistic_regression"]
    batch = RecordBatch(x=np.array([[1000.0], [-1000.0], [1000.0]]), y=np.array([0.0, 0.0, 1.0]))
    phi, noise, beta = np.array([1.0, -20.0]), np.zeros((2, 1)), np.ones(2)
    point = {"guide": guide, "phi": phi, "standard_normal": noise, "preconditioner": beta}
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        slow = autograd_route(model, **point)(batch).rows
        fast = gradient_function(model, **point)(batch)
    rows = fast.weighted_rows(np.ones(3))
    np.testing.assert_allclose(slow[:, 0], [1000.0, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(rows, slow, atol=1e-12)


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "1", None, True])
def test_prior_sd_must_be_positive(value):
    with pytest.raises(ArgumentError, match="prior_sd"):
        LogisticRegression(outcome="y", prior_sd=value)


def test_outcome_must_be_binary_and_known(schema):
    with pytest.raises(SchemaError, match='"age" must be a binary column'):
        LogisticRegression(outcome="age").design(schema)
    with pytest.raises((SchemaError, ArgumentError), match="income"):
        LogisticRegression(outcome="income").design(schema)


def test_predictors_given_as_one_string_are_refused():
    with pytest.raises(ArgumentError, match="list of column names"):
        LogisticRegression(outcome="y", predictors="age")


def test_unknown_model_description_is_refused():
    with pytest.raises(ArgumentError, match="logistic_regression"):
        model_from_dict({"kind": "linear"})
    with pytest.raises(ArgumentError, match="exactly the settings"):
        model_from_dict({"kind": "logistic_regression", "outcome": "y"})
