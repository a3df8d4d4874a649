"""The Gibbs sampler of noisy statistics against exact posteriors, and its calibration on its own model."""

import numpy as np
import pytest
from scipy import stats
from statistics_cases import ADD, EXACT, MODELS, REPLACE, SCHEMA, WIDE, make_case, narrowed, uniform_p_value

from nadpvi.baselines.sufficient_statistics.gibbs import _draw_variance, sample_statistics
from nadpvi.baselines.sufficient_statistics.records import simulate_statistics, true_statistics
from nadpvi.errors import ArgumentError
from nadpvi.models.parameters import constrain

# Shares of 600 records, and the epsilon at which noise and sampling matter alike.
NOISY = {"coin": [0.35, 0.65], "die": [0.2, 0.3, 0.5], "wait": [1 / 48, 47 / 48], "visits": [0.2, 0.8]}
EPSILON = {"coin": 0.1, "die": 0.3, "wait": 1.0, "visits": 0.5}


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
# Not a die of unknown N, a sum over four counts: its counts are checked with N public.
@pytest.mark.parametrize(
    ("name", "relation"),
    [(name, relation) for name in MODELS for relation in (ADD, REPLACE) if (name, relation) != ("die", ADD)],
)
def test_the_posterior_is_that_of_brute_force(name, relation, noise):
    """Against sums over every table of counts, without the central limit theorem, and N with a flat prior."""
    size = 150 if name == "die" else 600
    mechanism = make_case(name, relation=relation, noise=noise, epsilon=EPSILON[name], schema=WIDE)
    family = mechanism.family
    offset = 0.7 * mechanism.noise_scale * np.array([1.0, -0.6, 0.4])[: len(family.labels)]
    noisy = np.array(NOISY[name])[: len(family.labels)] * size + offset
    spread = 8 * mechanism.noise_scale * np.sqrt(len(noisy))
    totals = (
        np.arange(max(1.0, np.floor(noisy.sum() - spread)), noisy.sum() + spread)
        if relation == ADD
        else np.array([float(size)])
    )
    mean, sd = EXACT[name](mechanism, noisy, totals=totals)
    found = sample_statistics(
        family,
        np.tile(noisy, (200, 1)),
        noise=noise,
        noise_scale=mechanism.noise_scale,
        num_records=size if relation == REPLACE else None,
        draws=200,
        thin=2,
        rng=np.random.default_rng(1),
    )
    blocks = MODELS[name].parameters(MODELS[name].design(WIDE))
    values = constrain(blocks, found.theta)[blocks[0].name]
    values = values[..., 0] if values.ndim > 2 else values
    assert abs(values.mean() - mean) < 0.05 * sd
    assert values.std() == pytest.approx(sd, rel=0.04)


SETTINGS = {
    "coin, Laplace": ("coin", ADD, "laplace", "clamp"),
    "coin, Gaussian, N public": ("coin", REPLACE, "gaussian", "clamp"),
    "die, Laplace": ("die", ADD, "laplace", "clamp"),
    "die, Laplace, N public": ("die", REPLACE, "laplace", "clamp"),
    "die, Gaussian": ("die", ADD, "gaussian", "clamp"),
    "wait, Laplace": ("wait", ADD, "laplace", "clamp"),
    "wait, dropped beyond a bound": ("wait", ADD, "laplace", "drop"),
    "wait, Gaussian, N public": ("wait", REPLACE, "gaussian", "clamp"),
    "visits, Laplace, N public": ("visits", REPLACE, "laplace", "clamp"),
    "visits, dropped beyond a bound": ("visits", ADD, "laplace", "drop"),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_it_is_calibrated_for_its_own_mechanism(case):
    """300 tables from the prior: ranks uniform (p above 1e-3), half the width rejected (p below 1e-6).

    Coverage of 90 % intervals within 4 standard errors. False alarm about 0.1 % a case.
    """
    name, relation, noise, beyond = SETTINGS[case]
    rng = np.random.default_rng(sum(map(ord, case)))
    mechanism = make_case(name, relation=relation, noise=noise, epsilon=0.3, beyond=beyond)
    model = MODELS[name]
    truth = model.draw_prior(model.design(SCHEMA), num_draws=300, rng=rng)
    sizes = np.full(300, 1000) if relation == REPLACE else rng.integers(600, 1400, 300)
    sums = np.concatenate(
        [
            true_statistics(mechanism, model.draw_outcomes(np.tile(theta, (size, 1)), rng=rng)[None])
            for theta, size in zip(truth, sizes, strict=True)
        ]
    )
    found = sample_statistics(
        mechanism.family,
        simulate_statistics(mechanism, sums, rng=rng),
        noise=noise,
        noise_scale=mechanism.noise_scale,
        num_records=sizes if relation == REPLACE else None,
        draws=199,
        warmup=400,
        thin=4,
        rng=rng,
    )
    for k in range(truth.shape[1]):
        ranks = (found.theta[:, :, k] < truth[:, None, k]).sum(axis=1)
        assert uniform_p_value(ranks, num_draws=199) > 1e-3
        halved = (narrowed(found.theta, factor=0.5)[:, :, k] < truth[:, None, k]).sum(axis=1)
        assert uniform_p_value(halved, num_draws=199) < 1e-6
        low, high = np.quantile(found.theta[:, :, k], [0.05, 0.95], axis=1)
        covered = ((low < truth[:, k]) & (truth[:, k] < high)).mean()
        assert abs(covered - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 300)
    if relation == ADD:
        # N is pulled neither way: its z-scores have mean 0 and sd 1, within 4 standard errors.
        counts = found.num_records
        z = (counts.mean(axis=1) - sizes) / counts.std(axis=1)
        assert abs(z.mean()) < 4 / np.sqrt(300)
        assert 0.75 < z.std() < 1.3


@pytest.mark.parametrize("scale", [0.2, 30.0])
def test_latent_variances_turn_normal_noise_into_laplace_noise(scale):
    """Noise from its prior, v given it: v is exponential with mean 2 b^2 (KS p above 1e-4)."""
    rng = np.random.default_rng(1)
    noise = rng.laplace(0.0, scale, (40_000, 1))
    variance = _draw_variance(noise, scale=scale, rng=rng)[:, 0]
    assert stats.kstest(variance / (2 * scale**2), "expon").pvalue > 1e-4
    assert stats.kstest(variance / (2.1 * scale**2), "expon").pvalue < 1e-4
    again = np.sqrt(variance) * rng.standard_normal(len(variance))
    assert stats.kstest(again / scale, "laplace").pvalue > 1e-4
    assert np.isfinite(_draw_variance(np.zeros((1000, 2)), scale=scale, rng=rng)).all()


def test_it_moves_where_noise_drowns_the_sums():
    """Noise 70 times the sampling spread: sums and theta drawn in turn would take 5,000 sweeps to move."""
    mechanism = make_case("wait", relation=REPLACE, noise="gaussian", epsilon=0.1, schema=WIDE)
    found = sample_statistics(
        mechanism.family,
        np.full((50, 1), 40.0),
        noise="gaussian",
        noise_scale=mechanism.noise_scale,
        num_records=1000,
        draws=500,
        rng=np.random.default_rng(1),
    ).theta[:, :, 0]
    centred = found - found.mean()
    correlation = (centred[:, 20:] * centred[:, :-20]).mean() / (centred**2).mean()
    assert abs(correlation) < 0.1
    assert found.std() > 0.2  # about the prior's 0.36, where few waits would fit


def test_vectors_of_replicates_do_not_touch_each_other():
    """A replicate far from the others gets the posterior that it has alone, to Monte Carlo error."""
    mechanism = make_case("coin", relation=ADD, noise="laplace")
    run = {"noise": "laplace", "noise_scale": mechanism.noise_scale, "num_records": None, "draws": 2000}
    mixed = sample_statistics(
        mechanism.family, [[900.0, 100.0], [10.0, 500.0]], rng=np.random.default_rng(1), **run
    )
    alone = sample_statistics(mechanism.family, [[10.0, 500.0]], rng=np.random.default_rng(2), **run)
    assert mixed.theta[1].mean() == pytest.approx(alone.theta[0].mean(), abs=0.15 * alone.theta.std())
    assert mixed.theta[1].std() == pytest.approx(alone.theta[0].std(), rel=0.15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noisy": [[1.0, 2.0, 3.0]]}, "noisy must be finite with shape"),
        ({"noisy": [[1.0, np.nan]]}, "noisy must be finite"),
        ({"num_records": 5}, "num_records must be None"),
        ({"noise": "cauchy"}, "noise must be"),
        ({"noise_scale": 0.0}, "noise_scale must be"),
        ({"draws": 0}, "draws must be"),
        ({"warmup": -1}, "warmup must be"),
    ],
)
def test_refusals(change, message):
    mechanism = make_case("coin", relation=ADD, noise="laplace")
    settings = {
        "noisy": [[5.0, 6.0]],
        "noise": "laplace",
        "noise_scale": 1.0,
        "num_records": None,
        "draws": 5,
    } | change
    noisy = settings.pop("noisy")
    with pytest.raises(ArgumentError, match=message):
        sample_statistics(mechanism.family, noisy, rng=np.random.default_rng(1), **settings)
