"""Do the engine's iterates move as theory says? Against theorem 3 and its exact form in steps (section 11).

Runs of the replicate engine on tables whose loss is known (`theory_cases`). Means over replicates are
compared in their own standard errors. Within 4.5 of them, the 200 numbers of this file would fail by chance
under one seed in 700; a wrong law must be more than 8 away.
"""

import numpy as np
import pytest
from scipy import linalg
from scipy.special import expit
from theory_cases import (
    BUDGET,
    EXAMPLES,
    RATE,
    STEPS,
    errors_of,
    noise_covariance,
    quadratic,
    simulated,
)
from whole_run import whole_trace

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.privacy.noise import SimulatedGaussianNoise
from nadpvi.privacy.randomness import make_streams
from nadpvi.private.records import Records
from nadpvi.settings import make_settings
from nadpvi.theory import (
    expected_squared_distance,
    iterate_law,
    stationary_covariance,
    subsampled_sum,
)

REPLICATES, SETTLED = 300, 50
# lambda * kappa * a of the fastest location, and of the scales
STEP, STEP_U = 0.8, 0.1
SOUND, WRONG = 4.5, 8.0


def settings_of(name):
    """Return step sizes with which locations and scales settle within the run."""
    curvature = np.diag(quadratic(name).curvature)
    half = len(curvature) // 2
    learning_rate = STEP / (RATE * curvature[:half].max())
    return {
        "num_steps": STEPS,
        "sampling_rate": RATE,
        "learning_rate": learning_rate,
        "preconditioner_u": STEP_U / (RATE * 2.0 * learning_rate),
        "monte_carlo_samples": 20,
        "privacy": BUDGET,
    }


def law_of(name, traces, **replaced):
    """Return the arguments of `stationary_covariance` for the runs."""
    settings = traces.mechanism.settings
    return {
        "curvature": quadratic(name).curvature,
        "sampling_rate": RATE,
        "learning_rate": settings.learning_rate,
        "noise_covariance": noise_covariance(
            name, settings=settings, noise_multiplier=traces.mechanism.noise_multiplier
        ),
    } | replaced


@pytest.fixture(scope="module", params=EXAMPLES)
def runs(request):
    """A name, runs that start at the optimum, and how far from it they are in their later steps."""
    name = request.param
    optimum = quadratic(name).phi_star
    traces = simulated(name, num_replicates=REPLICATES, seed=5, start=optimum, **settings_of(name))
    return name, traces, traces.phi[:, SETTLED:] - optimum


def products(distance, *, lag=0):
    """Return each replicate's mean of distance[t + lag] distance[t]', shape (R, D, D)."""
    length = distance.shape[1] - lag
    return np.einsum("rti,rtj->rij", distance[:, lag:], distance[:, :length]) / length


class TestEngine:
    def test_settled_iterates_have_the_covariance_of_the_law_in_steps(self, runs):
        name, traces, distance = runs
        settled = stationary_covariance(**law_of(name, traces))
        off = errors_of(products(distance), settled)
        assert np.abs(off).max() < SOUND
        # nor are they far off in size: locations within 3 %, scales, which are not quite linear, within 10 %
        ratio = np.diag(products(distance).mean(axis=0)) / np.diag(settled)
        half = len(ratio) // 2
        assert np.abs(ratio[:half] - 1).max() < 0.03
        assert np.abs(ratio[half:] - 1).max() < 0.10

    def test_time_is_not_continuous(self, runs):
        """Theorem 3's process has a variance smaller by 1 - lambda kappa a / 2."""
        name, traces, distance = runs
        settled = stationary_covariance(**law_of(name, traces), is_continuous=True)
        off = np.diag(errors_of(products(distance), settled))
        assert off.max() > 5 * WRONG

    def test_the_last_line_of_section_11_has_lost_a_kappa(self, runs):
        """Of the fastest location, whose noise is nearly uncorrelated with the others'."""
        name, traces, distance = runs
        law = law_of(name, traces)
        curvature, variance = law["curvature"][0, 0], law["noise_covariance"][0, 0]
        step = law["learning_rate"][0]
        squares = (distance[:, :, 0] ** 2).mean(axis=1)
        ours = expected_squared_distance(
            [curvature], sampling_rate=RATE, learning_rate=step, noise_std=np.sqrt(variance)
        )
        printed = step * variance / RATE / (2 * curvature - step * curvature**2)
        assert abs(errors_of(squares, ours)) < SOUND
        assert abs(errors_of(squares, printed)) > WRONG

    @pytest.mark.parametrize("lag", [1, 2, 5])
    def test_what_is_left_of_a_distance_shrinks_as_the_law_says(self, runs, lag):
        """By I - M a step: exp(-M), the continuous law, forgets more slowly."""
        name, traces, distance = runs
        law = law_of(name, traces)
        settled = stationary_covariance(**law)
        pull = RATE * law["learning_rate"][:, None] * law["curvature"]
        found = products(distance, lag=lag)
        left = np.linalg.matrix_power(np.eye(len(pull)) - pull, lag)
        assert np.abs(errors_of(found, left @ settled)).max() < SOUND
        if lag < 5:
            wrong = errors_of(found, linalg.expm(-lag * pull) @ settled)
            assert np.abs(np.diag(wrong)).max() > WRONG

    def test_every_part_of_the_noise_is_needed(self, runs):
        """The theorem's own noise, (sigma C)^2 alone: sampling shows in locations, the guide's draws in u."""
        name, traces, distance = runs
        settings = traces.mechanism.settings
        privacy = np.diag(
            (traces.mechanism.noise_multiplier * settings.clip_norm / settings.preconditioner) ** 2
        )
        settled = stationary_covariance(**law_of(name, traces, noise_covariance=privacy))
        off = np.diag(errors_of(products(distance), settled))
        half = len(off) // 2
        assert off[half:].min() > WRONG
        if name != "poisson_gamma":  # whose clip norm, and so its noise, is far above its gradients
            assert off[:half].max() > WRONG

    def test_from_a_start_away_from_the_optimum(self):
        """Mean and covariance at each of the first steps, over 800 runs."""
        name, size = "bernoulli_beta", 800
        optimum = quadratic(name).phi_star
        settings = settings_of(name)
        short = simulated(name, num_replicates=2, seed=1, start=optimum, **settings)
        law = law_of(name, short)
        start = optimum + [3.0, 0.0] * np.sqrt(np.diag(stationary_covariance(**law)))
        traces = simulated(name, num_replicates=size, seed=9, start=start, **settings)
        for step in (1, 2, 3, 5, 8):
            found = traces.phi[:, step]
            mean, covariance = iterate_law(step, start=start, phi_star=optimum, **law)
            assert np.abs(errors_of(found, mean)).max() < SOUND
            centred = found - mean
            outer = np.einsum("ri,rj->rij", centred, centred)
            assert np.abs(errors_of(outer, covariance)).max() < SOUND
            if step <= 2:
                slower = iterate_law(step, start=start, phi_star=optimum, is_continuous=True, **law)
                assert abs(errors_of(found, slower.mean)[0]) > WRONG


# A regression whose predictors agree in four records of five, so that coordinates move together.
X = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
ROWS = Records(
    x=np.repeat(X, 2, axis=0),
    y=np.tile([0.0, 1.0], 4),
    counts=np.array([4_000, 12_000, 2_500, 1_500, 1_500, 2_500, 12_000, 4_000]),
)


@pytest.fixture(scope="module")
def pairs():
    """Mean products of distances of five runs, and the arguments of their law."""
    schema = na.Schema.from_dict(
        {
            "columns": {
                "a": {"kind": "real", "lower": -1, "upper": 1},
                "b": {"kind": "real", "lower": -1, "upper": 1},
                "y": {"kind": "binary", "levels": ["no", "yes"]},
            }
        }
    )
    model = na.models.LogisticRegression(outcome="y", predictors=["a", "b"], intercept=False)
    optimum, curvature, gradients = logistic_mode(ROWS)
    description = ModelDescription(model=model, schema=schema, guide=na.MeanField())
    config = na.DPVIConfig(
        num_steps=1000,
        sampling_rate=RATE,
        clip_norm=1.5,
        learning_rate=0.8 / (RATE * np.linalg.eigvalsh(curvature)[-1]),
        monte_carlo_samples=2,
        initial_mu=dict(zip(description.names, optimum.tolist(), strict=True)),
        initial_u=-20.0,
        # The guide stays a point, so that its draws add nothing.
        learning_rate_factors={label: 1e-12 for label in description.phi_labels[2:]},
    )
    settings = make_settings(description, config, noise_multiplier=60.0)
    made = []
    for seed in range(5):
        streams = make_streams(insecure_seed=seed)
        noise = SimulatedGaussianNoise(streams.noise, noise_multiplier=60.0, dimension=4)
        trace = whole_trace(ROWS, settings, noise=noise, streams=streams)
        # In pieces longer than any memory, for the sake of the standard error.
        made += list((trace.phi[40:, :2] - optimum).reshape(24, 40, 2))
    sampled = subsampled_sum(gradients, sampling_rate=RATE, counts=ROWS.counts, noise_std=90.0)
    law = {
        "curvature": curvature,
        "sampling_rate": RATE,
        "learning_rate": settings.learning_rate[:2],
        "noise_covariance": sampled.covariance,
    }
    return products(np.array(made)), law


class TestRegression:
    """The ordinary engine, step by step, with a curvature that is not diagonal."""

    def test_coordinates_settle_together(self, pairs):
        made, law = pairs
        assert np.abs(errors_of(made, stationary_covariance(**law))).max() < SOUND

    def test_without_the_other_coordinate_the_law_is_wrong(self, pairs):
        made, law = pairs
        alone = law | {"curvature": np.diag(np.diag(law["curvature"]))}
        assert np.abs(errors_of(made, stationary_covariance(**alone))).max() > WRONG


def logistic_mode(records):
    """Return the posterior mode under a standard normal prior, the curvature and the gradients there."""
    theta = np.zeros(records.x.shape[1])
    for _ in range(30):
        p = expit(records.x @ theta)
        gradients = (p - records.y)[:, None] * records.x
        hessian = (records.x.T * (records.counts * p * (1 - p))) @ records.x + np.eye(len(theta))
        theta = theta - np.linalg.solve(hessian, records.counts @ gradients + theta)
    return theta, hessian, gradients
