"""The exact method: against brute force, closed forms, NUTS and its own prior, on easy and on hard traces."""

import dataclasses
import functools
import warnings

import numpy as np
import pytest
from exact_reference import CASES, brute_force, make_cases, one_coordinate
from scipy.special import ndtr
from scipy.stats import chi2
from trace_cases import make_release

from nadpvi import gradient_model as gm
from nadpvi.bijectors import softplus
from nadpvi.containers.posterior import Posterior
from nadpvi.containers.release import Release
from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.errors import ArgumentError, EngineError, InferenceWarning
from nadpvi.gradient_model.quadrature import columns as quadrature_columns
from nadpvi.gradient_model.quadrature import draws as quadrature_draws
from nadpvi.gradient_model.quadrature import integrate as quadrature
from nadpvi.gradient_model.quadrature import maps as quadrature_maps
from nadpvi.gradient_model.quadrature import rules as quadrature_rules
from nadpvi.inference import api, exact
from nadpvi.inference.exact import exact_marginals, phi_star_moments, sample_exact
from nadpvi.inference.nuts import sample_nuts

# Few steps and big noise; chance made two of the three slopes negative.
HARD = {"num_steps": 12, "noise_multiplier": 300.0, "learning_rate": 2e-4, "seed": 7}


@functools.cache
def reference(num_steps, use_tau, d):
    model = make_cases(num_steps, use_tau=use_tau)
    return brute_force(model, d, v_count=2000 if use_tau else 20_000, tau_count=200)


@functools.cache
def marginals(num_steps, use_tau):
    return exact_marginals(make_cases(num_steps, use_tau=use_tau))


@functools.cache
def draws(num_steps, use_tau):
    return sample_exact(make_cases(num_steps, use_tau=use_tau), draws=10_000, chains=2, seed=5)


SETTINGS = [
    pytest.param(12, False),
    pytest.param(800, False),
    pytest.param(12, True),
    pytest.param(3, True, marks=pytest.mark.slow),
    pytest.param(800, True, marks=pytest.mark.slow),
]


def test_panel_rule_integrates_polynomials():
    rule = quadrature_rules.panel_rule()
    # Kronrod's published node and weight nearest the end
    assert rule.nodes[-1] == pytest.approx(0.991455371120813, abs=1e-14)
    assert rule.weights[-1] == pytest.approx(0.022935322010529, abs=1e-14)
    for degree in range(0, 23, 2):
        assert rule.weights @ rule.nodes**degree == pytest.approx(2 / (degree + 1), abs=1e-13)
    assert rule.gauss_weights @ rule.nodes**12 == pytest.approx(2 / 13, abs=1e-13)
    assert abs(rule.gauss_weights @ rule.nodes**14 - 2 / 15) > 1e-5
    np.testing.assert_allclose(rule.running @ rule.nodes**14, (rule.nodes**15 + 1) / 15, atol=1e-13)


@pytest.mark.parametrize("use_tau", [False, True])
def test_grid_density_is_the_collapsed_density(use_tau):
    model = make_cases(12, use_tau=use_tau)
    rng = np.random.default_rng(0)
    size = model.num_parameters
    v = model.v_prior_mean[:, None] + model.v_prior_sd[:, None] * rng.standard_normal((size, 4))
    x = np.abs(rng.standard_normal((size, 3))) if use_tau else np.zeros((size, 1))
    columns = quadrature_columns.make_columns(model)
    grid = quadrature_columns.log_density_on_grid(columns, v=v, x=x)
    s = model.noise_std[:, None] * np.cosh(x)
    tau = (model.noise_std[:, None] * np.sinh(x)).T[None] if use_tau else None
    want = gm.log_collapsed(model, v=v.T[:, None], tau=tau)
    if use_tau:
        want = want + np.log(s).T
    np.testing.assert_allclose(np.moveaxis(grid, 0, 2), want, rtol=1e-11)
    top = grid.max(axis=(1, 2))
    scaled = quadrature_columns.density_on_grid(columns, v=v, x=x, log_reference=top)
    np.testing.assert_allclose(scaled, np.exp(grid - top[:, None, None]), rtol=1e-7)
    variance = np.broadcast_to(np.square(s)[:, None, :], grid.shape)
    c = np.broadcast_to(model.sampling_rate * softplus(v)[:, :, None], grid.shape)
    mean, precision = quadrature_columns.conditional_delta_moments(columns, c=c, variance=variance)
    want_mean, want_precision = gm.conditional_delta(model, v=v.T[:, None], tau=tau)
    np.testing.assert_allclose(np.moveaxis(precision, 0, 2), want_precision, rtol=1e-11)
    np.testing.assert_allclose(np.moveaxis(mean, 0, 2), want_mean, rtol=1e-11)


@pytest.mark.parametrize(("num_steps", "use_tau"), SETTINGS)
@pytest.mark.parametrize("d", range(len(CASES)), ids=list(CASES))
def test_marginals_equal_brute_force(num_steps, use_tau, d):
    found, truth = marginals(num_steps, use_tau), reference(num_steps, use_tau, d)
    assert found.error[d] < 1e-6
    # the brute force's own error with tau, on a coarser grid, is up to 1e-5
    limit = 1e-5 if use_tau else 1e-6
    assert abs(np.expm1(found.log_evidence[d] - truth.log_mass)) < limit
    for name in ("phi_star", "curvature", "tau") if use_tau else ("phi_star", "curvature"):
        table = getattr(found, name)
        mean, sd = truth.moments(name)
        assert table.mean[d] == pytest.approx(mean, abs=2e-4 * sd), name
        # the sd of a curvature that is 0 but for one case in a million rests on nodes that do not matter
        rtol = 2e-3 if name == "curvature" else 2e-4
        assert table.sd[d] == pytest.approx(sd, rel=rtol), name
        if name != "curvature":
            reached = truth.distribution(name, table.quantiles[:, d])
            np.testing.assert_allclose(reached, found.probabilities, atol=5e-4)


@pytest.mark.parametrize(("num_steps", "use_tau"), SETTINGS)
@pytest.mark.parametrize("d", range(len(CASES)), ids=list(CASES))
def test_draws_follow_brute_force(num_steps, use_tau, d):
    sample, truth = draws(num_steps, use_tau), reference(num_steps, use_tau, d)
    levels = np.array([0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999])
    for name in ("phi_star", "v", "tau") if use_tau else ("phi_star", "v"):
        values = getattr(sample, name)[..., d].ravel()
        reached = truth.distribution(name, np.quantile(values, levels))
        # 4.5 standard errors for 20,000 draws, and the reference's own 5e-4; about 1,800 comparisons: 0.5 %
        limit = 4.5 * np.sqrt(levels * (1 - levels) / values.size) + 5e-4
        assert (np.abs(reached - levels) < limit).all(), (name, reached)


def test_comparison_with_brute_force_has_power():
    model = make_cases(800, use_tau=False, names=("plain", "negative slope"))
    wrong = dataclasses.replace(model, noise_std=1.1 * model.noise_std)
    found = exact_marginals(wrong)
    for d in range(2):
        truth = brute_force(model, d)
        assert abs(np.expm1(found.log_evidence[d] - truth.log_mass)) > 1e-2
        assert abs(found.curvature.sd[d] / truth.moments("curvature")[1] - 1) > 0.01


def test_maps_reach_the_distribution_without_sampling():
    """The map's own error, free of Monte Carlo noise: 1e-4 as a probability, gaps included."""
    model = make_cases(12, use_tau=False)
    z, hard = np.linspace(-3.5, 3.5, 2001), 0
    for _, groups in exact._integrated(model, chunk=1000):
        for group in groups:
            known = quadrature_maps.panel_quantiles(group.low, group.half_width, group.v_density)
            made = quadrature_maps.uniform_map(known)
            is_hard = quadrature_draws.needs_knots(known, made)
            hard += int(is_hard.sum())
            fine = quadrature_maps.panel_quantiles(group.low, group.half_width, group.v_density, is_fine=True)
            knots = quadrature_maps.knot_map(fine)
            for row, d in enumerate(group.places):
                chosen = knots if is_hard[row] else made
                t = quadrature_maps.apply_map(chosen, np.full(z.size, row), z)
                assert (np.diff(t) >= 0).all()
                reached = reference(12, False, d).distribution("v", t)
                np.testing.assert_allclose(reached, ndtr(z), atol=1.5e-4, err_msg=model.phi_labels[d])
    assert 0 < hard < len(CASES)  # both kinds of map are among the cases


@pytest.mark.parametrize("num_steps", [3, 12, 150, 800])
def test_nodes_of_x_mix_to_the_marginal_of_v(num_steps):
    """Drawing v at one of the two nodes beside x, instead of at x, moves its distribution by below 1e-4."""
    worst = []
    model = make_cases(num_steps, use_tau=True, names=("plain", "hugs zero", "tau well above the noise"))
    z = np.linspace(-8, 8, 4001)
    weight = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * (z[1] - z[0])
    for _, groups in exact._integrated(model, chunk=10):
        for group in groups:
            x_map = quadrature_maps.uniform_map(quadrature_maps.uniform_quantiles(group.x, group.x_density))
            for rows, nodes in quadrature_draws.noise_nodes(x_map):
                part = group.take(rows)
                x = quadrature_maps.apply_map(x_map, rows[:, None], np.broadcast_to(z, (rows.size, z.size)))
                position = (np.log(np.cosh(x)) - nodes.low[:, None]) / nodes.step[:, None]
                position = np.clip(position, 0, nodes.size - 1)[..., None] - np.arange(nodes.size)
                shares = np.einsum("z,dzk->dk", weight, np.maximum(1 - np.abs(position), 0))
                np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-9)
                given = quadrature_draws.conditional_v(part, nodes.x, is_fine=False)
                mixed = np.einsum("dk,dkm->dm", shares, ndtr(given.z).reshape(rows.size, nodes.size, -1))
                whole = quadrature_maps.panel_quantiles(part.low, part.half_width, part.v_density)
                np.testing.assert_allclose(mixed, ndtr(whole.z), atol=1e-4)
                worst.append(np.abs(mixed - ndtr(whole.z)).max())
    assert len(worst) > 0


def test_known_answer_when_phi_star_is_known():
    """With phi_star known and no mean gradient, v >> 1 is a normal regression with a normal prior."""
    one = np.ones(1)
    sums = gm.TraceSums(
        num_steps=100, phi_bar=one, g_bar=0 * one, s_pp=2 * one, s_gp=30 * one, s_gg=600 * one
    )
    model = gm.GradientModel(
        sums=sums,
        sampling_rate=0.1,
        noise_std=2 * one,
        phi_star_prior_mean=one,
        phi_star_prior_sd=1e-9 * one,
        v_prior_mean=170 * one,
        v_prior_sd=20 * one,
        tau_prior_scale=None,
        phi_labels=("mu",),
    )
    data, prior = 0.1**2 * 2 / 4, 1 / 20**2  # precisions of the slope over the rate, and of the prior
    found = exact_marginals(model, probabilities=[0.5])
    mean = (data * 150 + prior * 170) / (data + prior)
    assert found.curvature.mean[0] == pytest.approx(mean, rel=1e-7)
    assert found.curvature.quantiles[0, 0] == pytest.approx(mean, rel=1e-6)
    assert found.curvature.sd[0] == pytest.approx(1 / np.sqrt(data + prior), rel=1e-6)
    assert found.phi_star.sd[0] == pytest.approx(1e-9, rel=1e-6)


def test_known_answer_when_the_curvature_is_known():
    model = make_cases(800, use_tau=False, names=("plain", "prior of phi_star apart"))
    fixed = dataclasses.replace(model, v_prior_mean=np.array([90.0, 45.0]), v_prior_sd=np.full(2, 1e-7))
    mean, precision = gm.conditional_delta(model, v=np.array([90.0, 45.0]))
    found = exact_marginals(fixed, probabilities=[0.5])
    np.testing.assert_allclose(found.phi_star.mean, model.sums.phi_bar + mean, rtol=1e-9)
    np.testing.assert_allclose(found.phi_star.sd, 1 / np.sqrt(precision), rtol=1e-7)
    np.testing.assert_allclose(found.phi_star.quantiles[0], found.phi_star.mean, rtol=1e-7)


def test_no_information_gives_the_prior_back():
    model = make_cases(12, use_tau=True, names=("no information, proper prior",))
    found = exact_marginals(model)
    truth = np.random.default_rng(0).normal(1.0, 2.0, 400_000)
    # phi_star's prior, and v's but for the mean gradient's slight preference of small slopes
    assert found.phi_star.mean[0] == pytest.approx(0.7, abs=1e-9)
    assert 0.9 < found.phi_star.sd[0] <= 1.0
    assert found.curvature.mean[0] == pytest.approx(softplus(truth).mean(), rel=0.15)


@pytest.mark.parametrize("trace", [{"subsampling_std": 60.0}, HARD], ids=["plain", "hard"])
def test_exact_equals_long_nuts(trace):
    model = gm.make_gradient_model(make_release(**trace), burn_in=0.0, subsampling_noise=True)
    found = exact_marginals(model, grid_size=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InferenceWarning)
        long = sample_nuts(model, engine=EmbeddedEngine(), draws=8000, chains=4, warmup=1000, seed=3)
    for name in ("phi_star", "curvature", "tau"):
        table, values = getattr(found, name), getattr(long, name)
        gap = np.abs(values.mean(axis=(0, 1)) - table.mean) / table.sd
        # 0.02 sds, and four standard errors at an effective size of a third of the draws
        assert (gap < 0.02 + 4 / np.sqrt(values[..., 0].size / 3)).all(), (name, gap)
        ratio = values.std(axis=(0, 1)) / table.sd
        assert (np.abs(ratio - 1) < 0.02 + 4 / np.sqrt(2 * values[..., 0].size / 3)).all(), (name, ratio)


def simulated(use_tau, *, assumed_noise=2.0, size=500, seed=21):
    """Draws from the prior, one a coordinate, with traces around given iterates, and the model of them."""
    rng = np.random.default_rng(seed)
    steps, rate = 30, 0.2
    phi = np.cumsum(rng.normal(0, 0.3, (steps, size)), axis=0)
    truth = {"v": rng.normal(3.0, 4.0, size), "phi_star": rng.normal(0.5, 1.5, size)}
    truth["tau"] = np.abs(rng.normal(0, 1.0, size)) if use_tau else np.zeros(size)
    noise = np.hypot(2.0, truth["tau"]) * rng.standard_normal(phi.shape)
    gradient = rate * softplus(truth["v"]) * (phi - truth["phi_star"]) + noise
    model = gm.GradientModel(
        sums=gm.make_trace_sums(phi, gradient, burn_in=0.0),
        sampling_rate=rate,
        noise_std=np.full(size, assumed_noise),
        phi_star_prior_mean=np.full(size, 0.5),
        phi_star_prior_sd=np.full(size, 1.5),
        v_prior_mean=np.full(size, 3.0),
        v_prior_sd=np.full(size, 4.0),
        tau_prior_scale=np.ones(size) if use_tau else None,
        phi_labels=tuple(f"phi[{i}]" for i in range(size)),
    )
    return model, truth


def rank_p_values(model, truth):
    """P-value of uniform ranks, 20 bins, for each variable."""
    fitted = sample_exact(model, draws=199, chains=1, seed=8)
    found = {}
    for name in ("v", "phi_star") if fitted.tau is None else ("v", "phi_star", "tau"):
        rank = (getattr(fitted, name)[0] < truth[name]).sum(axis=0)
        counts = np.bincount(rank // 10, minlength=20)
        expected = rank.size / 20
        found[name] = chi2.sf(((counts - expected) ** 2).sum() / expected, 19)
    return found


@pytest.mark.parametrize("use_tau", [False, True])
def test_ranks_of_the_truth_are_uniform(use_tau):
    found = rank_p_values(*simulated(use_tau))
    # the smallest of three p-values: false alarm 0.3 %
    assert min(found.values()) > 1e-3, found


@pytest.mark.parametrize("assumed_noise", [0.7, 1.0])
def test_rank_test_rejects_a_wrong_noise_scale(assumed_noise):
    found = rank_p_values(*simulated(False, assumed_noise=assumed_noise))
    assert min(found.values()) < 1e-4, found


def test_a_tau_that_cannot_be_is_no_tau():
    without = make_cases(800, use_tau=False)
    narrow = dataclasses.replace(without, tau_prior_scale=1e-5 * without.noise_std)
    a, b = exact_marginals(without, grid_size=0), exact_marginals(narrow, grid_size=0)
    np.testing.assert_allclose(a.log_evidence, b.log_evidence, atol=5e-6)
    np.testing.assert_allclose((a.phi_star.mean - b.phi_star.mean) / a.phi_star.sd, 0, atol=5e-5)
    np.testing.assert_allclose(a.phi_star.sd, b.phi_star.sd, rtol=5e-5)
    np.testing.assert_allclose(b.tau.mean, narrow.tau_prior_scale * np.sqrt(2 / np.pi), rtol=1e-3)


@pytest.mark.parametrize("use_tau", [False, True])
def test_densities_integrate_to_one(use_tau):
    found = marginals(800, use_tau)
    d = list(CASES).index("plain")
    for table in (found.phi_star, found.curvature) + ((found.tau,) if use_tau else ()):
        grid, density = table.grid[:, d], table.density[:, d]
        assert (np.diff(grid) > 0).all()
        assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-3)
        deviation = (grid - table.mean[d]) / table.sd[d]
        assert np.trapezoid(deviation * density, grid) == pytest.approx(0.0, abs=1e-3)
        assert np.trapezoid(deviation**2 * density, grid) == pytest.approx(1.0, abs=5e-3)


@pytest.mark.parametrize("use_tau", [False, True])
def test_seed_and_nothing_else_fixes_the_draws(use_tau, monkeypatch):
    model = make_cases(12, use_tau=use_tau)
    run = {"draws": 7, "chains": 2}
    first = sample_exact(model, seed=3, **run)
    names = ("phi_star", "curvature", "v") + (("tau",) if use_tau else ())
    root = np.random.SeedSequence(3)
    same = [sample_exact(model, seed=np.int64(3), **run), sample_exact(model, seed=root, **run)]
    for chunk in (1, 5):
        monkeypatch.setattr(exact, "_CHUNK", chunk)
        same.append(sample_exact(model, seed=3, **run))
    for name in names:
        for other in same:
            # a product over another number of rows may round differently in its last bits
            np.testing.assert_allclose(getattr(first, name), getattr(other, name), rtol=1e-7)
        np.testing.assert_array_equal(getattr(first, name), getattr(same[0], name))
    assert not np.array_equal(first.phi_star, sample_exact(model, seed=root, **run).phi_star)
    assert not np.array_equal(first.phi_star, sample_exact(model, seed=4, **run).phi_star)
    assert first.phi_star.shape == (2, 7, len(CASES))
    assert (first.tau is None) is not use_tau
    np.testing.assert_allclose(first.curvature, softplus(first.v))


@pytest.mark.parametrize("use_tau", [False, True])
def test_a_coordinate_alone_is_the_same_coordinate(use_tau):
    model = make_cases(12, use_tau=use_tau)
    together = exact_marginals(model)
    for d in (0, 5, 7):
        alone = exact_marginals(one_coordinate(model, d))
        assert alone.phi_star.mean.shape == (1,)
        assert alone.log_evidence[0] == pytest.approx(together.log_evidence[d], abs=1e-9)
        assert alone.phi_star.mean[0] == pytest.approx(together.phi_star.mean[d], rel=1e-9)
        assert alone.curvature.sd[0] == pytest.approx(together.curvature.sd[d], rel=1e-9)


def test_many_coordinates_of_very_different_scales():
    scales = 10.0 ** np.linspace(-2, 3, 40)
    release = make_release(
        num_steps=400,
        curvature=50.0 * scales,
        phi_star=np.linspace(-1, 1, 40),
        preconditioner=1.0 / np.sqrt(scales),
        learning_rate=2e-3 / scales,
    )
    model = gm.make_gradient_model(release, subsampling_noise=True)
    with warnings.catch_warnings(), np.errstate(over="raise", invalid="raise", divide="raise"):
        warnings.simplefilter("error")
        found = exact_marginals(model)
        fitted = sample_exact(model, draws=2000, chains=1, seed=1)
    assert found.error.max() < 1e-6
    for name in ("phi_star", "curvature", "tau"):
        table = getattr(found, name)
        gap = (getattr(fitted, name).mean(axis=(0, 1)) - table.mean) / table.sd * np.sqrt(2000)
        assert np.abs(gap).max() < 4.5, name  # 120 comparisons: false alarm below 1e-3


def one_by_numbers(*, num_steps=50, tau=None, labels=("a",), **numbers):
    """Return a model of the given numbers, one array each."""
    arrays = {name: np.atleast_1d(np.asarray(value, dtype=float)) for name, value in numbers.items()}
    names = ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg")
    sums = gm.TraceSums(num_steps=num_steps, **{name: arrays.pop(name) for name in names})
    scale = None if tau is None else np.full(len(labels), tau)
    return gm.GradientModel(sums=sums, sampling_rate=1.0, tau_prior_scale=scale, phi_labels=labels, **arrays)


def test_a_mode_far_below_the_unit_of_the_curvature_is_found():
    """A curvature of 1e-7 that its prior, around 0.5, puts 9 sds higher: once the landmarks missed it."""
    slope, s_pp, residual = 5.694e-8, 2.5993e5, 6.198e-6
    model = one_by_numbers(
        num_steps=2000,
        phi_bar=5301.36,
        g_bar=-2.6536e-8,
        s_pp=s_pp,
        s_gp=slope * s_pp,
        s_gg=residual + slope**2 * s_pp,
        noise_std=1.97706e-5,
        phi_star_prior_mean=5295.9,
        phi_star_prior_sd=6.0654,
        v_prior_mean=-0.35455,
        v_prior_sd=1.68693,
    )
    found, drawn = exact_marginals(model), sample_exact(model, draws=4000, chains=1, seed=1)
    mean, sd, _ = brute_force_in_log(model)
    for name in ("phi_star", "curvature"):
        table = getattr(found, name)
        np.testing.assert_allclose(table.mean - mean[name], 0.0, atol=1e-3 * sd[name])
        np.testing.assert_allclose(table.sd, sd[name], rtol=1e-3)
        z = (getattr(drawn, name).mean() - mean[name]) / sd[name] * np.sqrt(4000)
        assert abs(z) < 4.5


def brute_force_in_log(model):
    """Return means and sds of phi_star and curvature, and the density, on a fine grid of v in (-40, 5)."""
    v = np.linspace(-40.0, 5.0, 400_001)[:, None]
    log_density = gm.log_collapsed(model, v=v)
    weight = np.exp(log_density - log_density.max())[:, 0]
    weight /= weight.sum()
    delta, precision = (value[:, 0] for value in gm.conditional_delta(model, v=v))
    a = softplus(v)[:, 0]
    mean = {"phi_star": model.sums.phi_bar[0] + weight @ delta, "curvature": weight @ a}
    spread = np.square(model.sums.phi_bar[0] + delta - mean["phi_star"]) + 1.0 / precision
    sd = {
        "phi_star": np.sqrt(weight @ spread),
        "curvature": np.sqrt(weight @ np.square(a - mean["curvature"])),
    }
    return mean, sd, weight


@pytest.mark.parametrize("tau", [None, 2.0])
@pytest.mark.parametrize("extreme", [1e16, 1e20, 1e160])
def test_what_cannot_be_integrated_is_named(extreme, tau):
    """A mean gradient of many orders of magnitude more than its noise."""
    ones = np.ones(2)
    model = one_by_numbers(
        tau=tau,
        labels=("fine", "mad"),
        phi_bar=ones,
        g_bar=np.array([0.0, extreme]),
        s_pp=ones,
        s_gp=8.0 * ones,
        s_gg=110.0 * ones,
        noise_std=ones,
        phi_star_prior_mean=ones,
        phi_star_prior_sd=ones,
        v_prior_mean=8.0 * ones,
        v_prior_sd=ones,
    )
    with pytest.raises(ArgumentError, match=r"posterior of 'mad' has no density.*check the release's units"):
        exact_marginals(model)
    with pytest.raises(ArgumentError, match="posterior of 'mad' has no density"):
        sample_exact(model, draws=2, chains=1, seed=1)
    mean, sd = phi_star_moments(model)
    assert np.isfinite([mean[0], sd[0]]).all()
    assert np.isnan([mean[1], sd[1]]).all()


def test_moments_alone_are_those_of_the_marginals():
    model = make_cases(12, use_tau=True)
    table = marginals(12, True).phi_star
    mean, sd = phi_star_moments(model)
    np.testing.assert_array_equal(mean, table.mean)
    np.testing.assert_array_equal(sd, table.sd)


def test_unresolved_coordinates_are_named(monkeypatch):
    monkeypatch.setattr(quadrature, "_MAX_PANELS", 1)
    model = make_cases(12, use_tau=False, names=("plain", "negative slope, large units"))
    with pytest.warns(
        InferenceWarning, match=r"quadrature of 'negative slope, large units' has.*method='nuts'"
    ) as caught:
        sample_exact(model, draws=2, chains=1, seed=1)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draws": 0}, "draws must be"),
        ({"chains": 1.5}, "chains must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": True}, "seed must be"),
        ({"draws": 10**9, "chains": 900}, "draws must be at most"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    model = gm.make_gradient_model(make_release())
    with pytest.raises(ArgumentError, match=message):
        sample_exact(model, **({"draws": 2, "chains": 1, "seed": 1} | settings))


@pytest.mark.parametrize("settings", [{"grid_size": -1}, {"grid_size": 2.0}, {"probabilities": [1.0]}])
def test_bad_marginal_settings_are_refused(settings):
    with pytest.raises(ArgumentError, match=next(iter(settings))):
        exact_marginals(gm.make_gradient_model(make_release()), **settings)


def small_release():
    made = make_release()
    return Release.from_arrays(
        phi=made.phi,
        noisy_gradient=made.noisy_gradient,
        noise_multiplier=made.noise_multiplier,
        clip_norm=made.clip_norm,
        sampling_rate=made.sampling_rate,
        preconditioner=made.preconditioner,
    )


@pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")  # so short a run is warned of
@pytest.mark.parametrize("method", ["exact", "laplace"])
def test_infer_needs_no_stan(method, monkeypatch, tmp_path):
    def no_engine(name):
        raise EngineError("no engine here.")

    monkeypatch.setattr(api, "find_engine", no_engine)
    release = small_release()
    assert api.check_inference(num_steps=release.num_steps, method=method) is None
    with pytest.raises(EngineError, match="no engine here"):
        api.infer(release)
    # independent draws cannot disagree between chains: one short chain is no trouble
    posterior = api.infer(release, method=method, draws=5, chains=1, seed=2)
    assert posterior.groups["posterior"]["phi_star"].dims == ("chain", "draw", "phi")
    assert posterior.groups["posterior"]["tau"].shape == (1, 5, 3)
    assert posterior.settings["method"] == method
    assert "NumPy" in posterior.settings["engine"]
    assert "warmup" not in posterior.settings
    assert posterior.num_divergences is None
    again = Posterior.load(posterior.save(tmp_path / "posterior.nc"))
    np.testing.assert_array_equal(
        again.groups["posterior"]["phi_star"], posterior.groups["posterior"]["phi_star"]
    )
    same = api.infer(release, method=method, draws=5, chains=1, seed=2)
    np.testing.assert_array_equal(same.groups["posterior"]["tau"], posterior.groups["posterior"]["tau"])


def test_unknown_method_lists_the_known():
    with pytest.raises(
        ArgumentError, match=r"method must be one of 'auto', 'nuts', 'exact', 'laplace'.*'vi'"
    ):
        api.infer(small_release(), method="vi")
