"""A user's functions on made-up records: each fault is one line that names the function, before any cost."""

import autograd.numpy as anp
import numpy as np
import pytest

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.guides import FullRank, LowRank
from nadpvi.models import CustomModel, Parameter
from nadpvi.private.dry_run import check_model

SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "days": {"kind": "real", "lower": 1, "upper": 50},
            "visits": {"kind": "count", "upper": 20},
            "colour": {"kind": "categorical", "levels": ["red", "green", "blue"]},
            "ill": {"kind": "binary", "levels": ["no", "yes"]},
            "age": {"kind": "real", "lower": 0, "upper": 100},
        }
    }
)
MEAN, SD = Parameter(name="mean"), Parameter(name="sd", support="positive")


def sound_prior(p):
    return -0.5 * (p["mean"] / 10.0) ** 2 - p["sd"]


def sound(p, x, y):
    return -0.5 * ((y - p["mean"]) / p["sd"]) ** 2 - anp.log(p["sd"])


def sound_simulate(p, x, rng):
    return p["mean"] + p["sd"] * rng.standard_normal(p["mean"].shape)


def normal(**changes):
    settings = {
        "name": "normal",
        "outcome": "days",
        "predictors": ["age"],
        "parameters": [MEAN, SD],
        "log_prior": sound_prior,
        "log_likelihood": sound,
    }
    return CustomModel(**{**settings, **changes})


@pytest.fixture
def refusal(tmp_path):
    """What a run says that is refused before its table is opened or its ledger touched."""
    book = na.Ledger.create(tmp_path / "book", label="people")

    def attempt(model):
        with pytest.raises((na.ModelError, na.PrivacyError)) as refused:
            na.release(
                model,
                tmp_path / "never-opened.csv",
                schema=SCHEMA,
                privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
                config=na.DPVIConfig(clip_norm=1.0),
                ledger=book,
            )
        assert book.entries() == ()
        message = str(refused.value)
        assert "\n" not in message
        assert len(message) < 420
        return message

    return attempt


def counts(p, x, y):
    return y * anp.log(p["sd"]) - p["sd"] + 0.0 * p["mean"]


def levels(p, x, y):
    return -((y - p["mean"]) ** 2) / (1.0 + p["sd"])


@pytest.mark.parametrize(
    ("outcome", "kind", "likelihood"),
    [
        ("days", "real", sound),
        ("visits", "count", counts),
        ("colour", "categorical", levels),
        ("ill", "binary", levels),
        (None, "real", lambda p, x, y: sound(p, x, x[:, 0])),
    ],
)
@pytest.mark.parametrize("guide", [na.MeanField(scale="variance"), FullRank(), LowRank(rank=1)])
def test_sound_models_of_every_outcome_pass(outcome, kind, likelihood, guide):
    model = normal(outcome=outcome, outcome_kind=kind, log_likelihood=likelihood)
    check_model(ModelDescription(model=model, schema=SCHEMA, guide=guide), num_draws=10)
    if outcome == "days":
        simulating = normal(simulate=sound_simulate)
        check_model(ModelDescription(model=simulating, schema=SCHEMA, guide=guide), num_draws=10)


def test_a_sound_model_gets_as_far_as_its_table(tmp_path):
    with pytest.raises(na.FileError, match="never-opened"):
        na.release(
            normal(),
            tmp_path / "never-opened.csv",
            schema=SCHEMA,
            privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
            config=na.DPVIConfig(clip_norm=1.0),
        )


def my_density(p, x, y):
    return anp.mean(sound(p, x, y))


class TestShapes:
    @pytest.mark.parametrize(
        ("function", "shape"),
        [
            (my_density, "()"),
            (lambda p, x, y: anp.mean(sound(p, x, y), axis=-1), "(3,)"),
            (lambda p, x, y: anp.mean(sound(p, x, y), axis=-1, keepdims=True), "(3, 1)"),
            (lambda p, x, y: sound(p, x, y)[:, 1:], "(3, 6)"),
            (lambda p, x, y: sound(p, x, y)[..., None], "(3, 7, 1)"),
            (lambda p, x, y: sound(p, x, y)[0], "(7,)"),
            (lambda p, x, y: sound(p, x, y).T, "(7, 3)"),
            (lambda p, x, y: x * p["mean"][..., None], "(3, 7, 1)"),
            (lambda p, x, y: -1.0, "float"),
            (lambda p, x, y: None, "NoneType"),
        ],
    )
    def test_one_number_a_record(self, refusal, function, shape):
        message = refusal(normal(log_likelihood=function))
        name = "my_density" if function is my_density else "log_likelihood"
        assert message.startswith(
            f"{name} must give one number a record: shape (3, 7) for 3 draws and 7 records"
        )
        assert message.endswith(f"(got {shape}).")

    @pytest.mark.parametrize(
        ("function", "shape"),
        [
            (lambda p: anp.sum(sound_prior(p)), "()"),
            (lambda p: sound_prior(p)[:, None], "(3, 1)"),
            (lambda p: anp.stack([p["mean"], p["sd"]], axis=-1), "(3, 2)"),
            (lambda p: 0.0, "float"),
        ],
    )
    def test_one_number_a_draw(self, refusal, function, shape):
        for model in (
            normal(log_prior=function),
            normal(log_prior=function, prior_mean=0.0, prior_sd=1.0),
        ):
            message = refusal(model)
            assert message.startswith("log_prior must give one number a draw: shape (3,) for 3 draws")
            assert message.endswith(f"(got {shape}).")

    @pytest.mark.parametrize(
        ("function", "shape"),
        [
            (lambda p, x, rng: rng.standard_normal(len(x)), "(7,)"),
            (lambda p, x, rng: rng.standard_normal((len(x), 1)), "(7, 1)"),
            (lambda p, x, rng: 0.0, "float"),
        ],
    )
    def test_one_outcome_a_record(self, refusal, function, shape):
        message = refusal(normal(simulate=function))
        assert message.startswith("simulate must give one number a record: shape (1, 7)")
        assert message.endswith(f"(got {shape}).")


class TestRecordsThatInfluenceEachOther:
    @pytest.mark.parametrize(
        "function",
        [
            lambda p, x, y: sound(p, x, y) * anp.mean(y),
            lambda p, x, y: sound(p, x, y - y.mean()),
            lambda p, x, y: sound(p, x, y) / x.std(),
            lambda p, x, y: sound(p, x, np.roll(y, 1)),
            lambda p, x, y: anp.cumsum(sound(p, x, y), axis=-1),
            lambda p, x, y: sound(p, x, y) * np.arange(1, len(y) + 1),
            lambda p, x, y: sound(p, x, np.sort(y)),
        ],
    )
    def test_by_a_figure_or_a_place(self, refusal, function):
        message = refusal(normal(log_likelihood=function))
        assert message.startswith("log_likelihood lets records influence each other")

    @pytest.mark.parametrize(
        "function",
        [
            lambda p, x, y: sound(p, x, y) / len(y),
            lambda p, x, y: sound(p, x, y) - anp.mean(sound(p, x, y), axis=-1, keepdims=True),
        ],
    )
    def test_by_their_number_or_what_cancels_in_the_sum(self, refusal, function):
        message = refusal(normal(log_likelihood=function))
        assert message.startswith("log_likelihood gives a record another value when it is alone")

    @pytest.mark.parametrize(("outcome", "kind"), [("visits", "count"), ("colour", "categorical")])
    def test_with_other_outcomes(self, refusal, outcome, kind):
        model = normal(
            outcome=outcome,
            outcome_kind=kind,
            log_likelihood=lambda p, x, y: levels(p, x, y) * (1.0 + 0.1 * np.unique(y).size),
        )
        assert "influence each other" in refusal(model)


def writes_to_its_output(p, x, y):
    out = np.zeros((len(p["mean"]), len(y)))
    out[0] = sound(p, x, y)[0]
    return out


def writes_to_y(p, x, y):
    y -= 1.0
    return sound(p, x, y)


def writes_to_p(p, x, y):
    p["mean"][...] = 0.0
    return sound(p, x, y)


def adds_to_p(p, x, y):
    mean = p["mean"]
    mean += 1.0
    return sound(p, x, y)


class TestWhatAutodiffCannotFollow:
    @pytest.mark.parametrize(
        "function",
        [
            lambda p, x, y: sound(p, x, y) + np.log(np.asarray(p["sd"])),
            lambda p, x, y: np.asarray(sound(p, x, y), dtype=float),
            lambda p, x, y: sound(p, x, y) + np.log1p(np.asarray(p["sd"], dtype=float)),
            writes_to_its_output,
            writes_to_y,
            writes_to_p,
            adds_to_p,
        ],
    )
    def test_the_remedy_is_named(self, refusal, function):
        message = refusal(normal(log_likelihood=function))
        assert message.startswith("log_likelihood" if function.__name__ == "<lambda>" else function.__name__)
        assert "autograd.numpy" in message
        assert "without assignment" in message

    @pytest.mark.parametrize(
        "function",
        [
            lambda p: sound_prior(p) + np.log(np.asarray(p["sd"])),
            lambda p: np.asarray(sound_prior(p), dtype=float),
        ],
    )
    def test_in_the_prior_too(self, refusal, function):
        for moments in ({}, {"prior_mean": 0.0, "prior_sd": 1.0}):
            message = refusal(normal(log_prior=function, **moments))
            assert message.startswith("log_prior cannot be differentiated; write it with autograd.numpy")


def careless(p, x, y):
    return sound(p, x, y) + anp.log(p["mean"])


class TestValues:
    def test_a_likelihood_that_is_not_finite_at_the_prior(self, refusal):
        message = refusal(normal(log_likelihood=careless))
        assert message.startswith("careless is not finite at ordinary values of the parameters")
        assert "narrow the prior" in message

    def test_an_infinite_slope(self, refusal):
        def steep(p, x, y):
            return sound(p, x, y) - anp.sqrt(anp.abs(p["mean"] - p["mean"]))

        assert refusal(normal(log_likelihood=steep)).startswith("steep has a gradient that is not finite")

    @pytest.mark.parametrize("moments", [{}, {"prior_mean": 0.0, "prior_sd": 1.0}])
    def test_a_prior_that_is_not_finite(self, refusal, moments):
        message = refusal(normal(log_prior=lambda p: sound_prior(p) + anp.log(p["mean"]), **moments))
        assert message.startswith("log_prior is not finite at ordinary values of the parameters")

    def test_a_prior_with_an_infinite_slope(self, refusal):
        model = normal(log_prior=lambda p: sound_prior(p) - anp.sqrt(anp.abs(p["mean"] - p["mean"])))
        assert refusal(model).startswith("log_prior has a gradient that is not finite")

    @pytest.mark.parametrize(
        ("function", "name"),
        [
            (lambda p: np.zeros(len(p["mean"])), "mean"),
            (lambda p: -0.5 * p["mean"] ** 2, "sd"),
            (lambda p: -p["sd"], "mean"),
        ],
    )
    @pytest.mark.parametrize("moments", [{}, {"prior_mean": 0.0, "prior_sd": 1.0}])
    def test_a_prior_that_leaves_a_parameter_out(self, refusal, function, name, moments):
        message = refusal(normal(log_prior=function, **moments))
        assert message.startswith(f"log_prior does not depend on {name}: a flat prior there is improper")

    def test_flat_priors_on_bounded_supports_are_proper(self):
        chance = Parameter(name="chance", support="unit_interval")
        shares = Parameter(name="shares", support="simplex", dims=["level"], coords=[3])
        model = normal(
            outcome="colour",
            outcome_kind="categorical",
            parameters=[chance, shares],
            log_prior=lambda p: np.zeros(len(p["chance"])),
            log_likelihood=lambda p, x, y: anp.log(p["chance"] * p["shares"][..., 1]) * y,
        )
        check_model(ModelDescription(model=model, schema=SCHEMA, guide=na.MeanField()), num_draws=10)

    def test_a_likelihood_without_parameters(self, refusal):
        model = normal(log_likelihood=lambda p, x, y: np.zeros((len(p["mean"]), len(y))))
        assert refusal(model).startswith("log_likelihood does not depend on theta")

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_simulator_that_is_not_finite(self, refusal, value):
        model = normal(simulate=lambda p, x, rng: p["mean"] * value)
        # An infinite outcome is held to the column's bounds, as a cell of a table is.
        if np.isnan(value):
            assert refusal(model).startswith("simulate draws outcomes that are not finite")
        else:
            check_model(ModelDescription(model=model, schema=SCHEMA, guide=na.MeanField()), num_draws=10)


class TestCode:
    def test_a_misspelt_parameter(self, refusal):
        message = refusal(normal(log_likelihood=lambda p, x, y: sound(p, x, y) * p["maen"]))
        assert message == "a function of the model asks for p['maen']; its parameters are ['mean', 'sd']."

    @pytest.mark.parametrize(
        ("changes", "start"),
        [
            ({"log_likelihood": lambda p, x, y: {}["missing"]}, "log_likelihood failed on made-up records"),
            ({"log_likelihood": lambda p, y: y}, "log_likelihood failed on made-up records: TypeError"),
            ({"log_prior": lambda p: {}["missing"]}, "log_prior failed on made-up parameters (KeyError"),
            ({"simulate": lambda p, x, rng: {}["missing"]}, "simulate failed on made-up records: KeyError"),
        ],
    )
    def test_code_that_fails_outright(self, refusal, changes, start):
        assert refusal(normal(**changes)).startswith(start)

    def test_a_callable_without_a_name(self, refusal):
        class Density:
            def __call__(self, p, x, y):
                return 0.0

        assert refusal(normal(log_likelihood=Density())).startswith("log_likelihood must give one number")
