"""Budgets, and the guarantee on record."""

import dataclasses
import json
import math

import pytest

from nadpvi.errors import ArgumentError, PrivacyError
from nadpvi.privacy.accounting_cache import CACHE_DIR_VARIABLE
from nadpvi.privacy.guarantee import Guarantee, NonPrivate, PrivacyBudget, make_guarantee

RUN = {
    "num_steps": 100,
    "clip_norm": 3.5,
    "mechanism": "discrete Gaussian on an integer grid",
    "assumed_public": ("schema", "configuration"),
}


@pytest.fixture(autouse=True, scope="module")
def _cache_dir(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_DIR_VARIABLE, str(tmp_path_factory.mktemp("accounting")))
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
    "make", [private, without_noise, simulated, lambda: without_noise(clip_norm=math.inf)]
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
        {"neighbouring_relation": "replace_one"},
        {"unit": "one person"},
        {"sampler": "shuffle"},
        {"mechanism": None},
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
