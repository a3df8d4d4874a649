"""Is the step size of a run the one that theorem 4 and Eq. (55) say, and is the bound behind them true?"""

import numpy as np
import pytest
from scipy import optimize
from theory_cases import (
    BUDGET,
    COIN,
    CURVATURE,
    OPTIMUM,
    PROBABILITY,
    RATE,
    SAMPLING,
    SCHEMA,
    STEPS,
    TOTAL,
    coin_runs,
    coin_slope,
)

import nadpvi as na
from nadpvi.description import ModelDescription
from nadpvi.errors import ArgumentError
from nadpvi.settings import make_settings
from nadpvi.theory import (
    DescentProblem,
    convergence_bound,
    expected_squared_distance,
    optimal_learning_rate,
)

PROBLEM = DescentProblem(
    excess_loss=8.0,
    smoothness=2.0,
    num_steps=400,
    sampling_rate=0.1,
    noise_std=3.0,
    dimension=5,
    gradient_bound=60.0,
    subsampling_error=4.0,
)


def eq_54(problem):
    """Return the step of Eq. (54), with the excess loss that its proportionality leaves out."""
    moment = (problem.sampling_rate * problem.gradient_bound) ** 2 + problem.dimension * problem.noise_std**2
    return np.sqrt(2 * problem.excess_loss / (problem.smoothness * problem.num_steps * moment))


class TestBound:
    @pytest.mark.parametrize("gradient_bound", [0.0, 60.0, 500.0])
    @pytest.mark.parametrize("error", [0.0, 4.0])
    def test_is_least_at_the_optimal_step(self, gradient_bound, error):
        problem = PROBLEM._replace(gradient_bound=gradient_bound, subsampling_error=error)
        found = optimize.minimize_scalar(
            lambda log_step: np.log(convergence_bound(problem, learning_rate=np.exp(log_step))),
            bracket=(-8.0, 0.0),
            tol=1e-10,
        )
        np.testing.assert_allclose(np.exp(found.x), optimal_learning_rate(problem), rtol=1e-4)

    @pytest.mark.parametrize("gradient_bound", [0.0, 60.0, 5000.0])
    def test_eq_54_is_for_a_tighter_bound_and_costs_this_one_little(self, gradient_bound):
        """Its step is up to sqrt(2) times longer, which costs up to 6 % of the bound."""
        problem = PROBLEM._replace(gradient_bound=gradient_bound, subsampling_error=0.0)
        longer = eq_54(problem) / optimal_learning_rate(problem)
        cost = convergence_bound(problem, learning_rate=eq_54(problem)) / convergence_bound(
            problem, learning_rate=optimal_learning_rate(problem)
        )
        np.testing.assert_allclose(cost, (longer + 1 / longer) / 2, rtol=1e-12)
        expected = {0.0: 1.0, 60.0: 1.2, 5000.0: np.sqrt(2)}[gradient_bound]
        assert longer == pytest.approx(expected, rel=0.05)
        assert 1.0 <= cost < 1.061

    @pytest.mark.parametrize("gradient_bound", [60.0, 5000.0])
    def test_eq_54_is_best_where_subsamples_miss_by_nothing(self, gradient_bound):
        """There E |noisy gradient|^2 is kappa^2 G^2 + s^2 d, without the factor 2."""
        problem = PROBLEM._replace(gradient_bound=gradient_bound, subsampling_error=0.0)
        kappa, moment = problem.sampling_rate, problem.dimension * problem.noise_std**2
        moment += (problem.sampling_rate * gradient_bound) ** 2

        def bound(log_step):
            step = np.exp(log_step)
            way = problem.excess_loss / (step * kappa * problem.num_steps)
            return way + step * problem.smoothness * moment / (2 * kappa)

        start = np.log(eq_54(problem))
        found = optimize.minimize_scalar(bound, bracket=(start - 1, start + 1))
        np.testing.assert_allclose(np.exp(found.x), eq_54(problem), rtol=1e-4)

    def test_numbers_are_checked(self):
        for wrong in (
            {"excess_loss": 0.0},
            {"num_steps": 0},
            {"sampling_rate": 2.0},
            {"gradient_bound": -1.0},
        ):
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                optimal_learning_rate(PROBLEM._replace(**wrong))
        with pytest.raises(ArgumentError, match="learning_rate"):
            convergence_bound(PROBLEM, learning_rate=0.0)


CLIP_NORM, START = 5.0, OPTIMUM + 0.04


def measure():
    """Return a problem, and the mean squared gradient of runs by factor of the optimal step."""
    sigma = na.noise_multiplier(
        epsilon=BUDGET.epsilon, delta=BUDGET.delta, num_steps=STEPS, sampling_rate=RATE
    )

    def loss(phi):
        return TOTAL * (np.logaddexp(0.0, phi) - PROBABILITY * phi)

    problem = DescentProblem(
        excess_loss=loss(START) - loss(OPTIMUM),
        smoothness=TOTAL / 4.0,  # no probability has more variance
        num_steps=STEPS,
        sampling_rate=RATE,
        noise_std=sigma * CLIP_NORM,
        dimension=1,
        gradient_bound=coin_slope(START),
        # In mean square, which is all that the proof needs.
        subsampling_error=np.sqrt(SAMPLING),
    )
    found = {}
    for factor in (0.1, 0.4, 1.0, 2.5, 10.0):
        step = factor * optimal_learning_rate(problem) * RATE * CURVATURE
        runs = coin_runs(step=step, clip_norm=CLIP_NORM, start=START, num_replicates=100)
        found[factor] = np.mean(coin_slope(runs.phi) ** 2)
    return problem, found


@pytest.fixture(scope="module")
def measured():
    return measure()


class TestBoundOnRuns:
    """The coin, from a start well outside of where its iterates settle."""

    def test_it_holds(self, measured):
        problem, found = measured
        best = optimal_learning_rate(problem)
        for factor, squares in found.items():
            assert squares < convergence_bound(problem, learning_rate=factor * best)

    def test_it_is_tight_at_long_steps(self, measured):
        """There its last term is all, and one without 1 / kappa would be broken."""
        problem, found = measured
        bound = convergence_bound(problem, learning_rate=10.0 * optimal_learning_rate(problem))
        assert 0.7 < found[10.0] / bound < 1.0
        assert found[10.0] > RATE * bound

    def test_the_optimal_step_is_near_the_best(self, measured):
        _, found = measured
        assert found[1.0] < 0.6 * min(found[0.1], found[10.0])
        assert found[1.0] < 1.2 * min(found[0.4], found[2.5])


class TestHeuristic:
    """Eq. (55) as a run has it."""

    @pytest.mark.parametrize("guide", [na.MeanField(), na.FullRank()], ids=["mean_field", "full_rank"])
    @pytest.mark.parametrize("constant", [0.5, 1.0, 7.0])
    def test_is_the_optimal_step_where_noise_is_all_there_is(self, schema, guide, constant):
        """With lambda_c = sqrt(excess loss / smoothness), times beta (13.2)."""
        settings = settings_of(schema, guide=guide, learning_rate_constant=constant, sigma=9.0, num_steps=700)
        problem = DescentProblem(
            excess_loss=3.0 * constant**2,
            smoothness=3.0,
            num_steps=700,
            sampling_rate=0.2,
            noise_std=9.0 * settings.clip_norm,
            dimension=len(settings.learning_rate),
        )
        expected = optimal_learning_rate(problem) * settings.preconditioner
        np.testing.assert_allclose(settings.learning_rate, expected, rtol=1e-12)

    @pytest.mark.parametrize("sigma", [2.0, 300.0])
    @pytest.mark.parametrize("num_steps", [100, 10_000])
    def test_by_default_noise_alone_would_carry_every_coordinate_one_unit_far(self, schema, sigma, num_steps):
        """lambda_c = sqrt(D / 2): sqrt(T) times a step's sd is 1 whatever sigma, C, beta, D and T are."""
        settings = settings_of(schema, sigma=sigma, num_steps=num_steps)
        noise_std = sigma * settings.clip_norm / settings.preconditioner
        np.testing.assert_allclose(settings.learning_rate * noise_std * np.sqrt(num_steps), 1.0, rtol=1e-12)

    def test_neither_rest_nor_relaxation_depends_on_the_number_of_steps(self):
        """With sigma as published for epsilon 0.1, kappa 0.1 and T = 10,000, 1,000 and 300: within 0.3 %.

        What does: lambda * kappa * a, of which the shortest run has the most, and with it the exact variance.
        """
        description = ModelDescription(model=COIN, schema=SCHEMA, guide=na.MeanField())
        relaxations, continuous, steps, exact = [], [], [], []
        for num_steps, sigma in ((10_000, 307.5), (1000, 97.24), (300, 53.3)):
            config = na.DPVIConfig(
                num_steps=num_steps, clip_norm=2.0, preconditioner_u=120.0, learning_rate_constant=1.0
            )
            rate = make_settings(description, config, noise_multiplier=sigma).learning_rate[0]
            law = {"sampling_rate": 0.1, "learning_rate": rate, "noise_std": 2.0 * sigma}
            steps.append(rate * 0.1 * 1200.0)
            relaxations.append(num_steps * steps[-1])
            continuous.append(expected_squared_distance([1200.0], is_continuous=True, **law))
            exact.append(expected_squared_distance([1200.0], **law))
        for numbers in (relaxations, continuous):
            np.testing.assert_allclose(numbers, numbers[0], rtol=3e-3)
        np.testing.assert_allclose(np.array(exact) / continuous, 1 / (1 - np.array(steps) / 2), rtol=1e-12)
        assert steps[-1] > 30 * steps[0]

    def test_of_runs_of_the_engine(self):
        """Four times the steps: sigma doubles, and settled iterates spread as far, but for the exact law."""
        spreads, laws = [], []
        for num_steps in (STEPS // 4, STEPS):
            runs = coin_runs(constant=0.06, num_steps=num_steps, clip_norm=2.0, num_replicates=400)
            half = runs.phi[:, num_steps // 2 :]
            spreads.append(np.mean((half - OPTIMUM) ** 2))
            law = {"sampling_rate": RATE, "learning_rate": runs.learning_rate, "noise_std": runs.noise_std}
            laws.append(expected_squared_distance([CURVATURE], **law))
        np.testing.assert_allclose(spreads, laws, rtol=0.06)
        assert 1.0 < laws[0] / laws[1] < 1.5


def settings_of(schema, *, sigma, num_steps, guide=None, **settings):
    """Return the settings of a logistic regression with six coefficients."""
    config = na.DPVIConfig(
        num_steps=num_steps,
        sampling_rate=0.2,
        preconditioner_u=7.0,
        guide=guide or na.MeanField(),
        **settings,
    )
    model = na.models.LogisticRegression(outcome="y")
    description = ModelDescription(model=model, schema=schema, guide=config.guide)
    return make_settings(description, config, noise_multiplier=sigma)
