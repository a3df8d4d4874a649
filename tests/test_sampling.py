"""Poisson subsampling: independent inclusions, whatever the route to them."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from nadpvi import ArgumentError
from nadpvi.privacy.randomness import check_seed, make_streams
from nadpvi.privacy.sampling import poisson_sample


def inclusion(num_records, rate, draws, rng):
    table = np.zeros((draws, num_records), dtype=bool)
    for t in range(draws):
        index = poisson_sample(rng, num_records=num_records, sampling_rate=rate)
        assert (np.diff(index) > 0).all()
        table[t, index] = True
    return table


@pytest.mark.parametrize("rate", [0.3, 0.02, 0.9])
def test_sizes_are_binomial_and_records_independent(rate):
    # Chi-square of sizes against the binomial and of all pairs against independence; p above 1e-4 each,
    # so a false alarm has probability below 1e-3 for the whole test. The seed is fixed.
    table = inclusion(20, rate, 6000, np.random.default_rng(5))
    sizes = table.sum(axis=1)
    expected = 6000 * stats.binom.pmf(np.arange(21), 20, rate)
    keep = expected > 5
    observed = np.bincount(sizes, minlength=21)
    pooled_o = np.append(observed[keep], observed[~keep].sum())
    pooled_e = np.append(expected[keep], expected[~keep].sum())
    used = pooled_e > 0.5
    statistic = ((pooled_o - pooled_e)[used] ** 2 / pooled_e[used]).sum()
    assert stats.chi2.sf(statistic, used.sum() - 1) > 1e-4
    standardised = (table - rate) / np.sqrt(rate * (1 - rate))
    correlation = standardised.T @ standardised / np.sqrt(6000)
    pairs = correlation[np.triu_indices(20, 1)]
    assert stats.chi2.sf((pairs**2).sum(), len(pairs)) > 1e-4
    marginal = standardised.mean(axis=0) * np.sqrt(6000)
    assert stats.chi2.sf((marginal**2).sum(), 20) > 1e-4


def test_a_fixed_batch_size_would_be_noticed():
    # The same pair statistic on samples of exactly 6 of 20: their negative correlation is found.
    rng = np.random.default_rng(5)
    table = np.zeros((6000, 20), dtype=bool)
    for row in table:
        row[rng.choice(20, 6, replace=False)] = True
    standardised = (table - 0.3) / np.sqrt(0.21)
    pairs = (standardised.T @ standardised / np.sqrt(6000))[np.triu_indices(20, 1)]
    assert stats.chi2.sf((pairs**2).sum(), len(pairs)) < 1e-10


def test_rate_one_takes_every_record():
    index = poisson_sample(np.random.default_rng(0), num_records=7, sampling_rate=1)
    np.testing.assert_array_equal(index, np.arange(7))


def test_empty_table_and_tiny_rate():
    rng = np.random.default_rng(0)
    assert len(poisson_sample(rng, num_records=0, sampling_rate=0.5)) == 0
    assert len(poisson_sample(rng, num_records=3, sampling_rate=1e-18)) == 0


def test_every_index_can_be_reached():
    rng = np.random.default_rng(0)
    seen = np.zeros(5, dtype=bool)
    for _ in range(200):
        seen[poisson_sample(rng, num_records=5, sampling_rate=0.2)] = True
    assert seen.all()


def test_real_streams_are_cryptographic_and_differ():
    first, second = make_streams(insecure_seed=None), make_streams(insecure_seed=None)
    assert type(first.subsample.bit_generator).__name__ == "ChaCha"
    assert first.subsample.bit_generator.state["state"]["rounds"] == 20
    assert first.noise is None
    assert first.subsample.integers(2**62) != second.subsample.integers(2**62)
    assert first.monte_carlo.integers(2**62) != second.monte_carlo.integers(2**62)


def test_seeded_streams_repeat_and_are_distinct():
    first, second = make_streams(insecure_seed=3), make_streams(insecure_seed=3)
    drawn = [stream.integers(2**62) for stream in (first.subsample, first.monte_carlo, first.noise)]
    again = [stream.integers(2**62) for stream in (second.subsample, second.monte_carlo, second.noise)]
    assert drawn == again
    assert len(set(drawn)) == 3


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "7", True, None])
def test_seed_rule(seed):
    with pytest.raises(ArgumentError, match="whole number from 0"):
        check_seed("seed", seed)


def test_numpy_seed_is_accepted():
    assert check_seed("seed", np.int64(3)) == 3


class Stub(np.random.Generator):
    """A generator whose geometric draws are given."""

    def __init__(self, gaps):
        super().__init__(np.random.PCG64(0))
        self.gaps = iter(gaps)

    def geometric(self, p, size):
        return np.array([next(self.gaps, 50) for _ in range(size)])


@pytest.mark.parametrize("gaps", [[0, 4, 3], [3, 0, 0, 2], [2**63 - 1], [1, 2**62, 2**62]])
def test_gaps_that_no_geometric_variable_has_do_no_harm(gaps):
    index = poisson_sample(Stub(gaps), num_records=30, sampling_rate=0.1)
    assert ((index >= 0) & (index < 30)).all()
    assert (np.diff(index) > 0).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_streams_made_before_a_fork_are_refused_after_it():
    """In a process of its own, since a fork copies all that its process holds."""
    code = (
        "import os\n"
        "from nadpvi.privacy.randomness import make_streams\n"
        "streams = make_streams(insecure_seed=None)\n"
        "streams.check_process()\n"
        "if os.fork() == 0:\n"
        "    try: streams.check_process()\n"
        "    except RuntimeError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "forked process" in done.stdout


class UnitGaps:
    """A generator whose gaps are all 1: every record enters."""

    def geometric(self, rate, *, size):
        return np.ones(size, dtype=np.int64)


@pytest.mark.parametrize("num_records", [1, 16, 17, 50, 5000])
def test_blocks_of_gaps_join_without_a_seam(num_records):
    """Far more gaps than one block holds."""
    index = poisson_sample(UnitGaps(), num_records=num_records, sampling_rate=1e-3)
    np.testing.assert_array_equal(index, np.arange(num_records))
