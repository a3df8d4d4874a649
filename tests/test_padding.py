"""What fills up a block: repeated records, so that no block fails but by a record that is in it."""

import itertools

import autograd.numpy as anp
import numpy as np
import pytest

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.models import CustomModel, Parameter
from nadpvi.privacy.noise import GRID_UNITS, NoNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.batches import block_rows, blocks
from nadpvi.private.dpvi import State, step
from nadpvi.private.dry_run import check_model
from nadpvi.private.records import Records
from nadpvi.private.score import SCORE_ROWS, private_score
from nadpvi.settings import make_settings

SCHEMA = na.Schema.from_dict(
    {"columns": {"age": {"kind": "real", "lower": 0, "upper": 100}, "n": {"kind": "count", "upper": 20}}}
)


def guarded(p, x, y):
    """An ordinary guard, record by record: it fails at age 0 where the base rate is small."""
    rate = p["base"] + p["slope"] * x[:, 0]
    if anp.any(rate < 1e-2):
        raise ValueError("the rate has left its range")
    return y * anp.log(rate) - rate


MODEL = CustomModel(
    name="guarded",
    outcome="n",
    outcome_kind="count",
    predictors=["age"],
    parameters=[Parameter(name="base", support="positive"), Parameter(name="slope", support="positive")],
    log_prior=lambda p: -p["base"] - p["slope"],
    log_likelihood=guarded,
    simulate=lambda p, x, rng: rng.poisson(p["base"] + p["slope"] * x[:, 0]).astype(float),
)
CONFIG = na.DPVIConfig(
    num_steps=100, sampling_rate=1.0, clip_norm=1.0, preconditioner_u=1.0, learning_rate=1e-3
)
DESCRIPTION = ModelDescription(model=MODEL, schema=SCHEMA, guide=na.MeanField())
SETTINGS = make_settings(DESCRIPTION, CONFIG, noise_multiplier=1.0)
ROWS = block_rows(10 * 2)
# A place that a run may well reach: a base rate of 0.001, at which a row of zeros fails.
PHI = np.array([-7.0, SETTINGS.initial_phi[1], -6.0, -6.0])


class SilentGrid(NoNoise):
    def __init__(self, *, dimension):
        super().__init__(dimension=dimension)
        self.grid_units = GRID_UNITS


def records_of(count):
    return Records(x=np.linspace(0.3, 0.9, 1100)[:count, None], y=np.full(count, 9.0))


def grid_sum(count):
    _, noisy = step(
        State(0, PHI),
        records=records_of(count),
        settings=SETTINGS,
        noise=SilentGrid(dimension=4),
        streams=make_streams(insecure_seed=1),
    )
    return noisy * SETTINGS.preconditioner


def test_the_model_is_one_that_passes_its_dry_run_and_fails_on_zeros():
    check_model(DESCRIPTION, num_draws=10)
    with pytest.raises(ValueError, match="range"):
        guarded({"base": 1e-3, "slope": 1.0}, np.zeros((1, 1)), np.zeros(1))


def test_one_record_moves_the_sum_by_at_most_the_clip_norm_where_a_block_fills_up():
    sums = [grid_sum(count) for count in range(ROWS - 2, ROWS + 3)]
    moved = [np.linalg.norm(later - earlier) for earlier, later in itertools.pairwise(sums)]
    assert max(moved) <= 1.0 + 1e-9
    assert min(moved) > 0.99  # every record counts, wherever it is


def test_one_record_moves_a_private_score_by_at_most_one():
    scores = [
        private_score(
            records_of(count),
            description=DESCRIPTION,
            phi=PHI,
            bound=10.0,
            records_per_unit=1,
            noise=SilentGrid(dimension=1),
            rng=np.random.default_rng(0),
        )
        for count in range(SCORE_ROWS - 1, SCORE_ROWS + 3)
    ]
    moved = np.abs(np.diff(scores))
    assert moved.max() <= 1.0 + 1e-9
    assert moved.min() > 0.5


@pytest.mark.parametrize("storage", [np.float64, np.float32])
@pytest.mark.parametrize("multiplicities", [None, [2, 3, 1]])
def test_padding_repeats_the_first_record_and_counts_zero_times(storage, multiplicities):
    records = Records(x=np.array([[1.0], [2.0], [3.0]], dtype=storage), y=np.array([4.0, 5.0, 6.0]))
    times = None if multiplicities is None else np.array(multiplicities)
    (block,) = blocks(records, np.array([1, 2, 0]), num_rows=64, multiplicities=times)
    assert block.num_records == 3
    assert block.batch.x[:3, 0].tolist() == [2.0, 3.0, 1.0]
    assert set(block.batch.x[3:, 0]) == {2.0}
    assert set(block.batch.y[3:]) == {5.0}
    if times is not None:
        assert block.multiplicities[:3].tolist() == multiplicities
        assert not block.multiplicities[3:].any()
