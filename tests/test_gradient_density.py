"""The Python twin of the Stan density: against the trace, against itself, against finite differences."""

import dataclasses
import math

import numpy as np
import pytest
from trace_cases import make_release

from nadpvi import gradient_model as gm
from nadpvi.errors import ArgumentError

VARIANTS = [
    {"scale": 1.0, "offset": 0.0},
    {"scale": 1e-4, "offset": 0.0},
    {"scale": 1e4, "offset": 0.0},
    {"scale": 1.0, "offset": 1e6},
    {"scale": 1.0, "offset": -1e6, "num_steps": 12},
]


def points(model, count, seed=1):
    """Random values of (v, phi_star, tau) around the prior of a model, shape (count, D)."""
    rng = np.random.default_rng(seed)
    shape = (count, model.num_parameters)
    v = model.v_prior_mean + model.v_prior_sd * rng.standard_normal(shape)
    phi_star = model.phi_star_prior_mean + model.phi_star_prior_sd * rng.standard_normal(shape)
    tau = None
    if model.tau_prior_scale is not None:
        tau = model.tau_prior_scale * np.abs(rng.standard_normal(shape))
    return v, phi_star, tau


def window(release, burn_in=0.2):
    first = gm.window_start(len(release.phi), burn_in=burn_in)
    return release.phi[first:], release.noisy_gradient[first:]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("use_tau", [False, True])
def test_sums_density_equals_the_trace_density(variant, use_tau):
    release = make_release(**variant)
    model = gm.make_gradient_model(release, subsampling_noise=use_tau)
    phi, g = window(release)
    v, phi_star, tau = points(model, 50)
    by_sums = gm.log_density(model, v=v, phi_star=phi_star, tau=tau)
    by_rows = gm.log_density_trace(model, phi=phi, noisy_gradient=g, v=v, phi_star=phi_star, tau=tau)
    assert by_sums.shape == (50, 3)
    np.testing.assert_allclose(by_sums, by_rows, rtol=1e-8)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("use_tau", [False, True])
def test_collapsed_times_conditional_is_the_joint(variant, use_tau):
    model = gm.make_gradient_model(make_release(**variant), subsampling_noise=use_tau)
    v, phi_star, tau = points(model, 50)
    mean, precision = gm.conditional_delta(model, v=v, tau=tau)
    delta = phi_star - model.sums.phi_bar
    conditional = 0.5 * (np.log(precision / (2 * np.pi)) - precision * (delta - mean) ** 2)
    joint = gm.log_density(model, v=v, phi_star=phi_star, tau=tau)
    np.testing.assert_allclose(gm.log_collapsed(model, v=v, tau=tau) + conditional, joint, rtol=1e-9)


def test_collapsed_density_is_the_integral_of_the_joint():
    model = gm.make_gradient_model(make_release(num_steps=20))
    v = model.v_prior_mean
    mean, precision = gm.conditional_delta(model, v=v)
    nodes = np.linspace(-12, 12, 4001)[:, None] / np.sqrt(precision)
    values = np.exp(
        gm.log_density(model, v=v, phi_star=model.sums.phi_bar + mean + nodes) - gm.log_collapsed(model, v=v)
    )
    total = values.sum(axis=0) * (nodes[1] - nodes[0])
    np.testing.assert_allclose(total, 1.0, rtol=1e-10)


def central_difference(function, x, step):
    return (function(x + step) - function(x - step)) / (2 * step)


@pytest.mark.parametrize("use_tau", [False, True])
@pytest.mark.parametrize("shift", [0.0, -100.0])  # -100 reaches the bend of softplus
def test_gradients_against_finite_differences(use_tau, shift):
    release = dataclasses.replace(
        make_release(num_steps=40),
        model_prior_mean=np.array([2.0, -3.0, np.nan]),
        model_prior_sd=np.array([0.5, 4.0, np.nan]),
    )
    model = gm.make_gradient_model(release, subsampling_noise=use_tau, phi_star_prior="model")
    model = dataclasses.replace(model, v_prior_mean=model.v_prior_mean + shift)
    v, phi_star, tau = points(model, 30)
    log_tau = None if tau is None else np.log(tau)

    def tau_of(x):
        return None if x is None else np.exp(x)

    def joint(v, phi_star, log_tau):
        return gm.log_density(model, v=v, phi_star=phi_star, tau=tau_of(log_tau))

    def collapsed(v, log_tau):
        return gm.log_collapsed(model, v=v, tau=tau_of(log_tau))

    full = gm.grad_log_density(model, v=v, phi_star=phi_star, tau=tau)
    part = gm.grad_log_collapsed(model, v=v, tau=tau)
    step = 1e-4 * model.v_prior_sd
    np.testing.assert_allclose(
        full.v, central_difference(lambda x: joint(x, phi_star, log_tau), v, step), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        full.phi_star,
        central_difference(lambda x: joint(v, x, log_tau), phi_star, 1e-4),
        rtol=1e-4,
        atol=1e-4,
    )
    np.testing.assert_allclose(
        part.v, central_difference(lambda x: collapsed(x, log_tau), v, step), rtol=1e-4, atol=1e-5
    )
    assert part.phi_star is None
    if tau is None:
        assert full.log_tau is None
        assert part.log_tau is None
        return
    np.testing.assert_allclose(
        full.log_tau,
        central_difference(lambda x: joint(v, phi_star, x), log_tau, 1e-5),
        rtol=1e-4,
        atol=1e-4,
    )
    np.testing.assert_allclose(
        part.log_tau, central_difference(lambda x: collapsed(v, x), log_tau, 1e-5), rtol=1e-4, atol=1e-4
    )


def test_density_is_finite_for_extreme_arguments():
    model = gm.make_gradient_model(make_release(), subsampling_noise=True)
    v = np.array([-1e6, -800.0, 0.0, 800.0, 1e6])[:, None]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        values = [
            gm.log_density(model, v=v, phi_star=1e3, tau=0.0),
            gm.log_collapsed(model, v=v, tau=1e-300),
            *gm.grad_log_density(model, v=v, phi_star=-1e3, tau=0.0),
            gm.grad_log_collapsed(model, v=v, tau=1e6).v,
            *gm.conditional_delta(model, v=v, tau=0.0),
        ]
    assert all(np.isfinite(value).all() for value in values)
    assert gm.conditional_delta(model, v=-800.0, tau=0.0).precision == pytest.approx(1.0)


def test_tau_must_fit_the_model():
    without = gm.make_gradient_model(make_release())
    with_tau = gm.make_gradient_model(make_release(), subsampling_noise=True)
    with pytest.raises(ArgumentError, match="tau must be None"):
        gm.log_collapsed(without, v=1.0, tau=1.0)
    with pytest.raises(ArgumentError, match="tau is required"):
        gm.log_collapsed(with_tau, v=1.0)
    for bad in (-1.0, math.nan):
        with pytest.raises(ArgumentError, match="negative"):
            gm.log_collapsed(with_tau, v=1.0, tau=bad)
