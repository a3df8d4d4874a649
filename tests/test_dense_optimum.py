"""phi_star and theta under the law that the model's own prior implies: density, draws, coverage."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from dense_cases import batch_sums, make_model, simulate_traces
from scipy import stats

import nadpvi as na
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.dense.density import evaluate
from nadpvi.gradient_model.dense.optimum import draw_optimum
from nadpvi.inference.dense_stan import make_dense_stan_data

RATE, NOISE, STEPS = 0.1, 40.0, 400
# Hardly anything is known along (1, -1, -1): an intercept and two levels.
RECORDS = np.array([[900.0, 500.0, 400.0], [500.0, 500.0, 0.0], [400.0, 0.0, 400.0]])
PRECISION = np.array([1.0, 4.0, 2.0])
CURVATURE = RECORDS + np.diag(PRECISION)


def one_trace(seed, *, phi_star):
    rng = np.random.default_rng(seed)
    phi, noisy = simulate_traces(
        lambda now: RATE * (now - phi_star) @ CURVATURE,
        phi_star=phi_star[None],
        num_steps=STEPS,
        noise_std=NOISE,
        learning_rate=0.003,
        rng=rng,
    )
    return batch_sums(phi, noisy)


def predictive_model(sums, *, mean=(0.3, -0.2, 0.1)):
    model = make_model(sums, centre=np.diag(RECORDS), rate=RATE, noise_std=NOISE)
    prior = dataclasses.replace(model.prior, precision=PRECISION)
    return dataclasses.replace(
        model,
        prior=prior,
        phi_star_prior_mean=np.array(mean),
        phi_star_prior_sd=PRECISION**-0.5,
        is_predictive=True,
    )


def law_of_optimum():
    """Return the covariance P^-1 - A^-1, by inverses."""
    return np.diag(1.0 / PRECISION) - np.linalg.inv(CURVATURE)


@pytest.fixture(scope="module")
def model():
    return predictive_model(one_trace(1, phi_star=np.array([0.5, -0.4, 0.2])))


def test_the_density_is_that_of_the_mean_gradient_with_the_optimum_integrated_out(model):
    """Held against the density with a normal prior of phi_star: they differ in the law of g_bar alone."""
    usual = dataclasses.replace(model, is_predictive=False)
    rng = np.random.default_rng(2)
    x = 0.5 * rng.standard_normal((4, model.size))
    variance = np.full((4, 3), NOISE**2)
    found = [evaluate(each, x, variance=variance).log_density for each in (model, usual)]
    curvature = model.coordinates.expand(x).records + np.diag(PRECISION)
    for index in range(4):
        b = RATE * curvature[index]
        mean = b @ (model.sums.phi_bar[0] - model.phi_star_prior_mean)
        noise = np.diag(variance[index] / model.sums.num_steps)
        laws = (np.diag(1.0 / PRECISION) - np.linalg.inv(curvature[index]), np.diag(1.0 / PRECISION))
        wanted = [
            stats.multivariate_normal.logpdf(model.sums.g_bar[0], mean, b @ law @ b + noise) for law in laws
        ]
        assert found[0][index] - found[1][index] == pytest.approx(wanted[0] - wanted[1], rel=1e-9, abs=1e-8)


def test_its_gradient_is_that_of_the_density(model):
    rng = np.random.default_rng(3)
    x = 0.5 * rng.standard_normal((1, model.size))
    variance = np.full((1, 3), NOISE**2)
    gradient = evaluate(model, x, variance=variance).gradient[0]
    step = 1e-6
    for place in range(model.size):
        ends = []
        for sign in (-1.0, 1.0):
            moved = x.copy()
            moved[0, place] += sign * step
            ends.append(evaluate(model, moved, variance=variance).log_density[0])
        assert gradient[place] == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-5, abs=1e-4)


def test_draws_have_the_conditional_moments(model):
    count, noise = 40_000, NOISE**2 / model.sums.num_steps
    many = dataclasses.replace(
        model,
        sums=dataclasses.replace(
            model.sums,
            **{
                name: np.repeat(getattr(model.sums, name), count, axis=0)
                for name in ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg")
            },
        ),
    )
    drawn = draw_optimum(
        np.random.default_rng(4),
        many,
        curvature=np.tile(CURVATURE, (count, 1, 1)),
        variance=np.full((count, 3), NOISE**2),
    )
    law, b = law_of_optimum(), RATE * CURVATURE
    covariance = b @ law @ b + noise * np.eye(3)
    gain = -law @ b @ np.linalg.inv(covariance)
    offset = model.sums.g_bar[0] - b @ (model.sums.phi_bar[0] - model.phi_star_prior_mean)
    mean = model.phi_star_prior_mean + gain @ offset
    spread = law + gain @ b @ law
    for values, wanted in ((drawn.phi_star, spread), (drawn.theta, spread + np.linalg.inv(CURVATURE))):
        sd = np.sqrt(np.diag(wanted))
        np.testing.assert_allclose(values.mean(axis=0), mean, atol=4.5 * sd.max() / np.sqrt(count))
        np.testing.assert_allclose(np.cov(values.T), wanted, atol=5 * sd.max() ** 2 * np.sqrt(2 / count))


def test_parameters_are_covered_where_a_mean_field_guide_about_the_optimum_leaves_out_most():
    """400 truths from the prior, seeds fixed: means of 1,200 squares have sds of 0.04 and above."""
    rng = np.random.default_rng(5)
    z, narrow = [], []
    for seed in range(400):
        phi_star = rng.multivariate_normal([0.3, -0.2, 0.1], law_of_optimum())
        theta = rng.multivariate_normal(phi_star, np.linalg.inv(CURVATURE))
        single = predictive_model(one_trace(100 + seed, phi_star=phi_star))
        copies = dataclasses.replace(
            single,
            sums=dataclasses.replace(
                single.sums,
                **{
                    name: np.repeat(getattr(single.sums, name), 200, axis=0)
                    for name in ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg")
                },
            ),
        )
        drawn = draw_optimum(
            rng, copies, curvature=np.tile(CURVATURE, (200, 1, 1)), variance=np.full((200, 3), NOISE**2)
        )
        z.append((theta - drawn.theta.mean(axis=0)) / drawn.theta.std(axis=0))
        mean_field = np.sqrt(drawn.phi_star.var(axis=0) + 1.0 / np.diag(CURVATURE))
        narrow.append((theta - drawn.phi_star.mean(axis=0)) / mean_field)
    assert np.mean(np.square(z)) == pytest.approx(1.0, abs=0.2)
    assert np.mean(np.square(narrow)) > 1.5


def test_another_prior_than_the_certain_one_is_refused(model):
    with pytest.raises(ArgumentError, match="precision"):
        dataclasses.replace(model, phi_star_prior_sd=np.ones(3))
    with pytest.raises(ArgumentError, match="normal prior"):
        make_dense_stan_data(model)


@pytest.mark.filterwarnings("ignore::nadpvi.errors.InferenceWarning")
def test_infer_uses_it_for_a_regression_with_the_model_s_prior():
    """Of an intercept and all levels nobody can know the sum's split: with N large it is the prior's."""
    schema = na.Schema.from_dict(
        {
            "columns": {
                "ward": {"kind": "categorical", "levels": ["a", "b"]},
                "well": {"kind": "binary", "levels": ["no", "yes"]},
            }
        }
    )
    rng = np.random.default_rng(6)
    table = pd.DataFrame({"ward": rng.choice(["a", "b"], 4000), "well": rng.choice(["no", "yes"], 4000)})
    release = na.release(
        na.models.LogisticRegression(outcome="well"),
        table,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=8.0, delta=1e-5),
        num_records=4000,
        insecure_seed=1,
    )
    posterior = na.infer(release, draws=400, warmup=400, chains=2, seed=1)
    theta = posterior.theta().reshape(-1, 3)
    # Prior sd 1 of each: along (1, -1, -1) / sqrt(3) the prior's sd is 1, and the data say nothing.
    flat = theta @ np.array([1.0, -1.0, -1.0]) / np.sqrt(3.0)
    assert flat.std() == pytest.approx(1.0, abs=0.15)
    assert (theta[:, 0] + theta[:, 1]).std() < 0.2
    shares = posterior.uncertainty_shares()
    assert shares["sd"].to_numpy() == pytest.approx(theta.std(axis=0), rel=0.1)
    assert (shares["share_data"] > 0.8).all()
