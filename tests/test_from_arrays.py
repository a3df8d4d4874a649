"""Traces from elsewhere: one release whatever the sums were divided by, and faults that show refused."""

import dataclasses

import numpy as np
import pytest
from scipy import optimize, stats

import nadpvi as na
from nadpvi.containers.trace_checks import check_claimed_noise
from nadpvi.gradient_model.dense.known import make_dense_prior

NUM_RECORDS, RATE, STEPS, CLIP = 4000, 0.1, 600, 2.0
BATCH = 400
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
SIGMA = 9.3  # epsilon 1 at 600 steps; tested below


def records():
    rng = np.random.default_rng(20)
    x = np.column_stack([np.ones(NUM_RECORDS), rng.uniform(-1, 1, (NUM_RECORDS, 3))])
    y = rng.random(NUM_RECORDS) < 1 / (1 + np.exp(-x @ [0.3, 1.0, -1.0, 0.5]))
    return x, y.astype(float)


def optimum(x, y):
    """The mode under a standard normal prior: what the trace would settle at without noise."""
    z = 2 * y - 1
    return optimize.minimize(
        lambda b: np.logaddexp(0, -z * (x @ b)).sum() + b @ b / 2, np.zeros(4), method="BFGS"
    ).x


def dp_sgd(x, y, *, seed, rate=0.0012, steps=STEPS):
    """DP-SGD on parameters themselves, in sums: (phi (T + 1, 4), noisy_gradient (T, 4))."""
    rng = np.random.default_rng(seed)
    phi, gradients = [np.zeros(4)], []
    for _ in range(steps):
        rows = rng.random(len(y)) < RATE
        residual = 1 / (1 + np.exp(-x[rows] @ phi[-1])) - y[rows]
        each = residual[:, None] * x[rows]
        each *= np.minimum(1, CLIP / np.linalg.norm(each, axis=1))[:, None]
        noisy = each.sum(axis=0) + SIGMA * CLIP * rng.standard_normal(4)
        gradients.append(noisy + RATE * phi[-1])
        phi.append(phi[-1] - rate * gradients[-1])
    return np.array(phi), np.array(gradients)


DATA = records()
PHI, GRADIENT = dp_sgd(*DATA, seed=1)


def arguments(**changes):
    base = {
        "phi": PHI,
        "noisy_gradient": GRADIENT,
        "noise_multiplier": SIGMA,
        "clip_norm": CLIP,
        "sampling_rate": RATE,
        "learning_rate": 0.0012,
    }
    return base | changes


def divided(by, **changes):
    return arguments(noisy_gradient=GRADIENT / by, learning_rate=0.0012 * by, **changes)


AS_SUM = na.Release.from_arrays(**arguments())


@pytest.mark.parametrize(
    "given",
    [
        divided(RATE * NUM_RECORDS, loss="mean", num_records=NUM_RECORDS),
        divided(RATE * NUM_RECORDS, loss="expected_batch", expected_batch_size=BATCH),
        divided(RATE, loss="expected_batch", expected_batch_size=RATE),  # an estimate of the whole sum
    ],
    ids=["mean", "expected batch", "whole sum"],
)
def test_one_release_whatever_the_sums_were_divided_by(given):
    made = na.Release.from_arrays(**given)
    for name in ("phi", "noisy_gradient", "learning_rate", "noise_std", "final_phi"):
        np.testing.assert_allclose(getattr(made, name), getattr(AS_SUM, name), rtol=1e-12)
    fitted = na.infer(made, method="exact", draws=200, chains=1, seed=1)
    expected = na.infer(AS_SUM, method="exact", draws=200, chains=1, seed=1)
    np.testing.assert_allclose(
        fitted.groups["posterior"]["phi_star"], expected.groups["posterior"]["phi_star"], rtol=1e-6
    )


def test_the_final_iterate_is_a_row_more_or_follows_from_the_learning_rate():
    np.testing.assert_array_equal(AS_SUM.phi, PHI[:-1])
    np.testing.assert_array_equal(AS_SUM.final_phi, PHI[-1])
    without = na.Release.from_arrays(**arguments(phi=PHI[:-1]))
    np.testing.assert_allclose(without.final_phi, PHI[-1], rtol=1e-12)
    unknown = na.Release.from_arrays(**arguments(phi=PHI[:-1], learning_rate=np.nan))
    assert np.isnan(unknown.final_phi).all()


def test_labels_and_priors_are_kept(tmp_path):
    made = na.Release.from_arrays(
        **arguments(phi_labels=["Intercept", "a", "b", "c"], model_prior_mean=0.0, model_prior_sd=1.0)
    )
    back = na.Release.load(made.save(tmp_path / "own.nc"))
    assert back.phi_labels == ("Intercept", "a", "b", "c")
    np.testing.assert_array_equal(back.model_prior_sd, np.ones(4))
    np.testing.assert_array_equal(back.final_phi, made.final_phi)
    table = na.infer(back, method="exact", seed=0).summary()
    assert list(table.index) == ["Intercept", "a", "b", "c"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": "average"}, "loss must be one of 'sum', 'mean', 'expected_batch'"),
        ({"loss": "mean"}, "loss='mean' needs num_records"),
        ({"loss": "expected_batch"}, "loss='expected_batch' needs expected_batch_size"),
        ({"num_records": 2000}, "num_records belongs to loss='mean'"),
        ({"expected_batch_size": 200}, "expected_batch_size belongs to loss='expected_batch'"),
        ({"loss": "mean", "num_records": 2000, "expected_batch_size": 200}, "leave it out with loss='mean'"),
        ({"loss": "mean", "num_records": 0}, "num_records must be"),
        ({"loss": "mean", "num_records": 99.5}, "num_records must be"),
        ({"loss": "expected_batch", "expected_batch_size": -1}, "expected_batch_size must be"),
        ({"loss": "expected_batch", "expected_batch_size": float("nan")}, "expected_batch_size must be"),
        ({"phi": PHI[:-2]}, "one more row, the final iterate"),
        ({"phi": PHI[:, :3]}, "one more row, the final iterate"),
        ({"phi": np.vstack([PHI[:-1], np.full(4, np.inf)])}, "after the last step"),
        ({"learning_rate": -0.1}, "learning_rate must be finite and positive"),
        ({"learning_rate": 0.0}, "learning_rate must be finite and positive"),
        ({"learning_rate": [0.0012] * 3}, "learning_rate must have shape"),
        ({"noisy_gradient": "high"}, "noisy_gradient must be an array of numbers"),
        ({"phi": [[1.0], [1.0, 2.0]]}, "phi must be an array of numbers"),
        ({"sampling_rate": True}, "sampling_rate"),
        ({"num_steps": 900}, "num_steps goes with privacy"),
        ({"privacy": 1.0}, "privacy must be a PrivacyBudget"),
    ],
)
def test_impossible_combinations_are_one_line(changes, message):
    with pytest.raises(na.ArgumentError, match=message) as error:
        na.Release.from_arrays(**arguments(**changes))
    assert "\n" not in str(error.value)


def test_an_array_that_refuses_to_be_one():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    with pytest.raises(na.ArgumentError, match="noisy_gradient must be an array of numbers"):
        na.Release.from_arrays(**arguments(noisy_gradient=Tensor()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise_multiplier": "2"}, "noise_multiplier must be finite and not negative"),
        ({"noise_multiplier": None}, "noise_multiplier must be finite and not negative"),
        ({"noise_multiplier": True}, "noise_multiplier must be finite and not negative"),
        ({"noise_multiplier": np.ones(4)}, "noise_multiplier must be one number, finite and not negative"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be finite and not negative"),
        ({"clip_norm": "2"}, "clip_norm must be finite and positive"),
        ({"clip_norm": None}, "clip_norm must be finite and positive"),
        ({"clip_norm": True}, "clip_norm must be finite and positive"),
        ({"clip_norm": [2.0]}, "clip_norm must be one number, finite and positive"),
        ({"clip_norm": 0}, "clip_norm must be finite and positive"),
        ({"sampling_rate": np.full(40, 0.1)}, "sampling_rate must be one number"),
        ({"loss": ["sum"]}, "loss must be one of"),
        ({"phi": PHI.astype(complex)}, "phi must be an array of numbers"),
        ({"phi": PHI.astype(str)}, "phi must be an array of numbers"),
        ({"noisy_gradient": GRADIENT > 0}, "noisy_gradient must be an array of numbers"),
        ({"phi": np.ma.masked_greater(PHI, 0.9)}, "phi has masked entries"),
        ({"noisy_gradient": list(np.ma.masked_greater(GRADIENT, 0.0))}, "noisy_gradient has masked entries"),
        ({"phi": PHI[:1], "noisy_gradient": GRADIENT[:0]}, "must hold at least one step"),
        ({"phi": PHI[:, :0], "noisy_gradient": GRADIENT[:, :0]}, "of at least one coordinate"),
        ({"preconditioner": "a"}, "preconditioner must be an array of numbers"),
        ({"preconditioner": [1.0, 2.0]}, "preconditioner must have shape"),
        ({"phi_labels": "abcd"}, "phi_labels must be 4 different names, each of them text, in a list"),
        ({"phi_labels": {"a", "b", "c", "d"}}, "each of them text, in a list"),
        ({"phi_labels": 4}, "each of them text, in a list"),
        ({"phi_labels": [1, 2, 3, 4]}, "one is of type int"),
        ({"phi_labels": ["a", None, "c", "d"]}, "one is of type NoneType"),
        ({"phi_labels": [["a"], ["b"], ["c"], ["d"]]}, "one is of type list"),
        ({"phi_labels": ["a", "b\0", "c", "d"]}, "a character that no file can keep"),
        ({"phi_labels": ["a", "b\ud800", "c", "d"]}, "a character that no file can keep"),
        ({"phi_labels": ["a", "b", "b", "c"]}, "got 4, 3 of them different"),
        ({"model_prior_mean": 0.0, "model_prior_sd": 0.0}, "model_prior_sd must be finite and positive"),
        ({"model_prior_mean": 0.0, "model_prior_sd": -1.0}, "model_prior_sd must be finite and positive"),
        ({"model_prior_mean": 0.0, "model_prior_sd": np.inf}, "model_prior_sd must be finite and positive"),
        ({"model_prior_mean": np.inf, "model_prior_sd": 1.0}, "model_prior_mean must be finite"),
        ({"model_prior_mean": 0.0}, "go together"),
        ({"model_prior_sd": [1.0, np.nan, 1.0, 1.0]}, "go together"),
        ({"guarantee": "epsilon=1"}, "guarantee must be the Guarantee of a release"),
        ({"guarantee": {"epsilon": 1.0}}, "guarantee must be the Guarantee of a release"),
        ({"privacy": BUDGET, "num_steps": "600"}, "num_steps must be"),
        ({"curvature": "a", "curvature_std": 1.0}, "curvature must be an array of numbers"),
        ({"curvature": [[1.0], [1.0, 2.0]], "curvature_std": 1.0}, "curvature must be an array of numbers"),
        ({"curvature": np.eye(2), "curvature_std": "x"}, "curvature_std must be an array of numbers"),
    ],
)
def test_values_of_a_wrong_kind_are_one_line(changes, message):
    with pytest.raises(na.ArgumentError, match=message) as error:
        na.Release.from_arrays(**arguments(**changes))
    assert "\n" not in str(error.value)


def test_numbers_of_other_kinds_are_taken():
    base = na.Release.from_arrays(**arguments(noise_multiplier=2))
    unmasked = np.ma.masked_greater(GRADIENT, 1e9)
    for changes in ({"phi": PHI.astype(object)}, {"phi": PHI.tolist()}, {"noisy_gradient": unmasked}):
        made = na.Release.from_arrays(**arguments(noise_multiplier=np.float32(2), **changes))
        np.testing.assert_array_equal(made.noisy_gradient, base.noisy_gradient)
        np.testing.assert_array_equal(made.phi, base.phi)


def test_labels_come_back_from_a_file_as_they_were(tmp_path):
    labels = np.array(["", "größe, π", "a\nb", "chain"])
    made = na.Release.from_arrays(**arguments(phi_labels=labels))
    assert na.Release.load(made.save(tmp_path / "own.nc")).phi_labels == tuple(labels.tolist())


class TestCurvature:
    """A Hessian of the very records, released with little noise beside the trace."""

    SD = 5.0
    LONG, STEEP = dp_sgd(*DATA, seed=5, rate=0.004, steps=1500)

    def with_curvature(self, matrix, std, *, by=1.0, **changes):
        """The longer trace, divided by a number, with a curvature."""
        given = {"phi": self.LONG, "noisy_gradient": self.STEEP / by, "learning_rate": 0.004 * by}
        given |= {"curvature": matrix, "curvature_std": std}
        return na.Release.from_arrays(**arguments(**given, **changes))

    @pytest.fixture
    def hessian(self):
        x, y = DATA
        p = 1 / (1 + np.exp(-x @ optimum(x, y)))
        noise = np.random.default_rng(3).normal(scale=self.SD, size=(4, 4))
        return (x * (p * (1 - p))[:, None]).T @ x + np.eye(4) + (noise + noise.T) / np.sqrt(2)

    @staticmethod
    def findings(made):
        return [found for found in na.diagnose(made).findings if found.check == "released_curvature"]

    def test_it_is_of_the_loss_as_named(self, hessian):
        """Of the sum with loss="sum", and otherwise of the mean: multiplied back like the gradients."""
        as_sum = self.with_curvature(hessian, self.SD)
        np.testing.assert_array_equal(as_sum.curvature, hessian)
        mean = (hessian / NUM_RECORDS, self.SD / NUM_RECORDS)
        for made in (
            self.with_curvature(*mean, by=BATCH, loss="mean", num_records=NUM_RECORDS),
            self.with_curvature(*mean, by=BATCH, loss="expected_batch", expected_batch_size=BATCH),
            # gradients scaled up to the whole sum
            self.with_curvature(hessian, self.SD, by=RATE, loss="expected_batch", expected_batch_size=RATE),
        ):
            np.testing.assert_allclose(made.curvature, hessian, rtol=1e-12)
            np.testing.assert_allclose(made.curvature_std, np.full((4, 4), self.SD), rtol=1e-12)
            assert self.findings(made) == []

    @pytest.mark.parametrize(("factor", "std"), [(0.0, np.inf), (0.0, 1.0), (-1e-6, 10.0)])
    def test_one_that_says_nothing_is_no_news(self, hessian, factor, std):
        found = self.findings(self.with_curvature(factor * hessian, std))
        assert all(np.isfinite(one.value) for one in found)

    def test_one_of_minus_the_loss_is_refused(self, hessian):
        with pytest.raises(na.ArgumentError, match=r"curvature\[0, 0\] is .* of its own sds below 0"):
            na.Release.from_arrays(**arguments(curvature=-hessian, curvature_std=self.SD))
        # Noise alone may bring an entry below 0.
        small = np.diag([-3.0, 1.0, 1.0, 1.0]) * self.SD
        assert na.Release.from_arrays(**arguments(curvature=small, curvature_std=self.SD)).dimension == 4

    @pytest.mark.parametrize("factor", [1 / NUM_RECORDS, RATE, 1 / RATE, 5.0])
    def test_other_units_are_a_warning(self, hessian, factor):
        made = self.with_curvature(factor * hessian, factor * self.SD)
        (found,) = self.findings(made)
        assert (found.severity, found.num_coordinates) == ("warning", 4)
        assert "\n" not in found.sentence()
        with pytest.warns(na.GradientModelWarning, match="released curvature is not that of the trace"):
            na.infer(made, method="exact", draws=10, chains=1, seed=1)

    def test_clipping_and_noise_are_no_fault(self, hessian):
        for factor in (0.6, 1.0, 1.6):
            assert self.findings(self.with_curvature(factor * hessian, self.SD)) == []
        for std in (1e4, np.inf):
            assert self.findings(self.with_curvature(np.eye(4), std)) == []

    def test_short_windows_raise_no_alarm(self, hessian):
        """Windows of 1 to 20 relaxation times, whose slopes are overestimated by up to several times."""
        for seed in range(40):
            phi, gradient = dp_sgd(*DATA, seed=seed, rate=0.0003, steps=100 + 20 * seed)
            made = na.Release.from_arrays(
                **arguments(phi=phi, noisy_gradient=gradient, learning_rate=0.0003, curvature=hessian,
                            curvature_std=self.SD)
            )  # fmt: skip
            assert self.findings(made) == []

    def test_slopes_of_correlated_coordinates_are_compared_as_such(self):
        """A regression on one iterate sees the others through it: 0.19 of the diagonal here, and no fault."""
        matrix = 2000.0 * np.array([[1.0, 0.9], [0.9, 1.0]])
        rng, now, phi, gradient = np.random.default_rng(1), np.zeros(2), [], []
        for _ in range(4000):
            phi.append(now)
            gradient.append(RATE * matrix @ now + 20.0 * rng.standard_normal(2))
            now = now - 0.002 * gradient[-1]
        given = {"phi": np.array(phi), "noisy_gradient": np.array(gradient), "noise_multiplier": 10.0,
                 "clip_norm": 2.0, "sampling_rate": RATE, "learning_rate": 0.002}  # fmt: skip
        right = na.Release.from_arrays(**given, curvature=matrix, curvature_std=1.0)
        assert na.diagnose(right).table["step"].max() < 0.4 * 0.002 * RATE * 2000.0
        assert self.findings(right) == []
        wrong = na.Release.from_arrays(**given, curvature=np.diag([2000.0, 2000.0]), curvature_std=1.0)
        assert len(self.findings(wrong)) == 1
        # Of the first coordinate alone nothing can be said, since the other moves its slope.
        part = na.Release.from_arrays(**given, curvature=[[2000.0]], curvature_std=1.0)
        assert self.findings(part) == []

    def test_of_some_coordinates_is_enough_for_the_dense_method(self, hessian):
        made = na.Release.from_arrays(**arguments(curvature=hessian[:2, :2], curvature_std=self.SD))
        estimate = make_dense_prior(made).estimate
        np.testing.assert_array_equal(estimate.matrix[:2, :2], hessian[:2, :2])
        assert np.isinf(estimate.noise_std).sum() == 12
        assert np.isinf(estimate.noise_std[2:]).all()


class TestNoise:
    """The residual variance cannot be far below the noise's: then the normalisation is another."""

    def test_averages_called_sums_are_refused(self):
        with pytest.raises(na.ArgumentError, match=r"varies 0\.00\d+ times .* loss='sum': say by loss"):
            na.Release.from_arrays(**divided(BATCH, loss="sum"))
        with pytest.raises(na.ArgumentError, match="loss='mean'"):
            # Divided by N, not by the sampling rate times N: "mean" would make the noise a tenth.
            na.Release.from_arrays(**divided(NUM_RECORDS, loss="mean", num_records=NUM_RECORDS))

    def test_one_coordinate_without_its_noise(self):
        still = GRADIENT.copy()
        still[:, 2] = 0.1 * PHI[:-1, 2]
        with pytest.raises(na.ArgumentError, match="check noise_multiplier"):
            na.Release.from_arrays(**arguments(noisy_gradient=still, learning_rate=np.nan))

    def test_half_the_noise_in_a_short_trace(self):
        with pytest.raises(na.ArgumentError, match="varies"):
            na.Release.from_arrays(**arguments(noise_multiplier=2 * SIGMA))

    def test_honest_noise_passes(self):
        """2,000 traces of pure noise of each length; the check refuses one in 10^9."""
        rng = np.random.default_rng(5)
        for steps in (30, 300):
            for _ in range(2000):
                noise = rng.standard_normal((steps, 3))
                check_claimed_noise(np.cumsum(noise, axis=0), noise, noise_std=np.ones(3), loss="sum")

    def test_far_more_than_the_noise_is_no_fault(self):
        """Subsampling noise and a bent gradient add to it, at large epsilon by orders of magnitude."""
        assert na.Release.from_arrays(**arguments(noise_multiplier=SIGMA / 100)).num_steps == STEPS

    def test_a_run_without_noise_is_not_judged(self):
        assert na.Release.from_arrays(**divided(BATCH, noise_multiplier=0.0)).num_steps == STEPS


class TestPairing:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_phi_recorded_after_its_step_is_refused(self, dtype):
        late = arguments(phi=PHI[1:].astype(dtype), noisy_gradient=GRADIENT.astype(dtype))
        with pytest.raises(na.ArgumentError, match="record phi before each step"):
            na.Release.from_arrays(**late)
        with pytest.raises(na.ArgumentError, match="record phi before each step"):
            na.Release.from_arrays(**late | {"learning_rate": np.nan})

    def test_the_gradient_of_minus_the_loss_is_refused(self):
        with pytest.raises(na.ArgumentError, match="not of its negative"):
            na.Release.from_arrays(**arguments(noisy_gradient=-GRADIENT))

    @pytest.mark.parametrize("factor", [200.0, 1 / 200, 1.02])
    def test_a_learning_rate_of_other_units_is_refused(self, factor):
        with pytest.raises(na.ArgumentError, match="times learning_rate"):
            na.Release.from_arrays(**arguments(learning_rate=0.0012 * factor))
        with pytest.raises(na.ArgumentError, match="times learning_rate"):
            na.Release.from_arrays(**arguments(learning_rate=0.0012 * np.array([1, 1, factor, 1])))

    def test_other_optimisers_pass(self):
        rng = np.random.default_rng(0)
        gradient = SIGMA * CLIP * rng.standard_normal((STEPS, 4))
        velocity = np.zeros((STEPS + 1, 4))
        for t in range(STEPS):
            velocity[t + 1] = 0.9 * velocity[t] + gradient[t]
        phi = -0.0012 * np.cumsum(velocity, axis=0)
        made = na.Release.from_arrays(**arguments(phi=phi, noisy_gradient=gradient, learning_rate=np.nan))
        np.testing.assert_array_equal(made.final_phi, phi[-1])

    def test_a_thinned_trace_passes(self):
        made = na.Release.from_arrays(**arguments(phi=PHI[:-1:5], noisy_gradient=GRADIENT[::5]))
        assert made.num_steps == STEPS // 5

    def test_a_frozen_coordinate_is_left_out_of_it(self):
        phi, gradient = PHI.copy(), GRADIENT.copy()
        phi[:, 1] = 0.5
        assert na.Release.from_arrays(**arguments(phi=phi, noisy_gradient=gradient)).dimension == 4


class TestGuarantee:
    def test_a_known_budget_is_accounted_from_the_settings(self, tmp_path):
        made = na.Release.from_arrays(**arguments(privacy=BUDGET))
        promised = made.guarantee
        assert made.is_private
        assert promised.epsilon == pytest.approx(
            na.epsilon_spent(noise_multiplier=SIGMA, delta=1e-5, num_steps=STEPS, sampling_rate=RATE),
            rel=1e-6,
        )
        assert 0.9 < promised.epsilon <= 1.0
        assert promised.num_steps == STEPS
        assert "of another program, taken on trust" in promised.sentence()
        assert "number of records" not in promised.assumed_public
        assert na.Release.load(made.save(tmp_path / "own.nc")).guarantee == promised
        assert na.infer(made, method="exact", seed=0).guarantee == promised

    def test_a_budget_that_the_noise_does_not_keep_is_refused(self):
        with pytest.raises(na.PrivacyError, match="spends epsilon"):
            na.Release.from_arrays(
                **arguments(privacy=dataclasses.replace(BUDGET, epsilon=0.5), noise_multiplier=SIGMA)
            )
        with pytest.raises(na.PrivacyError, match="spends epsilon"):
            na.Release.from_arrays(**arguments(privacy=BUDGET, num_steps=3 * STEPS))

    def test_steps_that_are_not_here_count(self):
        thinned = arguments(phi=PHI[:-1:5], noisy_gradient=GRADIENT[::5], privacy=BUDGET, num_steps=STEPS)
        whole = na.Release.from_arrays(**arguments(privacy=BUDGET)).guarantee
        assert na.Release.from_arrays(**thinned).guarantee == whole
        with pytest.raises(na.ArgumentError, match="guarantee must be that of this trace"):
            na.Release.from_arrays(**arguments(privacy=BUDGET, num_steps=STEPS - 1))

    def test_records_counted_in_the_loss_are_public(self):
        made = na.Release.from_arrays(
            **divided(RATE * NUM_RECORDS, loss="mean", num_records=NUM_RECORDS, privacy=BUDGET)
        )
        assert "number of records" in made.guarantee.assumed_public

    def test_one_or_the_other(self):
        promised = na.Release.from_arrays(**arguments(privacy=BUDGET)).guarantee
        assert na.Release.from_arrays(**arguments(guarantee=promised)).guarantee == promised
        with pytest.raises(na.ArgumentError, match="guarantee or privacy, not both"):
            na.Release.from_arrays(**arguments(guarantee=promised, privacy=BUDGET))


def posteriors(num_runs):
    """Yield draws of phi_star, shape (4000, 4), of so many runs on the same records."""
    for seed in range(num_runs):
        phi, gradient = dp_sgd(*DATA, seed=seed)
        made = na.Release.from_arrays(
            phi=phi,
            noisy_gradient=gradient / BATCH,
            noise_multiplier=SIGMA,
            clip_norm=CLIP,
            sampling_rate=RATE,
            loss="expected_batch",
            expected_batch_size=BATCH,
        )
        yield (
            na.infer(made, method="exact", seed=seed)
            .groups["posterior"]["phi_star"]
            .to_numpy()
            .reshape(-1, 4)
        )


# The curvature's own draws decide how many relaxation times a window seems to hold.
@pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")
def test_intervals_hold_the_optimum_without_noise():
    """40 runs, 4 coefficients: coverage within 5 standard errors of 0.9; a false alarm in 10^6 at most.

    With half the sd a calibrated interval covers 0.59, and the same test refuses it.
    """
    truth, z, held, held_by_half = optimum(*DATA), [], [], []
    for draws in posteriors(40):
        mean = draws.mean(axis=0)
        z.append((mean - truth) / draws.std(axis=0))
        for shrink, kept in ((1.0, held), (0.5, held_by_half)):
            low, high = np.quantile(mean + shrink * (draws - mean), [0.05, 0.95], axis=0)
            kept.append((low < truth) & (truth < high))
    error = np.sqrt(0.9 * 0.1 / np.size(held))
    assert abs(np.mean(held) - 0.9) < 5 * error
    assert stats.chi2.sf(np.sum(np.square(z)), np.size(z)) > 1e-6
    assert abs(np.mean(held_by_half) - 0.9) > 5 * error
