"""Regressions: independent fits in the limit of no noise, priors per coefficient, and their tails."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from autograd import elementwise_grad, hessian
from scipy import special, stats

import nadpvi as na
from nadpvi import ArgumentError
from nadpvi.bijectors import softplus
from nadpvi.description import ModelDescription
from nadpvi.encoding import encode_features, encode_outcome
from nadpvi.guides import MeanField
from nadpvi.models import (
    BinaryRegression,
    LinearRegression,
    LogisticRegression,
    MultinomialLogisticRegression,
    NegativeBinomialRegression,
    PoissonRegression,
    RecordBatch,
    links,
    model_from_dict,
)
from nadpvi.schema import Schema

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": -1, "upper": 1},
            "job": {"kind": "categorical", "levels": ["a", "b", "c"]},
            "sex": {"kind": "binary", "levels": ["f", "m"]},
            "ill": {"kind": "binary", "levels": ["no", "yes"]},
            "party": {"kind": "categorical", "levels": ["red", "blue", "green"]},
            "visits": {"kind": "count", "upper": 500},
            "score": {"kind": "real", "lower": -20, "upper": 20},
        }
    }
)
NUM_RECORDS = 4000
WIDE = 100.0


class Fit:
    """A run without noise, and what it should have found."""

    def __init__(self, model, theta, *, num_steps=400, samples=32):
        rng = np.random.default_rng(11)
        self.model, self.design = model, model.design(SCHEMA)
        table = pd.DataFrame(
            {"age": rng.uniform(-1, 1, NUM_RECORDS), "sex": rng.choice(["f", "m"], NUM_RECORDS)}
        )
        self.x = encode_features(self.design, table).x
        self.y = model.simulate(np.asarray(theta), self.x, rng=rng)
        levels = getattr(SCHEMA[model.outcome], "levels", None)
        table[model.outcome] = self.y if levels is None else np.array(levels)[self.y.astype(int)]
        np.testing.assert_array_equal(encode_outcome(self.design, table).y, self.y)
        self.precision = self._precision(np.asarray(theta))
        self.phi = self._run(table, theta=theta, num_steps=num_steps, samples=samples)

    def _precision(self, theta):
        """Return the posterior's curvature where the records come from; only step sizes depend on it."""
        batch = RecordBatch(x=self.x, y=self.y)
        return -hessian(
            lambda at: (
                self.model.log_likelihood(at[None], batch).sum() + self.model.log_prior(at, self.design)
            )
        )(theta)

    def _run(self, table, *, theta, num_steps, samples):
        """Return the mean of the last half of the iterates of a run on all records, without noise.

        It starts five standard deviations away from where the records come from.
        """
        diagonal = np.diag(self.precision)
        largest = np.linalg.eigvalsh(self.precision / np.sqrt(np.outer(diagonal, diagonal)))[-1]
        base = 0.8 / largest
        names = ModelDescription(model=self.model, schema=SCHEMA, guide=MeanField()).names
        factors = {f"mu[{name}]": 1.0 / value for name, value in zip(names, diagonal, strict=True)}
        # The curvature of the scales is about 2.
        factors |= {f"u[{name}]": 0.2 / base for name in names}
        config = na.DPVIConfig(
            num_steps=num_steps,
            sampling_rate=1.0,
            clip_norm=1e9,
            preconditioner_u=1.0,
            learning_rate=base,
            learning_rate_factors=factors,
            monte_carlo_samples=samples,
            initial_mu={
                name: value + 5 / np.sqrt(precision)
                for name, value, precision in zip(names, theta, diagonal, strict=True)
            },
            initial_u=float(np.log(np.median(diagonal) ** -0.5)) + 0.5,
        )
        release = na.release(
            self.model, table, schema=SCHEMA, privacy=na.NonPrivate(), config=config, insecure_seed=5
        )
        return release.phi[num_steps // 2 :].mean(axis=0)

    @property
    def mean(self):
        return self.phi[: len(self.precision)]

    @property
    def sd(self):
        return softplus(self.phi[len(self.precision) :])

    def check(self, mean, *, sd, covariance):
        """The locations are within 0.05 sd of `mean`; the scales are those that mean-field allows."""
        distance = (self.mean - mean) / sd
        assert np.abs(distance).max() < 0.05, distance
        conditional = np.diag(np.linalg.inv(covariance)) ** -0.5
        np.testing.assert_allclose(self.sd, conditional, rtol=0.04)


def settings(outcome, **more):
    return {"outcome": outcome, "predictors": ["age", "sex"], "prior_sd": WIDE} | more


def test_logistic_regression_matches_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    fit = Fit(LogisticRegression(**settings("ill", prior_sd=0.8)), [-0.4, 1.0, 0.5])
    other = linear_model.LogisticRegression(C=0.8**2, fit_intercept=False, tol=1e-10, max_iter=1000)
    other.fit(fit.x, fit.y)
    chance = other.predict_proba(fit.x)[:, 1]
    precision = (fit.x * (chance * (1 - chance))[:, None]).T @ fit.x + np.eye(3) / 0.8**2
    covariance = np.linalg.inv(precision)
    fit.check(other.coef_[0], sd=np.sqrt(np.diag(covariance)), covariance=covariance)


@pytest.mark.parametrize("link", ["probit", "cloglog"])
def test_binary_regression_matches_statsmodels(link):
    api = pytest.importorskip("statsmodels.api")
    fit = Fit(BinaryRegression(**settings("ill", link=link)), [-0.4, 0.8, 0.5])
    family = api.families.Binomial(
        link=api.families.links.Probit() if link == "probit" else api.families.links.CLogLog()
    )
    other = api.GLM(fit.y, fit.x, family=family).fit(tol=1e-12)
    # The observed information, which mean-field sees; the fit's own is the expected one.
    covariance = np.linalg.inv(-other.model.hessian(other.params, observed=True))
    fit.check(other.params, sd=other.bse, covariance=covariance)


def test_poisson_regression_matches_statsmodels():
    api = pytest.importorskip("statsmodels.api")
    fit = Fit(PoissonRegression(**settings("visits")), [0.6, 0.8, -0.5])
    other = api.GLM(fit.y, fit.x, family=api.families.Poisson()).fit(tol=1e-12)
    fit.check(other.params, sd=other.bse, covariance=other.cov_params())


def test_negative_binomial_regression_matches_statsmodels():
    api = pytest.importorskip("statsmodels.api")
    model = NegativeBinomialRegression(**settings("visits"), prior_shape=1.0, prior_rate=0.05)
    fit = Fit(model, [1.0, 0.8, -0.5, np.log(2.0)])
    other = api.NegativeBinomial(fit.y, fit.x).fit(disp=0, gtol=1e-6, maxiter=500)
    # Their last parameter is alpha = 1 / phi; on the scale of log phi its sd is divided by alpha.
    alpha = other.params[-1]
    slope = np.diag([1.0, 1.0, 1.0, -1.0 / alpha])
    covariance = slope @ other.cov_params() @ slope
    mean = np.append(other.params[:-1], -np.log(alpha))
    fit.check(mean, sd=np.sqrt(np.diag(covariance)), covariance=covariance)


def test_multinomial_regression_matches_statsmodels():
    api = pytest.importorskip("statsmodels.api")
    fit = Fit(MultinomialLogisticRegression(**settings("party")), [0.2, 0.8, -0.5, -0.3, -0.6, 0.7])
    other = api.MNLogit(fit.y, fit.x).fit(disp=0, method="bfgs", gtol=1e-8, maxiter=500)
    fit.check(other.params.T.ravel(), sd=other.bse.T.ravel(), covariance=np.asarray(other.cov_params()))


def test_linear_regression_matches_the_conjugate_posterior():
    fit = Fit(
        LinearRegression(**settings("score", prior_sd=2.0, prior_shape=20, prior_scale=5)),
        [0.5, 1.0, -0.7, np.log(0.3)],
    )
    # Conjugate normal-inverse-gamma: the mean of w does not depend on the variance.
    precision = fit.x.T @ fit.x + np.eye(3) / 4.0
    mean = np.linalg.solve(precision, fit.x.T @ fit.y)
    shape = 20 + NUM_RECORDS / 2
    scale = 5 + 0.5 * (fit.y @ fit.y - mean @ precision @ mean)
    log_mean = np.log(scale) - special.digamma(shape)
    covariance = np.zeros((4, 4))
    covariance[:3, :3] = np.linalg.inv(precision) * scale / (shape - 1)
    covariance[3, 3] = special.polygamma(1, shape)
    fit.check(np.append(mean, log_mean), sd=np.sqrt(np.diag(covariance)), covariance=covariance)


def test_linear_regression_matches_least_squares_under_weak_priors():
    api = pytest.importorskip("statsmodels.api")
    model = LinearRegression(**settings("score"), prior_shape=1.001, prior_scale=0.001)
    fit = Fit(dataclasses.replace(model, prior_scale=0.3), [0.5, 1.0, -0.7, np.log(0.3)])
    other = api.OLS(fit.y, fit.x).fit()
    distance = (fit.mean[:3] - other.params) / other.bse
    assert np.abs(distance).max() < 0.05
    assert abs(np.exp(0.5 * fit.mean[3]) / np.sqrt(other.scale) - 1) < 0.003


REGRESSIONS = {
    "logistic": LogisticRegression(outcome="ill"),
    "probit": BinaryRegression(outcome="ill"),
    "cloglog": BinaryRegression(outcome="ill", link="cloglog"),
    "linear": LinearRegression(outcome="score"),
    "poisson": PoissonRegression(outcome="visits"),
    "negative_binomial": NegativeBinomialRegression(outcome="visits"),
    "multinomial": MultinomialLogisticRegression(outcome="party"),
}
CHOSEN = ["age", "job", "sex"]
LABELS = ("Intercept", "age", "job[a]", "job[b]", "job[c]", "sex[m]")


@pytest.fixture(params=sorted(REGRESSIONS))
def regression(request):
    return REGRESSIONS[request.param]


class TestPriors:
    def test_a_column_covers_its_levels_and_a_label_overrides_it(self, regression):
        model = dataclasses.replace(
            regression,
            predictors=CHOSEN,
            prior_mean={"job": 3, "job[b]": -1.5, "sex": 0.25, "Intercept": 10},
            prior_sd={"age": 0.5, "sex[m]": 4},
        )
        design = model.design(SCHEMA)
        assert design.labels == LABELS
        mean, sd = model.prior_moments(design)
        blocks = model.num_predictors(design)
        unit = (
            np.sqrt(model.prior_scale / (model.prior_shape - 1)) if model.kind == "linear_regression" else 1
        )
        np.testing.assert_allclose(mean[: 6 * blocks], [10, 0, 3, -1.5, 3, 0.25] * blocks)
        rest = 2 if model.kind == "linear_regression" else 1  # the model's default
        expected = np.array([rest, 0.5, rest, rest, rest, 4] * blocks) * unit
        np.testing.assert_allclose(sd[: 6 * blocks], expected)
        assert model_from_dict(json.loads(json.dumps(model.to_dict()))) == model
        assert hash(model) == hash(dataclasses.replace(model))

    @pytest.mark.parametrize("name", ["prior_mean", "prior_sd"])
    def test_an_unknown_name_is_refused_with_the_known_ones(self, regression, name):
        model = dataclasses.replace(regression, predictors=CHOSEN, **{name: {"wage": 1.0, "age": 2.0}})
        with pytest.raises(ArgumentError) as caught:
            model.design(SCHEMA)
        message = str(caught.value)
        assert message.startswith(f'{name} names "wage", which is no coefficient')
        assert '"Intercept", "age", "job", "sex", "job[a]"' in message
        assert len(message.splitlines()) == 1
        without = dataclasses.replace(
            regression, intercept=False, predictors=["age"], **{name: {"Intercept": 1}}
        )
        with pytest.raises(ArgumentError, match='"Intercept", which is no coefficient'):
            without.design(SCHEMA)

    @pytest.mark.parametrize(
        ("settings", "rule"),
        [
            ({"prior_sd": {"age": 0}}, 'prior_sd of "age" must be finite and positive'),
            ({"prior_sd": {"age": "1"}}, 'prior_sd of "age" must be finite and positive'),
            ({"prior_mean": {"age": np.nan}}, 'prior_mean of "age" must be a finite number'),
            ({"prior_mean": "0"}, "prior_mean must be a finite number"),
            ({"prior_mean": {1: 2}}, "prior_mean must be a number, or a mapping"),
            ({"prior_sd": (1, 2)}, "prior_sd must be a number, or a mapping"),
        ],
    )
    def test_a_wrong_setting_is_one_line(self, regression, settings, rule):
        with pytest.raises(ArgumentError) as caught:
            dataclasses.replace(regression, **settings)
        assert rule in str(caught.value)
        assert len(str(caught.value).splitlines()) == 1

    def test_numbers_need_no_design(self):
        model = LogisticRegression(outcome="ill", prior_mean=1.0, prior_sd=2.5)
        theta = np.random.default_rng(0).normal(size=(3, 4))
        expected = stats.norm(1.0, 2.5).logpdf(theta).sum(axis=-1)
        np.testing.assert_allclose(model.log_prior(theta, None), expected, rtol=1e-13)

    def test_densities_match_scipy(self):
        theta = np.random.default_rng(0).normal(size=(5, 7))
        mean, sd = np.array([0.5, 0, 0, 0, 0, 0]), np.array([1, 1, 3, 2, 3, 1.0])
        shared = {"predictors": CHOSEN, "prior_mean": {"Intercept": 0.5}}
        widths = {"Intercept": 1, "age": 1, "job": 3, "job[b]": 2, "sex": 1}
        linear = LinearRegression(outcome="score", prior_sd=widths, prior_shape=3, prior_scale=2, **shared)
        variance = np.exp(theta[:, -1:])
        normal = stats.norm(mean, sd * np.sqrt(variance)).logpdf(theta[:, :-1]).sum(axis=1)
        inverse = stats.invgamma(3, scale=2).logpdf(variance[:, 0]) + theta[:, -1]
        np.testing.assert_allclose(
            linear.log_prior(theta, linear.design(SCHEMA)), normal + inverse, rtol=1e-12
        )
        counts = NegativeBinomialRegression(
            outcome="visits", prior_sd=widths, prior_shape=3, prior_rate=2, **shared
        )
        normal = stats.norm(mean, sd).logpdf(theta[:, :-1]).sum(axis=1)
        gamma = stats.gamma(3, scale=1 / 2).logpdf(np.exp(theta[:, -1])) + theta[:, -1]
        np.testing.assert_allclose(counts.log_prior(theta, counts.design(SCHEMA)), normal + gamma, rtol=1e-12)


class TestLikelihoods:
    """One feature of value 1, so that theta is the linear predictor and what comes after it."""

    @staticmethod
    def value(model, *theta, y):
        batch = RecordBatch(x=np.ones((len(y), 1)), y=np.asarray(y, dtype=float))
        return model.log_likelihood(np.array(theta)[None], batch)

    @pytest.mark.parametrize("log_size", [-3.0, 0.0, 2.0, 4.5, 4.7, 8.0, 15.0])
    def test_negative_binomial_is_scipys(self, log_size):
        y, size, mean = np.arange(200.0), np.exp(log_size), np.exp(1.3)
        found = self.value(REGRESSIONS["negative_binomial"], 1.3, log_size, y=y)
        expected = stats.nbinom(size, size / (size + mean)).logpmf(y)
        # What is left is the reference's own cancellation at large sizes.
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)

    def test_negative_binomial_tends_to_poisson(self):
        y = np.arange(200.0)
        for log_size in (40.0, 50.0, 1000.0):
            found = self.value(REGRESSIONS["negative_binomial"], 1.3, log_size, y=y)
            np.testing.assert_allclose(found, stats.poisson(np.exp(1.3)).logpmf(y), rtol=1e-12, atol=1e-12)

    def test_others_are_scipys(self):
        y = np.arange(50.0)
        np.testing.assert_allclose(
            self.value(REGRESSIONS["poisson"], 1.7, y=y), stats.poisson(np.exp(1.7)).logpmf(y), rtol=1e-12
        )
        np.testing.assert_allclose(
            self.value(REGRESSIONS["linear"], 1.7, 0.4, y=y),
            stats.norm(1.7, np.exp(0.2)).logpdf(y),
            rtol=1e-12,
        )
        for name, chance in (("probit", stats.norm.cdf(-0.7)), ("cloglog", 1 - np.exp(-np.exp(-0.7)))):
            found = self.value(REGRESSIONS[name], -0.7, y=[0, 1])
            np.testing.assert_allclose(found, np.log([1 - chance, chance]), rtol=1e-13)
        found = self.value(REGRESSIONS["multinomial"], np.log(2), np.log(3), y=[0, 1, 2])
        np.testing.assert_allclose(found, np.log([1 / 6, 2 / 6, 3 / 6]), rtol=1e-13)


class TestExtremes:
    """Linear predictors up to 1000 and beyond: CASES.md B6."""

    def test_scores_are_finite_new_and_the_gradient_of_the_likelihood(self, regression):
        size = {"linear": 2, "negative_binomial": 2, "multinomial": 2}.get(
            regression.kind.split("_reg")[0], 1
        )
        size = 2 if "multinomial" in regression.kind else size
        points = np.array(np.meshgrid(*[[-1e3, -750, -40, -5, 0.1, 5, 40, 750, 1e3]] * size)).reshape(
            size, -1
        )
        for y in (0.0, 1.0):
            outcome = np.full(points.shape[1], y)
            batch = RecordBatch(x=np.ones((points.shape[1], 1)), y=outcome)
            before = points.copy()
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                score = regression.score(points, outcome)
                gradient = elementwise_grad(lambda at, batch=batch: regression.log_likelihood(at, batch))(
                    points.T
                )
                wide = regression.score(points[:, :, None] * np.ones(2), outcome[:, None])
            np.testing.assert_array_equal(points, before)
            assert not np.shares_memory(score, points)
            assert np.isfinite(score).all()
            np.testing.assert_allclose(score, gradient.T, rtol=1e-10, atol=1e-12)
            np.testing.assert_array_equal(wide[..., 0], score)

    def test_probits_slope_keeps_its_digits_in_both_tails(self):
        # The density over Phi, worked out with 60 digits.
        known = {
            -1000.0: 1000.00099999800001,
            -40.0: 40.024968847207263723,
            -10.0: 10.098093233962511963,
            0.0: 0.7978845608028653559,
            10.0: 7.6945986267064193e-23,
            38.0: 1.097221052e-314,
            1000.0: 0.0,
        }
        for x, slope in known.items():
            np.testing.assert_allclose(
                links.normal_log_cdf_slope(np.array(x)), slope, rtol=1e-13, atol=1e-310
            )

    @pytest.mark.parametrize("function", ["normal_log_cdf", "cloglog_log_chance", "bounded_exp"])
    def test_derivatives_are_those_of_the_function(self, function):
        from autograd import elementwise_grad

        x = np.concatenate([np.linspace(-30, 4, 69), [-300.0]])
        named = getattr(links, function)
        slope = elementwise_grad(named)
        curvature = elementwise_grad(slope)
        h = 1e-4 * (1 + np.abs(x))
        for f, derivative in ((named, slope), (slope, curvature)):
            differences = (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h)
            scale = np.abs(f(x)) / h * 1e-13 + 1e-10
            assert (np.abs(derivative(x) - differences) <= 1e-8 * np.abs(differences) + scale).all()

    def test_rising_factorials_slopes_hold_across_the_switch(self):
        y = np.array([0.0, 1, 2, 7, 60, 3000])[:, None]
        log_size = np.concatenate([np.linspace(-20, 12, 65), np.log(100) + np.array([-1e-9, 1e-9])])
        grid = np.broadcast_to(log_size, (6, len(log_size)))
        slope = elementwise_grad(lambda at: links.log_rising(at, y))
        curvature = elementwise_grad(slope)
        np.testing.assert_allclose(slope(grid), links.log_rising_slope(log_size, y), rtol=1e-15)
        # r (digamma(y + r) - digamma(r)) is a sum of r / (r + j).
        exact = np.array(
            [
                (np.exp(log_size)[:, None] / (np.exp(log_size)[:, None] + np.arange(n))).sum(axis=1)
                for n in y[:, 0]
            ]
        )
        np.testing.assert_allclose(slope(grid), exact, rtol=1e-11)
        terms = [np.exp(log_size)[:, None] / (np.exp(log_size)[:, None] + np.arange(n)) for n in y[:, 0]]
        np.testing.assert_allclose(
            curvature(grid), [(t * (1 - t)).sum(axis=1) for t in terms], rtol=1e-7, atol=1e-9
        )


class TestSettings:
    def test_links_are_named(self):
        with pytest.raises(ArgumentError, match=r'link must be "probit" or "cloglog".*LogisticRegression'):
            BinaryRegression(outcome="ill", link="logit")

    @pytest.mark.parametrize("value", [0, 1.0, -1, "2"])
    def test_a_linear_regressions_prior_has_a_variance(self, value):
        with pytest.raises(ArgumentError, match="prior_shape"):
            LinearRegression(outcome="score", prior_shape=value)

    @pytest.mark.parametrize(
        ("model", "name"),
        [
            (LinearRegression(outcome="y"), "variance"),
            (NegativeBinomialRegression(outcome="y"), "dispersion"),
        ],
    )
    def test_a_column_called_like_a_parameter_is_refused(self, model, name):
        y = {"kind": "real", "lower": 0, "upper": 9} if name == "variance" else {"kind": "count", "upper": 9}
        schema = Schema.from_dict({"columns": {name: {"kind": "real", "lower": 0, "upper": 1}, "y": y}})
        with pytest.raises(ArgumentError, match=f"{name}.*rename"):
            model.design(schema)

    def test_parameters_have_names_and_supports(self):
        design = MultinomialLogisticRegression(outcome="party", predictors=["sex"]).design(SCHEMA)
        (block,) = MultinomialLogisticRegression(outcome="party").parameters(design)
        assert block.labels == (
            "coefficients[blue, Intercept]",
            "coefficients[blue, sex[m]]",
            "coefficients[green, Intercept]",
            "coefficients[green, sex[m]]",
        )
        design = LinearRegression(outcome="score", predictors=["sex"]).design(SCHEMA)
        description = ModelDescription(
            model=LinearRegression(outcome="score", predictors=["sex"]), schema=SCHEMA, guide=MeanField()
        )
        assert description.names == ("Intercept", "sex[m]", "variance")
        assert [block.support for block in description.parameters] == ["real", "positive"]
