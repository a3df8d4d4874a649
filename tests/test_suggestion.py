"""Settings chosen for a model, a schema, a budget and a number of records, and the roads to them."""

import dataclasses
import json

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
from scipy import linalg
from typer.testing import CliRunner

import nadpvi as na
from nadpvi.cli.app import app
from nadpvi.cli.settings import config_from_options
from nadpvi.coverage import score_many
from nadpvi.description import ModelDescription
from nadpvi.encoding import encode_features
from nadpvi.errors import ArgumentError, ModelError
from nadpvi.experiments.blocks import Block
from nadpvi.experiments.configuration import load_experiment
from nadpvi.inference.many import exact_theta
from nadpvi.inference.methods import resolve_method
from nadpvi.made_up import made_up_table, prior_draws
from nadpvi.planning.predictive import predict_gradients, predict_information
from nadpvi.planning.resolve import resolve_config
from nadpvi.private.replicates import replicate_seeds, simulate_releases, simulate_tables

COLUMNS = {
    "dose": {"kind": "real", "lower": -2, "upper": 2},
    "ward": {"kind": "categorical", "levels": ["a", "b", "c"]},
    "well": {"kind": "binary", "levels": ["no", "yes"]},
    "wait": {"kind": "real", "lower": 0, "upper": 10},
    "visits": {"kind": "count", "lower": 0, "upper": 50},
    "die": {"kind": "categorical", "levels": ["1", "2", "3"]},
}
SCHEMA = na.Schema.from_dict({"columns": COLUMNS})
# Features in [0, 1] all go with the intercept.
STIFF = na.Schema.from_dict(
    {
        "columns": {
            **{f"x{index}": {"kind": "real", "lower": 0, "upper": 1} for index in range(6)},
            "well": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)
BUDGET = na.PrivacyBudget(epsilon=0.1, delta=1e-5)
LOOSE = na.PrivacyBudget(epsilon=3.0, delta=1e-5)
COIN = na.models.BernoulliBeta(outcome="well", prior_alpha=10.0, prior_beta=10.0)
WAIT = na.models.ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0)
LOGISTIC = na.models.LogisticRegression(outcome="well", predictors=["dose", "ward"])
VISITS = na.models.PoissonRegression(outcome="visits", predictors=["dose"], prior_sd=0.5)


def predicted(model, *, num_records=5000, seed=0, covariates=None):
    described = ModelDescription(model=model, schema=SCHEMA, guide=na.MeanField())
    rng = np.random.default_rng(seed)
    return predict_gradients(described, num_records=num_records, num_draws=10, rng=rng, covariates=covariates)


def coin_scores(config, *, count, num_records=5000):
    """Return scores of the coin's posterior over tables drawn from its prior."""
    seeds = [int(seed) for seed in replicate_seeds(11, num_replicates=count)]
    tables = simulate_tables(COIN, schema=SCHEMA, num_records=num_records, seeds=seeds)
    traces = simulate_releases(
        COIN, tables.outcomes, schema=SCHEMA, privacy=BUDGET, config=config, seeds=seeds
    )
    draws = exact_theta([traces.release(index) for index in range(count)], draws=200, seed=1)
    return score_many(draws, np.array(tables.theta), seeds=seeds, num_references=1)


class TestPredictive:
    def test_curvature_and_norms_are_those_of_the_model(self):
        """Waits are exponential with rate exp(theta): a record's score is 1 - rate * wait, of variance 1."""
        found = predicted(WAIT)
        prior_sd = WAIT.prior_moments(WAIT.design(SCHEMA))[1][0]
        assert found.typical[0] == pytest.approx(5000 + prior_sd**-2.0, rel=0.02)
        norms = np.abs(found.gradients)
        assert np.quantile(norms, 0.99) == pytest.approx(-np.log(0.01) - 1.0, rel=0.05)

    def test_curvature_of_a_regression_is_the_weighted_second_moment(self):
        described = ModelDescription(model=LOGISTIC, schema=SCHEMA, guide=na.MeanField())
        rng = np.random.default_rng(3)
        expected = []
        for theta in prior_draws(LOGISTIC, described.design, num_draws=200, rng=rng):
            x = encode_features(described.design, made_up_table(SCHEMA, num_records=500, rng=rng)).x
            p = 1.0 / (1.0 + np.exp(-x @ theta))
            expected.append(5000 / 500 * (x * (p * (1 - p))[:, None]).T @ x + np.eye(len(theta)))
        found = predicted(LOGISTIC).curvature.mean(axis=0)
        np.testing.assert_allclose(found, np.mean(expected, axis=0), rtol=0.06, atol=15)

    def test_public_predictors_take_the_place_of_made_up_ones(self):
        small = pd.DataFrame({"dose": [0.0, 0.0], "ward": ["a", "a"]})
        found = predicted(LOGISTIC, covariates=small)
        labels = list(LOGISTIC.design(SCHEMA).labels)
        for name in ("dose", "ward[b]", "ward[c]"):
            feature = encode_features(LOGISTIC.design(SCHEMA), small).x[:, labels.index(name)]
            # What no record has is told by the prior alone.
            assert (found.typical[labels.index(name)] == pytest.approx(1.0)) == (not feature.any())
        asked = []

        def simulator(count, rng):
            asked.append(count)
            return pd.DataFrame({"dose": rng.uniform(-1, 1, count), "ward": ["b"] * count})

        assert predicted(LOGISTIC, covariates=simulator).typical[labels.index("ward[a]")] == 1.0
        assert set(asked) == {2000}

    @pytest.mark.parametrize(
        ("covariates", "message"),
        [
            ("people.csv", "covariates must be a public DataFrame"),
            (pd.DataFrame({"dose": [], "ward": []}), "must have rows"),
            (pd.DataFrame({"dose": [0.0]}), 'lack the predictors "ward"'),
            (lambda count, rng: pd.DataFrame({"dose": [0.0], "ward": ["a"]}), "2000 rows asked for"),
        ],
    )
    def test_unsuitable_covariates_are_refused(self, covariates, message):
        with pytest.raises(ArgumentError, match=message):
            na.suggest_config(LOGISTIC, BUDGET, schema=SCHEMA, num_records=5000, covariates=covariates)


class TestSuggestion:
    def test_coins_are_calibrated_and_nearly_as_sharp_as_can_be(self):
        """The Gaussian mechanism on both counts leaves an sd of about 1.18 times the records' own.

        That is 0.033 where the records alone leave 0.028 (DESIGN section 9); published settings leave 0.070.
        """
        config = na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=5000)
        found = coin_scores(config, count=1200)
        published = coin_scores(na.published_config(COIN, schema=SCHEMA), count=200)
        assert 0.94 < found["z"].std() < 1.08
        assert abs(found["z"].mean()) < 0.1
        assert np.median(found["sd"]) < 0.6 * np.median(published["sd"])

    @pytest.mark.parametrize(("factor", "low", "high"), [(0.5, 0.97, 1.22), (2.0, 0.75, 1.03)])
    def test_a_guess_that_is_wrong_by_two_does_little_harm(self, factor, low, high):
        config = na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=int(5000 * factor))
        assert low < coin_scores(config, count=800)["z"].std() < high

    def test_clipping_takes_hardly_anything_of_any_tables_gradient(self):
        config = na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=5000)
        assert config.clip_norm < 1.0  # the bound that no coin's gradient exceeds
        shifts = []
        for p in np.random.default_rng(5).beta(10, 10, size=4000):
            # Of N records N p are 1, with gradient 1 - p, and the others 0, with -p; h is N p (1 - p) + 5.
            lost = p * max(1 - p - config.clip_norm, 0) - (1 - p) * max(p - config.clip_norm, 0)
            curvature = 5000 * p * (1 - p) + 5.0
            sigma = na.noise_multiplier(epsilon=0.1, delta=1e-5, num_steps=300, sampling_rate=0.1)
            noise = sigma * config.clip_norm / (0.1 * np.sqrt(240)) / curvature
            shifts.append(5000 * lost / curvature / np.sqrt(1 / curvature + noise**2))
        assert (
            np.sqrt(np.mean(np.square(shifts))) < 0.16
        )  # 0.05 is asked for, by the tables that were made up

    def test_iterates_relax_and_are_steady(self):
        """R^2 = n lambda kappa h / 2 is 14 for a single parameter, and the fastest direction stays slow."""
        coin = na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=5000)
        assert coin.num_steps == 300
        h = predicted(COIN, seed=9).typical[0]
        rate = coin.learning_rate * coin.learning_rate_factors["mu[probability]"]
        assert 240 * rate * coin.sampling_rate * h / 2 == pytest.approx(14, rel=0.03)
        wide = na.models.LogisticRegression(outcome="well")
        described = ModelDescription(model=wide, schema=STIFF, guide=na.MeanField())
        config = na.suggest_config(wide, LOOSE, schema=STIFF, num_records=9000)
        assert config.num_steps > 300
        factors = [config.learning_rate_factors[f"mu[{label}]"] for label in described.design.labels]
        steps = config.learning_rate * config.sampling_rate * np.array(factors)
        rng = np.random.default_rng(4)
        fresh = predict_gradients(described, num_records=9000, num_draws=10, rng=rng).curvature
        fastest = [linalg.eigvals(steps[:, None] * matrix).real.max() for matrix in fresh]
        assert 0.4 < np.quantile(fastest, 0.95) < 0.6

    def test_the_prior_bounds_the_scatter_where_the_noise_drowns(self):
        few = na.suggest_config(LOGISTIC, BUDGET, schema=SCHEMA, num_records=300)
        many = na.suggest_config(LOGISTIC, BUDGET, schema=SCHEMA, num_records=300_000)
        relaxed = [config.learning_rate * records for config, records in ((few, 300), (many, 300_000))]
        assert relaxed[0] < 0.2 * relaxed[1]

    def test_it_is_deterministic_and_an_ordinary_config(self):
        first = na.suggest_config(WAIT, BUDGET, schema=SCHEMA, num_records=5000)
        assert first == na.suggest_config(WAIT, BUDGET, schema=SCHEMA, num_records=5000)
        assert first != na.suggest_config(WAIT, BUDGET, schema=SCHEMA, num_records=9000)
        assert na.DPVIConfig.from_dict(json.loads(json.dumps(first.to_dict()))) == first

    def test_scales_that_are_drowned_stay_where_they_start(self):
        """A helper found runs that diverged: scales took steps as if the trace told them anything."""
        model = na.models.LinearRegression(outcome="wait", predictors=["dose"])
        rng = np.random.default_rng(0)
        table = pd.DataFrame({"dose": rng.uniform(-2, 2, 60), "wait": rng.uniform(0, 3, 60)})
        for seed in range(3):
            made = na.release(model, table, schema=SCHEMA, privacy=BUDGET, num_records=60, insecure_seed=seed)
            assert np.abs(made.phi).max() < 30

    def test_the_clip_norm_grows_with_what_the_preconditioner_adds(self):
        """Held to the locations' bound, 1.41, with a preconditioner of 1e5 it cut every gradient."""
        die = na.models.CategoricalDirichlet(outcome="die")
        budget = na.PrivacyBudget(epsilon=1.0, delta=1e-6)
        config = na.suggest_config(die, budget, schema=SCHEMA, num_records=5000)
        found = predicted(die)
        norms = np.hypot(linalg.norm(found.gradients, axis=2), config.preconditioner_u * found.scale_norms)
        assert (norms > config.clip_norm).mean() < 0.1

    def test_outcomes_beyond_their_bounds_do_not_decide(self):
        """A prior wider than the schema draws tables that clamping would make anything but the model's."""
        schema = na.Schema.from_dict(
            {"columns": {name: {"kind": "real", "lower": -9, "upper": 9} for name in ("dose", "wait")}}
        )
        wide = na.models.LinearRegression(outcome="wait", predictors=["dose"], prior_sd=20.0)
        described = ModelDescription(model=wide, schema=schema, guide=na.MeanField())
        found = predict_gradients(described, num_records=500, num_draws=4, rng=np.random.default_rng(1))
        typical = np.abs(found.gradients.mean(axis=1)) / found.gradients.std(axis=1)
        assert np.median(typical) < 0.1  # gradients vanish on average at the table's own parameters

    @pytest.mark.parametrize("of", ["gradients", "information"])
    def test_tables_beyond_the_bounds_are_left_out(self, of):
        """At coefficients of sd 7 some tables reach beyond 9, and beyond 900 none."""
        wide = na.models.LinearRegression(outcome="wait", predictors=["dose"], prior_sd=40.0)
        kept = []
        for bound in (9, 900):
            columns = {"dose": COLUMNS["dose"], "wait": {"kind": "real", "lower": -bound, "upper": bound}}
            schema = na.Schema.from_dict({"columns": columns})
            described, rng = (
                ModelDescription(model=wide, schema=schema, guide=na.MeanField()),
                np.random.default_rng(1),
            )
            if of == "gradients":
                found = predict_gradients(described, num_records=500, num_draws=4, rng=rng).gradients
            else:
                found = predict_information(described, rng=rng)
            kept.append(len(found))
        assert 0.5 * kept[1] < kept[0] < 0.95 * kept[1]

    def test_a_loose_budget_raises_the_sampling_rate(self):
        """At epsilon 10 and rate 0.1, 300 steps would leave the regime in which subsampling pays."""
        loose = na.PrivacyBudget(epsilon=10.0, delta=1e-5)
        config = na.suggest_config(COIN, loose, schema=SCHEMA, num_records=5000)
        shared = {"num_steps": config.num_steps, "sampling_rate": config.sampling_rate}
        assert config.sampling_rate > 0.1
        assert na.noise_multiplier(epsilon=10.0, delta=1e-5, **shared) >= 1.5

    def test_regressions_release_their_curvature_and_others_do_not(self):
        for model in (LOGISTIC, VISITS):
            assert na.suggest_config(model, BUDGET, schema=SCHEMA, num_records=5000).curvature_share == 0.2
        wide = {name: {"kind": "real", "lower": -9, "upper": 9, "feature_range": [-9, 9]} for name in "ab"}
        schema = na.Schema.from_dict({"columns": wide | {"well": {"kind": "binary", "levels": ["n", "y"]}}})

        def narrow(num_records, rng):
            return pd.DataFrame(rng.standard_normal((num_records, 2)), columns=["a", "b"])

        settings = {"schema": schema, "num_records": 5000}
        found = na.suggest_config(na.models.LogisticRegression(outcome="well"), BUDGET, **settings)
        assert found.curvature_share == 0.2
        found = na.suggest_config(
            na.models.LogisticRegression(outcome="well"), BUDGET, covariates=narrow, **settings
        )
        assert found.curvature_share == 0.0  # no record is near the bounds that its noise is for
        for model, guide in ((COIN, None), (LOGISTIC, na.FullRank())):
            config = na.suggest_config(model, BUDGET, schema=SCHEMA, num_records=5000, guide=guide)
            assert config.curvature_share == 0.0
            assert guide is None or config.guide == guide

    def test_python_keeps_the_pace_as_the_command_line_does(self):
        chosen = na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=5000)
        found = na.with_kept_pace(chosen, num_steps=600, preconditioner_u=chosen.preconditioner_u / 2)
        by_option = config_from_options(
            COIN,
            BUDGET,
            schema=SCHEMA,
            settings=None,
            num_records=5000,
            prior_term="public",
            num_steps=600,
            preconditioner_u=chosen.preconditioner_u / 2,
        )
        assert found == by_option
        assert found.learning_rate == pytest.approx(chosen.learning_rate / 2)
        replaced = dataclasses.replace(chosen, num_steps=600)
        assert replaced.learning_rate == chosen.learning_rate

    def test_a_variance_is_held_back_until_the_coefficients_are_near(self):
        model = na.models.LinearRegression(outcome="wait", predictors=["dose"])
        chosen = na.suggest_config(model, BUDGET, schema=SCHEMA, num_records=5000)
        assert (chosen.num_steps, chosen.early_steps) == (300, 40)
        assert set(chosen.early_factors) == {"mu[variance]", "u[variance]"}
        assert max(chosen.early_factors.values()) < 0.01
        # Each scale starts where its own curvature is expected: that of a log variance is about N / 2.
        assert chosen.initial_u["variance"] == pytest.approx(np.log(2500.0**-0.5), abs=0.1)
        assert chosen.initial_u["dose"] < chosen.initial_u["variance"] - 1.0
        shorter = na.with_kept_pace(chosen, num_steps=50)
        assert (shorter.early_steps, shorter.early_factors) == (6, chosen.early_factors)
        coin = na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=5000)
        assert (coin.early_steps, coin.early_factors) == (0, None)

    @pytest.mark.filterwarnings("ignore::nadpvi.StationarityWarning", "ignore::nadpvi.GradientModelWarning")
    @pytest.mark.parametrize(("epsilon", "widest"), [(0.3, 1.8), (1.0, 1.6)])
    def test_a_linear_regression_is_calibrated(self, epsilon, widest):
        # Of log s2 the rms was 3.7 at epsilon 0.3 while it was free from the start.
        task = load_experiment("linear-regression").tasks()[0]
        changes = {"epsilon": epsilon, "count": 10, "settings": {"suggested": True}, "infer": {}}
        block = Block({**task.settings, **changes}, seed=11)
        z = []
        for made, truth in zip(block.releases, block.theta, strict=True):
            posterior = na.infer(made, method="exact", draws=100, seed=1, phi_star_prior="model")
            assert posterior.settings["curvature_prior"] == "tighter"
            theta = posterior.theta().reshape(-1, 12)
            z.append((truth - theta.mean(axis=0)) / theta.std(axis=0))
        rms = np.sqrt(np.mean(np.square(z), axis=0))
        assert 0.7 < np.sqrt(np.mean(rms[:11] ** 2)) < 1.3
        assert rms[11] < widest

    def test_what_cannot_simulate_is_refused(self):
        silent = na.models.CustomModel(
            name="silent",
            outcome="wait",
            parameters=[na.models.Parameter(name="rate", support="positive")],
            log_prior=lambda p: -p["rate"],
            log_likelihood=lambda p, x, y: anp.log(p["rate"]) - p["rate"] * y,
        )
        with pytest.raises(ModelError, match="cannot simulate"):
            na.suggest_config(silent, BUDGET, schema=SCHEMA, num_records=100)

    @pytest.mark.parametrize("num_records", [0, -3, 2.5, "many"])
    def test_num_records_is_checked(self, num_records):
        with pytest.raises(ArgumentError, match="num_records"):
            na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=num_records)


class TestResolving:
    def test_given_settings_are_taken_as_they_are(self):
        given = na.DPVIConfig(num_steps=77)
        assert resolve_config(COIN, BUDGET, given, schema=SCHEMA) is given
        assert resolve_config(COIN, BUDGET, schema=SCHEMA) == na.DPVIConfig()
        found = resolve_config(COIN, BUDGET, schema=SCHEMA, settings="published")
        assert (found.num_steps, found.clip_norm, found.preconditioner_u) == (10_000, 2.0, 120.0)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"config": na.DPVIConfig(), "num_records": 10}, "num_records chooses settings"),
            ({"config": na.DPVIConfig(), "settings": "published"}, "settings chooses settings"),
            ({"settings": "best"}, "settings must be one of"),
            ({"settings": "suggested"}, "needs num_records"),
            ({"settings": "published", "num_records": 10}, "leave it out"),
            ({"covariates": pd.DataFrame({"dose": [1.0]})}, "leave it out"),
        ],
    )
    def test_contradictions_are_refused_before_a_table_is_opened(self, arguments, message):
        with pytest.raises(ArgumentError, match=message):
            na.release(COIN, "no such table.csv", schema=SCHEMA, privacy=BUDGET, **arguments)

    def test_the_paper_has_settings_for_some_models_only(self):
        with pytest.raises(ArgumentError, match="give num_records"):
            na.published_config(VISITS, schema=SCHEMA)
        linear = na.models.LinearRegression(outcome="wait", predictors=["dose"])
        found = na.published_config(linear, schema=SCHEMA)
        assert found.initial_mu == {"Intercept": 1.0, "dose": 1.0, "variance": -4.0}
        assert found.learning_rate_factors == {"mu[variance]": 1 / 7}

    def test_a_release_holds_the_settings_that_were_chosen(self):
        table = pd.DataFrame({"well": ["no", "yes"] * 200})
        made = na.release(COIN, table, schema=SCHEMA, privacy=BUDGET, num_records=500, insecure_seed=1)
        assert made.config == na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=500)

    def test_what_the_settings_rest_on_is_assumed_public(self, tmp_path):
        table = pd.DataFrame({"well": ["no", "yes"] * 200})
        made = na.release(COIN, table, schema=SCHEMA, privacy=BUDGET, num_records=567, insecure_seed=1)
        assert any("567" in item for item in made.guarantee.assumed_public)
        made.save(tmp_path / "r.nc")
        assert na.Release.load(tmp_path / "r.nc").config.suggested_for == 567
        silent = dataclasses.replace(made.guarantee, assumed_public=("schema",))
        with pytest.raises(ArgumentError, match="number of records, 567"):
            dataclasses.replace(made, guarantee=silent)

    def test_the_private_table_is_no_source_of_settings(self):
        table = pd.DataFrame({"dose": [0.0, 1.0], "ward": ["a", "b"], "well": ["no", "yes"]})
        with pytest.raises(ArgumentError, match="private table"):
            na.release(LOGISTIC, table, schema=SCHEMA, privacy=BUDGET, num_records=100, covariates=table)

    def test_a_model_without_a_bound_needs_no_clip_norm_then(self):
        rng = np.random.default_rng(0)
        table = pd.DataFrame({"dose": rng.uniform(-2, 2, 300), "visits": rng.integers(0, 9, 300)})
        arguments = {"schema": SCHEMA, "privacy": BUDGET, "insecure_seed": 1}
        with pytest.raises(ArgumentError, match="give num_records"):
            na.release(VISITS, table, **arguments)
        assert na.release(VISITS, table, num_records=300, **arguments).clip_norm > 0

    def test_plan_and_release_choose_alike(self):
        chosen = na.suggest_config(COIN, BUDGET, schema=SCHEMA, num_records=800)
        planned = na.plan(COIN, BUDGET, schema=SCHEMA, num_records=800, measure_time=False)
        assert (planned.clip_norm, planned.num_steps) == (chosen.clip_norm, chosen.num_steps)
        assert planned.preconditioner_u == chosen.preconditioner_u
        assert planned.initial_u.tolist() == list(chosen.initial_u.values())
        assert "suggested for 800 records" in planned.report()
        assert "curvature:         not released" in planned.report()
        given = na.plan(
            LOGISTIC,
            BUDGET,
            na.DPVIConfig(curvature_share=0.2),
            schema=SCHEMA,
            num_records=800,
            measure_time=False,
        )
        assert "as given" in given.report()
        assert "released, for 20% of the budget" in given.report()


class TestCommandLine:
    @pytest.fixture
    def files(self, tmp_path):
        (tmp_path / "s.toml").write_text(
            '[columns.well]\nkind = "binary"\nlevels = ["no", "yes"]\n\n'
            '[columns.dose]\nkind = "real"\nlower = -2\nupper = 2\n'
        )
        rng = np.random.default_rng(0)
        frame = pd.DataFrame({"well": rng.choice(["no", "yes"], 400), "dose": rng.uniform(-2, 2, 400)})
        frame.to_csv(tmp_path / "t.csv", index=False)
        return tmp_path

    def run(self, files, *options):
        shared = ["--schema", str(files / "s.toml"), "--outcome", "well", "--epsilon", "1", "--delta", "1e-5"]
        return CliRunner().invoke(app, [*options, *shared])

    def test_num_records_chooses_settings_and_options_replace_them(self, files):
        out = files / "r.nc"
        done = self.run(
            files,
            "release",
            str(files / "t.csv"),
            "-o",
            str(out),
            "--num-records",
            "400",
            "--steps",
            "120",
            "-q",
        )
        assert done.exit_code == 0, done.output
        made = na.Release.load(out)
        model = na.models.LogisticRegression(outcome="well")
        chosen = na.suggest_config(
            model,
            na.PrivacyBudget(epsilon=1, delta=1e-5),
            schema=na.Schema.from_toml(files / "s.toml"),
            num_records=400,
        )
        assert made.config == dataclasses.replace(chosen, num_steps=120)
        assert made.curvature is not None

    def test_replaced_options_keep_the_pace(self, files):
        out = files / "r.nc"
        table = str(files / "t.csv")
        options = ("--sampling-rate", "0.5", "--preconditioner-u", "20", "--steps", "600")
        done = self.run(files, "release", table, "-o", str(out), "--num-records", "400", *options, "-q")
        assert done.exit_code == 0, done.output
        found = na.Release.load(out).config
        chosen = na.suggest_config(
            na.models.LogisticRegression(outcome="well"),
            na.PrivacyBudget(epsilon=1, delta=1e-5),
            schema=na.Schema.from_toml(files / "s.toml"),
            num_records=400,
        )

        def pace(config, label):
            step = config.learning_rate * config.learning_rate_factors[label] * config.sampling_rate
            weight = config.preconditioner_u if label.startswith("u[") else 1.0
            return step * weight * config.num_steps

        for label in ("mu[dose]", "u[dose]"):
            assert pace(found, label) == pytest.approx(pace(chosen, label))

    def test_published_settings_go_by_name(self, files):
        out = files / "r.nc"
        table = str(files / "t.csv")
        done = self.run(
            files, "release", table, "-o", str(out), "--settings", "published", "--steps", "50", "-q"
        )
        assert done.exit_code == 0, done.output
        assert na.Release.load(out).config.clip_norm == 11.0
        done = self.run(files, "release", table, "-o", str(files / "x.nc"), "--settings", "best")
        assert done.exit_code != 0
        assert "settings must be one of" in str(done.exception)

    def test_fit_uses_the_curvature_that_it_released(self, files):
        done = self.run(
            files,
            "fit",
            str(files / "t.csv"),
            *("--release", str(files / "r.nc"), "-o", str(files / "p.nc")),
            *("--num-records", "400", "--draws", "20", "--warmup", "20", "--seed", "1", "-q"),
        )
        assert done.exit_code == 0, done.output
        settings = na.Posterior.load(files / "p.nc").settings
        assert (settings["method"], settings["phi_star_prior"]) == ("dense", "model")


class TestMethod:
    @pytest.mark.parametrize(
        ("method", "prior", "has_curvature", "engine", "expected"),
        [
            ("auto", None, False, "auto", ("nuts", "trace")),
            ("auto", None, True, "auto", ("dense", "model")),
            ("auto", "trace", True, "auto", ("dense", "trace")),
            ("auto", None, True, "stanli", ("nuts", "trace")),
            ("exact", None, True, "auto", ("exact", "trace")),
            ("dense", "model", False, "auto", ("dense", "model")),
        ],
    )
    def test_auto(self, method, prior, has_curvature, engine, expected):
        found = resolve_method(method, phi_star_prior=prior, has_curvature=has_curvature, engine=engine)
        assert found == expected

    def test_unknown_names_are_refused(self):
        with pytest.raises(ArgumentError, match="'auto', 'nuts'"):
            resolve_method("gibbs", phi_star_prior=None, has_curvature=False)
