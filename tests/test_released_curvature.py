"""The curvature released after the last step: its sensitivity, its place in the budget, what it says."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import norm
from typer.testing import CliRunner

import nadpvi as na
from nadpvi.cli.app import app
from nadpvi.curvature_share import curvature_bounds, curvature_size
from nadpvi.design import make_design
from nadpvi.encoding import encode_features, encode_outcome
from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.interrupts import RunInterrupted
from nadpvi.mechanism import make_mechanism
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon
from nadpvi.privacy.calibration import calibrated_noise_multiplier, calibrated_split
from nadpvi.privacy.composition import Run, composed_epsilon
from nadpvi.privacy.guarantee_maker import make_guarantee
from nadpvi.privacy.noise import GRID_UNITS, DiscreteGaussianNoise
from nadpvi.private import checkpoint, curvature
from nadpvi.private.curvature import on_grid, release_curvature
from nadpvi.private.records import Records
from nadpvi.schema import Person

COLUMNS = {
    "dose": {"kind": "real", "lower": 0, "upper": 10, "feature_range": [-2, 2]},
    "sex": {"kind": "binary", "levels": ["f", "m"]},
    "ward": {"kind": "categorical", "levels": ["a", "b", "c"]},
    "well": {"kind": "binary", "levels": ["no", "yes"]},
    "pulse": {"kind": "real", "lower": 0, "upper": 3},
    "visits": {"kind": "count", "upper": 9},
}
SCHEMA = na.Schema.from_dict({"columns": COLUMNS})
PREDICTORS = ["dose", "sex", "ward"]
LOGISTIC = na.models.LogisticRegression(outcome="well", predictors=PREDICTORS)
LINEAR = na.models.LinearRegression(outcome="pulse", predictors=PREDICTORS)
POISSON = na.models.PoissonRegression(outcome="visits", predictors=PREDICTORS, prior_sd=0.5)
OVERDISPERSED = na.models.NegativeBinomialRegression(outcome="visits", predictors=PREDICTORS, prior_sd=0.5)
PROBIT = na.models.BinaryRegression(outcome="well", predictors=PREDICTORS)
CLOGLOG = na.models.BinaryRegression(outcome="well", predictors=PREDICTORS, link="cloglog")
LEVELS = na.models.MultinomialLogisticRegression(outcome="ward", predictors=["dose", "sex"])
REGRESSIONS = [LOGISTIC, LINEAR, POISSON, OVERDISPERSED, PROBIT, CLOGLOG, LEVELS]
KINDS = [f"{model.kind}-{getattr(model, 'link', '')}".rstrip("-") for model in REGRESSIONS]
NONE = np.zeros(0)
EXTRAS = {LINEAR: (np.array([-0.3]), np.array([0.2])), OVERDISPERSED: (np.array([0.7]), np.array([0.0]))}
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
CONFIG = na.DPVIConfig(num_steps=60, curvature_share=0.2)


def make_table(num_rows=500, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "dose": rng.uniform(0, 10, num_rows),
            "sex": rng.choice(["f", "m"], num_rows),
            "ward": rng.choice(["a", "b", "c"], num_rows),
            "well": rng.choice(["no", "yes"], num_rows),
            "pulse": rng.uniform(0, 3, num_rows),
            "visits": rng.poisson(1.5, num_rows),
        }
    )


def make_records(model, table):
    design = model.design(SCHEMA)
    return Records(x=encode_features(design, table).x, y=encode_outcome(design, table).y)


def simulated(model=LOGISTIC, **changes):
    config = dataclasses.replace(CONFIG, **({} if model in (LOGISTIC, LEVELS) else {"clip_norm": 5.0}))
    settings = {"schema": SCHEMA, "privacy": BUDGET, "config": config, "insecure_seed": 1} | changes
    return na.release(model, make_table(), **settings)


class NoNoiseOnGrid:
    """What the noise of a real release would be if it were 0."""

    grid_units = GRID_UNITS
    is_private = True
    mechanism = "none"

    def __init__(self, size):
        self.size = size

    def draw(self):
        return np.zeros(self.size)


def exact_curvature(made, records):
    mechanism = make_mechanism(
        made.description, privacy=BUDGET, config=dataclasses.replace(made.config, curvature_share=0.2)
    )
    noise = NoNoiseOnGrid(curvature_size(made.description))
    return release_curvature(made, records, mechanism=mechanism, noise=noise)[0]


def information(model, predictors, extras):
    """Return E[score score'] over every outcome there is, at one value of each predictor, (J, J)."""
    outcomes = {"count": range(2000), "binary": range(2), "categorical": range(3)}[model.outcome_kind]
    y = np.array(outcomes, dtype=float)
    size = len(predictors)
    every = np.concatenate([predictors, extras[0]])[:, None] * np.ones(len(y))
    scores = model.score(every if extras[0].size == 0 else list(every), y)[:size]
    # Predictors as coefficients of one feature each, so that the likelihood is that of the predictors.
    theta = np.concatenate([predictors, extras[0]])
    batch = na.models.base.RecordBatch(x=np.ones((len(y), 1)), y=y)
    chance = np.exp(model.log_likelihood(np.broadcast_to(theta, (len(y), len(theta))), batch))
    assert chance.sum() == pytest.approx(1.0, rel=1e-9)
    return (scores * chance) @ scores.T


@pytest.mark.parametrize("model", [model for model in REGRESSIONS if model is not LINEAR])
@pytest.mark.parametrize("place", [-6.0, -1.0, 0.0, 0.466, 1.5, 4.0])
def test_weights_are_the_expected_information_of_a_record(model, place):
    """Without its outcome: a sum over all of them."""
    predictors = np.array([place, 0.3 - 0.5 * place]) if model is LEVELS else np.array([place])
    extras = EXTRAS.get(model, (NONE, NONE))
    found = model.curvature_weights(predictors[:, None], np.zeros((len(predictors), 1)), extras=extras)
    np.testing.assert_allclose(found[:, :, 0], information(model, predictors, extras), rtol=1e-6, atol=1e-12)


def averaged(function, mean, sd):
    """Return E[function(x)] for one normal x by a fine grid."""
    grid = np.linspace(-8.0, 8.0, 4001)
    density = np.exp(-0.5 * grid**2)
    return function(mean + sd * grid) @ density / density.sum()


def by_brute_force(made, x):
    """Return the sum of W (x) x x' at the window's mean iterate, averaged over the guide by fine grids."""
    model, mean = made.description.model, made.phi[12:].mean(axis=0)
    size = made.description.guide.num_params(len(mean))
    mu, sd = mean[:size], np.logaddexp(0.0, mean[size:])
    if model is LINEAR:
        return x.T @ x * math.exp(-mu[-1] + 0.5 * sd[-1] ** 2)
    blocks = (size - model.num_extras) // x.shape[1]
    extras = mu[blocks * x.shape[1] :], np.zeros(model.num_extras)
    cap = curvature_bounds(made.description, made.phi).weight_cap
    total = np.zeros((blocks * x.shape[1],) * 2)
    for row in x:
        places = [mu[k * len(row) : (k + 1) * len(row)] @ row for k in range(blocks)]
        spreads = [math.sqrt(row**2 @ sd[k * len(row) : (k + 1) * len(row)] ** 2) for k in range(blocks)]
        if model is LEVELS:
            grid, weight = np.polynomial.hermite_e.hermegauss(25)
            first, second = (a.ravel() for a in np.meshgrid(grid, grid))
            nodes = np.array([places[0] + spreads[0] * first, places[1] + spreads[1] * second])
            weight = np.outer(weight, weight).ravel() / weight.sum() ** 2
            odds = np.exp(nodes)
            chances = odds / (1.0 + odds.sum(axis=0))
            weights = np.diag(chances @ weight) - (chances * weight) @ chances.T
        else:
            weights = np.array(
                [
                    [averaged(BRUTE_FORCE[KINDS[REGRESSIONS.index(model)]](extras), *place)]
                    for place in zip(places, spreads, strict=True)
                ]
            )
        weights = weights * min(1.0, cap / np.linalg.norm(weights))
        total += np.kron(weights, np.outer(row, row))
    return total


BRUTE_FORCE = {
    "logistic_regression": lambda extras: lambda x: expit(x) * expit(-x),
    "poisson_regression": lambda extras: np.exp,
    "negative_binomial_regression": lambda extras: lambda x: 1.0 / (np.exp(-x) + np.exp(-extras[0][0])),
    "binary_regression-probit": lambda extras: lambda x: norm.pdf(x) ** 2 / norm.cdf(x) / norm.sf(x),
    "binary_regression-cloglog": lambda extras: lambda x: np.exp(2 * x) / np.expm1(np.exp(x)),
}


@pytest.mark.parametrize("model", REGRESSIONS, ids=KINDS)
def test_it_is_the_expected_hessian_of_the_records_at_the_mean_iterate(model):
    made, records = simulated(model), make_records(model, make_table(num_rows=60))
    wanted = by_brute_force(made, records.x)
    found = exact_curvature(made, records)
    # Truncation moves an entry by at most a grid unit for each record. Of several levels the average is over
    # 64 points.
    grid = len(records.y) / GRID_UNITS * curvature_bounds(made.description, made.phi).sensitivity
    off = 2e-3 * np.abs(wanted).max() if model is LEVELS else grid
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=off)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("model", REGRESSIONS, ids=KINDS)
@pytest.mark.parametrize(
    ("place", "block_rows"), [(0, 7), (1, 8), (6, 7), (7, 7), (8, 1), (200, 13), (499, 7)]
)
def test_a_record_moves_the_sum_by_at_most_its_sensitivity_and_no_other_s_entries(
    model, place, block_rows, monkeypatch
):
    """Wherever it stands: the others' numbers on the grid must not depend on their place."""
    made, table = simulated(model), make_table()
    monkeypatch.setattr(curvature, "_BLOCK_VALUES", block_rows * curvature_size(made.description))
    records = make_records(model, table)
    kept = np.arange(len(table)) != place
    without = Records(x=records.x[kept], y=records.y[kept])
    alone = Records(x=records.x[~kept], y=records.y[~kept])
    whole, rest, own = (exact_curvature(made, part) for part in (records, without, alone))
    sensitivity = curvature_bounds(made.description, made.phi).sensitivity
    upper = np.triu_indices(len(whole))
    units = [np.rint(matrix[upper] / sensitivity * GRID_UNITS) for matrix in (whole, rest, own)]
    np.testing.assert_array_equal(units[0] - units[1], units[2])
    assert 0.0 < np.linalg.norm(units[2]) <= GRID_UNITS


def test_repeated_rows_count_as_often_as_they_stand():
    made, records = simulated(), make_records(LOGISTIC, make_table(num_rows=40))
    counts = np.arange(1, 41)
    expanded = Records(x=np.repeat(records.x, counts, axis=0), y=np.repeat(records.y, counts))
    counted = Records(x=records.x, y=records.y, counts=counts)
    np.testing.assert_array_equal(exact_curvature(made, expanded), exact_curvature(made, counted))


def test_the_bound_on_outer_products_is_attained_and_never_passed():
    rng = np.random.default_rng(3)
    for _ in range(20):
        low, high = np.sort(rng.uniform(-3, 3, 2))
        columns = COLUMNS | {"dose": COLUMNS["dose"] | {"feature_range": [low, high]}}
        schema = na.Schema.from_dict({"columns": columns})
        design = make_design(schema, outcome="well", predictors=PREDICTORS, intercept=bool(rng.integers(2)))
        table = make_table(num_rows=300, seed=1)
        table.loc[:9, "dose"], table.loc[10:19, "dose"], table.loc[:19, "sex"] = 0.0, 10.0, "m"
        x = encode_features(design, table).x
        upper = np.triu_indices(x.shape[1])
        norms = np.linalg.norm(np.einsum("ni,nj->nij", x, x)[:, upper[0], upper[1]], axis=1)
        assert norms.max() == pytest.approx(design.outer_product_bound, rel=1e-12)


def test_rows_that_are_too_long_or_not_finite_count_as_zero():
    rows = np.array([[1.0, 1.0], [np.inf, 0.0], [1e300, 0.0], [-1.0, 0.0], [1.0 + 1e-12, 0.0]])
    assert on_grid(rows, grid_units=GRID_UNITS).tolist() == [
        [0, 0],
        [0, 0],
        [0, 0],
        [-GRID_UNITS, 0],
        [GRID_UNITS, 0],
    ]


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize(
    ("rate", "share", "records"), [(1.0, 0.2, 1), (1.0, 0.5, 3), (0.1, 0.2, 1), (0.05, 0.1, 2)]
)
def test_both_parts_together_spend_the_budget(relation, rate, share, records):
    budget = na.PrivacyBudget(epsilon=1.0, delta=1e-6, neighbouring_relation=relation)
    settings = {"num_steps": 50, "sampling_rate": rate, "dimension": 10, "records_per_unit": records}
    steps, noise, xi = calibrated_split(budget, share=share, curvature_size=15, **settings)
    alone, _ = calibrated_noise_multiplier(budget, **settings)
    assert steps == pytest.approx(alone / math.sqrt(1.0 - share), rel=1e-6)
    run = Run(
        noise_multiplier=steps / records,
        num_steps=50,
        sampling_rate=rate,
        discreteness=xi,
        curvature_noise_multiplier=noise / records,
    )
    spent = composed_epsilon([run], delta=1e-6, neighbouring_relation=relation)
    assert 0.9998 < spent <= 1.0
    if rate == 1.0:
        reach = records * (2.0 if relation == "replace_one" else 1.0)
        mu = math.hypot(reach * math.sqrt(50) / steps, reach / noise)
        assert spent == pytest.approx(gaussian_epsilon(mu, 1e-6), rel=1e-6)
        assert (reach / noise) ** 2 / mu**2 == pytest.approx(share, rel=0.01)


def test_runs_with_a_curvature_compose_with_others():
    step = {"noise_multiplier": 20.0, "num_steps": 100, "sampling_rate": 1.0}
    found = composed_epsilon([Run(**step, curvature_noise_multiplier=4.0, count=2)], delta=1e-5)
    assert found == pytest.approx(gaussian_epsilon(math.sqrt(2 * (100 / 400 + 1 / 16)), 1e-5), rel=1e-9)
    apart = [Run(**step, count=2), Run(noise_multiplier=4.0, num_steps=2, sampling_rate=1.0)]
    assert found == pytest.approx(composed_epsilon(apart, delta=1e-5), rel=1e-9)


@pytest.fixture(scope="module")
def private():
    return na.release(LOGISTIC, make_table(), schema=SCHEMA, privacy=BUDGET, config=CONFIG)


@pytest.mark.filterwarnings("ignore::nadpvi.errors.InferenceWarning")
def test_a_real_release_says_what_it_spends(private, tmp_path):
    guarantee = private.guarantee
    assert guarantee.is_private
    assert 0.9998 < guarantee.epsilon <= 1.0
    assert "trace and curvature" in guarantee.sentence()
    assert f"{guarantee.curvature_noise_multiplier:g} times what a record may add" in guarantee.sentence()
    path = private.save(tmp_path / "release.nc")
    loaded = na.Release.load(path)
    assert loaded.guarantee == guarantee
    np.testing.assert_array_equal(loaded.curvature, private.curvature)
    loaded.check_guarantee()
    posterior = na.infer(loaded, method="dense", draws=50, warmup=100, chains=2, seed=1)
    assert posterior.groups["posterior"]["hessian"].shape == (2, 50, 6, 6)


def test_its_noise_is_of_the_size_it_says():
    """Over 30 simulated releases; every entry of the upper triangle has a draw of its own."""
    records = make_records(LOGISTIC, make_table())
    upper = np.triu_indices(6)
    z = []
    for seed in range(30):
        made = simulated(insecure_seed=seed)
        exact = exact_curvature(made, records)
        z.append(((made.curvature - exact) / made.curvature_std)[upper])
    z = np.array(z)
    assert z.mean() == pytest.approx(0.0, abs=4 / math.sqrt(z.size))
    assert z.std() == pytest.approx(1.0, abs=4 / math.sqrt(2 * z.size))
    entries = np.corrcoef(z.T)[np.triu_indices(21, 1)]
    assert np.abs(entries).max() < 0.75


def test_a_guarantee_that_leaves_it_out_or_shrinks_it_is_refused(private):
    without = dataclasses.replace(private.guarantee, curvature_noise_multiplier=None)
    with pytest.raises(ArgumentError, match="must count the curvature"):
        dataclasses.replace(private, guarantee=without)
    louder = 3.0 * private.guarantee.curvature_noise_multiplier
    with pytest.raises(ArgumentError, match="curvature_std must be"):
        dataclasses.replace(
            private, guarantee=dataclasses.replace(private.guarantee, curvature_noise_multiplier=louder)
        )
    for changes in ({"num_steps": 50}, {"num_steps": 50, "epsilon": 0.97}):
        with pytest.raises(ArgumentError, match=r"must be of all steps|must be that of this trace"):
            dataclasses.replace(private, guarantee=dataclasses.replace(private.guarantee, **changes))
    with pytest.raises(ArgumentError, match="must count the curvature"):
        dataclasses.replace(private, guarantee=without, config=None)
    with pytest.raises(ArgumentError, match="curvature must have shape"):
        dataclasses.replace(private, curvature=np.eye(2), curvature_std=np.ones((2, 2)))
    with pytest.raises(ArgumentError, match="curvature_share"):
        dataclasses.replace(private, config=dataclasses.replace(CONFIG, curvature_share=0.0))
    with pytest.raises(ArgumentError, match="spends epsilon"):
        dataclasses.replace(private, guarantee=dataclasses.replace(private.guarantee, epsilon=0.93))


def interrupt_after(monkeypatch, num_steps):
    """Press Ctrl-C, as it were, in the step after so many."""
    draw, drawn = DiscreteGaussianNoise.draw, []

    def interrupted(self):
        drawn.append(1)
        if len(drawn) == num_steps + 1:
            raise KeyboardInterrupt
        return draw(self)

    monkeypatch.setattr(DiscreteGaussianNoise, "draw", interrupted)


def test_an_interrupted_run_has_not_spent_it(monkeypatch):
    interrupt_after(monkeypatch, 30)
    with pytest.raises(RunInterrupted) as caught:
        na.release(LOGISTIC, make_table(), schema=SCHEMA, privacy=BUDGET, config=CONFIG)
    made = caught.value.release
    assert made.curvature is None
    assert made.guarantee.num_steps == made.num_steps == 30
    assert made.guarantee.curvature_noise_multiplier is None
    alone = Run(noise_multiplier=made.noise_multiplier, num_steps=30, sampling_rate=0.1)
    assert made.guarantee.epsilon == pytest.approx(composed_epsilon([alone], delta=1e-5), rel=1e-6)
    assert caught.value.steps_left == 30


def test_an_interrupt_while_it_is_computed_keeps_the_trace_and_counts_all(monkeypatch):
    interrupt_after(monkeypatch, 60)
    with pytest.raises(RunInterrupted, match="the curvature raised KeyboardInterrupt") as caught:
        na.release(LOGISTIC, make_table(), schema=SCHEMA, privacy=BUDGET, config=CONFIG)
    made = caught.value.release
    assert made.num_steps == 60
    assert made.curvature is None
    assert 0.9998 < made.guarantee.epsilon <= 1.0
    assert caught.value.steps_left == 0


def test_what_a_callback_ended_counts_in_full_in_a_checkpoint_s_release_too(tmp_path):
    def stop(done):
        if done.num_done == 10:
            raise ValueError("seen enough")

    path, settings = tmp_path / "run.ckpt", {"schema": SCHEMA, "privacy": BUDGET, "config": CONFIG}
    with pytest.raises(RunInterrupted, match="seen enough") as caught:
        na.release(LOGISTIC, make_table(), checkpoint=path, callback=stop, **settings)
    partial = na.partial_release(path)
    assert partial.num_steps == caught.value.release.num_steps == 10
    assert partial.guarantee.epsilon == caught.value.release.guarantee.epsilon
    assert partial.guarantee.num_steps == 60


def test_the_ledger_counts_it_once_the_run_is_whole(tmp_path):
    ledger = na.Ledger.create(tmp_path / "people.ledger", label="people")
    made = na.release(LOGISTIC, make_table(), schema=SCHEMA, privacy=BUDGET, config=CONFIG, ledger=ledger)
    (entry,) = ledger.entries()
    assert entry.epsilon == made.guarantee.epsilon
    assert ledger.total() == pytest.approx(made.guarantee.epsilon, rel=1e-3)
    planned = dataclasses.replace(made.guarantee)
    cut = ledger.reserve(planned, label="cut")
    ledger.amend(cut, num_steps=59)
    entry = ledger.entries()[-1]
    assert entry.run.curvature_noise_multiplier is None
    steps = Run(noise_multiplier=planned.noise_multiplier, num_steps=59, sampling_rate=planned.sampling_rate)
    assert entry.epsilon == pytest.approx(composed_epsilon([steps], delta=1e-5), rel=1e-6)


def test_a_cap_refuses_what_the_curvature_brings_over_it(tmp_path):
    cap = na.PrivacyBudget(epsilon=0.97, delta=1e-5)
    ledger = na.Ledger.create(tmp_path / "people.ledger", label="people", cap=cap)
    with pytest.raises(PrivacyError, match="cap"):
        na.release(LOGISTIC, make_table(), schema=SCHEMA, privacy=BUDGET, config=CONFIG, ledger=ledger)
    # The steps alone would have been admitted.
    mechanism = make_mechanism(simulated().description, privacy=BUDGET, config=CONFIG)
    alone = Run(noise_multiplier=mechanism.noise_multiplier, num_steps=60, sampling_rate=0.1)
    assert composed_epsilon([alone], delta=1e-5) < 0.97


def test_a_resumed_run_releases_it_as_well(tmp_path, monkeypatch):
    path = tmp_path / "run.ckpt"
    ledger = na.Ledger.create(tmp_path / "people.ledger", label="people")
    settings = {"schema": SCHEMA, "privacy": BUDGET, "config": CONFIG}
    interrupt_after(monkeypatch, 30)
    with pytest.raises(RunInterrupted):
        na.release(LOGISTIC, make_table(), checkpoint=path, ledger=ledger, **settings)
    part = na.partial_release(path)
    assert part.num_steps == part.guarantee.num_steps == 30
    assert part.guarantee.epsilon < 0.8
    monkeypatch.undo()
    made = na.resume(path, make_table(), ledger=ledger)
    assert made.num_steps == 60
    assert made.curvature is not None
    assert 0.9998 < made.guarantee.epsilon <= 1.0
    assert made.guarantee.curvature_noise_multiplier is not None
    made.check_guarantee()
    first, second = ledger.entries()
    assert (first.num_steps, second.num_steps) == (30, 30)
    assert (first.run.curvature_noise_multiplier is None, second.run.curvature_noise_multiplier is None) == (
        True,
        False,
    )
    assert ledger.total() == pytest.approx(made.guarantee.epsilon, rel=2e-3)


def test_a_checkpoint_s_settings_are_those_of_before_where_there_is_none():
    """Fingerprints of older checkpoints are of these very entries."""
    config = dataclasses.replace(CONFIG, curvature_share=0.0)
    mechanism = make_mechanism(simulated().description, privacy=BUDGET, config=config)
    assert "curvature" not in json.dumps(checkpoint._settings(mechanism))
    with_one = make_mechanism(simulated().description, privacy=BUDGET, config=CONFIG)
    assert checkpoint._settings(with_one)["curvature_noise_multiplier"] > 0


def test_float32_features_at_their_bounds_count():
    columns = {"dose": {"kind": "real", "lower": 0, "upper": 10, "feature_range": [0, 1.07]}}
    schema = na.Schema.from_dict({"columns": columns | {"pulse": COLUMNS["pulse"]}})
    model = na.models.LinearRegression(outcome="pulse", predictors=["dose"], intercept=False)
    table = pd.DataFrame({"dose": [5.0, 10.0] * 100, "pulse": [1.0, 2.0] * 100})
    config = na.DPVIConfig(num_steps=60, clip_norm=5.0, curvature_share=0.2)
    settings = {"schema": schema, "privacy": BUDGET, "config": config, "insecure_seed": 1}
    made = na.release(model, table, **settings)
    x = np.array([[0.535], [1.07]] * 100)
    exact, stored = (
        exact_curvature(made, Records(x=values, y=table["pulse"].to_numpy()))
        for values in (x, x.astype(np.float32))
    )
    assert float(np.float32(1.07)) > 1.07
    np.testing.assert_allclose(stored, exact, rtol=1e-6)


@pytest.mark.parametrize("model", REGRESSIONS, ids=KINDS)
@pytest.mark.parametrize("sd", [0.0, 0.3, 10.0])
def test_weights_are_semi_definite_and_stay_within_their_bound(model, sd):
    rng = np.random.default_rng(4)
    num_predictors = 2 if model is LEVELS else 1
    mean = rng.normal(0.0, 5.0, (num_predictors, 4000))
    mean[:, :4] = [[0.0, 0.46601, 300.0, -800.0]] if num_predictors == 1 else [[30.0, 0, 0, 900.0]] * 2
    extras = EXTRAS.get(model, (NONE, NONE))
    weights = model.curvature_weights(mean, np.full(mean.shape, sd), extras=extras)
    assert np.isfinite(weights).all()
    assert (np.linalg.eigvalsh(weights.transpose(2, 0, 1)) >= -1e-12 * np.abs(weights).max()).all()
    bound = model.curvature_weight_bound(extras=extras)
    if bound is not None:
        norms = np.linalg.norm(weights, axis=(0, 1))
        assert norms.max() <= bound
        if sd == 0.0:
            assert norms.max() > 0.999 * bound


def test_of_counts_the_largest_weights_are_cut_at_a_number_that_no_record_sets():
    made = simulated(POISSON)
    mean = np.array([0.1, 0.8, 0.3, 0.2, -0.4, 0.0])
    phi = np.tile(np.concatenate([mean, np.full(6, -30.0)]), (60, 1))  # a guide without spread
    here = SimpleNamespace(description=made.description, phi=phi, config=made.config)
    cap = curvature_bounds(made.description, phi).weight_cap
    # Rates of made-up records are exp of a uniform number and of levels at random: the largest hundredth.
    rng = np.random.default_rng(0)
    eta = 0.1 + 0.8 * rng.uniform(-2, 2, 10**6) + 0.3 * rng.integers(2, size=10**6)
    eta += np.array([0.2, -0.4, 0.0])[rng.integers(3, size=10**6)]
    assert cap == pytest.approx(np.exp(np.quantile(eta, 0.99)), rel=5e-3)
    rows = np.array([[1.0, 0.0, 0.0, 0.0, 0.0, 1.0], [1.0, 2.0, 1.0, 1.0, 0.0, 0.0]])
    usual, extreme = (exact_curvature(here, Records(x=row[None], y=np.zeros(1)))[0, 0] for row in rows)
    assert usual == pytest.approx(math.exp(0.1), rel=1e-4)
    assert extreme == pytest.approx(cap, rel=1e-4)
    assert math.exp(rows[1] @ mean) > 1.05 * cap


@pytest.mark.parametrize("model", [POISSON, OVERDISPERSED, PROBIT, LEVELS])
@pytest.mark.filterwarnings("ignore::nadpvi.errors.InferenceWarning")
def test_every_regression_releases_one_where_settings_are_suggested_and_dense_reads_it(model):
    made = na.release(model, make_table(), schema=SCHEMA, privacy=BUDGET, num_records=500, insecure_seed=2)
    size = len(made.description.names) - model.num_extras
    assert made.curvature.shape == (size, size)
    posterior = na.infer(made, draws=20, warmup=30, chains=2, seed=1)
    assert posterior.settings["method"] == "dense"
    assert posterior.settings["phi_star_prior"] == "model"


@pytest.mark.parametrize("sd", [0.0, 1.0, 5.0, 30.0])
def test_weights_are_averages_over_the_guide_however_wide(sd):
    mean = np.array([-8.0, -1.0, 0.0, 3.0, 40.0])
    found = LOGISTIC.curvature_weights(mean[None], np.full((1, 5), sd), extras=(NONE, NONE))[0, 0]
    grid = np.linspace(-10.0, 10.0, 200_001)
    density = np.exp(-0.5 * grid**2) / np.exp(-0.5 * grid**2).sum()
    chance = expit(mean[:, None] + sd * grid)
    wanted = (chance * (1.0 - chance)) @ density
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=1e-16)
    assert found.max() <= 0.25


def test_too_few_steps_for_a_window_are_refused_before_anything_is_spent(tmp_path):
    config = na.DPVIConfig(num_steps=2, curvature_share=0.2)
    with pytest.raises(ArgumentError, match="window"):
        na.release(LOGISTIC, tmp_path / "none.csv", schema=SCHEMA, privacy=BUDGET, config=config)


def test_a_ledger_admits_further_steps_that_come_before_the_curvature(tmp_path, private):
    """One step more of a run that was cut costs a step, and not the curvature that it has not come to."""
    cap = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
    ledger = na.Ledger.create(tmp_path / "people.ledger", label="people", cap=cap)
    entry = ledger.reserve(private.guarantee, label="cut")
    ledger.amend(entry, num_steps=50)
    other = make_guarantee(
        budget=cap,
        noise_multiplier=12.0,
        num_steps=1,
        sampling_rate=1.0,
        clip_norm=1.0,
        mechanism="discrete Gaussian",
        assumed_public=("schema",),
    )
    ledger.commit(ledger.reserve(other, label="other"))
    ledger.extend(entry, num_steps=59)
    assert 0.85 < ledger.total() <= 1.0
    with pytest.raises(PrivacyError, match="cap"):
        ledger.extend(entry, num_steps=60)


def test_a_person_s_records_are_counted_together(tmp_path):
    schema = dataclasses.replace(SCHEMA, person=Person(column="id", max_rows=3))
    table = make_table().assign(id=np.arange(500) // 3)
    made = na.release(LOGISTIC, table, schema=schema, privacy=BUDGET, config=CONFIG)
    single = na.release(LOGISTIC, make_table(), schema=SCHEMA, privacy=BUDGET, config=CONFIG)
    ratio = made.guarantee.curvature_noise_multiplier / single.guarantee.curvature_noise_multiplier
    assert ratio == pytest.approx(3.0, rel=1e-3)
    made.check_guarantee()


def test_what_goes_wrong_in_it_does_not_cost_the_trace(monkeypatch):
    def fail(self, mean, sd, *, extras):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(na.models.LogisticRegression, "curvature_weights", fail)
    with pytest.raises(RunInterrupted, match="the curvature raised ZeroDivisionError") as caught:
        simulated()
    assert caught.value.release.num_steps == 60


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy": na.NonPrivate()}, "NonPrivate"),
        (
            {"model": na.models.PoissonGamma(outcome="visits", prior_shape=2, prior_rate=1)},
            "needs a regression",
        ),
        ({"config": dataclasses.replace(CONFIG, guide=na.guides.FullRank())}, "MeanField"),
        ({"config": dataclasses.replace(CONFIG, keep="sums")}, "keep"),
        (
            {"config": dataclasses.replace(CONFIG, prior_term="per_record", num_records=500)},
            "prior_term",
        ),
    ],
)
def test_runs_that_cannot_release_it_are_refused_before_the_table_is_opened(changes, message, tmp_path):
    settings = {
        "model": LOGISTIC,
        "schema": SCHEMA,
        "privacy": BUDGET,
        "config": CONFIG,
    } | changes
    with pytest.raises(ArgumentError, match=message):
        na.release(settings.pop("model"), tmp_path / "none.csv", **settings)


@pytest.mark.parametrize("share", [-0.1, 0.95, "a", True])
def test_a_share_is_a_share(share):
    with pytest.raises(ArgumentError, match="curvature_share"):
        na.DPVIConfig(curvature_share=share)


def test_the_command_line_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_table().to_csv("people.csv", index=False)
    lines = []
    for name, column in COLUMNS.items():
        lines += [f"[columns.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in column.items())]
    (tmp_path / "people.toml").write_text("\n".join(lines))
    options = "release people.csv --schema people.toml --outcome well --epsilon 1 --delta 1e-5 --steps 60"
    options += " --curvature-share 0.2 --insecure-seed 1 -o release.nc"
    result = CliRunner().invoke(app, options.split())
    assert result.exit_code == 0, result.output
    assert na.Release.load("release.nc").curvature.shape == (8, 8)
