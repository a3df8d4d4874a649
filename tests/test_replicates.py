"""Simulated releases with a replicate axis: each equals a run of its own, whatever runs beside it."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from conjugate_cases import EXAMPLES, SCHEMA
from scipy import stats
from whole_run import whole_trace

import nadpvi as na
from nadpvi.errors import ArgumentError, DivergenceError
from nadpvi.gradient_model.sums import make_trace_sums
from nadpvi.guides import FullRank, LowRank, MeanField
from nadpvi.models import ExponentialGamma
from nadpvi.privacy.randomness import make_streams
from nadpvi.private import dpvi
from nadpvi.private.records import Records
from nadpvi.private.replicates import replicate_seeds, simulate_releases, simulate_tables
from nadpvi.private.replicates.randomness import ReplicateNoise
from nadpvi.private.replicates.rows import CountedRows, LooseRows, Slots
from nadpvi.private.replicates.steps import clipped_sums
from nadpvi.schema import Schema

COIN, WAIT = EXAMPLES["bernoulli_beta"], EXAMPLES["exponential_gamma"]
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
# Longer than a block of steps of either kind, and no multiple of one.
CONFIG = na.DPVIConfig(num_steps=70, sampling_rate=0.2, clip_norm=1.0, monte_carlo_samples=4)


def simulated(model, *, num_replicates=5, num_records=60, config=CONFIG, seed=3, **options):
    seeds = replicate_seeds(seed, num_replicates=num_replicates)
    tables = simulate_tables(model, schema=SCHEMA, num_records=num_records, seeds=seeds)
    traces = simulate_releases(
        model, tables.outcomes, schema=SCHEMA, privacy=BUDGET, seeds=seeds, config=config, **options
    )
    return seeds, tables.outcomes, traces


def samples_of(rows, seed, *, num_steps):
    """Yield the slots of a group of one, drawn afresh from the seed of its run."""
    streams = make_streams(insecure_seed=int(seed))
    for index in range(num_steps):
        if index % rows.block_steps == 0:
            rows.draw_block([streams.subsample])
        yield Slots(*(values.copy() for values in rows.slots(index % rows.block_steps)))


def one_by_one(model, outcomes, seed, *, mechanism, is_counted, monkeypatch):
    """Return the trace of the ordinary engine on one table, with the subsamples of the array program."""
    settings = mechanism.settings
    # Each record's statistic is its own number in the table, so that a sample says which rows it holds.
    if is_counted:
        _, first, counts = np.unique(outcomes, return_index=True, return_counts=True)
        rows = CountedRows(
            first[None].astype(float), counts=counts[None], sampling_rate=settings.sampling_rate
        )
    else:
        numbered = np.arange(len(outcomes), dtype=float)
        rows = LooseRows([numbered[None]], sampling_rate=settings.sampling_rate)
    samples = samples_of(rows, seed, num_steps=settings.num_steps)

    def drawn(records, *, streams, sampling_rate):
        slots = next(samples)
        indices = slots.statistics[0, :, 0].astype(np.int64)
        return indices, slots.multiplicity[:, 0].astype(np.int64)

    monkeypatch.setattr(dpvi, "sampled_rows", drawn)
    streams = make_streams(insecure_seed=int(seed))
    noise = mechanism.noise_source(streams, num_steps=settings.num_steps)
    records = Records(x=np.empty((len(outcomes), 0)), y=outcomes)
    return whole_trace(records, settings, noise=noise, streams=streams)


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prior_term": "per_record", "num_records": 60},
        {"guide": FullRank(), "early_steps": 10, "early_factor": 3.0},
        {"guide": LowRank(rank=1, scale="variance"), "box_mu": (-2.0, 2.0)},
        {"guide": MeanField(scale="variance"), "clip_norm": 0.05},
    ],
    ids=["plain", "per_record", "full_rank", "low_rank", "clipped"],
)
def test_a_replicate_is_the_run_of_the_ordinary_engine(kind, changes, monkeypatch):
    """Same noise, same draws, same subsamples: the traces agree but for rounding."""
    model = EXAMPLES[kind]
    config = dataclasses.replace(CONFIG, **changes)
    seeds, outcomes, traces = simulated(model, config=config, num_replicates=3)
    is_counted = kind not in ("exponential_gamma", "normal")
    for index in (0, 2):
        expected = one_by_one(
            model,
            outcomes[index],
            seeds[index],
            mechanism=traces.mechanism,
            is_counted=is_counted,
            monkeypatch=monkeypatch,
        )
        np.testing.assert_allclose(traces.phi[index], expected.phi, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(
            traces.noisy_gradient[index], expected.noisy_gradient, rtol=1e-9, atol=1e-8
        )
    assert np.ptp(traces.phi[0], axis=0).min() > 0


@pytest.mark.parametrize("privacy", [na.NonPrivate(), BUDGET], ids=["no noise", "noise"])
@pytest.mark.parametrize(
    ("model", "cells"),
    [(COIN, lambda y: np.where(y > 0, "yes", "no")), (WAIT, lambda y: y)],
    ids=["coin", "wait"],
)
def test_with_sampling_rate_one_it_is_what_release_makes_of_the_table(model, cells, privacy):
    """Nothing is then sampled, and the seed fixes the rest: from the table's cells to the release."""
    config = dataclasses.replace(CONFIG, sampling_rate=1.0, learning_rate=0.003)
    seeds = replicate_seeds(8, num_replicates=2)
    outcomes = simulate_tables(model, schema=SCHEMA, num_records=30, seeds=seeds).outcomes
    traces = simulate_releases(model, outcomes, schema=SCHEMA, privacy=privacy, seeds=seeds, config=config)
    for index, seed in enumerate(seeds):
        table = pd.DataFrame({model.outcome: cells(outcomes[index])})
        expected = na.release(
            model, table, schema=SCHEMA, privacy=privacy, config=config, insecure_seed=int(seed)
        )
        made = traces.release(index)
        np.testing.assert_allclose(made.phi, expected.phi, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(made.noisy_gradient, expected.noisy_gradient, rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(made.final_phi, expected.final_phi, rtol=1e-9, atol=1e-11)
        assert made.noise_multiplier == expected.noise_multiplier
        assert made.guarantee.to_dict() == expected.guarantee.to_dict()
        assert made.config == expected.config


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("guide", [MeanField(), FullRank()], ids=["mean_field", "full_rank"])
def test_numbers_do_not_depend_on_what_runs_beside_them(kind, guide):
    """Bit for bit: all at once, in two parts, in reverse, and each alone."""
    config = dataclasses.replace(CONFIG, guide=guide, keep="sums")
    model = EXAMPLES[kind]
    seeds, outcomes, whole = simulated(model, num_replicates=6, config=config)

    def part(chosen):
        return simulate_releases(
            model, outcomes[chosen], schema=SCHEMA, privacy=BUDGET, seeds=seeds[chosen], config=config
        )

    for chosen in ([0, 1, 2, 3], [4, 5], [5, 4, 3, 2, 1, 0], [0], [3], [5]):
        some = part(chosen)
        np.testing.assert_array_equal(some.phi, whole.phi[chosen])
        np.testing.assert_array_equal(some.noisy_gradient, whole.noisy_gradient[chosen])
        np.testing.assert_array_equal(some.final_phi, whole.final_phi[chosen])
        for values, expected in zip(some.sums[1:], whole.sums[1:], strict=True):
            np.testing.assert_array_equal(values, expected[chosen])


def test_groups_that_do_not_fill_the_cache_join_to_the_same_numbers(monkeypatch):
    from nadpvi.private.replicates import groups

    _, _, whole = simulated(WAIT, num_replicates=7)
    monkeypatch.setattr(groups, "_LARGEST_GROUP", 3)
    _, _, grouped = simulated(WAIT, num_replicates=7)
    np.testing.assert_array_equal(grouped.phi, whole.phi)
    np.testing.assert_array_equal(grouped.noisy_gradient, whole.noisy_gradient)
    np.testing.assert_array_equal(grouped.final_phi, whole.final_phi)
    assert len(grouped) == 7


def test_tables_may_differ_in_size():
    seeds = replicate_seeds(5, num_replicates=3)
    sizes = (7, 150, 40)
    for model in (COIN, WAIT):
        tables = [
            simulate_tables(model, schema=SCHEMA, num_records=size, seeds=[seed]).outcomes[0]
            for size, seed in zip(sizes, seeds, strict=True)
        ]
        together = simulate_releases(model, tables, schema=SCHEMA, privacy=BUDGET, seeds=seeds, config=CONFIG)
        alone = simulate_releases(
            model, tables[1:2], schema=SCHEMA, privacy=BUDGET, seeds=seeds[1:2], config=CONFIG
        )
        np.testing.assert_array_equal(together.phi[1], alone.phi[0])


def test_counting_equal_outcomes_changes_the_draws_and_not_their_distribution():
    """The same 400 tables both ways: means of the final iterates within 4.5 standard errors."""
    config = dataclasses.replace(CONFIG, learning_rate=0.01)
    _, _, counted = simulated(COIN, num_replicates=400, config=config, is_counted=True)
    _, _, loose = simulated(COIN, num_replicates=400, config=config, is_counted=False)
    difference = counted.final_phi - loose.final_phi
    assert np.abs(difference).max() > 0
    errors = difference.mean(axis=0) / (difference.std(axis=0) / math.sqrt(400))
    assert (np.abs(errors) < 4.5).all()


def test_counts_are_binomial_and_independent():
    """20,000 steps of counts 3, 40, 900 at rate 0.1: chi-square, moments, correlations; 1e-4 in all."""
    counts, rate = np.array([[3, 40, 900]]), 0.1
    rows = CountedRows(np.zeros((1, 3)), counts=counts, sampling_rate=rate)
    drawn = np.array([slots.multiplicity[:, 0] for slots in samples_of(rows, 11, num_steps=20_000)])
    for column, count in zip(drawn.T, counts[0], strict=True):
        assert_binomial(column, count, rate=rate)
    correlations = np.corrcoef(np.hstack([drawn[:-1], drawn[1:]]).T) - np.eye(6)
    assert np.abs(correlations).max() < 4.5 / math.sqrt(20_000)
    with pytest.raises(AssertionError):
        assert_binomial(drawn[:, 2], 900, rate=0.1005)


def assert_binomial(drawn, count, *, rate):
    """Raise unless the numbers look Binomial(`count`, `rate`), with a false alarm of about 2e-5."""
    error = (drawn.mean() - count * rate) / math.sqrt(count * rate * (1 - rate) / len(drawn))
    assert abs(error) < 4.3
    support = np.arange(count + 1)
    expected = stats.binom.pmf(support, count, rate) * len(drawn)
    likely = expected > 10
    observed = np.array([(drawn == value).sum() for value in support[likely]])
    rest = len(drawn) - observed.sum(), len(drawn) - expected[likely].sum()
    if rest[1] > 10:
        observed, wanted = np.append(observed, rest[0]), np.append(expected[likely], rest[1])
    else:
        wanted = expected[likely] * observed.sum() / expected[likely].sum()
    assert stats.chisquare(observed, wanted).pvalue > 1e-5


def test_loose_rows_enter_independently_and_once():
    """30,000 steps of 12 records at rate 0.3: shares and pairs within 4.5 standard errors; sizes binomial."""
    num_records, rate, num_steps = 12, 0.3, 30_000
    rows = LooseRows([np.arange(num_records, dtype=float)[None]], sampling_rate=rate)
    entered = np.zeros((num_steps, num_records))
    for index, slots in enumerate(samples_of(rows, 12, num_steps=num_steps)):
        chosen = slots.statistics[0, slots.multiplicity[:, 0] > 0, 0].astype(int)
        assert len(set(chosen)) == len(chosen)
        entered[index, chosen] = 1.0
    shares = (entered.mean(axis=0) - rate) / math.sqrt(rate * (1 - rate) / num_steps)
    assert np.abs(shares).max() < 4.5
    # Records of one step, of two steps in a row, and of steps that a block keeps apart.
    both = np.hstack([entered[:-1], entered[1:]])
    correlations = np.corrcoef(both.T) - np.eye(2 * num_records)
    assert np.abs(correlations).max() < 4.8 / math.sqrt(num_steps)
    assert_binomial(entered.sum(axis=1), num_records, rate=rate)


def test_empty_samples_leave_noise_and_prior():
    """One record at rate 0.2: four steps in five are empty, and the trace has every one of them."""
    for model in (COIN, WAIT):
        _, _, traces = simulated(model, num_records=1, num_replicates=4)
        assert np.isfinite(traces.noisy_gradient).all()
        assert traces.phi.shape == (4, 70, 2)
        assert np.abs(traces.noisy_gradient).min() > 0


@pytest.mark.parametrize("model", [COIN, WAIT], ids=["coin", "wait"])
def test_noise_has_the_sd_that_the_release_says(model):
    """Iterates that stand still: what varies is noise, subsampling and the draws, the latter two far smaller.

    50 runs of 200 steps: the relative standard error of an sd is 0.7 %. False alarm below 1e-5.
    """
    config = dataclasses.replace(CONFIG, num_steps=200, learning_rate=1e-12, monte_carlo_samples=50)
    seeds = replicate_seeds(4, num_replicates=50)
    tables = simulate_tables(model, schema=SCHEMA, num_records=20, seeds=seeds).outcomes
    budget = na.PrivacyBudget(epsilon=0.1, delta=1e-5)
    traces = simulate_releases(model, tables, schema=SCHEMA, privacy=budget, seeds=seeds, config=config)
    release = traces.release(0)
    centred = traces.noisy_gradient - traces.noisy_gradient.mean(axis=1, keepdims=True)
    ratio = centred.std(axis=(0, 1)) / release.noise_std
    assert (np.abs(ratio - 1) < 0.035).all()
    for wrong in (0.9, 1.1):
        assert (np.abs(ratio / wrong - 1) > 0.035).all()


def test_replicates_share_no_random_number():
    """Noise of 6 runs and their own other streams: no two values equal, correlations within 4.5 errors."""
    streams = [make_streams(insecure_seed=int(seed)) for seed in replicate_seeds(2, num_replicates=6)]
    noise = ReplicateNoise(streams, noise_multiplier=1.0, dimension=2, block_steps=4_000)
    noise.refill()
    values = np.array([noise.draw() for _ in range(4_000)]).transpose(1, 0, 2).reshape(6, -1)
    others = [stream.monte_carlo.standard_normal(8_000) for stream in streams]
    more = [stream.subsample.standard_normal(8_000) for stream in streams]
    everything = np.vstack([values, others, more])
    assert len(np.unique(everything)) == everything.size
    correlations = np.corrcoef(everything) - np.eye(len(everything))
    assert np.abs(correlations).max() < 4.5 / math.sqrt(8_000)


def test_noise_is_that_of_single_draws():
    streams = [make_streams(insecure_seed=seed) for seed in (1, 2)]
    noise = ReplicateNoise(streams, noise_multiplier=3.0, dimension=2, block_steps=4)
    noise.refill()
    drawn = np.array([noise.draw() for _ in range(4)])
    for place, seed in enumerate((1, 2)):
        single = make_streams(insecure_seed=seed).noise
        expected = [3.0 * single.standard_normal(2) for _ in range(4)]
        np.testing.assert_array_equal(drawn[:, place], expected)


@pytest.mark.parametrize("burn_in", [0.0, 0.5])
def test_sums_are_those_of_the_whole_trace(burn_in):
    """With a start far from the optimum, so that the window holds a long way."""
    config = dataclasses.replace(CONFIG, initial_mu=9.0, learning_rate=0.05)
    _, _, traces = simulated(COIN, config=config)
    summed_config = dataclasses.replace(config, keep="sums", burn_in=burn_in)
    _, _, summed = simulated(COIN, config=summed_config)
    for index in range(len(traces)):
        expected = make_trace_sums(traces.phi[index], traces.noisy_gradient[index], burn_in=burn_in)
        made = summed.release(index)
        for name in ("phi_bar", "g_bar", "s_pp", "s_gp", "s_gg"):
            scale = np.sqrt(expected.s_pp * expected.s_gg) if name == "s_gp" else 0.0
            np.testing.assert_allclose(
                getattr(made.sums, name), getattr(expected, name), rtol=1e-9, atol=1e-9 * np.max(scale)
            )
        assert made.sums.num_steps == expected.num_steps
        np.testing.assert_array_equal(made.phi, traces.phi[index, -1:])
        np.testing.assert_array_equal(made.noisy_gradient, traces.noisy_gradient[index, -1:])
        np.testing.assert_array_equal(made.final_phi, traces.final_phi[index])


@pytest.mark.parametrize("thin", [7, 20, 23])
def test_thinned_traces_hold_the_steps_that_a_release_holds(thin):
    _, _, whole = simulated(COIN)
    _, _, thinned = simulated(COIN, config=dataclasses.replace(CONFIG, thin=thin))
    kept = np.arange(69, -1, -thin)[::-1]
    np.testing.assert_array_equal(thinned.phi, whole.phi[:, kept])
    np.testing.assert_array_equal(thinned.noisy_gradient, whole.noisy_gradient[:, kept])
    np.testing.assert_array_equal(thinned.final_phi, whole.final_phi)
    assert thinned.release(1).num_steps == len(kept)


def test_releases_are_stamped_not_private_and_go_on_to_inference():
    _, _, traces = simulated(COIN)
    made = traces.release(2)
    assert not made.is_private
    assert made.guarantee.sentence().startswith("NOT PRIVATE")
    posterior = na.infer(made, method="exact", draws=50, seed=1)
    probability = posterior.to_datatree()["posterior"]["probability"]
    assert ((probability > 0) & (probability < 1)).all()


def test_a_run_that_diverges_is_marked_and_leaves_the_others_alone(monkeypatch):
    """One replicate's noise overflows midway."""
    config = dataclasses.replace(CONFIG, keep="sums")
    _, _, sound = simulated(COIN, config=config)
    drawn = ReplicateNoise.draw

    def overflowing(self):
        values = drawn(self)
        values[1] = np.inf
        return values

    monkeypatch.setattr(ReplicateNoise, "draw", overflowing)
    _, _, broken = simulated(COIN, config=config)
    assert broken.is_finite.tolist() == [True, False, True, True, True]
    others = [0, 2, 3, 4]
    np.testing.assert_array_equal(broken.phi[others], sound.phi[others])
    np.testing.assert_array_equal(broken.sums.s_gp[others], sound.sums.s_gp[others])
    for values in (broken.phi, broken.noisy_gradient, broken.final_phi, broken.sums.s_pp):
        assert np.isnan(values[1]).all()
    with pytest.raises(DivergenceError, match="simulated run 1 diverged"):
        broken.release(1)
    broken.release(2)


def brute_force_sums(slots, *, matrix, clip_norm):
    """Clip and add record by record."""
    num_slots, num_replicates = slots.multiplicity.shape
    statistics = np.broadcast_to(slots.statistics, (len(slots.statistics), num_slots, num_replicates))
    total = np.zeros((num_replicates, matrix.shape[2]))
    for replicate in range(num_replicates):
        for slot in range(num_slots):
            row = matrix[-1, replicate].copy()
            for statistic, factor in zip(statistics[:, slot, replicate], matrix[:-1, replicate], strict=True):
                row += statistic * factor
            if np.isfinite(row).all():
                norm = np.linalg.norm(row)
                shrunk = row if norm <= clip_norm else row * (clip_norm / norm)
                total[replicate] += slots.multiplicity[slot, replicate] * shrunk / clip_norm
    return total


@pytest.mark.parametrize("num_statistics", [1, 2, 3])
@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "own"])
def test_clipped_sums_are_those_of_a_plain_loop(num_statistics, is_shared):
    rng = np.random.default_rng(6)
    slots = Slots(
        rng.normal(size=(num_statistics, 9, 1 if is_shared else 4)),
        rng.integers(0, 5, size=(9, 4)).astype(float),
    )
    matrix = rng.normal(size=(num_statistics + 1, 4, 3))
    for clip_norm in (0.1, 1.5, 100.0):
        expected = brute_force_sums(slots, matrix=matrix, clip_norm=clip_norm)
        made = clipped_sums(slots, matrix=matrix, clip_norm=clip_norm)
        np.testing.assert_allclose(made, expected, rtol=1e-7, atol=1e-9)


def test_rows_that_are_not_finite_contribute_zero_and_huge_ones_are_clipped():
    statistics = np.array([[[1.0], [np.inf], [np.nan], [1e200], [0.0]]])
    slots = Slots(statistics, np.array([[1.0, 2.0]] * 5))
    matrix = np.array([[[3.0, 4.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    with np.errstate(all="ignore"):
        made = clipped_sums(slots, matrix=matrix, clip_norm=2.0)
    # The first and the huge row keep their directions at norm 1 or less; the zero row stays zero.
    np.testing.assert_allclose(made, [[0.6 + 0.6, 0.8 + 0.8], [2 * (0.5 + 1.0), 0.0]], rtol=1e-8)


def test_tables_come_from_the_prior_and_the_likelihood():
    """2,000 tables of 50 flips: prior moments of the logit, and the heads' beta-binomial moments."""
    seeds = replicate_seeds(1, num_replicates=2_000)
    tables = simulate_tables(COIN, schema=SCHEMA, num_records=50, seeds=seeds)
    assert tables.theta.shape == (2_000, 1)
    assert tables.outcomes.shape == (2_000, 50)
    mean, sd = COIN.prior_moments(COIN.design(SCHEMA))
    assert abs(tables.theta.mean() - mean[0]) < 4.5 * sd[0] / math.sqrt(2_000)
    assert abs(tables.theta.std() / sd[0] - 1) < 4.5 / math.sqrt(4_000) * 1.3
    law = stats.betabinom(50, 10.0, 4.0)
    heads = tables.outcomes.sum(axis=1)
    assert abs(heads.mean() - law.mean()) < 4.5 * law.std() / math.sqrt(2_000)
    assert abs(heads.std() / law.std() - 1) < 4.5 / math.sqrt(4_000) * 1.3


def test_a_table_depends_on_its_seed_alone():
    seeds = replicate_seeds(1, num_replicates=5)
    whole = simulate_tables(WAIT, schema=SCHEMA, num_records=9, seeds=seeds)
    some = simulate_tables(WAIT, schema=SCHEMA, num_records=9, seeds=seeds[[3, 1]])
    np.testing.assert_array_equal(some.theta, whole.theta[[3, 1]])
    np.testing.assert_array_equal(some.outcomes, whole.outcomes[[3, 1]])


class TellTale(ExponentialGamma):
    """Outcomes are the generator's first numbers."""

    def draw_prior(self, design, *, num_draws, rng):
        return np.zeros((num_draws, 1))

    def draw_outcomes(self, theta, *, rng):
        return rng.random(theta.shape[:-1])


def test_a_table_shares_no_random_number_with_its_run():
    model = TellTale(outcome="wait", prior_shape=8.0, prior_rate=2.0)
    (drawn,) = simulate_tables(model, schema=SCHEMA, num_records=200, seeds=(5,)).outcomes
    streams = make_streams(insecure_seed=5)
    for rng in (streams.subsample, streams.monte_carlo, streams.noise, streams.rows):
        assert not set(drawn.tolist()) & set(rng.random(1_000).tolist())
    # The comparison can fail.
    again = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(2,))).random(200)
    assert set(again.tolist()) <= set(make_streams(insecure_seed=5).noise.random(1_000).tolist())


def test_simulated_outcomes_are_held_to_their_public_bounds():
    """With a mean of about 25 beyond an upper bound of 10, as the encoding of a real table would."""
    schema = Schema.from_dict({"columns": {"wait": {"kind": "real", "lower": 0, "upper": 10}}})
    model = ExponentialGamma(outcome="wait", prior_shape=50.0, prior_rate=1000.0)
    seeds = replicate_seeds(1, num_replicates=3)
    held = simulate_tables(model, schema=schema, num_records=40, seeds=seeds).outcomes
    free = simulate_tables(model, schema=schema, num_records=40, seeds=seeds, clamp=False).outcomes
    assert free.max() > 10.0
    np.testing.assert_array_equal(held, np.minimum(free, 10.0))


def test_seeds_differ_and_do_not_depend_on_how_many_there_are():
    seeds = replicate_seeds(7, num_replicates=1_000)
    assert len(set(seeds.tolist())) == 1_000
    np.testing.assert_array_equal(seeds[:10], replicate_seeds(7, num_replicates=10))
    assert not set(seeds.tolist()) & set(replicate_seeds(8, num_replicates=1_000).tolist())


def refused(message, *, model=COIN, outcomes=((0.0, 1.0), (1.0, 1.0)), seeds=(1, 2), schema=SCHEMA):
    with pytest.raises(ArgumentError, match=message):
        simulate_releases(model, outcomes, schema=schema, privacy=BUDGET, seeds=seeds, config=CONFIG)


def test_unsuitable_arguments_are_refused():
    refused("as many", seeds=(1,))
    refused("as many", outcomes=(), seeds=())
    refused("must differ", seeds=(1, 1))
    refused("seeds must be a whole number", seeds=(1, -2))
    refused("finite", outcomes=((0.0, np.nan), (1.0, 1.0)))
    refused("finite", outcomes=((0.0,), ()))
    refused("exponential family", model=na.models.LogisticRegression(outcome="heads"))
    person = Schema.from_dict(
        {"columns": {"heads": {"kind": "binary", "levels": ["no", "yes"]}}, "person": {"column": "id"}}
    )
    refused("no person column", schema=person)
    with pytest.raises(ArgumentError, match="simulate"):
        simulate_tables(object(), schema=SCHEMA, num_records=3, seeds=(1,))
    with pytest.raises(ArgumentError, match="no predictors"):
        simulate_tables(
            na.models.LogisticRegression(outcome="heads"), schema=SCHEMA, num_records=3, seeds=(1,)
        )
