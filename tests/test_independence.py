"""What a real release adds and draws: distributions as exact as they are claimed, and nothing drawn twice.

Everything here is unseeded, as a real release is, so thresholds are set for false alarms: there are fewer
than 60 p-values, each below 1e-9 with about that probability, and with ten times that where the normal
approximation is at its worst: below 1e-6 a run in all. Each kind of test is also shown to reject a fault,
one that it rejects with as much certainty. `test_noise` and `test_sampling` look at the sources by
themselves; this module looks at them through the engine, across records, steps, coordinates, threads,
processes and forks.
"""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats
from whole_run import whole_trace

import nadpvi as na
import nadpvi.private.dpvi
from nadpvi.description import ModelDescription
from nadpvi.privacy.noise import GRID_UNITS, DiscreteGaussianNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.privacy.sampling import poisson_sample
from nadpvi.private.dpvi import run
from nadpvi.private.keeping import Keeper
from nadpvi.private.records import Records
from nadpvi.settings import make_settings

LEAST = 1e-9
CLIP_NORM = 0.5  # a power of two, so that released numbers are grid units times an exact factor
TABLE = {"c0": [0.0] * 8, "c1": [0.0] * 8, "c2": [0.0] * 8, "y": ["no"] * 8}  # zero gradients
MODEL = na.models.LogisticRegression(outcome="y", intercept=False, prior_sd=1e6)


def schema_of(num_features):
    columns = {f"c{i}": {"kind": "real", "lower": 0, "upper": 1} for i in range(num_features)}
    return na.Schema.from_dict({"columns": columns | {"y": {"kind": "binary", "levels": ["no", "yes"]}}})


def config_of(num_steps, rate):
    return na.DPVIConfig(
        num_steps=num_steps,
        sampling_rate=rate,
        clip_norm=CLIP_NORM,
        learning_rate=1e-12,
        preconditioner_u=1e-6,
        initial_u=-25.0,
        monte_carlo_samples=1,
    )


def engine_run(x, *, sigma, num_steps, rate, grid_units):
    """Return the released sums of a run on the exact road in grid units, locations only, shape (T, F)."""
    description = ModelDescription(model=MODEL, schema=schema_of(x.shape[1]), guide=na.MeanField())
    settings = make_settings(description, config_of(num_steps, rate), noise_multiplier=sigma)
    noise = DiscreteGaussianNoise(
        noise_multiplier=sigma, dimension=len(settings.initial_phi), num_steps=num_steps
    )
    assert noise.grid_units == grid_units
    trace = whole_trace(
        Records(x=x, y=np.zeros(len(x))), settings, noise=noise, streams=make_streams(insecure_seed=None)
    )
    units = trace.noisy_gradient[:, : x.shape[1]] * (grid_units / CLIP_NORM)
    # The prior's own part is 1e-13 C: what is not an integer here was not on the grid.
    assert np.abs(units - np.rint(units)).max() < 1e-3
    return np.rint(units)


def chi_square_p(observed, expected):
    """Return the p-value of counts; cells in which fewer than 50 are expected are joined."""
    order = np.argsort(-expected)
    observed, expected = observed[order], expected[order]
    keep = expected >= 50
    observed = np.append(observed[keep], observed[~keep].sum())
    expected = np.append(expected[keep], expected[~keep].sum())
    if expected[-1] < 50:
        observed = np.append(observed[:-2], observed[-2:].sum())
        expected = np.append(expected[:-2], expected[-2:].sum())
    assert len(expected) > 1
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1)


def correlation_p(z):
    """Return the p-value of products of standardised values, shape (n, anything), all with mean 0, sd 1."""
    means = z.mean(axis=0) * np.sqrt(len(z))
    return stats.chi2.sf((means**2).sum(), means.size)


class TestTheReleasedSum:
    """Clipped integer sum plus discrete Gaussian noise, as it leaves the engine."""

    @staticmethod
    def p_value(sums, *, centre, scale):
        """Against P(k) proportional to exp(-(k - centre)^2 / 2 scale^2), integer by integer."""
        support = np.arange(-400, 401)
        mass = np.exp(-((support - centre) ** 2) / (2 * scale**2))
        observed = (sums[:, None] == support).sum(axis=0)
        assert observed.sum() == len(sums)
        return chi_square_p(observed, mass / mass.sum() * len(sums))

    def test_on_a_coarse_grid_every_integer_has_its_probability(self, monkeypatch):
        """Each of three records has the gradient (1/2, 0), the clip norm: 15 units of 16 once truncated."""
        monkeypatch.setattr("nadpvi.privacy.noise.GRID_UNITS", 16)
        x = np.array([[1.0, 0.0]] * 3)
        sums = engine_run(x, sigma=0.5, num_steps=6000, rate=1.0, grid_units=16)
        for column, centre in ((0, 45), (1, 0)):
            assert self.p_value(sums[:, column], centre=centre, scale=8.0) > LEAST
            assert self.p_value(sums[:, column], centre=centre + 2, scale=8.0) < LEAST
            assert self.p_value(sums[:, column], centre=centre, scale=10.0) < LEAST
        truncated = np.trunc(np.random.default_rng(1).normal(scale=8.0, size=6000))
        assert self.p_value(truncated, centre=0, scale=8.0) < LEAST

    def test_on_the_real_grid_it_is_gaussian_down_to_the_last_bits(self):
        """40 cells of equal probability, and remainders of division by small numbers.

        A cell's probability differs from the discrete Gaussian's by less than 1e-14 at this scale, and a
        remainder's from 1 / m by less than exp(-2 pi^2 s^2 / m^2), which is zero.
        """
        sums = engine_run(np.zeros((5, 6)), sigma=1.3, num_steps=6000, rate=0.5, grid_units=GRID_UNITS)
        scale = 1.3 * GRID_UNITS
        edges = np.ceil(stats.norm.ppf(np.linspace(0, 1, 41)[1:-1], scale=scale)) - 0.5
        mass = np.diff(np.concatenate([[0.0], stats.norm.cdf(edges, scale=scale), [1.0]]))
        observed = np.bincount(np.searchsorted(edges, sums.ravel()), minlength=40)
        assert chi_square_p(observed, mass * sums.size) > LEAST
        doubled = np.bincount(np.searchsorted(edges, 1.1 * sums.ravel()), minlength=40)
        assert chi_square_p(doubled, mass * sums.size) < LEAST
        for divisor in (2, 3, 7, 64):
            rest = np.bincount(sums.ravel().astype(np.int64) % divisor, minlength=divisor)
            assert chi_square_p(rest, np.full(divisor, sums.size / divisor)) > LEAST

    def test_steps_and_coordinates_share_nothing(self):
        """Values, and their squares, which a shared scale would show in; blocks of noise are 1,000 steps."""
        sums = engine_run(np.zeros((5, 10)), sigma=1.0, num_steps=4000, rate=0.5, grid_units=GRID_UNITS)
        z = sums / GRID_UNITS
        for values in (z, (z**2 - 1) / np.sqrt(2.0)):
            for lag in (1, 2, 3, 1000):
                assert correlation_p(values[lag:] * values[:-lag]) > LEAST
            pairs = np.triu_indices(10, 1)
            assert correlation_p(values[:, pairs[0]] * values[:, pairs[1]]) > LEAST
        repeated = np.repeat(z[::2], 2, axis=0)
        assert correlation_p(repeated[1:] * repeated[:-1]) < LEAST


@pytest.mark.parametrize("rate", [0.02, 0.3, 1 / 3, 0.8])  # gaps below 1/3, one draw a record from there on
@pytest.mark.parametrize("num_records", [1, 6, 100, 4000])
def test_batch_sizes_are_binomial(num_records, rate):
    rng = make_streams(insecure_seed=None).subsample
    sizes = np.array(
        [len(poisson_sample(rng, num_records=num_records, sampling_rate=rate)) for _ in range(6000)]
    )
    support = np.arange(num_records + 1)
    observed = np.bincount(sizes, minlength=num_records + 1)
    assert chi_square_p(observed, 6000 * stats.binom.pmf(support, num_records, rate)) > LEAST
    if num_records * rate >= 0.3:
        other = stats.binom.pmf(support, num_records, rate * 0.6)
        assert chi_square_p(observed, 6000 * other) < LEAST


@pytest.mark.parametrize("rate", [0.15, 0.5])
def test_who_enters_is_independent_across_records_and_steps_and_of_the_noise(rate, monkeypatch):
    """Through the engine, with the generator of a real release; the noise's signs stand for the noise."""
    batches = []

    def recorded(*args, **kwargs):
        batches.append(poisson_sample(*args, **kwargs))
        return batches[-1]

    monkeypatch.setattr(nadpvi.private.dpvi, "poisson_sample", recorded)
    sums = engine_run(np.zeros((12, 3)), sigma=1.0, num_steps=5000, rate=rate, grid_units=GRID_UNITS)
    included = np.zeros((5000, 12))
    for step, batch in enumerate(batches):
        included[step, batch] = 1.0
    z = (included - rate) / np.sqrt(rate * (1 - rate))
    noise = sums / GRID_UNITS
    pairs = np.triu_indices(12, 1)
    assert correlation_p(z) > LEAST
    assert correlation_p(z[:, pairs[0]] * z[:, pairs[1]]) > LEAST
    for lag in (1, 2, 3):
        assert correlation_p(z[lag:] * z[:-lag]) > LEAST
        assert correlation_p(z[lag:, pairs[0]] * z[:-lag, pairs[1]]) > LEAST
    assert correlation_p((z[:, :, None] * noise[:, None, :]).reshape(5000, -1)) > LEAST
    fixed = np.array([np.random.default_rng(step).permutation(12) < 12 * rate for step in range(5000)])
    wrong = (fixed - fixed.mean()) / fixed.std()
    assert correlation_p(wrong[:, pairs[0]] * wrong[:, pairs[1]]) < LEAST


def test_threads_share_neither_noise_nor_batches(monkeypatch):
    """Twelve releases in four threads: equal batches have probability 2^-160, equal noise 2^-70."""
    own = threading.local()

    def recorded(*args, **kwargs):
        batch = poisson_sample(*args, **kwargs)
        own.batches.append(tuple(batch))
        return batch

    def one_release(_):
        own.batches = []
        made = na.release(
            MODEL,
            TABLE,
            schema=schema_of(3),
            privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
            config=config_of(20, 0.5),
        )
        assert made.is_private
        return tuple(own.batches), made.noisy_gradient[:, :3]

    monkeypatch.setattr(nadpvi.private.dpvi, "poisson_sample", recorded)
    with ThreadPoolExecutor(4) as pool:
        batches, noise = zip(*pool.map(one_release, range(12)), strict=True)
    assert all(len(steps) == 20 for steps in batches)
    assert len(set(batches)) == 12
    assert len(np.unique(np.concatenate(noise), axis=0)) == 12 * 20


# In a process of its own, since a fork copies all that its process holds.
FORKS = """
import json, multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
sys.path.insert(0, sys.argv[1])
from test_independence import forked_run, pooled_release

if __name__ == "__main__":
    forked = forked_run()
    pooled_release(0)  # every generator that a parent could hand down exists before the pool
    with ProcessPoolExecutor(3, mp_context=multiprocessing.get_context("fork")) as pool:
        pooled = list(pool.map(pooled_release, range(12)))
    print(json.dumps({"forked": forked, "pooled": pooled}))
"""


def pooled_release(_):
    """Return who entered each step of a release in this process, and its noise."""
    batches = []

    def recorded(*args, **kwargs):
        batch = poisson_sample(*args, **kwargs)
        batches.append(batch.tolist())
        return batch

    patch = pytest.MonkeyPatch()
    patch.setattr(nadpvi.private.dpvi, "poisson_sample", recorded)
    made = na.release(
        MODEL,
        TABLE,
        schema=schema_of(3),
        privacy=na.PrivacyBudget(epsilon=1.0, delta=1e-5),
        config=config_of(20, 0.5),
    )
    patch.undo()
    return batches, made.noisy_gradient[:, :3].tolist()


def forked_run():
    """Return what two children say that go on with a run which their parent has begun."""
    description = ModelDescription(model=MODEL, schema=schema_of(1), guide=na.MeanField())
    settings = make_settings(description, config_of(50, 0.5), noise_multiplier=1.0)
    noise = DiscreteGaussianNoise(noise_multiplier=1.0, dimension=2, num_steps=50)
    streams = make_streams(insecure_seed=None)
    steps = run(
        Records(x=np.zeros((8, 1)), y=np.zeros(8)),
        settings,
        noise=noise,
        streams=streams,
        keeper=Keeper(settings),
    )
    next(steps)
    answers = []
    for _ in range(2):
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                next(steps)
                said = "went on"
            except na.PrivacyError as error:
                said = str(error)
            os.write(writer, said.encode())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as file:
            answers.append(file.read())
    assert next(steps)[0] == 2  # the parent's own run is none the worse
    return answers


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_processes_and_forks_share_neither_noise_nor_batches():
    done = subprocess.run(
        [sys.executable, "-c", FORKS, os.path.dirname(__file__)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert len(answers["forked"]) == 2
    assert all("forked process" in said for said in answers["forked"])
    batches = {json.dumps(batches) for batches, _ in answers["pooled"]}
    assert len(batches) == 12
    noise = np.concatenate([noise for _, noise in answers["pooled"]])
    assert len(np.unique(noise, axis=0)) == 12 * 20
