"""Guarantees of clipping and summing, line by line of their docstrings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nadpvi import MeanField, PrivacyError
from nadpvi.models import LogisticRegression
from nadpvi.models.base import RecordBatch
from nadpvi.privacy.noise import GRID_UNITS, NoNoise, SimulatedGaussianNoise
from nadpvi.private.dpsgd import check_exact_sums, clip_weights, clipped_sum, exact_sum, release_gradient
from nadpvi.private.gradients import DenseGradients
from nadpvi.private.routes.linear import linear_route

any_float = st.floats(allow_nan=True, allow_infinity=True, width=64)
rows = arrays(np.float64, (3, 4), elements=any_float)
betas = arrays(np.float64, (4,), elements=st.floats(1e-3, 1e3))


def linear_gradients(*, x, location, scale):
    """Gradients as the route of matrix products holds them, with whatever numbers in them."""
    num_params = x.shape[1]
    gradients_of = linear_route(
        LogisticRegression(outcome="y"),
        guide=MeanField(),
        phi=np.zeros(2 * num_params),
        standard_normal=np.zeros((1, num_params)),
        preconditioner=np.ones(2 * num_params),
    )
    made = gradients_of(RecordBatch(x=np.zeros(x.shape), y=np.zeros(len(x))))
    return made._replace(x=x, location=location[None], scale=scale[None])


@settings(max_examples=300, deadline=None)
@given(rows=rows, beta=betas, clip_norm=st.floats(1e-3, 1e3))
def test_any_record_stays_within_the_sensitivity_on_the_grid(rows, beta, clip_norm):
    with np.errstate(all="ignore"):
        rows = rows * beta
    for row in rows:
        total = clipped_sum(DenseGradients(row[None]), clip_norm=clip_norm, grid_units=GRID_UNITS)
        assert (total == np.trunc(total)).all()
        # Exact integer arithmetic: no rounding can hide an excess.
        assert sum(int(value) ** 2 for value in total) <= GRID_UNITS**2


@settings(max_examples=200, deadline=None)
@given(rows=rows, beta=betas)
def test_adding_a_record_moves_the_grid_sum_by_that_record_alone(rows, beta):
    with np.errstate(all="ignore"):
        rows = rows * beta
    kwargs = {"clip_norm": 2.0, "grid_units": GRID_UNITS}
    full = clipped_sum(DenseGradients(rows), **kwargs)
    fewer = clipped_sum(DenseGradients(rows[:2]), **kwargs)
    alone = clipped_sum(DenseGradients(rows[2:]), **kwargs)
    np.testing.assert_array_equal(full - fewer, alone)


@settings(max_examples=200, deadline=None)
@given(
    x=arrays(np.float64, (3, 2), elements=any_float),
    location=arrays(np.float64, (3,), elements=any_float),
    scale=arrays(np.float64, (3, 2), elements=any_float),
)
def test_linear_gradients_stay_within_the_sensitivity_too(x, location, scale):
    with np.errstate(all="ignore"):
        total = clipped_sum(
            linear_gradients(x=x, location=location, scale=scale),
            clip_norm=1.0,
            grid_units=GRID_UNITS,
        )
    assert np.isfinite(total).all()
    assert sum(int(value) ** 2 for value in total) <= (3 * GRID_UNITS) ** 2


def test_clipped_sum_equals_a_brute_force_loop():
    rng = np.random.default_rng(0)
    gradient = rng.normal(size=(40, 4)) * np.exp(2 * rng.normal(size=(40, 1)))
    beta = np.array([1.0, 2.0, 0.5, 30.0])
    expected = np.zeros(4)
    for row in gradient:
        scaled = beta * row
        expected += scaled * min(1.0, 3.0 / np.linalg.norm(scaled))
    total = clipped_sum(DenseGradients(gradient * beta), clip_norm=3.0, grid_units=None)
    np.testing.assert_allclose(total * 3.0, expected, rtol=1e-8)
    on_grid = clipped_sum(DenseGradients(gradient * beta), clip_norm=3.0, grid_units=GRID_UNITS)
    np.testing.assert_allclose(on_grid * 3.0 / GRID_UNITS, expected, atol=40 * 3.0 / GRID_UNITS)


def test_zero_gradient_stays_zero():
    gradients = DenseGradients(np.zeros((2, 4)))
    with np.errstate(all="raise"):
        weights = clip_weights(gradients, clip_norm=1.0)
        total = clipped_sum(gradients, clip_norm=1.0, grid_units=GRID_UNITS)
    assert np.isfinite(weights).all()
    assert not total.any()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_non_finite_record_contributes_zero(bad):
    good = np.array([[0.1, 0.2, 0.0, 0.0]])
    poisoned = np.vstack([good, [[bad, 1.0, 0.0, 0.0]]])
    for grid in (None, GRID_UNITS):
        kwargs = {"clip_norm": 1.0, "grid_units": grid}
        np.testing.assert_allclose(
            clipped_sum(DenseGradients(poisoned), **kwargs), clipped_sum(DenseGradients(good), **kwargs)
        )


def test_a_huge_finite_record_is_clipped_not_dropped():
    gradients = DenseGradients(np.array([[3e200, 4e200, 0.0, 0.0]]))
    total = clipped_sum(gradients, clip_norm=2.0, grid_units=None)
    np.testing.assert_allclose(total, [0.6, 0.8, 0, 0], rtol=1e-8)


def test_a_small_record_is_not_scaled():
    row = np.array([[0.25, -0.125, 0.0, 0.0]])
    total = clipped_sum(DenseGradients(row), clip_norm=1.0, grid_units=GRID_UNITS)
    np.testing.assert_allclose(total / GRID_UNITS, row[0], atol=2 / GRID_UNITS)


def test_an_empty_batch_sums_to_zero():
    total = clipped_sum(DenseGradients(np.empty((0, 4))), clip_norm=1.0, grid_units=GRID_UNITS)
    assert not total.any()


def test_released_noise_has_sd_sigma_times_clip_norm_over_beta():
    # Zero gradients: 40,000 draws a coordinate, relative standard error 0.35 %, 5 of them.
    beta = np.array([1.0, 50.0])
    noise = SimulatedGaussianNoise(np.random.default_rng(3), noise_multiplier=4.0, dimension=2)
    values = np.array(
        [
            release_gradient(np.zeros(2), noise=noise, clip_norm=3.0, preconditioner=beta)
            for _ in range(40_000)
        ]
    )
    np.testing.assert_allclose(values.std(axis=0), 4.0 * 3.0 / beta, rtol=5 * 0.0036)
    # The same check rejects a forgotten clip norm, sigma or preconditioner.
    for wrong in (4.0 / beta, 3.0 / beta, 4.0 * 3.0 * np.ones(2), 2.0 * 3.0 / beta):
        assert (np.abs(values.std(axis=0) / wrong - 1) > 5 * 0.0036).any()


def test_release_without_noise_only_rescales():
    released = release_gradient(
        np.array([2.0, 3.0]), noise=NoNoise(dimension=2), clip_norm=5.0, preconditioner=np.array([1.0, 10.0])
    )
    np.testing.assert_allclose(released, [10.0, 1.5])


def test_sums_beyond_exact_integers_are_refused():
    check_exact_sums(num_records=10**11, grid_units=GRID_UNITS)
    with pytest.raises(PrivacyError, match="too many records"):
        check_exact_sums(num_records=2**38, grid_units=GRID_UNITS)


@given(
    times=arrays(np.int64, (3,), elements=st.integers(0, 2**36)),
    rows=arrays(np.int64, (3, 2), elements=st.integers(-GRID_UNITS, GRID_UNITS)),
)
def test_sums_are_exact_beyond_what_float64_holds(times, rows):
    found = exact_sum(times.astype(float), rows.astype(float), largest=GRID_UNITS)
    expected = [sum(int(t) * int(row[d]) for t, row in zip(times, rows, strict=True)) for d in range(2)]
    assert found.dtype == np.int64
    assert found.tolist() == expected


def test_noise_is_added_to_a_large_sum_before_it_is_rounded():
    """2^60 + 3 is no float64: rounded first, the three would be lost, and more noise with others."""

    class OnTheGrid(NoNoise):
        def draw(self):
            return np.array([-(2.0**60) + 2.0**9])

    noise = OnTheGrid(dimension=1)
    noise.grid_units = GRID_UNITS
    released = release_gradient(np.array([2**60 + 3]), noise=noise, clip_norm=1.0, preconditioner=np.ones(1))
    assert released[0] * GRID_UNITS == 2**9 + 3


@pytest.mark.parametrize(("location", "x"), [(1e170, 1e-170), (1e-160, 1e154), (1e301, 0.0), (1e200, 1e200)])
def test_products_whose_parts_overflow_or_underflow_stay_within_the_sensitivity(location, x):
    gradients = linear_gradients(x=np.array([[x, x]]), location=np.array([location]), scale=np.zeros((1, 2)))
    for clip_norm in (1e-7, 1.0, 1e3):
        total = clipped_sum(gradients, clip_norm=clip_norm, grid_units=GRID_UNITS)
        assert sum(int(value) ** 2 for value in total) <= GRID_UNITS**2


class Understated(DenseGradients):
    """Gradients whose norms are said to be smaller than they are, as a fault in a ghost norm would."""

    def squared_norms(self):
        return super().squared_norms() * (1.0 - 2e-4)


@pytest.mark.parametrize("multiplicities", [None, np.array([1.0, 3.0])])
def test_what_is_summed_is_measured_again_whatever_the_norms_said(multiplicities):
    """The second record is longer than its norm says: it counts zero, the first one in full."""
    gradients = Understated(np.array([[0.5, 0.0], [3.0, 4.0]]))
    total = clipped_sum(gradients, clip_norm=1.0, grid_units=GRID_UNITS, multiplicities=multiplicities)
    np.testing.assert_array_equal(total, [GRID_UNITS // 2, 0])
