"""The dense method: calibrated on its own model, and right where a diagonal one fails."""

import warnings

import numpy as np
import pandas as pd
import pytest
from dense_cases import batch_sums, make_model, simulate_traces
from scipy import stats
from scipy.special import expit, logit

import nadpvi as na
from nadpvi.errors import InferenceWarning
from nadpvi.gradient_model import GradientModel, TraceSums
from nadpvi.gradient_model.dense.prior import Group, GroupKind
from nadpvi.inference.dense_block import sample_dense_block
from nadpvi.inference.exact import sample_exact

RATE = 0.1
TRACES = 120


def scattered_start(model, *, chains, rng, sd=0.5):
    start = np.tile(model.coordinates.start(), (chains, 1))
    return start + sd * rng.standard_normal(start.shape)


def draw_curvatures(rng, *, count, centre):
    """Return matrices P + H from the prior of a 2 x 2 curvature without a pattern, P = I."""
    log_h = np.log(centre) + 0.7 * rng.standard_normal((count, 2))
    entries = rng.uniform(-1.0, 1.0, size=count)
    matrices = np.einsum("ri,ij->rij", np.exp(log_h), np.eye(2))
    matrices[:, 0, 1] = matrices[:, 1, 0] = entries[:count] * np.exp(log_h.mean(axis=1))
    return matrices + np.eye(2)


@pytest.mark.slow
def test_it_is_calibrated_on_its_own_model():
    """Ranks of the truth over 300 traces from the prior, one a chain; each test at level 1e-3."""
    rng = np.random.default_rng(4)
    count, noise = 300, 30.0
    curvature = draw_curvatures(rng, count=count, centre=60.0)
    phi_star = rng.standard_normal((count, 2))
    tau = np.abs(20.0 * rng.standard_normal((count, 2)))
    phi, noisy = simulate_traces(
        lambda phi: RATE * np.einsum("rij,rj->ri", curvature, phi - phi_star),
        phi_star=phi_star,
        num_steps=100,
        noise_std=np.hypot(noise, tau),
        learning_rate=0.01,
        rng=rng,
    )
    model = make_model(
        batch_sums(phi, noisy, burn_in=0.0),
        centre=np.full(2, 60.0),
        noise_std=noise,
        tau_scale=20.0,
        log_scale_std=0.7,
    )
    block = sample_dense_block(
        model,
        draws=300,
        chains=count,
        warmup=300,
        rng=rng,
        start=scattered_start(model, chains=count, rng=rng),
    )
    diagonal = np.diagonal(curvature, axis1=1, axis2=2)
    for drawn, truth in ((block.phi_star, phi_star), (block.curvature, diagonal), (block.tau, tau)):
        below = (drawn < truth[:, None]).mean(axis=1)
        for column in below.T:
            assert stats.kstest(column, "uniform").pvalue > 1e-3
        overconfident = drawn.mean(axis=1, keepdims=True) + 0.6 * (drawn - drawn.mean(axis=1, keepdims=True))
        ranks = (overconfident < truth[:, None]).mean(axis=1)
        assert min(stats.kstest(column, "uniform").pvalue for column in ranks.T) < 1e-3


SMALL = (
    Group(kind=GroupKind.CONSTANT, start=0),
    Group(kind=GroupKind.LEVELS, start=1, size=2),
    Group(kind=GroupKind.BINARY, start=3),
)


def draw_patterns(rng, coordinates, *, count):
    """Return matrices H from the prior of a pattern, in its coordinates, kept with probability |R|."""
    layout, prior = coordinates.layout, coordinates.layout.prior
    kept = []
    while len(kept) < count:
        x = np.zeros(coordinates.size)
        x[0] = layout.weight_centre + prior.log_scale_std * rng.standard_normal()
        x[1:3] = logit(rng.beta(0.5, 0.5, 2))  # a share of two levels, and the binary column's
        x[layout.num_margins : layout.num_inner] = rng.standard_normal(layout.num_inner - layout.num_margins)
        half_df = 0.5 * prior.association_df
        x[layout.num_inner :] = -0.5 * np.log(rng.gamma(half_df, 1.0 / half_df, layout.num_pairs))
        association = np.eye(4)
        association[layout.rows, layout.cols] = association[layout.cols, layout.rows] = (
            prior.association_scale
            * np.exp(x[layout.num_inner :])[layout.pair]
            * x[layout.num_margins : layout.num_inner]
        )
        if np.linalg.eigvalsh(association).min() > 0 and rng.random() < np.linalg.det(association):
            kept.append(x)
    return coordinates.expand(np.array(kept)).records


@pytest.mark.slow
def test_a_pattern_is_calibrated_on_its_own_model():
    """Ranks of the truth over 200 traces from the prior of a schema's pattern; each test at level 1e-3."""
    rng = np.random.default_rng(5)
    count, noise = 200, 20.0
    known = {"centre": np.full(4, 60.0), "groups": SMALL, "log_scale_std": 0.5, "association_scale": 0.5}
    known |= {"noise_std": noise, "tau_scale": 10.0}
    empty = batch_sums(*rng.standard_normal((2, 40, 1, 4)))
    records = draw_patterns(rng, make_model(empty, **known).coordinates, count=count)
    curvature = records + np.eye(4)
    phi_star = rng.standard_normal((count, 4))
    tau = np.abs(10.0 * rng.standard_normal((count, 4)))
    phi, noisy = simulate_traces(
        lambda phi: RATE * np.einsum("rij,rj->ri", curvature, phi - phi_star),
        phi_star=phi_star,
        num_steps=100,
        noise_std=np.hypot(noise, tau),
        learning_rate=0.01,
        rng=rng,
    )
    model = make_model(batch_sums(phi, noisy, burn_in=0.0), **known)
    block = sample_dense_block(
        model,
        draws=250,
        chains=count,
        warmup=250,
        rng=rng,
        start=scattered_start(model, chains=count, rng=rng, sd=0.2),
    )
    diagonal = np.diagonal(curvature, axis1=1, axis2=2)
    for drawn, truth in ((block.phi_star, phi_star), (block.curvature, diagonal), (block.tau, tau)):
        below = (drawn < truth[:, None]).mean(axis=1)
        assert min(stats.kstest(column, "uniform").pvalue for column in below.T) > 1e-3
    away = block.phi_star - block.phi_star.mean(axis=1, keepdims=True)
    overconfident = block.phi_star - 0.4 * away
    ranks = (overconfident < phi_star[:, None]).mean(axis=1)
    assert min(stats.kstest(column, "uniform").pvalue for column in ranks.T) < 1e-3


def linear(rng):
    """Return the gradient and optimum of linear regressions whose two predictors correlate at 0.9."""
    curvature = 150.0 * np.array([[1.0, 0.9], [0.9, 1.0]]) + np.eye(2)
    phi_star = rng.standard_normal((TRACES, 2))
    return lambda phi: RATE * (phi - phi_star) @ curvature, phi_star


def logistic(rng):
    """Return the same for maximum a posteriori estimates of logistic regressions, 600 records each."""
    x = rng.standard_normal((TRACES, 600, 2)) @ np.array([[1.0, 0.9], [0.0, np.sqrt(0.19)]])
    theta = rng.standard_normal((TRACES, 2))
    y = rng.random((TRACES, 600)) < expit(np.einsum("rni,ri->rn", x, theta))

    def gradient(phi):
        residual = expit(np.einsum("rni,ri->rn", x, phi)) - y
        return np.einsum("rni,rn->ri", x, residual) + phi

    phi_star = np.zeros((TRACES, 2))
    for _ in range(12):
        chance = expit(np.einsum("rni,ri->rn", x, phi_star))
        hessian = np.einsum("rni,rn,rnj->rij", x, chance * (1.0 - chance), x) + np.eye(2)
        phi_star = phi_star - np.linalg.solve(hessian, gradient(phi_star)[..., None])[..., 0]
    assert np.abs(gradient(phi_star)).max() < 1e-9
    return lambda phi: RATE * gradient(phi), phi_star


def diagonal_model(sums, *, noise_std):
    """Return all traces' coordinates as one diagonal model: they are independent there."""
    s_pp, s_gp = (np.diagonal(part, axis1=1, axis2=2) for part in (sums.s_pp, sums.s_gp))
    vectors = {"phi_bar": sums.phi_bar, "g_bar": sums.g_bar, "s_pp": s_pp, "s_gp": s_gp, "s_gg": sums.s_gg}
    flat = TraceSums(num_steps=sums.num_steps, **{key: np.ravel(value) for key, value in vectors.items()})
    size = flat.num_parameters
    return GradientModel(
        sums=flat,
        sampling_rate=RATE,
        noise_std=np.full(size, noise_std),
        phi_star_prior_mean=np.zeros(size),
        phi_star_prior_sd=np.ones(size),
        v_prior_mean=np.abs(flat.slope) / RATE,
        v_prior_sd=noise_std / (RATE * np.sqrt(flat.s_pp)),
        tau_prior_scale=np.full(size, 2.0 * noise_std),
        phi_labels=tuple(f"mu[{index}]" for index in range(size)),
    )


def coverage(draws, truth):
    """Return the share of 90 % intervals that hold the truth; draws (R, S, 2)."""
    low, high = np.quantile(draws, [0.05, 0.95], axis=1)
    return np.mean((low < truth) & (truth < high))


@pytest.mark.slow
@pytest.mark.parametrize("regression", [linear, logistic])
def test_correlated_predictors_break_the_diagonal_method_and_not_this_one(regression):
    """240 intervals at 0.9 from 120 traces: honest ones cover 0.85 to 0.95 within 2.6 standard errors."""
    rng = np.random.default_rng(6)
    noise = 15.0
    gradient, phi_star = regression(rng)
    phi, noisy = simulate_traces(
        gradient, phi_star=phi_star, num_steps=400, noise_std=noise, learning_rate=0.01, rng=rng
    )
    sums = batch_sums(phi, noisy)
    exact = sample_exact(diagonal_model(sums, noise_std=noise), draws=400, chains=1, seed=1)
    by_diagonal = coverage(np.moveaxis(exact.phi_star[0].reshape(400, TRACES, 2), 0, 1), phi_star)
    moved, slope = (np.diagonal(part, axis1=1, axis2=2) for part in (sums.s_pp, sums.s_gp))
    centre = np.hypot(slope / moved, noise / np.sqrt(moved)) / RATE
    model = make_model(
        sums,
        centre=np.full(2, np.median(centre)),
        noise_std=noise,
        tau_scale=2.0 * noise,
    )
    block = sample_dense_block(
        model,
        draws=150,
        chains=TRACES,
        warmup=150,
        rng=rng,
        start=scattered_start(model, chains=TRACES, rng=rng),
    )
    by_dense = coverage(block.phi_star, phi_star)
    print(f"{regression.__name__}: diagonal {by_diagonal:.3f}, dense {by_dense:.3f}")  # noqa: T201
    assert by_diagonal < 0.8
    assert 0.85 <= by_dense <= 0.95


def correlated_regression(seed):
    """Return a release of a linear regression whose two predictors correlate at 0.9, and the coefficients."""
    rng = np.random.default_rng(seed)
    columns = {name: {"kind": "real", "lower": 0, "upper": 1} for name in ("first", "second")}
    schema = na.Schema.from_dict({"columns": {**columns, "y": {"kind": "real", "lower": -6, "upper": 6}}})
    model = na.models.LinearRegression(outcome="y", predictors=["first", "second"])
    x = rng.standard_normal((1000, 2)) @ np.array([[1.0, 0.9], [0.0, np.sqrt(0.19)]])
    x = np.clip(0.5 + 0.2 * x, 0.0, 1.0)
    theta = model.draw_prior(model.design(schema), num_draws=1, rng=rng)[0]
    y = theta[0] + x @ theta[1:3] + np.exp(0.5 * theta[3]) * rng.standard_normal(1000)
    release = na.release(
        model,
        pd.DataFrame({"first": x[:, 0], "second": x[:, 1], "y": y}),
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=4.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=400, sampling_rate=0.1, clip_norm=20.0),
        insecure_seed=seed,
    )
    return release, theta[:3]


@pytest.mark.slow
def test_correlated_predictors_from_table_to_interval():
    """Six releases, 18 intervals at 0.9, seeds fixed. Over 30 releases exact covers 0.42, dense 0.88, with
    root mean square z of 6.4 and 1.08.
    """
    inside, squares = {"exact": [], "dense": []}, {"exact": [], "dense": []}
    for seed in range(6):
        release, theta = correlated_regression(seed)
        for method, more in (("exact", {}), ("dense", {"draws": 150, "warmup": 250})):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", InferenceWarning)
                posterior = na.infer(release, method=method, seed=seed, phi_star_prior="model", **more)
            table = posterior.summary().iloc[:3]
            inside[method] += list((table["5%"] < theta) & (theta < table["95%"]))
            squares[method] += list(np.square((table["mean"] - theta) / table["sd"]))
    assert np.mean(inside["exact"]) < 0.6 < 0.75 < np.mean(inside["dense"])
    assert np.mean(squares["dense"]) < 2.5 < 10.0 < np.mean(squares["exact"])
