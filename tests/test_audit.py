"""The guarantee attacked from outside: what traces of neighbouring data sets tell apart, and how surely.

Each test runs the real code thousands of times on two data sets that differ in one record, and turns what
an auditor can tell from the traces into a lower bound on epsilon (`audit_bounds`). For the code as it is
the bound must stay below what is claimed; for code with one deliberate fault (`audit_mutants`) it must
exceed it. The worst record, the data sets and the statistics are in `audit_pairs`.

Errors. Every bound here is wrong with probability at most `MISS` = 1e-7 on its own, so a sound mechanism
fails a run of the seven unseeded tests of it with probability below 1e-6, and a bound above the claim is
proof of a fault at that confidence. Conversely the number of runs is such that a fault is found. Repeated on
simulated numbers (120 times for half the noise, 16 times for the others tried without a seed on one record),
the bound's mean lay 7.6 of its standard deviations above the claim for half the noise and over 20 for the
rest; taken as normal, that is a miss below 1e-6. The sampler's faults leave less room, and are tried on
seeded streams, whose verdict cannot change by chance.
``benchmarks/audit.py`` does the same at full size.
"""

import contextlib

import numpy as np
import pytest
from audit_bounds import epsilon_bound, lower_bound
from audit_mutants import MUTANTS
from audit_pairs import ALONE, CROWD, OPPOSED, PERSON, Claim, audit
from scipy import stats

import nadpvi as na

MISS = 1e-7
CLAIM = Claim(epsilon=1.0, delta=0.02, num_steps=3, sampling_rate=0.25)
REPLACE = Claim(epsilon=1.0, delta=0.02, num_steps=3, sampling_rate=0.25, relation="replace_one")
FULL = Claim(epsilon=1.0, delta=0.02, num_steps=1, sampling_rate=1.0)
TWO_ROWS = Claim(epsilon=1.0, delta=0.02, num_steps=2, sampling_rate=0.5, person_rows=2)


@pytest.mark.parametrize(
    ("claim", "pair", "runs"),
    [
        pytest.param(CLAIM, ALONE, 6000, id="one record or two"),
        pytest.param(CLAIM, CROWD, 2000, id="100 records or 101"),
        pytest.param(CLAIM, OPPOSED, 2000, id="20 records against the 21st"),
        pytest.param(FULL, ALONE, 6000, id="every record in one step"),
        pytest.param(REPLACE, ALONE, 3000, id="one record or its opposite"),
        pytest.param(TWO_ROWS, PERSON, 3000, id="one person or two"),
    ],
)
def test_the_exact_road_keeps_its_claim(claim, pair, runs):
    bound = audit(pair, claim, runs=runs, miss_probability=MISS)
    assert bound.epsilon < claim.epsilon, bound


@pytest.mark.parametrize(
    ("name", "runs", "seed"),
    [
        ("noise on the mean (expected batch)", 1500, None),
        ("noise on the mean (realised batch)", 1500, None),
        ("no clipping", 1500, None),
        ("half the noise", 8000, None),
        ("noise reused at every step", 1500, None),
        ("noise reused by every run", 1500, None),
        ("every record at every step", 3000, 23),
        ("three times the sampling rate", 6000, 21),
        ("fixed-size batches", 6000, 22),
    ],
)
def test_a_broken_mechanism_is_caught(name, runs, seed):
    with MUTANTS[name].apply():
        bound = audit(MUTANTS[name].pair, CLAIM, runs=runs, miss_probability=MISS, seed=seed)
    assert bound.epsilon > CLAIM.epsilon, bound


def test_a_person_with_more_rows_than_declared_is_caught():
    with MUTANTS["all rows of a person"].apply():
        bound = audit(PERSON, TWO_ROWS, runs=1500, miss_probability=MISS)
    assert bound.epsilon > TWO_ROWS.epsilon, bound


@pytest.mark.parametrize(
    ("name", "runs"), [(None, 400), ("noise on the mean (expected batch)", 600)], ids=["sound", "broken"]
)
def test_releases_as_users_make_them(name, runs):
    """The same through `nadpvi.release`: table, schema, budget in, trace out."""
    fault = contextlib.nullcontext() if name is None else MUTANTS[name].apply()
    with fault:
        bound = audit(CROWD, CLAIM, runs=runs, miss_probability=MISS, through_release=True)
    assert (bound.epsilon > CLAIM.epsilon) == (name is not None), bound


class TestTheBoundItself:
    """An auditor's arithmetic, checked against cases with a known answer."""

    def test_extreme_counts(self):
        # All of n against none of n: the limits are (a/2)^(1/n) and 1 - (a/2)^(1/n).
        low = 0.005 ** (1 / 100)
        bound = epsilon_bound(np.array(100), np.array(0), runs=100, delta=0.1, miss_probability=0.01)
        assert bound == pytest.approx(np.log((low - 0.1) / (1 - low)))
        never = epsilon_bound(np.array(0), np.array(100), runs=100, delta=0.1, miss_probability=0.01)
        assert never == -np.inf

    def test_the_limits_are_those_of_clopper_and_pearson(self):
        exact = [stats.binomtest(k, 50).proportion_ci(0.95, method="exact") for k in (17, 4)]
        bound = epsilon_bound(np.array(17), np.array(4), runs=50, delta=0.0, miss_probability=0.05)
        assert bound == pytest.approx(np.log(exact[0].low / exact[1].high))

    @pytest.mark.parametrize("swapped", [False, True])
    def test_it_is_too_large_no_more_often_than_stated(self, swapped):
        """One step of the Gaussian mechanism at a known epsilon, with a useless statistic beside the best.

        300 audits that may be wrong with probability 0.2 each, in either direction of the neighbours. The
        seed is fixed.
        """
        rng = np.random.default_rng(5)
        sigma, delta = 1.5, 0.02
        epsilon = na.epsilon_spent(noise_multiplier=sigma, delta=delta, num_steps=1, sampling_rate=1)
        bounds = []
        for _ in range(300):
            samples = [
                {"projection": shift + sigma * rng.standard_normal(2000), "none": rng.standard_normal(2000)}
                for shift in ((0.0, 1.0) if swapped else (1.0, 0.0))
            ]
            bounds.append(lower_bound(*samples, delta=delta, miss_probability=0.2))
        too_large = sum(bound.epsilon > epsilon for bound in bounds)
        assert too_large <= 60
        assert np.median([bound.epsilon for bound in bounds]) > 0.5 * epsilon
        assert {bound.statistic for bound in bounds} == {"projection"}
