"""The named priors of the curvature: what each is centred on, and what it does to a posterior."""

import dataclasses
import math

import numpy as np
import pytest

from nadpvi import FullRank, MeanField
from nadpvi.bijectors import softplus
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model import GradientModel, make_trace_sums
from nadpvi.gradient_model.curvature_priors import CurvaturePrior, curvature_prior_of
from nadpvi.inference.exact import sample_exact

KAPPA = 0.1


def make_sums(curvature, *, noise=1.0, num_steps=2000, step=0.05, seed=0, start=None):
    """Return the window of a run on a quadratic loss with optimum 0, one coordinate for each curvature."""
    curvature = np.asarray(curvature, dtype=float)
    rng = np.random.default_rng(seed)
    rate = step / (KAPPA * curvature)
    phi, g = np.empty((2, num_steps, len(curvature)))
    now = np.zeros(len(curvature)) if start is None else np.asarray(start, dtype=float)
    for t in range(num_steps):
        phi[t] = now
        g[t] = KAPPA * curvature * now + noise * rng.standard_normal(len(curvature))
        now = now - rate * g[t]
    return make_trace_sums(phi, g, burn_in=0.2)


def prior_of(choice, sums, *, noise=1.0, guide=None, prior_sd=None, has_tau=False):
    size = sums.num_parameters
    return curvature_prior_of(
        choice,
        sums=sums,
        noise_std=np.full(size, noise),
        sampling_rate=KAPPA,
        guide=guide,
        prior_sd=np.full(size, np.nan) if prior_sd is None else prior_sd,
        has_tau=has_tau,
    )


def curvature_draws(sums, prior, *, noise=1.0):
    size = sums.num_parameters
    model = GradientModel(
        sums=sums,
        sampling_rate=KAPPA,
        noise_std=np.full(size, noise),
        phi_star_prior_mean=sums.phi_bar,
        phi_star_prior_sd=np.ones(size),
        v_prior_mean=prior.mean,
        v_prior_sd=prior.sd,
        tau_prior_scale=None,
        phi_labels=tuple(f"phi[{i}]" for i in range(size)),
    )
    return sample_exact(model, draws=2000, chains=1, seed=1).curvature[0]


def test_trace_is_the_published_prior_where_the_curvature_is_large():
    sums = make_sums([50.0, 400.0])
    prior = prior_of("trace", sums)
    np.testing.assert_allclose(prior.mean, np.abs(sums.slope) / KAPPA, rtol=1e-12)
    np.testing.assert_allclose(prior.sd, 1.0 / (KAPPA * np.sqrt(sums.s_pp)), rtol=1e-12)


def test_trace_does_not_pull_a_small_curvature_upwards():
    # As printed, v itself is compared with the estimate: softplus(0.2) is 0.80.
    noise = 0.002
    sums = make_sums([0.2], noise=noise, num_steps=4000)
    estimate, spread = sums.slope / KAPPA, noise / (KAPPA * np.sqrt(sums.s_pp))
    printed = CurvaturePrior(estimate, spread)
    assert curvature_draws(sums, printed, noise=noise).mean() > 0.3
    right = curvature_draws(sums, prior_of("trace", sums, noise=noise), noise=noise)
    assert abs(right.mean() - estimate[0]) < 0.3 * spread[0]


def test_weak_is_three_times_as_wide_around_the_same_centre():
    sums = make_sums([0.5, 2.0, 300.0])
    trace, weak = prior_of("trace", sums), prior_of("weak", sums)
    np.testing.assert_array_equal(weak.mean, trace.mean)
    np.testing.assert_allclose(weak.sd, 3.0 * trace.sd, rtol=1e-15)


@pytest.mark.parametrize("choice", ["trace", "weak"])
def test_where_tau_is_inferred_the_sd_is_that_of_the_residuals(choice):
    """The regression errs by all the noise that there is, here five times the privacy noise."""
    sums = make_sums([50.0, 400.0], noise=5.0)
    known, inferred = prior_of(choice, sums), prior_of(choice, sums, has_tau=True)
    np.testing.assert_array_equal(inferred.mean, known.mean)
    residual_sd = np.sqrt(sums.residual / (sums.num_steps - 2))
    np.testing.assert_allclose(inferred.sd, residual_sd * known.sd, rtol=1e-12)
    assert (residual_sd > 4.5).all()
    # never below the privacy noise, whatever chance made of the residuals
    quiet = prior_of(choice, sums, noise=10.0, has_tau=True)
    np.testing.assert_array_equal(quiet.sd, prior_of(choice, sums, noise=10.0).sd)


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("choice", ["trace", "weak"])
def test_an_estimate_of_nothing_gives_a_finite_prior_that_reaches_its_own_error(choice, size):
    # No slope at all, with a standard error of `size`.
    phi = np.resize([1.0, -1.0], (1000, 1))
    g = np.resize([1.0, 1.0, -1.0, -1.0], (1000, 1))
    sums = make_trace_sums(phi, g, burn_in=0.0)
    assert sums.slope.item() == pytest.approx(0.0, abs=1e-12)
    noise = size * KAPPA * math.sqrt(sums.s_pp.item())
    prior = prior_of(choice, sums, noise=noise)
    assert np.isfinite(prior.mean).all()
    assert np.isfinite(prior.sd).all()
    assert (prior.sd > 0).all()
    low, high = softplus(prior.mean + np.array([-2.0, 2.0])[:, None] * prior.sd)
    assert low.item() < size < high.item() < 1e3 * size


class TestModelPrior:
    """A Gaussian posterior of precision h: the mean-field guide's scales settle at h^-1/2."""

    PRECISION = np.array([0.5, 40.0, 3000.0])
    GUIDES = (MeanField(scale="sd"), MeanField(scale="variance"))

    def settled_sums(self, guide, *, offset=0.0, scatter=0.0):
        """Return the window of noiseless gradients around a phi that is `offset` from the optimum.

        `scatter` is the sd of the scales around it.
        """
        sd = self.PRECISION**-0.5
        optimum = np.log(np.expm1(sd if guide.scale == "sd" else sd**2))
        rng = np.random.default_rng(3)
        phi = np.concatenate([rng.normal(size=3), optimum])
        phi = phi + np.array([0.0] * 3 + [offset] * 3) + 1e-5 * rng.standard_normal((400, 6))
        phi[:, 3:] += scatter * rng.standard_normal((400, 3))
        sds = guide.standard_deviation(phi)
        derivative = guide.standard_deviation_derivative(phi)
        # d/du (h sd^2 / 2 - log sd)
        scales = (self.PRECISION * sds - 1.0 / sds) * derivative
        return make_trace_sums(phi, KAPPA * np.hstack([np.zeros((400, 3)), scales]), burn_in=0.0)

    @pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.scale)
    def test_locations_get_the_precision_and_scales_their_own_curvature(self, guide):
        prior = prior_of("model", self.settled_sums(guide), noise=1e-9, guide=guide)
        curvature = softplus(prior.mean)
        np.testing.assert_allclose(curvature[:3], self.PRECISION, rtol=1e-3)
        sums = self.settled_sums(guide)
        np.testing.assert_allclose(curvature[3:], sums.slope[3:] / KAPPA, rtol=1e-3)

    @pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.scale)
    def test_a_window_that_has_not_settled_is_carried_on_to_where_it_will(self, guide):
        sums = self.settled_sums(guide, offset=-0.1)
        prior = prior_of("model", sums, noise=1e-9, guide=guide)
        curvature = softplus(prior.mean[:3])
        unsettled = guide.standard_deviation(sums.phi_bar) ** -2.0
        assert (np.abs(np.log(curvature / self.PRECISION)) < 0.1).all()
        errors = np.abs(np.log(curvature / self.PRECISION)), np.abs(np.log(unsettled / self.PRECISION))
        assert (errors[0] < 0.5 * errors[1]).all()

    @pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.scale)
    def test_scatter_of_the_scales_does_not_move_it(self, guide):
        scattered = self.settled_sums(guide, scatter=0.5 if guide.scale == "sd" else 1.0)
        found = softplus(prior_of("model", scattered, noise=1e-9, guide=guide).mean)
        # A scale far below 1, where softplus is the exponential; by its place alone 1.65 times that.
        np.testing.assert_allclose(found[2], self.PRECISION[2], rtol=0.1)

    def test_the_tighter_one_is_chosen_for_each_coordinate(self):
        guide = MeanField()
        quiet, loud = (self.settled_sums(guide, scatter=scatter) for scatter in (0.0, 0.3))
        # Locations that hardly moved say nothing of their curvature; the scales do.
        for sums in (quiet, loud):
            tighter, model = (prior_of(name, sums, noise=1.0, guide=guide) for name in ("tighter", "model"))
            np.testing.assert_array_equal(tighter.mean[:3], model.mean[:3])
        moved = dataclasses.replace(quiet, s_pp=quiet.s_pp * [1e14, 1.0, 1.0, 1.0, 1.0, 1.0])
        tighter, trace = (prior_of(name, moved, noise=1.0, guide=guide) for name in ("tighter", "trace"))
        assert (tighter.mean[0], tighter.sd[0]) == (trace.mean[0], trace.sd[0])
        assert tighter.mean[1] != trace.mean[1]

    def test_noise_in_the_scales_makes_it_wide_for_locations(self):
        guide = MeanField()
        sums = self.settled_sums(guide)
        relative = []
        for noise in (1e-9, 2.0):
            prior = prior_of("model", sums, noise=noise, guide=guide)
            relative.append(prior.sd * -np.expm1(-softplus(prior.mean)) / softplus(prior.mean))
        np.testing.assert_allclose(relative[0][:3], 0.1, rtol=1e-6)
        # 2 (d log sd / du) times the error of u, 2 / (kappa a_u sqrt(400)).
        u = sums.phi_bar[3:]
        slope = guide.standard_deviation_derivative(sums.phi_bar) / softplus(u)
        expected = np.hypot(2.0 * slope * 2.0 / (KAPPA * guide.scale_curvature(u) * 20.0), 0.1)
        np.testing.assert_allclose(relative[1][:3], expected, rtol=1e-2)

    def test_tau_counts_as_noise_in_the_scales(self):
        guide = MeanField()
        sums = self.settled_sums(guide)
        noisy = dataclasses.replace(sums, s_gg=sums.s_gg + 398 * 4.0)
        expected = prior_of("model", sums, noise=2.0, guide=guide)
        np.testing.assert_allclose(
            prior_of("model", noisy, noise=1e-9, guide=guide, has_tau=True).sd, expected.sd, rtol=1e-6
        )

    def test_no_location_is_flatter_than_its_own_prior(self):
        guide = MeanField()
        prior_sd = np.array([1.0, 1.0, 1.0, np.nan, np.nan, np.nan])
        prior = prior_of("model", self.settled_sums(guide), noise=1e-9, guide=guide, prior_sd=prior_sd)
        np.testing.assert_allclose(softplus(prior.mean[0]), 1.0, rtol=1e-9)
        np.testing.assert_allclose(softplus(prior.mean[1:3]), self.PRECISION[1:], rtol=1e-3)

    @pytest.mark.parametrize("guide", [None, FullRank()])
    def test_other_guides_are_refused_with_a_remedy(self, guide):
        with pytest.raises(ArgumentError, match="needs a release of a MeanField guide; use 'weak'"):
            prior_of("model", make_sums([1.0, 2.0]), guide=guide)
