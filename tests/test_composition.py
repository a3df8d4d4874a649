"""Composition of several runs against closed forms, single runs, and direct integration."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy import composition, composition_pld
from nadpvi.privacy.accounting import epsilon_spent
from nadpvi.privacy.accounting_gaussian import gaussian_epsilon
from nadpvi.privacy.accounting_loss import make_run
from nadpvi.privacy.accounting_pld import compose_steps
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.composition import Run, composed_epsilon
from nadpvi.privacy.composition_pld import compose_runs
from nadpvi.privacy.guarantee_maker import make_guarantee
from nadpvi.privacy.selection import Selection
from nadpvi.privacy.selection_accounting import SelectedRun, composed_selection_epsilon

DELTA = 1e-5


def make(sigma, steps, rate, count=1):
    return Run(noise_multiplier=sigma, num_steps=steps, sampling_rate=rate, count=count)


def alone(run, *, delta=DELTA):
    return epsilon_spent(
        noise_multiplier=run.noise_multiplier,
        delta=delta,
        num_steps=run.num_steps * run.count,
        sampling_rate=run.sampling_rate,
    )


def test_no_run_spends_nothing():
    assert composed_epsilon([], delta=DELTA) == 0.0


def test_full_batch_runs_add_up_in_squares():
    runs = [make(10.0, 100, 1.0), make(40.0, 700, 1, count=3), make(3.0, 1, 1.0)]
    mu = math.sqrt(100 / 100 + 3 * 700 / 1600 + 1 / 9)
    assert composed_epsilon(runs, delta=DELTA) == pytest.approx(gaussian_epsilon(mu, DELTA), rel=1e-12)
    four = composed_epsilon([make(20.0, 100, 1.0)] * 4, delta=DELTA)
    assert four == pytest.approx(4.377178, abs=1e-6)


@pytest.mark.parametrize("run", [make(12.0, 1000, 0.1), make(1.0, 50, 0.01), make(10.0, 100, 1.0)])
def test_one_run_alone_and_equal_runs_are_what_the_accountant_says(run):
    assert composed_epsilon([run], delta=DELTA) == pytest.approx(alone(run), rel=1e-12)
    many = [run, run, make(run.noise_multiplier, run.num_steps, run.sampling_rate, count=2)]
    longer = make(run.noise_multiplier, 4 * run.num_steps, run.sampling_rate)
    assert composed_epsilon(many, delta=DELTA) == pytest.approx(alone(longer), rel=1e-12)


@pytest.mark.parametrize(
    ("sigma", "steps", "rate", "delta"),
    [(12.0, 1000, 0.1, 1e-5), (0.8, 200, 0.01, 1e-5), (1.0, 1, 0.5, 1e-6), (40.0, 70_001, 0.1, 1e-7)],
)
def test_the_common_grid_gives_what_the_accountant_of_one_run_gives(sigma, steps, rate, delta):
    # The last is composed of two parts.
    single = epsilon_spent(noise_multiplier=sigma, delta=delta, num_steps=steps, sampling_rate=rate)
    assert compose_runs([(sigma, rate, steps)], gaussian_mu=0.0, delta=delta) == pytest.approx(
        single, rel=5e-4
    )


def test_more_equal_runs_than_one_accountant_reaches_are_composed_of_parts():
    runs = [make(3000.0, 60_000, 0.1)] * 30
    mu = 0.1 * math.sqrt(30 * 60_000 * math.expm1(3000.0**-2))
    assert composed_epsilon(runs, delta=DELTA) == pytest.approx(gaussian_epsilon(mu, DELTA), rel=0.005)


def test_runs_that_differ_by_a_hair_equal_one_longer_run():
    runs = [make(12.0 + i * 1e-6, 500, 0.1) for i in range(4)]
    quietest = make(12.0 + 3e-6, 2000, 0.1)
    found = composed_epsilon(runs, delta=DELTA)
    assert alone(quietest) * (1 - 1e-5) <= found <= alone(quietest) * 1.001


def test_unlike_runs_meet_direct_integration():
    found = composed_epsilon([make(1.5, 1, 0.3), make(0.9, 1, 0.1), make(2.0, 1, 1.0)], delta=1e-4)
    exact = integrated_epsilon([(1.5, 0.3), (0.9, 0.1)], mu=0.5, delta=1e-4)
    assert exact * (1 - 1e-5) <= found <= exact * 1.001


def integrated_epsilon(steps, *, mu, delta):
    """Epsilon of single steps and a Gaussian mechanism, by quadrature over the steps' outputs."""
    least = 0.0
    for removing in (True, False):
        losses, weights = np.zeros(1), np.ones(1)
        for sigma, rate in steps:
            edges = np.linspace(-1 - 9 * sigma, 9 * sigma, 2001)
            x = (edges[1:] + edges[:-1]) / 2
            loss = np.log1p(rate * np.expm1(-(x + 0.5) / sigma**2))
            without = np.diff(norm.cdf(edges, 0, sigma))
            weight = (
                (1 - rate) * without + rate * np.diff(norm.cdf(edges, -1, sigma)) if removing else without
            )
            losses = np.add.outer(losses, loss if removing else -loss).ravel()
            weights = np.multiply.outer(weights, weight).ravel()
            # A histogram keeps the product small; its cells are far below the spread of the loss.
            cells = np.round(losses / 1e-4).astype(int)
            base = cells.min()
            total = np.bincount(cells - base, weights)
            mean = np.bincount(cells - base, weights * losses)
            keep = total > 0
            losses, weights = mean[keep] / total[keep], total[keep]

        def found(epsilon, losses=losses, weights=weights):
            rest = epsilon - losses
            above = norm.cdf(mu / 2 - rest / mu) - np.exp(rest) * norm.cdf(-mu / 2 - rest / mu)
            return float(weights @ above)

        low, high = 0.0, 50.0
        while high - low > 1e-7:
            middle = (low + high) / 2
            low, high = (middle, high) if found(middle) > delta else (low, middle)
        least = max(least, high)
    return least


def test_many_unlike_steps_meet_the_central_limit():
    runs = [make(20.0, 4000, 0.05), make(60.0, 9000, 0.1), make(200.0, 300, 1.0)]
    mu = math.sqrt(sum(r.sampling_rate**2 * r.num_steps * math.expm1(r.noise_multiplier**-2) for r in runs))
    assert composed_epsilon(runs, delta=DELTA) == pytest.approx(gaussian_epsilon(mu, DELTA), rel=0.01)


MIXTURES = [
    [make(12.0, 1000, 0.1), make(37.3064, 100, 1.0)],
    [make(12.0, 200, 0.1), make(300.0, 3000, 0.1)],
    [make(0.8, 20, 0.05), make(1.0, 10, 0.02)],
    [make(0.2, 1, 1.0), make(3000.0, 10**4, 0.1)],
]


@pytest.mark.parametrize("runs", MIXTURES)
def test_the_whole_lies_between_its_parts_and_their_sum(runs):
    found = composed_epsilon(runs, delta=DELTA)
    assert found <= sum(alone(run, delta=DELTA / len(runs)) for run in runs)
    assert found >= alone(runs[0]) * (1 - 1e-4)  # the largest
    assert composed_epsilon(runs[::-1], delta=DELTA) == found


def test_small_runs_beside_a_large_one_do_not_inflate_it():
    # Each alone is far below the common grid; together they add 1 % to the variance of the loss.
    small = [make(10.0 * (1 + i / 100), 1, 0.01) for i in range(20)]
    large = make(1.0, 1, 1.0)
    mu = math.sqrt(1 + sum(0.01**2 * math.expm1(run.noise_multiplier**-2) for run in small))
    found = composed_epsilon([large, *small], delta=DELTA)
    assert gaussian_epsilon(1.0, DELTA) <= found <= gaussian_epsilon(mu, DELTA) * 1.002


def test_moving_to_another_grid_only_ever_raises_delta():
    own = compose_steps(make_run(1.0, num_steps=10, sampling_rate=0.2), 0.01)
    for interval in (0.035, 0.5, 0.004):
        moved = composition_pld._on_grid(own, interval)
        for epsilon in np.linspace(-2.0, 6.0, 200):
            before, after = own.get_delta_for_epsilon(epsilon), moved.get_delta_for_epsilon(epsilon)
            assert after >= before - 1e-14
        for knot in (0.0, 10 * interval, 25 * interval):
            before, after = own.get_delta_for_epsilon(knot), moved.get_delta_for_epsilon(knot)
            assert after == pytest.approx(before, rel=1e-9, abs=1e-13)


def test_powers_on_the_grid_meet_the_closed_form():
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    for copies in (2, 7, 100):
        mu = 1 / math.sqrt(copies)
        own = from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-3, use_connect_dots=True)
        power = composition_pld._power(composition_pld._on_grid(own, 1e-3), copies)
        exact = gaussian_epsilon(1.0, 1e-8)
        assert exact <= power.get_epsilon_for_delta(1e-8) <= exact * 1.001


def test_total_variation_below_delta_spends_nothing():
    assert composed_epsilon([make(1e6, 10, 0.1), make(1e5, 10, 0.2)], delta=1e-3) == 0.0
    assert composed_epsilon([make(0.03, 1, 1e-9), make(1e5, 10, 0.2)], delta=1e-3) == 0.0


def test_the_number_is_cached(monkeypatch, tmp_path):
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path))
    runs = [make(5.0, 10, 0.1), make(6.0, 10, 0.1)]
    first = composed_epsilon(runs, delta=DELTA)
    monkeypatch.setattr(composition, "compose_runs", None)
    assert composed_epsilon(runs[::-1], delta=DELTA) == first
    with pytest.raises(TypeError):
        composed_epsilon(runs, delta=2 * DELTA)


def test_what_cannot_be_accounted_is_refused():
    two = [make(5.0, 10**5, 0.1), make(6.0, 10**5, 0.1)]
    with pytest.raises(ArgumentError, match=r"delta must be at least .* \(got 1e-13\)"):
        composed_epsilon(two, delta=1e-13)
    with pytest.raises(ArgumentError, match="delta must be in"):
        composed_epsilon(two, delta=0.0)
    with pytest.raises(ArgumentError, match="must hold Run objects"):
        composed_epsilon([(5.0, 10, 0.1)], delta=DELTA)
    with pytest.raises(ArgumentError, match="too many steps"):
        composed_epsilon([make(5.0, 10**12, 0.1), make(6.0, 1, 0.1)], delta=DELTA)
    with pytest.raises(ArgumentError, match=r"at least 0\.02"):
        make(0.01, 10, 0.1)
    with pytest.raises(ArgumentError, match="count"):
        make(1.0, 10, 0.1, count=0)


def planned(**changes):
    settings = {
        "budget": PrivacyBudget(epsilon=5, delta=DELTA),
        "noise_multiplier": 10.0,
        "num_steps": 100,
        "sampling_rate": 1,
        "clip_norm": 1.0,
        "mechanism": "discrete Gaussian",
        "assumed_public": ("schema",),
    }
    return make_guarantee(**settings | changes)


def test_a_run_comes_from_its_guarantee():
    assert Run.from_guarantee(planned()) == make(10.0, 100, 1.0)
    assert Run.from_guarantee(planned(), num_steps=7) == make(10.0, 7, 1.0)
    with pytest.raises(PrivacyError, match="not private"):
        Run.from_guarantee(planned(reason_not_private="it was seeded"))


def test_the_price_of_discrete_noise_adds_up():
    xi = 1e-4
    for base in (make(12.0, 200, 0.1), make(10.0, 100, 1.0)):
        sizes = {"noise_multiplier": base.noise_multiplier, "sampling_rate": base.sampling_rate}
        run = Run(**sizes, num_steps=base.num_steps, discreteness=xi)
        exact = epsilon_spent(**sizes, num_steps=2 * base.num_steps, delta=DELTA * (1 - 4 * xi)) + 4 * xi
        assert composed_epsilon([run, run], delta=DELTA) == pytest.approx(exact, rel=1e-12)
    with pytest.raises(ArgumentError, match="too coarse"):
        composed_epsilon([Run(**sizes, num_steps=1, discreteness=0.01, count=50)], delta=DELTA)
    with pytest.raises(ArgumentError, match="discreteness must be"):
        Run(**sizes, num_steps=1, discreteness=-1e-9)


def test_a_sampler_of_another_kind_is_not_composed():
    other = planned()
    object.__setattr__(other, "sampler", "shuffle")
    with pytest.raises(PrivacyError, match="sampler shuffle"):
        Run.from_guarantee(other)


def test_a_person_with_several_records_is_what_is_composed():
    person = planned(noise_multiplier=30.0, unit="one person", records_per_unit=3)
    run = Run.from_guarantee(person)
    assert run == Run(noise_multiplier=10.0, num_steps=100, sampling_rate=1, unit="one person")
    assert composed_epsilon([run], delta=DELTA) == pytest.approx(4.377178, abs=1e-6)


def test_unlike_units_are_not_composed():
    record, person = planned(), planned(unit="one person")
    with pytest.raises(PrivacyError, match="keep a ledger for each unit"):
        composed_epsilon([Run.from_guarantee(record), Run.from_guarantee(person)], delta=DELTA)
    with pytest.raises(ArgumentError, match=r"^unit must be"):
        Run(noise_multiplier=1.0, num_steps=1, sampling_rate=1, unit="one household")


def test_steps_done_and_steps_left_are_one_run():
    for base in ({"noise_multiplier": 12.0, "sampling_rate": 0.1}, {"noise_multiplier": 10.0}):
        whole = planned(**base, discreteness=1e-3)
        left = planned(**base, num_steps=63, discreteness=1e-3 * 63 / 100)
        parts = [Run.from_guarantee(whole, num_steps=37), Run.from_guarantee(left)]
        assert composed_epsilon(parts, delta=DELTA) == pytest.approx(whole.epsilon, rel=1e-13)


REPLACE = {"neighbouring_relation": "replace_one"}


@pytest.mark.parametrize("run", [make(12.0, 1000, 0.1), make(1.0, 50, 0.01), make(10.0, 100, 1.0)])
def test_replacing_is_what_the_accountant_of_one_run_says(run):
    single = epsilon_spent(
        noise_multiplier=run.noise_multiplier,
        delta=DELTA,
        num_steps=2 * run.num_steps,
        sampling_rate=run.sampling_rate,
        **REPLACE,
    )
    assert composed_epsilon([run, run], delta=DELTA, **REPLACE) == pytest.approx(single, rel=1e-12)
    assert single > 1.2 * composed_epsilon([run, run], delta=DELTA)


def test_replacing_on_the_common_grid_gives_what_the_accountant_of_one_run_gives():
    settings = {"noise_multiplier": 0.8, "delta": DELTA, "num_steps": 200, "sampling_rate": 0.01} | REPLACE
    found = compose_runs([(0.8, 0.01, 200)], gaussian_mu=0.0, delta=DELTA, **REPLACE)
    assert found == pytest.approx(epsilon_spent(**settings), rel=5e-4)


def test_replacing_in_unlike_runs_meets_direct_integration():
    found = composed_epsilon([make(1.5, 1, 0.3), make(2.0, 1, 1.0)], delta=1e-4, **REPLACE)
    edges = np.linspace(-12, 9, 8001)
    one, other = (0.7 * norm.cdf(edges, 0, 1.5) + 0.3 * norm.cdf(edges, shift, 1.5) for shift in (-1, 1))
    keep = np.diff(other) > 0
    weights = np.diff(one)[keep]
    losses = np.log(weights) - np.log(np.diff(other)[keep])

    def exceeds(epsilon):
        # The full batch is a Gaussian mechanism with mu = 2 / 2.
        rest = epsilon - losses
        return float(weights @ (norm.cdf(0.5 - rest) - np.exp(rest) * norm.cdf(-0.5 - rest))) > 1e-4

    assert exceeds(found * 0.999)
    assert not exceeds(found * 1.0001)


def test_the_relation_is_part_of_the_cached_composition(monkeypatch, tmp_path):
    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path))
    runs = [make(5.0, 10, 0.1), make(6.0, 10, 0.1)]
    first = composed_epsilon(runs, delta=DELTA)
    assert composed_epsilon(runs, delta=DELTA, **REPLACE) > 1.3 * first
    assert composed_epsilon(runs, delta=DELTA) == first


def test_an_unknown_relation_is_refused():
    with pytest.raises(ArgumentError, match=r"^neighbouring_relation must be"):
        composed_epsilon([make(1.0, 1, 1.0)], delta=DELTA, neighbouring_relation="replace")


def test_choices_among_runs_are_composed_apart_from_single_runs():
    chosen = Run(
        noise_multiplier=30.0,
        num_steps=100,
        sampling_rate=0.1,
        discreteness=1e-5,
        selection=Selection(mean_runs=4, score_noise_multiplier=50.0),
    )
    single = make(12.0, 100, 0.1)
    part = SelectedRun(
        selection=chosen.selection,
        noise_multiplier=30.0,
        num_steps=100,
        sampling_rate=0.1,
        discreteness=1e-5,
    )
    assert composed_epsilon([chosen], delta=DELTA) == composed_selection_epsilon([part], delta=DELTA)
    twice = Run(**{name: getattr(chosen, name) for name in chosen.__slots__} | {"count": 2})
    both = composed_selection_epsilon([part] * 3, delta=DELTA / 2) + alone(single, delta=DELTA / 2)
    assert composed_epsilon([chosen, single, twice], delta=DELTA) == pytest.approx(both, rel=1e-12)
    with pytest.raises(PrivacyError, match='"add_or_remove_one" only'):
        composed_epsilon([chosen, single], delta=DELTA, **REPLACE)
    with pytest.raises(ArgumentError, match="selection must be"):
        Run(noise_multiplier=1.0, num_steps=1, sampling_rate=1, selection=3)


def test_a_choice_comes_from_its_guarantee():
    selection = Selection(mean_runs=4, score_noise_multiplier=50.0)
    budget = PrivacyBudget(epsilon=50, delta=DELTA)
    chosen = planned(budget=budget, selection=selection, unit="one person", records_per_unit=2)
    assert Run.from_guarantee(chosen) == Run(
        noise_multiplier=5.0, num_steps=100, sampling_rate=1, unit="one person", selection=selection
    )
