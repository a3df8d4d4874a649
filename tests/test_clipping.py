"""The correction of clipping bias: the stationary point against runs, the posterior against the truth."""

import dataclasses

import numpy as np
import pytest
import xarray as xr

import nadpvi as na
from nadpvi.cli.summary import print_posterior
from nadpvi.clipping.records import QuantileModel, weighted_records
from nadpvi.clipping.stationary import ClippedLoss, stationary_points
from nadpvi.description import ModelDescription
from nadpvi.models import (
    BernoulliBeta,
    CategoricalDirichlet,
    ExponentialGamma,
    LogisticRegression,
    Normal,
    PoissonGamma,
)

BINARY = {"kind": "binary", "levels": ["no", "yes"]}
WAIT = {"kind": "real", "lower": 0, "upper": 20}
CASES = {
    "exponential": (ExponentialGamma(outcome="y", prior_shape=8.0, prior_rate=2.0), WAIT, [1.2]),
    "bernoulli": (BernoulliBeta(outcome="y", prior_alpha=10.0, prior_beta=10.0), BINARY, [0.9]),
    "categorical": (
        CategoricalDirichlet(outcome="y", concentration=5.0),
        {"kind": "categorical", "levels": ["a", "b", "c"]},
        [0.6, -0.4],
    ),
    "poisson": (
        PoissonGamma(outcome="y", prior_shape=8.0, prior_rate=2.0),
        {"kind": "count", "lower": 0, "upper": 60},
        [1.2],
    ),
    "normal": (
        Normal(outcome="y", prior_mean=0.0, prior_precision_factor=0.1, prior_shape=3.0, prior_scale=2.0),
        {"kind": "real", "lower": -30, "upper": 30},
        [0.5, 0.2],
    ),
}
SMALL = {"exponential": 1.0, "bernoulli": 0.6, "categorical": 0.8, "poisson": 1.0, "normal": 0.7}


def described(name):
    model, column, theta = CASES[name]
    schema = na.Schema.from_dict({"columns": {"y": column}})
    return ModelDescription(model=model, schema=schema, guide=na.MeanField()), np.array([theta])


def loss_of(description, *, clip_norm, num_spread=None):
    size = len(description.names)
    return ClippedLoss.of(
        description.model,
        description,
        clip_norm=clip_norm,
        preconditioner=np.concatenate([np.ones(size), np.full(size, 20.0)]),
        num_draws=10,
        num_spread=num_spread,
    )


@pytest.mark.parametrize("name", CASES)
def test_quantiles_are_those_of_simulated_outcomes(name):
    description, theta = described(name)
    model = description.model
    assert isinstance(model, QuantileModel)
    share = (np.arange(100_000) + 0.5) / 100_000
    spread_evenly = model.outcome_quantile(theta, share)
    drawn = model.simulate(theta[0], np.empty((100_000, 0)), rng=np.random.default_rng(1))
    # Five standard errors of the simulated sample's shares.
    for point in np.quantile(drawn, [0.1, 0.3, 0.5, 0.7, 0.9]):
        assert abs((spread_evenly <= point).mean() - (drawn <= point).mean()) < 5 * 0.5 / 100_000**0.5


@pytest.mark.parametrize("name", CASES)
def test_weighted_records_have_the_models_own_moments(name):
    description, theta = described(name)
    model, size = description.model, theta.shape[1]
    found = weighted_records(model, description, theta, num_points=4096)
    scores = found.statistics[0] @ model.natural_gradient(theta)[0]
    np.testing.assert_allclose(found.weights.sum(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(found.weights[0] @ scores, np.zeros(size), atol=1e-9)
    drawn = model.simulate(theta[0], np.empty((200_000, 0)), rng=np.random.default_rng(2))
    statistics = model.sufficient(drawn, num_params=size)
    own = np.cov(statistics @ model.natural_gradient(theta)[0, :-1], rowvar=False).reshape(size, size)
    np.testing.assert_allclose(found.information[0], np.diag(own), rtol=0.03)


@pytest.mark.parametrize("name", CASES)
def test_without_clipping_the_map_is_that_of_the_models_information(name):
    description, theta = described(name)
    size, count = theta.shape[1], 4000.0
    found = stationary_points(loss_of(description, clip_norm=1e6), theta, num_records=count)
    information = weighted_records(description.model, description, theta, num_points=4096).information
    _, prior_sd = description.model.prior_moments(description.design)
    own = count * information[0]
    sd = np.sqrt(np.diag(found.covariance[0, :size, :size]))
    assert (np.abs(found.phi[0, :size] - theta[0]) < 6.0 * prior_sd**-2.0 / own).all()
    if size == 1:
        np.testing.assert_allclose(sd, own**0.5 / (own + prior_sd**-2.0), rtol=0.01)
    scale = description.guide.standard_deviation(found.phi)[0]
    np.testing.assert_allclose(scale, (own + prior_sd**-2.0) ** -0.5, rtol=0.03)


@pytest.mark.parametrize("prior_term", ["public", "per_record"])
@pytest.mark.parametrize("name", CASES)
def test_runs_come_to_rest_at_the_stationary_point(name, prior_term):
    """Full batches without noise, on a table whose outcomes are the model's quantiles."""
    description, theta = described(name)
    count, size = 3000, theta.shape[1]
    spread = count if prior_term == "per_record" else None
    loss = loss_of(description, clip_norm=SMALL[name], num_spread=spread)
    expected = stationary_points(loss, theta, num_records=count)
    share = (np.arange(count) + 0.5) / count
    step = 0.5 / expected.jacobian[0, 0, 0]
    config = na.DPVIConfig(
        num_steps=400,
        sampling_rate=1.0,
        clip_norm=SMALL[name],
        preconditioner_u=20.0,
        learning_rate=float(step),
        prior_term=prior_term,
        num_records=spread,
        initial_u=-3.5,
    )
    traces = na.simulate_releases(
        description.model,
        description.model.outcome_quantile(theta, share)[None],
        schema=description.schema,
        privacy=na.NonPrivate(),
        seeds=[5],
        config=config,
    )
    reached = traces.phi[0, 200:, :size].mean(axis=0)
    sd = np.sqrt(np.diag(expected.covariance[0]))[:size]
    assert (np.abs(reached - expected.phi[0, :size]) < 0.15 * sd).all()


def gamma_releases(*, clip_norm, count, num_records=2000, epsilon=0.1):
    model, column, _ = CASES["exponential"]
    schema = na.Schema.from_dict({"columns": {"y": column}})
    config = dataclasses.replace(
        na.published_config(model, schema=schema), clip_norm=clip_norm, num_steps=1000, keep="sums"
    )
    seeds = na.replicate_seeds(11, num_replicates=count)
    tables = na.simulate_tables(model, schema=schema, num_records=num_records, seeds=seeds)
    traces = na.simulate_releases(
        model,
        tables.outcomes,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=epsilon, delta=1e-5),
        seeds=seeds,
        config=config,
    )
    return [traces.release(number) for number in range(count)], tables.theta[:, 0]


def inferred(release, **settings):
    return na.infer(release, method="exact", draws=400, chains=2, seed=1, **settings)


@pytest.fixture(scope="module")
def gamma():
    (release,), truth = gamma_releases(clip_norm=1.0, count=1)
    return release, inferred(release), truth


def test_the_bias_of_a_small_clip_norm_is_taken_out():
    releases, truth = gamma_releases(clip_norm=1.0, count=30)
    scores = {"before": [], "after": []}
    for release, value in zip(releases, truth, strict=True):
        before = inferred(release)
        after = na.correct_clipping(before, release, seed=2)
        for name, posterior in (("before", before), ("after", after)):
            theta = posterior.theta()
            scores[name].append((theta.mean() - value) / theta.std())
    assert np.mean(scores["before"]) > 3.0
    # Four standard errors of a calibrated posterior's scores.
    assert abs(np.mean(scores["after"])) < 4.0 / 30**0.5
    assert 0.55 < np.std(scores["after"]) < 1.6


def test_several_parameters_at_once():
    """A clip norm that three levels' gradients exceed: the means are off by more than their sds before."""
    (model, column, _), theta = CASES["categorical"], [1.2, 0.8]
    schema = na.Schema.from_dict({"columns": {"y": column}})
    share = (np.arange(4000) + 0.5) / 4000
    config = na.DPVIConfig(num_steps=1000, clip_norm=0.7, preconditioner_u=20.0, keep="sums", initial_u=-3.5)
    traces = na.simulate_releases(
        model,
        model.outcome_quantile(np.array([theta]), share)[None],
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=3.0, delta=1e-5),
        seeds=[8],
        config=config,
    )
    release = traces.release(0)
    before = inferred(release)
    after = na.correct_clipping(before, release, seed=4)
    distances = [
        np.abs(made.theta().mean(axis=(0, 1)) - theta) / made.theta().std(axis=(0, 1))
        for made in (before, after)
    ]
    assert distances[0].max() > 2.0
    # The table is the model's own, so that only the privacy noise is left: a fraction of the sd.
    assert (distances[1] < 1.0).all()


@pytest.mark.parametrize("given", [None, 5000])
def test_without_clipping_it_is_the_ordinary_posterior(given):
    model, column, _ = CASES["bernoulli"]
    schema = na.Schema.from_dict({"columns": {"y": column}})
    seeds = na.replicate_seeds(4, num_replicates=3)
    tables = na.simulate_tables(model, schema=schema, num_records=5000, seeds=seeds)
    traces = na.simulate_releases(
        model,
        tables.outcomes,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=2.0, delta=1e-5),
        seeds=seeds,
        config=dataclasses.replace(na.published_config(model, schema=schema), num_steps=1000),
    )
    for number in range(3):
        release = traces.release(number)
        before = na.infer(
            release, method="exact", draws=4000, chains=1, seed=1, phi_star_prior="model", burn_in=0.2
        )
        after = na.correct_clipping(before, release, num_records=given, seed=3)
        one, two = before.theta(), after.theta()
        assert abs(one.mean() - two.mean()) < 0.1 * one.std()
        assert abs(np.log(two.std() / one.std())) < 0.1


def test_what_it_says_of_itself(gamma, tmp_path, capsys):
    release, before, _ = gamma
    after = na.correct_clipping(before, release, num_records=2500, seed=5)
    again = na.correct_clipping(before, release, num_records=2500, seed=5)
    np.testing.assert_array_equal(after.theta(), again.theta())
    print_posterior(after, as_json=False)
    assert "clipping: its bias was taken out" in capsys.readouterr().out
    found = after.settings["clipping"]
    assert found["corrected"] is True
    assert found["num_records"] == 2500.0
    assert found["num_records_from"] == "given"
    assert found["moved_by_sds"]["rate"] > 2.0
    assert after.guarantee == before.guarantee
    loaded = na.Posterior.load(after.save(tmp_path / "corrected.nc"))
    assert loaded.settings["clipping"] == found
    np.testing.assert_array_equal(loaded.theta(), after.theta())
    from_trace = na.correct_clipping(before, release, seed=5).settings["clipping"]
    assert from_trace["num_records_from"] == "curvature"
    # The curvature of this trace is known to a fifth.
    assert 2000 / 2.5 < from_trace["num_records"] < 2000 * 2.5


def test_draws_stay_with_their_chain_and_their_statistics(gamma):
    release, before, _ = gamma
    phi_star = before.groups["posterior"]["phi_star"]
    marked = xr.Dataset({"lp": (("chain", "draw"), phi_star.to_numpy()[..., 0])}).assign_coords(
        {dim: phi_star[dim] for dim in ("chain", "draw")}
    )
    before = dataclasses.replace(before, groups={**before.groups, "sample_stats": marked})
    after = na.correct_clipping(before, release, seed=6)
    kept = after.groups["posterior"]["phi_star"].to_numpy()[..., 0]
    np.testing.assert_array_equal(kept, after.groups["sample_stats"]["lp"].to_numpy())
    for chain in range(2):
        assert np.isin(kept[chain], marked["lp"].to_numpy()[chain]).all()
    assert after.groups["posterior"]["rate"].shape == before.groups["posterior"]["rate"].shape


def test_what_cannot_be_corrected_is_refused(gamma):
    release, before, _ = gamma
    after = na.correct_clipping(before, release, seed=1)
    with pytest.raises(na.ArgumentError, match="corrected for clipping already"):
        na.correct_clipping(after, release)
    with pytest.raises(na.ArgumentError, match="num_records must be finite and positive"):
        na.correct_clipping(before, release, num_records=0)
    with pytest.raises(na.ArgumentError, match="needs a Posterior and the Release"):
        na.correct_clipping(release, before)
    with pytest.raises(na.ArgumentError, match="has no model, only a trace"):
        na.correct_clipping(before, dataclasses.replace(release, description=None, config=None))
    is_dense = dataclasses.replace(before, settings=before.settings | {"curvature": "dense"})
    with pytest.raises(na.ArgumentError, match="method='nuts', 'exact' or 'laplace' only"):
        na.correct_clipping(is_dense, release)
    other = ExponentialGamma(outcome="y", prior_shape=3.0, prior_rate=2.0)
    theirs = dataclasses.replace(before, description=dataclasses.replace(before.description, model=other))
    with pytest.raises(na.ArgumentError, match="must belong together"):
        na.correct_clipping(theirs, release)


def test_regressions_are_refused_in_one_line():
    schema = na.Schema.from_dict(
        {"columns": {"y": BINARY, "x": {"kind": "real", "lower": 0.0, "upper": 1.0}}}
    )
    table = {"y": ["no", "yes"] * 100, "x": np.linspace(0.0, 1.0, 200)}
    release = na.release(
        LogisticRegression(outcome="y", predictors=["x"]),
        table,
        schema=schema,
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=100, sampling_rate=0.5),
        insecure_seed=3,
    )
    with pytest.warns(na.InferenceWarning):
        posterior = na.infer(release, method="exact", draws=60, chains=1, seed=1)
    with pytest.raises(na.ArgumentError, match="logistic_regression: it takes a model without predictors"):
        na.correct_clipping(posterior, release)
