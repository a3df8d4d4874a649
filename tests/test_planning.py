"""Plans: their mathematics against other routes, their forecasts against the engine, and their warnings."""

import dataclasses
import json
import math

import numpy as np
import pytest
import typer
from scipy import linalg
from typer.testing import CliRunner
from whole_run import whole_trace

import nadpvi as na
from nadpvi.bijectors import softplus
from nadpvi.cli.described import RunOptions
from nadpvi.cli.groups import with_groups
from nadpvi.cli.plan import PlannedRun
from nadpvi.cli.plan import plan as plan_command
from nadpvi.cli.run import CuratorOptions
from nadpvi.coverage import gaussian_mechanism_optimum
from nadpvi.description import ModelDescription
from nadpvi.guides import MeanField
from nadpvi.guides.antithetic import antithetic, draw_antithetic, num_independent
from nadpvi.made_up import made_up_records, prior_draws
from nadpvi.mechanism import make_mechanism
from nadpvi.models import LogisticRegression, RecordBatch
from nadpvi.planning.curvature import (
    clipping_norms,
    expected_information,
    scale_optimum,
)
from nadpvi.planning.expectations import location_spread, step_covariance, typical_information
from nadpvi.planning.plan import plan
from nadpvi.planning.predictive import predict_information
from nadpvi.planning.timing import time_run
from nadpvi.planning.wording import shown_names
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.records import Records
from nadpvi.settings import make_settings

MODEL = LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-6)


def make_plan(schema, *, model=MODEL, privacy=BUDGET, num_records=20_000, **settings):
    # At sampling rate 1 the accountant has a closed form.
    config = na.DPVIConfig(**{"num_steps": 300, "sampling_rate": 1.0, **settings})
    return plan(model, privacy, config, schema=schema, num_records=num_records, measure_time=False)


@pytest.fixture
def described(schema):
    return ModelDescription(model=MODEL, schema=schema, guide=MeanField())


class TestExpectedCurvature:
    def test_information_is_the_mean_second_derivative(self, described):
        from autograd import hessian

        information = expected_information(described, rng=np.random.default_rng(0))
        rng = np.random.default_rng(1)
        theta = prior_draws(MODEL, described.design, num_draws=20_000, rng=rng)
        batch = made_up_records(MODEL, described.design, theta=theta, num_records=20_000, rng=rng)
        curvature = (
            -hessian(lambda shift: MODEL.log_likelihood(theta + shift, batch).sum())(np.zeros(6)) / 20_000
        )
        # Entries are means of numbers in [0, 1] over 20,000 rows: six standard errors are below 0.013.
        np.testing.assert_allclose(information, curvature, atol=0.013)
        assert np.abs(information - 1.5 * curvature).max() > 0.05

    @pytest.mark.parametrize("scale", ["sd", "variance"])
    @pytest.mark.parametrize("curvature", [0.3, 4.0, 1e4])
    def test_scales_settle_and_bend_as_stated(self, scale, curvature):
        guide = MeanField(scale=scale)

        def loss(u):
            spread = guide.standard_deviation(np.array([0.0, u]))[0]
            return curvature * spread**2 / 2 - math.log(spread)

        u = scale_optimum(guide, np.array([curvature]))[0]
        h = 1e-3
        slope = (loss(u + h) - loss(u - h)) / (2 * h)
        bend = (loss(u + h) - 2 * loss(u) + loss(u - h)) / h**2
        assert abs(slope) < 1e-5
        assert guide.scale_curvature(np.array([u]))[0] == pytest.approx(bend, rel=1e-4)

    def test_clipping_norms_are_those_of_the_engine(self, schema, described):
        from nadpvi.private.gradients import autograd_route

        settings = make_settings(described, na.DPVIConfig(monte_carlo_samples=3), noise_multiplier=10.0)
        curvature = np.linspace(20.0, 900.0, 6)
        found = clipping_norms(settings, curvature=curvature, rng=np.random.default_rng(3), num_batches=1)
        rng = np.random.default_rng(3)
        theta = prior_draws(MODEL, described.design, num_draws=len(found), rng=rng)
        batch = made_up_records(MODEL, described.design, theta=theta, num_records=len(found), rng=rng)
        noise = draw_antithetic(rng, num_draws=3, size=6)
        for b in range(5):
            gradients = autograd_route(
                MODEL,
                guide=described.guide,
                phi=np.concatenate([theta[b], scale_optimum(described.guide, curvature)]),
                standard_normal=noise,
                preconditioner=settings.preconditioner,
            )(RecordBatch(x=batch.x[b : b + 1], y=batch.y[b : b + 1]))
            assert found[b] == pytest.approx(math.sqrt(gradients.squared_norms()[0]), rel=1e-10)


class TestLocationSpread:
    """The whitened formulas against the plain ones, where plain ones exist."""

    RECORDS, STEPS, RATE = 700, 80, 0.2

    def parts(self, noise=30.0):
        rng = np.random.default_rng(4)
        root = rng.normal(size=(5, 5)) * np.array([1.0, 0.5, 0.3, 0.1, 0.05])
        information, prior_sd = root @ root.T / 5, np.array([1.0, 2.0, 0.3, 1.0, 5.0])
        curvature = self.RECORDS * information + np.diag(prior_sd**-2)
        rough = rng.normal(size=(5, 5))
        return information, prior_sd, curvature, noise**2 * (np.eye(5) + 0.1 * rough @ rough.T)

    def spread(self, information, prior_sd, covariance):
        return location_spread(
            information,
            prior_sd=prior_sd,
            covariance=covariance,
            num_records=self.RECORDS,
            num_window_steps=self.STEPS,
            sampling_rate=self.RATE,
        )

    def test_equals_conditioning_in_the_joint_normal_of_theta_and_the_estimate(self):
        information, prior_sd, curvature, covariance = self.parts()
        found = self.spread(information, prior_sd, covariance)
        posterior = linalg.inv(curvature)
        trace = posterior @ covariance @ posterior / (self.STEPS * self.RATE**2)
        prior = np.diag(prior_sd**2)
        signal = prior - posterior  # variance of the optimum under the prior; its covariance with theta too
        private = prior - signal @ linalg.solve(signal + trace, signal)
        np.testing.assert_allclose(found.non_private, np.diag(posterior), rtol=1e-9)
        np.testing.assert_allclose(found.trace, np.diag(trace), rtol=1e-9)
        np.testing.assert_allclose(found.learnable, np.diag(signal), rtol=1e-8)
        np.testing.assert_allclose(found.non_private + found.added, np.diag(private), rtol=1e-8)

    def test_no_noise_adds_nothing_and_endless_noise_returns_the_prior(self):
        information, prior_sd, _, covariance = self.parts()
        quiet = self.spread(information, prior_sd, 1e-12 * covariance)
        assert (quiet.added < 1e-10).all()
        loud = self.spread(information, prior_sd, 1e12 * covariance)
        np.testing.assert_allclose(loud.non_private + loud.added, prior_sd**2, rtol=1e-6)

    def test_a_direction_that_records_are_silent_about_is_not_charged_to_the_noise(self):
        # Two features that always sum to one: their common shift is the intercept's.
        direction = np.array([1.0, -0.5, -0.5])
        information = np.outer(direction, direction)
        found = self.spread(information, np.ones(3), 100.0 * np.eye(3))
        assert (found.added <= found.learnable).all()
        null = self.spread(np.zeros((3, 3)), np.ones(3), 100.0 * np.eye(3))
        np.testing.assert_allclose(null.added, 0.0)
        np.testing.assert_allclose(null.non_private, 1.0)

    def test_more_noise_never_narrows(self):
        information, prior_sd, _, covariance = self.parts()
        added = [self.spread(information, prior_sd, factor * covariance).added for factor in (0.1, 1, 10)]
        assert (np.diff(added, axis=0) >= 0).all()


class TestAgainstTheEngine:
    """The forecast of the optimum's spread, against least squares on traces of the real engine."""

    SCHEMA = na.Schema.from_dict(
        {
            "columns": {
                "age": {"kind": "real", "lower": 0, "upper": 100},
                "sex": {"kind": "binary", "levels": ["f", "m"]},
                "y": {"kind": "binary", "levels": ["no", "yes"]},
            }
        }
    )
    # A narrow prior, so that the curvature at the prior is that of the one table drawn.
    MODEL = LogisticRegression(outcome="y", prior_sd=0.25)
    CONFIG = na.DPVIConfig(
        num_steps=120, sampling_rate=0.3, preconditioner_u=20.0, learning_rate_constant=5.0, initial_u=-2.0
    )
    RECORDS, SEEDS, WINDOW = 1200, 60, 96

    def estimates(self):
        """Optimum of the locations by regression of gradients on iterates, one row a seed; same table."""
        described = ModelDescription(model=self.MODEL, schema=self.SCHEMA, guide=self.CONFIG.guide)
        rng = np.random.default_rng(0)
        theta = prior_draws(self.MODEL, described.design, num_draws=1, rng=rng)[0]
        made = made_up_records(self.MODEL, described.design, theta=theta, num_records=self.RECORDS, rng=rng)
        records = Records(x=made.x, y=made.y)
        mechanism = make_mechanism(described, privacy=BUDGET, config=self.CONFIG)
        rows = []
        for seed in range(self.SEEDS):
            streams = make_streams(insecure_seed=seed)
            noise = mechanism.noise_source(streams, num_steps=self.CONFIG.num_steps)
            trace = whole_trace(records, mechanism.settings, noise=noise, streams=streams)
            phi = trace.phi[-self.WINDOW :, :3]
            gradient = trace.noisy_gradient[-self.WINDOW :, :3]
            design = np.column_stack([np.ones(self.WINDOW), phi])
            fitted = linalg.lstsq(design, gradient)[0]
            rows.append(-linalg.solve(fitted[1:].T, fitted[0]))
        return np.array(rows)

    def test_spread_of_the_optimum(self):
        made = plan(
            self.MODEL,
            BUDGET,
            self.CONFIG,
            schema=self.SCHEMA,
            num_records=self.RECORDS,
            measure_time=False,
        )
        assert made.num_window_steps == self.WINDOW
        found = self.estimates().std(axis=0, ddof=1)
        ratio = found / made.trace_sd
        # An sd from 60 runs is known to 9 %; that the regression learns the curvature too adds some.
        np.testing.assert_allclose(ratio, 1.0, atol=0.3)
        assert np.abs(ratio / 1.6 - 1.0).max() > 0.3
        assert np.abs(ratio * 1.6 - 1.0).max() > 0.3


class TestPlan:
    def test_settings_are_those_of_a_release(self, schema, table):
        made = make_plan(schema, num_steps=40, privacy=na.PrivacyBudget(epsilon=2.0, delta=1e-5))
        released = na.release(
            MODEL,
            table,
            schema=schema,
            privacy=na.PrivacyBudget(epsilon=2.0, delta=1e-5),
            config=na.DPVIConfig(num_steps=40, sampling_rate=1.0),
            insecure_seed=1,
        )
        assert made.noise_multiplier == released.noise_multiplier
        assert made.clip_norm == released.clip_norm
        assert made.phi_labels == released.phi_labels
        assert (made.epsilon, made.delta) == (2.0, 1e-5)
        np.testing.assert_array_equal(made.learning_rate, released.learning_rate)
        np.testing.assert_array_equal(made.noise_std, released.noise_std)

    @pytest.mark.parametrize("num_steps", [20, 700])
    def test_file_size_is_that_of_a_real_file(self, schema, table, tmp_path, num_steps):
        made = make_plan(schema, num_steps=num_steps)
        released = na.release(
            MODEL,
            table,
            schema=schema,
            privacy=BUDGET,
            config=na.DPVIConfig(num_steps=num_steps, sampling_rate=1.0),
        )
        size = released.save(tmp_path / "release.nc").stat().st_size
        assert made.file_bytes == pytest.approx(size, rel=0.1)

    def test_variances_add_up_and_stay_below_the_prior(self, schema):
        made = make_plan(schema)
        np.testing.assert_allclose(made.private_sd**2, made.non_private_sd**2 + made.noise_sd**2)
        assert (made.private_sd <= made.prior_sd * (1 + 1e-9)).all()
        assert (made.non_private_sd > 0).all()

    def test_noise_falls_with_records_and_epsilon(self, schema):
        few, many = (make_plan(schema, num_records=n) for n in (5_000, 50_000))
        assert (many.noise_sd < few.noise_sd).all()
        generous = make_plan(schema, num_records=5_000, privacy=na.PrivacyBudget(epsilon=8.0, delta=1e-6))
        assert (generous.noise_sd < few.noise_sd).all()
        np.testing.assert_allclose(many.margin / few.margin, 10.0, rtol=1e-9)

    @pytest.mark.parametrize("prior_sd", [0.3, 1.0, 4.0])
    def test_a_parameter_at_its_margin_loses_half_its_signal(self, prior_sd):
        # One coefficient and no prior noise to speak of: margin 1 is where noise equals signal.
        schema = na.Schema.from_dict({"columns": {"y": {"kind": "binary", "levels": ["no", "yes"]}}})
        strict = na.PrivacyBudget(epsilon=0.05, delta=1e-6)
        model = LogisticRegression(outcome="y", prior_sd=prior_sd)
        first = make_plan(schema, num_records=100, privacy=strict, model=model)
        limit = round(100 / first.margin[0])
        at_limit = make_plan(schema, num_records=limit, privacy=strict, model=model)
        assert at_limit.margin[0] == pytest.approx(1.0, rel=0.02)
        learnable = at_limit.prior_sd**2 - at_limit.non_private_sd**2
        assert at_limit.noise_sd[0] ** 2 / learnable[0] == pytest.approx(0.5, abs=0.02)

    def test_how_many_records_a_level_needs(self, schema):
        # Levels of one column need the same number, whatever N is assumed.
        few, many = (make_plan(schema, num_records=n) for n in (5_000, 50_000))
        assert few.drowning_count == pytest.approx(many.drowning_count, rel=1e-6)
        without = LogisticRegression(outcome="y", predictors=("age",))
        assert make_plan(schema, model=without).drowning_count is None

    def test_persons_multiply_the_noise(self, schema):
        data = schema.to_dict()
        columns = {entry.pop("name"): entry for entry in map(dict, data["columns"])}
        persons = na.Schema.from_dict({"columns": columns, "person": {"column": "who", "max_rows": 3}})
        single, several = make_plan(schema), make_plan(persons)
        assert several.noise_multiplier == pytest.approx(3 * single.noise_multiplier, rel=1e-3)

    def test_a_run_without_noise(self, schema):
        made = make_plan(schema, privacy=na.NonPrivate(), learning_rate=1e-4)
        assert made.noise_multiplier == 0.0
        assert (made.noise_sd < 0.1 * made.non_private_sd).all()
        assert made.epsilon == math.inf
        assert "not be private" in str(made)
        json.dumps(made.to_dict(), allow_nan=False)
        with pytest.raises(na.ArgumentError, match="learning_rate must be given"):
            make_plan(schema, privacy=na.NonPrivate())

    def test_two_plans_are_equal_and_cannot_be_changed(self, schema):
        first, second = make_plan(schema), make_plan(schema)
        assert json.dumps(first.to_dict()) == json.dumps(second.to_dict())
        with pytest.raises(ValueError, match="read-only"):
            first.noise_sd[0] = 0.0
        with pytest.raises(dataclasses.FrozenInstanceError):
            first.epsilon = 2.0

    def test_table_and_report(self, schema):
        made = make_plan(schema)
        frame = made.to_frame()
        assert list(frame.index) == list(made.names)
        np.testing.assert_allclose(frame["noise_over_prior"] * frame["prior_sd"], frame["noise_sd"])
        np.testing.assert_allclose(
            (1.0 - frame["privacy_share"]) * frame["private_sd"] ** 2, frame["non_private_sd"] ** 2
        )
        text = str(made)
        for word in ("noise multiplier", "learning rate", "relaxation", "release file", "job[b]"):
            assert word in text
        assert all(line in text for line in made.warnings)

    def test_what_the_budget_cannot_inform_is_named(self, schema):
        made = make_plan(schema, num_records=100)
        expected = [
            name
            for name, after, before in zip(made.names, made.private_sd, made.prior_sd, strict=True)
            if after > 0.9 * before
        ]
        assert 0 < len(expected) < len(made.names)
        assert made.uninformed == tuple(expected)
        assert made.to_dict()["uninformed"] == expected
        assert list(made.to_frame().query("not informed").index) == expected
        line = next(line for line in made.report().splitlines() if line.startswith("not informed:"))
        assert f"{len(expected)} of {len(made.names)}" in line
        assert all(name in line for name in expected)
        assert all(name in made._repr_html_() for name in expected)
        told = make_plan(schema, num_records=10**6)
        assert told.uninformed == ()
        assert "not informed:      none" in told.report()

    def test_sds_are_those_of_a_typical_table(self):
        """Counts of rate exp(theta), theta ~ N(0, 1): the median table tells N, the average 1.65 N."""
        counts = na.Schema.from_dict({"columns": {"y": {"kind": "count", "upper": 200}}})
        model = na.models.PoissonRegression(outcome="y", prior_sd=1.0)
        made = make_plan(counts, model=model, privacy=na.NonPrivate(), learning_rate=1e-5, clip_norm=9.0)
        # A median of 101 tables is known to 6 %, and that of the average would be 22 % smaller.
        assert made.non_private_sd.item() == pytest.approx(20_000**-0.5, rel=0.12)
        assert made.margin.item() > 1.0

    def test_a_typical_table_goes_together_as_the_average_does(self, described):
        """A matrix of few records would be silent about directions where parameters are many."""
        average = expected_information(described, rng=np.random.default_rng(0))
        typical = typical_information(described, average, rng=np.random.default_rng(1))
        medians = np.median(predict_information(described, rng=np.random.default_rng(1)), axis=0)
        np.testing.assert_allclose(np.diag(typical), medians)
        root = np.sqrt(np.diag(typical) / np.diag(average))
        np.testing.assert_allclose(typical / np.outer(root, root), average)

    @pytest.mark.parametrize("scale", ["sd", "variance"])
    def test_relaxation_is_that_of_the_curvature(self, schema, scale):
        made = make_plan(schema, guide=MeanField(scale=scale))
        config = na.DPVIConfig(guide=MeanField(scale=scale))
        described = ModelDescription(model=MODEL, schema=schema, guide=config.guide)
        tables = predict_information(described, rng=np.random.default_rng(0).spawn(1)[0])
        assert tables.shape == (101, 6)
        curvature = 20_000 * np.median(tables, axis=0) + 1.0
        np.testing.assert_allclose(
            made.relaxation_steps[:6], 1 / (made.learning_rate[:6] * curvature), rtol=1e-9
        )
        u = scale_optimum(config.guide, curvature)
        spread = config.guide.standard_deviation(np.concatenate([np.zeros(6), u]))
        np.testing.assert_allclose(spread, curvature**-0.5, rtol=1e-9)
        h = 1e-5
        slope = (np.log(softplus(u + h)) - np.log(softplus(u - h))) / (2 * h)
        bend = 2 * (slope if scale == "sd" else slope / 2) ** 2
        np.testing.assert_allclose(made.relaxation_steps[6:], 1 / (made.learning_rate[6:] * bend), rtol=1e-6)


class TestOptimum:
    SCHEMA = na.Schema.from_dict(
        {
            "columns": {
                "well": {"kind": "binary", "levels": ["no", "yes"]},
                "die": {"kind": "categorical", "levels": ["1", "2", "3"]},
                "wait": {"kind": "real", "lower": 0, "upper": 5},
            }
        }
    )
    COIN = na.models.BernoulliBeta(outcome="well", prior_alpha=40.0, prior_beta=40.0)
    STRICT = na.PrivacyBudget(epsilon=0.1, delta=1e-5)

    @pytest.mark.parametrize(("clip_norm", "factor"), [(0.75, 1.0), (3.0, 4.0)])
    def test_ratio_is_that_of_the_noise(self, clip_norm, factor):
        """Near p = 1/2 the optimum's variance is 4 / N + (2 sqrt 2 s / N)^2, s the noise of a count."""
        made = make_plan(
            self.SCHEMA, model=self.COIN, privacy=self.STRICT, num_records=5000, clip_norm=clip_norm
        )
        s = gaussian_mechanism_optimum(
            "bernoulli_beta", [[1, 1]], prior=[1, 1], epsilon=0.1, delta=1e-5, seed=0
        ).noise_std
        # The prior, worth 80 records, takes off next to nothing.
        by_hand = math.sqrt(4.0 / 5000 + 8.0 * s**2 / 5000**2)
        assert made.optimum_sd.item() == pytest.approx(by_hand, rel=0.04)
        np.testing.assert_array_equal(made.over_optimum, made.private_sd / made.optimum_sd)
        assert made.to_dict()["over_optimum"] == [made.over_optimum.item()]
        assert f"is {round(made.over_optimum.item(), 2):g} times that" in made.report()
        assert made.over_optimum.item() > (1.0 if factor == 1.0 else 1.6)
        assert "over_optimum" in made.to_frame()

    @pytest.mark.parametrize(
        "model",
        [
            na.models.CategoricalDirichlet(outcome="die", concentration=4.0),
            na.models.ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=4.0),
        ],
    )
    def test_other_models_have_one_too(self, model):
        made = make_plan(self.SCHEMA, model=model, privacy=self.STRICT, num_records=5000, clip_norm=5.0)
        assert made.optimum_reason == ""
        assert (made.optimum_sd > made.non_private_sd).all()
        assert (made.over_optimum > 0.98).all()

    def test_where_there_is_none_the_plan_says_why(self, schema):
        made = make_plan(schema)
        assert made.optimum_sd is None
        assert made.over_optimum is None
        assert "gaussian optimum:  not known" in made.report()
        json.dumps(made.to_dict(), allow_nan=False)
        swapped = na.PrivacyBudget(epsilon=1.0, delta=1e-6, neighbouring_relation="replace_one")
        made = make_plan(self.SCHEMA, model=self.COIN, privacy=swapped)
        assert "adding or removing" in made.optimum_reason
        faint = na.PrivacyBudget(epsilon=1e-4, delta=1e-6)
        assert "too much noise" in make_plan(self.SCHEMA, model=self.COIN, privacy=faint).optimum_reason


class TestWarnings:
    def of(self, schema, **settings):
        return " ".join(make_plan(schema, **settings).warnings)

    def test_a_sound_plan_has_none(self, schema):
        assert make_plan(schema, num_steps=1500, learning_rate=1.2e-4).warnings == ()

    def test_drowning_names_five_and_counts_the_rest(self, schema):
        text = self.of(schema, num_records=10)
        assert "6 of 6 parameters will drown" in text
        assert "and 1 more" in text

    def test_wide_noise_is_told_before_it_drowns(self, schema):
        # A wide prior leaves room between noise of three non-private sds and drowning.
        wide = LogisticRegression(outcome="y", prior_sd=10.0)
        made = make_plan(schema, model=wide, num_records=3_000)
        is_drowned = made.noise_sd**2 >= 0.5 * (made.prior_sd**2 - made.non_private_sd**2)
        named = np.flatnonzero((made.noise_sd > 3 * made.non_private_sd) & ~is_drowned)
        assert len(named)
        assert f"more than 3 non-private standard deviations to {len(named)} of 6" in " ".join(made.warnings)

    @pytest.mark.parametrize(("rate", "word"), [(2e-4, "overshoot"), (5e-4, "diverge")])
    def test_step_size(self, schema, rate, word):
        made = make_plan(schema, learning_rate=rate)
        assert word in " ".join(made.warnings)
        assert made.largest_step == pytest.approx(make_plan(schema, learning_rate=rate / 2).largest_step * 2)

    def test_slow_coordinates(self, schema):
        text = self.of(schema, learning_rate=1e-6)
        assert "6 of 6 locations are slow" in text
        assert "6 of 6 scales are slow" in text

    @pytest.mark.parametrize(
        ("settings", "remedies"),
        [
            ({"learning_rate_constant": 1e-3}, ["Raise learning_rate_constant."]),
            ({"learning_rate_constant": 1e3}, ["divide learning_rate_constant by"]),
            ({"learning_rate": 1e-6}, ["Raise learning_rate, or learning_rate_factors"]),
            ({"learning_rate": 2e-4}, ["a lower learning_rate would"]),
            ({"learning_rate": 5e-4}, ["divide learning_rate by"]),
            ({"learning_rate": 1e-6, "suggested_for": 9}, ["larger epsilon or more records"]),
            ({"learning_rate": 2e-4, "suggested_for": 9}, ["more steps, each smaller"]),
            ({"learning_rate": 5e-4, "suggested_for": 9}, ["times the steps, each smaller"]),
        ],
    )
    def test_remedies_name_what_was_set(self, schema, settings, remedies):
        text = self.of(schema, **settings)
        assert all(remedy in text for remedy in remedies)
        named = {"learning_rate_constant"} if "learning_rate_constant" in settings else {"learning_rate"}
        if "suggested_for" in settings:
            named = set()
        spoken = {word.strip(".,") for word in text.split() if word.startswith("learning_rate")}
        assert spoken - {"learning_rate_factors"} == named

    def test_clip_norm(self, schema):
        assert "clipping would bend" in self.of(schema, clip_norm=0.2)
        assert "larger than need be" in self.of(schema, clip_norm=50.0)

    def test_delta(self, schema):
        loose = na.PrivacyBudget(epsilon=1.0, delta=1e-4)
        assert "not below one over 20,000" in self.of(schema, privacy=loose)
        assert "not below one over" not in self.of(schema, privacy=loose, num_records=9_000)

    def test_scales(self, schema):
        assert "guide's own standard deviation" in self.of(schema, preconditioner_u=0.5)

    def test_every_warning_is_one_line(self, schema):
        made = make_plan(schema, num_records=10, learning_rate=1e-7)
        assert len(made.warnings) >= 4
        assert not any("\n" in line for line in made.warnings)

    def test_names(self):
        assert shown_names(["a", "b"]) == "a, b"
        assert shown_names(list("abcdefg")) == "a, b, c, d, e and 2 more"


class TestRefusals:
    @pytest.mark.parametrize("value", [0, -5, 2.5, float("nan"), float("inf"), "many", None, True])
    def test_num_records(self, schema, value):
        with pytest.raises(na.ArgumentError, match="num_records"):
            make_plan(schema, num_records=value)

    def test_arguments_of_the_wrong_kind(self, schema):
        with pytest.raises(na.ArgumentError, match="privacy must be"):
            make_plan(schema, privacy=1.0)
        with pytest.raises(na.ArgumentError, match="model must be"):
            make_plan(schema, model="logistic")
        with pytest.raises(na.ArgumentError, match="schema must be"):
            make_plan("people.toml")

    def test_a_model_that_cannot_simulate(self, schema):
        class Silent(LogisticRegression):
            simulate = None

        with pytest.raises(na.ModelError, match="no simulate"):
            make_plan(schema, model=Silent(outcome="y"))

    def test_a_window_that_is_too_short(self, schema):
        with pytest.raises(na.ArgumentError, match="burn_in"):
            make_plan(schema, num_steps=2)

    def test_a_public_record_count_that_differs(self, schema):
        with pytest.raises(na.ArgumentError, match="500"):
            plan(
                MODEL,
                BUDGET,
                na.DPVIConfig(num_steps=300, prior_term="per_record", num_records=500),
                schema=schema,
                num_records=400,
            )


class TestTiming:
    def test_totals_come_from_the_measured_parts(self, described, monkeypatch):
        settings = make_settings(described, na.DPVIConfig(num_steps=50), noise_multiplier=10.0)
        clock = iter(np.arange(0.0, 1000.0, 0.5))
        monkeypatch.setattr("nadpvi.planning.timing.time.perf_counter", lambda: float(next(clock)))
        monkeypatch.setattr("nadpvi.planning.timing.os.cpu_count", lambda: 1)
        found = time_run(settings, noise_multiplier=10.0, num_records=1000)
        assert found.per_step == pytest.approx(0.5 / found.num_timed_steps)
        assert found.noise == pytest.approx(0.5)
        assert found.total == pytest.approx(50 * found.per_step + found.noise)
        monkeypatch.setattr("nadpvi.planning.timing.os.cpu_count", lambda: 2)
        assert time_run(settings, noise_multiplier=10.0, num_records=1000).total == pytest.approx(1.25)

    def test_a_large_table_is_extended_in_proportion(self, described):
        settings = make_settings(described, na.DPVIConfig(num_steps=50), noise_multiplier=10.0)
        found = time_run(settings, noise_multiplier=0.0, num_records=10**9)
        assert found.noise == 0.0
        assert math.isfinite(found.total)

    def test_a_plan_carries_it(self, schema):
        made = plan(
            MODEL, BUDGET, na.DPVIConfig(num_steps=30, sampling_rate=1.0), schema=schema, num_records=500
        )
        assert made.run_seconds > 0
        assert f"from {made.num_timed_steps} steps on made-up records" in str(made)


class TestCommand:
    TOML = """
[columns.age]
kind = "real"
lower = 0
upper = 100

[columns.y]
kind = "binary"
levels = ["no", "yes"]
"""

    def invoke(self, folder, *extra):
        (folder / "people.toml").write_text(self.TOML)
        app = typer.Typer()
        app.command()(with_groups(plan_command))
        base = [
            "--schema",
            str(folder / "people.toml"),
            "--outcome",
            "y",
            "--epsilon",
            "1",
            "--delta",
            "1e-5",
        ]
        return CliRunner().invoke(app, [*base, "--steps", "60", "--sampling-rate", "1", *extra])

    def test_report_and_warnings_go_to_their_streams(self, tmp_path):
        result = self.invoke(tmp_path, "--num-records", "200")
        assert result.exit_code == 0, result.output
        assert result.stdout.startswith("Plan for 200 records")
        assert "nadpvi: warning: " in result.stderr
        assert "warning" not in result.stdout

    def test_json(self, tmp_path):
        result = self.invoke(tmp_path, "--num-records", "5000", "--json", "--quiet")
        data = json.loads(result.stdout)
        assert data["names"] == ["Intercept", "age"]
        assert data["num_records"] == 5000

    def test_per_record_prior_uses_the_same_count(self, tmp_path):
        result = self.invoke(tmp_path, "--num-records", "5000", "--prior-term", "per_record")
        assert result.exit_code == 0, result.output

    def test_guide(self, tmp_path):
        plain, named = (
            self.invoke(tmp_path, "--num-records", "5000", "--json", "--settings", "plain", *guide).stdout
            for guide in ((), ("--guide", "mean_field"))
        )
        without_time = [{**json.loads(text), "run_seconds": None} for text in (plain, named)]
        assert without_time[0] == without_time[1]
        refused = self.invoke(tmp_path, "--num-records", "5000", "--guide", "full_rank")
        assert refused.exit_code != 0
        assert "MeanField guide (got FullRank)" in str(refused.exception)

    def test_it_takes_all_that_describes_a_release(self):
        run = {field.name for field in dataclasses.fields(RunOptions)}
        assert run == {field.name for field in dataclasses.fields(PlannedRun)}
        of_release = set(dataclasses.fields(RunOptions)) | set(dataclasses.fields(CuratorOptions))
        beyond = {"insecure_seed", "collapse", "storage", "ledger", "label", "checkpoint"}
        assert {field.name for field in of_release} - run == beyond

    def test_there_is_no_table_to_give(self, tmp_path):
        assert self.invoke(tmp_path, "--num-records", "50", "people.csv").exit_code == 2
        assert self.invoke(tmp_path).exit_code == 2


@pytest.mark.parametrize("num_draws", [1, 3, 4])
def test_step_covariance_is_that_of_simulated_steps(described, num_draws):
    # Poisson sampling and Monte Carlo draws alone, by simulation of the linear model that the formula is for.
    rng = np.random.default_rng(6)
    settings = dataclasses.replace(
        make_settings(described, na.DPVIConfig(), noise_multiplier=10.0),
        sampling_rate=0.3,
        monte_carlo_samples=num_draws,
    )
    num, rate = 400, 0.3
    scores = rng.normal(size=(num, 6)) * np.linspace(0.5, 1.5, 6)
    scores -= scores.mean(axis=0)
    information, prior_sd = scores.T @ scores / num, np.full(6, 0.5)
    curvature = num * information + 4.0 * np.eye(6)
    expected = step_covariance(
        information, prior_sd=prior_sd, noise_std=np.full(6, 3.0), num_records=num, settings=settings
    )
    steps = 20_000
    inclusion = rng.random((steps, num)) < rate
    fresh = rng.standard_normal((steps, num_independent(num_draws), 6))
    shift = antithetic(fresh, out=np.empty((steps, num_draws, 6))).mean(axis=1)
    shift /= np.sqrt(np.diag(curvature))
    made = inclusion @ scores + rate * shift @ curvature + 3.0 * rng.standard_normal((steps, 6))
    # A variance from 20,000 steps is known to 1 %.
    np.testing.assert_allclose(np.cov(made.T), expected, atol=0.05 * np.diag(expected).max())
    np.testing.assert_allclose(made.var(axis=0), np.diag(expected), rtol=0.05)
