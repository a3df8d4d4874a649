"""Private choice among candidates, against its theorem computed anew and against a case solved exactly."""

import logging
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import chisquare, norm

from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy.accounting import epsilon_spent
from nadpvi.privacy.selection import Selection, draw_num_runs
from nadpvi.privacy.selection_accounting import (
    SelectedRun,
    composed_selection_epsilon,
    selection_accountant,
    selection_epsilon,
    selection_noise_multiplier,
)

DELTA = 1e-5
TEN = Selection(mean_runs=10, score_noise_multiplier=30.0)
SETTINGS = {"noise_multiplier": 30.0, "delta": DELTA, "num_steps": 1000, "sampling_rate": 0.1}


def step_divergence(order, *, sigma, rate):
    """Renyi divergence of a subsampled Gaussian step from no record at all, by quadrature."""
    x = np.linspace(-12 * sigma, order + 12 * sigma, 400_001)
    log_ratio = np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * sigma**2))
    log_mass = norm.logpdf(x, 0, sigma) + math.log(x[1] - x[0])
    return float(logsumexp(order * log_ratio + log_mass)) / (order - 1)


def theorem_2(divergence, *, orders, mean, delta):
    """Papernot and Steinke's Theorem 2 at eta = 1, then from Renyi to (epsilon, delta): Proposition 12 of
    Canonne, Kamath and Steinke (2020)."""
    single = {a: divergence(a) for a in orders}
    common = 2 * min((1 - 1 / a) * single[a] + math.log(mean) / a for a in orders)
    best = {a: single[a] + common + math.log(mean) / (a - 1) for a in orders}
    return min(best[a] + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in orders)


@pytest.mark.parametrize(
    ("sigma", "steps", "rate", "mean", "score"),
    [(30.0, 1000, 0.1, 10.0, 30.0), (5.0, 50, 0.3, 3.0, 8.0), (2.0, 40, 0.02, 25.5, 40.0)],
)
def test_the_theorem_computed_anew_gives_the_same(sigma, steps, rate, mean, score):
    def once(order):
        return steps * step_divergence(order, sigma=sigma, rate=rate) + order / (2 * score**2)

    expected = theorem_2(once, orders=range(2, 64), mean=mean, delta=DELTA)
    found = selection_epsilon(
        noise_multiplier=sigma,
        delta=DELTA,
        num_steps=steps,
        sampling_rate=rate,
        selection=Selection(mean_runs=mean, score_noise_multiplier=score),
    )
    # Orders above 63 may do a little better, or help the common term.
    assert expected * 0.97 <= found <= expected * (1 + 1e-6)


def test_the_bound_lies_above_a_case_solved_exactly():
    # All is in the score: best of K draws of Normal(0 or 1, sigma^2), K geometric with mean m, whose
    # generating function is G(z) = p z / (1 - (1 - p) z), p = 1 / m; the best has density G'(F(y)) f(y).
    sigma, mean, delta = 4.0, 8.0, 1e-3
    y = np.linspace(-12 * sigma, 1 + 12 * sigma, 400_001)

    def log_density(shift):
        survival = norm.sf(y, shift, sigma)
        # 1 - (1 - p) F = p + (1 - p) (1 - F)
        slope = (1 / mean) / (1 / mean + (1 - 1 / mean) * survival) ** 2
        return np.log(slope) + norm.logpdf(y, shift, sigma)

    without, present = log_density(0.0), log_density(1.0)
    width = y[1] - y[0]
    assert np.exp(without).sum() * width == pytest.approx(1.0, abs=1e-6)

    def exact(epsilon):
        return max(
            float(np.maximum(np.exp(one) - np.exp(epsilon + other), 0.0).sum()) * width
            for one, other in ((without, present), (present, without))
        )

    bound = selection_epsilon(
        noise_multiplier=1e6,
        delta=delta,
        num_steps=1,
        sampling_rate=1,
        selection=Selection(mean_runs=mean, score_noise_multiplier=sigma),
    )
    assert exact(bound) <= delta
    # A single run is no bound for the best of several.
    one = epsilon_spent(noise_multiplier=sigma, delta=delta, num_steps=1, sampling_rate=1)
    assert exact(one) > delta
    assert exact(bound / 5) > delta


def test_more_of_anything_costs_more():
    base = selection_epsilon(**SETTINGS, selection=TEN)
    assert base > 2 * epsilon_spent(**SETTINGS)
    more_runs = Selection(mean_runs=20, score_noise_multiplier=30.0)
    louder = Selection(mean_runs=10, score_noise_multiplier=5.0)
    assert selection_epsilon(**SETTINGS, selection=more_runs) > base
    assert selection_epsilon(**SETTINGS, selection=louder) > base
    assert selection_epsilon(**SETTINGS | {"num_steps": 1100}, selection=TEN) > base
    assert selection_epsilon(**SETTINGS | {"sampling_rate": 0.11}, selection=TEN) > base
    assert selection_epsilon(**SETTINGS | {"noise_multiplier": 28.0}, selection=TEN) > base
    assert selection_epsilon(**SETTINGS | {"delta": 1e-6}, selection=TEN) > base
    assert base < selection_epsilon(**SETTINGS, selection=TEN, discreteness=1e-3) < base + 0.02


@pytest.mark.parametrize(("epsilon", "rate"), [(1.0, 0.1), (0.3, 0.1), (4.0, 1.0)])
def test_noise_is_enough_and_hardly_more(epsilon, rate):
    selection = Selection(mean_runs=5, score_noise_multiplier=100.0)
    run = {"delta": DELTA, "num_steps": 200, "sampling_rate": rate, "selection": selection}
    sigma = selection_noise_multiplier(epsilon=epsilon, **run)
    assert selection_epsilon(noise_multiplier=sigma, **run) <= epsilon
    assert selection_epsilon(noise_multiplier=sigma * 0.999, **run) > epsilon
    assert float(f"{sigma:.6g}") == sigma


def test_a_budget_that_the_scores_alone_exceed_is_refused():
    loud = Selection(mean_runs=10, score_noise_multiplier=1.0)
    with pytest.raises(ArgumentError, match=r"^epsilon must be at least .* more noise on the score"):
        selection_noise_multiplier(epsilon=1.0, delta=DELTA, num_steps=10, sampling_rate=1, selection=loud)


def test_choices_compose_through_renyi():
    run = SelectedRun(selection=TEN, noise_multiplier=30.0, num_steps=1000, sampling_rate=0.1)
    one = composed_selection_epsilon([run], delta=DELTA)
    four = composed_selection_epsilon([run] * 4, delta=DELTA)
    assert one == selection_epsilon(**SETTINGS, selection=TEN)
    assert 1.5 * one < four < 4 * one
    assert composed_selection_epsilon([], delta=DELTA) == 0.0


def test_replacing_is_refused():
    for call in (
        lambda: selection_epsilon(**SETTINGS, selection=TEN, neighbouring_relation="replace_one"),
        lambda: composed_selection_epsilon([], delta=DELTA, neighbouring_relation="replace_one"),
    ):
        with pytest.raises(PrivacyError, match='"add_or_remove_one" only'):
            call()


@pytest.mark.parametrize("bad", [1, 1.0, 0, -3, math.inf, math.nan, None, "3", True, 1e5])
def test_bad_means_are_refused(bad):
    with pytest.raises(ArgumentError, match=r"^mean_runs must be"):
        Selection(mean_runs=bad, score_noise_multiplier=1.0)


@pytest.mark.parametrize("bad", [0, -1, math.inf, math.nan, None, "3"])
def test_bad_score_noise_is_refused(bad):
    with pytest.raises(ArgumentError, match=r"^score_noise_multiplier must be"):
        Selection(mean_runs=3, score_noise_multiplier=bad)


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("noise_multiplier", 0),
        ("delta", 1),
        ("num_steps", 0),
        ("sampling_rate", 1.5),
        ("selection", None),
        ("discreteness", 0.5),
        ("discreteness", -1e-9),
    ],
)
def test_bad_settings_are_refused(name, bad):
    with pytest.raises(ArgumentError, match=f"^{name} must be"):
        selection_epsilon(**{**SETTINGS, "selection": TEN, name: bad})


def test_extremes_end_in_a_number_without_a_word(caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        quiet = {"num_steps": 10**6, "noise_multiplier": 1e8}
        # What is left is the price of the scores, and the allowance for rounding.
        scores = selection_epsilon(**SETTINGS | {"noise_multiplier": 1e8, "num_steps": 1}, selection=TEN)
        assert scores < selection_epsilon(**SETTINGS | quiet, selection=TEN) < scores + 1e-3
        loud = [
            selection_epsilon(**SETTINGS | {"noise_multiplier": sigma}, selection=TEN)
            for sigma in (0.001, 0.02, 0.3)
        ]
    assert all(np.diff(loud) < 0)
    assert math.isfinite(loud[0])
    assert loud[-1] > 1000
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_rounding_of_many_quiet_steps_is_covered():
    # Chi-squared: the divergence of order 2 is log(1 + q^2 (exp(1/sigma^2) - 1)) exactly.
    from dp_accounting.rdp.rdp_privacy_accountant import _compute_rdp_poisson_subsampled_gaussian

    for sigma in (1e2, 1e4, 1e6):
        (found,) = _compute_rdp_poisson_subsampled_gaussian(0.1, sigma, [2])
        exact = math.log1p(0.01 * math.expm1(sigma**-2))
        assert abs(found - exact) < 1e-14


def test_the_number_of_runs_is_geometric():
    # Fixed seed; chance of a false alarm 1e-4.
    rng = np.random.default_rng(20)
    for mean in (1.5, 4.0):
        selection = Selection(mean_runs=mean, score_noise_multiplier=1.0)
        drawn = np.array([draw_num_runs(rng, selection) for _ in range(20_000)])
        assert drawn.min() == 1
        most = 8
        counts = np.bincount(np.minimum(drawn, most), minlength=most + 1)[1:]

        def expected(p, most=most):
            mass = p * (1 - p) ** np.arange(most - 1)
            return 20_000 * np.append(mass, 1 - mass.sum())

        assert chisquare(counts, expected(1 / mean)).pvalue > 1e-4
        assert chisquare(counts, expected(1 / (mean * 1.05))).pvalue < 1e-4


def test_the_accountant_has_a_name():
    name, version = selection_accountant()
    assert "RepeatAndSelect" in name
    assert version.startswith("0.6")


def test_import_is_lazy():
    code = "import nadpvi.privacy.selection_accounting, sys; assert 'dp_accounting' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
