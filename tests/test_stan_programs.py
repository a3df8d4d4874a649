"""The Stan programs against their Python twin: in the interpreter, and in genuine compiled Stan."""

import dataclasses
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
from nadpvi.errors import ArgumentError
from nadpvi.guides import MeanField
from nadpvi.inference.stan_data import make_parameter_data, make_stan_data, make_trace_data
from nadpvi.models import Parameter

PROGRAMS = ("gradient_model", "gradient_model_trace", "parameter_model")
TWO_NUMBERS = {"name": "x", "dims": ["which"], "coords": [2]}
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


def plain(data):
    """Arrays as lists, which is what stanli takes."""
    return {name: np.asarray(value).tolist() for name, value in data.items()}


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


TWINS = {
    "gradient_model": twin_of_sums,
    "gradient_model_trace": twin_of_trace,
    "parameter_model": twin_of_trace,
}


def stan_data(program, release, model):
    if program == "gradient_model":
        return make_stan_data(model)
    return (make_trace_data if program == "gradient_model_trace" else make_parameter_data)(model, release)


def twin(program, model, data, point):
    """The Python twin; a density of iterates is one of gradients divided by the step sizes."""
    value, gradient = TWINS[program](model, point)
    if program == "parameter_model":
        value -= model.sums.num_steps * np.log(data["learning_rate"]).sum()
    return value, gradient


def assert_agree(answer, expected, *, rounding=1.0):
    """Equal to nine digits, times `rounding` where the data themselves carry fewer."""
    assert answer[0] == pytest.approx(expected[0], rel=1e-9 * rounding)
    scale = np.abs(expected[1]).max()
    np.testing.assert_allclose(answer[1], expected[1], rtol=1e-8 * rounding, atol=1e-9 * rounding * scale)


def rounding_of(program, settings):
    """Iterates 10,000 away from 0 hold their small steps to fewer digits than gradients do."""
    return 1e3 if program == "parameter_model" and "offset" in settings else 1.0


@pytest.mark.parametrize("settings", [{}, {"offset": 1e4}, HARD], ids=["plain", "offset", "hard"])
@pytest.mark.parametrize("use_tau", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_interpreted_stan_equals_the_python_twin(program, use_tau, settings):
    release, model, points = make_cases(use_tau=use_tau, **settings)
    data = stan_data(program, release, model)
    stan_model = stanli.Model(str(program_path(program)), data=plain(data))
    for point in points:
        expected = twin(program, model, data, point)
        assert_agree(stan_model.log_prob_grad(point), expected, rounding=rounding_of(program, settings))


@pytest.mark.parametrize("use_tau", [False, True])
def test_three_programs_are_one_posterior(use_tau):
    """At one (v, phi_star, tau) they differ by constants, once z_delta is turned into z_phi_star."""
    release, model, points = make_cases(use_tau=use_tau)
    found = {}
    for program in PROGRAMS:
        data = stan_data(program, release, model)
        stan = stanli.Model(str(program_path(program)), data=plain(data))
        values = []
        for point in points:
            at = point.copy()
            v, _, z_phi_star, tau = split(model, point)
            if program == "gradient_model":
                mean, precision = gm.conditional_delta(model, v=v, tau=tau)
                delta = model.phi_star_prior_mean + model.phi_star_prior_sd * z_phi_star - model.sums.phi_bar
                at[model.num_parameters : 2 * model.num_parameters] = (delta - mean) * np.sqrt(precision)
                jacobian = (0.5 * np.log(precision) + np.log(model.phi_star_prior_sd)).sum()
            else:
                jacobian = 0.0
            if program == "parameter_model":
                jacobian = model.sums.num_steps * np.log(release.learning_rate).sum()
            values.append(stan.log_prob_grad(at)[0] + jacobian)
        found[program] = np.array(values)
    for program in PROGRAMS[1:]:
        np.testing.assert_allclose(found[program], found["gradient_model"], rtol=1e-9)


def test_parameter_model_needs_plain_steps():
    release = make_release()
    model = gm.make_gradient_model(release)
    phi = release.phi.copy()
    phi[-1] += 1e-6
    for changed, message in (
        ({"phi": phi}, r"in every step, and 2 of 240 are not"),
        ({"learning_rate": np.full(3, np.nan)}, "learning_rate that is known and positive"),
        ({"sums": model.sums}, "holds the sums of its window"),
        ({"phi": phi[:100]}, "model must be that of the release"),
    ):
        with pytest.raises(ArgumentError, match=message):
            make_parameter_data(model, dataclasses.replace(release, **changed))


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
            expected += [twin(program, model, data, point) for point in points]
    answers = stan_oracle.evaluate(program_path(program), cases)
    assert len(answers) == 12
    for answer, want in zip(answers, expected, strict=True):
        assert_agree(answer, want)


@pytest.mark.parametrize("use_tau", [False, True])
def test_phi_star_is_drawn_from_its_conditional(use_tau):
    """Generated quantities reproduce phi_star from z_delta and the sampled curvature, draw by draw."""
    _, model, _ = make_cases(use_tau=use_tau)
    fit = stanli.Model(str(program_path("gradient_model")), data=plain(make_stan_data(model))).sample(
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
    data = make_stan_data(model, guide=MeanField(scale=scale), parameters=(Parameter(**TWO_NUMBERS),))
    fit = stanli.Model(str(program_path("gradient_model")), data=plain(data)).sample(
        chains=2, warmup=300, samples=2000, seed=4, refresh=0
    )
    spread = softplus(fit["phi_star"][:, 2:]) ** power
    z = (fit["theta"] - fit["phi_star"][:, :2]) / spread
    # 4,000 independent normals a coordinate: 5 standard errors, false alarm below 1e-5
    assert np.abs(z.mean(axis=0)).max() < 5 / np.sqrt(4000)
    assert np.abs(z.var(axis=0) - 1).max() < 5 * np.sqrt(2 / 4000)


def test_guide_that_does_not_fit_is_rejected_by_the_program():
    release, model, _ = make_cases(use_tau=False)
    one = {"num_noise": 1, "num_blocks": 1, "support": [1], "num_rows": [1], "num_columns": [1]}
    for program in PROGRAMS:
        data = plain(stan_data(program, release, model))
        for wrong, message in (({"K": 1} | one, r"D must be 2 \* K"), (one, "must have K unconstrained")):
            with pytest.raises(RuntimeError, match=message):
                stanli.Model(str(program_path(program)), data=data | wrong)


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
        path = program_path(program)
        includes = f"--include-paths={path.parent}"
        command = [stanc, "--warn-pedantic", includes, f"--o={tmp_path / 'out.hpp'}", path]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), stanc
        assert (tmp_path / "out.hpp").stat().st_size > 0
