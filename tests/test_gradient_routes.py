"""All ways to per-record gradients, for all models and guides: equal to a loop and to finite differences."""

import numpy as np
import pytest
import test_guides
import test_models

from nadpvi.guides import LowRank
from nadpvi.models import RecordBatch
from nadpvi.models.base import ExponentialFamily
from nadpvi.private.batches import Workspace
from nadpvi.private.dpsgd import clip_weights, clipped_sum
from nadpvi.private.gradients import (
    DenseGradients,
    autograd_route,
    exponential_route,
    gradient_function,
    linear_route,
    with_shared_term,
)

MODELS, GUIDES = test_models.EXAMPLES, test_guides.EXAMPLES


@pytest.fixture(params=sorted(MODELS))
def model(request):
    return MODELS[request.param]


@pytest.fixture(params=sorted(GUIDES))
def guide(request):
    return GUIDES[request.param]


class Case:
    """A model's own records and a point near a draw from its prior, for one guide."""

    def __init__(self, model, guide, *, num_records=9, num_draws=4, is_plain=False, seed=2):
        theta, self.batch = test_models.records_of(model, num_records=num_records, seed=seed)
        if getattr(guide, "rank", 1) > len(theta):
            guide = LowRank(rank=len(theta), scale=guide.scale)
        rng = np.random.default_rng(seed)
        size = guide.num_variational(len(theta))
        self.model, self.guide = model, guide
        self.phi = guide.initial(mean=theta, u=-1.5) + 0.3 * rng.normal(size=size)
        self.phi[: len(theta)] = theta
        beta = np.ones(size) if is_plain else np.exp(0.5 * rng.normal(size=size))
        if is_plain:
            beta[len(theta) :] = 7.0
        self.point = {
            "guide": guide,
            "phi": self.phi,
            "standard_normal": rng.standard_normal((num_draws, guide.num_noise(len(theta)))),
            "preconditioner": beta,
        }
        self.weights = rng.random(num_records)

    def loss(self, phi, b):
        """Return record b's loss, a plain loop over draws."""
        one = RecordBatch(x=self.batch.x[b : b + 1], y=self.batch.y[b : b + 1])
        noise = self.point["standard_normal"]
        values = [self.model.log_likelihood(self.guide.draw(phi, e)[None, :], one)[0] for e in noise]
        return -np.mean(values)


def rows_of(gradients, num_records):
    return gradients.weighted_rows(np.ones(num_records)).copy()


def close(found, expected, *, rtol):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_autodiff_equals_finite_differences_of_a_plain_loop(model, guide):
    case = Case(model, guide, num_records=2)
    rows = rows_of(autograd_route(model, **case.point)(case.batch), 2)
    dimension, step = len(case.phi), 1e-5
    # Of a hundred weights, some at random.
    chosen = np.random.default_rng(4).permutation(dimension)[:30]
    for b in range(2):
        slope = np.empty(len(chosen))
        for place, d in enumerate(chosen):
            unit = np.zeros(dimension)
            unit[d] = step
            # The fourth-order central difference.
            near = case.loss(case.phi + unit, b) - case.loss(case.phi - unit, b)
            far = case.loss(case.phi + 2 * unit, b) - case.loss(case.phi - 2 * unit, b)
            slope[place] = (8 * near - far) / (12 * step)
        close(rows[b, chosen], slope * case.point["preconditioner"][chosen], rtol=1e-8)


@pytest.mark.parametrize("is_plain", [True, False])
def test_matrix_products_equal_autodiff(model, guide, is_plain):
    case = Case(model, guide, is_plain=is_plain)
    slow = autograd_route(model, **case.point)(case.batch)
    fast = gradient_function(model, **case.point)(case.batch)
    assert isinstance(fast, DenseGradients) or type(fast) is not type(slow)
    close(rows_of(fast, 9), slow.rows, rtol=1e-10)
    close(fast.weighted_rows(case.weights), case.weights[:, None] * slow.rows, rtol=1e-10)
    close(fast.weighted_sum(case.weights), case.weights @ slow.rows, rtol=1e-10)
    np.testing.assert_allclose(fast.squared_norms(), (slow.rows**2).sum(axis=1), rtol=1e-10)


def test_each_model_takes_its_own_route(model):
    case = Case(model, GUIDES["mean_field"])
    route = exponential_route if isinstance(model, ExponentialFamily) else linear_route
    expected = route(model, **case.point)(case.batch)
    found = gradient_function(model, **case.point)(case.batch)
    assert type(found) is type(expected)
    np.testing.assert_array_equal(rows_of(found, 9), rows_of(expected, 9))


def test_clipped_sums_equal_a_loop_over_records(model, guide):
    case = Case(model, guide)
    gradients = gradient_function(model, **case.point)(case.batch)
    rows = autograd_route(model, **case.point)(case.batch).rows
    norms = np.sqrt((rows**2).sum(axis=1))
    clip_norm = float(np.median(norms))
    expected = np.zeros(rows.shape[1])
    for row, norm in zip(rows, norms, strict=True):
        expected += row * min(1.0, clip_norm / norm)
    found = clipped_sum(gradients, clip_norm=clip_norm, grid_units=None)
    np.testing.assert_allclose(found * clip_norm, expected, rtol=1e-8, atol=1e-8 * clip_norm)
    units = 2**20
    on_grid = clipped_sum(gradients, clip_norm=clip_norm, grid_units=units)
    assert (on_grid == np.rint(on_grid)).all()
    # Truncation toward zero takes less than a unit from each of the nine.
    assert np.abs(on_grid / units - expected / clip_norm).max() < 9 / units
    close(clip_weights(gradients, clip_norm=clip_norm), np.minimum(1.0, clip_norm / norms), rtol=1e-8)


def test_memory_that_is_used_again_changes_nothing(model, guide):
    case, workspace = Case(model, guide), Workspace()
    other = test_models.records_of(model, num_records=9, seed=11)[1]
    for _ in range(2):
        route = gradient_function(model, **case.point, workspace=workspace)
        for batch in (other, case.batch, other):
            kept = route(batch)
            alone = gradient_function(model, **case.point)(batch)
            np.testing.assert_array_equal(kept.squared_norms(), alone.squared_norms())
            np.testing.assert_array_equal(kept.weighted_sum(case.weights), alone.weighted_sum(case.weights))
            np.testing.assert_array_equal(kept.weighted_rows(case.weights), alone.weighted_rows(case.weights))


def test_parts_make_up_the_rows_and_spare_what_is_not_theirs(model, guide):
    case = Case(model, guide)
    expected = rows_of(gradient_function(model, **case.point)(case.batch), 9) * case.weights[:, None]
    for workspace in (None, Workspace()):
        batch = RecordBatch(x=case.batch.x.copy(), y=case.batch.y.copy())
        gradients = gradient_function(model, **case.point, workspace=workspace)(batch)
        for _ in range(1 if workspace else 2):
            found = np.full_like(expected, np.nan)
            for columns, part in gradients.weighted_parts(case.weights):
                assert np.isnan(found[:, columns]).all()
                found[:, columns] = part
                part[:] = 0.0  # the caller's to change
            np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13 * np.abs(expected).max())
        if workspace is None:
            np.testing.assert_array_equal(batch.x, case.batch.x)


def test_a_record_that_is_not_finite_touches_no_other(model, guide):
    case = Case(model, guide)
    clean = rows_of(gradient_function(model, **case.point)(case.batch), 9)
    y = case.batch.y.copy()
    y[4] = np.nan
    with np.errstate(invalid="ignore"):
        gradients = gradient_function(model, **case.point)(RecordBatch(x=case.batch.x, y=y))
        rows = rows_of(gradients, 9)
        total = clipped_sum(gradients, clip_norm=1e6, grid_units=None)
    others = np.arange(9) != 4
    close(rows[others], clean[others], rtol=1e-12)
    assert np.isfinite(total).all()


def test_a_shared_term_is_added_to_each_record(model, guide):
    case = Case(model, guide)
    share = np.linspace(-1.0, 1.0, len(case.phi))
    gradients = gradient_function(model, **case.point)(case.batch)
    plain = rows_of(gradients, 9)
    shared = with_shared_term(gradients, share=share, num_rows=9)
    np.testing.assert_allclose(shared.rows, plain + share, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(shared.squared_norms(), ((plain + share) ** 2).sum(axis=1), rtol=1e-12)


def test_norms_of_nearly_cancelling_statistics_keep_their_digits():
    """Measurements near a far mean: gradients 1e-7 of their terms, which a Gram matrix would lose."""
    model, guide = MODELS["normal"], GUIDES["full_rank"]
    theta = np.array([0.5 + 1e7, 0.0])
    phi = guide.initial(mean=theta, u=-20.0)
    point = {
        "guide": guide,
        "phi": phi,
        "standard_normal": np.random.default_rng(0).standard_normal((4, 2)),
        "preconditioner": np.ones(len(phi)),
    }
    batch = RecordBatch(x=np.empty((3, 0)), y=theta[0] + np.array([0.5, -2.0, 3.0]))
    gradients = gradient_function(model, **point)(batch)
    rows = rows_of(gradients, 3)
    np.testing.assert_allclose(gradients.squared_norms(), (rows**2).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(rows[:, 0], [-0.5, 2.0, -3.0], rtol=1e-6)
