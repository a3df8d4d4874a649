"""The posterior without privacy: closed forms against the densities, and the methods against each other."""

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
from conjugate_cases import EXAMPLES, SCHEMA
from scipy import special, stats

import nadpvi as na
from nadpvi.baselines import non_private_posterior
from nadpvi.baselines.conjugate import draw_exact_posterior, has_exact_posterior, posterior_as_prior
from nadpvi.errors import ArgumentError
from nadpvi.models import BernoulliBeta, LinearRegression, LogisticRegression, RecordBatch

LEVELS = {"bernoulli_beta": ["no", "yes"], "categorical_dirichlet": ["0", "A", "B", "AB"]}


def outcomes_of(name, *, num_records=30, seed=3):
    seeds = na.replicate_seeds(seed, num_replicates=1)
    return na.simulate_tables(EXAMPLES[name], schema=SCHEMA, num_records=num_records, seeds=seeds).outcomes[0]


def table_of(name, outcomes):
    cells = [LEVELS[name][int(value)] for value in outcomes] if name in LEVELS else outcomes
    return pd.DataFrame({EXAMPLES[name].outcome: cells})


@pytest.mark.parametrize("num_records", [0, 1, 30])
@pytest.mark.parametrize("name", EXAMPLES)
def test_posterior_is_prior_times_likelihood(name, num_records):
    """Up to a constant, at twenty points of theta; with no record the prior itself."""
    model = EXAMPLES[name]
    design = model.design(SCHEMA)
    outcomes = outcomes_of(name)[:num_records]
    given = posterior_as_prior(model, outcomes, num_levels=len(LEVELS.get(name, ())))
    theta = model.draw_prior(design, num_draws=20, rng=np.random.default_rng(1))
    batch = RecordBatch(x=np.empty((num_records, 0)), y=outcomes)
    product = model.log_prior(theta, design) + model.log_likelihood(theta[:, None, :], batch).sum(axis=-1)
    constant = given.log_prior(theta, design) - product
    np.testing.assert_allclose(constant, constant[0], rtol=1e-9, atol=1e-9)
    if not num_records:
        assert given == model


def test_normal_far_from_its_prior_mean_does_not_cancel():
    """Around 1e8 with sd 1, sums of squares around the prior's mean would have lost the variance."""
    y = 1e8 + np.random.default_rng(0).standard_normal(1000)
    model = na.models.Normal(
        outcome="height", prior_mean=0.0, prior_precision_factor=1e-9, prior_shape=2.0, prior_scale=1.0
    )
    given = posterior_as_prior(model, y)
    # The prior's own pull: factor * N / (factor + N) * (1e8)^2 / 2.
    pull = 0.5 * 1e-9 * 1000 / (1e-9 + 1000) * y.mean() ** 2
    expected = 1.0 + 0.5 * ((y - y.mean()) ** 2).sum() + pull
    assert given.prior_scale == pytest.approx(expected, rel=1e-12)


class TestLinear:
    MODEL = LinearRegression(
        outcome="y",
        prior_mean={"a": 0.7},
        prior_sd={"a": 0.5, "Intercept": 3.0},
        prior_shape=5,
        prior_scale=2,
    )
    SCHEMA = na.Schema.from_dict(
        {
            "columns": {
                "a": {"kind": "real", "lower": 0, "upper": 1},
                "b": {"kind": "real", "lower": 0, "upper": 1},
                "y": {"kind": "real", "lower": -50, "upper": 50},
            }
        }
    )

    def records(self, count):
        rng = np.random.default_rng(2)
        x = np.column_stack([np.ones(count), rng.random((count, 2))])
        return x, x @ [1.0, -2.0, 0.5] + 0.4 * rng.standard_normal(count)

    def test_draws_have_the_density_prior_times_likelihood(self):
        """Their score has mean zero and covariance minus the mean Hessian, whatever the constant."""
        from autograd import elementwise_grad, hessian

        x, y = self.records(12)
        design = self.MODEL.design(self.SCHEMA)
        batch = RecordBatch(x=x, y=y)
        rng = np.random.default_rng(5)
        theta = draw_exact_posterior(self.MODEL, batch, design=design, num_draws=20_000, rng=rng)

        def log_density(value):
            likelihood = anp.sum(self.MODEL.log_likelihood(value[..., None, :], batch), axis=-1)
            return likelihood + self.MODEL.log_prior(value, design)

        score = elementwise_grad(log_density)(theta)
        error = score.std(axis=0) / np.sqrt(len(theta))
        assert (np.abs(score.mean(axis=0)) < 4.5 * error).all()
        curvature = -np.mean([hessian(log_density)(value) for value in theta[:200]], axis=0)
        np.testing.assert_allclose(np.cov(score.T), curvature, rtol=0.15, atol=0.05 * curvature.max())
        # And the identity fails for draws that are 10 % too wide.
        wide = theta.mean(axis=0) + 1.1 * (theta - theta.mean(axis=0))
        ratio = np.trace(np.cov(elementwise_grad(log_density)(wide).T)) / np.trace(np.cov(score.T))
        assert ratio > 1.15

    def test_moments_by_the_textbook(self):
        """Student's t for w, log inverse gamma for log s2, from plain inverses; 4.5 standard errors."""
        x, y = self.records(40)
        table = pd.DataFrame({"a": x[:, 1], "b": x[:, 2], "y": y})
        posterior = non_private_posterior(self.MODEL, table, schema=self.SCHEMA, draws=60_000, seed=1)
        assert posterior.settings["method"] == "non_private_exact"
        theta = posterior.theta()[0]
        precision = np.diag(1 / np.array([3.0, 0.5, 2.0]) ** 2)
        mean = np.array([0.0, 0.7, 0.0])
        total = x.T @ x + precision
        centre = np.linalg.inv(total) @ (x.T @ y + precision @ mean)
        shape = 5 + 20
        scale = 2 + 0.5 * (y @ y + mean @ precision @ mean - centre @ total @ centre)
        variance = scale / (shape - 1) * np.linalg.inv(total)
        error = np.sqrt(np.diag(variance) / len(theta))
        assert (np.abs(theta[:, :3].mean(axis=0) - centre) < 4.5 * error).all()
        np.testing.assert_allclose(np.cov(theta[:, :3].T), variance, rtol=0.06, atol=0.01 * variance.max())
        log_mean = np.log(scale) - special.digamma(shape)
        log_sd = np.sqrt(special.polygamma(1, shape))
        assert theta[:, 3].mean() == pytest.approx(log_mean, abs=4.5 * log_sd / np.sqrt(len(theta)))
        assert theta[:, 3].std() == pytest.approx(log_sd, rel=4.5 / np.sqrt(2 * len(theta)))

    def test_methods_agree(self):
        x, y = self.records(40)
        table = pd.DataFrame({"a": x[:, 1], "b": x[:, 2], "y": y})
        found = {
            method: non_private_posterior(
                self.MODEL, table, schema=self.SCHEMA, draws=4000, seed=2, method=method
            )
            for method in ("exact", "hmc", "laplace")
        }
        exact, hmc, laplace = (found[name].theta().reshape(-1, 4) for name in found)
        sd = exact.std(axis=0)
        assert (np.abs(hmc.mean(axis=0) - exact.mean(axis=0)) < 0.12 * sd).all()
        np.testing.assert_allclose(hmc.std(axis=0), sd, rtol=0.1)
        # The mode of log s2 lies below its mean.
        assert (np.abs(laplace.mean(axis=0) - exact.mean(axis=0)) < 0.5 * sd).all()


@pytest.mark.parametrize("name", EXAMPLES)
def test_draws_follow_the_closed_form(name):
    """Kolmogorov-Smirnov of one parameter's draws from a table; p above 1e-5."""
    model = EXAMPLES[name]
    outcomes = outcomes_of(name)
    posterior = non_private_posterior(model, table_of(name, outcomes), schema=SCHEMA, draws=5000, seed=4)
    assert posterior.settings["method"] == "non_private_exact"
    assert posterior.guarantee is None
    values = {key: value.to_numpy()[0] for key, value in posterior.groups["posterior"].data_vars.items()}
    total, count = outcomes.sum(), len(outcomes)
    if name == "bernoulli_beta":
        law, draws = stats.beta(10 + total, 4 + count - total), values["probability"]
    elif name == "categorical_dirichlet":
        law = stats.beta(3 + (outcomes == 1).sum(), 11 + (outcomes != 1).sum())
        draws = values["probabilities"][:, 1]
    elif name == "exponential_gamma":
        law, draws = stats.gamma(8 + count, scale=1 / (2 + total)), values["rate"]
    elif name == "poisson_gamma":
        law, draws = stats.gamma(3 + total, scale=1 / (1.5 + count)), values["rate"]
    else:
        away = outcomes.mean() - 1.5
        scale = (
            5 + 0.5 * ((outcomes - outcomes.mean()) ** 2).sum() + 0.5 * 0.4 * count / (0.4 + count) * away**2
        )
        law, draws = stats.invgamma(3 + count / 2, scale=scale), values["variance"]
    assert stats.kstest(draws, law.cdf).pvalue > 1e-5
    assert stats.kstest(draws * 1.1, law.cdf).pvalue < 1e-5


def test_where_laplace_is_poor_the_chains_are_not():
    """Two heads in two tosses, uniform prior: Beta(3, 1), whose logit is skew."""
    model = BernoulliBeta(outcome="heads")
    table = pd.DataFrame({"heads": ["yes", "yes"]})
    mean = special.digamma(3) - special.digamma(1)
    sd = np.sqrt(special.polygamma(1, 3) + special.polygamma(1, 1))
    found = {
        method: non_private_posterior(model, table, schema=SCHEMA, draws=8000, seed=5, method=method).theta()
        for method in ("auto", "hmc", "laplace")
    }
    for method in ("auto", "hmc"):
        assert found[method].mean() == pytest.approx(mean, abs=0.12 * sd)
        assert found[method].std() == pytest.approx(sd, rel=0.1)
    assert abs(found["laplace"].mean() - mean) > 0.25 * sd
    assert found["hmc"].shape == (32, 250, 1)


class Loaded(BernoulliBeta):
    """A subclass, whose prior may be anything."""


def test_only_models_that_are_known_are_exact():
    assert all(has_exact_posterior(model) for model in EXAMPLES.values())
    assert not has_exact_posterior(Loaded(outcome="heads"))
    with pytest.raises(ArgumentError, match="no closed form"):
        posterior_as_prior(Loaded(outcome="heads"), np.ones(2))
    table = pd.DataFrame({"heads": ["yes", "no"] * 50, "wait": np.linspace(0, 50, 100)})
    model = LogisticRegression(outcome="heads", predictors=["wait"])
    assert non_private_posterior(model, table, schema=SCHEMA).settings["method"] == "non_private_laplace"
    with pytest.raises(ArgumentError, match="conjugate"):
        non_private_posterior(model, table, schema=SCHEMA, method="exact")


@pytest.mark.parametrize("changes", [{"method": "nuts"}, {"draws": 0}, {"seed": -1}])
def test_bad_arguments(changes):
    with pytest.raises(ArgumentError, match=next(iter(changes))):
        non_private_posterior(
            EXAMPLES["bernoulli_beta"], pd.DataFrame({"heads": ["yes"]}), schema=SCHEMA, **changes
        )
