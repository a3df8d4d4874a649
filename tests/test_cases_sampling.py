"""Known faults of neighbouring tools, part A: Poisson sampling and the scale of the noise."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import nadpvi as na
import nadpvi.private.dpvi

BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)
# A prior this wide adds nothing to the locations' gradient, which is then data and noise alone.
WIDE = 1e6


@pytest.fixture
def batches(monkeypatch):
    """The rows that entered each step, in order: a test's own hook round the sampler."""
    drawn = []
    original = nadpvi.private.dpvi.poisson_sample

    def recorded(*args, **kwargs):
        rows = original(*args, **kwargs)
        drawn.append(rows)
        return rows

    monkeypatch.setattr(nadpvi.private.dpvi, "poisson_sample", recorded)
    return drawn


def people(num_records):
    """A table of `num_records` rows with one feature, and its schema."""
    schema = na.Schema.from_dict(
        {
            "columns": {
                "age": {"kind": "real", "lower": 0, "upper": 100},
                "y": {"kind": "binary", "levels": ["no", "yes"]},
            }
        }
    )
    return pd.DataFrame({"age": [60.0] * num_records, "y": ["yes"] * num_records}), schema


def tagged(num_records):
    """A table whose every row owns one feature: without noise the trace shows who entered a step."""
    names = [f"c{i}" for i in range(num_records)]
    columns = {name: {"kind": "real", "lower": 0, "upper": 1} for name in names}
    schema = na.Schema.from_dict({"columns": columns | {"y": {"kind": "binary", "levels": ["0", "1"]}}})
    return pd.DataFrame(np.eye(num_records), columns=names).assign(y="0"), schema


def contributions(num_records, *, num_steps, sampling_rate):
    """Return each row's contribution to each step in units of its own gradient, shape (T, N)."""
    table, schema = tagged(num_records)
    made = na.release(
        na.models.LogisticRegression(outcome="y", intercept=False, prior_sd=WIDE),
        table,
        schema=schema,
        privacy=na.NonPrivate(),
        config=na.DPVIConfig(
            num_steps=num_steps,
            sampling_rate=sampling_rate,
            clip_norm=1e3,
            learning_rate=1e-12,
            initial_u=-25.0,
        ),
    )
    # At theta = 0 a row with y = 0 has the gradient 1/2 in its own feature.
    return made.noisy_gradient[:, :num_records] / 0.5


class TestA1EmptyPoissonBatch:
    """An empty sample is a step like any other: one trace row, noise at the usual scale, accounted."""

    @pytest.mark.parametrize("seed", [None, 7], ids=["real", "simulated"])
    @pytest.mark.parametrize(("num_records", "rate"), [(5, 0.1), (1, 0.01)])
    def test_every_step_is_made_noised_and_accounted(self, batches, num_records, rate, seed):
        """Each chi-square test has a false-alarm rate of 1e-7."""
        table, schema = people(num_records)
        made = na.release(
            na.models.LogisticRegression(outcome="y", prior_sd=WIDE),
            table,
            schema=schema,
            privacy=BUDGET,
            config=na.DPVIConfig(num_steps=200, sampling_rate=rate, learning_rate=1e-9),
            insecure_seed=seed,
        )
        is_empty = np.array([len(rows) == 0 for rows in batches])
        assert len(batches) == made.num_steps == made.guarantee.num_steps == 200
        assert is_empty.sum() > 80
        assert np.isfinite(made.phi).all()
        assert np.isfinite(made.noisy_gradient).all()
        # The intercept and age: noise alone on an empty step.
        z = made.noisy_gradient[is_empty, :2] / made.noise_std[:2]
        assert (z != 0).all()

        def p_value(values):
            low = stats.chi2.cdf((values**2).sum(), values.size)
            return 2 * min(low, 1 - low)

        assert p_value(z) > 1e-7
        for wrong in (2.0, 0.5, np.sqrt(rate)):
            assert p_value(z * wrong) < 1e-7
        fewer = na.epsilon_spent(
            noise_multiplier=made.noise_multiplier,
            delta=1e-5,
            num_steps=int((~is_empty).sum()) or 1,
            sampling_rate=rate,
        )
        whole = na.epsilon_spent(
            noise_multiplier=made.noise_multiplier, delta=1e-5, num_steps=200, sampling_rate=rate
        )
        assert fewer < 0.9 * whole <= 0.9 * made.guarantee.epsilon

    def test_an_empty_step_has_no_data_term_and_a_full_one_has(self, batches):
        found = contributions(5, num_steps=200, sampling_rate=0.1)
        assert len(batches) == 200
        for rows, contribution in zip(batches, found, strict=True):
            expected = np.zeros(5)
            expected[rows] = 1.0
            np.testing.assert_allclose(contribution, expected, atol=1e-6)
        assert 80 < sum(len(rows) == 0 for rows in batches) < 160  # 118 expected, sd 7

    def test_a_run_whose_every_step_is_empty_is_a_run(self, monkeypatch):
        monkeypatch.setattr(
            nadpvi.private.dpvi, "poisson_sample", lambda *args, **kwargs: np.empty(0, dtype=np.int64)
        )
        table, schema = people(5)
        made = na.release(
            na.models.LogisticRegression(outcome="y"),
            table,
            schema=schema,
            privacy=BUDGET,
            config=na.DPVIConfig(num_steps=200, sampling_rate=0.1),
        )
        assert made.num_steps == made.guarantee.num_steps == 200
        assert np.isfinite(made.noisy_gradient).all()
        assert (made.noisy_gradient != 0).all()

    def test_without_noise_an_empty_step_is_no_error_either(self):
        found = contributions(1, num_steps=200, sampling_rate=0.01)
        assert found.shape == (200, 1)
        assert np.isfinite(found).all()


class TestA2SamplingRateExactlyOne:
    """The full batch is a legitimate run: the plain Gaussian mechanism, exactly."""

    @pytest.mark.parametrize("rate", [1.0, 1, np.float64(1.0)])
    @pytest.mark.parametrize(("sigma", "num_steps"), [(10, 100), (1, 1), (2, 4)])
    def test_epsilon_is_the_exact_one(self, rate, sigma, num_steps):
        epsilon = na.epsilon_spent(
            noise_multiplier=sigma, delta=1e-5, num_steps=num_steps, sampling_rate=rate
        )
        assert 4.3771775 <= epsilon < 4.3771785

    @pytest.mark.parametrize("rate", [1.0, 1])
    def test_every_row_is_in_every_batch(self, batches, rate):
        found = contributions(6, num_steps=20, sampling_rate=rate)
        np.testing.assert_allclose(found, 1.0, atol=1e-6)
        for rows in batches:
            np.testing.assert_array_equal(rows, np.arange(6))

    @pytest.mark.parametrize("rate", [1.0, 1])
    def test_a_private_run_is_calibrated_to_it(self, rate):
        table, schema = people(4)
        made = na.release(
            na.models.LogisticRegression(outcome="y"),
            table,
            schema=schema,
            privacy=na.PrivacyBudget(epsilon=4.377178, delta=1e-5),
            config=na.DPVIConfig(num_steps=100, sampling_rate=rate),
        )
        assert made.noise_multiplier == pytest.approx(10.0, rel=1e-4)
        assert made.noise_multiplier >= 9.99999
        assert made.guarantee.epsilon <= 4.377178
        assert "analytic Gaussian" in made.guarantee.accountant


class TestA4SamplerAndAccountantDisagree:
    """Independent Poisson inclusion is what is accounted, so it is what must happen."""

    RATE = 0.3
    LEAST = 1e-7  # false-alarm rate of each test

    @staticmethod
    def p_values(included):
        """Return p-values of the batch sizes and of the pairs against independent Poisson inclusion."""
        rate, (num_steps, num_records) = TestA4SamplerAndAccountantDisagree.RATE, included.shape
        sizes = included.sum(axis=1)
        classes = [0, 3, 4, 5, 6, 7, 8, 9, num_records + 1]
        cdf = stats.binom.cdf(np.array(classes[1:]) - 1, num_records, rate)
        expected = num_steps * np.diff(np.concatenate([[0.0], cdf]))
        counted = np.histogram(sizes, bins=np.array(classes) - 0.5)[0]
        z = (included - rate) / np.sqrt(rate * (1 - rate))
        pairs = (z.T @ z / np.sqrt(num_steps))[np.triu_indices(num_records, 1)]
        neighbours = (z[1:] * z[:-1]).mean(axis=0) * np.sqrt(num_steps - 1)
        return (
            stats.chisquare(counted, expected).pvalue,
            stats.chi2.sf((pairs**2).sum(), len(pairs)),
            stats.chi2.sf((neighbours**2).sum(), num_records),
        )

    def test_what_enters_is_an_independent_poisson_sample(self):
        found = contributions(20, num_steps=3000, sampling_rate=self.RATE)
        included = found > 0.5
        np.testing.assert_allclose(found, included, atol=1e-6)  # once or not at all: no row twice
        sizes = included.sum(axis=1)
        assert abs(sizes.mean() - 6) < 5.4 * np.sqrt(4.2 / 3000)
        assert abs(sizes.var() - 4.2) < 5.4 * 4.2 * np.sqrt(2 / 3000)
        assert min(self.p_values(included)) > self.LEAST

    @pytest.mark.parametrize("sampler", ["fixed_size", "shuffled", "wrong_rate", "same_every_step"])
    def test_the_samplers_of_other_tools_would_be_caught(self, monkeypatch, sampler):
        rng = np.random.default_rng(5)
        queue, kept = [], []

        def fixed_size(*args, num_records, sampling_rate):
            return np.sort(rng.choice(num_records, 6, replace=False))

        def shuffled(*args, num_records, sampling_rate):
            if len(queue) < 6:
                queue.extend(rng.permutation(num_records)[:18])
            return np.sort([queue.pop() for _ in range(6)])

        def wrong_rate(*args, num_records, sampling_rate):
            return np.flatnonzero(rng.random(num_records) < 1.1 * sampling_rate)

        def same_every_step(*args, num_records, sampling_rate):
            if not kept or rng.random() < 0.5:
                kept[:] = [np.flatnonzero(rng.random(num_records) < sampling_rate)]
            return kept[0]

        monkeypatch.setattr(nadpvi.private.dpvi, "poisson_sample", locals()[sampler])
        included = contributions(20, num_steps=3000, sampling_rate=self.RATE) > 0.5
        assert min(self.p_values(included)) < self.LEAST

    def test_a_private_run_draws_its_batches_alike_and_keeps_them_to_itself(self, batches, tmp_path):
        table, schema = people(20)
        made = na.release(
            na.models.LogisticRegression(outcome="y"),
            table,
            schema=schema,
            privacy=BUDGET,
            config=na.DPVIConfig(num_steps=3000, sampling_rate=self.RATE),
        )
        included = np.zeros((3000, 20), dtype=bool)
        for step, rows in enumerate(batches):
            assert len(np.unique(rows)) == len(rows)
            included[step, rows] = True
        assert min(self.p_values(included)) > self.LEAST
        assert (made.guarantee.sampler, made.guarantee.sampling_rate) == ("poisson", self.RATE)
        # Nothing that goes into the file follows the batch sizes: they vary by step, and only the noisy
        # trace does. Correlation below 5.4 / sqrt(T) has a false-alarm rate of 1e-7 a column.
        saved = na.Release.load(made.save(tmp_path / "release.nc")).to_dataset()
        by_step = {str(name) for name in saved.variables if "step" in saved[name].dims}
        assert by_step == {"iterates", "noisy_gradient", "step"}
        sizes = included.sum(axis=1)
        for column in made.noisy_gradient.T:
            assert abs(np.corrcoef(column, sizes)[0, 1]) < 0.2
