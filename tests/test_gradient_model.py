"""The sums of a trace and the priors of the post-processing model."""

import dataclasses
import math

import numpy as np
import pytest
from trace_cases import make_release

from nadpvi import gradient_model as gm
from nadpvi.errors import ArgumentError


def window(release, burn_in=0.2):
    first = gm.window_start(len(release.phi), burn_in=burn_in)
    return release.phi[first:], release.noisy_gradient[first:]


def test_sums_are_those_of_exact_arithmetic():
    rng = np.random.default_rng(3)
    phi = 1e6 + rng.integers(-1000, 1000, size=(40, 3)) / 64.0  # exact in binary, so fsum is the truth
    g = rng.integers(-1000, 1000, size=(40, 3)) / 64.0
    sums = gm.make_trace_sums(phi, g, burn_in=0.25)
    x, y = phi[10:], g[10:]
    assert sums.num_steps == 30
    for d in range(3):
        x_bar, y_bar = math.fsum(x[:, d]) / 30, math.fsum(y[:, d]) / 30
        assert sums.phi_bar[d] == pytest.approx(x_bar, rel=1e-15)
        assert sums.g_bar[d] == pytest.approx(y_bar, rel=1e-12)
        assert sums.s_pp[d] == pytest.approx(math.fsum((x[:, d] - x_bar) ** 2), rel=1e-10)
        assert sums.s_gp[d] == pytest.approx(
            math.fsum((x[:, d] - x_bar) * (y[:, d] - y_bar)), rel=1e-10, abs=1e-9
        )
        assert sums.s_gg[d] == pytest.approx(math.fsum((y[:, d] - y_bar) ** 2), rel=1e-12)


def test_slope_and_residual_are_those_of_least_squares():
    release = make_release()
    sums = gm.make_trace_sums(release.phi, release.noisy_gradient, burn_in=0.0)
    for d in range(3):
        (slope, _), (squares,), *_ = np.polyfit(release.phi[:, d], release.noisy_gradient[:, d], 1, full=True)
        assert sums.slope[d] == pytest.approx(slope, rel=1e-9)
        assert sums.residual[d] == pytest.approx(squares, rel=1e-9)


@pytest.mark.parametrize(
    ("num_steps", "burn_in", "first"),
    [(10, 0.2, 2), (10, 0.0, 0), (15, 0.2, 3), (100, 0.29, 29), (7, 0.5, 3), (3, 0, 0), (1000, 0.9, 900)],
)
def test_window_start(num_steps, burn_in, first):
    assert gm.window_start(num_steps, burn_in=burn_in) == first


@pytest.mark.parametrize("burn_in", [1.0, -0.1, math.nan, math.inf, "0.2", None, True])
def test_burn_in_outside_its_range_is_refused(burn_in):
    with pytest.raises(ArgumentError, match=r"burn_in must be .*\[0, 1\)"):
        gm.make_trace_sums(np.zeros((10, 1)), np.zeros((10, 1)), burn_in=burn_in)


def test_short_window_is_refused():
    with pytest.raises(ArgumentError, match="leaves 2 of 10 steps"):
        gm.make_trace_sums(np.zeros((10, 1)), np.zeros((10, 1)), burn_in=0.8)


@pytest.mark.parametrize("name", ["phi", "noisy_gradient"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_finite_step_is_named(name, value):
    traces = {"phi": np.ones((10, 2)), "noisy_gradient": np.ones((10, 2))}
    traces[name][7, 1] = value
    with pytest.raises(ArgumentError, match=f"^{name} is not finite at step 7 ") as caught:
        gm.make_trace_sums(traces["phi"], traces["noisy_gradient"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("phi", "g"),
    [
        (np.zeros(10), np.zeros(10)),
        (np.zeros((10, 2)), np.zeros((9, 2))),
        (np.zeros((10, 2)), np.zeros((10, 3))),
        (np.zeros((10, 0)), np.zeros((10, 0))),
        ([["a"], ["b"], ["c"]], np.zeros((3, 1))),
    ],
)
def test_wrong_shapes_are_refused(phi, g):
    with pytest.raises(ArgumentError):
        gm.make_trace_sums(phi, g, burn_in=0.0)


def test_overflowing_trace_is_refused():
    phi = np.full((10, 1), 1e200)
    phi[::2] = -1e200
    with pytest.raises(ArgumentError, match="s_pp is not finite"):
        gm.make_trace_sums(phi, np.zeros((10, 1)))


@pytest.mark.parametrize("constant", [0.1, 1e6 + 0.1, 1 / 3])
def test_coordinate_that_never_moved_is_refused_by_label(constant):
    release = make_release()
    phi = release.phi.copy()
    phi[:, 1] = constant
    with pytest.raises(ArgumentError, match=r"'mu\[1\]' never moved"):
        gm.make_gradient_model(dataclasses.replace(release, phi=phi))


def test_release_without_noise_is_refused_by_label():
    release = dataclasses.replace(make_release(), noise_multiplier=0.0)
    with pytest.raises(
        ArgumentError, match=r"'mu\[0\]' \(and 2 more coordinates\) has a noise_std"
    ) as caught:
        gm.make_gradient_model(release)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "known"),
    [({"phi_star_prior": "flat"}, "'trace', 'model'"), ({"curvature_prior": "flat"}, "'auto'")],
)
def test_unknown_choice_lists_the_known_ones(setting, known):
    with pytest.raises(ArgumentError, match=f"one of {known}"):
        gm.make_gradient_model(make_release(), **setting)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_subsampling_scale_outside_its_range_is_refused(scale):
    with pytest.raises(ArgumentError, match="subsampling_scale"):
        gm.make_gradient_model(make_release(), subsampling_noise=True, subsampling_scale=scale)


@pytest.mark.parametrize("rate", [0.0, 1.5, math.nan])
def test_sampling_rate_outside_its_range_is_refused(rate):
    with pytest.raises(ArgumentError, match="sampling_rate"):
        gm.make_gradient_model(dataclasses.replace(make_release(), sampling_rate=rate))


@pytest.mark.parametrize("beta", [np.array([1.0, 0.0, 1.0]), np.ones(2), np.array([1.0, math.nan, 1.0])])
def test_bad_preconditioner_is_refused(beta):
    with pytest.raises(ArgumentError, match="preconditioner"):
        gm.make_gradient_model(dataclasses.replace(make_release(), preconditioner=beta))


def test_trace_priors_are_the_published_ones():
    release = make_release()
    model = gm.make_gradient_model(release, burn_in=0.5)
    phi, g = window(release, 0.5)
    x = phi - phi.mean(axis=0)
    s_pp = (x**2).sum(axis=0)
    noise = release.noise_multiplier * release.clip_norm / release.preconditioner
    np.testing.assert_allclose(model.noise_std, noise)
    expected = np.abs((x * g).sum(axis=0)) / (0.1 * s_pp)
    assert (expected > 25.0).all()
    np.testing.assert_allclose(model.v_prior_mean, expected, rtol=1e-9)
    np.testing.assert_allclose(model.v_prior_sd, noise / (0.1 * np.sqrt(s_pp)), rtol=1e-9)
    np.testing.assert_allclose(model.phi_star_prior_mean, phi.mean(axis=0))
    np.testing.assert_array_equal(model.phi_star_prior_sd, 1.0)
    assert model.tau_prior_scale is None


def test_the_scale_of_tau_is_two_noise_sds_or_what_the_residuals_show():
    scales = []
    for extra in (0.0, 500.0):
        release = make_release(subsampling_std=extra)
        model = gm.make_gradient_model(release, subsampling_noise=True)
        phi, g = window(release, 0.2)
        residuals = [y - np.polyval(np.polyfit(x, y, 1), x) for x, y in zip(phi.T, g.T, strict=True)]
        sd = np.sqrt(np.square(residuals).sum(axis=1) / (len(phi) - 2))
        np.testing.assert_allclose(model.tau_prior_scale, np.maximum(2.0 * model.noise_std, sd), rtol=1e-9)
        scales.append(model.tau_prior_scale / model.noise_std)
        fixed = gm.make_gradient_model(release, subsampling_noise=True, subsampling_scale=3.0)
        np.testing.assert_allclose(fixed.tau_prior_scale, 3.0 * model.noise_std)
    np.testing.assert_allclose(scales[0], 2.0)
    assert (scales[1] > 10.0).all()


def test_model_prior_is_used_where_the_model_has_one():
    release = dataclasses.replace(
        make_release(),
        model_prior_mean=np.array([3.0, np.nan, 0.0]),
        model_prior_sd=np.array([2.0, np.nan, 0.5]),
    )
    model = gm.make_gradient_model(release, phi_star_prior="model")
    np.testing.assert_array_equal(model.phi_star_prior_mean, [3.0, model.sums.phi_bar[1], 0.0])
    np.testing.assert_array_equal(model.phi_star_prior_sd, [2.0, 1.0, 0.5])
    bad = dataclasses.replace(release, model_prior_sd=np.array([0.0, 1.0, 1.0]))
    with pytest.raises(ArgumentError, match="phi_star_prior_sd"):
        gm.make_gradient_model(bad, phi_star_prior="model")


def test_arrays_of_the_model_cannot_be_written_to_and_are_copies():
    release = make_release()
    model = gm.make_gradient_model(release, subsampling_noise=True)
    arrays = [getattr(model, f.name) for f in dataclasses.fields(model)]
    arrays += [getattr(model.sums, f.name) for f in dataclasses.fields(model.sums)]
    arrays = [array for array in arrays if isinstance(array, np.ndarray)]
    assert len(arrays) == 11
    assert not any(array.flags.writeable for array in arrays)
    release.phi[:] = 0.0
    assert (model.sums.s_pp > 0).all()
