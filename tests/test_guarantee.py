"""Budgets, and the guarantee on record."""

import dataclasses
import json
import math

import pytest

from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy.budget import NonPrivate, PrivacyBudget
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.guarantee_maker import make_guarantee
from nadpvi.privacy.selection import Selection
from nadpvi.privacy.selection_accounting import selection_epsilon

RUN = {
    "num_steps": 100,
    "clip_norm": 3.5,
    "mechanism": "discrete Gaussian on an integer grid",
    "assumed_public": ("schema", "configuration"),
}


@pytest.fixture(autouse=True, scope="module")
def _cache_dir(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NADPVI_CACHE_DIR", str(tmp_path_factory.mktemp("accounting")))
        yield


def private(**changes):
    settings = {
        "budget": PrivacyBudget(epsilon=5.0, delta=1e-5),
        "noise_multiplier": 10.0,
        "sampling_rate": 1,
    }
    return make_guarantee(**RUN | settings | changes)


def without_noise(**changes):
    return make_guarantee(
        **RUN | {"budget": NonPrivate(), "noise_multiplier": 0.0, "sampling_rate": 0.5} | changes
    )


def simulated():
    return private(reason_not_private="its noise came from a seeded generator")


@pytest.mark.parametrize("epsilon", [0, None, math.inf, math.nan, -1, "1", True])
def test_budget_refuses_a_bad_epsilon(epsilon):
    with pytest.raises(ArgumentError, match=r"^epsilon must be"):
        PrivacyBudget(epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("delta", [math.nan, 0, 1, 2, -1e-5, "1e-5", None])
def test_budget_refuses_a_bad_delta(delta):
    with pytest.raises(ArgumentError, match=r"^delta must be"):
        PrivacyBudget(epsilon=1, delta=delta)


@pytest.mark.parametrize("relation", ["replace", "", None, 1, ["replace_one"]])
def test_budget_refuses_an_unknown_relation(relation):
    with pytest.raises(ArgumentError, match=r"^neighbouring_relation must be"):
        PrivacyBudget(epsilon=1, delta=1e-5, neighbouring_relation=relation)


def test_budget_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PrivacyBudget(epsilon=1, delta=1e-5).epsilon = 2.0


def test_epsilon_on_record_is_what_the_noise_spends():
    guarantee = private()
    assert guarantee.is_private
    assert guarantee.epsilon == pytest.approx(4.377178, abs=1e-6)
    assert guarantee.delta == 1e-5
    assert guarantee.num_steps == 100


def test_subsampled_run_names_its_accountant():
    guarantee = private(sampling_rate=0.1)
    assert guarantee.epsilon < 1.0
    assert "dp-accounting" in guarantee.accountant
    assert guarantee.accountant_version.startswith("0.6")


def test_too_little_noise_for_the_budget_is_refused():
    with pytest.raises(PrivacyError, match=r"spends epsilon 4\.37718, above the budget of 4\.3;"):
        private(budget=PrivacyBudget(epsilon=4.3, delta=1e-5))


def test_budget_and_noise_must_agree():
    with pytest.raises(PrivacyError, match="NonPrivate run has noise_multiplier 0"):
        without_noise(noise_multiplier=1.0)
    with pytest.raises(ArgumentError, match=r"^noise_multiplier must be"):
        private(noise_multiplier=0.0)
    with pytest.raises(ArgumentError, match=r"^budget must be"):
        private(budget=1.0)


@pytest.mark.parametrize("clip_norm", [0, -1.0, math.inf, math.nan, "1"])
def test_bad_clip_norm_is_refused(clip_norm):
    with pytest.raises(ArgumentError, match=r"^clip_norm must be"):
        private(clip_norm=clip_norm)


def test_only_a_run_without_noise_may_go_unclipped():
    assert without_noise(clip_norm=math.inf).clip_norm == math.inf
    with pytest.raises(ArgumentError, match=r"^clip_norm must be"):
        private(clip_norm=math.inf, reason_not_private="a simulation")


def test_run_without_noise_promises_nothing():
    guarantee = without_noise()
    assert not guarantee.is_private
    assert guarantee.epsilon == math.inf
    assert guarantee.sentence().startswith("NOT PRIVATE, because the run had no noise: epsilon is infinite;")


def test_simulation_keeps_its_numbers_and_promises_nothing():
    guarantee = simulated()
    assert not guarantee.is_private
    assert guarantee.epsilon == private().epsilon
    sentence = guarantee.sentence()
    assert sentence.startswith("NOT PRIVATE, because its noise came from a seeded generator: ")
    assert "factor exp" not in sentence


def replacing(**changes):
    return private(
        budget=PrivacyBudget(epsilon=20.0, delta=1e-5, neighbouring_relation="replace_one"), **changes
    )


def test_a_replaced_record_moves_the_sum_twice_as_far():
    guarantee = replacing(noise_multiplier=20.0)
    assert guarantee.neighbouring_relation == "replace_one"
    assert guarantee.epsilon == pytest.approx(4.377178, abs=1e-6)
    assert replacing(sampling_rate=0.1).epsilon > 1.5 * private(sampling_rate=0.1).epsilon


@pytest.mark.parametrize("sampling_rate", [1, 0.1])
@pytest.mark.parametrize("make", [private, replacing])
def test_a_person_moves_the_sum_by_as_many_records(make, sampling_rate):
    person = make(noise_multiplier=30.0, unit="one person", records_per_unit=3, sampling_rate=sampling_rate)
    assert person.epsilon == pytest.approx(make(sampling_rate=sampling_rate).epsilon, rel=1e-12)
    assert person.noise_multiplier == 30.0
    with pytest.raises(PrivacyError, match="above the budget"):
        make(noise_multiplier=30.0, unit="one person", records_per_unit=400, sampling_rate=sampling_rate)


def test_the_records_of_one_record_are_one():
    with pytest.raises(ArgumentError, match='records_per_unit must be 1 when unit is "one record"'):
        private(records_per_unit=2)
    with pytest.raises(ArgumentError, match=r"^unit must be"):
        private(unit="one household")
    for bad in (0, -1, 1.5, True, None, 10**7):
        with pytest.raises(ArgumentError, match=r"^records_per_unit must be"):
            private(unit="one person", records_per_unit=bad)


@pytest.mark.parametrize(
    ("changes", "start", "inside", "absent"),
    [
        ({}, "Adding or removing one record changes", "protected only record by record", "person ("),
        (
            {"unit": "one person", "records_per_unit": 3, "noise_multiplier": 30.0},
            "Adding or removing one person (up to 3 of whose records are used, all or none in a step) ",
            "a Poisson sample that every person enters",
            "record by record",
        ),
        (
            {"unit": "one person"},
            "Adding or removing one person (one of whose records is used) changes",
            "a Poisson sample that every person enters",
            "record by record",
        ),
        (
            {"relation": "replace_one"},
            "Replacing one record by another changes",
            "the number of records counts as public and is not protected).",
            "Adding",
        ),
        (
            {"relation": "replace_one", "unit": "one person", "records_per_unit": 2},
            "Replacing one person by another (each with up to 2 records used, all or none in a step) changes",
            "the number of people counts as public and is not protected).",
            "record by record",
        ),
        (
            {"relation": "replace_one", "unit": "one person"},
            "Replacing one person by another (each with one record used) changes",
            "the number of people counts as public",
            "record by record",
        ),
    ],
)
def test_sentence_says_who_is_protected_and_against_what(changes, start, inside, absent):
    settings = dict(changes)
    relation = settings.pop("relation", "add_or_remove_one")
    budget = PrivacyBudget(epsilon=100.0, delta=1e-5, neighbouring_relation=relation)
    sentence = private(budget=budget, **settings).sentence()
    assert sentence.startswith(start)
    assert inside in sentence
    assert absent not in sentence
    assert ("counts as public" in sentence) == (relation == "replace_one")


def test_a_guarantee_from_before_people_were_a_unit_is_read():
    data = private().to_dict()
    del data["records_per_unit"]
    assert Guarantee.from_dict(data) == private()
    with pytest.raises(ArgumentError, match="lacks records_per_unit"):
        Guarantee.from_dict(data | {"unit": "one person"})


def selected(**changes):
    return private(
        **{"selection": Selection(mean_runs=4, score_noise_multiplier=50.0), "sampling_rate": 0.1} | changes
    )


def test_the_best_of_several_runs_is_accounted_as_such():
    guarantee = selected()
    expected = selection_epsilon(
        noise_multiplier=10.0, delta=1e-5, num_steps=100, sampling_rate=0.1, selection=guarantee.selection
    )
    assert guarantee.epsilon == expected > 1.5 * private(sampling_rate=0.1).epsilon
    assert "RepeatAndSelect" in guarantee.accountant
    sentence = guarantee.sentence()
    assert "the best, by noisy score, of a random number of runs (geometric with mean 4;" in sentence
    assert "50 times what one record can change), each of 100 noisy gradients" in sentence
    assert "how many runs there were, and all but the best, must stay secret)." in sentence
    assert "this covers one choice among runs" in sentence
    assert "best" not in private().sentence()
    person = selected(noise_multiplier=30.0, unit="one person", records_per_unit=3)
    assert person.epsilon == pytest.approx(expected, rel=1e-12)


def test_a_choice_among_runs_is_not_accounted_under_replace_one():
    budget = PrivacyBudget(epsilon=50.0, delta=1e-5, neighbouring_relation="replace_one")
    with pytest.raises(PrivacyError, match='"add_or_remove_one" only'):
        selected(budget=budget)
    with pytest.raises(ArgumentError, match='"add_or_remove_one" only'):
        Guarantee.from_dict(selected().to_dict() | {"neighbouring_relation": "replace_one"})


def test_a_guarantee_from_before_choices_is_read():
    data = private().to_dict()
    del data["selection"]
    assert Guarantee.from_dict(data) == private()


def test_sentence_states_the_whole_guarantee():
    sentence = private(sampling_rate=0.25).sentence()
    epsilon = private(sampling_rate=0.25).epsilon
    for part in (
        "Adding or removing one record changes the probability of any released trace by at most a factor",
        f"exp({epsilon:.6g}) plus 1e-05 ((epsilon, delta) = ({epsilon:.6g}, 1e-05)",
        "100 noisy gradients",
        "Poisson sample",
        "probability 0.25",
        "L2 norm 3.5",
        "noise of 10 clip norms (discrete Gaussian on an integer grid)",
        "dp-accounting",
        "assumed public: schema, configuration",
        "covers one run",
        "record by record",
    ):
        assert part in sentence
    assert sentence.count("\n") == 0
    assert sentence.endswith(").")


@pytest.mark.parametrize(
    "make",
    [
        private,
        without_noise,
        simulated,
        replacing,
        selected,
        lambda: without_noise(clip_norm=math.inf),
        lambda: replacing(unit="one person", records_per_unit=2, noise_multiplier=50.0),
    ],
)
def test_survives_strict_json(make):
    guarantee = make()
    text = json.dumps(guarantee.to_dict(), allow_nan=False)
    assert Guarantee.from_dict(json.loads(text)) == guarantee


def test_infinity_is_written_in_words():
    assert without_noise(clip_norm=math.inf).to_dict()["epsilon"] == "infinity"
    assert without_noise(clip_norm=math.inf).to_dict()["clip_norm"] == "infinity"


def test_unknown_and_missing_keys_are_named():
    data = private().to_dict()
    with pytest.raises(ArgumentError, match="unknown keys epsilon_2, sigma; known: is_private, epsilon"):
        Guarantee.from_dict(data | {"sigma": 1, "epsilon_2": 1})
    del data["delta"], data["sampler"]
    with pytest.raises(ArgumentError, match="lacks delta, sampler"):
        Guarantee.from_dict(data)
    with pytest.raises(ArgumentError, match="must be a mapping"):
        Guarantee.from_dict([1])


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": "infinity"},
        {"epsilon": None},
        {"epsilon": -0.1},
        {"epsilon": math.nan},
        {"delta": 0},
        {"noise_multiplier": 0},
        {"num_steps": 2.5},
        {"sampling_rate": 0},
        {"is_private": 1},
        {"is_private": False},
        {"reason_not_private": "but private"},
        {"is_private": False, "reason_not_private": ""},
        {"neighbouring_relation": "replace_special"},
        {"neighbouring_relation": None},
        {"unit": "one household"},
        {"records_per_unit": 2},
        {"unit": "one person", "records_per_unit": 0},
        {"unit": "one person", "records_per_unit": 1.5},
        {"sampler": "shuffle"},
        {"selection": 3},
        {"selection": {"mean_runs": 3}},
        {"selection": {"mean_runs": 0.5, "score_noise_multiplier": 3}},
        {"mechanism": None},
        {"mechanism": "floating-point Gaussian from a seeded generator (simulation)"},
        {"mechanism": "No noise"},
        {"mechanism": "discrete Gaussian\nwith a line of its own"},
        {"accountant_version": "1\x1b[2J"},
        {"discreteness": -1e-3},
        {"discreteness": 0.011},
        {"discreteness": 0.01, "epsilon": 0.0199},
        {"assumed_public": []},
        {"assumed_public": ["schema\n"]},
        {"assumed_public": "schema"},
        {"assumed_public": [1]},
    ],
)
def test_contradictions_on_record_are_refused(changes):
    with pytest.raises(ArgumentError):
        Guarantee.from_dict(private().to_dict() | changes)


def test_without_noise_epsilon_cannot_be_finite():
    with pytest.raises(ArgumentError, match="epsilon must be infinite"):
        Guarantee.from_dict(without_noise().to_dict() | {"epsilon": 1.0})


def test_zero_epsilon_can_be_on_record():
    guarantee = private(budget=PrivacyBudget(epsilon=1.0, delta=0.4), noise_multiplier=100.0)
    assert guarantee.epsilon == 0.0
    assert Guarantee.from_dict(guarantee.to_dict()) == guarantee


def test_a_guarantee_is_never_read_from_the_cache(monkeypatch, tmp_path):
    """Whoever can write to the cache must not be able to decide what a release promises."""
    from nadpvi.privacy import accounting

    monkeypatch.setenv("NADPVI_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(accounting, "cached_number", lambda name, inputs, compute: 0.001)
    with pytest.raises(PrivacyError, match="above the budget"):
        make_guarantee(
            budget=PrivacyBudget(epsilon=0.1, delta=1e-5),
            noise_multiplier=0.5,
            num_steps=100,
            sampling_rate=0.1,
            clip_norm=1.0,
            mechanism="discrete Gaussian",
            assumed_public=("schema",),
        )
