"""The Stan programs against their Python twin: in the interpreter, and in genuine compiled Stan."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import stan_oracle
import stanli
from trace_cases import make_release

from nadpvi import gradient_model as gm
from nadpvi.bijectors import softplus
from nadpvi.engines.programs import program_path
from nadpvi.inference.nuts import make_stan_data

PROGRAMS = ("gradient_model", "gradient_model_trace")
HARD = {"num_steps": 8, "noise_multiplier": 200.0, "offset": 1e3}


def make_cases(*, use_tau, count=5, **settings):
    """Return the release, the model and `count` unconstrained points of gradient_model.stan."""
    release = make_release(**settings)
    model = gm.make_gradient_model(release, subsampling_noise=use_tau)
    size = model.num_parameters * (3 if use_tau else 2)
    return release, model, np.random.default_rng(5).normal(size=(count, size))


def split(model, point):
    """Return z_v, second block, tau and log tau of an unconstrained point."""
    size = model.num_parameters
    z_v, second, log_z_tau = point[:size], point[size : 2 * size], point[2 * size :]
    tau = None if model.tau_prior_scale is None else model.tau_prior_scale * np.exp(log_z_tau)
    return model.v_prior_mean + model.v_prior_sd * z_v, z_v, second, tau


def log_normal(z):
    return -0.5 * (z**2 + np.log(2 * np.pi))


def twin_of_sums(model, point):
    """Log density and gradient of gradient_model.stan on its unconstrained scale, by the Python twin."""
    v, _, z_delta, tau = split(model, point)
    value = gm.log_collapsed(model, v=v, tau=tau) + np.log(model.v_prior_sd) + log_normal(z_delta)
    by = gm.grad_log_collapsed(model, v=v, tau=tau)
    gradient = [by.v * model.v_prior_sd, -z_delta]
    if tau is not None:
        value = value + np.log(tau)
        gradient.append(by.log_tau + 1.0)
    return value.sum(), np.concatenate(gradient)


def twin_of_trace(model, point):
    """The same for gradient_model_trace.stan, whose phi_star is standardised by its prior."""
    v, _, z_phi_star, tau = split(model, point)
    phi_star = model.phi_star_prior_mean + model.phi_star_prior_sd * z_phi_star
    value = gm.log_density(model, v=v, phi_star=phi_star, tau=tau)
    value = value + np.log(model.v_prior_sd) + np.log(model.phi_star_prior_sd)
    by = gm.grad_log_density(model, v=v, phi_star=phi_star, tau=tau)
    gradient = [by.v * model.v_prior_sd, by.phi_star * model.phi_star_prior_sd]
    if tau is not None:
        value = value + np.log(tau)
        gradient.append(by.log_tau + 1.0)
    return value.sum(), np.concatenate(gradient)


TWINS = {"gradient_model": twin_of_sums, "gradient_model_trace": twin_of_trace}


def stan_data(program, release, model):
    data = make_stan_data(model)
    if program == "gradient_model_trace":
        first = len(release.phi) - model.sums.num_steps
        sums = ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg", "K", "scale_is_sd")
        data = {name: value for name, value in data.items() if name not in sums}
        data |= {"phi": release.phi[first:], "noisy_gradient": release.noisy_gradient[first:]}
    return data


def assert_agree(answer, expected):
    assert answer[0] == pytest.approx(expected[0], rel=1e-9)
    scale = np.abs(expected[1]).max()
    np.testing.assert_allclose(answer[1], expected[1], rtol=1e-8, atol=1e-9 * scale)


@pytest.mark.parametrize("settings", [{}, {"offset": 1e4}, HARD], ids=["plain", "offset", "hard"])
@pytest.mark.parametrize("use_tau", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_interpreted_stan_equals_the_python_twin(program, use_tau, settings):
    release, model, points = make_cases(use_tau=use_tau, **settings)
    stan_model = stanli.Model(str(program_path(program)), data=stan_data(program, release, model))
    for point in points:
        assert_agree(stan_model.log_prob_grad(point), TWINS[program](model, point))


@pytest.mark.stan
@pytest.mark.skipif(
    stan_oracle.missing_part() is not None, reason=f"compiled Stan: {stan_oracle.missing_part()}"
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_compiled_stan_equals_the_python_twin(program):
    cases, expected = [], []
    for use_tau in (False, True):
        for settings in ({}, HARD):
            release, model, points = make_cases(use_tau=use_tau, count=3, **settings)
            data = stan_data(program, release, model)
            cases += [(data, point) for point in points]
            expected += [TWINS[program](model, point) for point in points]
    answers = stan_oracle.evaluate(program_path(program), cases)
    assert len(answers) == 12
    for answer, twin in zip(answers, expected, strict=True):
        assert_agree(answer, twin)


@pytest.mark.parametrize("use_tau", [False, True])
def test_phi_star_is_drawn_from_its_conditional(use_tau):
    """Generated quantities reproduce phi_star from z_delta and the sampled curvature, draw by draw."""
    _, model, _ = make_cases(use_tau=use_tau)
    fit = stanli.Model(str(program_path("gradient_model")), data=make_stan_data(model)).sample(
        chains=1, warmup=100, samples=50, seed=3, refresh=0
    )
    tau = fit["tau"] if use_tau else None
    mean, precision = gm.conditional_delta(model, v=fit["v"], tau=tau)
    expected = model.sums.phi_bar + mean + fit["z_delta"] / np.sqrt(precision)
    np.testing.assert_allclose(fit["phi_star"], expected, rtol=1e-9)
    np.testing.assert_allclose(fit["curvature"], softplus(fit["v"]), rtol=1e-12)


@pytest.mark.parametrize(("scale", "power"), [("sd", 1.0), ("variance", 0.5)])
def test_theta_is_drawn_from_the_guide_at_phi_star(scale, power):
    release = make_release(
        curvature=(80.0, 90.0, 60.0, 70.0),
        phi_star=(1.0, -1.0, -2.0, 30.0),
        preconditioner=(1.0,) * 4,
    )
    model = gm.make_gradient_model(release)
    data = make_stan_data(model, num_model_parameters=2, scale=scale)
    fit = stanli.Model(str(program_path("gradient_model")), data=data).sample(
        chains=2, warmup=300, samples=2000, seed=4, refresh=0
    )
    spread = softplus(fit["phi_star"][:, 2:]) ** power
    z = (fit["theta"] - fit["phi_star"][:, :2]) / spread
    # 4,000 independent normals a coordinate: 5 standard errors, false alarm below 1e-5
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(4000)
    assert np.abs(z.var(axis=0) - 1).max() < 5 * np.sqrt(2 / 4000)


def test_guide_that_does_not_fit_is_rejected_by_the_program():
    _, model, _ = make_cases(use_tau=False)
    with pytest.raises(RuntimeError, match=r"D must be 2 \* K"):
        stanli.Model(str(program_path("gradient_model")), data=make_stan_data(model) | {"K": 1})


def stanc_paths():
    """Genuine stanc compilers on this machine: prophet's wheel carries 2.37, httpstan 2.35."""
    found = []
    prophet = os.environ.get("NADPVI_PROPHET_DIR")
    if prophet:
        found += sorted(Path(prophet).glob("prophet/stan_model/cmdstan-*/bin/stanc"))
    if stan_oracle.missing_part() is None:
        import importlib.util

        found.append(Path(importlib.util.find_spec("httpstan").origin).parent / "stanc")
    return found


@pytest.mark.skipif(
    not stanc_paths(),
    reason="no stanc: set NADPVI_PROPHET_DIR to an unpacked prophet wheel, or install PyStan",
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_stanc_has_nothing_to_complain_about(program, tmp_path):
    for stanc in stanc_paths():
        command = [stanc, "--warn-pedantic", f"--o={tmp_path / 'out.hpp'}", program_path(program)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), stanc
        assert (tmp_path / "out.hpp").stat().st_size > 0
