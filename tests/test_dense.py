"""The dense method: its sampler, and what it makes of a release."""

import dataclasses
import warnings

import numpy as np
import pytest
from dense_cases import batch_sums, make_model
from scipy import stats
from trace_cases import make_release

import nadpvi as na
from nadpvi.arviz_bridge import as_draws, convergence
from nadpvi.errors import ArgumentError, InferenceWarning
from nadpvi.gradient_model import make_gradient_model
from nadpvi.gradient_model.dense.known import make_dense_prior
from nadpvi.gradient_model.dense.prior import GroupKind
from nadpvi.gradient_model.dense.setup import make_dense_model
from nadpvi.inference import hamiltonian
from nadpvi.inference.dense import sample_dense
from nadpvi.inference.dense_block import draw_tau


def test_hamiltonian_draws_have_the_moments_of_a_correlated_normal():
    rng = np.random.default_rng(0)
    covariance = np.array([[4.0, 0.06], [0.06, 0.01]])
    precision = np.linalg.inv(covariance)

    def density(x):
        return -0.5 * np.einsum("ci,ij,cj->c", x, precision, x), -x @ precision

    state = hamiltonian.init(3.0 + rng.standard_normal((4, 2)), variances=np.ones(2), warmup=300)
    for _ in range(300):
        state, _ = hamiltonian.step(rng, state, density)
    state = hamiltonian.freeze(state)
    draws, accepted = [], []
    for _ in range(2000):
        state, info = hamiltonian.step(rng, state, density)
        draws.append(state.position)
        accepted.append(info.acceptance_rate.mean())
    draws = np.array(draws).swapaxes(0, 1)
    assert convergence(as_draws({"x": draws}))["r_hat"]["x"].max() < 1.01
    # More than 2,000 effective draws: a mean within 4 of its standard errors, a variance within 13 %.
    np.testing.assert_array_less(np.abs(draws.mean(axis=(0, 1))), 0.09 * np.sqrt(np.diag(covariance)))
    np.testing.assert_allclose(np.var(draws, axis=(0, 1)), np.diag(covariance), rtol=0.13)
    assert 0.75 < np.mean(accepted) < 0.97


def test_a_frozen_sampler_does_not_adapt():
    rng = np.random.default_rng(1)
    state = hamiltonian.freeze(hamiltonian.init(np.zeros((2, 3)), variances=np.ones(3), warmup=50))
    after, _ = hamiltonian.step(rng, state, lambda x: (-0.5 * np.square(x).sum(axis=1), -x))
    assert after.step_size == state.step_size
    np.testing.assert_array_equal(after.variances, state.variances)


def test_a_step_out_of_the_support_is_refused():
    rng = np.random.default_rng(2)
    state = hamiltonian.init(np.full((3, 1), 0.5), variances=np.ones(1), warmup=0)
    state = state._replace(step_size=state.step_size._replace(log_step=np.log(30.0)))

    def uniform(x):
        return np.where(((x > 0) & (x < 1)).all(axis=1), 0.0, -np.inf), np.zeros_like(x)

    after, info = hamiltonian.step(rng, state, uniform)
    np.testing.assert_array_equal(after.position, state.position)
    assert info.diverging.all()


def test_tau_is_drawn_from_its_conditional():
    """Against the density on a grid; a Kolmogorov-Smirnov test at level 1e-3 on thinned draws."""
    rng = np.random.default_rng(3)
    chains, steps = 400, 25
    sums = batch_sums(rng.standard_normal((40, 1, 1)), rng.standard_normal((40, 1, 1)))
    model = make_model(sums, centre=[1.0], tau_scale=60.0, noise_std=40.0)
    total = np.full((chains, 1), sums.num_steps * 45.0**2)
    tau = np.full((chains, 1), 5.0)
    for _ in range(steps):
        tau = draw_tau(rng, model, total, tau)
    grid = np.linspace(0.0, 300.0, 20_001)
    variance = 1600.0 + grid**2
    log_density = -0.5 * (sums.num_steps * np.log(variance) + total[0] / variance + (grid / 60.0) ** 2)
    below = np.cumsum(np.exp(log_density - log_density.max()))
    test = stats.kstest(np.interp(tau[:, 0], grid, below / below[-1]), "uniform")
    assert test.pvalue > 1e-3
    wrong = stats.kstest(np.interp(1.2 * tau[:, 0], grid, below / below[-1]), "uniform")
    assert wrong.pvalue < 1e-3


def test_tau_far_beyond_its_prior_is_reached():
    """The trace asks for 60 prior scales, and prior and trace meet at 37 of them, beyond 20."""
    rng = np.random.default_rng(3)
    sums = batch_sums(rng.standard_normal((1000, 1, 1)), rng.standard_normal((1000, 1, 1)))
    model = make_model(sums, centre=[1.0], tau_scale=1.0, noise_std=1.0)
    tau = np.full((200, 1), 5.0)
    for _ in range(30):
        tau = draw_tau(rng, model, np.full((200, 1), sums.num_steps * 60.0**2), tau)
    # V = 1 + tau^2 is the root of V^2 + n V = 3600 n; tau has an sd of 0.7, its mean an error of 0.05
    n = sums.num_steps
    assert abs(tau.mean() - np.sqrt(0.5 * (np.sqrt(n**2 + 4 * 3600 * n) - n) - 1)) < 0.25


@pytest.fixture
def release(schema, table):
    model = na.models.LogisticRegression(outcome="y", predictors=["age", "job"])
    config = na.DPVIConfig(num_steps=120, sampling_rate=0.2)
    return na.release(
        model,
        table,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=8.0, delta=1e-5),
        config=config,
        insecure_seed=3,
    )


def infer_dense(release, *, seed=1, draws=60, warmup=100, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)
        return na.infer(
            release,
            method="dense",
            draws=draws,
            chains=2,
            warmup=warmup,
            seed=seed,
            phi_star_prior="model",
            **settings,
        )


def variables(posterior):
    return {name: values.to_numpy() for name, values in posterior.groups["posterior"].items()}


def test_a_release_gives_a_posterior_with_a_curvature_matrix(release):
    posterior = infer_dense(release)
    drawn = variables(posterior)
    assert drawn["phi_star"].shape == drawn["curvature"].shape == drawn["tau"].shape == (2, 60, 10)
    assert drawn["coefficients"].shape == (2, 60, 5)
    assert (drawn["curvature"][..., :5] > 1.0).all()  # at least the prior's own precision
    levels = drawn["curvature"][..., 2:5].sum(axis=2) - 3.0
    np.testing.assert_allclose(levels, drawn["curvature"][..., 0] - 1.0, rtol=1e-9)
    hessian = posterior.groups["posterior"]["hessian"]
    assert hessian.dims == ("chain", "draw", "phi_row", "phi_column")
    assert hessian["phi_row"].to_numpy().tolist() == list(release.phi_labels[:5])
    np.testing.assert_array_equal(np.diagonal(hessian, axis1=2, axis2=3), drawn["curvature"][..., :5])
    np.testing.assert_array_equal(hessian, np.swapaxes(hessian, 2, 3))
    np.testing.assert_allclose(hessian[..., 2, 3], 0.0, atol=1e-12)  # levels of one column never meet
    names = {"acceptance_rate", "diverging", "lp", "energy", "step_size", "n_steps"}
    assert set(posterior.groups["sample_stats"]) == names
    assert (posterior.settings["curvature"], posterior.settings["warmup"]) == ("dense", 100)
    assert "adapt_delta" not in posterior.settings
    again, other = variables(infer_dense(release)), variables(infer_dense(release, seed=2))
    np.testing.assert_array_equal(again["phi_star"], drawn["phi_star"])
    assert not np.array_equal(other["phi_star"], drawn["phi_star"])


def test_a_posterior_with_a_matrix_is_saved_and_loaded(release, tmp_path):
    posterior = infer_dense(release, draws=5, warmup=10)
    loaded = na.Posterior.load(posterior.save(tmp_path / "posterior.nc"))
    np.testing.assert_array_equal(
        loaded.groups["posterior"]["hessian"], posterior.groups["posterior"]["hessian"]
    )


def test_matrices_that_would_fill_a_file_are_left_out(release, monkeypatch):
    monkeypatch.setattr("nadpvi.inference.dense._MOST_HESSIAN_NUMBERS", 2 * 5 * 25 - 1)
    assert "hessian" not in infer_dense(release, draws=5, warmup=10).groups["posterior"]
    assert "hessian" in infer_dense(release, draws=4, warmup=10).groups["posterior"]


def test_without_subsampling_noise_there_is_no_tau(release):
    drawn = variables(infer_dense(release, subsampling_noise=False, draws=20, warmup=40))
    assert "tau" not in drawn
    assert np.isfinite(drawn["phi_star"]).all()


@pytest.mark.parametrize("known", [True, False])
def test_chains_converge_from_dispersed_starts(release, known):
    made = release if known else dataclasses.replace(release, description=None)
    drawn = variables(infer_dense(made, draws=400, warmup=300))
    found = convergence(as_draws({name: drawn[name] for name in ("phi_star", "curvature")}))["r_hat"]
    assert max(float(found[name].max()) for name in found) < 1.05


def test_the_schema_gives_the_groups(release):
    prior = make_dense_prior(release)
    kinds = [(group.kind, group.start, group.size) for group in prior.groups]
    assert kinds == [
        (GroupKind.CONSTANT, 0, 1),
        (GroupKind.NUMBER, 1, 1),
        (GroupKind.LEVELS, 2, 3),
    ]
    assert prior.precision.tolist() == [1.0] * 5
    plain = make_dense_prior(release, use_schema=False)
    assert (plain.groups, plain.num_directions) == ((), 6)
    assert plain.precision.tolist() == [1.0] * 5


def test_without_a_description_all_coordinates_may_interact(release):
    anonymous = dataclasses.replace(release, description=None)
    prior = make_dense_prior(anonymous)
    assert (prior.groups, prior.precision.tolist()) == ((), [0.0] * 10)
    assert variables(infer_dense(anonymous, draws=20, warmup=40))["hessian"].shape == (2, 20, 10, 10)


def test_further_parameters_stay_outside_the_matrix(schema, table):
    """A linear regression's log s2 is no coefficient, and has no part in the features' pattern."""
    made = na.release(
        na.models.LinearRegression(outcome="age", predictors=["job"]),
        table,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=8.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=60, sampling_rate=0.2, clip_norm=50.0),
        insecure_seed=4,
    )
    prior = make_dense_prior(made)
    assert [group.kind for group in prior.groups] == [GroupKind.CONSTANT, GroupKind.LEVELS]
    assert (prior.num_parameters, made.dimension) == (4, 10)


MATRIX = np.array(
    [
        [6.0, 2.5, 1.0, 4.0, 1.0],
        [2.5, 2.0, 0.5, 1.5, 0.5],
        [1.0, 0.5, 1.0, 0.0, 0.0],
        [4.0, 1.5, 0.0, 4.0, 0.0],
        [1.0, 0.5, 0.0, 0.0, 1.0],
    ]
)


@pytest.mark.parametrize("known", [True, False])
def test_a_released_second_moment_is_used(release, known):
    """One with little noise fixes the curvature up to a factor, whatever the trace says."""
    made = dataclasses.replace(release, curvature=MATRIX, curvature_std=np.full((5, 5), 0.2))
    if not known:
        prior = make_dense_prior(made, use_schema=False)
        drawn = sample_dense(
            make_gradient_model(made), release=made, draws=200, chains=2, warmup=200, seed=1, prior=prior
        )
        hessian = drawn.hessian
    else:
        hessian = variables(infer_dense(made, draws=200, warmup=200))["hessian"]
    records = hessian.mean(axis=(0, 1)) - np.eye(5)
    factor = records[0, 0] / MATRIX[0, 0]
    assert 0.4 < factor < 2.5
    np.testing.assert_allclose(records, factor * MATRIX, atol=0.4 * factor)


def test_a_release_keeps_its_curvature(release, tmp_path):
    made = dataclasses.replace(release, curvature=MATRIX, curvature_std=2.0)
    loaded = na.Release.load(made.save(tmp_path / "release.nc"))
    np.testing.assert_array_equal(loaded.curvature, MATRIX)
    np.testing.assert_array_equal(loaded.curvature_std, np.full((5, 5), 2.0))
    assert na.Release.load(release.save(tmp_path / "without.nc")).curvature is None


@pytest.mark.parametrize(
    ("matrix", "std", "text"),
    [
        (np.eye(2), None, "go together"),
        (None, 1.0, "go together"),
        (np.eye(4), 1.0, "at most 3 rows"),
        (np.ones(3), 1.0, "square"),
        ([[1.0, 2.0], [0.0, 1.0]], 1.0, "symmetric"),
        ([[1.0, np.nan], [np.nan, 1.0]], 1.0, "finite"),
        (np.eye(2), 0.0, "positive"),
        (np.eye(2), np.ones(2), "curvature's shape"),
    ],
)
def test_a_curvature_that_is_no_noisy_matrix_is_refused(matrix, std, text):
    plain = make_release(num_steps=20)
    settings = {
        "phi": plain.phi,
        "noisy_gradient": plain.noisy_gradient,
        "noise_multiplier": 1e-9,
        "clip_norm": 1.0,
        "sampling_rate": 0.1,
    }
    assert na.Release.from_arrays(**settings, curvature=np.eye(2), curvature_std=1.0).curvature.shape == (
        2,
        2,
    )
    with pytest.raises(ArgumentError, match=text):
        na.Release.from_arrays(**settings, curvature=matrix, curvature_std=std)


def test_a_release_of_sums_is_refused(schema, table):
    made = na.release(
        na.models.LogisticRegression(outcome="y", predictors=["age", "job"]),
        table,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=8.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=40, sampling_rate=0.2, keep="sums"),
        insecure_seed=3,
    )
    with pytest.raises(ArgumentError, match="needs the trace"):
        na.infer(made, method="dense")


def test_more_coordinates_than_it_can_handle_are_refused():
    rng = np.random.default_rng(0)
    phi, noisy = rng.standard_normal((2, 12, 201))
    made = na.Release.from_arrays(
        phi=phi, noisy_gradient=noisy, noise_multiplier=1e-9, clip_norm=1.0, sampling_rate=0.1
    )
    with pytest.raises(ArgumentError, match="at most 200 coordinates"):
        na.infer(made, method="dense")


def test_a_prior_of_another_size_is_refused(release):
    model = make_gradient_model(release)
    prior = dataclasses.replace(
        make_dense_prior(release, use_schema=False), precision=np.ones(11), num_directions=12
    )
    with pytest.raises(ArgumentError, match="prior has 11 coordinates"):
        make_dense_model(release, model=model, burn_in=0.2, prior=prior)


@pytest.mark.parametrize("name", ["draws", "chains", "warmup"])
def test_counts_out_of_range_are_refused(release, name):
    settings = {"draws": 5, "chains": 1, "warmup": 5, name: 0}
    with pytest.raises(ArgumentError, match=name):
        sample_dense(make_gradient_model(release), release=release, seed=1, **settings)
