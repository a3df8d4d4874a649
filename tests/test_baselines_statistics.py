"""Noisy sufficient statistics: sensitivities, the release and its noise, what is public."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy import stats
from statistics_cases import ADD, COLUMNS, MODELS, REPLACE, SCHEMA, make_case

import nadpvi as na
from nadpvi.baselines import last_iterate_posterior
from nadpvi.baselines.sufficient_statistics.mechanism import make_statistics_mechanism
from nadpvi.baselines.sufficient_statistics.records import (
    release_statistics,
    simulate_statistics,
    true_statistics,
)
from nadpvi.baselines.sufficient_statistics.regression import RegressionStatistics
from nadpvi.baselines.sufficient_statistics.regression_settings import RegressionSettings
from nadpvi.baselines.sufficient_statistics.release import make_statistics_family, statistics_posterior
from nadpvi.errors import ArgumentError, DataError, PrivacyError, SchemaError
from nadpvi.models import ExponentialGamma, LinearRegression, NegativeBinomialRegression
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon
from nadpvi.privacy.laplace import draw_discrete_laplace
from nadpvi.privacy.noise import GRID_UNITS

# Every level, and values at, inside and beyond every public bound.
RECORDS = {
    "coin": [0.0, 1.0],
    "die": [0.0, 1.0, 2.0],
    "wait": [0.0, 1e-9, 0.1, 1.7, 2.999, 3.0, 1e9],
    "visits": [0.0, 1.0, 7.0, 19.0, 20.0, 1e6],
}
ORDERS = {"l1": 1, "l2": 2}


def largest_change(values, relation, *, norm):
    """Return the most that adding, removing or replacing one of these records changes the sums by."""
    if relation == ADD:
        return max(np.linalg.norm(value, ORDERS[norm]) for value in values)
    return max(np.linalg.norm(a - b, ORDERS[norm]) for a, b in itertools.product(values, values))


@pytest.mark.parametrize("beyond", ["drop", "clamp"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("name", RECORDS)
def test_sensitivity_is_that_of_extreme_records(name, relation, norm, beyond):
    family = make_case(name, relation=relation, noise="laplace", beyond=beyond).family
    values = family.record_statistics(np.array(RECORDS[name]))
    assert values.shape == (len(RECORDS[name]), len(family.labels))
    found = largest_change(values, relation, norm=norm)
    slack = 1e-3 if beyond == "drop" else 1e-12  # a dropped wait only tends to the bound
    tight = 1.0 if name != "visits" or beyond == "clamp" else 0.95  # the largest count kept is 19 of 20
    assert family.sensitivity(norm) * tight * (1 - slack) <= found <= family.sensitivity(norm)


@pytest.mark.parametrize("name", RECORDS)
def test_all_sums_add_up_to_the_number_of_records_where_it_is_private(name):
    family = make_case(name, relation=ADD, noise="laplace").family
    np.testing.assert_allclose(family.record_statistics(np.array(RECORDS[name])).sum(axis=1), 1.0)


def regression(*, lower, has_public_count, upper=2.0, size=3):
    return RegressionStatistics(
        settings=RegressionSettings(
            x_lower=np.array([1.0] + [lower] * (size - 1)),
            x_upper=np.array([1.0] + [upper] * (size - 1)),
            y_lower=-1.5,
            y_upper=3.0,
            prior_mean=np.zeros(size),
            prior_sd=np.full(size, 2.0),
            prior_shape=20.0,
            prior_scale=0.5,
            has_public_count=has_public_count,
        )
    )


@pytest.mark.parametrize("lower", [-2.0, -0.5, 0.0])
@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_regression_sensitivity_covers_extreme_records(relation, norm, lower):
    family = regression(lower=lower, has_public_count=relation == REPLACE)
    sides = [[lower, 0.0, 2.0, 50.0], [lower, 0.0, 2.0, -50.0], [-1.5, 0.0, 3.0, 70.0]]
    records = np.array(list(itertools.product([1.0], *sides)))
    values = family.record_statistics(records[:, 3], x=records[:, :3])
    found = largest_change(values, relation, norm=norm)
    claimed = family.sensitivity(norm)
    assert found <= claimed * (1 + 1e-12)
    # Adding is exact; replacing bounds each product by its own range, which no two records may reach at once.
    assert found >= claimed * (1 - 1e-12 if relation == ADD else 0.6)
    assert len(family.labels) == values.shape[1] == (10 if relation == ADD else 9)


def table(size, *, seed=1):
    rng = np.random.default_rng(seed)
    return {
        "coin": rng.choice(["no", "yes"], size, p=[0.7, 0.3]),
        "die": rng.choice(["a", "b", "c"], size, p=[0.2, 0.3, 0.5]),
        "wait": rng.exponential(0.3, size),
        "visits": rng.poisson(4.0, size),
    }


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_each_sum_has_noise_of_its_own_and_of_the_accounted_scale(relation, noise):
    """KS p above 1e-5 for each of three sums, correlations below 4.5 standard errors: false alarm 5e-5."""
    data = table(50)
    budget = na.PrivacyBudget(epsilon=0.5, delta=1e-5, neighbouring_relation=relation)
    num_records = 50 if relation == REPLACE else None
    found = [
        release_statistics(
            MODELS["die"], data, schema=SCHEMA, privacy=budget, noise=noise, num_records=num_records
        )
        for _ in range(400)
    ]
    true = np.array([(data["die"] == level).sum() for level in "abc"])
    residual = (np.array([one.statistics for one in found]) - true) / found[0].mechanism.noise_scale
    law = stats.laplace if noise == "laplace" else stats.norm
    assert min(stats.kstest(column, law.cdf).pvalue for column in residual.T) > 1e-5
    assert stats.kstest(0.6 * residual.ravel(), law.cdf).pvalue < 1e-5
    correlation = np.corrcoef(residual.T)[np.triu_indices(3, 1)]
    assert np.abs(correlation).max() < 4.5 / math.sqrt(400)
    assert found[0].guarantee.is_private
    assert f"discrete {noise.capitalize()}" in found[0].guarantee.sentence()


@pytest.mark.parametrize(
    ("relation", "laplace", "gaussian"), [(ADD, 1.0, 1.0), (REPLACE, 2.0, math.sqrt(2.0))]
)
def test_the_noise_scale_is_that_of_the_whole_vector(relation, laplace, gaussian):
    """A die's three counts, not one of them: L1 2 and L2 sqrt(2) where a record is replaced."""
    first = make_case("die", relation=relation, noise="laplace", epsilon=0.1)
    assert first.noise_scale == pytest.approx(laplace / 0.1, rel=1e-6)
    assert (first.epsilon, first.delta) == (0.1, 0.0)
    assert first.sensitivity / first.noise_scale <= 0.1
    second = make_case("die", relation=relation, noise="gaussian", epsilon=0.1)
    assert gaussian_epsilon(second.sensitivity / second.noise_scale, 1e-5) == pytest.approx(0.1, rel=1e-4)
    assert gaussian_epsilon(second.sensitivity / second.noise_scale, 1e-5) < 0.1
    assert second.sensitivity == pytest.approx(gaussian, rel=1e-6)


def test_discrete_laplace_noise_has_its_scale():
    """20,000 values: KS p above 1e-5, and a scale 5 % off is rejected."""
    values = draw_discrete_laplace(7.0, dimension=20_000) / GRID_UNITS
    assert stats.kstest(values / 7.0, "laplace").pvalue > 1e-5
    assert stats.kstest(values / 7.7, "laplace").pvalue < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_nothing_but_the_sums_depends_on_the_records(name):
    """Bounds, sensitivity and noise are those of the schema, and no record moves the sums by more."""
    budget = na.PrivacyBudget(epsilon=0.5, delta=1e-5)
    small, large = table(40), table(40, seed=2)
    large["wait"], large["visits"] = large["wait"] + 2.9, large["visits"] + 19
    first, second = (
        release_statistics(MODELS[name], data, schema=SCHEMA, privacy=budget, insecure_seed=1)
        for data in (small, large)
    )
    assert first.mechanism == second.mechanism
    assert first.guarantee == second.guarantee
    assert first.num_records is second.num_records is None
    without = {column: values[1:] for column, values in large.items()}
    changed = release_statistics(MODELS[name], without, schema=SCHEMA, privacy=budget, insecure_seed=1)
    moved = second.statistics - changed.statistics
    assert np.abs(moved).sum() <= second.mechanism.sensitivity + 1e-9
    assert np.abs(moved).max() > 0.0


def test_dropping_needs_a_bound_that_tells_rates_apart():
    schema = na.Schema.from_dict({"columns": {"wait": {"kind": "real", "lower": 0, "upper": 0.3}}})
    with pytest.raises(ArgumentError, match="is too low to drop what is beyond"):
        make_case("wait", relation=ADD, noise="laplace", beyond="drop", schema=schema)
    assert make_case("wait", relation=ADD, noise="laplace", schema=schema).family.bound == 0.3


def test_a_release_gives_a_posterior_of_named_parameters(tmp_path):
    budget = na.PrivacyBudget(epsilon=5.0, delta=1e-5)
    release = release_statistics(MODELS["die"], table(3000), schema=SCHEMA, privacy=budget, insecure_seed=3)
    assert not release.guarantee.is_private
    posterior = statistics_posterior(release, draws=300, warmup=100, thin=1, seed=1)
    shares = posterior.to_datatree()["posterior"]["probabilities"]
    assert shares.dims == ("chain", "draw", "category")
    np.testing.assert_allclose(shares.mean(("chain", "draw")), [0.2, 0.3, 0.5], atol=0.04)
    assert posterior.settings["statistics_guarantee"]["epsilon"] == 5.0
    loaded = na.Posterior.load(posterior.save(tmp_path / "posterior.nc"))
    np.testing.assert_allclose(loaded.theta(), posterior.theta())
    again = statistics_posterior(release, draws=300, warmup=100, thin=1, seed=1)
    np.testing.assert_array_equal(again.theta(), posterior.theta())


def test_simulated_releases_are_those_of_the_tables():
    mechanism = make_case("visits", relation=REPLACE, noise="laplace")
    outcomes = np.random.default_rng(1).poisson(4.0, (5, 30)).astype(float)
    sums = true_statistics(mechanism, outcomes)
    np.testing.assert_allclose(sums[:, 0], np.minimum(outcomes, 20).sum(axis=1) / 20.0)
    noisy = simulate_statistics(mechanism, np.zeros((20_000, 1)), rng=np.random.default_rng(2))
    assert stats.kstest(noisy[:, 0] / mechanism.noise_scale, "laplace").pvalue > 1e-5


def test_a_regression_is_released_from_a_table():
    rng = np.random.default_rng(3)
    schema = na.Schema.from_dict(
        {"columns": {name: {"kind": "real", "lower": 0, "upper": 1} for name in ("x", "y")}}
    )
    x = rng.random(4000)
    data = {"x": x, "y": np.clip(0.2 + 0.5 * x + 0.1 * rng.standard_normal(4000), 0, 1)}
    model = LinearRegression(outcome="y", prior_scale=0.4)
    for relation, num_records in ((ADD, None), (REPLACE, 4000)):
        budget = na.PrivacyBudget(epsilon=3.0, delta=1e-5, neighbouring_relation=relation)
        release = release_statistics(
            model, data, schema=schema, privacy=budget, noise="gaussian", num_records=num_records
        )
        posterior = statistics_posterior(release, draws=200, chains=2, warmup=300, thin=2, seed=1)
        theta = posterior.theta().reshape(-1, 3)
        z = (theta.mean(axis=0) - [0.2, 0.5, np.log(0.01)]) / theta.std(axis=0)
        assert np.abs(z).max() < 5.0  # false alarm 2e-6, clamping of y aside
        assert (theta.std(axis=0) < [0.1, 0.2, 0.35]).all()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"num_records": 3}, ArgumentError, "num_records must be given with"),
        (
            {"model": NegativeBinomialRegression(outcome="visits")},
            ArgumentError,
            "sufficient statistics that",
        ),
        ({"noise": "uniform"}, ArgumentError, "noise must be"),
        ({"beyond": "keep", "model": MODELS["wait"]}, ArgumentError, "beyond must be"),
        ({"privacy": na.NonPrivate()}, ArgumentError, "privacy must be a PrivacyBudget"),
    ],
)
def test_refusals(change, error, message):
    budget = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
    settings = {"model": MODELS["coin"], "schema": SCHEMA, "privacy": budget} | change
    model = settings.pop("model")
    with pytest.raises(error, match=message):
        release_statistics(model, table(20), **settings)


def test_the_public_number_of_records_must_be_right():
    budget = na.PrivacyBudget(epsilon=1.0, delta=1e-5, neighbouring_relation=REPLACE)
    with pytest.raises(DataError, match="num_records must be the number of usable records"):
        release_statistics(MODELS["coin"], table(20), schema=SCHEMA, privacy=budget, num_records=19)


@pytest.mark.parametrize(
    "special", [{"person": {"column": "id", "max_rows": 2}}, {"counts": {"column": "number"}}]
)
def test_a_person_column_and_counts_are_refused(special):
    schema = na.Schema.from_dict({"columns": COLUMNS, **special})
    budget = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
    with pytest.raises(ArgumentError, match="no person column and no counts"):
        release_statistics(MODELS["coin"], table(20), schema=schema, privacy=budget)


def test_relations_of_statistics_and_budget_must_agree():
    family = make_statistics_family(MODELS["coin"], SCHEMA, neighbouring_relation=REPLACE)
    with pytest.raises(ArgumentError, match="neighbouring relation"):
        make_statistics_mechanism(family, privacy=na.PrivacyBudget(epsilon=1, delta=1e-5), noise="laplace")


def test_waits_must_be_bounded_from_zero():
    schema = na.Schema.from_dict({"columns": {"wait": {"kind": "real", "lower": 1, "upper": 3}}})
    model = ExponentialGamma(outcome="wait", prior_shape=8.0, prior_rate=2.0)
    with pytest.raises(ArgumentError, match="public bounds from 0"):
        make_statistics_family(model, schema, neighbouring_relation=ADD)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_lower": np.array([0.0, 0.0])}, "must be the constant 1"),
        ({"x_upper": np.array([1.0, np.inf])}, "must be finite"),
        ({"prior_sd": np.array([2.0, 0.0])}, "prior_sd must be positive"),
        ({"prior_mean": np.zeros(3)}, "must have one shape"),
        ({"y_lower": 4.0}, "y_lower and y_upper"),
    ],
)
def test_regression_settings_are_checked(change, message):
    settings = regression(lower=0.0, has_public_count=False, size=2).settings
    with pytest.raises(ArgumentError, match=message):
        dataclasses.replace(settings, **change)


def test_the_ledger_counts_a_gaussian_release(tmp_path):
    budget = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
    ledger = na.Ledger.create(tmp_path / "people.ledger", label="people")
    settings = {"schema": SCHEMA, "privacy": budget, "noise": "gaussian", "ledger": ledger}
    release_statistics(MODELS["die"], table(300), **settings)
    (entry,) = ledger.entries()
    assert entry.state == "committed"
    assert ledger.total() == pytest.approx(1.0, rel=1e-4)
    assert ledger.total() <= 1.0
    release_statistics(MODELS["die"], table(300), insecure_seed=1, **settings)
    assert ledger.total() == pytest.approx(1.0, rel=1e-4)  # a simulation spends nothing
    cap = na.PrivacyBudget(epsilon=0.9, delta=1e-5)
    small = na.Ledger.create(tmp_path / "capped.ledger", label="people", cap=cap)
    with pytest.raises(PrivacyError, match="cap"):
        release_statistics(MODELS["die"], tmp_path / "none.csv", **(settings | {"ledger": small}))
    with pytest.raises(ArgumentError, match='noise="gaussian"'):
        release_statistics(MODELS["die"], tmp_path / "none.csv", **(settings | {"noise": "laplace"}))


def test_where_n_is_public_no_record_can_change_it():
    columns = {"coin": {**COLUMNS["coin"], "missing": "drop"}}
    schema = na.Schema.from_dict({"columns": columns})
    budget = na.PrivacyBudget(epsilon=1.0, delta=1e-5, neighbouring_relation=REPLACE)
    with pytest.raises(SchemaError, match="'coin' drops rows"):
        release_statistics(MODELS["coin"], "none.csv", schema=schema, privacy=budget, num_records=9)
    added = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
    release_statistics(MODELS["coin"], {"coin": ["", *table(9)["coin"]]}, schema=schema, privacy=added)


def test_a_posterior_states_the_promise_of_its_release(tmp_path):
    budget = na.PrivacyBudget(epsilon=5.0, delta=1e-5)
    release = release_statistics(MODELS["coin"], table(100), schema=SCHEMA, privacy=budget)
    assert "the budgets of further ones on the same records add up" in release.guarantee.sentence()
    posterior = statistics_posterior(release, draws=60, warmup=10, thin=1, seed=1)
    loaded = na.Posterior.load(posterior.save(tmp_path / "posterior.nc"))
    assert release.guarantee.sentence() in repr(loaded)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: release_statistics(MODELS["coin"], {}, **(s | {"schema": None})), "schema a Schema"),
        (lambda s: release_statistics(None, {}, **s), "model must be a nadpvi model"),
        (lambda s: release_statistics(ExponentialGamma, {}, **s), "an object and not its class"),
        (lambda s: release_statistics(MODELS["coin"], {}, beyond="x", **s), "beyond"),
        (lambda s: release_statistics(MODELS["coin"], {}, moments=3, **s), "moments"),
        (lambda s: release_statistics(MODELS["coin"], {}, ledger="x", **s), "ledger"),
        (lambda s: statistics_posterior(None), "StatisticsRelease"),
        (lambda s: last_iterate_posterior(None), "must be a Release"),
    ],
)
def test_misuse_is_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call({"schema": SCHEMA, "privacy": na.PrivacyBudget(epsilon=1.0, delta=1e-5)})
