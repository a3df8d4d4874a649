"""Known faults of neighbouring tools, part B: clipping, gradients and autodiff."""

import warnings

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest

import nadpvi as na
from nadpvi.made_up import made_up_records
from nadpvi.private.gradients import gradient_function

# Some models here fail at the schema's bounds on purpose, and are warned of.
pytestmark = pytest.mark.filterwarnings("ignore:.*not finite for a record at the public bounds:UserWarning")

models = na.models
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
WIDE = 1e6
SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "y": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)


class UserModel:
    """A user's own model: any likelihood over the rows that logistic regression would read."""

    kind = "user"

    def __init__(self, likelihood, *, prior=None, intercept=True):
        self.likelihood, self.prior = likelihood, prior
        self.inner = na.models.LogisticRegression(outcome="y", prior_sd=WIDE, intercept=intercept)

    def design(self, schema):
        return self.inner.design(schema)

    def parameters(self, design):
        return self.inner.parameters(design)

    def prior_moments(self, design):
        return self.inner.prior_moments(design)

    def log_prior(self, theta, design):
        return self.inner.log_prior(theta, design) if self.prior is None else self.prior(theta)

    def log_likelihood(self, theta, batch):
        return self.likelihood(theta, batch)

    def gradient_bound(self, design):
        return self.inner.gradient_bound(design)

    def predict_mean(self, theta, x):
        return self.inner.predict_mean(theta, x)

    def to_dict(self):
        return {"kind": "user"}


def logit(theta, batch):
    return anp.sum(batch.x * theta, axis=-1)


def logistic(theta, batch):
    return batch.y * logit(theta, batch) - anp.logaddexp(0.0, logit(theta, batch))


def rows(ages, *, y="yes"):
    return pd.DataFrame({"age": np.asarray(ages, dtype=float), "y": y})


def run(model, table, **changes):
    """Release by a full batch at every step, so that runs on neighbours differ by the one row alone."""
    settings = {"num_steps": 6, "sampling_rate": 1.0, "learning_rate": 1e-3, **changes}
    return na.release(
        model,
        table,
        schema=SCHEMA,
        privacy=BUDGET,
        config=na.DPVIConfig(**settings),
        insecure_seed=3,
    )


def assert_row_adds_nothing(model, row, others):
    """Check that a run with `row` is the run without it; on the grid it would be so to the last bit."""
    with_it = run(model, pd.concat([others, row, others], ignore_index=True))
    without = run(model, pd.concat([others, others], ignore_index=True))
    assert np.isfinite(with_it.noisy_gradient).all()
    assert with_it.num_steps == with_it.guarantee.num_steps == 6
    np.testing.assert_allclose(with_it.noisy_gradient, without.noisy_gradient, rtol=1e-12)
    # The same comparison sees an ordinary row.
    ordinary = run(model, pd.concat([others, rows([37.5]), others], ignore_index=True))
    assert not np.allclose(ordinary.noisy_gradient, without.noisy_gradient, rtol=1e-6)


def norm_penalty(theta, batch):
    """A likelihood whose gradient is NaN where a row's features are all zero."""
    return logistic(theta, batch) - anp.sqrt(anp.sum((batch.x * theta) ** 2, axis=-1))


class TestB1ZeroGradientBecomesNaN:
    """A zero gradient contributes exactly zero; what autodiff makes of a norm at 0 reaches nothing."""

    def test_an_all_zero_row_of_a_linear_model(self):
        model = na.models.LogisticRegression(outcome="y", intercept=False)
        assert_row_adds_nothing(model, rows([0.0]), rows([10.0, 60.0]))

    def test_an_all_zero_row_by_autodiff(self):
        assert_row_adds_nothing(UserModel(logistic, intercept=False), rows([0.0]), rows([10.0, 60.0]))

    def test_a_table_of_zeros_gives_zeros_and_no_nan(self):
        for model in (
            na.models.LogisticRegression(outcome="y", prior_sd=WIDE, intercept=False),
            UserModel(logistic, intercept=False),
        ):
            made = na.release(
                model,
                rows([0.0, 0.0, 0.0]),
                schema=SCHEMA,
                privacy=na.NonPrivate(),
                config=na.DPVIConfig(num_steps=5, sampling_rate=1.0, learning_rate=1e-9),
            )
            np.testing.assert_allclose(made.noisy_gradient[:, 0], 0.0, atol=1e-9)

    def test_a_norm_whose_gradient_is_nan_at_zero(self):
        assert_row_adds_nothing(UserModel(norm_penalty, intercept=False), rows([0.0]), rows([10.0, 60.0]))

    @pytest.mark.parametrize("squared", [True, False])
    def test_a_norm_of_theta_started_at_zero(self, squared):
        def penalty(theta):
            return anp.sum(theta**2, axis=-1) if squared else anp.sqrt(anp.sum(theta**2, axis=-1))

        def penalised(theta, batch):
            return logistic(theta, batch) - penalty(theta)

        for model in (UserModel(penalised), UserModel(logistic, prior=lambda theta: -penalty(theta))):
            made = run(model, rows([10.0, 60.0]), initial_mu=0.0, initial_u=-30.0)
            assert np.isfinite(made.noisy_gradient).all()
            assert np.isfinite(made.phi).all()

    def test_a_constant_loss_is_refused_before_anything_is_spent(self, tmp_path):
        def constant(theta, batch):
            return np.zeros(np.broadcast_shapes(theta.shape[:-1], batch.y.shape))

        with pytest.raises(na.ModelError, match=r"UserModel\.log_likelihood does not depend on theta"):
            run(UserModel(constant), tmp_path / "never-opened.csv")

    def test_a_loss_that_is_constant_for_these_rows_contributes_nothing_and_warns_at_most_once(self):
        def often_constant(theta, batch):
            if not batch.x[:, -1].any():
                return np.zeros(np.broadcast_shapes(theta.shape[:-1], batch.y.shape))
            return logistic(theta, batch)

        model = UserModel(often_constant, intercept=False)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")  # what users have
            many = run(model, rows([0.0] * 300))
        assert len(caught) <= 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            one = run(model, rows([0.0]))
        np.testing.assert_array_equal(many.noisy_gradient, one.noisy_gradient)


def minus_infinity(theta, batch):
    """A count of -1: no density at all where the row's age is at its upper bound."""
    return logistic(theta, batch) + anp.log(1.0 - batch.x[:, -1]) * (1.0 + 0.1 * theta[..., 0])


def not_a_number(theta, batch):
    return logistic(theta, batch) * np.where(batch.x[:, -1] == 1.0, np.nan, 1.0)


def overflowing(theta, batch):
    return logistic(theta, batch) * np.where(batch.x[:, -1] == 1.0, 1e308, 1.0) * 10.0


class TestB2OneNonFiniteRow:
    """A row without a finite gradient contributes zero, and the table's reader leaves nothing non-finite."""

    @pytest.mark.parametrize("likelihood", [minus_infinity, not_a_number, overflowing])
    def test_through_the_user_loss(self, likelihood):
        assert_row_adds_nothing(UserModel(likelihood), rows([100.0]), rows(np.linspace(0, 80, 25)))

    @pytest.mark.parametrize("likelihood", [minus_infinity, not_a_number])
    def test_a_real_run_keeps_its_steps_and_its_noise(self, likelihood):
        table = rows([*np.linspace(0, 80, 49), 100.0])
        made = na.release(
            UserModel(likelihood),
            table,
            schema=SCHEMA,
            privacy=BUDGET,
            config=na.DPVIConfig(num_steps=30, sampling_rate=1.0),
        )
        assert made.is_private
        assert made.num_steps == made.guarantee.num_steps == 30
        assert np.isfinite(made.phi).all()
        assert np.isfinite(made.noisy_gradient).all()

    def test_every_row_non_finite_is_noise_alone(self):
        made = run(UserModel(not_a_number), rows([100.0] * 50))
        assert np.isfinite(made.noisy_gradient).all()

    @pytest.mark.parametrize(
        ("cell", "bound"),
        [("1e400", 100.0), ("-1e400", 0.0), ("inf", 100.0), (-np.inf, 0.0), (1e308, 100.0), (-1, 0.0)],
    )
    def test_infinite_cells_are_moved_to_the_declared_bound(self, cell, bound, tmp_path):
        model = na.models.LogisticRegression(outcome="y")
        ages = [*np.linspace(0, 80, 49)]
        expected = run(model, rows([*ages, bound]))
        read = pd.DataFrame({"age": [*map(str, ages), str(cell)], "y": "yes"})
        read.to_csv(tmp_path / "people.csv", index=False)
        for table in (read, tmp_path / "people.csv", {"age": [*ages, cell], "y": ["yes"] * 50}):
            made = run(model, table)
            np.testing.assert_array_equal(made.noisy_gradient, expected.noisy_gradient)

    @pytest.mark.parametrize("cell", ["nan", "", None, np.nan])
    @pytest.mark.parametrize("policy", ["refuse", "drop"])
    def test_cells_that_are_no_number_follow_the_declared_policy(self, cell, policy, tmp_path):
        content = SCHEMA.to_dict()
        content["columns"][0] |= {"missing": policy, "missing_values": ["", "nan"]}
        arguments = {
            "schema": na.Schema.from_dict(content),
            "privacy": BUDGET,
            "config": na.DPVIConfig(num_steps=3, sampling_rate=1.0),
            "insecure_seed": 3,
        }
        model = na.models.LogisticRegression(outcome="y")
        table = {"age": [10.0, cell, 60.0], "y": ["yes", "no", "yes"]}
        if policy == "refuse":
            book = na.Ledger.create(tmp_path / "book", label="people")
            with pytest.raises(na.DataError, match='"age"'):
                na.release(model, table, ledger=book, **arguments)
            assert book.entries() == ()
        else:
            fewer = {"age": [10.0, 60.0], "y": ["yes", "yes"]}
            np.testing.assert_array_equal(
                na.release(model, table, **arguments).noisy_gradient,
                na.release(model, fewer, **arguments).noisy_gradient,
            )


class Refusals:
    """What B4 and B5 share: refused by the dry run, with nothing opened and nothing reserved."""

    @pytest.fixture
    def refusal(self, tmp_path):
        book = na.Ledger.create(tmp_path / "book", label="people")

        def attempt(likelihood):
            with pytest.raises((na.ModelError, na.PrivacyError)) as refused:
                na.release(
                    UserModel(likelihood),
                    tmp_path / "never-opened.csv",
                    schema=SCHEMA,
                    privacy=BUDGET,
                    ledger=book,
                )
            assert book.entries() == ()
            assert book.total() == 0.0
            message = str(refused.value)
            assert "UserModel.log_likelihood" in message
            assert "\n" not in message
            assert len(message) < 400
            return message

        return attempt

    def test_the_table_would_have_been_noticed(self, tmp_path):
        with pytest.raises(na.FileError, match="never-opened"):
            na.release(UserModel(logistic), tmp_path / "never-opened.csv", schema=SCHEMA, privacy=BUDGET)


class TestB4OneNumberForTheBatch(Refusals):
    """A loss must give one number a record; anything else would be clipped as one."""

    @pytest.mark.parametrize(
        ("likelihood", "shape"),
        [
            (lambda theta, batch: anp.mean(logistic(theta, batch)), "()"),
            (lambda theta, batch: anp.sum(logistic(theta, batch)), "()"),
            (lambda theta, batch: anp.mean(logistic(theta, batch), axis=-1), "(3,)"),
            (lambda theta, batch: anp.mean(logistic(theta, batch), axis=-1, keepdims=True), "(3, 1)"),
            (lambda theta, batch: logistic(theta, batch)[..., None], ", 1)"),
            (lambda theta, batch: logistic(theta, batch)[..., 1:], "(3, "),
            (lambda theta, batch: batch.x * theta, ", 2)"),
            (lambda theta, batch: logistic(theta, batch).T, ", 3)"),
        ],
        ids=["mean", "sum", "mean of each draw", "kept axis", "(B, 1)", "(B - 1,)", "(B, K)", "transposed"],
    )
    def test_wrong_shapes(self, refusal, likelihood, shape):
        message = refusal(likelihood)
        assert "one number a record" in message
        assert shape in message.split("got")[1]

    def test_no_array_at_all(self, refusal):
        refusal(lambda theta, batch: None)
        refusal(lambda theta, batch: "0")

    @pytest.mark.parametrize(
        "likelihood",
        [
            lambda theta, batch: logistic(theta, batch) - 0.5 * logistic(theta, batch) * anp.mean(batch.y),
            lambda theta, batch: logistic(theta, batch) * batch.x.std(),
            lambda theta, batch: logistic(theta, batch._replace(x=batch.x - batch.x.mean(axis=0))),
            lambda theta, batch: logistic(theta, batch) * np.roll(batch.y, 1),
        ],
        ids=["weighted by the mean", "scaled by the spread", "centred", "the next record's outcome"],
    )
    def test_records_that_see_each_other_at_the_right_shape(self, refusal, likelihood):
        assert "influence each other" in refusal(likelihood)


def in_place(theta, batch):
    total = np.zeros((len(theta), len(batch.y)))
    total[0] = logistic(theta, batch)[0]
    return total


def filled_row_by_row(theta, batch):
    total = np.zeros(len(batch.y))
    for b in range(len(batch.y)):
        total[b] = anp.sum(batch.x[b] * theta[0])
    return total + 0.0 * logit(theta, batch)


class TestB4RecordsThatSeeEachOthersPlaces(Refusals):
    """The kind behind B4: a record's number depends on where it stands, so that one arrival moves others."""

    @pytest.mark.parametrize(
        "likelihood",
        [
            lambda theta, batch: logistic(theta, batch) * np.arange(1, len(batch.y) + 1),
            lambda theta, batch: anp.cumsum(logistic(theta, batch), axis=-1),
            lambda theta, batch: logistic(theta, batch._replace(x=batch.x - batch.x[0])),
        ],
        ids=["weighted by position", "running sum", "relative to the first record"],
    )
    def test_it_is_refused(self, refusal, likelihood):
        refusal(likelihood)


class TestB5PlainNumpyOrInPlaceWrites(Refusals):
    """What autodiff cannot follow is one short message before any budget is spent."""

    @pytest.mark.parametrize(
        "likelihood",
        [
            lambda theta, batch: batch.y * np.log(np.asarray(logit(theta, batch) ** 2 + 1.0)),
            lambda theta, batch: np.asarray(logistic(theta, batch), dtype=float),
            lambda theta, batch: np.array([float(value) for value in logistic(theta, batch).ravel()]).reshape(
                3, -1
            ),
            in_place,
            filled_row_by_row,
        ],
        ids=["np.log(np.asarray)", "asarray", "float", "a[0] = t", "a[b] = t"],
    )
    def test_both_snippets_and_their_kin(self, refusal, likelihood):
        message = refusal(likelihood)
        assert "autograd.numpy" in message
        assert "without assignment" in message

    def test_plain_functions_that_do_work_give_the_same_run(self):
        """The fault is intermittent: some plain NumPy calls pass through autodiff, and then rightly so."""
        plain = run(UserModel(lambda t, b: b.y * np.exp(-(logit(t, b) ** 2))), rows([10.0, 60.0]))
        proper = run(UserModel(lambda t, b: b.y * anp.exp(-(logit(t, b) ** 2))), rows([10.0, 60.0]))
        np.testing.assert_array_equal(plain.noisy_gradient, proper.noisy_gradient)

    def test_a_likelihood_that_fails_outright_is_named(self, refusal):
        assert "KeyError" in refusal(lambda theta, batch: {}["missing"])


class TestB6OverflowAndUnderflow:
    """Likelihood and guide stay finite and in double precision, whatever logits, scales and inputs are."""

    @pytest.mark.parametrize("mu", [1000.0, -1000.0, 1e6, -1e6])
    @pytest.mark.parametrize("make", [na.models.LogisticRegression, UserModel], ids=["products", "autodiff"])
    def test_huge_logits_saturate(self, mu, make):
        """At a huge logit a row's gradient is its feature or nothing."""
        settings = {"outcome": "y", "intercept": False, "prior_sd": 1e9}
        model = make(**settings) if make is not UserModel else UserModel(logistic, intercept=False)
        if make is UserModel:
            model.inner = na.models.LogisticRegression(**settings)
        table = {"age": [100.0, 100.0, 50.0], "y": ["yes", "no", "no"]}
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            made = na.release(
                model,
                table,
                schema=SCHEMA,
                privacy=na.NonPrivate(),
                config=na.DPVIConfig(
                    num_steps=2,
                    sampling_rate=1,
                    learning_rate=1e-9,
                    initial_mu=mu,
                    initial_u=-25,
                    clip_norm=1e3,
                ),
            )
        # d(-log p)/d theta: p - y times the feature; p is 1 above and 0 below.
        expected = 1.0 + 0.5 if mu > 0 else -1.0
        np.testing.assert_allclose(made.noisy_gradient[:, 0], expected, atol=1e-9)

    def test_a_scale_of_minus_800_is_refused_by_name(self):
        with pytest.raises(na.ArgumentError, match=r"initial_u must be between -30 and 30 \(got -800\)"):
            na.DPVIConfig(initial_u=-800.0)

    @pytest.mark.parametrize("scale", ["sd", "variance"])
    @pytest.mark.parametrize("u", [-800.0, -1e9, 800.0, 1e6])
    def test_a_scale_that_wanders_there_is_not_zero(self, scale, u):
        guide = na.MeanField(scale=scale)
        phi = np.array([0.0, u])
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            sd = guide.standard_deviation(phi)
            slope = guide.entropy_gradient(phi)
        assert (sd > 0).all()
        assert np.isfinite(np.log(sd)).all()
        assert np.isfinite(slope).all()
        assert np.isfinite(guide.draw(phi, np.ones(1))).all()

    def test_single_precision_input_is_summed_in_double(self):
        """200,000 rows of gradient 1/2: in single precision their running sum would be off by hundreds."""
        ages = np.random.default_rng(0).uniform(0, 100, 200_000).astype(np.float32)
        arguments = {
            "schema": SCHEMA,
            "privacy": na.NonPrivate(),
            "config": na.DPVIConfig(
                num_steps=1, sampling_rate=1, learning_rate=1e-9, initial_u=-25.0, clip_norm=10
            ),
            "insecure_seed": 1,
        }
        model = na.models.LogisticRegression(outcome="y", prior_sd=WIDE)
        outcome = np.full(len(ages), "no", dtype=object)
        single = na.release(model, {"age": ages, "y": outcome}, **arguments)
        double = na.release(model, {"age": ages.astype(np.float64), "y": outcome}, **arguments)
        assert single.noisy_gradient.dtype == np.float64
        np.testing.assert_array_equal(single.noisy_gradient, double.noisy_gradient)
        np.testing.assert_allclose(single.noisy_gradient[0, 0], 100_000.0, rtol=1e-9)
        expected = (ages.astype(np.float64) / 100).sum() / 2
        np.testing.assert_allclose(single.noisy_gradient[0, 1], expected, rtol=1e-9)

    def test_raw_features_of_ten_thousand_are_scaled_by_the_public_bounds(self):
        content = SCHEMA.to_dict()
        content["columns"][0] |= {"upper": 1e4}
        far = na.release(
            na.models.LogisticRegression(outcome="y"),
            {"age": [0.0, 1e4], "y": ["no", "yes"]},
            schema=na.Schema.from_dict(content),
            privacy=BUDGET,
            config=na.DPVIConfig(num_steps=6, sampling_rate=1.0, learning_rate=1e-3),
            insecure_seed=3,
        )
        near = run(na.models.LogisticRegression(outcome="y"), {"age": [0.0, 100.0], "y": ["no", "yes"]})
        np.testing.assert_array_equal(far.noisy_gradient, near.noisy_gradient)


# A column of each kind, for the models beyond logistic regression.
MANY = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "ill": {"kind": "binary", "levels": ["no", "yes"]},
            "party": {"kind": "categorical", "levels": ["red", "blue", "green"]},
            "visits": {"kind": "count", "upper": 40},
            "days": {"kind": "real", "lower": 0.5, "upper": 30},
            "score": {"kind": "real", "lower": -20, "upper": 20},
        }
    }
)
SLOPES = {"predictors": ["age"], "intercept": False, "prior_sd": WIDE}


def weibull_likelihood(p, x, y):
    ratio = y / p["scale"]
    return anp.log(p["shape"] / y) + p["shape"] * anp.log(ratio) - ratio ** p["shape"]


def custom(likelihood=weibull_likelihood, *, outcome="days", outcome_kind="real", **changes):
    """A user's own model of two positive numbers."""
    settings = {
        "name": "mine",
        "outcome": outcome,
        "outcome_kind": outcome_kind,
        "parameters": [models.Parameter(name=name, support="positive") for name in ("shape", "scale")],
        "log_prior": lambda p: anp.log(p["shape"]) - p["shape"] - 0.1 * p["scale"],
        "log_likelihood": likelihood,
        "gradient_bound": 5.0,
    }
    return models.CustomModel(**{**settings, **changes})


def poisson_loss(p, x, y):
    """A Poisson log density without its constant, NaN for a count of 40 and -inf for one of 39."""
    hole = np.where(y == 40.0, np.nan, np.where(y == 39.0, -np.inf, 0.0))
    return y * anp.log(p["scale"]) - p["scale"] + hole * p["shape"]


def fewer_than_39(p, x, rng):
    return np.minimum(rng.poisson(np.minimum(p["scale"], 30.0)), 38)


def people(num=50, **columns):
    rng = np.random.default_rng(4)
    table = {
        "age": rng.uniform(0, 80, num),
        "ill": rng.choice(["no", "yes"], num),
        "party": rng.choice(["red", "blue", "green"], num),
        "visits": rng.integers(0, 12, num),
        "days": rng.uniform(1, 20, num),
        "score": rng.uniform(-5, 5, num),
    }
    return pd.DataFrame({**table, **columns})


def run_many(model, table, **changes):
    settings = {"num_steps": 5, "sampling_rate": 1.0, "learning_rate": 1e-4, "clip_norm": 5.0, **changes}
    return na.release(
        model,
        table,
        schema=MANY,
        privacy=BUDGET,
        config=na.DPVIConfig(**settings),
        insecure_seed=3,
    )


class TestB1InTheOtherModels:
    """A row without a gradient moves nothing, in every model that has such rows."""

    @pytest.mark.parametrize(
        "model",
        [
            models.BinaryRegression(outcome="ill", **SLOPES),
            models.BinaryRegression(outcome="ill", link="cloglog", **SLOPES),
            models.PoissonRegression(outcome="visits", **SLOPES),
            models.MultinomialLogisticRegression(outcome="party", **SLOPES),
            custom(
                lambda p, x, y: -x[:, 0] * p["shape"] - anp.sqrt((x[:, 0] * p["scale"]) ** 2),
                predictors=["age"],
            ),
        ],
        ids=["probit", "cloglog", "Poisson", "multinomial", "a norm that is NaN at 0"],
    )
    def test_an_all_zero_row(self, model):
        table = people()
        with_it = run_many(model, pd.concat([table, table.head(3).assign(age=0.0)]))
        without = run_many(model, table)
        assert np.isfinite(with_it.noisy_gradient).all()
        np.testing.assert_allclose(with_it.noisy_gradient, without.noisy_gradient, rtol=1e-12)
        ordinary = run_many(model, pd.concat([table, table.head(3).assign(age=50.0)]))
        assert not np.allclose(ordinary.noisy_gradient, without.noisy_gradient, rtol=1e-6)


class TestB2InTheOtherModels:
    """One row on which a model fails is one row less; one outside the bounds is on them."""

    @pytest.mark.parametrize("count", [39, 40])
    def test_a_custom_density_that_is_not_finite(self, count):
        model = custom(poisson_loss, outcome="visits", outcome_kind="count", simulate=fewer_than_39)
        table = people()
        with_it = run_many(model, pd.concat([table, table.head(1).assign(visits=count), table]))
        without = run_many(model, pd.concat([table, table]))
        assert with_it.num_steps == with_it.guarantee.num_steps == 5
        assert np.isfinite(with_it.noisy_gradient).all()
        np.testing.assert_allclose(with_it.noisy_gradient, without.noisy_gradient, rtol=1e-12)

    @pytest.mark.parametrize(
        ("model", "column", "cell", "bound"),
        [
            (models.PoissonRegression(outcome="visits", predictors=["age"]), "visits", -1, 0),
            (models.PoissonRegression(outcome="visits", predictors=["age"]), "visits", 10**30, 40),
            (models.NegativeBinomialRegression(outcome="visits", predictors=["age"]), "visits", -1, 0),
            (models.PoissonGamma(outcome="visits", prior_shape=2, prior_rate=1), "visits", -1, 0),
            (models.LinearRegression(outcome="score", predictors=["age"]), "score", "1e400", 20.0),
            (models.ExponentialGamma(outcome="days", prior_shape=2, prior_rate=1), "days", -np.inf, 0.5),
            (custom(), "days", "1e400", 30.0),
            (custom(), "days", 0.0, 0.5),
        ],
    )
    def test_an_outcome_outside_the_bounds(self, model, column, cell, bound):
        table = people().astype({column: object})
        table.loc[7, column] = cell
        held = people()
        held[column] = held[column].astype(float)
        held.loc[7, column] = bound
        found = run_many(model, table)
        assert np.isfinite(found.noisy_gradient).all()
        np.testing.assert_array_equal(found.noisy_gradient, run_many(model, held).noisy_gradient)


class TestB6InTheOtherModels:
    """Far from anything sensible every gradient is a number, and supports neither vanish nor overflow."""

    @pytest.mark.parametrize("start", [-400.0, 400.0])
    @pytest.mark.parametrize(
        "model",
        [
            models.BernoulliBeta(outcome="ill"),
            models.CategoricalDirichlet(outcome="party"),
            models.ExponentialGamma(outcome="days", prior_shape=2, prior_rate=1),
            models.PoissonGamma(outcome="visits", prior_shape=2, prior_rate=1),
            models.Normal(
                outcome="score", prior_mean=0, prior_precision_factor=1, prior_shape=3, prior_scale=2
            ),
            models.LinearRegression(outcome="score", predictors=["age"]),
            models.BinaryRegression(outcome="ill", predictors=["age"]),
            models.BinaryRegression(outcome="ill", link="cloglog", predictors=["age"]),
            models.PoissonRegression(outcome="visits", predictors=["age"]),
            models.NegativeBinomialRegression(outcome="visits", predictors=["age"]),
            models.MultinomialLogisticRegression(outcome="party", predictors=["age"]),
        ],
        ids=lambda model: model.kind,
    )
    def test_far_starts_of_the_built_in_models(self, model, start):
        design = model.design(MANY)
        batch = made_up_records(
            model, design, theta=model.prior_moments(design)[0], num_records=9, rng=np.random.default_rng(0)
        )
        guide, num = na.MeanField(), len(model.prior_moments(design)[0])
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            gradients = gradient_function(
                model,
                guide=guide,
                phi=guide.initial(mean=np.full(num, start), u=-3.0),
                standard_normal=np.random.default_rng(1).standard_normal((3, num)),
                preconditioner=np.ones(2 * num),
            )(batch)
            rows = gradients.weighted_rows(np.ones(9))
            assert np.isfinite(np.log(gradients.squared_norms() + 1.0)).all()
        assert np.isfinite(rows).all()

    @pytest.mark.parametrize("start", [-300.0, 300.0])
    def test_far_starts_of_custom_parameters(self, start):
        """A density that is stable in its constrained values stays so: they are held off 0 and infinity."""
        model = custom(lambda p, x, y: anp.log(p["scale"]) - anp.log(p["scale"] + y) + 0.0 * p["shape"])
        made = run_many(model, people(), num_steps=2, initial_mu=start, initial_u=-20.0, learning_rate=1e-12)
        assert np.isfinite(made.noisy_gradient).all()
