import json

import numpy as np
import pytest

from nadpvi import ArgumentError, DPVIConfig, MeanField


@pytest.mark.parametrize("value", [0, -1, 2.5, None, "7", True, float("nan"), float("inf"), 10**400])
def test_num_steps_must_be_a_count(value):
    with pytest.raises(ArgumentError, match=r"num_steps.*got"):
        DPVIConfig(num_steps=value)


@pytest.mark.parametrize("value", [0, -0.1, 1.5, float("nan"), None, "0.1", True])
def test_sampling_rate_must_be_in_range(value):
    with pytest.raises(ArgumentError, match="sampling_rate"):
        DPVIConfig(sampling_rate=value)


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), "3"])
@pytest.mark.parametrize("name", ["clip_norm", "preconditioner_u", "learning_rate", "learning_rate_constant"])
def test_positive_settings(name, value):
    with pytest.raises(ArgumentError, match=name):
        DPVIConfig(**{name: value})


def test_numpy_scalars_are_accepted():
    config = DPVIConfig(num_steps=np.int64(7), sampling_rate=np.float64(1), clip_norm=np.int32(2))
    assert config.num_steps == 7
    assert isinstance(config.num_steps, int)
    assert config.clip_norm == 2.0


def test_two_learning_rates_are_refused():
    with pytest.raises(ArgumentError, match="only one"):
        DPVIConfig(learning_rate=0.1, learning_rate_constant=1.0)


def test_round_trip_through_json():
    config = DPVIConfig(num_steps=12, clip_norm=3.0, guide=MeanField(scale="variance"))
    assert DPVIConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_unknown_setting_is_refused():
    with pytest.raises(ArgumentError, match="steps_num"):
        DPVIConfig.from_dict({"steps_num": 3})
    with pytest.raises(TypeError):
        DPVIConfig(steps_num=3)


def test_unknown_scale_is_refused():
    with pytest.raises(ArgumentError, match="precision"):
        MeanField(scale="precision")


@pytest.mark.parametrize(
    ("name", "value"),
    [("clip_norm", 1e300), ("preconditioner_u", 1e30), ("initial_u", 1e300), ("initial_mu", -1e9)],
)
def test_absurd_settings_are_refused(name, value):
    with pytest.raises(ArgumentError, match=f"{name} must be between"):
        DPVIConfig(**{name: value})
