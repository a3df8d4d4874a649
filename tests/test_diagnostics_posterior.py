"""Findings as they reach a user: warned of by infer, kept on the posterior and in its file, printed."""

import dataclasses
import json
import warnings

import autograd.numpy as anp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from diagnostics_cases import quadratic_release
from typer.testing import CliRunner

import nadpvi as na
from nadpvi.cli.app import app
from nadpvi.diagnostics import chain_findings, diagnose
from nadpvi.diagnostics.chains import approximation_finding, tau_finding
from nadpvi.gradient_model import make_gradient_model
from nadpvi.inference.health import with_findings
from nadpvi.models import CustomModel
from nadpvi.models.base import Parameter

SLOW = {"times": (1.0, 1.5, 2.0, 100.0, 100.0)}


def inferred(release, **settings):
    """Return a posterior and the warnings on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = na.infer(release, **{"method": "exact", "draws": 50, "seed": 1, **settings})
    return posterior, caught


@pytest.mark.parametrize(
    ("fault", "category"),
    [
        (SLOW, na.StationarityWarning),
        ({"claimed": 1.3}, na.GradientModelWarning),
        ({"extra_sd": 25.0}, na.PriorWeightWarning),
    ],
)
def test_infer_warns_by_kind_at_the_callers_line(fault, category):
    posterior, caught = inferred(quadratic_release(**fault))
    ours = [item for item in caught if issubclass(item.category, na.InferenceWarning)]
    assert category in {item.category for item in ours}
    assert {item.filename for item in ours} == {__file__}
    expected = [finding.sentence() for finding in posterior.findings if finding.severity == "warning"]
    assert [str(item.message) for item in ours] == expected


def test_findings_are_those_of_diagnose():
    made = quadratic_release(**SLOW)
    assert inferred(made)[0].findings == diagnose(made).findings


def test_extra_variance_matters_without_tau():
    made = quadratic_release(extra_sd=1.0)
    assert inferred(made)[0].findings == ()
    posterior, _ = inferred(made, subsampling_noise=False)
    (finding,) = posterior.findings
    assert finding.check == "extra_variance"
    assert finding.num_coordinates == 4
    assert finding.remedy == "use subsampling_noise=True"


def test_a_matrix_of_curvatures_explains_what_a_diagonal_does_not():
    made = quadratic_release(times=(150.0, 150.0), correlation=0.6)
    diagonal, _ = inferred(made)
    assert "cross_curvature" in {finding.check for finding in diagonal.findings}
    dense, _ = inferred(made, method="dense", draws=100, chains=2)
    assert "cross_curvature" not in {finding.check for finding in dense.findings}


def test_the_models_own_prior_is_no_fault_of_a_drowned_coordinate():
    made = quadratic_release(extra_sd=25.0)
    by_trace, by_model = (
        {finding.severity for finding in posterior.findings if finding.check == "prior_weight"}
        for posterior in (inferred(made)[0], inferred(made, phi_star_prior="model")[0])
    )
    assert by_trace == {"warning"}
    assert by_model == {"note"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A release with a fault, its posterior, and a healthy release."""
    place = tmp_path_factory.mktemp("findings")
    made = quadratic_release(**SLOW)
    made.save(place / "release.nc")
    inferred(made)[0].save(place / "posterior.nc")
    quadratic_release().save(place / "healthy.nc")
    return place


class TestFiles:
    def run(self, *arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    def test_a_posterior_keeps_them(self, folder):
        made = quadratic_release(**SLOW)
        assert na.Posterior.load(folder / "posterior.nc").findings == diagnose(made).findings

    def test_summary_of_a_posterior(self, folder):
        text = self.run("summary", folder / "posterior.nc")
        assert "method: exact" in text
        assert "warning: the window is short for" in text
        found = json.loads(self.run("summary", "--json", folder / "posterior.nc"))
        assert found["method"] == "exact"
        assert found["findings"][0]["check"] == "relaxation"
        assert found["findings"][0]["coordinates"][0].startswith("phi[")

    def test_summary_of_a_release(self, folder):
        assert "warning: the window is short for" in self.run("summary", folder / "release.nc")
        found = json.loads(self.run("summary", "--json", folder / "release.nc"))["diagnostics"]
        assert [item["check"] for item in found["findings"]] == ["relaxation"]
        assert "diagnostics: nothing found." in self.run("summary", folder / "healthy.nc")

    def test_summary_of_a_release_that_cannot_be_checked(self, tmp_path):
        run = {
            "phi": np.zeros((2, 1)),
            "noisy_gradient": np.ones((2, 1)),
            "noise_multiplier": 1.0,
            "clip_norm": 1.0,
            "sampling_rate": 0.1,
        }
        path = na.Release.from_arrays(**run).save(tmp_path / "short.nc")
        assert "diagnostics: none, --burn-in 0.2 leaves 2 of 2 steps" in self.run("summary", path)

    def test_a_file_from_before_has_none(self, folder):
        posterior = na.Posterior.load(folder / "posterior.nc")
        posterior.settings.pop("diagnostics")
        assert posterior.findings == ()


def normal_density(value, mean=0.0, sd=1.0):
    return -0.5 * ((value - mean) / sd) ** 2


def determinant(spread):
    return spread[..., 0, 0] * spread[..., 1, 1] - spread[..., 0, 1] ** 2


def bivariate_likelihood(p, x, y):
    spread, (first, second) = p["spread"], (x[:, k] - p["centre"][..., k] for k in (0, 1))
    quadratic = spread[..., 1, 1] * first**2 + spread[..., 0, 0] * second**2
    quadratic = quadratic - 2.0 * spread[..., 0, 1] * first * second
    return -0.5 * (anp.log(determinant(spread)) + quadratic / determinant(spread))


class TestKnownFailures:
    """Runs whose posteriors are narrow and wrong must not be silent."""

    def test_a_covariance_matrix_that_has_not_converged(self):
        """Variances of 0.02, a start at 1 and steps too large: the posterior sits far from the truth."""
        schema = na.Schema.from_dict(
            {"columns": {name: {"kind": "real", "lower": 0, "upper": 1} for name in ("a", "b")}}
        )
        dims = {"dims": ["feature"], "coords": [["a", "b"]]}
        model = CustomModel(
            name="bivariate",
            outcome=None,
            predictors=["a", "b"],
            parameters=[
                Parameter(name="centre", **dims),
                Parameter(name="spread", support="covariance", **dims),
            ],
            log_prior=lambda p: (
                anp.sum(normal_density(p["centre"]), axis=-1)
                + anp.log(determinant(p["spread"]))
                - p["spread"][..., 0, 0]
                - p["spread"][..., 1, 1]
            ),
            log_likelihood=bivariate_likelihood,
        )
        x = np.random.default_rng(1).multivariate_normal([0.5, 0.4], [[0.02, 0.01], [0.01, 0.03]], 2000)
        made = na.release(
            model,
            pd.DataFrame(np.clip(x, 0, 1), columns=["a", "b"]),
            schema=schema,
            privacy=na.PrivacyBudget(epsilon=8.0, delta=1e-5),
            config=na.DPVIConfig(num_steps=500, clip_norm=5.0, learning_rate_constant=1.0),
            insecure_seed=1,
        )
        posterior, caught = inferred(made)
        row = posterior.summary().loc["spread[a, a]"]
        assert abs(row["mean"] - 0.02) > 3 * row["sd"]
        assert {item.category for item in caught} & {na.StationarityWarning, na.GradientModelWarning}

    @pytest.mark.parametrize("variance", [4.0, 400.0])
    def test_a_variance_far_from_its_prior(self, variance):
        """The default prior expects 1/40; a slow run is still on its way from there."""
        rng = np.random.default_rng(2)
        a = rng.uniform(-1, 1, 2000)
        y = np.clip(1.0 + a + np.sqrt(variance) * rng.standard_normal(2000), -100, 100)
        schema = na.Schema.from_dict(
            {
                "columns": {
                    "a": {"kind": "real", "lower": -1, "upper": 1},
                    "y": {"kind": "real", "lower": -100, "upper": 100},
                }
            }
        )
        made = na.release(
            na.models.LinearRegression(outcome="y"),
            pd.DataFrame({"a": a, "y": y}),
            schema=schema,
            privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
            config=na.DPVIConfig(num_steps=500, clip_norm=5.0, learning_rate_constant=0.05),
            insecure_seed=1,
        )
        posterior, caught = inferred(made)
        row = posterior.summary().loc["variance"]
        assert abs(row["mean"] / variance - 1) > 0.03
        assert na.StationarityWarning in {item.category for item in caught}
        worst = next(item for item in posterior.findings if item.check == "stationarity")
        assert "mu[variance]" in worst.coordinates


class TestChains:
    def draws(self, values, **others):
        variables = {"phi_star": (("chain", "draw", "phi"), values)}
        variables |= {name: (("chain", "draw"), value) for name, value in others.items()}
        return xr.Dataset(variables, coords={"phi": ["mu[a]", "u[a]"]})

    def values(self, seed=0, draws=400):
        return np.random.default_rng(seed).standard_normal((4, draws, 2))

    def found(self, values, stats=None):
        return {
            item.check: item
            for item in chain_findings(self.draws(values), names=["phi_star"], sample_stats=stats)
        }

    def test_good_chains_are_silent(self):
        assert self.found(self.values()) == {}

    def test_r_hat_names_what_no_table_shows(self):
        values = self.values()
        values[0, :, 1] += 1.0
        finding = self.found(values)["r_hat"]
        assert finding.coordinates == ("phi_star[u[a]]",)
        assert finding.value > 1.01
        assert finding.category is na.SamplerWarning

    def test_an_entry_that_never_moves(self):
        values = self.values()
        values[..., 0] = 3.0
        finding = self.found(values)["r_hat"]
        assert finding.coordinates == ("phi_star[mu[a]]",)
        assert "never moved" in finding.message

    def test_few_effective_draws(self):
        assert self.found(self.values(draws=60))["effective_draws"].threshold == 400

    def test_one_chain(self):
        assert set(self.found(self.values()[:1])) == {"chains"}

    def stats(self, **values):
        return xr.Dataset({name: (("chain", "draw"), value) for name, value in values.items()})

    def test_energy(self):
        """A random walk of energies: E-BFMI is near 0, and 2 where they are independent."""
        fresh = self.values()[..., 0]
        assert self.found(self.values(), self.stats(energy=fresh)) == {}
        finding = self.found(self.values(), self.stats(energy=np.cumsum(fresh, axis=1)))["energy"]
        walk = np.cumsum(fresh, axis=1)
        expected = min(np.mean(np.diff(row) ** 2) / row.var() for row in walk)
        assert finding.value == pytest.approx(expected, rel=1e-12)
        assert finding.threshold == 0.3

    def test_divergences_and_depth(self):
        diverging = np.zeros((4, 400), dtype=bool)
        diverging[0, :3] = True
        depth = np.full((4, 400), 3)
        depth[1, 0] = 10
        found = self.found(self.values(), self.stats(diverging=diverging, tree_depth=depth))
        assert found["divergences"].value == 3
        assert found["tree_depth"].value == 1

    def test_the_depth_limit_is_the_samplers_own(self):
        stats = self.stats(tree_depth=np.full((4, 400), 10))

        def found(limit):
            draws = self.draws(self.values())
            items = chain_findings(draws, names=["phi_star"], sample_stats=stats, max_treedepth=limit)
            return {item.check: item for item in items}

        assert found(12) == {}
        assert found(10)["tree_depth"].value == 1600
        assert "limit of 8" in found(8)["tree_depth"].message

    @pytest.mark.parametrize(("limit", "is_found"), [(10, True), (12, False)])
    def test_a_posterior_is_told_with_that_limit(self, limit, is_found):
        made = quadratic_release()
        draws = dict(inferred(made, draws=400)[0].groups)
        draws["sample_stats"] = self.stats(tree_depth=np.full((4, 400), 10))
        kept = with_findings(
            {"method": "nuts", "curvature": "diagonal"},
            groups=draws,
            release=made,
            model=make_gradient_model(made, subsampling_noise=True),
            burn_in=None,
            has_chains=True,
            max_treedepth=limit,
        )
        found = {item["check"] for item in kept["diagnostics"]["findings"]}
        assert ("tree_depth" in found) == is_found

    def test_nuts_keeps_what_its_chains_say(self):
        posterior, caught = inferred(quadratic_release(), method="nuts", draws=30, chains=2, engine="stanli")
        assert "effective_draws" in {finding.check for finding in posterior.findings}
        assert na.SamplerWarning in {item.category for item in caught}


class TestLaplace:
    """Its Gaussian against the posterior itself."""

    def test_few_relaxation_times_make_it_too_narrow(self):
        made = quadratic_release(times=(1.0, 2.0, 100.0, 100.0), start=(3.0, 3.0, 0.0, 0.0), seed=3)
        laplace, caught = inferred(made, method="laplace", draws=4000, phi_star_prior="model")
        exact, _ = inferred(made, draws=4000, phi_star_prior="model")
        assert "laplace_phi_star" not in {item.check for item in exact.findings}
        (finding,) = (item for item in laplace.findings if item.check == "laplace_phi_star")
        assert finding.severity == "warning"
        assert finding.category is na.SamplerWarning
        assert finding.sentence() in [str(item.message) for item in caught]
        assert finding.remedy == "use method='exact'"
        assert set(finding.coordinates) == {"phi[0]", "phi[1]"}
        spread = [
            item.groups["posterior"]["phi_star"].std(("chain", "draw")).to_numpy()
            for item in (laplace, exact)
        ]
        worst = int(finding.coordinates[0][4])
        assert spread[0][worst] / spread[1][worst] == pytest.approx(finding.value, rel=0.05)
        assert finding.value < 0.7

    @pytest.mark.parametrize(
        ("mean", "sd", "is_bad"),
        [
            (0.09, 1.09, False),
            (0.09, 0.91, False),
            (0.11, 1.0, True),
            (-0.11, 1.0, True),
            (0.0, 1.11, True),
            (0.0, 0.89, True),
        ],
    )
    def test_limits(self, mean, sd, is_bad):
        units = np.array([3.0])
        found = approximation_finding(
            mean=5.0 + mean * units, sd=sd * units, exact_mean=5.0 + 0 * units, exact_sd=units, labels=["a"]
        )
        assert (found is not None) == is_bad

    def test_what_cannot_be_compared_is_told(self):
        nothing, one = np.array([np.nan, 0.0]), np.ones(2)
        found = approximation_finding(
            mean=0 * one, sd=one, exact_mean=nothing, exact_sd=one + nothing, labels=["a", "b"]
        )
        assert found.coordinates == ("a",)
        assert "could not be integrated" in found.message


class TestPriorTakesOver:
    def test_it_is_seen_in_the_draws(self):
        """The regression's error says that the window weighs 500 times the prior; the curvature may be 0."""
        made = quadratic_release(times=(1.0,) * 6, start=(3.0,) * 6, extra_sd=1.0, seed=3)
        made = dataclasses.replace(made, model_prior_mean=np.zeros(6), model_prior_sd=np.full(6, 0.3))
        assert (diagnose(made).table["prior_weight"] < 0.05).all()
        posterior, _ = inferred(made, phi_star_prior="model", draws=500)
        share = posterior.groups["posterior"]["phi_star"].var(("chain", "draw"), ddof=1).to_numpy() / 0.3**2
        assert (share > 0.9).sum() >= 2
        (finding,) = (item for item in posterior.findings if item.check == "prior_weight")
        assert finding.severity == "note"
        assert finding.num_coordinates == (share > 0.5).sum()
        assert finding.value == pytest.approx(min(share.max(), 1.0))

    def test_few_draws_show_no_variance(self):
        made = quadratic_release(extra_sd=25.0)
        few, _ = inferred(made, draws=5, chains=2)
        assert [item for item in few.findings if item.check == "prior_weight"] == [
            item for item in diagnose(made).findings if item.check == "prior_weight"
        ]


class TestTauOfLaplace:
    def test_near_zero_it_is_a_poor_picture(self):
        """tau = 0 in truth. Where the note speaks tau is a quarter off, not phi_star in so long a window."""
        made = quadratic_release(times=np.full(30, 80.0))
        (laplace, exact) = (inferred(made, method=method, draws=1000)[0] for method in ("laplace", "exact"))
        finding = next(item for item in laplace.findings if item.check == "laplace_tau")
        assert finding.severity == "note"
        assert 15 < finding.num_coordinates <= 30
        drawn, true = (item.groups["posterior"].mean(("chain", "draw")) for item in (laplace, exact))
        assert ((drawn["tau"] / true["tau"]) > 1.25).sum() > 15
        spread, expected = (item.groups["posterior"].std(("chain", "draw")) for item in (laplace, exact))
        np.testing.assert_allclose(spread["phi_star"] / expected["phi_star"], 1.0, atol=0.1)

    def test_a_large_tau_is_fine(self):
        posterior, _ = inferred(quadratic_release(extra_sd=2.0), method="laplace")
        assert posterior.findings == ()
        tau = posterior.groups["posterior"]["tau"].to_numpy()
        assert tau_finding(tau, labels=list("abcd")) is None
