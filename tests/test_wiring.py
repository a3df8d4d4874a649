"""What the engine as a whole does to records: who enters, what is bounded, how much noise is added."""

import json
import warnings

import autograd.numpy as anp
import numpy as np
import pytest
from scipy import stats
from whole_run import whole_trace

import nadpvi as na
from nadpvi.containers.storage import HEADER, package_versions
from nadpvi.description import ModelDescription
from nadpvi.guides.antithetic import draw_antithetic
from nadpvi.models.base import RecordBatch
from nadpvi.privacy.noise import GRID_UNITS, NoNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.batches import Block, evaluated
from nadpvi.private.gradients import autograd_route
from nadpvi.private.records import Records, make_records
from nadpvi.public_term import public_gradient
from nadpvi.settings import make_settings


class SilentGrid:
    """Zero noise on the real grid, counting its draws."""

    is_private, mechanism, grid_units = False, "none", GRID_UNITS

    def __init__(self, dimension):
        self.dimension, self.draws = dimension, 0

    def draw(self):
        self.draws += 1
        return np.zeros(self.dimension)


def tagged(num_records):
    """Records that each own one feature: the noise-free trace then shows who entered a step."""
    columns = {f"c{i}": {"kind": "real", "lower": 0, "upper": 1} for i in range(num_records)}
    schema = na.Schema.from_dict({"columns": columns | {"y": {"kind": "binary", "levels": ["0", "1"]}}})
    model = na.models.LogisticRegression(outcome="y", intercept=False)
    return ModelDescription(model=model, schema=schema, guide=na.MeanField()), Records(
        x=np.eye(num_records), y=np.zeros(num_records)
    )


@pytest.mark.parametrize("rate", [0.3, 0.05])
@pytest.mark.parametrize("block", [600_000, 1])
def test_every_step_is_an_independent_poisson_sample_summed_unnormalised(rate, block, monkeypatch):
    monkeypatch.setattr("nadpvi.private.batches._BLOCK_VALUES", block)
    description, records = tagged(12)
    config = na.DPVIConfig(
        num_steps=3000, sampling_rate=rate, clip_norm=1e3, learning_rate=1e-15, initial_u=-25.0
    )
    settings = make_settings(description, config, noise_multiplier=1.0)
    trace = whole_trace(
        records, settings, noise=NoNoise(dimension=24), streams=make_streams(insecure_seed=11)
    )
    location = trace.noisy_gradient[:, :12]
    included = location > 0.25
    np.testing.assert_allclose(location, 0.5 * included, atol=1e-6)  # a record's own gradient, or nothing
    public = public_gradient(description, phi=trace.phi[0], standard_normal=np.zeros((2, 12)))
    np.testing.assert_allclose(
        trace.noisy_gradient[:, 12:], rate * np.broadcast_to(public[12:], (3000, 12)), rtol=1e-5
    )
    z = (included - rate) / np.sqrt(rate * (1 - rate))
    assert stats.chi2.sf(((z.mean(axis=0) * np.sqrt(3000)) ** 2).sum(), 12) > 1e-5
    pairs = (z.T @ z / np.sqrt(3000))[np.triu_indices(12, 1)]
    assert stats.chi2.sf((pairs**2).sum(), len(pairs)) > 1e-5
    lagged = (z[1:] * z[:-1]).mean(axis=0) * np.sqrt(2999)
    assert stats.chi2.sf((lagged**2).sum(), 12) > 1e-5


@pytest.mark.parametrize("beta", [1.0, 50.0])
def test_one_record_stays_within_the_clip_norm_on_the_grid_end_to_end(schema, table, beta):
    description = ModelDescription(
        model=na.models.LogisticRegression(outcome="y"), schema=schema, guide=na.MeanField()
    )
    everyone = make_records(table, description.design)
    config = na.DPVIConfig(
        num_steps=2,
        sampling_rate=1.0,
        clip_norm=0.5,
        learning_rate=1e-9,
        preconditioner_u=beta,
        initial_u=0.5,
    )
    settings = make_settings(description, config, noise_multiplier=1.0)
    one = []
    for i in range(25):
        noise = SilentGrid(12)
        trace = whole_trace(
            Records(x=everyone.x[i : i + 1], y=everyone.y[i : i + 1]),
            settings,
            noise=noise,
            streams=make_streams(insecure_seed=4),
        )
        assert noise.draws == 2
        rng = make_streams(insecure_seed=4).monte_carlo
        draws = draw_antithetic(rng, num_draws=10, size=6)
        public = public_gradient(description, phi=trace.phi[0], standard_normal=draws)
        units = (trace.noisy_gradient[0] - public) * settings.preconditioner / settings.clip_norm * GRID_UNITS
        np.testing.assert_allclose(units, np.round(units), atol=1e-3)
        one.append(np.linalg.norm(units) / GRID_UNITS)
    assert max(one) <= 1.0 + 1e-9
    assert max(one) > 0.99  # the bound is reached, so the test can fail


@pytest.mark.parametrize("seed", [None, 5])
def test_a_release_holds_as_much_noise_as_its_guarantee_says(schema, table, seed):
    config = na.DPVIConfig(num_steps=2000, sampling_rate=0.02, learning_rate=1e-9)
    made = na.release(
        na.models.LogisticRegression(outcome="y"),
        table.head(2),
        schema=schema,
        config=config,
        privacy=na.PrivacyBudget(epsilon=0.5, delta=1e-6),
        insecure_seed=seed,
    )
    sd = (made.noisy_gradient * made.preconditioner / made.clip_norm).std(axis=0)
    ratio = np.sqrt((sd**2).mean()) / made.guarantee.noise_multiplier
    assert abs(ratio - 1) < 5 * 0.0046 + 2e-3  # 24,000 values


def test_a_real_release_is_on_the_grid_and_says_how_its_noise_was_drawn(schema, table):
    """Integers in grid units: neither a floating-point sum nor floating-point noise would give them."""
    config = na.DPVIConfig(num_steps=4, sampling_rate=0.5)
    model = na.models.LogisticRegression(outcome="y", prior_sd=1e6)
    budget = na.PrivacyBudget(epsilon=1.0, delta=1e-6)
    made = na.release(model, table, schema=schema, config=config, privacy=budget)
    assert made.guarantee.mechanism.startswith("discrete Gaussian")
    # A prior this wide adds nothing to the locations' gradient, which is then noise and clipped sums alone.
    units = made.noisy_gradient[:, :6] / made.clip_norm * GRID_UNITS
    np.testing.assert_allclose(units, np.round(units), atol=1e-3)


@pytest.mark.parametrize("num_params", [3, 25, 57])
def test_a_record_contributes_the_same_integers_whoever_else_is_in_the_batch(num_params):
    """Removing one record changes the grid sum by that record alone, bit for bit, at every batch size.

    Matrix products choose kernels by shape; blocks of one shape keep that choice out of the sum.
    """
    columns = {f"c{i}": {"kind": "real", "lower": 0, "upper": 1} for i in range(num_params)}
    schema = na.Schema.from_dict({"columns": columns | {"y": {"kind": "binary", "levels": ["0", "1"]}}})
    model = na.models.LogisticRegression(outcome="y", intercept=False)
    description = ModelDescription(model=model, schema=schema, guide=na.MeanField())
    config = na.DPVIConfig(num_steps=1, sampling_rate=1.0, clip_norm=0.3, learning_rate=1e-9, initial_u=0.0)
    settings = make_settings(description, config, noise_multiplier=1.0)
    rng = np.random.default_rng(num_params)
    x, y = rng.random((700, num_params)), rng.integers(0, 2, 700) * 1.0

    def grid_sum(rows):
        records = Records(x=x[rows], y=y[rows])
        noise = SilentGrid(2 * num_params)
        trace = whole_trace(records, settings, noise=noise, streams=make_streams(insecure_seed=4))
        rng = make_streams(insecure_seed=4).monte_carlo
        standard_normal = draw_antithetic(rng, num_draws=10, size=num_params)
        public = public_gradient(description, phi=trace.phi[0], standard_normal=standard_normal)
        units = (trace.noisy_gradient[0] - public) * settings.preconditioner / settings.clip_norm * GRID_UNITS
        np.testing.assert_allclose(units, np.round(units), atol=1e-2)
        return np.round(units)

    alone = {row: grid_sum([row]) for row in (0, 1, 2)}
    for size in (2, 3, 5, 17, 63, 64, 65, 129, 600):
        everyone = list(range(size))
        whole = grid_sum(everyone)
        for row in alone:
            if row < size:
                fewer = [other for other in everyone if other != row]
                np.testing.assert_array_equal(whole - grid_sum(fewer), alone[row])


def test_exact_sums_are_checked_before_the_first_step(schema, table, monkeypatch):
    def refuse(**arguments):
        raise na.PrivacyError("too many records")

    monkeypatch.setattr("nadpvi.private.dpvi.check_exact_sums", refuse)
    monkeypatch.setattr("nadpvi.private.dpvi.step", lambda *args, **kwargs: pytest.fail("a step was taken"))
    budget = na.PrivacyBudget(epsilon=1.0, delta=1e-6)
    with pytest.raises(na.PrivacyError, match="too many records"):
        na.release(na.models.LogisticRegression(outcome="y"), table, schema=schema, privacy=budget)


def test_streams_are_different_generators():
    for seed in (None, 3):
        streams = make_streams(insecure_seed=seed)
        assert streams.subsample is not streams.monte_carlo
        assert streams.noise is None or streams.noise not in (streams.subsample, streams.monte_carlo)


def test_the_header_holds_only_what_is_listed_here(schema, table):
    made = na.release(
        na.models.LogisticRegression(outcome="y"),
        table,
        schema=schema,
        config=na.DPVIConfig(num_steps=2),
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-6),
    )
    header = json.loads(made.to_dataset().attrs[HEADER])
    assert set(header) == {
        "kind", "format_version", "noise_multiplier", "clip_norm", "sampling_rate", "guarantee",
        "description", "config", "versions", "window_steps",
    }  # fmt: skip
    assert header["versions"] == package_versions()
    assert header["config"] == na.DPVIConfig(num_steps=2).to_dict()
    assert set(header["description"]) == {"model", "schema", "guide"}
    assert set(made.to_dataset().variables) == {
        "iterates", "noisy_gradient", "preconditioner", "learning_rate", "model_prior_mean", "model_prior_sd",
        "phi", "step", "final_phi",
    }  # fmt: skip


def custom(likelihood):
    kind = type("Custom", (na.models.LogisticRegression,), {"log_likelihood": likelihood, "kind": "custom"})
    return kind(outcome="y")


class TestDryRun:
    """Faults of a model's own code are found on made-up records; the table is never opened."""

    BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-6)

    @pytest.fixture(autouse=True)
    def general_route(self, monkeypatch):
        monkeypatch.setattr("nadpvi.private.gradients._route_of", lambda kind: autograd_route)

    def attempt(self, likelihood, schema, tmp_path):
        na.release(custom(likelihood), tmp_path / "never-opened.csv", schema=schema, privacy=self.BUDGET)

    def test_one_number_for_the_batch(self, schema, tmp_path):
        def mean(self, theta, batch):
            return anp.mean(anp.sum(batch.x * theta, axis=-1), axis=-1)

        with pytest.raises(na.ModelError, match=r"one number a record.*got \(3,\)"):
            self.attempt(mean, schema, tmp_path)

    def test_records_that_influence_each_other(self, schema, tmp_path):
        def centred(self, theta, batch):
            eta = anp.sum((batch.x - batch.x.mean(axis=0)) * theta, axis=-1)
            return batch.y * eta - anp.logaddexp(0.0, eta)

        with pytest.raises(na.PrivacyError, match="influence each other"):
            self.attempt(centred, schema, tmp_path)

    def test_plain_numpy(self, schema, tmp_path):
        def plain(self, theta, batch):
            eta = np.asarray(anp.sum(batch.x * theta, axis=-1))
            return batch.y * eta - np.logaddexp(0.0, np.asarray(eta, dtype=float))

        with pytest.raises(na.ModelError, match=r"autograd\.numpy"):
            self.attempt(plain, schema, tmp_path)

    def test_in_place_writes(self, schema, tmp_path):
        def writes(self, theta, batch):
            eta = np.zeros((len(theta), len(batch.y)))
            eta[:, 0] = anp.sum(batch.x[:1] * theta, axis=-1)[:, 0]
            return eta

        with pytest.raises(na.ModelError, match="without assignment"):
            self.attempt(writes, schema, tmp_path)

    def test_values_that_are_not_finite(self, schema, tmp_path):
        def infinite(self, theta, batch):
            return anp.log(-1.0 - anp.sum(batch.x * theta, axis=-1) ** 2)

        with np.errstate(all="ignore"), pytest.raises(na.ModelError, match="not finite"):
            self.attempt(infinite, schema, tmp_path)

    def test_a_record_on_which_the_model_fails_is_left_out_and_nothing_tells(self, schema, table):
        table = table.copy()
        table.loc[3, "age"] = 77.125

        def picky(self, theta, batch):
            if (batch.x == 0.77125).any():
                raise ValueError(f"cannot handle {batch}")
            eta = anp.sum(batch.x * theta, axis=-1)
            return batch.y * eta - anp.logaddexp(0.0, eta)

        arguments = {
            "schema": schema,
            "privacy": na.NonPrivate(),
            "config": na.DPVIConfig(num_steps=3, sampling_rate=1.0, learning_rate=1e-3),
            "insecure_seed": 4,
        }
        made = na.release(custom(picky), table, **arguments)
        without = na.release(custom(picky), table.drop(index=3), **arguments)
        np.testing.assert_allclose(made.noisy_gradient, without.noisy_gradient, rtol=1e-9)
        whole = na.release(na.models.LogisticRegression(outcome="y"), table, **arguments)
        assert np.abs(whole.noisy_gradient[0] - without.noisy_gradient[0]).max() > 0.1

    def test_a_model_that_fails_everywhere_in_the_end_is_told_from_made_up_records(self, schema, table):
        def brittle(self, theta, batch):
            eta = anp.sum(batch.x * theta, axis=-1)
            if np.abs(getattr(theta, "_value", theta)).max() > 1e3:
                raise OverflowError("too far")
            return batch.y * eta - anp.logaddexp(0.0, eta)

        far = na.DPVIConfig(num_steps=3, sampling_rate=1.0, learning_rate=1e-9, initial_mu=2e3)
        with pytest.warns(UserWarning, match="fails on made-up records"):
            made = na.release(custom(brittle), table, schema=schema, privacy=self.BUDGET, config=far)
        assert made.num_steps == 3


class TestRecordsOnWhichTheModelFails:
    """A block is halved until they stand alone, in the shape of the whole, and nothing else is lost."""

    def blocks_seen(self, bad, *, size=64, records=50):
        """Return the shapes that a model saw, and the records whose values came through."""
        x = np.arange(records, dtype=float)[:, None] + 1.0
        padded = np.zeros((size, 1))
        padded[:records] = x
        shapes, through = set(), []

        def evaluate(batch):
            shapes.add(batch.x.shape)
            if np.isin(batch.x[:, 0], list(bad)).any():
                raise ValueError("cannot stand it")
            return batch.x[:, 0].copy()

        block = Block(RecordBatch(x=padded, y=np.zeros(size)), records)
        for values, part in evaluated(block, evaluate):
            through += values[: part.num_records].tolist()
        return shapes, through

    @pytest.mark.parametrize("bad", [set(), {1.0}, {50.0}, {3.0, 4.0, 27.0}, set(map(float, range(1, 51)))])
    def test_all_others_count_once(self, bad):
        shapes, through = self.blocks_seen(bad)
        assert shapes == {(64, 1)}
        assert through == [float(i) for i in range(1, 51) if float(i) not in bad]

    def test_warnings_of_the_model_are_not_shown(self):
        def evaluate(batch):
            warnings.warn(f"there are {len(batch.y)} records", UserWarning, stacklevel=1)
            return batch.y

        block = Block(RecordBatch(x=np.zeros((4, 1)), y=np.zeros(4)), 3)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(list(evaluated(block, evaluate))) == 1
        assert caught == []
