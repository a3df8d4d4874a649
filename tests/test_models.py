"""Contract of every registered model: one list, the same demands on each."""

import json

import numpy as np
import pytest
from autograd import elementwise_grad, grad, hessian
from scipy import stats

from nadpvi import ArgumentError, SchemaError
from nadpvi.description import ModelDescription
from nadpvi.guides import MeanField
from nadpvi.made_up import made_up_records, prior_draws
from nadpvi.models import (
    MODELS,
    BernoulliBeta,
    BinaryRegression,
    CategoricalDirichlet,
    ExponentialGamma,
    LinearRegression,
    LogisticRegression,
    MultinomialLogisticRegression,
    NegativeBinomialRegression,
    Normal,
    PoissonGamma,
    PoissonRegression,
    RecordBatch,
    model_from_dict,
)
from nadpvi.models.base import ExponentialFamily, LinearModel, Model, SimulatingModel
from nadpvi.models.parameters import unconstrained_labels
from nadpvi.private.dpsgd import clipped_sum
from nadpvi.private.dry_run import check_model
from nadpvi.private.gradients import autograd_route, gradient_function
from nadpvi.public_term import prior_score
from nadpvi.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "job": {"kind": "categorical", "levels": ["a", "b", "c"]},
            "sex": {"kind": "binary", "levels": ["f", "m"]},
            "ill": {"kind": "binary", "levels": ["no", "yes"]},
            "party": {"kind": "categorical", "levels": ["red", "blue", "green", "none"]},
            "visits": {"kind": "count", "upper": 40},
            "score": {"kind": "real", "lower": -20, "upper": 20},
            "days": {"kind": "real", "lower": 0, "upper": 30},
        }
    }
)
SHARED = {
    "predictors": ["age", "job", "sex"],
    "prior_mean": {"job": 0.2, "Intercept": -0.3},
    "prior_sd": {"age": 1.3, "job[b]": 0.5, "Intercept": 0.7},
}
# A new model joins by being listed, once for every choice that changes its mathematics.
EXAMPLES = {
    "bernoulli_beta": BernoulliBeta(outcome="ill", prior_alpha=3, prior_beta=2),
    "categorical_dirichlet": CategoricalDirichlet(outcome="party", concentration=[2, 3, 1.5, 4]),
    "exponential_gamma": ExponentialGamma(outcome="days", prior_shape=8, prior_rate=2),
    "poisson_gamma": PoissonGamma(outcome="visits", prior_shape=5, prior_rate=2),
    "normal": Normal(outcome="score", prior_mean=0.5, prior_precision_factor=2, prior_shape=6, prior_scale=7),
    "logistic": LogisticRegression(outcome="ill", **SHARED),
    "logistic_plain": LogisticRegression(outcome="ill", predictors=["age"], intercept=False, prior_sd=1.3),
    "probit": BinaryRegression(outcome="ill", **SHARED),
    "cloglog": BinaryRegression(outcome="ill", link="cloglog", **SHARED),
    "linear": LinearRegression(outcome="score", prior_shape=6, prior_scale=7, **SHARED),
    "poisson": PoissonRegression(outcome="visits", **SHARED),
    "negative_binomial": NegativeBinomialRegression(outcome="visits", prior_shape=4, prior_rate=2, **SHARED),
    "multinomial": MultinomialLogisticRegression(outcome="party", **SHARED),
    "multinomial_of_two": MultinomialLogisticRegression(outcome="ill", **SHARED),
}


def test_every_registered_model_has_an_example():
    assert {model.kind for model in EXAMPLES.values()} == set(MODELS)


@pytest.fixture(params=sorted(EXAMPLES))
def model(request):
    return EXAMPLES[request.param]


@pytest.fixture(params=["sd", "variance"])
def guide(request):
    return MeanField(scale=request.param)


def records_of(model, *, num_records=13, seed=0):
    """Return theta, shape (K,), and records that the model draws at it."""
    design, rng = model.design(SCHEMA), np.random.default_rng(seed)
    theta = prior_draws(model, design, num_draws=1, rng=rng)[0]
    return theta, made_up_records(model, design, theta=theta, num_records=num_records, rng=rng)


def guide_point(theta, samples=4, seed=1):
    """Return phi about theta and standard normal noise."""
    rng = np.random.default_rng(seed)
    phi = np.concatenate([theta, rng.normal(size=len(theta)) - 1.5])
    return phi, rng.standard_normal((samples, len(theta)))


def test_follows_the_protocol(model):
    assert isinstance(model, Model)
    assert isinstance(model, SimulatingModel)
    assert isinstance(model, LinearModel) != isinstance(model, ExponentialFamily)


def test_description_round_trip(model):
    description = ModelDescription(model=model, schema=SCHEMA, guide=MeanField())
    again = ModelDescription.from_dict(json.loads(json.dumps(description.to_dict())))
    assert again == description
    assert model_from_dict(json.loads(json.dumps(model.to_dict()))) == model


def test_moments_labels_and_draws_are_of_one_length(model):
    design = model.design(SCHEMA)
    mean, sd = model.prior_moments(design)
    num_params = len(unconstrained_labels(model.parameters(design)))
    assert mean.shape == sd.shape == (num_params,)
    draws = model.draw_prior(design, num_draws=3, rng=np.random.default_rng(0))
    assert draws.shape == (3, num_params)


def test_passes_the_dry_run(model, guide):
    check_model(ModelDescription(model=model, schema=SCHEMA, guide=guide), num_draws=10)


def test_log_likelihood_gives_one_number_a_record_and_keeps_records_apart(model):
    theta, batch = records_of(model)
    theta = theta + 0.3 * np.random.default_rng(3).normal(size=(5, 1, len(theta)))
    full = model.log_likelihood(theta, batch)
    assert full.shape == (5, 13)
    alone = [
        model.log_likelihood(theta, RecordBatch(batch.x[b : b + 1], batch.y[b : b + 1])) for b in range(13)
    ]
    np.testing.assert_allclose(np.concatenate(alone, axis=1), full, rtol=1e-12)


def test_likelihood_is_normalised_in_the_outcome(model):
    theta, batch = records_of(model)
    x = batch.x[:1]
    grid = {
        "binary": np.arange(2.0),
        "categorical": np.arange(len(getattr(model.design(SCHEMA), "outcome_levels", ()))) * 1.0
        if model.outcome_kind in ("binary", "categorical")
        else None,
        "count": np.arange(3000.0),
        "real": np.linspace(0.0 if model.outcome == "days" else -200.0, 200.0, 800_001),
    }[model.outcome_kind]
    every = RecordBatch(x=np.repeat(x, len(grid), axis=0), y=grid)
    density = np.exp(model.log_likelihood(theta[None], every))
    total = np.trapezoid(density, grid) if model.outcome_kind == "real" else density.sum()
    np.testing.assert_allclose(total, 1.0, rtol=1e-6)


def record_loss(model, guide, phi, noise, batch, b):
    """The record's own loss, written as a plain loop over draws."""
    one = RecordBatch(x=batch.x[b : b + 1], y=batch.y[b : b + 1])
    total = 0.0
    for draw in noise:
        theta = guide.draw(phi, draw)
        total -= float(model.log_likelihood(theta[None, :], one)[0])
    return total / len(noise)


def test_all_paths_equal_the_plain_loop_and_finite_differences(model, guide):
    theta, batch = records_of(model, num_records=4)
    phi, noise = guide_point(theta)
    point = {"guide": guide, "phi": phi, "standard_normal": noise, "preconditioner": np.ones(len(phi))}
    slow = autograd_route(model, **point)(batch)
    fast = gradient_function(model, **point)(batch)
    if isinstance(model, LinearModel):
        assert type(fast) is not type(slow)
    rows = fast.weighted_rows(np.ones(4))
    np.testing.assert_allclose(rows, slow.weighted_rows(np.ones(4)), rtol=1e-10, atol=1e-12)
    h = 2e-3
    for b in range(4):
        for d in range(len(phi)):
            step = h * (np.arange(len(phi)) == d)
            # Six points: the error is of order h^6.
            losses = [
                record_loss(model, guide, phi + k * step, noise, batch, b) for k in (-3, -2, -1, 1, 2, 3)
            ]
            slope = np.dot([-1, 9, -45, 45, -9, 1], losses) / (60 * h)
            scale = 1.0 + np.abs(losses).max()
            np.testing.assert_allclose(rows[b, d], slope, rtol=1e-8, atol=1e-8 * scale)


def test_fast_path_equals_autograd_path(model, guide):
    theta, batch = records_of(model, num_records=50)
    phi, noise = guide_point(theta)
    rng = np.random.default_rng(7)
    weights = rng.random(50)
    point = {
        "guide": guide,
        "phi": phi,
        "standard_normal": noise,
        "preconditioner": np.exp(rng.normal(size=len(phi))),
    }
    slow = autograd_route(model, **point)(batch)
    fast = gradient_function(model, **point)(batch)
    rows = slow.weighted_rows(weights)
    np.testing.assert_allclose(fast.weighted_rows(weights), rows, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fast.weighted_sum(weights), rows.sum(axis=0), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(fast.squared_norms(), slow.squared_norms(), rtol=1e-9)


def test_clipped_sums_equal_a_loop_over_records(model, guide):
    theta, batch = records_of(model, num_records=20)
    phi, noise = guide_point(theta)
    point = {"guide": guide, "phi": phi, "standard_normal": noise, "preconditioner": np.ones(len(phi))}
    gradients_of = gradient_function(model, **point)
    rows = autograd_route(model, **point)(batch).weighted_rows(np.ones(20))
    norms = np.linalg.norm(rows, axis=1)
    clip_norm = float(np.median(norms))
    expected = np.zeros(len(phi))
    for row, norm in zip(rows, norms, strict=True):
        expected += row * min(1.0, clip_norm / norm) if norm > 0 else 0.0
    found = clip_norm * clipped_sum(gradients_of(batch), clip_norm=clip_norm, grid_units=None)
    # The clip stays a few parts in 10^9 inside its norm.
    np.testing.assert_allclose(found, expected, rtol=0, atol=20 * 5e-9 * clip_norm)


def test_gradient_bound_holds(model):
    design = model.design(SCHEMA)
    bound = model.gradient_bound(design)
    rng = np.random.default_rng(2)
    theta = 3.0 * prior_draws(model, design, num_draws=2000, rng=rng)
    batch = made_up_records(model, design, theta=theta[::-1], num_records=2000, rng=rng)
    norms = np.linalg.norm(elementwise_grad(lambda value: model.log_likelihood(value, batch))(theta), axis=1)
    if bound is not None:
        assert norms.max() <= bound * (1 + 1e-12)
        assert norms.max() > 0.5 * bound
    else:
        # No bound is claimed where gradients do grow.
        assert norms.max() > 3.0


def test_simulate_follows_the_broadcasting_of_the_likelihood(model):
    theta, batch = records_of(model)
    x, rng, size = batch.x, np.random.default_rng(0), len(theta)
    for shape, expected in (
        ((size,), (13,)),
        ((4, 1, size), (4, 13)),
        ((13, size), (13,)),
        ((4, 13, size), (4, 13)),
    ):
        point = theta + 0.1 * np.random.default_rng(1).normal(size=shape)
        y = model.simulate(point, x, rng=rng)
        assert y.shape == expected
        assert y.dtype == np.float64
        assert np.shape(model.log_likelihood(point, RecordBatch(x=x, y=y))) == expected
        again = [model.simulate(point, x, rng=np.random.default_rng(5)) for _ in range(2)]
        np.testing.assert_array_equal(*again)


def test_simulate_and_likelihood_are_one_distribution(model):
    # If y is drawn from p(y | theta), the score has mean zero and second moment minus the mean Hessian.
    # 40,000 draws; at most 20 + 200 z-scores a model, so that 5 is a false alarm in one of 8,000 seeds.
    num = 40_000
    theta, batch = records_of(model, num_records=num, seed=4)
    rng = np.random.default_rng(9)
    batch = RecordBatch(x=batch.x, y=model.simulate(theta, batch.x, rng=rng))
    tiled = np.repeat(theta[None], num, axis=0)
    scores = elementwise_grad(lambda value: model.log_likelihood(value, batch))(tiled)
    standard_error = scores.std(axis=0) / np.sqrt(num)
    assert (np.abs(scores.mean(axis=0)) <= 5 * standard_error).all()
    products = scores[:, :, None] * scores[:, None, :]
    curvature = -hessian(lambda value: model.log_likelihood(value[None, :], batch).sum())(theta) / num
    error = products.std(axis=0) / np.sqrt(num)
    assert (np.abs(products.mean(axis=0) - curvature) <= 5 * error + 1e-12).all()
    # Outcomes of another theta are told apart.
    other = RecordBatch(x=batch.x, y=model.simulate(theta + 0.2, batch.x, rng=rng))
    shifted = elementwise_grad(lambda value: model.log_likelihood(value, other))(tiled)
    assert (np.abs(shifted.mean(axis=0)) > 5 * standard_error).any()


def test_predict_mean_is_the_mean_of_what_is_simulated(model):
    # 200,000 draws at 3 records; at most 12 z-scores, 4.5: a false alarm in one of 10,000 seeds.
    theta, batch = records_of(model, num_records=3)
    points = np.stack([theta, theta + 0.1])
    found = model.predict_mean(points, batch.x)
    y = model.simulate(
        np.broadcast_to(theta, (200_000, 1, len(theta))), batch.x, rng=np.random.default_rng(3)
    )
    if found.ndim == 3:
        assert found.shape == (2, 3, len(model.design(SCHEMA).outcome_levels))
        np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-12)
        y = (y[..., None] == np.arange(found.shape[-1])) * 1.0
    else:
        assert found.shape == (2, 3)
    assert np.abs(found[0] - found[1]).max() > 1e-6
    error = y.std(axis=0) / np.sqrt(len(y))
    assert (np.abs(found[0] - y.mean(axis=0)) < 4.5 * error).all()


def test_prior_gradient_equals_autodiff(model):
    design = model.design(SCHEMA)
    theta = prior_draws(model, design, num_draws=5, rng=np.random.default_rng(4))
    expected = grad(lambda value: model.log_prior(value, design).sum())(theta)
    np.testing.assert_allclose(prior_score(model, theta, design=design), expected, rtol=1e-11, atol=1e-12)
    stacked = np.broadcast_to(theta, (2, *theta.shape))
    np.testing.assert_array_equal(
        prior_score(model, stacked, design=design)[1], prior_score(model, theta, design=design)
    )


def test_prior_draws_have_the_stated_moments_and_density(model):
    # 100,000 draws of at most 18 coordinates: 36 z-scores and 324 of Stein's identity, 5: one in 5,000 seeds.
    design = model.design(SCHEMA)
    mean, sd = model.prior_moments(design)
    draws = prior_draws(model, design, num_draws=100_000, rng=np.random.default_rng(6))
    standardised = (draws - mean) / sd
    root = np.sqrt(len(draws))
    assert (np.abs(standardised.mean(axis=0)) < 5 / root).all()
    squares = standardised**2
    assert (np.abs(squares.mean(axis=0) - 1.0) < 5 * squares.std(axis=0) / root).all()
    # E[theta_j d log p / d theta_k] = -1(j = k) holds under the density itself only.
    products = standardised[:, :, None] * (prior_score(model, draws, design=design) * sd)[:, None, :]
    error = products.std(axis=0) / root
    assert (np.abs(products.mean(axis=0) + np.eye(len(mean))) < 5 * error).all()


# Importance sampling needs few dimensions; other densities are compared with SciPy's.
LOW_DIMENSIONAL = [name for name in sorted(EXAMPLES) if "predictors" not in EXAMPLES[name].to_dict()]


@pytest.mark.parametrize("name", [*LOW_DIMENSIONAL, "logistic_plain"])
def test_log_prior_is_normalised(name):
    # 200,000 draws from a t with 5 degrees of freedom, wider than each prior; 5 standard errors.
    model, rng, num = EXAMPLES[name], np.random.default_rng(8), 200_000
    design = model.design(SCHEMA)
    mean, sd = model.prior_moments(design)
    proposal = stats.t(5.0)
    standard = proposal.rvs(size=(num, len(mean)), random_state=rng)
    log_proposal = proposal.logpdf(standard).sum(axis=1) - np.log(1.3 * sd).sum()
    weights = np.exp(model.log_prior(mean + 1.3 * sd * standard, design) - log_proposal)
    assert abs(weights.mean() - 1.0) < 5 * weights.std() / np.sqrt(num)
    assert weights.std() / np.sqrt(num) < 0.02


@pytest.mark.parametrize("size", [30.0, 1000.0])
def test_extreme_parameters_have_finite_values_and_gradients(model, size, guide):
    theta, batch = records_of(model, num_records=40)
    rng = np.random.default_rng(0)
    points = size * rng.choice([-1.0, 0.0, 1.0], size=(60, len(theta)))
    design = model.design(SCHEMA)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        value = model.log_likelihood(points[:, None, :], batch)
        gradient = grad(lambda at: model.log_likelihood(at, batch).sum())(
            np.repeat(points[:, None, :], 40, axis=1)
        )
        for found in (
            value,
            gradient,
            model.log_prior(points, design),
            prior_score(model, points, design=design),
        ):
            assert np.isfinite(found).all()
        predicted = model.predict_mean(points, batch.x)
        assert np.isfinite(predicted).all()
        # The fast path at a narrow guide.
        for point in points:
            phi = np.concatenate([point, np.full(len(point), -20.0)])
            fast = gradient_function(
                model,
                guide=guide,
                phi=phi,
                standard_normal=np.zeros((2, len(point))),
                preconditioner=np.ones(len(phi)),
            )(batch)
            assert np.isfinite(fast.weighted_rows(np.ones(40))).all()


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "1", None, True])
def test_prior_sd_must_be_positive(value):
    with pytest.raises(ArgumentError, match="prior_sd"):
        LogisticRegression(outcome="y", prior_sd=value)


def test_outcome_must_be_of_the_models_kind_and_known(model):
    settings = {name: value for name, value in model.to_dict().items() if name != "kind"}
    wrong = "age" if model.outcome_kind != "real" else "sex"
    with pytest.raises(SchemaError, match=f'"{wrong}" must be a {model.outcome_kind} column'):
        type(model)(
            **settings | {"outcome": wrong} | ({"predictors": []} if "predictors" in settings else {})
        ).design(SCHEMA)
    with pytest.raises((SchemaError, ArgumentError), match="income"):
        type(model)(**settings | {"outcome": "income"}).design(SCHEMA)


def test_predictors_given_as_one_string_are_refused():
    with pytest.raises(ArgumentError, match="list of column names"):
        LogisticRegression(outcome="y", predictors="age")


def test_unknown_model_description_is_refused():
    with pytest.raises(ArgumentError, match="logistic_regression"):
        model_from_dict({"kind": "linear"})
    with pytest.raises(ArgumentError, match=r"needs .'outcome'. and knows"):
        model_from_dict({"kind": "logistic_regression", "prior_sd": 1.0})
    with pytest.raises(ArgumentError, match=r"needs .'outcome'. and knows"):
        model_from_dict({"kind": "logistic_regression", "outcome": "y", "prior_scale": 1.0})
    # What an earlier version, which did not know prior_mean, wrote.
    earlier = {"kind": "logistic_regression", "outcome": "y", "predictors": None, "prior_sd": 2.0}
    assert model_from_dict(earlier) == LogisticRegression(outcome="y", prior_sd=2.0)
