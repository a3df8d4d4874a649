"""How well does a trace tell the curvature? Against theorem 2, on runs of the engine with a known optimum.

The guide is held at a point, so that the loss is the negative log posterior: a location and its curvature.
"""

import numpy as np
import pytest
from theory_cases import CURVATURE, OPTIMUM, RATE, SAMPLING, STEPS, coin_runs, coin_slope, errors_of

import nadpvi as na
from nadpvi.gradient_model.curvature_priors import curvature_prior_of
from nadpvi.gradient_model.sums import make_trace_sums
from nadpvi.theory import curvature_variance, least_curvature_variance

# Standard errors: fewer than twenty numbers within 4.5 of them fail by chance under one seed in 7,000.
SOUND, WRONG = 4.5, 6.0


def estimates(runs):
    """Return the least-squares curvature with the optimum known, (R,)."""
    distance = runs.phi - OPTIMUM
    return np.sum(runs.gradient * distance, axis=1) / (RATE * np.sum(distance**2, axis=1))


def variances(runs, *, rate=RATE, noise_std=None):
    """Return what theorem 2 says of each replicate, (R,)."""
    noise_std = runs.noise_std if noise_std is None else noise_std
    return curvature_variance((runs.phi - OPTIMUM).T, sampling_rate=rate, noise_std=noise_std)


@pytest.fixture(scope="module")
def moving():
    """Runs of 200 steps, 80 relaxation times: started at the optimum, then free."""
    return coin_runs(step=0.4)


class TestVariance:
    def test_at_a_point(self):
        """At steps too small to move, iterates are given, as the theorem has them: its variance, no bias."""
        still = coin_runs(step=1e-9, start=OPTIMUM + 0.05)
        sd = np.sqrt(variances(still))
        np.testing.assert_allclose(sd, still.noise_std / (RATE * 0.05 * np.sqrt(STEPS)), rtol=1e-5)
        scores = (estimates(still) - coin_slope(OPTIMUM + 0.05) / 0.05) / sd
        assert abs(errors_of(scores, 0.0)) < SOUND
        assert abs(errors_of(scores**2, 1.0)) < SOUND

    def test_of_iterates_that_move(self, moving):
        squares = (estimates(moving) - CURVATURE - feedback(0.4)) ** 2
        assert abs(errors_of(squares / variances(moving), 1.0)) < SOUND
        for wrong in (
            variances(moving, rate=1.0),  # kappa left out
            variances(moving, rate=np.sqrt(RATE)),  # or not squared
            variances(moving, noise_std=np.sqrt(moving.noise_std**2 - SAMPLING)),  # Sigma_sub = 0, as printed
        ):
            assert abs(errors_of(squares / wrong, 1.0)) > WRONG

    def test_feedback_makes_the_estimate_larger(self, moving):
        """Theorem 2 takes iterates as given; in a run they follow the noise, and the slope leans to decay.

        By 2 rho / n, as in any autoregression with a known mean (White 1961, Biometrika 48, 85), rho = 1 -
        lambda kappa a: 0.015 of the curvature here, and a tenth of its sd.
        """
        assert abs(errors_of(estimates(moving), CURVATURE + feedback(0.4))) < SOUND
        slow = estimates(coin_runs(step=0.02, seed=4)) / CURVATURE
        # four relaxation times: the curvature is overestimated by about half of it
        assert abs(errors_of(slow, 1.0)) > WRONG
        assert 1.25 < slow.mean() < 1.75

    def test_privacy_does_not_matter_to_settled_iterates(self, moving):
        """More noise moves iterates further out (theorem 3): the relative error is set by steps alone."""
        expected = np.sqrt((2.0 - 0.4) / (STEPS * 0.4))
        for runs in (moving, coin_runs(step=0.4, clip_norm=2.0)):
            relative = np.sqrt(np.mean(variances(runs))) / CURVATURE
            assert abs(relative / expected - 1) < 0.05
        assert runs.noise_std > 2 * moving.noise_std

    def test_the_published_prior_has_it_with_the_mean_for_the_optimum(self, moving):
        """Appendix 13.3 prints the square of this sd, which is not a curvature's."""
        phi, noise_std = moving.phi[0, :, None], np.array([65.0])
        sums = make_trace_sums(phi, moving.gradient[0, :, None], burn_in=0.0)
        prior = curvature_prior_of(
            "trace",
            sums=sums,
            noise_std=noise_std,
            sampling_rate=RATE,
            guide=None,
            prior_sd=np.array([np.nan]),
        )
        sd = np.sqrt(curvature_variance(phi - sums.phi_bar, sampling_rate=RATE, noise_std=noise_std))
        np.testing.assert_allclose(prior.sd, sd, rtol=1e-9)
        assert not np.isclose(prior.sd, sd**2, rtol=0.5)


class TestTradeOff:
    """No estimate is better than s^2 / (kappa^2 n r^2) while iterates stay within r of the optimum."""

    def test_of_runs(self, moving):
        found = variances(moving)
        radii = np.abs(moving.phi - OPTIMUM).max(axis=1)
        known = {"sampling_rate": RATE, "noise_std": [moving.noise_std]}
        least = np.array([least_curvature_variance(STEPS, radius=radius, **known) for radius in radii])
        assert (found >= least).all()
        # The farthest of 200 iterates is some three sds out: the bound is short by about the square.
        assert 4 < np.median(found / least) < 15

    def test_wider_runs_know_more(self, moving):
        """With an eighth of the step size iterates stay nearer, and tell less."""
        near = variances(coin_runs(step=0.05))
        assert np.median(near) > 5 * np.median(variances(moving))

    def test_worst_of_several_coordinates(self):
        """The ball is shared: in D coordinates the worst is D times what theorem 2 grants a single one."""
        rng = np.random.default_rng(0)
        noise_std = np.array([1.0, 2.0, 0.5])
        least = least_curvature_variance(50, radius=0.3, sampling_rate=0.1, noise_std=noise_std)
        single = least_curvature_variance(50, radius=0.3, sampling_rate=0.1, noise_std=noise_std[1:2])
        for _ in range(200):
            away = rng.standard_normal((50, 3)) * rng.gamma(1.0, size=3)
            away *= 0.3 / np.linalg.norm(away, axis=1, keepdims=True)
            assert curvature_variance(away, sampling_rate=0.1, noise_std=noise_std).max() >= least
        # Reached where distances are shared out as the noise is.
        best = np.full((50, 3), 0.3) * noise_std / np.linalg.norm(noise_std)
        found = curvature_variance(best, sampling_rate=0.1, noise_std=noise_std)
        np.testing.assert_allclose(found, least, rtol=1e-12)
        assert least > 1.3 * single

    def test_radius_and_steps_are_checked(self):
        for wrong in ({"radius": 0.0}, {"radius": -1.0}):
            with pytest.raises(na.errors.ArgumentError, match="radius"):
                least_curvature_variance(10, sampling_rate=0.1, noise_std=[1.0], **wrong)


def feedback(step):
    """Return how much too large the curvature is estimated on average."""
    return 2.0 * (1.0 - step) / STEPS * CURVATURE / step
