"""NUTS on the post-processing model: against brute force, on hard traces, and what it reports."""

import dataclasses
import re
import warnings

import numpy as np
import pytest
from trace_cases import make_release

from nadpvi import gradient_model as gm
from nadpvi.bijectors import softplus
from nadpvi.engines.base import StanDraws
from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.engines.programs import inlined_program, program_path
from nadpvi.errors import ArgumentError, EngineError, InferenceWarning
from nadpvi.guides import MeanField
from nadpvi.inference.nuts import make_stan_data, sample_nuts
from nadpvi.models import Parameter

# Few steps and big noise; chance made two of the three slopes negative.
HARD = {"num_steps": 12, "noise_multiplier": 300.0, "learning_rate": 2e-4, "seed": 7}


def moments(weights, values):
    """Mean and sd of `values` per coordinate (last axis) under weights on a grid."""
    axes = tuple(range(weights.ndim - 1))
    total = weights.sum(axis=axes)
    mean = (weights * values).sum(axis=axes) / total
    return mean, np.sqrt((weights * (values - mean) ** 2).sum(axis=axes) / total)


def grid_moments(model, *, nodes=301, tau_nodes=100):
    """Posterior moments by brute force on a grid of (v, phi_star[, tau]) for each coordinate."""
    v = model.v_prior_mean + model.v_prior_sd * np.linspace(-8, 8, nodes)[:, None, None, None]
    z = np.linspace(-6, 6, 61)[None, :, None, None]
    if model.tau_prior_scale is None:
        tau = None
        shape = np.broadcast_shapes(v.shape, z.shape)
    else:
        cells = (
            np.arange(tau_nodes) + 0.5
        ) / tau_nodes  # midpoints: tau = 0 is a boundary with mass beside it
        tau = model.tau_prior_scale * 5 * cells[None, None, :, None]
        shape = np.broadcast_shapes(v.shape, z.shape, tau.shape)
    # the grid of phi_star follows its conditional, whose width changes a hundredfold with the curvature
    mean, precision = gm.conditional_delta(model, v=v, tau=tau)
    phi_star = model.sums.phi_bar + mean + z / np.sqrt(precision)
    log_weight = gm.log_density(model, v=v, phi_star=phi_star, tau=tau) - 0.5 * np.log(precision)
    weights = np.exp(log_weight - log_weight.max(axis=(0, 1, 2)))
    result = {
        "phi_star": moments(weights, phi_star),
        "v": moments(weights, np.broadcast_to(v, shape)),
        "curvature": moments(weights, np.broadcast_to(softplus(v), shape)),
    }
    if tau is not None:
        result["tau"] = moments(weights, np.broadcast_to(tau, shape))
    return result


def effective_size(draws):
    """Effective sample size over chains by the initial positive sequence; draws (chain, draw)."""
    chains, length = draws.shape
    centred = draws - draws.mean()
    spectrum = np.fft.rfft(centred, n=2 * length, axis=1)
    covariance = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :length].mean(axis=0) / length
    correlation = covariance / covariance[0]
    pairs = correlation[0 : length - 1 : 2] + correlation[1:length:2]
    stop = int(np.argmax(pairs <= 0)) if (pairs <= 0).any() else pairs.size
    return chains * length / max(2 * pairs[:stop].sum() - 1, 0.1)


def quiet_run(model, **settings):
    """Sample with inference warnings as errors."""
    run = {"draws": 2500, "chains": 4, "warmup": 1000, "seed": 11} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("error", InferenceWarning)
        return sample_nuts(model, engine=EmbeddedEngine(), **run)


@pytest.mark.parametrize("trace", [{}, HARD], ids=["plain", "hard"])
@pytest.mark.parametrize("use_tau", [False, True])
def test_nuts_equals_brute_force(use_tau, trace):
    model = gm.make_gradient_model(make_release(**trace), burn_in=0.0, subsampling_noise=use_tau)
    fitted = quiet_run(model)
    for name, (mean, sd) in grid_moments(model).items():
        draws = getattr(fitted, name)
        assert draws.shape == (4, 2500, 3)
        for d in range(3):
            one = draws[..., d]
            error = sd[d] / np.sqrt(effective_size(one))
            # 4.5 standard errors in 18 + 24 comparisons of means: false alarm below 1e-3
            assert abs(one.mean() - mean[d]) < 4.5 * error, (name, d)
            assert one.std() == pytest.approx(sd[d], rel=0.05), (name, d)


def test_brute_force_tells_a_wrong_noise_scale_apart():
    """The comparison above has power: 30 % more noise moves the grid's sds by more than its tolerance."""
    model = gm.make_gradient_model(make_release(), burn_in=0.0)
    wrong = dataclasses.replace(model, noise_std=1.3 * model.noise_std)
    right_sd, wrong_sd = (grid_moments(m)["phi_star"][1] for m in (model, wrong))
    assert (np.abs(wrong_sd / right_sd - 1) > 0.1).all()


@pytest.mark.parametrize("use_tau", [False, True])
def test_hard_trace_samples_without_divergences(use_tau):
    model = gm.make_gradient_model(make_release(**HARD), burn_in=0.0, subsampling_noise=use_tau)
    assert model.sums.s_gp.min() < 0  # the case is what it claims to be
    fitted = quiet_run(model, draws=1000)
    assert not fitted.sample_stats["diverging"].any()
    assert np.isfinite(fitted.phi_star).all()
    for d in range(3):
        assert effective_size(fitted.phi_star[..., d]) > 1000


def test_many_coordinates_of_very_different_scales():
    scales = 10.0 ** np.linspace(-2, 3, 40)
    release = make_release(
        num_steps=400,
        curvature=50.0 * scales,
        phi_star=np.linspace(-1, 1, 40),
        preconditioner=1.0 / np.sqrt(scales),
        learning_rate=2e-3 / scales,
    )
    fitted = quiet_run(gm.make_gradient_model(release), draws=500)
    assert not fitted.sample_stats["diverging"].any()
    sizes = [effective_size(fitted.phi_star[..., d]) for d in range(40)]
    assert min(sizes) > 800


def calibration_scores(*, assumed_noise):
    """Rank statistics of 300 draws from the prior, one a coordinate, standard normal when calibrated.

    The priors are fixed before the trace exists, so ranks of the truth among posterior draws are uniform:
    their mean tells of bias, their mean square about 1/2 of wrong width.
    """
    rng = np.random.default_rng(21)
    size, steps, rate = 300, 30, 0.2
    phi = np.cumsum(rng.normal(0, 0.3, (steps, size)), axis=0)
    truth = {
        "v": rng.normal(8.0, 4.0, size),
        "phi_star": rng.normal(0.5, 1.5, size),
        "tau": np.abs(rng.normal(0, 1.0, size)),
    }
    noise = np.hypot(2.0, truth["tau"]) * rng.standard_normal(phi.shape)
    gradient = rate * softplus(truth["v"]) * (phi - truth["phi_star"]) + noise
    model = gm.GradientModel(
        sums=gm.make_trace_sums(phi, gradient, burn_in=0.0),
        sampling_rate=rate,
        noise_std=np.full(size, assumed_noise),
        phi_star_prior_mean=np.full(size, 0.5),
        phi_star_prior_sd=np.full(size, 1.5),
        v_prior_mean=np.full(size, 8.0),
        v_prior_sd=np.full(size, 4.0),
        tau_prior_scale=np.ones(size),
        phi_labels=tuple(f"phi[{i}]" for i in range(size)),
    )
    fitted = quiet_run(model, draws=250, warmup=400)
    scores = {}
    for name, true in truth.items():
        rank = (getattr(fitted, name) < true).mean(axis=(0, 1))
        scores[name] = (
            (rank.mean() - 0.5) / np.sqrt(1 / 12 / size),
            (((rank - 0.5) ** 2).mean() - 1 / 12) / np.sqrt(1 / 180 / size),
        )
    return scores


@pytest.mark.slow
def test_ranks_of_the_truth_are_uniform():
    scores = calibration_scores(assumed_noise=2.0)
    # six scores: |z| < 3.5 for all has false alarm below 0.3 %
    assert max(abs(z) for pair in scores.values() for z in pair) < 3.5, scores


@pytest.mark.slow
def test_rank_test_rejects_a_wrong_noise_scale():
    scores = calibration_scores(assumed_noise=1.0)
    assert scores["tau"][0] < -5  # noise that the model misses goes into tau, above the truth
    scores = calibration_scores(assumed_noise=4.0)
    assert scores["phi_star"][1] < -3.5  # intervals twice too wide


def test_result_names_what_it_holds():
    model = gm.make_gradient_model(make_release())
    fitted = quiet_run(model, draws=3, chains=1, warmup=50)
    assert fitted.phi_star.shape == fitted.curvature.shape == fitted.v.shape == (1, 3, 3)
    np.testing.assert_allclose(fitted.curvature, softplus(fitted.v))
    assert fitted.tau is None
    assert (fitted.engine_name, fitted.engine_version[:4]) == ("stanli", "0.24")
    assert fitted.sample_stats["diverging"].dtype == bool


def test_one_coordinate_keeps_its_axis():
    release = make_release(curvature=(50.0,), phi_star=(1.0,), preconditioner=(1.0,))
    model = gm.make_gradient_model(release, subsampling_noise=True)
    fitted = quiet_run(model, draws=2, chains=1, warmup=50)
    assert fitted.phi_star.shape == fitted.tau.shape == (1, 2, 1)


def test_seeds_come_from_spawned_children():
    model = gm.make_gradient_model(make_release())
    run = {"draws": 5, "chains": 2, "warmup": 20}
    by_int = quiet_run(model, seed=3, **run).phi_star
    np.testing.assert_array_equal(by_int, quiet_run(model, seed=np.int64(3), **run).phi_star)
    root = np.random.SeedSequence(3)
    np.testing.assert_array_equal(by_int, quiet_run(model, seed=root, **run).phi_star)
    assert not np.array_equal(by_int, quiet_run(model, seed=root, **run).phi_star)
    assert not np.array_equal(by_int, quiet_run(model, seed=4, **run).phi_star)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", None, True])
def test_bad_seed_is_refused(seed):
    with pytest.raises(ArgumentError, match="seed must be"):
        quiet_run(gm.make_gradient_model(make_release()), seed=seed)


class CannedEngine:
    """Returns draws with the trouble it was told to have."""

    name = "canned"
    version = "0"

    def __init__(self, *, diverging=0, deep=0):
        self.counts = (diverging, deep)

    def sample(self, program_path, data, *, chains, draws, max_treedepth, **settings):
        zeros = np.zeros((chains, draws, data["D"]))
        diverging = np.zeros(chains * draws, dtype=bool)
        depth = np.full(chains * draws, max_treedepth - 1)
        diverging[: self.counts[0]] = True
        depth[: self.counts[1]] = max_treedepth
        return StanDraws(
            variables={"phi_star": zeros, "curvature": zeros, "v": zeros},
            sample_stats={
                "diverging": diverging.reshape(chains, draws),
                "tree_depth": depth.reshape(chains, draws),
            },
        )


@pytest.mark.parametrize("chains", [1, 4])
@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ({"diverging": 3}, "3 of {total} NUTS transitions diverged.*adapt_delta"),
        ({"deep": 2}, "2 of {total} NUTS transitions reached the tree depth limit of 10"),
    ],
)
def test_trouble_is_a_typed_warning(chains, trouble, message):
    model = gm.make_gradient_model(make_release())
    run = {"draws": 5, "chains": chains, "warmup": 1, "seed": 1}
    with pytest.warns(InferenceWarning, match=message.format(total=5 * chains)) as caught:
        sample_nuts(model, engine=CannedEngine(**trouble), **run)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_no_trouble_no_warning():
    model = gm.make_gradient_model(make_release())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample_nuts(model, engine=CannedEngine(), draws=5, chains=1, warmup=1, seed=1)


def test_engine_errors_pass_through():
    class Broken(CannedEngine):
        def sample(self, *args, **settings):
            raise EngineError("chain 2 died.")

    with pytest.raises(EngineError, match=r"chain 2 died\."):
        sample_nuts(
            gm.make_gradient_model(make_release()), engine=Broken(), draws=5, chains=1, warmup=1, seed=1
        )


def test_stan_data_has_the_declared_names_and_kinds():
    release = make_release(curvature=(50.0, 60.0), phi_star=(1.0, 0.0), preconditioner=(1.0, 1.0))
    model = gm.make_gradient_model(release, subsampling_noise=True)
    guide, blocks = MeanField(scale="variance"), (Parameter(name="x"),)
    data = make_stan_data(model, guide=guide, parameters=blocks)
    program = inlined_program(program_path("gradient_model"))
    block = re.sub(r"//.*", "", program[program.index("\ndata {") : program.index("\ntransformed data {")])
    assert list(data) == re.findall(r"(\w+);", block)
    assert {name for name, value in data.items() if type(value) is int} == {
        "D",
        "num_steps",
        "use_tau",
        "K",
        "scale_is_sd",
        "num_noise",
        "num_weights",
        "num_blocks",
    }
    assert (data["K"], data["scale_is_sd"], data["use_tau"]) == (1, 0, 1)
    assert make_stan_data(gm.make_gradient_model(release))["tau_prior_scale"].shape == (0,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"guide": MeanField()}, "guide and parameters must fit phi of 3 coordinates"),
        ({"guide": MeanField(), "parameters": (Parameter(name="x"),)}, "guide and parameters must fit phi"),
        ({"parameters": (Parameter(name="x"),)}, "parameters need a guide"),
    ],
)
def test_guide_that_does_not_fit_is_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        make_stan_data(gm.make_gradient_model(make_release()), **settings)
