"""A user's own model: its densities, its road from table to posterior, and what a file keeps of it."""

import subprocess
import sys

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
from autograd.scipy.special import gammaln
from scipy import stats

import nadpvi as na
from nadpvi.baselines import non_private_posterior
from nadpvi.containers.posterior import model_variables
from nadpvi.description import ModelDescription
from nadpvi.models import CustomModel, LogisticRegression, Parameter, RecordBatch

SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "days": {"kind": "real", "lower": 1, "upper": 1000},
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "job": {"kind": "categorical", "levels": ["a", "b", "c"]},
            "ill": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)
DAYS = {"days": {"kind": "real", "lower": 1, "upper": 1000}}
DAYS_SCHEMA = na.Schema.from_dict({"columns": DAYS})
POSITIVE = [Parameter(name=name, support="positive") for name in ("shape", "scale")]


def weibull_prior(p):
    return anp.log(p["shape"]) - p["shape"] - 0.01 * p["scale"]


def weibull_likelihood(p, x, y):
    ratio = y / p["scale"]
    return anp.log(p["shape"] / y) + p["shape"] * anp.log(ratio) - ratio ** p["shape"]


def weibull_simulate(p, x, rng):
    return p["scale"] * rng.weibull(p["shape"])


def weibull_mean(p, x):
    return p["scale"] * np.exp(gammaln(1.0 + 1.0 / p["shape"]))


def weibull(**changes):
    settings = {
        "name": "weibull",
        "outcome": "days",
        "parameters": POSITIVE,
        "log_prior": weibull_prior,
        "log_likelihood": weibull_likelihood,
        "simulate": weibull_simulate,
        "predict": weibull_mean,
    }
    return CustomModel(**{**settings, **changes})


def describe(model, schema=SCHEMA):
    return ModelDescription(model=model, schema=schema, guide=na.MeanField())


def normal_density(value, *, mean=0.0, sd=1.0):
    return -0.5 * ((value - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2.0 * np.pi)


def logistic(**changes):
    """Logistic regression as a user would write it."""
    settings = {
        "name": "logit",
        "outcome": "ill",
        "outcome_kind": "binary",
        "predictors": ["age", "job"],
        "intercept": True,
        "parameters": lambda labels: [Parameter(name="coefficients", dims=["coefficient"], coords=[labels])],
        "log_prior": lambda p: anp.sum(normal_density(p["coefficients"]), axis=-1),
        "log_likelihood": logistic_likelihood,
        "gradient_bound": np.sqrt(3.0),
    }
    return CustomModel(**{**settings, **changes})


def logistic_likelihood(p, x, y):
    eta = anp.sum(x * p["coefficients"], axis=-1)
    return y * eta - anp.logaddexp(0.0, eta)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    days = np.clip(120.0 * rng.weibull(1.7, 1500), 1, 1000)
    age = rng.uniform(0, 100, 1500)
    return pd.DataFrame(
        {
            "days": days,
            "age": age,
            "job": rng.choice(["a", "b", "c"], 1500),
            "ill": np.where(rng.random(1500) < 1 / (1 + np.exp(2 - age / 25)), "yes", "no"),
        }
    )


CONFIG = na.DPVIConfig(
    num_steps=300, sampling_rate=0.2, clip_norm=5.0, preconditioner_u=10.0, learning_rate_constant=0.6
)
BUDGET = na.PrivacyBudget(epsilon=4.0, delta=1e-5)


@pytest.fixture(scope="module")
def made(table):
    return na.release(weibull(), table, schema=SCHEMA, privacy=BUDGET, config=CONFIG, insecure_seed=1)


@pytest.fixture(scope="module")
def posterior(made):
    return na.infer(made, method="exact", draws=400, chains=2, seed=2)


class TestTheWholeRoad:
    def test_the_posterior_is_named_and_on_its_own_scale(self, posterior):
        draws = posterior.groups["posterior"]
        assert draws["shape"].dims == draws["scale"].dims == ("chain", "draw")
        assert list(draws["phi"].to_numpy()[:2]) == ["mu[shape]", "mu[scale]"]
        table = posterior.summary()
        assert list(table.index) == ["shape", "scale"]
        # 1.7 and 120 made the table; the posterior's own sd is the unit.
        for name, truth in (("shape", 1.7), ("scale", 120.0)):
            assert abs(table.loc[name, "mean"] - truth) < 5 * table.loc[name, "sd"]
            assert table.loc[name, "sd"] < 0.1 * truth
        theta = posterior.theta()
        np.testing.assert_allclose(np.exp(theta[..., 1]), draws["scale"].to_numpy(), rtol=1e-12)

    def test_predictions_are_the_users(self, posterior):
        rows = pd.DataFrame({"unused": [1.0, 2.0]})
        draws = posterior.groups["posterior"]
        expected = weibull_mean(
            {"shape": draws["shape"].to_numpy(), "scale": draws["scale"].to_numpy()}, None
        )
        np.testing.assert_allclose(posterior.predict(rows), expected.mean(), rtol=1e-10)

    @pytest.mark.arviz
    def test_arviz_takes_numbers_and_matrices(self, posterior):
        assert posterior.to_arviz() is not None

    def test_the_same_run_as_the_built_in_model(self, table):
        """Written by a user or built in, by autodiff or by matrix products: the same noisy gradients."""
        arguments = {
            "schema": SCHEMA,
            "privacy": BUDGET,
            "config": na.DPVIConfig(num_steps=20, sampling_rate=0.2, initial_mu=0.0),
            "insecure_seed": 5,
        }
        built_in = LogisticRegression(outcome="ill", predictors=["age", "job"])
        theirs = na.release(built_in, table, **arguments)
        ours = na.release(logistic(), table, **arguments)
        np.testing.assert_allclose(ours.noisy_gradient, theirs.noisy_gradient, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(ours.model_prior_sd, theirs.model_prior_sd, rtol=1e-6)
        assert ours.phi_labels == theirs.phi_labels

    def test_it_can_be_planned(self):
        plan = na.plan(weibull(), BUDGET, CONFIG, schema=DAYS_SCHEMA, num_records=1500, measure_time=False)
        assert plan.names == ("shape", "scale")

    def test_without_simulate_planning_says_so(self):
        with pytest.raises(na.ModelError, match="simulate"):
            na.plan(weibull(simulate=None), BUDGET, CONFIG, schema=DAYS_SCHEMA, num_records=1500)


OTHER_PROCESS = """
import sys
import numpy as np
import nadpvi as na
made = na.Release.load(sys.argv[1])
posterior = na.infer(made, method="exact", draws=400, chains=2, seed=2)
assert list(posterior.summary().index) == ["shape", "scale"]
np.save(sys.argv[3], posterior.groups["posterior"]["scale"].to_numpy())
posterior.save(sys.argv[2])
for call in (
    lambda: posterior.predict({"days": [1.0]}),
    lambda: na.release(made.description.model, "no.csv", schema=made.description.schema,
                       privacy=na.PrivacyBudget(epsilon=1, delta=1e-5), config=na.DPVIConfig(clip_norm=1.0)),
):
    try:
        call()
    except na.ArgumentError as error:
        assert "came from a file, which holds no functions" in str(error), error
    else:
        raise AssertionError("it should have been refused")
"""


class TestFilesWithoutFunctions:
    def test_another_process_infers_and_names_without_the_functions(self, made, posterior, tmp_path):
        path = made.save(tmp_path / "release.nc")
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", OTHER_PROCESS, path, tmp_path / "p.nc", tmp_path / "s.npy"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        expected = posterior.groups["posterior"]["scale"].to_numpy()
        np.testing.assert_allclose(np.load(tmp_path / "s.npy"), expected, rtol=1e-12)
        loaded = na.Posterior.load(tmp_path / "p.nc")
        with pytest.raises(na.ArgumentError, match="its predict is needed"):
            loaded.predict(pd.DataFrame({"any": [1.0]}))
        again = loaded.with_model(weibull())
        np.testing.assert_allclose(
            again.predict(pd.DataFrame({"any": [1.0]})), posterior.predict(pd.DataFrame({"any": [1.0]}))
        )

    @pytest.mark.parametrize("model", [weibull(), logistic()], ids=["weibull", "logit"])
    def test_a_description_survives_but_for_the_functions(self, model):
        before = describe(model)
        after = ModelDescription.from_dict(before.to_dict())
        assert after.to_dict() == before.to_dict()
        assert after.names == before.names
        assert after.phi_labels == before.phi_labels
        np.testing.assert_array_equal(after.phi_prior_moments(), before.phi_prior_moments())
        assert after.with_model(model) == before

    @pytest.mark.parametrize(
        ("changes", "what"),
        [
            ({"name": "other"}, "name"),
            ({"outcome": "age"}, "outcome"),
            ({"parameters": POSITIVE[::-1]}, "parameters"),
            ({"log_prior": lambda p: weibull_prior(p) - p["shape"]}, "prior_mean"),
            ({"predictors": ["age"]}, "predictors"),
            ({"gradient_bound": 2.0}, "gradient_bound"),
        ],
    )
    def test_another_model_is_not_taken_for_it(self, changes, what):
        after = ModelDescription.from_dict(describe(weibull()).to_dict())
        with pytest.raises(na.ArgumentError, match=f"differ in .*{what}"):
            after.with_model(weibull(**changes))

    def test_a_built_in_model_is_compared_as_well(self):
        before = describe(LogisticRegression(outcome="ill"))
        assert before.with_model(LogisticRegression(outcome="ill")) == before
        with pytest.raises(na.ArgumentError, match="differ in prior_sd"):
            before.with_model(LogisticRegression(outcome="ill", prior_sd=2.0))

    def test_unknown_and_missing_keys_are_refused(self):
        data = describe(weibull()).to_dict()
        for model in (
            {**data["model"], "extra": 1},
            {key: value for key, value in data["model"].items() if key != "prior_sd"},
        ):
            with pytest.raises(na.ArgumentError, match="custom model's description"):
                ModelDescription.from_dict({**data, "model": model})

    def test_a_model_that_waits_for_its_schema_cannot_be_written(self):
        with pytest.raises(na.ArgumentError, match="depends on its schema"):
            logistic().to_dict()
        with pytest.raises(na.ArgumentError, match="depend on the schema"):
            logistic().log_likelihood(np.zeros((1, 1, 5)), RecordBatch(x=np.zeros((1, 5)), y=np.zeros(1)))


BLOCKS = [
    Parameter(name="level"),
    Parameter(name="rates", support="positive", dims=["group"], coords=[["low", "high"]]),
    Parameter(name="cuts", support="ordered", dims=["cut"], coords=[2]),
    Parameter(name="weights", support="simplex", dims=["component"], coords=[3]),
    Parameter(name="chance", support="unit_interval"),
    Parameter(name="spread", support="covariance", dims=["axis"], coords=[["x", "y"]]),
    Parameter(name="effects", dims=["row", "column"], coords=[["r"], ["a", "b"]]),
]


def everything_prior(p):
    spread = p["spread"]
    return (
        normal_density(p["level"])
        + anp.sum(-p["rates"], axis=-1)
        + anp.sum(normal_density(p["cuts"]), axis=-1)
        + anp.sum(anp.log(p["weights"]), axis=-1)
        + anp.log(determinant(spread))
        - 0.5 * (spread[..., 0, 0] + spread[..., 1, 1])
        + anp.sum(normal_density(p["effects"]), axis=(-1, -2))
    )


class TestShapes:
    """Functions get draws, records and the parameter's own axes, whoever calls."""

    def model(self, seen):
        def likelihood(p, x, y):
            seen.append(({name: value.shape for name, value in p.items()}, x.shape, y.shape))
            return normal_density(y, mean=p["level"])

        return CustomModel(
            name="everything",
            outcome="days",
            predictors=["age"],
            parameters=BLOCKS,
            log_prior=everything_prior,
            log_likelihood=likelihood,
            simulate=lambda p, x, rng: p["level"] + rng.standard_normal(p["level"].shape),
            predict=lambda p, x: p["level"] + 0.0 * x[:, 0],
        )

    def test_leading_axes(self):
        seen = []
        model = describe(self.model(seen)).model
        batch = RecordBatch(x=np.ones((4, 1)), y=np.ones(4))
        num = 1 + 2 + 2 + 2 + 1 + 3 + 2
        for lead, draws in [((), 1), ((3,), 3), ((2, 3), 6)]:
            for records in (1, 4):
                value = model.log_likelihood(np.zeros((*lead, records, num)), batch)
                assert value.shape == (*lead, 4)
                shapes, x, y = seen[-1]
                assert shapes["level"] == shapes["chance"] == (draws, 4)
                assert shapes["rates"] == (draws, 4, 2)
                assert shapes["weights"] == (draws, 4, 3)
                assert shapes["spread"] == (draws, 4, 2, 2)
                assert shapes["effects"] == (draws, 4, 1, 2)
                assert (x, y) == ((4, 1), (4,))
        rng = np.random.default_rng(0)
        assert model.simulate(np.zeros(num), batch.x, rng=rng).shape == (4,)
        assert model.simulate(np.zeros((4, num)), batch.x, rng=rng).shape == (4,)
        assert model.simulate(np.zeros((5, 1, num)), batch.x, rng=rng).shape == (5, 4)
        assert model.predict_mean(np.zeros((5, num)), batch.x).shape == (5, 4)
        assert model.predict_mean(np.zeros((5, num)), batch.x[:0]).shape == (5, 0)
        assert model.log_prior(np.zeros((5, 2, num)), model.design(SCHEMA)).shape == (5, 2)

    def test_posterior_variables_have_their_dims_and_come_back(self):
        description = describe(self.model([]))
        theta = np.random.default_rng(1).normal(size=(2, 5, len(description.names)))
        variables = model_variables(description, theta)
        assert variables["level"].dims == ("chain", "draw")
        assert variables["rates"].dims == ("chain", "draw", "group")
        assert list(variables["group"].to_numpy()) == ["low", "high"]
        assert variables["spread"].dims == ("chain", "draw", "axis", "axis_2")
        assert variables["spread"].sel(axis="x", axis_2="y").shape == (2, 5)
        assert variables["effects"].dims == ("chain", "draw", "row", "column")
        np.testing.assert_allclose(variables["weights"].sum("component"), 1.0)
        assert (variables["cuts"].diff("cut") > 0).all()
        posterior = na.Posterior(groups={"posterior": variables}, description=description)
        np.testing.assert_allclose(posterior.theta(), theta, atol=1e-8)
        assert list(posterior.summary().index) == [
            "level",
            "rates[low]",
            "rates[high]",
            "cuts[0]",
            "cuts[1]",
            "weights[0]",
            "weights[1]",
            "weights[2]",
            "chance",
            "spread[x, x]",
            "spread[x, y]",
            "spread[y, x]",
            "spread[y, y]",
            "effects[r, a]",
            "effects[r, b]",
        ]
        np.testing.assert_allclose(
            posterior.summary().loc["spread[y, x]", "mean"],
            variables["spread"].to_numpy()[..., 1, 0].mean(),
        )

    def test_every_support_survives_a_file(self, tmp_path):
        description = describe(self.model([]))
        theta = np.random.default_rng(1).normal(size=(2, 5, len(description.names)))
        posterior = na.Posterior(
            groups={"posterior": model_variables(description, theta)}, description=description
        )
        back = na.Posterior.load(posterior.save(tmp_path / "posterior.nc"))
        np.testing.assert_array_equal(back.theta(), posterior.theta())
        pd.testing.assert_frame_equal(back.summary(), posterior.summary())

    def test_class_probabilities_are_predictions_too(self):
        model = weibull(predict=lambda p, x: anp.stack([p["shape"], p["scale"], p["shape"]], axis=-1))
        assert model.predict_mean(np.zeros((4, 2)), np.zeros((6, 0))).shape == (4, 6, 3)

    def test_predictions_in_blocks_are_the_same(self, monkeypatch):
        theta, x = np.random.default_rng(0).normal(size=(5, 2)), np.random.default_rng(1).random((13, 1))
        model = weibull(predictors=["age"], predict=lambda p, x: p["shape"] * x[:, 0])
        whole = model.predict_mean(theta, x)
        monkeypatch.setattr("nadpvi.models.custom._BLOCK_VALUES", 30)
        np.testing.assert_array_equal(model.predict_mean(theta, x), whole)
        np.testing.assert_allclose(whole, np.exp(theta[:, :1]) * x[:, 0])


class TestDensities:
    def test_the_jacobian_is_added_once(self):
        """The wrapped prior of log(rate) is a density over the real line with the mean of Exponential(2)."""
        model = weibull(parameters=POSITIVE[:1], log_prior=lambda p: anp.log(2.0) - 2.0 * p["shape"])
        z = np.linspace(-40, 10, 20_001)[:, None]
        weight = np.exp(model.log_prior(z, model.design(SCHEMA))) * (z[1] - z[0])
        assert weight.sum() == pytest.approx(1.0, abs=1e-9)
        assert (weight * np.exp(z[:, 0])).sum() == pytest.approx(0.5, abs=1e-9)

    def test_it_equals_the_built_in_exponential_gamma(self):
        built_in = na.models.ExponentialGamma(outcome="days", prior_shape=3.0, prior_rate=2.0)
        model = CustomModel(
            name="waiting",
            outcome="days",
            parameters=[Parameter(name="rate", support="positive")],
            log_prior=lambda p: (
                3.0 * anp.log(2.0) - gammaln(3.0) + 2.0 * anp.log(p["rate"]) - 2.0 * p["rate"]
            ),
            log_likelihood=lambda p, x, y: anp.log(p["rate"]) - p["rate"] * y,
        )
        design = model.design(SCHEMA)
        theta = np.random.default_rng(0).normal(size=(6, 1))
        np.testing.assert_allclose(
            model.log_prior(theta, design), built_in.log_prior(theta, design), rtol=1e-10
        )
        np.testing.assert_allclose(
            model.prior_moments(design), built_in.prior_moments(built_in.design(SCHEMA)), rtol=1e-8
        )
        batch = RecordBatch(x=np.zeros((4, 0)), y=np.array([1.0, 2.0, 5.0, 9.0]))
        np.testing.assert_allclose(
            model.log_likelihood(theta[:, None, :], batch),
            built_in.log_likelihood(theta[:, None, :], batch),
            rtol=1e-10,
        )


def moments_of(log_prior, *blocks):
    model = weibull(parameters=list(blocks), log_prior=log_prior)
    return model.prior_moments(model.design(SCHEMA))


CHANCE = Parameter(name="c", support="unit_interval")
A, RATE = Parameter(name="a"), Parameter(name="rate", support="positive")
PAIR = Parameter(name="pair", dims=["entry"], coords=[["a", "b"]])
COVARIANCE = np.array([[4.0, 1.9], [1.9, 1.0]])


def determinant(spread):
    return spread[..., 0, 0] * spread[..., 1, 1] - spread[..., 0, 1] ** 2


def bivariate_likelihood(p, x, y):
    spread, (first, second) = p["spread"], (x[:, k] - p["centre"][..., k] for k in (0, 1))
    quadratic = spread[..., 1, 1] * first**2 + spread[..., 0, 0] * second**2
    quadratic = quadratic - 2.0 * spread[..., 0, 1] * first * second
    return -0.5 * (anp.log(determinant(spread)) + quadratic / determinant(spread))


def test_a_covariance_matrix_of_features_is_found():
    """A model without an outcome: its data are two features, whose sample moments are known."""
    features = Parameter(name="centre", dims=["feature"], coords=[["days", "age"]])
    model = CustomModel(
        name="bivariate",
        outcome=None,
        predictors=["days", "age"],
        parameters=[
            features,
            Parameter(name="spread", support="covariance", dims=["feature"], coords=[["days", "age"]]),
        ],
        log_prior=lambda p: (
            anp.sum(normal_density(p["centre"]), axis=-1)
            + anp.log(determinant(p["spread"]))
            - p["spread"][..., 0, 0]
            - p["spread"][..., 1, 1]
        ),
        log_likelihood=bivariate_likelihood,
    )
    x = np.random.default_rng(1).multivariate_normal([0.5, 0.4], [[0.02, 0.01], [0.01, 0.03]], 4000)
    x = np.clip(x, 0.0, 1.0)
    table = pd.DataFrame({"days": 1.0 + 999.0 * x[:, 0], "age": 100.0 * x[:, 1]})
    found = non_private_posterior(model, table, schema=SCHEMA, draws=4000, seed=0).summary()
    assert list(found.index[:3]) == ["days", "age", "spread[days, days]"]
    expected = np.concatenate([x.mean(axis=0), np.cov(x.T).ravel()])
    # Monte Carlo error is 0.016 sd, the prior's pull and the skewness 0.1.
    np.testing.assert_allclose((found["mean"] - expected) / found["sd"], 0.0, atol=0.3)
    # The standard errors of a normal sample's moments.
    variances = np.diag(np.cov(x.T))
    np.testing.assert_allclose(found["sd"].iloc[:2], np.sqrt(variances / 4000), rtol=0.06)
    np.testing.assert_allclose(found["sd"].iloc[[2, 5]], variances * np.sqrt(2 / 4000), rtol=0.06)


class TestPriorMoments:
    @pytest.mark.parametrize(
        ("log_prior", "block", "mean", "sd"),
        [
            (lambda p: normal_density(p["a"], mean=50.0, sd=0.01), A, 50.0, 0.01),
            (lambda p: normal_density(p["a"], mean=-3.0, sd=2000.0), A, -3.0, 2000.0),
            (lambda p: -anp.abs(p["a"] - 2.0) / 3.0, A, 2.0, 3.0 * np.sqrt(2.0)),
            (lambda p: -3.0 * anp.log1p(p["a"] ** 2 / 5.0), A, 0.0, np.sqrt(5.0 / 3.0)),
            (lambda p: -0.5 * p["rate"] ** 2, RATE, -0.6351814227307392, 1.1107207345395915),
            (lambda p: normal_density(anp.log(p["rate"]), mean=2.0) - anp.log(p["rate"]), RATE, 2.0, 1.0),
            (lambda p: 0.0 * p["c"], CHANCE, 0.0, np.pi / np.sqrt(3.0)),
            (lambda p: -0.5 * (anp.log(p["c"]) + anp.log1p(-p["c"])), CHANCE, 0.0, np.pi),
        ],
        ids=["narrow", "wide", "Laplace", "t with 5", "half-normal", "log-normal", "uniform", "arcsine"],
    )
    def test_known_ones(self, log_prior, block, mean, sd):
        found = moments_of(log_prior, block)
        np.testing.assert_allclose(found[0], mean, rtol=1e-4, atol=1e-4 * sd)
        np.testing.assert_allclose(found[1], sd, rtol=2e-3)

    def test_correlated_normal(self):
        precision = np.linalg.inv(COVARIANCE)

        def log_prior(p):
            centred = p["pair"] - np.array([1.0, -2.0])
            return -0.5 * anp.sum(anp.dot(centred, precision) * centred, axis=-1)

        mean, sd = moments_of(log_prior, PAIR)
        np.testing.assert_allclose(mean, [1.0, -2.0], atol=1e-4)
        np.testing.assert_allclose(sd, np.sqrt(np.diag(COVARIANCE)), rtol=1e-4)

    def test_dirichlet_by_its_draws(self):
        alpha = np.array([2.0, 0.5, 3.0])
        block = Parameter(name="w", support="simplex", dims=["component"], coords=[3])
        mean, sd = moments_of(lambda p: anp.sum((alpha - 1.0) * anp.log(p["w"]), axis=-1), block)
        # Stick-breaking makes the coordinates independent logits of Beta variables.
        first, second = stats.beta(2.0, 3.5), stats.beta(0.5, 3.0)
        grid = (np.arange(200_000) + 0.5) / 200_000
        for k, (part, offset) in enumerate([(first, np.log(2.0)), (second, 0.0)]):
            share = part.ppf(grid)
            logit = np.log(share) - np.log1p(-share) + offset
            assert mean[k] == pytest.approx(logit.mean(), abs=2e-3)
            assert sd[k] == pytest.approx(logit.std(), rel=2e-3)

    @pytest.mark.parametrize(
        ("log_prior", "blocks", "message"),
        [
            (lambda p: 0.0 * p["a"], [A], "flat does not depend on a: a flat prior there is improper"),
            (lambda p: 0.0 * p["rate"], [RATE], "flat does not depend on rate"),
            (lambda p: normal_density(p["a"]), [A, RATE], "flat does not depend on rate"),
            (lambda p: normal_density(p["pair"][..., 0]), [PAIR], "flat does not depend on b"),
            (lambda p: -anp.log(p["rate"]), [RATE], "flat gives rate no finite variance"),
            (lambda p: 0.5 * anp.log(p["rate"]), [RATE], "flat gives rate no finite variance"),
            (lambda p: 0.1 * p["a"], [A], "flat has no peak"),
            (lambda p: -anp.log1p(p["a"] ** 2), [A], "flat gives a no finite variance"),
            (
                lambda p: normal_density(p["pair"][..., 0] - p["pair"][..., 1]),
                [PAIR],
                "flat is flat along a combination",
            ),
        ],
    )
    def test_improper_priors_are_refused_with_the_remedy(self, log_prior, blocks, message):
        log_prior.__name__ = "flat"
        with pytest.raises(na.ModelError, match=message) as refused:
            moments_of(log_prior, *blocks)
        assert "give it a" in str(refused.value)
        assert "\n" not in str(refused.value)

    def test_given_ones_are_used(self):
        model = weibull(
            prior_mean=0.0, prior_sd=[1.0, 2.0], log_prior=lambda p: -anp.log(p["shape"] * p["scale"])
        )
        mean, sd = model.prior_moments(model.design(SCHEMA))
        assert (mean.tolist(), sd.tolist()) == ([0.0, 0.0], [1.0, 2.0])
        wrong = weibull(prior_mean=0.0, prior_sd=[1.0, 2.0, 3.0])
        with pytest.raises(na.ArgumentError, match=r"prior_sd must be one number, or one for each"):
            wrong.prior_moments(wrong.design(SCHEMA))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"log_prior": None}, "log_prior must be a function"),
        ({"log_likelihood": "normal"}, "log_likelihood must be a function"),
        ({"simulate": 1}, "simulate must be a function"),
        ({"predict": 1}, "predict must be a function"),
        ({"name": ""}, "name must be a text"),
        ({"parameters": []}, "at least one"),
        ({"parameters": ["shape"]}, "list of at least one"),
        ({"predictors": "age"}, "list of column names"),
        ({"prior_mean": 0.0}, "go together"),
        ({"prior_sd": 1.0}, "go together"),
        ({"prior_mean": 0.0, "prior_sd": 0.0}, "prior_sd must be one finite and positive"),
        ({"prior_mean": np.nan, "prior_sd": 1.0}, "prior_mean must be one finite"),
        ({"prior_mean": "zero", "prior_sd": 1.0}, "prior_mean must be a number"),
        ({"gradient_bound": 0.0}, "gradient_bound"),
    ],
)
def test_bad_arguments_are_named(changes, message):
    with pytest.raises(na.ArgumentError, match=message):
        weibull(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outcome": "nights"}, "nights"),
        ({"outcome_kind": "binary"}, "binary"),
        ({"outcome": "ill"}, "real"),
        ({"predictors": ["nights"]}, "nights"),
        ({"outcome": None, "predictors": ()}, "outcome or a predictor"),
    ],
)
def test_columns_that_do_not_fit_are_named(changes, message):
    with pytest.raises((na.SchemaError, na.ArgumentError), match=message):
        weibull(**changes).design(SCHEMA)
