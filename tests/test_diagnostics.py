"""What a release alone shows: each number against a plain formula, each check against a known fault.

False-alarm rates over many healthy releases are measured by ``benchmarks/diagnostics.py``.
"""

import dataclasses
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from diagnostics_cases import POSTERIOR_SD, quadratic_release, quadratic_run
from scipy import stats

import nadpvi as na
from nadpvi.config import DPVIConfig
from nadpvi.diagnostics import Finding, choose_burn_in, diagnose
from nadpvi.diagnostics.dynamics import Dynamics, contrast_variance, fitted_dynamics, known_dynamics
from nadpvi.diagnostics.limits import FALSE_ALARM
from nadpvi.diagnostics.release import diagnose_with
from nadpvi.diagnostics.released import released_window, window_numbers
from nadpvi.diagnostics.window import split_means
from nadpvi.gradient_model import make_trace_sums


def kept_as_sums(release, *, burn_in=0.2):
    """Return the same run as a release that holds sums only."""
    sums = make_trace_sums(release.phi, release.noisy_gradient, burn_in=burn_in)
    return dataclasses.replace(
        release,
        phi=release.phi[-1:],
        noisy_gradient=release.noisy_gradient[-1:],
        sums=sums,
        config=DPVIConfig(num_steps=release.num_steps, keep="sums", burn_in=burn_in),
    )


def checks(diagnostics, severity="warning"):
    return {finding.check for finding in diagnostics.findings if finding.severity == severity}


@pytest.fixture(scope="module")
def release():
    return quadratic_release(extra_sd=0.5, bend=0.3, correlation=0.2, seed=3)


@pytest.fixture(scope="module")
def table(release):
    return diagnose(release).table


@pytest.fixture(scope="module")
def window(release):
    return release.phi[200:], release.noisy_gradient[200:]


class TestNumbers:
    """Every column of the table against a formula written out."""

    def test_step_and_relaxation(self, release, table, window):
        for k, (phi, gradient) in enumerate(zip(window[0].T, window[1].T, strict=True)):
            slope = np.polyfit(phi, gradient, 1)[0]
            step = release.learning_rate[k] * slope
            row = table.iloc[k]
            np.testing.assert_allclose(row["step"], step, rtol=1e-9)
            np.testing.assert_allclose(row["relaxation_steps"], 1 / step, rtol=1e-9)
            np.testing.assert_allclose(row["relaxation_times"], 800 * step, rtol=1e-9)

    def test_residuals(self, table, window):
        for k, (phi, gradient) in enumerate(zip(window[0].T, window[1].T, strict=True)):
            residual = gradient - np.polyval(np.polyfit(phi, gradient, 1), phi)
            row = table.iloc[k]
            np.testing.assert_allclose(row["variance_ratio"], (residual**2).sum() / 798, rtol=1e-9)
            lagged = (residual[1:] * residual[:-1]).sum() / (residual**2).sum()
            np.testing.assert_allclose(row["autocorrelation"], lagged, rtol=1e-7)

    def test_quadratic_term_is_that_of_least_squares(self, table, window):
        for k, (phi, gradient) in enumerate(zip(window[0].T, window[1].T, strict=True)):
            design = np.vander(phi - phi.mean(), 3)
            estimate, (squares,), *_ = np.linalg.lstsq(design, gradient, rcond=None)
            error = np.sqrt(squares / 797 * np.linalg.inv(design.T @ design)[0, 0])
            np.testing.assert_allclose(table["quadratic"].iloc[k], estimate[0] / error, rtol=1e-6)

    def test_cross_is_the_strongest_partner_beside_the_own_slope(self, table, window):
        phi, gradient = (part - part.mean(axis=0) for part in window)
        for k in range(4):
            own = phi[:, k]
            residual = gradient[:, k] - own * (own @ gradient[:, k]) / (own @ own)
            scores = {}
            for j in set(range(4)) - {k}:
                rest = phi[:, j] - own * (own @ phi[:, j]) / (own @ own)
                left = residual - rest * (residual @ rest) / (rest @ rest)
                scores[j] = (residual @ rest) / np.linalg.norm(rest) / np.sqrt(left @ left / 797)
            worst = max(scores, key=lambda j: abs(scores[j]))
            np.testing.assert_allclose(table["cross"].iloc[k], scores[worst], rtol=1e-8)
            assert table["cross_with"].iloc[k] == f"phi[{worst}]"

    def test_the_shift_is_to_where_the_parabola_is_zero(self):
        """To first order in the bend, whichever way it goes."""
        for bend in (0.2, -0.2):
            made = quadratic_release(times=(100.0,) * 3, num_steps=4000, bend=bend, seed=5)
            numbers = window_numbers(made, released_window(made, burn_in=0.2))
            for k in range(3):
                phi, gradient = made.phi[800:, k], made.noisy_gradient[800:, k]
                slope, constant = np.polyfit(phi, gradient, 1)
                line = -constant / slope
                roots = np.roots(np.polyfit(phi - line, gradient, 2))
                expected = roots[np.argmin(np.abs(roots))]
                assert abs(expected) > 0.02
                np.testing.assert_allclose(numbers.quadratic_shift[k], expected, rtol=0.4)

    def test_the_thirds_are_thirds(self):
        """Their ends are where they are: 10 iterates, of which the first and last 3 count."""
        phi = np.array([[0.0, 1, 0, 50, 70, 90, 1000, 3, 4, 5]]).T
        moves = Dynamics(decay=np.array([0.4]), sd=np.array([2.0]), freedom=np.array([7.0]))
        score, freedom = split_means(phi, moves)
        error = 2.0 * np.sqrt(contrast_variance(np.array([0.4]), num_steps=10, num_part=3))
        np.testing.assert_allclose(score, (1 / 3 - 4.0) / error, rtol=1e-12)
        np.testing.assert_array_equal(freedom, [7.0])

    def test_degrees_of_freedom(self, release, window):
        """A chi-square of f degrees has a relative variance of 2 / f; f = 1 / (2 e^2) where a sd errs by e.

        The contrast's sd goes with the decay, whose relative error is e; the start's with its root: e / 2.
        """
        numbers = window_numbers(release, released_window(release, burn_in=0.2))
        for k, (phi, gradient) in enumerate(zip(window[0].T, window[1].T, strict=True)):
            slope = np.polyfit(phi, gradient, 1)[0]
            residual = gradient - np.polyval(np.polyfit(phi, gradient, 1), phi)
            step = release.learning_rate[k] * slope
            decay = step - (4.0 - 3.0 * step) / 800
            error = release.learning_rate[k] * np.sqrt(residual @ residual / 798) / np.sqrt(800 * phi.var())
            np.testing.assert_allclose(numbers.drift_freedom[k], 0.5 * (decay / error) ** 2, rtol=1e-9)
            np.testing.assert_allclose(numbers.start_freedom[k], 2.0 * (decay / error) ** 2, rtol=1e-9)

    def test_prior_weight(self, release, table, window):
        made = dataclasses.replace(release, model_prior_sd=np.array([0.05, 1.0, np.nan, 2.0]))
        found = diagnose(made).table["prior_weight"]
        for k, sd in enumerate([0.05, 1.0, 1.0, 2.0]):
            slope = np.polyfit(window[0][:, k], window[1][:, k], 1)[0]
            precision = 800 * slope**2 / table["variance_ratio"].iloc[k]
            np.testing.assert_allclose(found.iloc[k], sd**-2 / (sd**-2 + precision), rtol=1e-9)

    @pytest.mark.parametrize("rho", [0.95, 0.3, 0.0, -0.7])
    def test_variance_of_the_contrast(self, rho):
        """Against the covariance matrix of an AR(1)."""
        lags = np.abs(np.subtract.outer(np.arange(50), np.arange(50)))
        weights = np.repeat([1.0 / 16, 0.0, -1.0 / 16], [16, 18, 16])
        expected = weights @ np.power(rho, lags, dtype=float) @ weights
        found = contrast_variance(np.array([1.0 - rho]), num_steps=50, num_part=16)
        np.testing.assert_allclose(found, expected, rtol=1e-10)

    def test_both_ways_to_the_dynamics_agree(self, release, window):
        """Plain DP-SGD is the regression of an iterate on the one before; one pair fewer of 799."""
        sums = make_trace_sums(*window, burn_in=0.0)
        known = known_dynamics(
            step=release.learning_rate * sums.slope,
            learning_rate=release.learning_rate,
            noise_sd=np.sqrt(sums.residual / 798),
            root_spread=np.sqrt(sums.s_pp),
            num_steps=800,
        )
        fitted = fitted_dynamics(window[0])
        np.testing.assert_allclose(fitted.decay, known.decay, rtol=0.02)
        np.testing.assert_allclose(fitted.sd, known.sd, rtol=0.02)
        np.testing.assert_allclose(fitted.freedom, known.freedom, rtol=0.05)

    def test_drift_is_standard_normal_when_stationary(self):
        """400 coordinates of 60 relaxation times, started at rest: mean, sd and tails, at 4 errors."""
        start = np.random.default_rng(1).standard_normal(400)
        table = diagnose(quadratic_release(times=np.full(400, 60.0), start=start, seed=1)).table
        for name in ("drift", "start"):
            assert abs(table[name].mean()) < 4 / 20
            assert abs(table[name].std() - 1) < 4 * np.sqrt(0.5 / 400) + 0.1


class TestSilence:
    def test_healthy_releases(self):
        """60 releases: at 5 % each, more than 9 with findings have a chance of 0.1 %."""
        found = 0
        for seed in range(60):
            rng = np.random.default_rng(seed)
            times = np.exp(rng.uniform(np.log(20), np.log(300), 8))
            made = quadratic_release(times=times, start=rng.uniform(-3, 3, 8), extra_sd=0.5, seed=seed)
            found += bool(diagnose(made).findings)
        assert found <= 9

    def test_short_windows(self):
        """12 steps of 24 coordinates: by normal limits 6 % of them bend, by Student's 0.5 % at most do.

        More than 6 of 400 releases have a chance of 0.5 % for each of the three.
        """
        found = Counter()
        for seed in range(400):
            made = quadratic_release(times=np.full(24, 8.0), num_steps=15, extra_sd=0.5, seed=seed)
            found.update(checks(diagnose(made), "warning") | checks(diagnose(made), "note"))
        assert all(found[name] <= 6 for name in ("linearity", "cross_curvature", "autocorrelation")), found

    @pytest.mark.parametrize("num_steps", [3, 4, 5])
    def test_the_shortest_windows(self, num_steps):
        """Three points are on a parabola; that says nothing, and no number in a finding is infinite."""
        for seed in range(50):
            made = quadratic_release(times=(2.0, 2.0, 2.0), num_steps=num_steps, seed=seed)
            found = diagnose(made, burn_in=0.0)
            for finding in found.findings:
                assert np.isfinite([finding.value, finding.threshold]).all()
                assert " inf " not in finding.message
                assert "nan" not in finding.message
        if num_steps == 3:
            assert found.table["quadratic"].isna().all()

    @pytest.mark.parametrize("burn_in", [None, "auto"])
    def test_a_coin_is_inferred_without_a_word(self, coin, burn_in):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            posterior = na.infer(coin, method="exact", draws=50, seed=1, burn_in=burn_in)
        assert posterior.findings == ()
        assert posterior.settings["diagnostics"]["not_checked"] == []


@pytest.fixture(scope="module")
def coin():
    """A coin's release, healthy."""
    schema = na.Schema.from_dict({"columns": {"heads": {"kind": "binary", "levels": ["no", "yes"]}}})
    return na.release(
        na.models.BernoulliBeta(outcome="heads", prior_alpha=10.0, prior_beta=10.0),
        pd.DataFrame({"heads": np.repeat(["yes", "no"], [3000, 2000])}),
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        config=na.DPVIConfig(clip_norm=2.0, preconditioner_u=120.0),
        insecure_seed=1,
    )


FAULTS = {
    "claimed_noise": {"claimed": 1.3},
    "step_size": {"times": (1350.0, 100.0)},
    "relaxation": {"times": (1.0, 1.5, 2.0, 100.0, 100.0)},
    "stationarity": {"times": (10.0, 100.0), "start": (200.0, 0.0)},
    "linearity": {"times": (300.0, 300.0), "bend": 0.4, "num_steps": 4000},
    "cross_curvature": {"times": (150.0, 150.0, 150.0), "correlation": 0.45},
    "prior_weight": {"extra_sd": 25.0},
}


@pytest.mark.parametrize("check", FAULTS)
def test_each_fault_is_named(check):
    found = diagnose(quadratic_release(**FAULTS[check], seed=1))
    matching = [finding for finding in found.warnings if finding.check == check]
    assert matching, found
    finding = matching[0]
    assert 1 <= len(finding.coordinates) <= 3
    assert finding.coordinates[0] in finding.sentence()
    assert finding.remedy in finding.sentence()
    assert "{" not in finding.sentence()
    assert "\n" not in finding.sentence()


def test_a_parabola_without_noise_is_named():
    """Its t has no bound but that of rounding."""
    run = quadratic_run(seed=2)
    phi = run["phi"]
    run["noisy_gradient"] = 30.0 * phi + 5.0 * (phi - phi.mean(axis=0)) ** 2
    found = diagnose(na.Release.from_arrays(**run))
    (finding,) = (item for item in found.findings if item.check == "linearity")
    assert finding.num_coordinates == 4
    assert np.isfinite(finding.value)


def test_much_variance_beyond_the_noise_is_a_note():
    """Healthy with very many records; what else swells it has checks of its own."""
    found = diagnose(quadratic_release(extra_sd=12.0, seed=1))
    (finding,) = (item for item in found.findings if item.check == "extra_variance")
    assert finding.severity == "note"
    assert 100 < finding.value < 200
    assert "many records" in finding.message


def test_autocorrelated_noise_is_named():
    """Noise of neighbouring steps correlated by 0.3, as momentum or a cache of batches would leave it."""
    run = quadratic_run(seed=2)
    noise = run["noisy_gradient"]
    run["noisy_gradient"] = np.sqrt(0.9) * noise + 0.33 * np.roll(noise, 1, axis=0)
    assert "autocorrelation" in checks(diagnose(na.Release.from_arrays(**run)))


@pytest.mark.parametrize("size", [1, 3])
def test_a_short_window_is_a_note_where_the_curvature_was_released(size):
    """The curvature of the first `size` of five coordinates is known; slow are phi[0] and phi[2]."""
    run = quadratic_run(**FAULTS["relaxation"], seed=1)
    # kappa times the curvature is the slope of `quadratic_run`.
    curvature = np.eye(size) / (POSTERIOR_SD * np.sqrt(800) * run["sampling_rate"])
    made = na.Release.from_arrays(**run, curvature=curvature, curvature_std=np.full((size, size), 0.01))

    def slow(found, severity):
        found = [item for item in found.findings if (item.check, item.severity) == ("relaxation", severity)]
        return {name for item in found for name in item.coordinates}

    # A diagonal curvature is learnt from the trace, whatever was released.
    unknown = diagnose_with(made, burn_in=None, is_diagonal=True)
    assert slow(unknown, "warning") == {"phi[0]", "phi[2]"}
    assert not slow(unknown, "note")
    known = set(made.phi_labels[:size])
    found = diagnose(made)
    assert slow(found, "note") == slow(unknown, "warning") & known
    assert slow(found, "warning") == slow(unknown, "warning") - known
    assert slow(found, "note")
    note = next(item for item in found.findings if item.severity == "note")
    assert "rest on the one that was released" in note.sentence()


def test_too_many_coordinates_are_counted_and_the_worst_shown():
    times = np.r_[np.linspace(0.5, 3, 14), np.full(6, 100.0)]
    finding = next(f for f in diagnose(quadratic_release(times=times)).findings if f.check == "relaxation")
    assert finding.num_coordinates >= 5
    assert len(finding.coordinates) == 3
    assert "of 20 coordinates (worst first: " in finding.message
    assert ", ..." in finding.message


def test_the_level_allows_for_the_number_of_tests():
    """A correlation of residuals that speaks among 2 coordinates is silent among 2,000."""
    score = stats.norm.isf(FALSE_ALARM / 2 / 2) + 0.3
    assert stats.norm.isf(FALSE_ALARM / 2 / 2000) > score


class TestWhatIsKept:
    def test_sums_show_the_same(self):
        release = quadratic_release(start=(400.0, 3.0, 0.0, 0.0), seed=4)
        whole, sums = diagnose(release, burn_in=0.05), diagnose(kept_as_sums(release, burn_in=0.05))
        names = ["step", "relaxation_times", "variance_ratio", "prior_weight", "start"]
        pd.testing.assert_frame_equal(sums.table[names], whole.table[names], rtol=1e-6)
        assert sums.table[["drift", "quadratic", "autocorrelation", "cross"]].isna().all(axis=None)
        assert "stationarity" in checks(sums) & checks(whole)
        assert "need the steps" in sums.not_checked[0]
        assert sums.burn_in == 0.05

    def test_thinned(self):
        release = quadratic_release(times=(60.0, 100.0, 200.0), num_steps=2000, seed=5)
        config = DPVIConfig(num_steps=2000, thin=4)
        kept = slice(3, None, 4)
        thinned = dataclasses.replace(
            release,
            phi=release.phi[kept],
            noisy_gradient=release.noisy_gradient[kept],
            final_phi=release.final_phi,
            config=config,
        )
        whole, part = diagnose(release), diagnose(thinned)
        assert part.findings == ()
        assert "each 4th step" in part.not_checked[0]
        ratio = part.table["relaxation_times"] / whole.table["relaxation_times"]
        np.testing.assert_allclose(ratio, 1.0, atol=0.5)

    def test_thinned_and_far_away(self):
        release = quadratic_release(times=(10.0, 100.0), start=(300.0, 0.0), num_steps=2000)
        thinned = dataclasses.replace(
            release,
            phi=release.phi[1::2],
            noisy_gradient=release.noisy_gradient[1::2],
            config=DPVIConfig(num_steps=2000, thin=2),
        )
        assert "stationarity" in checks(diagnose(thinned, burn_in=0.05))

    def test_without_a_learning_rate(self):
        run = quadratic_run(seed=6) | {"learning_rate": np.nan}
        found = diagnose(na.Release.from_arrays(**run))
        assert found.findings == ()
        assert found.table["step"].isna().all()
        np.testing.assert_allclose(found.table["relaxation_times"], [30, 60, 90, 200], rtol=0.6)
        assert "learning_rate" in found.not_checked[-1]

    def test_one_hundred_thousand_sums(self):
        size, ones = 100_000, np.ones(100_000)
        small = kept_as_sums(quadratic_release(times=(60.0,)))
        sums = na.Release.from_arrays(
            phi=np.zeros((1, size)),
            noisy_gradient=np.zeros((1, size)),
            noise_multiplier=1.0,
            clip_norm=1.0,
            sampling_rate=0.1,
        )
        wide = dataclasses.replace(
            small.sums,
            **{
                name: np.resize(getattr(small.sums, name), size)
                for name in ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg")
            },
        )
        made = dataclasses.replace(sums, sums=wide, learning_rate=0.1 * ones, final_phi=0 * ones)
        found = diagnose(made)
        assert found.table.shape == (size, 11)

    def test_nothing_to_check_without_noise(self):
        run = quadratic_run() | {"noise_multiplier": 0.0}
        with pytest.raises(na.ArgumentError, match="holds no noise"):
            diagnose(na.Release.from_arrays(**run))

    def test_wrong_type(self):
        with pytest.raises(na.ArgumentError, match="must be a Release"):
            diagnose("release.nc")

    def test_a_window_of_three_steps(self):
        made = quadratic_release(num_steps=40)
        assert len(diagnose(made, burn_in=0.93).table) == 4


class TestSettingsOfTheRun:
    def test_early_steps_in_the_window(self, coin):
        config = dataclasses.replace(coin.config, early_steps=300, early_factor=2.0)
        found = diagnose(dataclasses.replace(coin, config=config))
        finding = next(item for item in found.warnings if item.check == "early_steps")
        assert "100 steps before" in finding.message
        assert "0.3" in finding.remedy
        assert "early_steps" not in checks(diagnose(dataclasses.replace(coin, config=config), burn_in=0.3))

    def test_a_box_that_holds_the_iterates(self, coin):
        low = float(np.quantile(coin.phi[200:, 0], 0.2))
        config = dataclasses.replace(coin.config, box_mu=(low, 10.0))
        held = np.column_stack([np.maximum(coin.phi[:, 0], low), coin.phi[:, 1]])
        found = diagnose(dataclasses.replace(coin, phi=held, config=config))
        finding = next(item for item in found.warnings if item.check == "box")
        assert finding.value == pytest.approx(0.2, abs=0.01)

    def test_scales_are_noted_where_locations_warn(self, coin):
        """At epsilon 0.1 the scale's window is short: known, and of little harm."""
        slow = dataclasses.replace(coin, learning_rate=coin.learning_rate / 10)
        found = diagnose(kept_as_sums(slow))
        notes = next(
            item for item in found.findings if item.check == "relaxation" and item.severity == "note"
        )
        assert notes.coordinates == ("u[probability]",)


class TestBurnIn:
    def test_none_is_needed(self, coin):
        assert choose_burn_in(coin) <= 0.1

    def test_a_transient_is_left_out(self):
        far = quadratic_release(times=(60.0, 100.0), start=(300.0, 0.0))
        chosen = choose_burn_in(far)
        assert 0.05 < chosen <= 0.3
        assert "stationarity" not in checks(diagnose(far, burn_in=chosen))
        assert "stationarity" in checks(diagnose(far, burn_in=chosen - 0.1))

    def test_at_most_a_half_and_then_it_warns(self):
        far = quadratic_release(times=(6.0, 100.0), start=(3000.0, 0.0))
        assert choose_burn_in(far) == 0.5
        assert "stationarity" in checks(diagnose(far, burn_in=0.5))

    def test_early_steps_are_left_out(self, coin):
        config = dataclasses.replace(coin.config, early_steps=250, early_factor=2.0)
        assert choose_burn_in(dataclasses.replace(coin, config=config)) >= 0.25

    def test_sums_have_their_window(self):
        with pytest.raises(na.ArgumentError, match="burn_in was fixed"):
            choose_burn_in(kept_as_sums(quadratic_release()))

    def test_the_number_is_recorded(self):
        far = quadratic_release(times=(60.0, 100.0), start=(300.0, 0.0))
        posterior = na.infer(far, method="exact", draws=20, seed=1, burn_in="auto")
        assert posterior.settings["burn_in"] == choose_burn_in(far)
        same = na.infer(far, method="exact", draws=20, seed=1, burn_in=choose_burn_in(far))
        assert (same.groups["posterior"]["phi_star"] == posterior.groups["posterior"]["phi_star"]).all()

    @pytest.mark.parametrize("value", ["often", -0.1, 1.0, None.__class__])
    def test_anything_else_is_refused(self, coin, value):
        with pytest.raises(na.ArgumentError, match="burn_in"):
            na.infer(coin, method="exact", draws=20, burn_in=value)


class TestFinding:
    def test_round_trip(self):
        for check, settings in FAULTS.items():
            for finding in diagnose(quadratic_release(**settings)).findings:
                assert Finding.from_dict(finding.to_dict()) == finding, check

    @pytest.mark.parametrize(("name", "value"), [("check", "mood"), ("severity", "panic")])
    def test_closed_choices(self, name, value):
        finding = diagnose(quadratic_release(**FAULTS["relaxation"])).findings[0]
        with pytest.raises(na.ArgumentError, match=name):
            dataclasses.replace(finding, **{name: value})

    def test_repr_is_for_people(self):
        text = repr(diagnose(quadratic_release(**FAULTS["relaxation"])))
        assert text.startswith("<nadpvi.Diagnostics: 5 coordinates, 800 noisy gradients.")
        assert "warning: the window is short" in text
        assert "Nothing found" in repr(diagnose(quadratic_release()))
