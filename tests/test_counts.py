"""Records that come as rows with counts: the mechanism of the expanded table at the cost of its rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.encoding import make_design
from nadpvi.errors import ArgumentError, DataError, PrivacyError
from nadpvi.mechanism import make_mechanism
from nadpvi.privacy.noise import GRID_UNITS, NoNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.privacy.sampling import CountedSampler
from nadpvi.private import collapse
from nadpvi.private.batches import Workspace, blocks
from nadpvi.private.checkpoint import new_checkpoint
from nadpvi.private.collapse import CountedRows, collapsed
from nadpvi.private.dpsgd import clipped_sum, release_gradient
from nadpvi.private.dpvi import State, run, sampled_rows, step
from nadpvi.private.gradients import DenseGradients
from nadpvi.private.inputs import Reading
from nadpvi.private.keeping import Keeper
from nadpvi.private.records import Records, make_records
from nadpvi.private.score import private_score
from nadpvi.settings import make_settings
from nadpvi.tables import in_parts

SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "age": {"kind": "real", "lower": 0, "upper": 100, "missing": "drop"},
            "job": {"kind": "categorical", "levels": ["a", "b", "c"]},
            "y": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)
MODEL = na.models.LogisticRegression(outcome="y")
DESCRIPTION = ModelDescription(model=MODEL, schema=SCHEMA, guide=na.MeanField())
DIMENSION = 2 * len(DESCRIPTION.names)


class OnTheGrid(NoNoise):
    """Exact sums without noise, so that what is released is the sum itself."""

    def __init__(self, *, dimension):
        super().__init__(dimension=dimension)
        self.grid_units = GRID_UNITS


def frequency_table(num_rows=9, *, seed=3, most=40):
    rng = np.random.default_rng(seed)
    x = np.round(rng.random((num_rows, len(DESCRIPTION.names))), 2)
    return Records(x=x, y=rng.integers(0, 2, num_rows), counts=rng.integers(1, most, num_rows))


def expanded(records, *, order=None):
    rows = np.repeat(np.arange(len(records.y)), records.counts)
    rows = rows if order is None else order.permutation(rows)
    return Records(x=records.x[rows], y=records.y[rows])


def one_step(records, *, rate, noise, seed=7, **changes):
    config = na.DPVIConfig(num_steps=20, sampling_rate=rate, clip_norm=0.25, **changes)
    made = make_settings(DESCRIPTION, config, noise_multiplier=2.0)
    _, noisy = step(
        State(0, made.initial_phi),
        records=records,
        settings=made,
        noise=noise,
        streams=make_streams(insecure_seed=seed),
        workspace=Workspace(),
    )
    return noisy


class TestSampler:
    """Multiplicities are independent binomials, whichever way they are drawn."""

    COUNTS = np.array([3, 1, 70, 2, 2000, 1, 12])
    LEAST = 1e-5

    def multiplicities(self, rate, *, counts=COUNTS, num_draws=4000, seed=2):
        sampler, rng = CountedSampler(counts), np.random.default_rng(seed)
        drawn = np.zeros((num_draws, len(counts)), dtype=int)
        for row in drawn:
            sample = sampler.draw(rng, sampling_rate=rate)
            assert len(np.unique(sample.rows)) == len(sample.rows)
            row[sample.rows] = sample.multiplicities
        assert (drawn >= 0).all()
        assert (drawn <= counts).all()
        return drawn

    def marginal_p(self, drawn, rate, *, counts=COUNTS):
        """The least p-value over rows, of a chi-square test of each row's multiplicities."""
        p_values = []
        for multiplicity, count in zip(drawn.T, counts, strict=True):
            mass = len(drawn) * stats.binom.pmf(np.arange(count + 1), count, rate)
            observed = np.bincount(multiplicity, minlength=count + 1)
            keep = mass >= 8
            seen, due = np.append(observed[keep], observed[~keep].sum()), np.append(mass[keep], 0.0)
            due[-1] = mass[~keep].sum()
            used = due > 0.5
            assert not seen[~used].any() or due[~used].sum() > 1e-3
            statistic = ((seen - due)[used] ** 2 / due[used]).sum()
            p_values.append(stats.chi2.sf(statistic, used.sum() - 1))
        return min(p_values)

    @pytest.mark.parametrize("rate", [0.004, 0.1, 0.3, 0.4, 0.6, 0.9, 0.999])
    def test_each_is_binomial(self, rate):
        """Seven tests a rate at 1e-5 each; the seeds are fixed."""
        drawn = self.multiplicities(rate)
        assert self.marginal_p(drawn, rate) > self.LEAST
        assert self.marginal_p(drawn, rate * 0.9) < self.LEAST

    @pytest.mark.parametrize("rate", [0.05, 0.4, 0.7])
    def test_rows_and_draws_are_independent(self, rate):
        drawn = self.multiplicities(rate)
        z = (drawn - self.COUNTS * rate) / np.sqrt(self.COUNTS * rate * (1 - rate))
        pairs = (z.T @ z / np.sqrt(len(z)))[np.triu_indices(len(self.COUNTS), 1)]
        assert stats.chi2.sf((pairs**2).sum(), len(pairs)) > self.LEAST
        lagged = (z[1:] * z[:-1]).sum(axis=0) / np.sqrt(len(z) - 1)
        assert stats.chi2.sf((lagged**2).sum(), len(lagged)) > self.LEAST
        shared = z + z[:, :1]
        pairs = (shared.T @ shared / np.sqrt(len(z)))[np.triu_indices(len(self.COUNTS), 1)]
        assert stats.chi2.sf((pairs**2).sum(), len(pairs)) < self.LEAST

    def test_both_ways_are_used(self, monkeypatch):
        """Rows of many records by a binomial, the others by gaps; the split moves no distribution."""
        asked = []
        rng = np.random.default_rng(0)

        class Watched(np.random.Generator):
            def binomial(self, n, p, size=None):
                asked.append(np.array(n).tolist())
                return rng.binomial(n, p, size)

        sampler = CountedSampler(self.COUNTS)
        for rate in (0.004, 0.1, 0.6):
            sampler.draw(Watched(np.random.PCG64(1)), sampling_rate=rate)
        assert asked == [[], [2000], [2000]]
        for many in (1, 10**9):
            monkeypatch.setattr("nadpvi.privacy.sampling._MANY", many)
            assert self.marginal_p(self.multiplicities(0.1, seed=many % 97), 0.1) > self.LEAST

    def test_rate_one_takes_every_record_and_draws_nothing(self):
        rng = np.random.default_rng(0)
        before = rng.bit_generator.state
        sample = CountedSampler(self.COUNTS).draw(rng, sampling_rate=1.0)
        assert rng.bit_generator.state == before
        assert dict(zip(sample.rows.tolist(), sample.multiplicities.tolist(), strict=True)) == dict(
            enumerate(self.COUNTS.tolist())
        )

    def test_a_billion_people_cost_what_their_rows_cost(self):
        """Standard deviation 9e3 about 1e7: within 6 of them."""

        class Limited(np.random.Generator):
            def random(self, size=None, *args, **kwargs):
                assert np.prod(size) < 10_000
                return super().random(size, *args, **kwargs)

            def geometric(self, p, size=None):
                assert np.prod(size) < 10_000
                return super().geometric(p, size)

        counts = np.array([10**9, 5, 2 * 10**8, 3, 1])
        sample = CountedSampler(counts).draw(Limited(np.random.PCG64(3)), sampling_rate=0.01)
        drawn = np.zeros(5)
        drawn[sample.rows] = sample.multiplicities
        sd = np.sqrt(counts * 0.01 * 0.99)
        assert (np.abs(drawn - 0.01 * counts)[[0, 2]] < 6 * sd[[0, 2]]).all()

    def test_nothing_is_shown(self):
        sampler = CountedSampler(self.COUNTS)
        shown = (repr(sampler), repr(sampler.draw(np.random.default_rng(0), sampling_rate=1.0)))
        assert shown == ("CountedSampler(private)", "CountedSample(private)")


any_float = st.floats(allow_nan=True, allow_infinity=True, width=64)


@settings(max_examples=150, deadline=None)
@given(
    rows=arrays(np.float64, (4, 3), elements=any_float),
    times=arrays(np.int64, (4,), elements=st.integers(0, 6)),
    padding=arrays(np.float64, (2, 3), elements=any_float),
)
def test_a_multiplicity_counts_like_as_many_rows_to_the_last_bit(rows, times, padding):
    kwargs = {"clip_norm": 0.7, "grid_units": GRID_UNITS}
    whole = clipped_sum(DenseGradients(np.repeat(rows, times, axis=0)), **kwargs)
    padded = DenseGradients(np.vstack([rows, padding]))
    counted = clipped_sum(padded, num_records=4, multiplicities=np.append(times, [0, 0]) * 1.0, **kwargs)
    np.testing.assert_array_equal(whole, counted)


@settings(max_examples=150, deadline=None)
@given(
    rows=arrays(np.float64, (3, 4), elements=any_float),
    times=arrays(np.int64, (3,), elements=st.integers(0, 10**5)),
    which=st.integers(0, 2),
)
def test_one_record_more_moves_the_sum_by_that_record_alone(rows, times, which):
    kwargs = {"clip_norm": 2.0, "grid_units": GRID_UNITS}
    more = times + (np.arange(3) == which)
    fewer, full = (
        clipped_sum(DenseGradients(rows), multiplicities=count * 1.0, **kwargs) for count in (times, more)
    )
    alone = clipped_sum(DenseGradients(rows[[which]]), **kwargs)
    np.testing.assert_array_equal(full - fewer, alone)
    # In integers, so that no rounding can hide an excess.
    assert sum(int(value) ** 2 for value in full - fewer) <= GRID_UNITS**2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_contributes_zero_however_often_it_counts(bad):
    gradients = DenseGradients(np.array([[0.1, 0.2], [bad, 1.0]]))
    for grid in (None, GRID_UNITS):
        kwargs = {"clip_norm": 1.0, "grid_units": grid}
        total = clipped_sum(gradients, multiplicities=np.array([2.0, 9.0]), **kwargs)
        alone = clipped_sum(DenseGradients(gradients.rows[:1]), **kwargs)
        np.testing.assert_allclose(total, 2.0 * alone)


class TestSteps:
    """A step over rows with counts is a step over the expanded table."""

    @pytest.mark.parametrize("num_rows", [1, 9, 3000])
    def test_at_rate_one_the_sums_are_the_same_integers(self, num_rows):
        records = frequency_table(num_rows, most=5)
        noise = OnTheGrid(dimension=DIMENSION)
        whole = one_step(expanded(records, order=np.random.default_rng(0)), rate=1.0, noise=noise)
        np.testing.assert_array_equal(one_step(records, rate=1.0, noise=noise), whole)

    def test_without_a_grid_they_are_the_same_to_rounding(self):
        records = frequency_table(200)
        whole, counted = (
            one_step(r, rate=1.0, noise=NoNoise(dimension=DIMENSION)) for r in (expanded(records), records)
        )
        np.testing.assert_allclose(counted, whole, rtol=1e-10, atol=1e-12)

    def test_each_record_carries_its_share_of_the_prior(self):
        records = frequency_table()
        changes = {"prior_term": "per_record", "num_records": 500}
        noise = OnTheGrid(dimension=DIMENSION)
        whole, counted = (one_step(r, rate=1.0, noise=noise, **changes) for r in (expanded(records), records))
        np.testing.assert_array_equal(counted, whole)
        assert (counted != one_step(records, rate=1.0, noise=noise)).any()

    def test_a_billion_people_are_summed_exactly(self):
        """More than float64 holds: the sum is that of the single records, in whole numbers."""
        records = frequency_table()
        sums = []
        for counts in (np.ones(9, dtype=int), records.counts * 10**9 + 1):
            rows = [Records(x=records.x[[i]], y=records.y[[i]], counts=counts[[i]]) for i in range(9)]
            assert sum(row.num_records for row in rows) == counts.sum()
            whole = Records(x=records.x, y=records.y, counts=counts)
            sums.append((self.grid_sum(whole), [self.grid_sum(row) for row in rows]))
        times = (records.counts * 10**9 + 1).tolist()
        (_, alone), (large, _) = sums
        expected = [sum(t * row[d] for t, row in zip(times, alone, strict=True)) for d in range(DIMENSION)]
        assert large == expected
        assert max(map(abs, expected)) > 2**53

    @staticmethod
    def grid_sum(records):
        """Return the clipped sum of a step at rate 1 as Python integers."""
        seen = []

        def watched(total, **rest):
            seen.append(total)
            return release_gradient(total, **rest)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("nadpvi.private.dpvi.release_gradient", watched)
            one_step(records, rate=1.0, noise=OnTheGrid(dimension=DIMENSION))
        assert seen[0].dtype == np.int64
        return seen[0].tolist()

    @pytest.mark.parametrize("rate", [0.15, 0.8])
    def test_below_it_the_sums_have_the_same_distribution(self, rate):
        """Of two rows with gradients (a, 0) and (0, a) the sum tells both multiplicities; 4 x 3 cells.

        One chi-square test each for the counts and for the expanded rows; a false alarm has probability
        below 1e-5, and a rate that is wrong by a quarter is found.
        """
        counts = np.array([3, 2])
        schema = na.Schema.from_dict(
            {
                "columns": {f"c{i}": {"kind": "real", "lower": 0, "upper": 1} for i in range(2)}
                | {"y": {"kind": "binary", "levels": ["no", "yes"]}}
            }
        )
        model = na.models.LogisticRegression(outcome="y", intercept=False, prior_sd=1e6)
        description = ModelDescription(model=model, schema=schema, guide=na.MeanField())
        config = na.DPVIConfig(num_steps=20, sampling_rate=rate, clip_norm=0.25, initial_u=-25.0)
        made = make_settings(description, config, noise_multiplier=2.0)
        records = Records(x=np.eye(2), y=np.zeros(2), counts=counts)

        def p_value(records, rate):
            streams, noise, seen = make_streams(insecure_seed=9), OnTheGrid(dimension=4), np.zeros((4, 3))
            for _ in range(2000):
                _, noisy = step(
                    State(0, made.initial_phi), records=records, settings=made, noise=noise, streams=streams
                )
                first, second = np.rint(noisy[:2] / 0.25).astype(int)
                seen[first, second] += 1
            due = 2000 * np.outer(*(stats.binom.pmf(np.arange(n + 1), n, rate) for n in counts))
            statistic = ((seen - due) ** 2 / due)[due > 5]
            return stats.chi2.sf(statistic.sum(), statistic.size - 1)

        for table in (records, expanded(records)):
            assert p_value(table, rate) > 1e-5
            assert p_value(table, rate * 0.75) < 1e-5

    def test_who_enters_is_asked_of_the_secret_stream(self):
        records = frequency_table()
        streams = make_streams(insecure_seed=1)
        before = streams.monte_carlo.bit_generator.state
        rows, times = sampled_rows(records, streams=streams, sampling_rate=0.5)
        assert streams.monte_carlo.bit_generator.state == before
        assert times.sum() < records.num_records
        rows_again, times_again = sampled_rows(
            records, streams=make_streams(insecure_seed=1), sampling_rate=0.5
        )
        np.testing.assert_array_equal(rows, rows_again)
        np.testing.assert_array_equal(times, times_again)

    def test_blocks_are_padded_with_multiplicity_zero_after_longer_ones(self):
        records, workspace = frequency_table(5), Workspace()
        rows = np.array([4, 0, 2, 1, 3])
        seen = [
            (block.batch.x[: block.num_records].copy(), block.multiplicities.copy(), block.num_records)
            for _ in range(2)
            for block in blocks(
                records, rows, num_rows=3, multiplicities=np.array([9, 8, 7, 6, 5]), workspace=workspace
            )
        ]
        assert [times.tolist() for _, times, _ in seen] == 2 * [[9, 8, 7], [6, 5, 0]]
        np.testing.assert_array_equal(np.vstack([x for x, _, _ in seen[:2]]), records.x[rows])


def test_units_are_records_not_rows():
    counted, whole = frequency_table(), expanded(frequency_table())
    assert (counted.num_records, counted.num_units) == (whole.num_records, whole.num_units)
    assert counted.num_records == counted.counts.sum()


def test_too_many_records_for_exact_sums_are_refused_by_their_number_not_their_rows():
    config = na.DPVIConfig(num_steps=2, sampling_rate=0.01)
    mechanism = make_mechanism(DESCRIPTION, privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5), config=config)
    records = Records(x=np.zeros((2, 4)), y=np.zeros(2), counts=np.array([2**38, 1]))
    steps = run(
        records,
        mechanism.settings,
        noise=OnTheGrid(dimension=DIMENSION),
        streams=make_streams(insecure_seed=None),
        keeper=Keeper(mechanism.settings),
    )
    with pytest.raises(PrivacyError, match="too many records"):
        next(steps)


class TestScore:
    def score(self, records, *, grid_units):
        noise = NoNoise(dimension=1)
        noise.grid_units = grid_units
        return private_score(
            records,
            description=DESCRIPTION,
            phi=np.full(DIMENSION, 0.3),
            bound=0.7,
            records_per_unit=1,
            noise=noise,
            rng=np.random.default_rng(4),
        )

    @pytest.mark.parametrize("grid_units", [None, GRID_UNITS])
    def test_it_counts_every_record(self, grid_units):
        records = frequency_table(2000)
        whole, counted = (self.score(r, grid_units=grid_units) for r in (expanded(records), records))
        assert counted == (pytest.approx(whole, rel=1e-12) if grid_units is None else whole)

    def test_one_record_more_moves_it_by_at_most_one(self):
        records = frequency_table()
        more = Records(x=records.x, y=records.y, counts=records.counts + (np.arange(9) == 4))
        assert 0.0 < abs(self.score(more, grid_units=2**24) - self.score(records, grid_units=2**24)) <= 1.0


def test_a_checkpoint_tells_counts_apart():
    mechanism = make_mechanism(
        DESCRIPTION, privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5), config=na.DPVIConfig(num_steps=3)
    )
    records = frequency_table()
    checkpoint = new_checkpoint(mechanism, records=records, secret=bytes(32), label="a", reading=Reading())
    checkpoint.check_records(frequency_table())
    others = (
        Records(x=records.x, y=records.y, counts=records.counts[::-1]),
        Records(x=records.x, y=records.y),
        expanded(records),
    )
    for other in others:
        with pytest.raises(PrivacyError, match="not that of the interrupted run"):
            checkpoint.check_records(other)


@pytest.mark.parametrize(
    "counts",
    [
        [1, 2],
        [1, 2, 0],
        [1, 2, -1],
        [1.0, 2.0, 3.0],
        [True, True, True],
        [[1, 2, 3]],
        5,
        [2**52, 2**52, 1],
        np.array([2**64 - 1, 1, 1], dtype=np.uint64),
        ["1", "2", "3"],
    ],
    ids=str,
)
def test_inconsistent_counts_are_refused(counts):
    with pytest.raises(DataError, match=r"^records need counts"):
        Records(x=np.zeros((3, 1)), y=np.zeros(3), counts=counts)


def test_counts_are_a_read_only_copy_and_not_for_persons():
    counts = np.array([1, 5, 2], dtype=np.uint8)
    records = Records(x=np.zeros((3, 1)), y=np.zeros(3), counts=counts)
    counts[:] = 9
    assert records.counts.tolist() == [1, 5, 2]
    assert records.counts.dtype == np.int64
    assert repr(records) == "Records(private)"
    with pytest.raises(ValueError, match="read-only"):
        records.counts[0] = 1
    with pytest.raises(DataError, match="either counts or unit_starts"):
        Records(x=np.zeros((3, 1)), y=np.zeros(3), counts=[1, 1, 1], unit_starts=[0, 3])


def as_multiset(rows):
    found = {}
    for x, y, count in zip(rows.x, rows.y, rows.counts, strict=True):
        key = (x.tobytes(), y.tobytes())
        found[key] = found.get(key, 0) + int(count)
    return found


class TestCollapse:
    """Equal rows become one; as a multiset the table stays what it was."""

    @staticmethod
    def table(dtype=np.float64, num_rows=500, seed=1):
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 3, (num_rows, 3)).astype(dtype) / 3
        x[x == 0] *= rng.choice([1.0, -1.0], (x == 0).sum()).astype(dtype)
        counts = rng.integers(1, 4, num_rows)
        return CountedRows(x, rng.integers(0, 2, num_rows).astype(float), counts)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_it_is_the_same_multiset_with_each_row_once(self, dtype):
        rows = self.table(dtype)
        merged = collapsed(rows)
        assert merged.x.dtype == dtype
        assert as_multiset(merged) == as_multiset(rows)
        assert len(merged.y) == len(as_multiset(rows)) < len(rows.y)
        # 0.0 and -0.0 differ in a bit, and stay apart.
        assert len(np.unique(np.column_stack([merged.x, merged.y]), axis=0)) < len(merged.y)

    def test_rows_keep_the_order_of_their_first_appearance(self):
        rows = CountedRows(np.array([[2.0], [1.0], [2.0], [3.0], [1.0]]), np.zeros(5), np.arange(1, 6))
        merged = collapsed(rows)
        assert (merged.x[:, 0].tolist(), merged.counts.tolist()) == ([2.0, 1.0, 3.0], [4, 7, 4])

    @pytest.mark.parametrize("num_hashes", [1, 2])
    def test_no_row_is_merged_for_its_hash(self, num_hashes, monkeypatch):
        monkeypatch.setattr(
            collapse, "_hashes", lambda rows: (np.arange(len(rows.y)) % num_hashes).astype(np.uint64)
        )
        monkeypatch.setattr(collapse, "_CHUNK", 7)
        rows = self.table()
        assert as_multiset(collapsed(rows)) == as_multiset(rows)

    def test_rows_that_all_differ_are_not_copied(self):
        rows = CountedRows(np.arange(6.0).reshape(3, 2), np.zeros(3), np.ones(3, dtype=int))
        assert collapsed(rows) is rows


def people(num_rows=400, seed=5):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 24, num_rows).astype(float),
            "job": rng.choice(["a", "b", "c"], num_rows),
            "y": rng.choice(["no", "yes"], num_rows),
        }
    )
    frame.loc[rng.random(num_rows) < 0.1, "age"] = np.nan
    return frame


class TestMakeRecords:
    DESIGN = make_design(SCHEMA, outcome="y")

    def test_collapse_merges_what_the_policies_leave(self):
        table = people()
        plain = make_records(table, self.DESIGN)
        records = make_records(table, self.DESIGN, collapse=True)
        assert len(records.y) == 4 * 3 * 2 < len(plain.y) < len(table)
        assert records.num_records == len(plain.y)
        rows = CountedRows(plain.x, plain.y, np.ones(len(plain.y), dtype=int))
        assert as_multiset(CountedRows(records.x, records.y, records.counts)) == as_multiset(rows)

    @pytest.mark.parametrize("part_rows", [1, 7, 1000])
    def test_the_order_and_the_parts_of_the_table_play_no_part_in_the_sums(self, part_rows, monkeypatch):
        table = people()
        monkeypatch.setattr("nadpvi.private.reading._FIRST_ROWS", 10)
        monkeypatch.setattr(
            "nadpvi.private.records.in_parts", lambda source: in_parts(source, part_rows=part_rows)
        )
        noise = OnTheGrid(dimension=DIMENSION)
        results = [
            one_step(make_records(rows, self.DESIGN, collapse=do), rate=1.0, noise=noise)
            for rows in (table, table.sample(frac=1.0, random_state=3))
            for do in (True, False)
        ]
        for other in results[1:]:
            np.testing.assert_array_equal(results[0], other)

    def test_rows_that_all_differ_need_no_counts(self):
        table = pd.DataFrame({"age": np.arange(50.0), "job": "a", "y": "no"})
        assert make_records(table, self.DESIGN, collapse=True).counts is None

    def test_persons_do_not_collapse(self):
        with pytest.raises(ArgumentError, match="collapse"):
            make_records(
                people().assign(id=1),
                self.DESIGN,
                person=na.schema.Person(column="id"),
                rng=np.random.default_rng(0),
                collapse=True,
            )
