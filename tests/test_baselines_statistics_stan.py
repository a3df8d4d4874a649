"""The Stan program of noisy statistics: equal densities, and the same posterior as the Gibbs sampler."""

import subprocess

import numpy as np
import pytest
import stan_oracle
import stanli
from scipy import stats
from statistics_cases import ADD, REPLACE, SCHEMA, make_case
from test_stan_programs import stanc_paths

from nadpvi.arviz_bridge import as_draws, convergence
from nadpvi.baselines.sufficient_statistics.gibbs import sample_statistics
from nadpvi.baselines.sufficient_statistics.stan import make_statistics_data, sample_statistics_stan
from nadpvi.engines.embedded import EmbeddedEngine
from nadpvi.engines.programs import program_path
from nadpvi.errors import ArgumentError
from nadpvi.supports import SUPPORTS

PROGRAM = program_path("noisy_statistics")
CASES = [(name, relation) for name in ("coin", "die", "wait") for relation in (ADD, REPLACE)]
SHARES = {"coin": [0.3, 0.7], "die": [0.2, 0.3, 0.5], "wait": [0.12, 0.88]}


def make_data(name, relation):
    """Return a mechanism, noisy sums of about 1,000 records, N if public, and the program's data."""
    mechanism = make_case(name, relation=relation, noise="gaussian")
    number = len(mechanism.family.labels)
    noisy = (
        1000.0 * np.array(SHARES[name])[:number] + mechanism.noise_scale * np.array([0.5, -1, 0.3])[:number]
    )
    num_records = 1000 if relation == REPLACE else None
    return mechanism, noisy, num_records, make_statistics_data(mechanism, noisy, num_records=num_records)


def twin(mechanism, data, point):
    """Return the log density at an unconstrained point, by SciPy."""
    family, size = mechanism.family, len(point) - (1 - data["is_count_public"])
    theta, rest = point[:size], point[size:]
    count = data["num_records"] * np.exp(rest.sum())
    moments = family.moments(theta[None])
    covariance = count * moments.covariance[0] + data["noise_std"] ** 2 * np.eye(data["J"])
    value = stats.multivariate_normal(count * moments.mean[0], covariance).logpdf(data["noisy"]) + rest.sum()
    if data["family"] == 2:
        rate = np.exp(theta[0])
        return value + stats.gamma(data["prior_shape"], scale=1 / data["prior_rate"]).logpdf(rate) + theta[0]
    simplex = SUPPORTS["simplex"]
    shares = simplex.constrain(theta, (data["C"],))
    return (
        value
        + stats.dirichlet(data["concentration"]).logpdf(shares)
        + simplex.log_jacobian(theta, (data["C"],))
    )


def points(name, relation, *, count):
    size = {"coin": 1, "die": 2, "wait": 1}[name] + (relation == ADD)
    centre = np.zeros(size)
    centre[0] = 1.0 if name == "wait" else 0.0
    return centre + 0.3 * np.random.default_rng(1).standard_normal((count, size))


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_interpreted_stan_equals_the_twin(name, relation):
    mechanism, _, _, data = make_data(name, relation)
    plain = {key: np.asarray(value).tolist() for key, value in data.items()}
    model = stanli.Model(str(PROGRAM), data=plain)
    for point in points(name, relation, count=4):
        value, gradient = model.log_prob_grad(point)
        assert value == pytest.approx(twin(mechanism, data, point), rel=1e-9)
        step = 1e-5
        for k, unit in enumerate(np.eye(len(point))):
            ends = [twin(mechanism, data, point + side * step * unit) for side in (1, -1)]
            assert gradient[k] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-4)


@pytest.mark.stan
@pytest.mark.skipif(
    stan_oracle.missing_part() is not None, reason=f"compiled Stan: {stan_oracle.missing_part()}"
)
def test_compiled_stan_equals_the_twin():
    cases, expected = [], []
    for name, relation in CASES:
        mechanism, _, _, data = make_data(name, relation)
        for point in points(name, relation, count=2):
            cases.append((data, point))
            expected.append(twin(mechanism, data, point))
    answers = stan_oracle.evaluate(PROGRAM, cases)
    np.testing.assert_allclose([value for value, _ in answers], expected, rtol=1e-9)


@pytest.mark.parametrize(("name", "relation"), CASES)
def test_nuts_and_gibbs_agree(name, relation):
    """Means and quantiles within 5 standard errors by effective draws, and 0.03 sd for the CLT: 1e-5."""
    mechanism, noisy, num_records, _ = make_data(name, relation)
    theirs = sample_statistics_stan(
        mechanism, noisy, num_records=num_records, engine=EmbeddedEngine(), seed=3, draws=2000
    )
    ours = sample_statistics(
        mechanism.family,
        np.tile(noisy, (20, 1)),
        noise="gaussian",
        noise_scale=mechanism.noise_scale,
        num_records=num_records,
        draws=500,
        thin=4,
        rng=np.random.default_rng(4),
    ).theta
    assert theirs.shape[2] == ours.shape[2]
    effective = [convergence(as_draws({"x": part}))["ess_bulk"]["x"].to_numpy() for part in (theirs, ours)]
    assert np.min(effective) > 500
    error = np.sqrt(sum(1.0 / number for number in effective))
    sd = theirs.std(axis=(0, 1))
    difference = np.abs(ours.mean(axis=(0, 1)) - theirs.mean(axis=(0, 1))) / sd
    np.testing.assert_array_less(difference, 5 * error + 0.03)
    for level in (0.1, 0.9):
        below = (ours < np.quantile(theirs, level, axis=(0, 1))).mean(axis=(0, 1))
        np.testing.assert_array_less(np.abs(below - level), 5 * np.sqrt(level * (1 - level)) * error + 0.01)


@pytest.mark.skipif(
    not stanc_paths(),
    reason="no stanc: set NADPVI_PROPHET_DIR to an unpacked prophet wheel, or install PyStan",
)
def test_stanc_has_nothing_to_complain_about(tmp_path):
    for stanc in stanc_paths():
        command = [stanc, "--warn-pedantic", f"--o={tmp_path / 'out.hpp'}", PROGRAM]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stdout) == (0, ""), stanc
        # One warning: N's flat prior, which is meant.
        warned = " ".join(result.stderr.split())
        assert warned.startswith("Warning: The parameter relative_count has no priors. "), stanc
        assert warned.count("Warning") == 1, result.stderr


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (make_case("coin", relation=ADD, noise="laplace"), "Gaussian noise"),
        (make_case("visits", relation=ADD, noise="gaussian"), "counts of levels"),
        (make_case("wait", relation=ADD, noise="gaussian", beyond="drop", schema=SCHEMA), "counts of levels"),
        (make_case("coin", relation=REPLACE, noise="gaussian"), "num_records must be given"),
    ],
)
def test_what_the_program_does_not_know_is_refused(case, message):
    with pytest.raises(ArgumentError, match=message):
        make_statistics_data(case, np.array([10.0, 20.0]), num_records=None)
