"""The engine as a whole: its noise, its limit without noise, and what is found before a step is taken."""

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from whole_run import whole_trace

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.privacy.noise import DiscreteGaussianNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.dpvi import public_gradient
from nadpvi.private.records import make_records
from nadpvi.settings import make_settings

MODEL = na.models.LogisticRegression(outcome="y")
BUDGET = na.PrivacyBudget(epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize("secure", [True, False])
def test_noise_of_a_run_without_signal_is_sigma_times_clip_norm(schema, table, secure):
    """Records with zero features have zero gradient, so what is released is noise plus the public terms.

    2,000 steps of 5 + 5 coordinates: the relative standard error of each half's sd is 0.7 %; 5 of them. A
    false alarm has probability below 1e-6.
    """
    model = na.models.LogisticRegression(outcome="y", predictors=["age", "gain", "job"], intercept=False)
    description = ModelDescription(model=model, schema=schema, guide=na.MeanField())
    config = na.DPVIConfig(num_steps=2000, sampling_rate=0.2, learning_rate=1e-9)
    settings = make_settings(description, config, noise_multiplier=3.0)
    records = make_records(table, description.design)
    silent = type(records)(x=np.zeros_like(records.x), y=records.y)
    streams = make_streams(insecure_seed=None if secure else 8)
    noise = DiscreteGaussianNoise(noise_multiplier=3.0, dimension=10, num_steps=2000)
    trace = whole_trace(silent, settings, noise=noise, streams=streams)
    public = public_gradient(description, phi=trace.phi[0], standard_normal=np.zeros((2, 5)))
    values = (trace.noisy_gradient - 0.2 * public) * settings.preconditioner / settings.clip_norm
    for half in (values[:, :5], values[:, 5:]):
        assert abs(half.std() / 3.0 - 1) < 5 * 0.0071
        for wrong in (3.0 / 2, 3.0 * settings.clip_norm, 3.0 * 0.2):
            assert abs(half.std() / wrong - 1) > 5 * 0.0071


def test_without_noise_the_engine_finds_the_variational_optimum(schema, table):
    """Sampling rate 1 and no noise against scipy on the ELBO with Gauss-Hermite expectations.

    The engine's expectations are Monte Carlo, so its iterates scatter around the optimum; their mean over
    the second half is compared in units of the guide's own sd.
    """
    description = ModelDescription(model=MODEL, schema=schema, guide=na.MeanField())
    records = make_records(table, description.design)
    optimum = independent_optimum(records)
    config = na.DPVIConfig(
        num_steps=3000,
        sampling_rate=1.0,
        clip_norm=1e6,
        learning_rate=0.02,
        preconditioner_u=3.0,
        initial_u=-1.0,
    )
    made = na.release(MODEL, table, schema=schema, privacy=na.NonPrivate(), config=config, insecure_seed=2)
    assert not made.is_private
    assert made.guarantee.sentence().startswith("NOT PRIVATE")
    mean = made.phi[1500:].mean(axis=0)
    sd = np.logaddexp(0.0, optimum[6:])
    np.testing.assert_allclose((mean[:6] - optimum[:6]) / sd, 0.0, atol=0.05)
    np.testing.assert_allclose(np.logaddexp(0.0, mean[6:]) / sd, 1.0, atol=0.05)


def independent_optimum(records):
    """Minimise the negative ELBO of the mean-field guide, one-dimensional expectations by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    x, y = records.x, records.y
    num_params = x.shape[1]

    def negative_elbo(phi):
        mu, sd = phi[:num_params], np.logaddexp(0.0, phi[num_params:])
        location, spread = x @ mu, np.sqrt((x**2) @ sd**2)
        eta = location[:, None] + spread[:, None] * nodes
        likelihood = (y * location).sum() - (np.logaddexp(0.0, eta) @ weights).sum()
        prior = -0.5 * (mu**2 + sd**2).sum()
        return -(likelihood + prior + np.log(sd).sum())

    start = np.concatenate([np.zeros(num_params), np.full(num_params, -1.0)])
    found = optimize.minimize(negative_elbo, start, method="BFGS", options={"gtol": 1e-4})
    assert np.abs(found.jac).max() < 1e-2
    return found.x


def test_the_public_gradient_is_that_of_the_prior_and_the_entropy(schema):
    """With antithetic draws the expectation is exact: mu / prior_sd^2, and (sd / prior_sd^2 - 1 / sd) sd'."""
    model = na.models.LogisticRegression(outcome="y", prior_sd=2.0)
    description = ModelDescription(model=model, schema=schema, guide=na.MeanField())
    phi = np.linspace(-2, 1, 12)
    noise = np.vstack([np.ones(6), -np.ones(6)])
    got = public_gradient(description, phi=phi, standard_normal=noise)
    sd, slope = np.logaddexp(0, phi[6:]), 1 / (1 + np.exp(-phi[6:]))
    np.testing.assert_allclose(got[:6], phi[:6] / 4.0, rtol=1e-12)
    np.testing.assert_allclose(got[6:], (sd / 4.0 - 1 / sd) * slope, rtol=1e-12)


@pytest.mark.parametrize("num_rows", [1, 2, 5])
def test_tiny_tables_keep_every_step(schema, table, num_rows):
    config = na.DPVIConfig(num_steps=60, sampling_rate=0.02)
    made = na.release(MODEL, table.head(num_rows), schema=schema, privacy=BUDGET, config=config)
    assert made.num_steps == made.guarantee.num_steps == 60
    assert np.isfinite(made.noisy_gradient).all()


def test_one_step_is_enough(schema, table):
    config = na.DPVIConfig(num_steps=1, sampling_rate=1)
    assert na.release(MODEL, table, schema=schema, privacy=BUDGET, config=config).phi.shape == (1, 12)


def test_learning_rate_heuristic(schema):
    description = ModelDescription(model=MODEL, schema=schema, guide=na.MeanField())
    config = na.DPVIConfig(num_steps=400, clip_norm=2.0, preconditioner_u=7.0, learning_rate_constant=3.0)
    settings = make_settings(description, config, noise_multiplier=5.0)
    base = np.sqrt(2) * 3.0 / (5.0 * 2.0 * np.sqrt(400 * 12))
    np.testing.assert_allclose(settings.learning_rate, base * np.repeat([1.0, 7.0], 6), rtol=1e-14)
    default = make_settings(
        description, na.DPVIConfig(num_steps=400, clip_norm=2.0), noise_multiplier=5.0
    ).learning_rate
    np.testing.assert_allclose(default[0], base / 3.0 * np.sqrt(6), rtol=1e-14)


def test_chunks_do_not_change_the_sum(schema, table, monkeypatch):
    config = na.DPVIConfig(num_steps=5, sampling_rate=0.5)
    arguments = {"schema": schema, "privacy": BUDGET, "config": config, "insecure_seed": 3}
    whole = na.release(MODEL, table, **arguments)
    monkeypatch.setattr("nadpvi.private.batches._BLOCK_VALUES", 1)
    pieces = na.release(MODEL, table, **arguments)
    np.testing.assert_allclose(pieces.noisy_gradient, whole.noisy_gradient, rtol=1e-12)


class TestNothingIsSpent:
    """Each mistake is found before the first noisy step."""

    @pytest.fixture(autouse=True)
    def no_steps(self, monkeypatch):
        def forbidden(*args, **kwargs):
            raise AssertionError("a step was taken")

        monkeypatch.setattr("nadpvi.private.dpvi.step", forbidden)

    @pytest.fixture
    def unread(self, tmp_path):
        """A path whose opening would fail with a FileError, so that reading it is noticed."""
        return tmp_path / "never-opened.csv"

    @pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), None, "1", True])
    def test_epsilon(self, epsilon):
        with pytest.raises(na.ArgumentError, match="epsilon"):
            na.PrivacyBudget(epsilon=epsilon, delta=1e-5)

    @pytest.mark.parametrize("delta", [0, 1, 2, -1e-5, float("nan"), None, "1e-5"])
    def test_delta(self, delta):
        with pytest.raises(na.ArgumentError, match="delta"):
            na.PrivacyBudget(epsilon=1.0, delta=delta)

    def test_column_that_the_schema_lacks(self, schema, unread):
        model = na.models.LogisticRegression(outcome="y", predictors=["age", "height"])
        with pytest.raises(na.NadpviError, match="height"):
            na.release(model, unread, schema=schema, privacy=BUDGET)

    @pytest.mark.parametrize(
        ("name", "value"), [("privacy", (1.0, 1e-5)), ("schema", {"age": 1}), ("config", {"num_steps": 3})]
    )
    def test_wrong_types(self, schema, unread, name, value):
        arguments = {"schema": schema, "privacy": BUDGET, name: value}
        with pytest.raises(na.ArgumentError, match=f"{name} must be"):
            na.release(MODEL, unread, **arguments)

    def test_bad_seed(self, schema, unread):
        with pytest.raises(na.ArgumentError, match="insecure_seed"):
            na.release(MODEL, unread, schema=schema, privacy=BUDGET, insecure_seed=-1)

    def test_noise_free_run_needs_a_step_size(self, schema, unread):
        with pytest.raises(na.ArgumentError, match="learning_rate"):
            na.release(MODEL, unread, schema=schema, privacy=na.NonPrivate())

    def test_step_size_that_must_diverge(self, schema, unread):
        model = na.models.LogisticRegression(outcome="y", prior_sd=0.003)
        with pytest.raises(na.ArgumentError, match="must diverge"):
            na.release(model, unread, schema=schema, privacy=BUDGET)

    def test_column_that_the_table_lacks(self, schema, table):
        with pytest.raises(na.DataError, match="gain"):
            na.release(MODEL, table.drop(columns="gain"), schema=schema, privacy=BUDGET)

    def test_missing_cell(self, schema, table):
        table.loc[17, "age"] = np.nan
        with pytest.raises(na.DataError, match="age") as error:
            na.release(MODEL, table, schema=schema, privacy=BUDGET)
        assert "17" not in str(error.value)

    def test_unknown_category(self, schema, table):
        table.loc[17, "job"] = "astronaut"
        with pytest.raises(na.DataError, match="job") as error:
            na.release(MODEL, table, schema=schema, privacy=BUDGET)
        assert "astronaut" not in str(error.value)

    def test_empty_table(self, schema, table):
        with pytest.raises(na.DataError):
            na.release(MODEL, table.head(0), schema=schema, privacy=BUDGET)


def test_values_outside_bounds_are_clamped(schema, table):
    far = table.copy()
    far["age"] = np.where(far["age"] > 50, 1e9, -1e9)
    near = table.copy()
    near["age"] = np.where(near["age"] > 50, 100.0, 0.0)
    arguments = {
        "schema": schema,
        "privacy": BUDGET,
        "config": na.DPVIConfig(num_steps=3),
        "insecure_seed": 1,
    }
    np.testing.assert_array_equal(
        na.release(MODEL, far, **arguments).phi, na.release(MODEL, near, **arguments).phi
    )


def test_input_table_is_left_as_it_was(schema, table):
    before = table.copy(deep=True)
    na.release(MODEL, table, schema=schema, privacy=BUDGET, config=na.DPVIConfig(num_steps=2))
    pd.testing.assert_frame_equal(table, before)


def test_a_diverging_run_says_what_it_cost_and_what_to_change(schema, table, monkeypatch):
    """Overflow on the way is no warning of NumPy's (warnings are errors here) but this one line."""
    monkeypatch.setattr("nadpvi.settings._check_stability", lambda *args, **kwargs: None)
    config = na.DPVIConfig(num_steps=3000, learning_rate=100.0)
    with pytest.raises(na.NadpviError, match="budget counts as spent") as error:
        na.release(MODEL, table, schema=schema, privacy=BUDGET, config=config)
    assert not isinstance(error.value, na.ArgumentError)
