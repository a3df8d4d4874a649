"""The conjugate models against scipy, autodiff, finite differences and their exact posteriors."""

import dataclasses
import itertools
import json

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
from autograd import elementwise_grad, grad, hessian, jacobian
from conjugate_cases import EXAMPLES, SCHEMA
from scipy import integrate, optimize, stats

import nadpvi as na
from nadpvi.errors import ArgumentError, SchemaError
from nadpvi.guides import MeanField
from nadpvi.models.base import ExponentialFamily, RecordBatch, SimulatingModel
from nadpvi.models.bernoulli_beta import BernoulliBeta
from nadpvi.models.categorical_dirichlet import CategoricalDirichlet
from nadpvi.models.exponential_family import draw_log_gamma, log_gamma_moments
from nadpvi.models.exponential_gamma import ExponentialGamma
from nadpvi.models.normal import Normal
from nadpvi.models.parameters import constrain, log_jacobian
from nadpvi.models.poisson_gamma import PoissonGamma

# Thetas of ordinary size, at which outcomes are of ordinary size, too.
THETA = {
    "exponential_gamma": np.array([0.7]),
    "bernoulli_beta": np.array([-0.8]),
    "categorical_dirichlet": np.array([0.6, -0.9, 0.4]),
    "poisson_gamma": np.array([1.1]),
    "normal": np.array([2.3, 0.6]),
}
OUTCOMES = {
    "exponential_gamma": [0.0, 1e-9, 0.3, 4.0, 50.0],
    "bernoulli_beta": [0.0, 1.0, 1.0],
    "categorical_dirichlet": [0.0, 1.0, 2.0, 3.0, 3.0],
    "poisson_gamma": [0.0, 1.0, 2.0, 7.0, 40.0],
    "normal": [-20.0, 0.0, 1.5, 2.0, 30.0],
}


@pytest.fixture(params=sorted(EXAMPLES))
def kind(request):
    return request.param


@pytest.fixture
def model(kind):
    return EXAMPLES[kind]


@pytest.fixture
def design(model):
    return model.design(SCHEMA)


@pytest.fixture
def batch(kind):
    y = np.array(OUTCOMES[kind])
    return RecordBatch(x=np.empty((len(y), 0)), y=y)


def thetas(kind, *shape, seed=0):
    """Return thetas around the example's, shape (*shape, K)."""
    centre = THETA[kind]
    return centre + 0.5 * np.random.default_rng(seed).normal(size=(*shape, len(centre)))


def scipy_outcome(kind, theta):
    """Return the distribution of y at one theta, by scipy and the constrained parameters."""
    model = EXAMPLES[kind]
    value = constrain(model.parameters(model.design(SCHEMA)), theta)
    if kind == "exponential_gamma":
        return stats.expon(scale=1 / value["rate"])
    if kind == "bernoulli_beta":
        return stats.bernoulli(value["probability"])
    if kind == "categorical_dirichlet":
        return stats.rv_discrete(values=(np.arange(4), value["probabilities"]))
    if kind == "poisson_gamma":
        return stats.poisson(value["rate"])
    return stats.norm(value["mean"], np.sqrt(value["variance"]))


def scipy_prior(model, value):
    """Return the prior log density of the constrained parameters."""
    if isinstance(model, ExponentialGamma | PoissonGamma):
        return stats.gamma(model.prior_shape, scale=1 / model.prior_rate).logpdf(value["rate"])
    if isinstance(model, BernoulliBeta):
        return stats.beta(model.prior_alpha, model.prior_beta).logpdf(value["probability"])
    if isinstance(model, CategoricalDirichlet):
        return stats.dirichlet(model.concentration).logpdf(value["probabilities"])
    variance = stats.invgamma(model.prior_shape, scale=model.prior_scale).logpdf(value["variance"])
    sd = np.sqrt(value["variance"] / model.prior_precision_factor)
    return variance + stats.norm(model.prior_mean, sd).logpdf(value["mean"])


def updated(model, y):
    """Return the model whose prior is the conjugate posterior after outcomes `y`, by the textbook."""
    num, total = len(y), y.sum()
    if isinstance(model, ExponentialGamma):
        change = {"prior_shape": model.prior_shape + num, "prior_rate": model.prior_rate + total}
    elif isinstance(model, PoissonGamma):
        change = {"prior_shape": model.prior_shape + total, "prior_rate": model.prior_rate + num}
    elif isinstance(model, BernoulliBeta):
        change = {"prior_alpha": model.prior_alpha + total, "prior_beta": model.prior_beta + num - total}
    elif isinstance(model, CategoricalDirichlet):
        counts = np.bincount(y.astype(int), minlength=4)
        change = {"concentration": [a + n for a, n in zip(model.concentration, counts, strict=True)]}
    else:
        factor = model.prior_precision_factor
        shift = y.mean() - model.prior_mean
        change = {
            "prior_mean": (factor * model.prior_mean + total) / (factor + num),
            "prior_precision_factor": factor + num,
            "prior_shape": model.prior_shape + num / 2,
            "prior_scale": model.prior_scale
            + 0.5 * ((y - y.mean()) ** 2).sum()
            + 0.5 * factor * num / (factor + num) * shift**2,
        }
    return dataclasses.replace(model, **change)


def test_follows_the_protocols(model, design):
    assert isinstance(model, ExponentialFamily)
    assert isinstance(model, SimulatingModel)
    assert design.num_features == 0
    assert type(model)(**{k: v for k, v in model.to_dict().items() if k != "kind"}) == model
    assert json.loads(json.dumps(model.to_dict())) == model.to_dict()
    assert model.to_dict()["kind"] == model.kind


def test_prior_is_scipys_with_the_jacobian(kind, model, design):
    theta = thetas(kind, 6)
    parameters = model.parameters(design)
    values = constrain(parameters, theta)
    for i, one in enumerate(theta):
        value = {name: block[i] for name, block in values.items()}
        expected = scipy_prior(model, value) + log_jacobian(parameters, one)
        np.testing.assert_allclose(model.log_prior(one, design), expected, rtol=1e-11)
    np.testing.assert_allclose(
        model.log_prior(theta.reshape(2, 3, -1), design).ravel(), model.log_prior(theta, design)
    )


def prior_grid(model, design):
    """Return nodes (M, K) of a trapezoid rule over the whole prior, K <= 3, and the volume of its cells."""
    mean, sd = model.prior_moments(design)
    axes = [
        m + s * np.linspace(-14, 14, 561 if len(mean) < 3 else 141) for m, s in zip(mean, sd, strict=True)
    ]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(mean))
    return nodes, np.prod([axis[1] - axis[0] for axis in axes])


def test_prior_integrates_to_one_and_has_the_stated_moments(kind, model, design):
    # The rule is exact to rounding for smooth densities; what remains is the tail outside 14 sd. The
    # normal's mean has a t prior, heavy-tailed: 60 degrees of freedom bring its tail within the box.
    if kind == "normal":
        model = dataclasses.replace(model, prior_shape=30.0)
    nodes, cell = prior_grid(model, design)
    density = np.exp(model.log_prior(nodes, design)) * cell
    np.testing.assert_allclose(density.sum(), 1.0, rtol=1e-7)
    mean, sd = model.prior_moments(design)
    np.testing.assert_allclose(density @ nodes, mean, atol=1e-7)
    np.testing.assert_allclose(np.sqrt(density @ (nodes - mean) ** 2), sd, rtol=1e-6)


def test_prior_draws_have_the_stated_moments(kind, model, design):
    # 40,000 draws; 28 z-scores over the five models: 4.5 gives a false alarm in one seed of 5,000.
    if kind == "normal":
        model = dataclasses.replace(model, prior_shape=30.0)
    num = 40_000
    draws = model.draw_prior(design, num_draws=num, rng=np.random.default_rng(11))
    mean, sd = model.prior_moments(design)
    assert draws.shape == (num, len(mean))
    z = (draws - mean) / sd
    assert (np.abs(z.mean(axis=0)) * np.sqrt(num) < 4.5).all()
    assert (np.abs((z**2).mean(axis=0) - 1) < 4.5 * (z**2).std(axis=0) / np.sqrt(num)).all()
    # Coordinates are uncorrelated a priori, the normal's because its mean is symmetric whatever the variance.
    for i, j in itertools.combinations(range(len(mean)), 2):
        assert abs((z[:, i] * z[:, j]).mean()) * np.sqrt(num) < 4.5
    # The score of the right density has mean zero, too.
    score = model.log_prior_gradient(draws, design)
    assert (np.abs(score.mean(axis=0)) < 4.5 * score.std(axis=0) / np.sqrt(num)).all()


def test_likelihood_is_scipys(kind, model, batch):
    for theta in thetas(kind, 4):
        outcome = scipy_outcome(kind, theta)
        density = outcome.logpmf if hasattr(outcome, "logpmf") else outcome.logpdf
        np.testing.assert_allclose(model.log_likelihood(theta, batch), density(batch.y), rtol=1e-11)


def test_likelihood_keeps_records_and_draws_apart(kind, model, batch):
    theta = thetas(kind, 5, 1)
    full = model.log_likelihood(theta, batch)
    assert full.shape == (5, len(batch.y))
    for s, b in itertools.product(range(5), range(len(batch.y))):
        one = RecordBatch(batch.x[b : b + 1], batch.y[b : b + 1])
        np.testing.assert_allclose(model.log_likelihood(theta[s, 0], one), full[s, b : b + 1], rtol=1e-13)


def test_natural_gradient_equals_autodiff(kind, model):
    theta = thetas(kind, 3, 2, 4)
    num_params = theta.shape[-1]

    def stacked(value):
        return anp.concatenate([model.natural(value), anp.array([-model.log_partition(value)])])

    fast = model.natural_gradient(theta)
    assert fast.shape[:-2] == theta.shape[:-1]
    for index in np.ndindex(*theta.shape[:-1]):
        expected = jacobian(stacked)(theta[index])
        np.testing.assert_allclose(fast[index], expected, rtol=1e-11, atol=1e-14)
    np.testing.assert_array_equal(model.natural_gradient(theta[0, 0, 0]), fast[0, 0, 0])
    y = np.array(OUTCOMES[kind])
    statistics = model.statistics(RecordBatch(x=np.empty((len(y), 0)), y=y), num_params=num_params)
    assert statistics.shape == (len(y), fast.shape[-2] - 1)


def fast_rows(model, theta, batch):
    """Return each record's gradient in theta by the statistics, shape (B, K)."""
    statistics = model.statistics(batch, num_params=len(theta))
    return np.hstack([statistics, np.ones((len(batch.y), 1))]) @ model.natural_gradient(theta)


def test_fast_gradient_equals_autodiff_and_finite_differences(kind, model, batch):
    step = 1e-5
    for theta in thetas(kind, 4):
        fast = fast_rows(model, theta, batch)
        tiled = np.repeat(theta[None], len(batch.y), axis=0)
        slow = elementwise_grad(lambda value: model.log_likelihood(value, batch))(tiled)
        np.testing.assert_allclose(fast, slow, rtol=1e-10, atol=1e-12)
        for k in range(len(theta)):
            # Two step sizes and Richardson's extrapolation leave rounding alone: 1e-16 * values / step.
            slopes = []
            for h in (step * 10, step * 20):
                shift = h * np.eye(len(theta))[k]
                up, down = (model.log_likelihood(theta + s * shift, batch) for s in (1, -1))
                slopes.append((up - down) / (2 * h))
            slope = (4 * slopes[0] - slopes[1]) / 3
            np.testing.assert_allclose(fast[:, k], slope, rtol=1e-8, atol=1e-8)


def test_prior_gradient_equals_autodiff(kind, model, design):
    theta = thetas(kind, 3, 5)
    expected = grad(lambda value: model.log_prior(value, design).sum())(theta)
    np.testing.assert_allclose(model.log_prior_gradient(theta, design), expected, rtol=1e-11, atol=1e-12)


def test_prior_and_likelihood_are_conjugate(kind, model, design):
    # log prior + log likelihood - log posterior is the log evidence, whatever theta.
    rng = np.random.default_rng(2)
    y = model.simulate(THETA[kind], np.empty((30, 0)), rng=rng)
    batch = RecordBatch(x=np.empty((30, 0)), y=y)
    theta = thetas(kind, 7)
    joint = model.log_prior(theta, design) + model.log_likelihood(theta[:, None], batch).sum(axis=1)
    evidence = joint - updated(model, y).log_prior(theta, design)
    np.testing.assert_allclose(evidence, evidence[0], rtol=1e-11)


@pytest.mark.parametrize("size", [500.0, 1000.0])
def test_extreme_theta_keeps_gradients_finite(kind, model, design, batch, size):
    num_params = len(THETA[kind])
    corners = [np.array(signs) * size for signs in itertools.product((1.0, -1.0, 0.0), repeat=num_params)]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for theta in corners:
            fast = fast_rows(model, theta, batch)
            tiled = np.repeat(theta[None], len(batch.y), axis=0)
            slow = elementwise_grad(lambda value: model.log_likelihood(value, batch))(tiled)
            assert np.isfinite(model.log_likelihood(tiled, batch)).all()
            assert np.isfinite(fast).all()
            scale = np.abs(model.natural_gradient(theta)).max() * 1e3
            np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-15 * max(scale, 1.0))
            assert np.isfinite(model.log_prior(theta, design))
            assert np.isfinite(model.log_prior_gradient(theta, design)).all()
            assert np.isfinite(model.predict_mean(theta[None], batch.x)).all()
            assert np.isfinite(model.simulate(theta, batch.x, rng=np.random.default_rng(0))).all()


def test_bounds_hold_and_are_reached(kind, model, design, batch):
    bound = model.gradient_bound(design)
    if kind not in ("bernoulli_beta", "categorical_dirichlet"):
        assert bound is None
        return
    num_params = len(THETA[kind])
    largest = max(
        np.linalg.norm(fast_rows(model, np.array(corner), batch), axis=1).max()
        for corner in itertools.product((-60.0, -1.0, 0.0, 2.0, 60.0), repeat=num_params)
    )
    assert bound * (1 - 1e-9) <= largest <= bound * (1 + 1e-12)


def test_simulate_follows_the_broadcasting_of_the_likelihood(kind, model):
    x = np.empty((13, 0))
    for lead, expected in (((), (13,)), ((4, 1), (4, 13)), ((13,), (13,)), ((4, 13), (4, 13))):
        theta = thetas(kind, *lead)
        y, again = (model.simulate(theta, x, rng=np.random.default_rng(5)) for _ in range(2))
        assert y.shape == expected
        assert y.dtype == np.float64
        assert np.shape(model.log_likelihood(theta, RecordBatch(x=x, y=y))) == expected
        np.testing.assert_array_equal(y, again)


def test_simulate_and_likelihood_are_one_distribution(kind, model):
    # If y is drawn from p(y | theta), the score has mean zero and second moment minus the mean Hessian.
    # 200,000 draws; 8 + 12 z-scores over the five models: 4.5 gives a false alarm in one seed of 7,000.
    num, theta = 200_000, THETA[kind]
    rng = np.random.default_rng(9)
    x = np.empty((num, 0))
    batch = RecordBatch(x=x, y=model.simulate(theta, x, rng=rng))
    scores = fast_rows(model, theta, batch)
    standard_error = scores.std(axis=0) / np.sqrt(num)
    assert (np.abs(scores.mean(axis=0)) < 4.5 * standard_error).all()
    products = scores[:, :, None] * scores[:, None, :]
    curvature = -hessian(lambda value: model.log_likelihood(value[None], batch).sum())(theta) / num
    error = products.std(axis=0) / np.sqrt(num)
    # Entries whose products do not vary at all must be equal.
    assert (np.abs(products.mean(axis=0) - curvature) < 4.5 * error + 1e-12).all()
    # Outcomes of another theta are told apart.
    other = RecordBatch(x=x, y=model.simulate(theta + 0.1, x, rng=rng))
    assert (np.abs(fast_rows(model, theta, other).mean(axis=0)) > 4.5 * standard_error).any()


def test_predicted_mean_is_scipys(kind, model):
    theta = thetas(kind, 3)
    predicted = model.predict_mean(theta, np.empty((2, 0)))
    for m, one in enumerate(theta):
        outcome = scipy_outcome(kind, one)
        expected = outcome.pmf(np.arange(4)) if kind == "categorical_dirichlet" else outcome.mean()
        for n in range(2):
            np.testing.assert_allclose(predicted[m, n], expected, rtol=1e-12)


def mean_field_optimum(model, design, batch):
    """Return mean and sd of the Gaussian that maximises the ELBO, its expectation by 24-point quadrature."""
    num_params = len(model.prior_moments(design)[0])
    points, weights = np.polynomial.hermite_e.hermegauss(24 if num_params < 3 else 10)
    nodes = np.array(list(itertools.product(points, repeat=num_params)))
    mass = np.prod(list(itertools.product(weights / weights.sum(), repeat=num_params)), axis=1)
    distinct, counts = np.unique(batch.y, return_counts=True)
    short = RecordBatch(x=np.empty((len(distinct), 0)), y=distinct)

    def negative_elbo(phi):
        theta = phi[:num_params] + anp.exp(phi[num_params:]) * nodes
        record_terms = anp.dot(model.log_likelihood(theta[:, None], short), counts * 1.0)
        return -anp.dot(mass, model.log_prior(theta, design) + record_terms) - anp.sum(phi[num_params:])

    mean, _ = model.prior_moments(design)
    start = np.concatenate([mean, np.full(num_params, -3.0)])
    found = optimize.minimize(negative_elbo, start, jac=grad(negative_elbo), options={"gtol": 1e-5})
    assert np.abs(found.jac).max() < 1e-2
    return found.x[:num_params], np.exp(found.x[num_params:])


def test_mean_field_optimum_matches_the_conjugate_posterior(kind, model, design):
    # 800 records. On the unconstrained scale each posterior is normal up to terms of order one over its
    # counts n, at least 60 here: a log gamma's mean is reached to 1/(12 n^2), its sd to the fraction 1/(4 n).
    # Sticks and (mean, log variance) are uncorrelated, so that independence costs no more than that.
    # Measured: 0.0001 posterior sds and 0.2 per cent at most.
    rng = np.random.default_rng(4)
    x = np.empty((800, 0))
    y = model.simulate(THETA[kind], x, rng=rng)
    mean, sd = mean_field_optimum(model, design, RecordBatch(x=x, y=y))
    exact_mean, exact_sd = updated(model, y).prior_moments(design)
    np.testing.assert_allclose((mean - exact_mean) / exact_sd, 0.0, atol=1e-3)
    np.testing.assert_allclose(sd / exact_sd, 1.0, atol=0.005)


def test_gamma_optimum_has_its_closed_form():
    # E_q[a theta - b exp(theta)] = a mu - b exp(mu + s^2 / 2): s = 1/sqrt(a) and mu = log(a / b) - s^2 / 2.
    model = EXAMPLES["exponential_gamma"]
    y = np.random.default_rng(1).exponential(size=20)
    batch = RecordBatch(x=np.empty((20, 0)), y=y)
    mean, sd = mean_field_optimum(model, model.design(SCHEMA), batch)
    shape, rate = model.prior_shape + 20, model.prior_rate + y.sum()
    np.testing.assert_allclose(sd, shape**-0.5, rtol=1e-6)
    np.testing.assert_allclose(mean, np.log(shape / rate) - 0.5 / shape, atol=1e-6)


def test_one_concentration_serves_every_level():
    short, long = (CategoricalDirichlet(outcome="blood", concentration=c) for c in (2, [2, 2, 2, 2]))
    design = short.design(SCHEMA)
    theta = thetas("categorical_dirichlet", 3)
    np.testing.assert_array_equal(short.log_prior(theta, design), long.log_prior(theta, design))
    np.testing.assert_array_equal(short.prior_moments(design), long.prior_moments(design))
    uniform = CategoricalDirichlet(outcome="heads")
    assert uniform.parameters(uniform.design(SCHEMA))[0].coords == (("no", "yes"),)


def test_two_levels_are_a_coin():
    # Stick breaking gives the first level the share, the coin counts the second: theta changes sign.
    coin = BernoulliBeta(outcome="heads", prior_alpha=3.0, prior_beta=2.0)
    die = CategoricalDirichlet(outcome="heads", concentration=[2.0, 3.0])
    y = np.array([0.0, 1.0, 1.0])
    batch = RecordBatch(x=np.empty((3, 0)), y=y)
    theta = np.linspace(-4, 4, 9)[:, None]
    design = die.design(SCHEMA)
    np.testing.assert_allclose(coin.log_prior(theta, None), die.log_prior(-theta, design), rtol=1e-12)
    np.testing.assert_allclose(
        coin.log_likelihood(theta[:, None], batch), die.log_likelihood(-theta[:, None], batch), rtol=1e-12
    )


def test_normal_keeps_its_digits_far_from_zero():
    # Statistics are centred on prior_mean. Raw squares of years near 2,000 would lose ten more digits.
    model = Normal(
        outcome="y", prior_mean=2000.0, prior_precision_factor=1.0, prior_shape=2.0, prior_scale=1.0
    )
    theta = np.array([2000.01, np.log(1e-4)])
    y = np.array([1999.99, 2000.02])
    batch = RecordBatch(x=np.empty((2, 0)), y=y)
    expected = stats.norm(2000.01, 0.01).logpdf(y)
    np.testing.assert_allclose(model.log_likelihood(theta, batch), expected, rtol=1e-9)
    residual = (y - theta[0]) / 1e-4
    np.testing.assert_allclose(fast_rows(model, theta, batch)[:, 0], residual, rtol=1e-9)


def test_log_gamma_draws_survive_tiny_shapes():
    # Gamma(0.001) variables are below the smallest float in half the draws. The logarithm has sd 1,000.
    draws = draw_log_gamma(1e-3, size=20_000, rng=np.random.default_rng(0))
    mean, sd = log_gamma_moments(1e-3)
    assert np.isfinite(draws).all()
    assert abs(draws.mean() - mean) < 4.5 * sd / np.sqrt(20_000)
    below, _ = integrate.quad(stats.gamma(0.5).pdf, 0, 0.2)
    larger = np.exp(draw_log_gamma(0.5, size=20_000, rng=np.random.default_rng(1)))
    assert abs((larger < 0.2).mean() - below) < 4.5 * np.sqrt(below * (1 - below) / 20_000)


POSITIVE = [
    (EXAMPLES[kind], name)
    for kind, names in (
        ("exponential_gamma", ("prior_shape", "prior_rate")),
        ("bernoulli_beta", ("prior_alpha", "prior_beta")),
        ("categorical_dirichlet", ("concentration",)),
        ("poisson_gamma", ("prior_shape", "prior_rate")),
        ("normal", ("prior_precision_factor", "prior_shape", "prior_scale")),
    )
    for name in names
]


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), "1", None, True])
@pytest.mark.parametrize(("model", "name"), POSITIVE, ids=lambda value: getattr(value, "kind", value))
def test_prior_settings_must_be_positive(model, name, value):
    with pytest.raises(ArgumentError, match=name):
        dataclasses.replace(model, **{name: value})


def test_settings_with_rules_of_their_own():
    with pytest.raises(ArgumentError, match="prior_mean"):
        dataclasses.replace(EXAMPLES["normal"], prior_mean=float("nan"))
    with pytest.raises(ArgumentError, match="prior_shape must be above 1"):
        dataclasses.replace(EXAMPLES["normal"], prior_shape=1.0)
    with pytest.raises(ArgumentError, match="concentration"):
        CategoricalDirichlet(outcome="blood", concentration=[1.0, -1.0])
    with pytest.raises(ArgumentError, match='each of the 4 levels of "blood"'):
        CategoricalDirichlet(outcome="blood", concentration=[1.0, 1.0]).design(SCHEMA)
    with pytest.raises(SchemaError, match='"height" must have lower = 0 or more'):
        ExponentialGamma(outcome="height", prior_shape=1.0, prior_rate=1.0).design(SCHEMA)


@pytest.mark.parametrize(
    ("kind", "wrong"), [(k, "heads" if k != "bernoulli_beta" else "wait") for k in EXAMPLES]
)
def test_outcomes_of_another_kind_are_refused(kind, wrong):
    if kind == "categorical_dirichlet":
        wrong = "visits"
    with pytest.raises(SchemaError, match=f'"{wrong}" must be a'):
        dataclasses.replace(EXAMPLES[kind], outcome=wrong).design(SCHEMA)
    with pytest.raises(ArgumentError, match="not in the schema"):
        dataclasses.replace(EXAMPLES[kind], outcome="absent").design(SCHEMA)


def as_table(model, y):
    """Return outcomes as a curator's table holds them: levels by name, counts whole."""
    column = SCHEMA[model.outcome]
    if column.kind in ("binary", "categorical"):
        return pd.DataFrame({model.outcome: np.array(column.levels, dtype=object)[y.astype(int)]})
    return pd.DataFrame({model.outcome: y.astype(int) if column.kind == "count" else y})


def test_a_run_without_noise_ends_at_the_conjugate_posterior(kind, model, design):
    # All records enter each step and none is clipped; only the ten draws of theta move the iterates. Averaged
    # over 400 steps, they are within 0.1 posterior sds, and the guide's sd is within 5 per cent.
    x = np.empty((1500, 0))
    y = np.clip(model.simulate(THETA[kind], x, rng=np.random.default_rng(4)), *design.outcome_bounds)
    mean, sd = updated(model, y).prior_moments(design)
    # The curvature is 1 / sd^2 in a location and about 2 in a scale: steps go 20 and 4 per cent of the way.
    step = 0.2 * float(sd.min() ** 2)
    release = na.release(
        model,
        as_table(model, y),
        schema=SCHEMA,
        privacy=na.NonPrivate(),
        config=na.DPVIConfig(
            num_steps=700,
            sampling_rate=1.0,
            clip_norm=1e6,
            preconditioner_u=0.02 / step,
            learning_rate=step,
        ),
        insecure_seed=1,
    )
    window = release.phi[300:]
    locations = window[:, : len(mean)].mean(axis=0)
    scales = MeanField().standard_deviation(window).mean(axis=0)
    np.testing.assert_allclose((locations - mean) / sd, 0.0, atol=0.1)
    np.testing.assert_allclose(scales / sd, 1.0, atol=0.05)
