"""From a release to a posterior, its file, its table and its predictions."""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import nadpvi as na
from nadpvi.arviz_bridge import arviz_version
from nadpvi.baselines import last_iterate_posterior, non_private_posterior
from nadpvi.diagnostics import warn_of_disagreement
from nadpvi.engines.discover import find_engine
from nadpvi.gradient_model import make_gradient_model
from nadpvi.inference.nuts import sample_nuts
from nadpvi.scores import calibration_curve, predict_rows, score_binary

# Short chains warn that they are short; what warns, and when, is tested on its own below.
pytestmark = [pytest.mark.arviz, pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")]

MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=8.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=300, sampling_rate=0.2, preconditioner_u=10.0)


@pytest.fixture(scope="module")
def module_table():
    rng = np.random.default_rng(1)
    age = rng.uniform(0, 100, 2000)
    chance = 1 / (1 + np.exp(-(age / 25 - 2)))
    return pd.DataFrame(
        {
            "age": age,
            "gain": rng.choice([0.0, 500.0, 9000.0], 2000),
            "job": rng.choice(["a", "b", "c"], 2000),
            "y": np.where(rng.random(2000) < chance, "yes", "no"),
        }
    )


SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100},
            "gain": {"kind": "real", "lower": 0, "upper": 99999, "transform": "log1p"},
            "job": {"kind": "categorical", "levels": ["a", "b", "c"]},
            "y": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)


@pytest.fixture(scope="module")
def made(module_table):
    return na.release(MODEL, module_table, schema=SCHEMA, privacy=BUDGET, config=CONFIG, insecure_seed=11)


@pytest.fixture(scope="module")
def posterior(made):
    return na.infer(made, draws=300, chains=2, warmup=300, seed=5)


LABELS = ["Intercept", "age", "gain", "job[a]", "job[b]", "job[c]"]


def test_names_dims_and_coords(posterior):
    tree = posterior.to_datatree()
    draws = tree["posterior"]
    assert draws["phi_star"].dims == ("chain", "draw", "phi")
    assert draws["curvature"].shape == (2, 300, 12)
    assert draws["coefficients"].dims == ("chain", "draw", "coefficient")
    assert list(draws["coefficient"].to_numpy()) == LABELS
    assert draws["phi"].to_numpy()[0] == "mu[Intercept]"
    assert tree["sample_stats"]["diverging"].dtype == bool
    assert (draws["curvature"] > 0).all()
    assert set(tree.children) == {"posterior", "sample_stats", "observed_data", "constant_data"}


def test_same_seed_same_draws(made, posterior):
    again = na.infer(made, draws=300, chains=2, warmup=300, seed=5)
    xr.testing.assert_identical(again.groups["posterior"], posterior.groups["posterior"])
    other = na.infer(made, draws=300, chains=2, warmup=300, seed=6)
    assert (other.groups["posterior"]["phi_star"] != posterior.groups["posterior"]["phi_star"]).any()


def test_mixture_adds_the_guides_spread_to_that_of_phi_star(posterior):
    """Law of total variance, coordinate by coordinate: 600 draws, tolerance of 5 standard errors."""
    draws = posterior.groups["posterior"]
    phi = draws["phi_star"].to_numpy().reshape(-1, 12)
    theta = posterior.theta().reshape(-1, 6)
    expected = phi[:, :6].var(axis=0) + (np.logaddexp(0, phi[:, 6:]) ** 2).mean(axis=0)
    np.testing.assert_allclose(theta.var(axis=0) / expected, 1.0, atol=5 * np.sqrt(2 / 600) * 1.5)


def test_round_trip_through_a_file(posterior, tmp_path):
    path = posterior.save(tmp_path / "posterior.nc")
    back = na.Posterior.load(path)
    for name, group in posterior.groups.items():
        xr.testing.assert_equal(back.groups[name], group)
    assert back.guarantee == posterior.guarantee
    assert back.description == posterior.description
    assert back.settings == posterior.settings
    with pytest.raises(na.FileError, match="exists"):
        posterior.save(path)
    with pytest.raises(na.FileError, match="expected a release"):
        na.Release.load(path)


def test_file_opens_without_nadpvi(posterior, tmp_path):
    path = posterior.save(tmp_path / "posterior.nc")
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        assert tree["posterior"]["coefficients"].shape == (2, 300, 6)
        header = json.loads(tree.attrs["nadpvi_header"])
    assert header["guarantee"]["is_private"] is False


def test_summary_names_its_interval(posterior):
    table = posterior.summary(probability=0.8)
    assert list(table.index) == LABELS
    assert list(table.columns) == ["mean", "sd", "10%", "90%", "ess_bulk", "ess_tail", "r_hat"]
    draws = posterior.theta().reshape(-1, 6)
    np.testing.assert_allclose(table["mean"], draws.mean(axis=0))
    np.testing.assert_allclose(table["10%"], np.quantile(draws, 0.1, axis=0))
    assert (table["ess_bulk"] > 100).all()
    assert (table["r_hat"] < 1.05).all()


@pytest.mark.parametrize("value", [0, 1, 1.5, float("nan"), None, "0.9", True])
def test_bad_probability(posterior, value):
    with pytest.raises(na.ArgumentError, match="probability"):
        posterior.summary(probability=value)


def test_one_chain_and_one_draw_keep_their_axes(made):
    single = na.infer(made, draws=1, chains=1, warmup=50, seed=1)
    assert single.groups["posterior"]["coefficients"].shape == (1, 1, 6)
    table = na.infer(made, draws=50, chains=1, warmup=50, seed=1).summary()
    assert table["r_hat"].isna().all()


def test_arviz_takes_it(posterior):
    data = posterior.to_arviz()
    if arviz_version()[0] < 1:
        assert type(data).__name__ == "InferenceData"
        assert data.posterior["coefficients"].dims == ("chain", "draw", "coefficient")
        assert data.sample_stats["diverging"].shape == (2, 300)
    else:
        assert isinstance(data, xr.DataTree)


def test_last_iterate_is_the_guide_at_the_final_phi(made):
    naive = last_iterate_posterior(made, seed=0)
    expected = np.logaddexp(0, made.final_phi[6:])
    np.testing.assert_allclose(naive.summary()["sd"], expected, rtol=0.08)
    np.testing.assert_allclose(
        naive.summary()["mean"], made.final_phi[:6], atol=5 * expected.max() / np.sqrt(4000)
    )


def test_non_private_posterior_matches_an_independent_fit(module_table):
    """Newton's method written out, against the package's search: mean and sd of every coefficient."""
    posterior = non_private_posterior(MODEL, module_table, schema=SCHEMA, draws=20_000, seed=3)
    x = np.column_stack(
        [
            np.ones(2000),
            module_table["age"] / 100,
            np.log1p(module_table["gain"]) / np.log1p(99999),
            *[(module_table["job"] == level) * 1.0 for level in "abc"],
        ]
    )
    y = (module_table["y"] == "yes").to_numpy() * 1.0
    theta = np.zeros(6)
    for _ in range(30):
        p = 1 / (1 + np.exp(-x @ theta))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + np.eye(6)
        theta += np.linalg.solve(hessian, x.T @ (y - p) - theta)
    sd = np.sqrt(np.diag(np.linalg.inv(hessian)))
    table = posterior.summary()
    np.testing.assert_allclose((table["mean"] - theta) / sd, 0.0, atol=5 / np.sqrt(20_000))
    np.testing.assert_allclose(table["sd"] / sd, 1.0, atol=5 / np.sqrt(40_000))


class TestPredict:
    def test_one_number_a_row_and_nan_where_unknown(self, posterior):
        rows = pd.DataFrame(
            {"age": [30, None, 30, 90], "gain": [0, 0, 0, 0], "job": ["a", "a", "astronaut", "c"]}
        )
        predicted = posterior.predict(rows)
        assert predicted.shape == (4,)
        assert np.isnan(predicted[[1, 2]]).all()
        assert 0 < predicted[0] < predicted[3] < 1

    def test_equals_the_mean_over_draws(self, posterior):
        rows = pd.DataFrame({"age": [50.0], "gain": [0.0], "job": ["b"]})
        theta = posterior.theta().reshape(-1, 6)
        eta = theta @ np.array([1, 0.5, 0, 0, 1, 0])
        assert posterior.predict(rows)[0] == pytest.approx((1 / (1 + np.exp(-eta))).mean(), rel=1e-12)

    def test_missing_column_is_named(self, posterior):
        with pytest.raises(na.DataError, match="job"):
            posterior.predict(pd.DataFrame({"age": [1], "gain": [0]}))

    def test_without_a_model(self, made):
        bare = na.Release.from_arrays(
            phi=made.phi,
            noisy_gradient=made.noisy_gradient,
            noise_multiplier=made.noise_multiplier,
            clip_norm=made.clip_norm,
            sampling_rate=made.sampling_rate,
            preconditioner=made.preconditioner,
        )
        posterior = na.infer(bare, draws=50, chains=1, warmup=50, seed=0)
        assert "coefficients" not in posterior.groups["posterior"]
        assert list(posterior.summary().index[:2]) == ["phi[0]", "phi[1]"]
        with pytest.raises(na.ArgumentError, match="no model"):
            posterior.predict(pd.DataFrame({"age": [1]}))


class TestScores:
    def test_against_plain_formulas(self, posterior, module_table):
        rows = module_table.head(500)
        p = posterior.predict(rows)
        y = (rows["y"] == "yes").to_numpy() * 1.0
        scores = score_binary(predict_rows(posterior, rows))
        assert scores.accuracy == pytest.approx(((p >= 0.5) == y).mean())
        assert scores.brier == pytest.approx(((p - y) ** 2).mean())
        assert scores.log_score == pytest.approx((y * np.log(p) + (1 - y) * np.log(1 - p)).mean())
        total = 0.0
        for low in np.arange(10) / 10:
            inside = (p >= low) & (p < low + 0.1)
            if inside.any():
                total += inside.mean() * abs(p[inside].mean() - y[inside].mean())
        assert scores.calibration_error == pytest.approx(total)

    def test_incomplete_rows_are_left_out(self, posterior, module_table):
        rows = module_table.head(100).copy()
        rows.loc[rows.index[:50], "age"] = np.nan
        assert score_binary(predict_rows(posterior, rows)) == score_binary(
            predict_rows(posterior, module_table.iloc[50:100])
        )

    def test_nothing_to_score(self, posterior, module_table):
        rows = module_table.head(3).copy()
        rows["age"] = np.nan
        with pytest.raises(na.DataError, match="nothing can be scored"):
            score_binary(predict_rows(posterior, rows))

    def test_calibration_curve_weights_sum_to_one(self, posterior, module_table):
        weight, predicted, observed = calibration_curve(predict_rows(posterior, module_table), num_bins=5)
        assert weight.sum() == pytest.approx(1.0)
        assert ((observed >= 0) & (observed <= 1)).all()
        assert (np.diff(predicted) > 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "magic"}, "method"),
        ({"engine": "jags"}, "jags"),
        ({"burn_in": 1.0}, "burn_in"),
        ({"phi_star_prior": "flat"}, "phi_star_prior"),
        ({"curvature_prior": "flat"}, "curvature_prior"),
        ({"seed": -1}, "seed"),
        ({"draws": 0}, "draws"),
        ({"chains": 0}, "chains"),
    ],
)
def test_bad_arguments_are_named(made, arguments, message):
    with pytest.raises(na.NadpviError, match=message):
        na.infer(made, **arguments)


def test_release_of_the_wrong_type(made):
    with pytest.raises(na.ArgumentError, match="must be a Release"):
        na.infer("release.nc")


def test_subsampling_noise_appears_in_the_posterior(made):
    posterior = na.infer(made, draws=100, chains=1, warmup=200, seed=2, subsampling_noise=True)
    tau = posterior.groups["posterior"]["tau"]
    assert tau.dims == ("chain", "draw", "phi")
    assert (tau > 0).all()


@pytest.mark.parametrize("prior", ["model", "trace"])
def test_a_drowned_coordinate_returns_to_its_prior(prior):
    """With no information phi_star's posterior is its prior: N(0, 1), or that around the window's mean.

    1,000 draws: the mean's standard error is 0.03, the sd's 0.022 relative; 5 of each.
    """
    rng = np.random.default_rng(0)
    weak = na.Release.from_arrays(
        phi=5.0 + rng.standard_normal((200, 1)),
        noisy_gradient=1e6 * rng.standard_normal((200, 1)),
        noise_multiplier=1e6,
        clip_norm=1.0,
        sampling_rate=0.1,
        model_prior_mean=0.0,
        model_prior_sd=1.0,
    )
    # A curvature known to be small leaves phi_star to its prior; the trace's own prior would be vague here.
    model = dataclasses.replace(
        make_gradient_model(weak, phi_star_prior=prior, subsampling_noise=False),
        v_prior_mean=np.array([1.0]),
        v_prior_sd=np.array([0.1]),
    )
    fitted = sample_nuts(model, engine=find_engine("stanli"), draws=500, chains=2, warmup=500, seed=1)
    center = 0.0 if prior == "model" else float(weak.phi[40:].mean())
    assert abs(fitted.phi_star.mean() - center) < 5 * 0.032
    assert abs(fitted.phi_star.std() - 1.0) < 5 * 0.023


class TestWarnings:
    def draws(self, values):
        return xr.Dataset({"a": (("chain", "draw", "k"), values)})

    def test_good_chains_are_silent(self, recwarn):
        values = np.random.default_rng(0).standard_normal((4, 500, 3))
        warn_of_disagreement(self.draws(values), names=["a"])
        assert not recwarn.list

    def test_chains_that_disagree(self):
        values = np.random.default_rng(0).standard_normal((4, 500, 3))
        values[0, :, 1] += 1.0
        with pytest.warns(na.InferenceWarning, match="R-hat is 1"):
            warn_of_disagreement(self.draws(values), names=["a"])

    def test_too_few_effective_draws(self):
        values = np.random.default_rng(0).standard_normal((4, 50, 3))
        with pytest.warns(na.InferenceWarning, match="too few effective draws"):
            warn_of_disagreement(self.draws(values), names=["a"])

    def test_infer_warns_of_short_runs(self, made):
        with pytest.warns(na.InferenceWarning, match="effective draws"):
            na.infer(made, draws=40, chains=2, warmup=200, seed=3)
