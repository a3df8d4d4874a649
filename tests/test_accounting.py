"""The privacy accountant against numbers known by other means."""

import json
import logging
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

from nadpvi.errors import ArgumentError
from nadpvi.privacy import accounting, accounting_cache, accounting_pld
from nadpvi.privacy.accounting import accountant, epsilon_spent, noise_multiplier
from nadpvi.privacy.accounting_bounds import central_limit_noise, total_variation
from nadpvi.privacy.accounting_cache import cached_number
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon, gaussian_mu
from nadpvi.privacy.accounting_loss import make_run
from nadpvi.privacy.accounting_pld import smallest_delta

SETTINGS = {"epsilon": 1.0, "delta": 1e-5, "num_steps": 1000, "sampling_rate": 0.1}
REPLACE = {"neighbouring_relation": "replace_one"}
SPENT = {"noise_multiplier": 12.0, "delta": 1e-5, "num_steps": 1000, "sampling_rate": 0.1}


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("accounting")


@pytest.fixture(autouse=True)
def _cache_dir(shared_cache, monkeypatch):
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(shared_cache))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """An empty cache for one test, and the folder its entries go to."""
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path))
    return tmp_path / "accounting"


@pytest.fixture
def count_accounting(monkeypatch):
    """Count the calls of the subsampled accountant."""
    calls = []

    def counted(**inputs):
        calls.append(inputs)
        return accounting_pld.pld_epsilon(**inputs)

    monkeypatch.setattr(accounting, "pld_epsilon", counted)
    return calls


def losses_on_grid(sigma, sampling_rate, points):
    """Probabilities and losses of one step on a grid of outputs, for removing and for adding."""
    x = np.linspace(-1 - 9 * sigma, 9 * sigma, points)
    log_without = norm.logpdf(x, 0, sigma)
    log_with = np.logaddexp(
        np.log1p(-sampling_rate) + log_without, np.log(sampling_rate) + norm.logpdf(x, -1, sigma)
    )
    weights = np.full(points, x[1] - x[0])
    return (
        (weights * np.exp(log_with), log_with - log_without),
        (weights * np.exp(log_without), log_without - log_with),
    )


def integrated_delta(epsilon, *, sigma, sampling_rate, num_steps, points):
    """delta(epsilon) as a trapezoidal integral over the outputs of all steps, worse of both directions."""
    worst = 0.0
    for probability, loss in losses_on_grid(sigma, sampling_rate, points):
        total, mass = loss, probability
        for _ in range(num_steps - 2):
            total, mass = np.add.outer(total, loss).ravel(), np.multiply.outer(mass, probability).ravel()
        if num_steps == 1:
            delta = float(mass @ np.maximum(-np.expm1(epsilon - total), 0))
        else:
            delta = sum(
                p * float(mass @ np.maximum(-np.expm1(epsilon - last - total), 0))
                for last, p in zip(loss, probability, strict=True)
            )
        worst = max(worst, delta)
    return worst


def gaussian_delta(mu, epsilon):
    """Theorem 8 of Balle and Wang, term by term."""
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))


@pytest.mark.parametrize(
    ("epsilon", "num_steps", "expected"),
    [(0.1, 10_000, 307.5), (0.3, 10_000, 112.40), (1.0, 10_000, 37.33), (0.1, 1000, 97.24), (0.1, 300, 53.3)],
)
def test_noise_multiplier_meets_known_values(epsilon, num_steps, expected):
    sigma = noise_multiplier(epsilon=epsilon, delta=1e-5, num_steps=num_steps, sampling_rate=0.1)
    assert sigma == pytest.approx(expected, rel=3e-3)


@pytest.mark.parametrize(("num_steps", "sampling_rate"), [(10_000, 0.1), (1000, 0.1), (50, 0.5)])
def test_noise_multiplier_is_enough_and_hardly_more(num_steps, sampling_rate):
    run = {"delta": 1e-5, "num_steps": num_steps, "sampling_rate": sampling_rate}
    sigma = noise_multiplier(epsilon=1.0, **run)
    assert epsilon_spent(noise_multiplier=sigma, **run) <= 1.0
    assert epsilon_spent(noise_multiplier=sigma * 0.998, **run) > 1.0
    assert float(f"{sigma:.6g}") == sigma


def test_noise_multiplier_at_full_batch_inverts_the_closed_form():
    sigma = noise_multiplier(epsilon=4.37718, delta=1e-5, num_steps=100, sampling_rate=1)
    assert sigma == 10.0


@pytest.mark.parametrize("sampling_rate", [1, 1.0, np.float64(1), np.int64(1)])
@pytest.mark.parametrize(("sigma", "num_steps"), [(10, 100), (1, 1), (2, 4)])
def test_full_batch_is_the_plain_gaussian_mechanism(sigma, num_steps, sampling_rate):
    spent = epsilon_spent(
        noise_multiplier=sigma, delta=1e-5, num_steps=num_steps, sampling_rate=sampling_rate
    )
    assert spent == pytest.approx(4.377178, abs=1e-6)


def test_full_batch_at_large_delta():
    one = {"num_steps": 1, "sampling_rate": 1}
    assert epsilon_spent(noise_multiplier=100, delta=0.01, **one) == 0.0
    assert epsilon_spent(noise_multiplier=100, delta=1e-3, **one) == pytest.approx(0.009048, abs=1e-6)
    assert epsilon_spent(noise_multiplier=1, delta=0.4, **one) == 0.0


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 1.0, 12.0, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-15, 1e-5, 0.3, 0.999])
def test_closed_form_inverts_itself_over_its_whole_range(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon > 0:
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)
    else:
        assert gaussian_delta(mu, 0.0) <= delta * (1 + 1e-9)
    if epsilon > 0 and delta > 1e-10 and 1e-3 < mu < 100:
        assert gaussian_delta(mu, epsilon) == pytest.approx(delta, rel=1e-5)


def test_tiny_mu_agrees_with_its_limit():
    # delta(epsilon = mu z) = mu (phi(z) - z Phi(-z)) to first order in mu.
    mu, z = 1e-7, 2.0
    delta = mu * (norm.pdf(z) - z * norm.sf(z))
    assert gaussian_epsilon(mu, delta) == pytest.approx(mu * z, rel=1e-5)


@pytest.mark.parametrize(
    ("sigma", "sampling_rate", "num_steps", "delta", "points"),
    [
        (1.0, 0.3, 1, 1e-4, 20_001),
        (0.5, 0.01, 1, 1e-5, 20_001),
        (2.0, 0.9, 1, 1e-8, 20_001),
        (1.0, 0.2, 2, 1e-4, 1501),
        (0.7, 0.05, 2, 1e-5, 1501),
        (1.5, 0.3, 3, 1e-4, 121),
        (4.0, 0.5, 3, 1e-3, 121),
    ],
)
def test_few_steps_agree_with_numerical_integration(sigma, sampling_rate, num_steps, delta, points):
    run = {"sigma": sigma, "sampling_rate": sampling_rate, "num_steps": num_steps, "points": points}
    spent = epsilon_spent(
        noise_multiplier=sigma, delta=delta, num_steps=num_steps, sampling_rate=sampling_rate
    )
    assert integrated_delta(spent * 1.001, **run) < delta
    assert integrated_delta(spent * 0.998, **run) > delta


def replaced_losses(sigma, sampling_rate, points):
    """Probabilities and losses of one step between a record and its opposite, on a grid of outputs."""
    x = np.linspace(-1 - 9 * sigma, 1 + 9 * sigma, points)
    log_one, log_other = (
        np.logaddexp(
            np.log1p(-sampling_rate) + norm.logpdf(x, 0, sigma),
            np.log(sampling_rate) + norm.logpdf(x, shift, sigma),
        )
        for shift in (-1, 1)
    )
    return np.exp(log_one) * (x[1] - x[0]), log_one - log_other


def integrated_replaced_delta(epsilon, *, sigma, sampling_rate, num_steps, points):
    """delta(epsilon) of replacing, as a trapezoidal integral over the outputs of one or two steps."""
    mass, loss = replaced_losses(sigma, sampling_rate, points)
    if num_steps == 1:
        return float(mass @ np.maximum(-np.expm1(epsilon - loss), 0))
    return sum(
        p * float(mass @ np.maximum(-np.expm1(epsilon - last - loss), 0))
        for last, p in zip(loss, mass, strict=True)
    )


@pytest.mark.parametrize(
    ("sigma", "sampling_rate", "num_steps", "delta", "points"),
    [
        (1.0, 0.3, 1, 1e-4, 20_001),
        (0.5, 0.01, 1, 1e-5, 20_001),
        (2.0, 0.9, 1, 1e-8, 20_001),
        (30.0, 0.1, 1, 1e-5, 20_001),
        (1.0, 0.2, 2, 1e-4, 1501),
        (0.7, 0.05, 2, 1e-5, 1501),
        (4.0, 0.5, 2, 1e-6, 1501),
    ],
)
def test_few_steps_of_replacing_agree_with_numerical_integration(
    sigma, sampling_rate, num_steps, delta, points
):
    run = {"sigma": sigma, "sampling_rate": sampling_rate, "num_steps": num_steps, "points": points}
    spent = epsilon_spent(
        noise_multiplier=sigma, delta=delta, num_steps=num_steps, sampling_rate=sampling_rate, **REPLACE
    )
    assert integrated_replaced_delta(spent * 1.001, **run) < delta
    assert integrated_replaced_delta(spent * 0.998, **run) > delta


@pytest.mark.parametrize("sigma", [0.6, 1.0, 3.0])
@pytest.mark.parametrize("sampling_rate", [0.1, 0.7])
def test_no_two_records_are_told_apart_more_easily_than_opposite_ones(sigma, sampling_rate):
    # In the plane, as two vectors and 0 never span more.
    x, y = np.meshgrid(*[np.linspace(-1 - 8 * sigma, 1 + 8 * sigma, 301)] * 2)
    cell = (x[0, 1] - x[0, 0]) ** 2

    def density(w):
        def normal(a, b):
            return np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * sigma**2)) / (2 * np.pi * sigma**2)

        return (1 - sampling_rate) * normal(0, 0) + sampling_rate * normal(*w)

    def divergence(one, other, alpha):
        return float(np.maximum(one - alpha * other, 0).sum()) * cell

    up, down = density((1, 0)), density((-1, 0))
    angles = (0.3, 0.5, 0.8, 1.0)
    others = [(r * np.cos(a * np.pi), r * np.sin(a * np.pi)) for a in angles for r in (0.0, 0.5, 1.0)]
    for alpha in (0.3, 0.8, 1.0, 1.5, 4.0):
        worst = divergence(up, down, alpha)
        assert worst == pytest.approx(divergence(down, up, alpha), abs=1e-9)
        for other in others:
            for length in (0.4, 1.0):
                one = density((length, 0))
                assert divergence(one, density(other), alpha) <= worst + 1e-7
                assert divergence(density(other), one, alpha) <= worst + 1e-7
    # A right angle is already strictly harder to tell.
    assert divergence(up, density((0, 1)), 1.0) < divergence(up, down, 1.0) - 1e-3


@pytest.mark.parametrize(("sigma", "num_steps"), [(20, 100), (2, 1), (4, 4)])
def test_replacing_at_full_batch_doubles_the_sensitivity(sigma, num_steps):
    run = {"delta": 1e-5, "num_steps": num_steps, "sampling_rate": 1}
    assert epsilon_spent(noise_multiplier=sigma, **run, **REPLACE) == pytest.approx(4.377178, abs=1e-6)
    assert noise_multiplier(epsilon=4.37718, **run, **REPLACE) == sigma


@pytest.mark.parametrize(
    ("sigma", "sampling_rate", "num_steps"),
    [(12.0, 0.1, 1000), (0.8, 0.01, 50), (2.0, 0.3, 3), (40.0, 0.5, 200)],
)
def test_replacing_lies_between_removing_and_a_group_of_two(sigma, sampling_rate, num_steps):
    run = {"noise_multiplier": sigma, "num_steps": num_steps, "sampling_rate": sampling_rate}
    replaced = epsilon_spent(delta=1e-5, **run, **REPLACE)
    assert replaced >= epsilon_spent(delta=1e-5, **run)
    # Removing and then adding: delta (1 + exp(epsilon)) at twice epsilon; delta must solve for it.
    small = brentq(
        lambda log_delta: (
            log_delta + np.logaddexp(0, epsilon_spent(delta=math.exp(log_delta), **run)) - math.log(1e-5)
        ),
        math.log(1e-11),
        math.log(1e-5),
        xtol=1e-3,
    )
    assert replaced <= 2 * epsilon_spent(delta=math.exp(small - 1e-2), **run)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("num_steps", [319, 1000, 3897, 20_681])
def test_rounding_never_brings_epsilon_below_the_exact_value(num_steps, relation):
    """At the smallest delta that is accepted, where the rounding of the FFT weighs most."""
    for mu in (0.7, 1.3, 1.99, 2.6):
        sensitivity = 2.0 if relation == "replace_one" else 1.0
        run = {
            "noise_multiplier": sensitivity * math.sqrt(num_steps) / mu,
            "delta": smallest_delta(num_steps),
            "num_steps": num_steps,
            "neighbouring_relation": relation,
        }
        exact = epsilon_spent(sampling_rate=1, **run)
        assert epsilon_spent(sampling_rate=1 - 1e-12, **run) >= exact


def test_replacing_just_below_full_batch_meets_the_closed_form():
    for num_steps in (1, 100, 20_000):
        run = {"noise_multiplier": 6 * math.sqrt(num_steps), "delta": 1e-5, "num_steps": num_steps} | REPLACE
        exact = epsilon_spent(sampling_rate=1, **run)
        assert exact <= epsilon_spent(sampling_rate=1 - 1e-12, **run) <= exact * 1.001


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_replacing_over_many_steps_approaches_its_central_limit(epsilon):
    mu = brentq(lambda mu: gaussian_delta(mu, epsilon) - 1e-5, 1e-3, 10)
    # mu^2 = T q^2 integral of (f_-1 - f_1)^2 / f_0 = 4 T q^2 sinh(1 / sigma^2)
    limit = 1 / math.sqrt(math.asinh((mu / 0.1) ** 2 / 4 / 10_000))
    sigma = noise_multiplier(epsilon=epsilon, delta=1e-5, num_steps=10_000, sampling_rate=0.1, **REPLACE)
    assert sigma == pytest.approx(limit, rel=1e-3)
    assert sigma == pytest.approx({0.1: 615.04, 1.0: 74.618}[epsilon], rel=1e-3)
    start = central_limit_noise(mu, num_steps=10_000, sampling_rate=0.1, relation="replace_one")
    assert start == pytest.approx(limit, rel=1e-9)


def test_replacing_is_enough_and_hardly_more():
    run = {"delta": 1e-5, "num_steps": 1000, "sampling_rate": 0.1} | REPLACE
    sigma = noise_multiplier(epsilon=1.0, **run)
    assert epsilon_spent(noise_multiplier=sigma, **run) <= 1.0
    assert epsilon_spent(noise_multiplier=sigma * 0.998, **run) > 1.0
    assert accounting.epsilon_accounted_afresh(noise_multiplier=sigma, **run) == epsilon_spent(
        noise_multiplier=sigma, **run
    )


def test_the_relation_is_part_of_the_cache_key(own_cache, count_accounting):
    removed = epsilon_spent(**SPENT)
    assert epsilon_spent(**SPENT, **REPLACE) > 1.5 * removed
    assert len(count_accounting) == 2
    assert epsilon_spent(**SPENT) == removed
    assert len(count_accounting) == 2


def test_replacing_never_moves_further_than_its_total_variation():
    for sigma, rate, steps in ((1.0, 0.3, 1), (0.05, 0.2, 1), (3.0, 0.1, 2), (40.0, 0.3, 2)):
        points = 1501 if steps == 2 else 40_001
        moved = integrated_replaced_delta(
            0.0, sigma=sigma, sampling_rate=rate, num_steps=steps, points=points
        )
        bound = total_variation([(sigma, rate, steps)], "replace_one")
        assert moved <= bound * (1 + 1e-6)
        assert bound <= 2.5 * moved


def test_replacing_spends_nothing_only_where_delta_covers_it():
    run = {"noise_multiplier": 1, "num_steps": 1, "sampling_rate": 0.1}
    exact = 0.1 * (2 * norm.cdf(1) - 1)
    assert epsilon_spent(delta=exact * 1.001, **run, **REPLACE) == 0.0
    assert epsilon_spent(delta=exact * 0.99, **run, **REPLACE) > 0.0
    assert epsilon_spent(delta=exact * 0.99, **run) == 0.0


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_many_steps_approach_the_central_limit(epsilon):
    mu = brentq(lambda mu: gaussian_delta(mu, epsilon) - 1e-5, 1e-3, 10)
    limit = 1 / math.sqrt(math.log1p((mu / 0.1) ** 2 / 10_000))
    sigma = noise_multiplier(epsilon=epsilon, delta=1e-5, num_steps=10_000, sampling_rate=0.1)
    assert sigma == pytest.approx(limit, rel=0.02)


@pytest.mark.parametrize(
    ("sigma", "sampling_rate", "num_steps"), [(1.1, 256 / 60_000, 14_000), (12.0, 0.1, 1000), (0.8, 0.01, 50)]
)
def test_renyi_accounting_is_an_upper_bound(sigma, sampling_rate, num_steps):
    import dp_accounting

    renyi = dp_accounting.rdp.RdpAccountant()
    renyi.compose(
        dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(sampling_rate, dp_accounting.GaussianDpEvent(sigma)),
            num_steps,
        )
    )
    bound = renyi.get_epsilon(1e-5)
    spent = epsilon_spent(
        noise_multiplier=sigma, delta=1e-5, num_steps=num_steps, sampling_rate=sampling_rate
    )
    assert 0.5 * bound < spent < bound


def test_sampling_rate_just_below_one_meets_the_closed_form():
    for num_steps in (1, 100, 20_000):
        run = {"noise_multiplier": 3 * math.sqrt(num_steps), "delta": 1e-5, "num_steps": num_steps}
        exact = epsilon_spent(sampling_rate=1, **run)
        assert exact <= epsilon_spent(sampling_rate=1 - 1e-12, **run) <= exact * 1.001


def test_many_steps_composed_in_blocks_meet_the_closed_form():
    # 199,999 is prime: the last, shorter block is covered too.
    run = {"noise_multiplier": 1500.0, "delta": 1e-6, "num_steps": 199_999}
    exact = epsilon_spent(sampling_rate=1, **run)
    assert exact <= epsilon_spent(sampling_rate=1 - 1e-12, **run) <= exact * 1.001


def test_monotone_in_every_argument():
    base = epsilon_spent(**SPENT)
    assert epsilon_spent(**SPENT | {"noise_multiplier": 13.0}) < base
    assert epsilon_spent(**SPENT | {"num_steps": 1100}) > base
    assert epsilon_spent(**SPENT | {"sampling_rate": 0.11}) > base
    assert noise_multiplier(**SETTINGS | {"epsilon": 0.5}) > noise_multiplier(**SETTINGS)


@pytest.mark.parametrize("sampling_rate", [0.1, 1])
def test_never_increases_with_delta(sampling_rate):
    deltas = np.concatenate([np.geomspace(1e-11, 0.9, 7), np.geomspace(1e-5, 1.01e-5, 3)])
    deltas.sort()
    run = {"noise_multiplier": 12.0, "num_steps": 1000, "sampling_rate": sampling_rate}
    spent = [epsilon_spent(delta=delta, **run) for delta in deltas]
    assert all(np.diff(spent) <= 0)
    assert spent[0] > 1
    assert spent[-1] == 0.0


def test_zero_where_delta_covers_the_total_variation():
    assert epsilon_spent(noise_multiplier=1, delta=1e-3, num_steps=1, sampling_rate=0.00105) == 0.0
    assert epsilon_spent(noise_multiplier=1e9, delta=1e-5, num_steps=10**6, sampling_rate=0.5) == 0.0


def test_pinsker_shortcut_is_not_below_the_truth():
    # Just above the shortcut's bound on delta, the closed form must already be at zero too.
    mu = 0.01
    bound = total_variation([(math.sqrt(100) / mu, 1.0, 100)], "add_or_remove_one")
    assert gaussian_delta(mu, 0.0) <= bound


EXTREMES = """
import json, resource, sys
from nadpvi.errors import ArgumentError
from nadpvi.privacy.accounting import epsilon_spent, noise_multiplier
for call in json.loads(sys.argv[1]):
    name = call.pop("name")
    function = {"noise_multiplier": noise_multiplier, "epsilon_spent": epsilon_spent}[name]
    try:
        print(json.dumps(function(**call)))
    except ArgumentError as error:
        print(json.dumps(str(error)))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


def test_extremes_end_in_bounded_memory_with_a_number_or_the_range():
    half = {"name": "noise_multiplier", "delta": 1e-5, "num_steps": 1000, "sampling_rate": 0.5}
    calls = [
        half | {"epsilon": 1e-4},
        half | {"epsilon": 0.01},
        half | {"epsilon": 1e3},
        half | {"epsilon": 1e-9},
        half | {"epsilon": 1e6},
        half | {"epsilon": 1.0, "delta": 1e-15},
        {
            "name": "epsilon_spent",
            "noise_multiplier": 0.3,
            "delta": 1e-5,
            "num_steps": 500,
            "sampling_rate": 0.05,
        },
        {
            "name": "epsilon_spent",
            "noise_multiplier": 1e6,
            "delta": 1e-8,
            "num_steps": 10**6,
            "sampling_rate": 0.5,
        },
        half | {"epsilon": 1e-4, "neighbouring_relation": "replace_one"},
        half | {"epsilon": 1e3, "neighbouring_relation": "replace_one"},
    ]
    done = subprocess.run(
        [sys.executable, "-c", EXTREMES, json.dumps(calls)], capture_output=True, text=True, check=True
    )
    *answers, peak = [json.loads(line) for line in done.stdout.splitlines()]
    assert answers[0] == pytest.approx(148_228, rel=3e-3)
    assert answers[1] == pytest.approx(3_855, rel=3e-3)
    assert answers[2] == pytest.approx(0.4706, rel=3e-3)
    assert answers[3].startswith("epsilon must be at least about ")
    assert answers[4].startswith("epsilon must be at most 7.08")
    assert answers[5].startswith("delta must be at least 5e-12")
    assert answers[6] == pytest.approx(164.53, rel=1e-3)
    assert answers[7].startswith("noise_multiplier 1e+06 cannot be accounted")
    assert answers[8] == pytest.approx(296_455, rel=3e-3)
    assert answers[9] == pytest.approx(0.6339, rel=3e-3)
    assert done.stderr == ""
    assert peak < 2e9


def test_the_range_named_by_a_refusal_is_reachable():
    with pytest.raises(ArgumentError, match="at least about") as refusal:
        noise_multiplier(**SETTINGS | {"epsilon": 1e-9})
    named = float(str(refusal.value).split("about ")[1].split(" ")[0])
    assert noise_multiplier(**SETTINGS | {"epsilon": 1.1 * named}) > 1


@pytest.mark.parametrize(
    ("function", "name", "value", "rule"),
    [
        *[
            ("noise", "epsilon", bad, "finite and positive")
            for bad in (0, None, math.inf, math.nan, -1, "1", True)
        ],
        *[("noise", "delta", bad, r"in \(0, 1\)") for bad in (math.nan, 0, 1, 2, -1e-5, "1e-5", None)],
        *[
            ("noise", "num_steps", bad, "whole number of at least 1")
            for bad in (0, -1, 2.5, True, None, math.nan)
        ],
        *[("noise", "sampling_rate", bad, r"in \(0, 1\]") for bad in (0, 1.5, math.nan, "0.1", None, -0.1)],
        *[
            ("spent", "noise_multiplier", bad, "at least 0.001")
            for bad in (0, -1, math.nan, math.inf, None, "1")
        ],
        *[("spent", "delta", bad, r"in \(0, 1\)") for bad in (math.nan, 0, 1, "1e-5")],
        ("spent", "num_steps", np.bool_(True), "whole number"),
        ("spent", "num_steps", 10**13, "at most"),
        ("spent", "num_steps", 10**7, "at most 1,000,000"),
        ("spent", "noise_multiplier", 0.01, "at least 0.02"),
        ("noise", "delta", 1e-13, "at least 5e-12"),
        *[
            (call, "neighbouring_relation", bad, '"add_or_remove_one" or "replace_one"')
            for call in ("noise", "spent")
            for bad in ("replace", None, 2)
        ],
    ],
)
def test_nonsense_is_refused_by_name(function, name, value, rule, own_cache):
    call, base = {"noise": (noise_multiplier, SETTINGS), "spent": (epsilon_spent, SPENT)}[function]
    with pytest.raises(ArgumentError, match=f"^{name} must be .*{rule}") as refusal:
        call(**base | {name: value})
    assert "\n" not in str(refusal.value)
    assert not own_cache.exists()


def test_refuses_a_delta_that_covers_every_exposure():
    with pytest.raises(ArgumentError, match="probability that a record is used at all"):
        noise_multiplier(epsilon=1.0, delta=0.4, num_steps=1000, sampling_rate=1e-5)


def test_refuses_an_epsilon_that_no_closed_form_noise_reaches():
    with pytest.raises(ArgumentError, match=r"^epsilon must be at most"):
        noise_multiplier(epsilon=1e9, delta=1e-5, num_steps=1, sampling_rate=1)
    with pytest.raises(ArgumentError, match=r"^epsilon must be below"):
        noise_multiplier(epsilon=1e30, delta=1e-5, num_steps=1, sampling_rate=1)


def test_accepts_numpy_numbers():
    run = {
        "noise_multiplier": np.float32(12),
        "delta": np.float64(1e-5),
        "num_steps": np.int32(1000),
        "sampling_rate": np.float64(0.1),
    }
    assert epsilon_spent(**run) == epsilon_spent(**SPENT)


def test_accountant_says_which_one_served():
    assert accountant(1)[0].startswith("analytic Gaussian")
    assert accountant(0.1, neighbouring_relation="replace_one")[0].endswith("substitution")
    name, version = accountant(0.1)
    assert "dp-accounting" in name
    assert version.startswith("0.6")


def test_second_call_is_read_from_disk(own_cache, count_accounting):
    first = epsilon_spent(**SPENT)
    assert len(count_accounting) == 1
    assert epsilon_spent(**SPENT) == first
    assert len(count_accounting) == 1
    assert len(list(own_cache.iterdir())) == 1


def test_noise_multiplier_is_read_from_disk(own_cache, count_accounting, monkeypatch):
    first = noise_multiplier(**SETTINGS)
    done = len(count_accounting)

    def fail(**_):
        raise AssertionError("calibrated again")

    monkeypatch.setattr(accounting, "calibrated_noise", fail)
    assert noise_multiplier(**SETTINGS) == first
    assert len(count_accounting) == done


def only_entry(folder: Path) -> Path:
    (entry,) = folder.iterdir()
    return entry


def altered(text: str, **changes: object) -> str:
    return json.dumps(json.loads(text) | changes)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "null",
        lambda text: "[" * 100_000,
        lambda text: "\ud800",
        lambda text: altered(text, value=0.5),
        lambda text: altered(text, value=math.nan),
        lambda text: altered(text, value=None),
        lambda text: altered(text, key={}),
        lambda text: altered(text, check="0"),
        lambda text: text.replace('"num_steps": 1000', '"num_steps": 10'),
    ],
)
def test_damaged_entry_is_computed_again_and_mended(damage, own_cache, count_accounting):
    first = epsilon_spent(**SPENT)
    entry = only_entry(own_cache)
    whole = entry.read_text()
    entry.write_bytes(damage(whole).encode("utf-8", "surrogatepass"))
    assert epsilon_spent(**SPENT) == first
    assert len(count_accounting) == 2
    assert entry.read_text() == whole


def test_every_input_and_version_is_part_of_the_key(own_cache, monkeypatch):
    base = {"a": 1.0, "b": 2}
    assert cached_number("f", base, compute=lambda: 1.0) == 1.0
    assert cached_number("g", base, compute=lambda: 2.0) == 2.0
    assert cached_number("f", base | {"a": math.nextafter(1.0, 2)}, compute=lambda: 3.0) == 3.0
    monkeypatch.setattr(accounting_cache, "ALGORITHM_VERSION", -1)
    assert cached_number("f", base, compute=lambda: 4.0) == 4.0
    monkeypatch.setattr(accounting_cache, "dp_accounting_version", lambda: "0")
    assert cached_number("f", base, compute=lambda: 5.0) == 5.0
    monkeypatch.undo()


def test_unwritable_cache_is_no_cache(tmp_path, monkeypatch, count_accounting, caplog):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(blocked))
    with caplog.at_level(logging.DEBUG, logger="nadpvi"):
        first = epsilon_spent(**SPENT)
        assert epsilon_spent(**SPENT) == first
    assert len(count_accounting) == 2
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


def test_folder_in_the_place_of_an_entry_is_no_cache(own_cache):
    assert cached_number("f", {"a": 1}, compute=lambda: 1.0) == 1.0
    entry = only_entry(own_cache)
    entry.unlink()
    entry.mkdir()
    assert cached_number("f", {"a": 1}, compute=lambda: 2.0) == 2.0
    assert only_entry(own_cache) == entry


def test_writers_at_once_leave_one_whole_entry(own_cache):
    with ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda _: cached_number("f", {"a": 1}, compute=lambda: 1.5), range(200)))
    assert set(values) == {1.5}
    assert json.loads(only_entry(own_cache).read_text())["value"] == 1.5


def test_failed_computation_leaves_nothing(own_cache):
    def fail():
        raise ArgumentError("no")

    with pytest.raises(ArgumentError):
        cached_number("f", {"a": 1}, compute=fail)
    assert not own_cache.exists()


def test_import_of_the_accountant_is_lazy():
    code = "import nadpvi.privacy.guarantee, sys; assert 'dp_accounting' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_replaced_loss_spread_matches_an_independent_grid():
    run = make_run(0.8, num_steps=10, sampling_rate=0.05, neighbouring_relation="replace_one")
    (loss,) = run.losses
    probability, values = replaced_losses(0.8, 0.05, 20_001)
    assert loss.sd == pytest.approx(math.sqrt(probability @ (values - probability @ values) ** 2), rel=1e-3)


def test_loss_spread_matches_an_independent_grid():
    run = make_run(0.8, num_steps=10, sampling_rate=0.05)
    for loss, (probability, values) in zip(run.losses, losses_on_grid(0.8, 0.05, 20_001), strict=True):
        mean = probability @ values
        assert loss.sd == pytest.approx(math.sqrt(probability @ (values - mean) ** 2), rel=1e-3)
        assert float(logsumexp(loss.log_weight)) == pytest.approx(0, abs=1e-12)
