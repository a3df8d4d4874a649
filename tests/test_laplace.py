"""Laplace's method: derivatives, modes, Stan's own optimizer, and the Gaussian against the posterior."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from exact_reference import CASES, make_cases
from trace_cases import make_release

from nadpvi import gradient_model as gm
from nadpvi.bijectors import inverse_softplus, softplus
from nadpvi.engines.cmdstan import CmdStanEngine
from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.engines.programs import program_path
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model import mode
from nadpvi.gradient_model.mode import find_modes, joint_derivatives
from nadpvi.inference.exact import exact_marginals
from nadpvi.inference.laplace import gaussian_moments, sample_laplace, sample_laplace_with_cmdstan
from nadpvi.inference.stan_data import make_stan_data, make_trace_data

NAMES = ("v", "phi_star", "log_tau")


def point(model, seed=0):
    """A random point near the prior, away from where softplus underflows."""
    rng = np.random.default_rng(seed)
    size = model.num_parameters
    v = np.maximum(model.v_prior_mean + model.v_prior_sd * rng.standard_normal(size), -30.0)
    delta = model.phi_star_prior_sd * rng.standard_normal(size)
    log_tau = (
        None if model.tau_prior_scale is None else np.log(model.tau_prior_scale) + rng.normal(0, 0.5, size)
    )
    return {"v": v, "delta": delta, "log_tau": log_tau}


@pytest.mark.parametrize("use_tau", [False, True])
def test_value_and_gradient_are_the_twins(use_tau):
    model = make_cases(12, use_tau=use_tau)
    a, b = point(model, 1), point(model, 2)
    values, gradients = [], []
    for at in (a, b):
        tau = np.exp(at["log_tau"]) if use_tau else None
        phi_star = model.sums.phi_bar + at["delta"]
        found = joint_derivatives(model, **at)
        jacobian = at["log_tau"] if use_tau else 0.0
        values.append((found.value, gm.log_density(model, v=at["v"], phi_star=phi_star, tau=tau) + jacobian))
        gradients.append((found, gm.grad_log_density(model, v=at["v"], phi_star=phi_star, tau=tau)))
    # the value is known up to a constant
    np.testing.assert_allclose(values[1][0] - values[0][0], values[1][1] - values[0][1], rtol=1e-8, atol=1e-7)
    for found, twin in gradients:
        np.testing.assert_allclose(found.by_v, twin.v, rtol=1e-9)
        np.testing.assert_allclose(found.by_phi_star, twin.phi_star, rtol=1e-9)
        if use_tau:
            np.testing.assert_allclose(found.by_log_tau, twin.log_tau + 1.0, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("use_tau", [False, True])
def test_hessian_against_finite_differences(use_tau):
    model = gm.make_gradient_model(make_release(num_steps=40), subsampling_noise=use_tau)
    at = point(model, 3)
    at["v"] = np.array([-1.0, 0.5, 30.0])
    names = ("v", "phi_star", "log_tau") if use_tau else ("v", "phi_star")
    found = joint_derivatives(model, **at)
    for second, key in zip(names, ("v", "delta", "log_tau"), strict=False):
        step = 1e-5
        up, down = (joint_derivatives(model, **(at | {key: at[key] + sign * step})) for sign in (1, -1))
        for i, first in enumerate(names):
            ahead = names.index(second)
            name = f"by_{names[min(i, ahead)]}_{names[max(i, ahead)]}"
            want = (getattr(up, f"by_{first}") - getattr(down, f"by_{first}")) / (2 * step)
            np.testing.assert_allclose(getattr(found, name), want, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("num_steps", [3, 12, 800])
@pytest.mark.parametrize("use_tau", [False, True])
def test_modes_are_modes(num_steps, use_tau):
    model = make_cases(num_steps, use_tau=use_tau)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = find_modes(model)
    assert found.has_converged.all()
    sd = 1.0 / np.sqrt(np.einsum("dii->di", found.precision))
    delta = found.phi_star - model.sums.phi_bar
    at = joint_derivatives(model, v=found.v, delta=delta, log_tau=found.log_tau)
    for i, name in enumerate(NAMES if use_tau else NAMES[:2]):
        np.testing.assert_allclose(getattr(at, f"by_{name}") * sd[:, i], 0.0, atol=1e-6)
    # nothing nearby, or far away in v, is higher
    rng = np.random.default_rng(4)
    for scale in (0.3, 3.0, 100.0):
        shift = scale * rng.standard_normal((200, 3, model.num_parameters))
        other = joint_derivatives(
            model,
            v=found.v + sd[:, 0] * shift[:, 0],
            delta=delta + sd[:, 1] * shift[:, 1],
            log_tau=None
            if found.log_tau is None
            else found.log_tau + np.clip(sd[:, -1] * shift[:, 2], -50, 50),
        )
        assert (other.value <= at.value + 1e-9 * np.abs(at.value)).all()


def cmdstan_is_missing():
    return not (Path(os.environ.get("CMDSTAN", "/nonexistent")) / "makefile").is_file()


needs_cmdstan = pytest.mark.skipif(
    cmdstan_is_missing(), reason="no CmdStan to compile with: set CMDSTAN to its folder"
)
ENGINES = [
    pytest.param(EmbeddedEngine, id="stanli"),
    pytest.param(CmdStanEngine, id="cmdstan", marks=[pytest.mark.stan, needs_cmdstan]),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("use_tau", [False, True])
@pytest.mark.parametrize("program", ["gradient_model_trace", "gradient_model"])
def test_stans_own_optimizer_agrees(program, use_tau, engine):
    """The row-by-row program has the joint mode; the sums program, standardised, has the collapsed one."""
    release = make_release(subsampling_std=60.0)
    model = gm.make_gradient_model(release, burn_in=0.0, subsampling_noise=use_tau)
    is_trace = program == "gradient_model_trace"
    data = make_trace_data(model, release) if is_trace else make_stan_data(model)
    best = engine().optimize(program_path(program), data, seed=1, init_radius=0.1).variables
    found = find_modes(model)
    sd = 1.0 / np.sqrt(np.einsum("dii->di", found.precision))

    def distances(value):
        """How far an optimum is from ours, in sds; for the collapsed density, by its gradient there."""
        if is_trace:
            gaps = [value["v"] - found.v, value["phi_star"] - found.phi_star]
            if use_tau:
                gaps.append(np.log(value["tau"]) - found.log_tau)
        else:
            gradient = gm.grad_log_collapsed(model, v=value["v"], tau=value.get("tau"))
            mean, _ = gm.conditional_delta(model, v=value["v"], tau=value.get("tau"))
            gaps = [gradient.v * sd[:, 0] ** 2, value["phi_star"] - model.sums.phi_bar - mean]
            if use_tau:
                gaps.append((gradient.log_tau + 1.0) * sd[:, 2] ** 2)
        return np.abs(np.stack(gaps, axis=1) / sd).max()

    # L-BFGS stops on the relative change of the objective, some hundredths of an sd away
    assert distances(best) < 0.05
    assert distances({name: value + 0.3 * sd.max() for name, value in best.items()}) > 0.1


@pytest.mark.stan
@needs_cmdstan
@pytest.mark.parametrize("use_tau", [False, True])
def test_cmdstans_laplace_method_agrees(use_tau):
    release = make_release(subsampling_std=60.0)
    model = gm.make_gradient_model(release, burn_in=0.0, subsampling_noise=use_tau)
    modes = find_modes(model)
    fitted = sample_laplace_with_cmdstan(model, release, engine=CmdStanEngine(), draws=5000, chains=2, seed=3)
    assert fitted.phi_star.shape == (2, 5000, 3)
    values = [fitted.v, fitted.phi_star] + ([] if fitted.tau is None else [np.log(fitted.tau)])
    centres = [modes.v, modes.phi_star] + ([] if fitted.tau is None else [modes.log_tau])
    draws = np.stack(values, axis=-1).reshape(10_000, 3, -1) - np.stack(centres, axis=-1)
    for d in range(3):
        z = draws[:, d] @ np.linalg.cholesky(modes.precision[d])
        # 10,000 independent draws: 5 standard errors, plus what the search leaves
        assert np.abs(z.mean(axis=0)).max() < 0.05 + 0.05
        np.testing.assert_allclose(z.T @ z / 10_000, np.eye(z.shape[1]), atol=5 * np.sqrt(2 / 10_000))


def draws_against_exact(model):
    """Error of mean in exact sds, and ratio of sds, for each variable, shape (D,) each."""
    truth = exact_marginals(model, grid_size=0, probabilities=())
    sample = sample_laplace(model, draws=40_000, chains=1, seed=6)
    names = ("phi_star", "curvature") if sample.tau is None else ("phi_star", "curvature", "tau")
    result = {}
    for name in names:
        table, values = getattr(truth, name), getattr(sample, name)[0]
        result[name] = ((values.mean(axis=0) - table.mean) / table.sd, values.std(axis=0) / table.sd)
    return result


def test_exact_where_the_posterior_is_nearly_gaussian():
    model = make_cases(20_000, use_tau=True, names=("well determined",))
    for name, (gap, ratio) in draws_against_exact(model).items():
        # Monte Carlo error: 0.005 in the mean, 0.4 % in the sd; four of each
        assert np.abs(gap).max() < 0.03, (name, gap)
        assert np.abs(ratio - 1).max() < 0.02, (name, ratio)


def test_stated_error_elsewhere():
    """What is said of Laplace: fair for phi_star and curvature in ordinary traces, poor for a tau near 0."""
    names = ("plain", "tiny units", "very precise", "tau prior very wide", "less noise than declared")
    found = draws_against_exact(make_cases(800, use_tau=True, names=names))
    for name in ("phi_star", "curvature"):
        gap, ratio = found[name]
        assert np.abs(gap).max() < 0.1, (name, gap)
        assert np.abs(ratio - 1).max() < 0.03, (name, ratio)
    gap, ratio = found["tau"]
    assert (gap > 0.5).all()  # the mode of log tau lies far out, and a normal there is wide
    assert (ratio > 1.2).all()
    flat = draws_against_exact(make_cases(800, use_tau=True, names=("negative slope", "hugs zero")))
    assert (np.abs(flat["curvature"][0]) > 0.3).all()  # curvature at its bound


def test_settings_and_seeds():
    model = make_cases(12, use_tau=True)
    run = {"draws": 7, "chains": 2}
    first = sample_laplace(model, seed=3, **run)
    assert first.phi_star.shape == first.tau.shape == (2, 7, len(CASES))
    np.testing.assert_allclose(first.curvature, softplus(first.v))
    root = np.random.SeedSequence(3)
    np.testing.assert_array_equal(first.tau, sample_laplace(model, seed=root, **run).tau)
    assert not np.array_equal(first.tau, sample_laplace(model, seed=root, **run).tau)
    assert sample_laplace(make_cases(12, use_tau=False), seed=3, **run).tau is None
    for bad, message in (
        ({"draws": 0}, "draws must"),
        ({"chains": 2.5}, "chains must"),
        ({"seed": "7"}, "seed must"),
    ):
        with pytest.raises(ArgumentError, match=message):
            sample_laplace(model, **({"seed": 3, **run} | bad))


def tiny(model, factor):
    """Return the model with gradients and noise in units 1 / factor times as large, v's prior an sd lower."""
    sums = model.sums
    scaled = dataclasses.replace(
        sums, g_bar=sums.g_bar * factor, s_gp=sums.s_gp * factor, s_gg=sums.s_gg * factor**2
    )
    relative = model.v_prior_sd / softplus(model.v_prior_mean)
    prior = inverse_softplus(softplus(model.v_prior_mean) * factor) - relative
    return dataclasses.replace(
        model,
        sums=scaled,
        noise_std=model.noise_std * factor,
        v_prior_mean=prior,
        v_prior_sd=relative,
        tau_prior_scale=None if model.tau_prior_scale is None else model.tau_prior_scale * factor,
    )


@pytest.mark.parametrize("use_tau", [False, True])
def test_the_unit_of_gradients_does_not_matter(use_tau):
    """Curvatures of 3e-6 and less, where v is a logarithm: one more factor moves v by its logarithm alone."""
    names = ("plain", "well determined", "tau well above the noise", "less noise than declared")
    model = make_cases(400, use_tau=use_tau, names=names)
    small, smaller = (find_modes(tiny(model, factor)) for factor in (1e-8, 1e-12))
    assert small.has_converged.all()
    assert (np.abs(small.v - tiny(model, 1e-8).v_prior_mean) > 1e-5).all()
    assert smaller.has_converged.all()
    np.testing.assert_allclose(smaller.v - small.v, np.log(1e-4), rtol=1e-5)
    np.testing.assert_allclose(smaller.phi_star, small.phi_star, rtol=1e-6)
    np.testing.assert_allclose(smaller.precision[:, :2, :2], small.precision[:, :2, :2], rtol=1e-4)
    assert sample_laplace(tiny(model, 1e-8), draws=5, chains=1, seed=1).phi_star.shape == (1, 5, len(names))


def test_moments_are_those_of_the_draws():
    model = make_cases(800, use_tau=True, names=("plain", "negative slope"))
    mean, sd = gaussian_moments(model)
    draws = sample_laplace(model, draws=40_000, chains=1, seed=2).phi_star[0]
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=5 / 200)
    np.testing.assert_allclose(draws.std(axis=0) / sd, 1.0, atol=5 / np.sqrt(2 * 40_000))


def test_draws_have_the_modes_mean_and_precision():
    model = make_cases(12, use_tau=True, names=("plain", "negative slope", "tau well above the noise"))
    modes = find_modes(model)
    sample = sample_laplace(model, draws=100_000, chains=1, seed=9)
    values = np.stack([sample.v[0], sample.phi_star[0], np.log(sample.tau[0])], axis=-1)
    centre = np.stack([modes.v, modes.phi_star, modes.log_tau], axis=-1)
    for d in range(3):
        covariance = np.cov(values[:, d].T)
        sd = np.sqrt(np.diag(covariance))
        assert (np.abs(values[:, d].mean(axis=0) - centre[d]) < 4.5 * sd / np.sqrt(100_000)).all()
        product = modes.precision[d] * sd[:, None] * sd @ (covariance / (sd[:, None] * sd))
        np.testing.assert_allclose(product, np.eye(3), atol=0.05)


def test_a_search_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(mode, "_MAX_ITERATIONS", 1)
    model = make_cases(12, use_tau=False, names=("plain", "negative slope"))
    with pytest.raises(ArgumentError, match=r"no mode.*for 'negative slope', .*use method='exact'"):
        sample_laplace(model, draws=2, chains=1, seed=1)
