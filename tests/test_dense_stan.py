"""The dense method and its Stan program: equal densities, equal posteriors."""

import dataclasses
import subprocess

import numpy as np
import pytest
import stan_oracle
import stanli
from dense_cases import batch_sums, make_model, simulate_traces
from scipy import stats
from test_stan_programs import stanc_paths

from nadpvi.arviz_bridge import as_draws, convergence
from nadpvi.engines.programs import program_path
from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.dense.density import evaluate
from nadpvi.gradient_model.dense.prior import Group, GroupKind
from nadpvi.inference.dense_block import sample_dense_block
from nadpvi.inference.dense_stan import make_dense_stan_data

RATE = 0.1
SUMS = ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg")


@pytest.mark.parametrize(
    ("size", "tau_scale"),
    [(2, None), pytest.param(3, 30.0, marks=pytest.mark.slow), pytest.param(4, 30.0, marks=pytest.mark.slow)],
)
def test_it_agrees_with_stans_nuts(size, tau_scale):
    """Means and quantiles within 4.5 standard errors by effective draws; false alarms: 2e-4."""
    rng = np.random.default_rng(size)
    half = rng.standard_normal((size, 2 * size))
    curvature = 20.0 * half @ half.T / size + np.eye(size)
    phi_star = rng.standard_normal((1, size))
    phi, noisy = simulate_traces(
        lambda phi: RATE * (phi - phi_star) @ curvature,
        phi_star=phi_star,
        num_steps=300,
        noise_std=16.0,
        learning_rate=0.01,
        rng=rng,
    )
    one = batch_sums(phi, noisy)
    sums = dataclasses.replace(one, **{name: getattr(one, name)[0] for name in SUMS})
    model = make_model(sums, centre=np.full(size, 50.0), noise_std=15.0, tau_scale=tau_scale)
    fit = stanli.Model(str(program_path("gradient_model_dense")), data=make_dense_stan_data(model)).sample(
        chains=4, warmup=500, samples=1000, seed=3, refresh=0
    )
    block = sample_dense_block(model, draws=1000, chains=4, warmup=400, rng=rng)
    pairs = [(fit["phi_star"], block.phi_star), (np.log(fit["curvature"]), np.log(block.curvature))]
    if tau_scale is not None:
        pairs.append((fit["tau"], block.tau))
    for theirs, ours in pairs:
        theirs = np.reshape(theirs, (4, -1, size))
        effective = [
            convergence(as_draws({"x": part}))["ess_bulk"]["x"].to_numpy() for part in (theirs, ours)
        ]
        assert np.min(effective) > 150
        parts = zip((theirs, ours), effective, strict=True)
        error = np.sqrt(sum(part.var(axis=(0, 1)) / number for part, number in parts))
        difference = np.abs(ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1)))
        np.testing.assert_array_less(difference, 4.5 * error)
        total = sum(1.0 / number for number in effective)
        for level in (0.1, 0.5, 0.9):
            below = (ours < np.quantile(theirs, level, axis=(0, 1))).mean(axis=(0, 1))
            allowed = 4.5 * np.sqrt(level * (1.0 - level) * total)
            np.testing.assert_array_less(np.abs(below - level), allowed)


def twin_points(model, *, count, rng):
    """Return unconstrained points of the Stan program for D = 2, and the twin's log density there."""
    prior, sums = model.prior, model.sums
    points, values = [], []
    for _ in range(count):
        z_scale, y, log_z_tau, z_phi = np.split(0.5 * rng.standard_normal(7), [2, 3, 5])
        r, tau = float(np.tanh(y[0])), model.tau_prior_scale * np.exp(log_z_tau)
        directions = np.zeros((2, prior.num_directions))
        directions[0, 0], directions[1, :2] = 1.0, [r, np.sqrt(1.0 - r * r)]
        x = np.concatenate([z_scale, directions.ravel()])[None]
        variance = np.square(model.noise_std) + np.square(tau)
        value = evaluate(model, x, variance=variance[None]).log_density[0]
        value -= model.coordinates.expand(x).log_prior[0]
        value -= 0.5 * (sums.num_steps - 1) * np.log(variance).sum() + 0.5 * (sums.s_gg / variance).sum()
        value += (
            stats.norm.logpdf(np.concatenate([z_scale, z_phi, np.exp(log_z_tau)])).sum() + log_z_tau.sum()
        )
        # lkj_corr's (1 - r^2)^(shape - 1), and the derivative of tanh.
        value += 0.5 * (prior.num_directions - 1) * np.log1p(-r * r)
        points.append(np.concatenate([z_scale, y, log_z_tau, z_phi]))
        values.append(value)
    return points, np.array(values)


@pytest.fixture
def two():
    """A model of two coordinates with tau, whose density Stan is asked for."""
    rng = np.random.default_rng(8)
    phi, noisy = simulate_traces(
        lambda phi: 8.0 * (phi - 0.4),
        phi_star=np.zeros((1, 2)),
        num_steps=50,
        noise_std=16.0,
        learning_rate=0.02,
        rng=rng,
    )
    one = batch_sums(phi, noisy)
    sums = dataclasses.replace(one, **{name: getattr(one, name)[0] for name in SUMS})
    return make_model(sums, centre=[40.0, 90.0], noise_std=15.0, tau_scale=20.0, num_directions=6)


def test_the_stan_program_equals_its_python_twin(two):
    points, expected = twin_points(two, count=6, rng=np.random.default_rng(9))
    program = stanli.Model(str(program_path("gradient_model_dense")), data=make_dense_stan_data(two))
    found = np.array([program.log_prob_grad(point)[0] for point in points])
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-8, atol=1e-8)


@pytest.mark.stan
@pytest.mark.skipif(
    stan_oracle.missing_part() is not None, reason=f"compiled Stan: {stan_oracle.missing_part()}"
)
def test_compiled_stan_equals_the_python_twin(two):
    points, expected = twin_points(two, count=4, rng=np.random.default_rng(9))
    cases = [(make_dense_stan_data(two), point) for point in points]
    answers = stan_oracle.evaluate(program_path("gradient_model_dense"), cases)
    found = np.array([answer[0] for answer in answers])
    np.testing.assert_allclose(found - found[0], expected - expected[0], rtol=1e-8, atol=1e-8)


@pytest.mark.skipif(
    not stanc_paths(),
    reason="no stanc: set NADPVI_PROPHET_DIR to an unpacked prophet wheel, or install PyStan",
)
def test_stanc_has_nothing_to_complain_about(tmp_path):
    for stanc in stanc_paths():
        command = [
            stanc,
            "--warn-pedantic",
            f"--o={tmp_path / 'out.hpp'}",
            program_path("gradient_model_dense"),
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, "", ""), stanc


def test_the_program_has_no_pattern(two):
    groups = tuple(Group(kind=GroupKind.BINARY, start=index) for index in range(2))
    patterned = make_model(two.sums, centre=[40.0, 90.0], groups=groups)
    with pytest.raises(ArgumentError, match="no pattern"):
        make_dense_stan_data(patterned)
