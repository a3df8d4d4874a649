"""The dense model's sums, coordinates and density, each against an answer known by other means."""

import numpy as np
import pytest
from dense_cases import PATTERN, batch_sums, make_model, random_features, simulate_traces
from scipy import stats
from scipy.special import expit, logit
from trace_cases import make_release

from nadpvi.errors import ArgumentError
from nadpvi.gradient_model.dense.density import (
    conditional_phi_star,
    dense_curvature,
    evaluate,
    squares,
)
from nadpvi.gradient_model.dense.layout import margins
from nadpvi.gradient_model.dense.prior import DensePrior, Group, GroupKind, MatrixEstimate
from nadpvi.gradient_model.dense.setup import make_coordinates
from nadpvi.gradient_model.dense.sums import DenseSums, make_dense_sums
from nadpvi.gradient_model.sums import make_trace_sums

SIZES = {"matrix": 3, "pattern": 8}


def make_case(kind, *, estimate=False, num_steps=60, seed=0, **settings):
    """Return a model of one trace, the trace's window, and coordinates of two chains near the truth."""
    rng = np.random.default_rng(seed)
    size = SIZES[kind]
    x, weights = random_features(rng)
    curvature = (x.T @ (x * weights[:, None]))[:size, :size] + np.eye(size)
    phi_star = rng.standard_normal((1, size))
    phi, noisy = simulate_traces(
        lambda phi: 0.1 * (phi - phi_star) @ curvature,
        phi_star=phi_star,
        num_steps=num_steps,
        noise_std=3.0,
        learning_rate=0.02,
        rng=rng,
    )
    first = num_steps // 5
    settings.setdefault("noise_std", 2.5)
    if estimate:
        noise_std = np.full((size, size), 4.0)
        noise_std[0, 1] = noise_std[1, 0] = np.inf
        settings["estimate"] = MatrixEstimate(matrix=1.2 * curvature, noise_std=noise_std, log_scale_std=0.3)
    model = make_model(
        make_dense_sums(phi[:, 0], noisy[:, 0], burn_in=0.2),
        centre=np.diag(curvature),
        groups=PATTERN if kind == "pattern" else (),
        association_scale=0.2,
        **settings,
    )
    point = np.zeros((2, model.size))
    point[:, : model.coordinates.size] = model.coordinates.start()
    point += 0.2 * rng.standard_normal(point.shape)
    return model, (phi[first:, 0], noisy[first:, 0]), point


def test_sums_agree_with_the_diagonal_ones_and_do_not_cancel():
    release = make_release(offset=1e6, num_steps=50)
    ours = make_dense_sums(release.phi, release.noisy_gradient, burn_in=0.2)
    theirs = make_trace_sums(release.phi, release.noisy_gradient, burn_in=0.2)
    assert ours.num_steps == theirs.num_steps
    for name in ("phi_bar", "g_bar", "s_gg"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    np.testing.assert_allclose(np.diag(ours.s_pp), theirs.s_pp, rtol=1e-13)
    np.testing.assert_allclose(np.diag(ours.s_gp), theirs.s_gp, rtol=1e-12)
    near = make_dense_sums(make_release(num_steps=50).phi, release.noisy_gradient, burn_in=0.2)
    np.testing.assert_allclose(ours.s_pp, near.s_pp, rtol=1e-7)
    part = make_dense_sums(release.phi, release.noisy_gradient, columns=[2, 0])
    np.testing.assert_allclose(part.s_gp, ours.s_gp[np.ix_([2, 0], [2, 0])], rtol=1e-12)


@pytest.mark.parametrize("columns", [[3], [-1], [], [0.5], [[0]]])
def test_sums_refuse_columns_that_do_not_exist(columns):
    release = make_release(num_steps=20)
    with pytest.raises(ArgumentError, match="columns must be indices of the 3 coordinates"):
        make_dense_sums(release.phi, release.noisy_gradient, columns=columns)


def test_sums_refuse_what_is_not_finite_or_of_another_shape():
    good = {"num_steps": 5, "phi_bar": [0.0], "g_bar": [0.0], "s_pp": [[1.0]], "s_gp": [[1.0]], "s_gg": [1.0]}
    assert DenseSums(**good).num_parameters == 1
    for change, text in (
        ({"s_pp": [1.0]}, "s_pp must have shape"),
        ({"s_gg": [np.inf]}, "s_gg is not finite"),
        ({"num_steps": 2}, "at least 3 steps"),
        ({"phi_bar": []}, "M >= 1"),
    ):
        with pytest.raises(ArgumentError, match=text):
            DenseSums(**{**good, **change})


@pytest.mark.parametrize("kind", SIZES)
def test_log_density_is_that_of_the_raw_window(kind):
    """The stacked window is one normal vector once phi_star is integrated out."""
    model, (phi, noisy), point = make_case(kind, num_steps=15)
    variance = np.full((2, SIZES[kind]), 9.0)
    found = evaluate(model, point, variance=variance).log_density
    prior = model.coordinates.expand(point[:, : model.coordinates.size]).log_prior
    steps, size = phi.shape
    direct = []
    for curvature in dense_curvature(model, point):
        slope = 0.1 * curvature
        pull = np.tile(-slope, (steps, 1))
        covariance = pull @ pull.T + 9.0 * np.eye(steps * size)
        mean = (phi @ slope).ravel()
        direct.append(stats.multivariate_normal(mean, covariance).logpdf(noisy.ravel()))
    assert found[0] - found[1] == pytest.approx(direct[0] - direct[1] + prior[0] - prior[1], rel=1e-8)


@pytest.mark.parametrize("df", [3.0, np.inf])
@pytest.mark.parametrize("estimate", [False, True])
@pytest.mark.parametrize("kind", SIZES)
def test_gradient_is_that_of_the_log_density(kind, estimate, df):
    model, _, point = make_case(kind, estimate=estimate, association_df=df)
    variance = np.tile(np.linspace(7.0, 12.0, SIZES[kind]), (2, 1))
    by_formula = evaluate(model, point, variance=variance).gradient
    for index in range(model.size):
        shift = np.zeros(model.size)
        shift[index] = 1e-5
        up, down = (evaluate(model, point + s, variance=variance).log_density for s in (shift, -shift))
        np.testing.assert_allclose(by_formula[:, index], (up - down) / 2e-5, rtol=2e-6, atol=2e-6)


def test_an_estimate_adds_its_log_likelihood_each_entry_once():
    model, _, point = make_case("matrix", estimate=True)
    estimate = model.prior.estimate
    plain, _, _ = make_case("matrix")
    variance = np.full((2, 3), 9.0)
    with_it = evaluate(model, point, variance=variance).log_density
    without = evaluate(plain, point[:, :-1], variance=variance).log_density
    rows, cols = np.triu_indices(3)
    records = dense_curvature(model, point) - np.eye(3)
    z = estimate.matrix - np.exp(0.3 * point[:, -1])[:, None, None] * records
    z = (z / estimate.noise_std)[:, rows, cols]
    expected = -0.5 * np.square(z).sum(axis=1) - 0.5 * np.square(point[:, -1])
    np.testing.assert_allclose(with_it - without, expected, rtol=1e-9)


def test_outside_the_support_there_is_no_density_and_no_error():
    model, _, point = make_case("pattern")
    layout = model.coordinates.layout
    variance = np.full((2, 8), 9.0)
    point[0, layout.num_margins] = 1.01 / model.prior.association_scale
    point[1, 1] = 1e5
    with np.errstate(all="raise"):
        found = evaluate(model, point, variance=variance)
    assert found.log_density.tolist() == [-np.inf, -np.inf]
    assert not found.gradient.any()


def pattern_of(features, weights):
    """Return the parts of the weighted second moment of features that follow PATTERN: w, m and R."""
    total = weights.sum()
    mean = weights @ features / total
    covariance = (features - mean).T @ ((features - mean) * weights[:, None]) / total
    root = np.zeros_like(covariance)
    for group in PATTERN[1:]:
        values, vectors = np.linalg.eigh(covariance[group.columns, group.columns])
        scale = np.where(values > 1e-12, 1.0 / np.sqrt(np.maximum(values, 1e-12)), 0.0)
        root[group.columns, group.columns] = (vectors * scale) @ vectors.T
    return total, mean, covariance, root


def test_every_second_moment_of_the_pattern_has_coordinates():
    """X'WX of dependent columns is reproduced, from coordinates worked out by hand."""
    features, weights = random_features(np.random.default_rng(3))
    total, mean, covariance, _ = pattern_of(features, weights)
    model, _, _ = make_case("pattern")
    layout = model.coordinates.layout
    x = np.zeros((1, model.size))
    x[0, layout.num_inner :] = np.linspace(-1.0, 1.0, layout.num_pairs)
    x[0, 0] = np.log(total)
    for group, at, order in zip(PATTERN, layout.slices, layout.order, strict=True):
        if group.kind is GroupKind.LEVELS:
            shares = mean[order]
            x[0, at] = logit(shares[:-1] / np.cumsum(shares[::-1])[::-1][:-1])
        elif group.kind is not GroupKind.CONSTANT:
            m = mean[group.start]
            x[0, at.start] = logit(m)
            if group.kind is GroupKind.NUMBER:
                x[0, at.start + 1] = logit(covariance[group.start, group.start] / (m * (1.0 - m)))
    parts = margins(layout, x)
    inverse = np.zeros((8, 8))
    for group in PATTERN[1:]:
        block = np.diag(parts.diagonal[0, group.columns])
        if group.kind is GroupKind.LEVELS:
            block = block - np.outer(parts.left[0, group.columns], parts.right[0, group.columns])
        inverse[group.columns, group.columns] = np.linalg.pinv(block, rcond=1e-9)
    associations = inverse @ (total * covariance) @ inverse.T
    steps = model.prior.association_scale * np.exp(x[0, layout.num_inner :])[layout.pair]
    x[0, layout.num_margins : layout.num_inner] = associations[layout.rows, layout.cols] / steps
    records = model.coordinates.expand(x).records[0]
    np.testing.assert_allclose(records, features.T @ (features * weights[:, None]), rtol=1e-9, atol=1e-9)


def test_a_pattern_holds_what_the_schema_implies():
    model, _, point = make_case("pattern")
    for records in model.coordinates.expand(point).records:
        weight = records[0, 0]
        assert np.linalg.eigvalsh(records).min() > -1e-9 * weight
        for group in (PATTERN[2], PATTERN[4]):
            block = records[group.columns, group.columns]
            np.testing.assert_allclose(block, np.diag(records[0, group.columns]), atol=1e-12 * weight)
            np.testing.assert_allclose(records[group.columns].sum(axis=0), records[0], rtol=1e-9)
        assert records[5, 5] == pytest.approx(records[0, 5])
        assert records[0, 1] ** 2 / weight <= records[1, 1] <= records[0, 1]


def test_a_start_is_the_guess_with_independent_columns():
    model, _, _ = make_case("pattern")
    layout = model.coordinates.layout
    records = model.coordinates.expand(model.coordinates.start()[None]).records[0]
    assert records[0, 0] == pytest.approx(layout.centre[0])
    shares = layout.centre[2:5] / layout.centre[2:5].sum()
    np.testing.assert_allclose(np.diag(records)[2:5], records[0, 0] * shares)
    np.testing.assert_allclose(records[2, 6], records[0, 2] * records[0, 6] / records[0, 0])


RANGED = (
    Group(kind=GroupKind.CONSTANT, start=0),
    Group(kind=GroupKind.NUMBER, start=1, low=-6.0, high=6.0),
    Group(kind=GroupKind.NUMBER, start=2, low=2.0, high=5.0),
    Group(kind=GroupKind.LEVELS, start=3, size=2),
    Group(kind=GroupKind.NUMBER, start=5),
)


def ranged_coordinates(centre, *, groups=RANGED):
    prior = DensePrior(precision=np.ones(len(centre)), groups=groups)
    return make_coordinates(prior, centre=np.asarray(centre, dtype=float))


def test_numbers_between_other_bounds_are_the_images_of_shares():
    ranged = ranged_coordinates(np.full(6, 50.0))
    plain = tuple(Group(kind=g.kind, start=g.start, size=g.size) for g in RANGED)
    shares = ranged_coordinates(np.full(6, 50.0), groups=plain)
    x = 0.3 * np.random.default_rng(5).standard_normal((3, ranged.size))
    matrix = np.eye(6)
    matrix[1, :2], matrix[2, [0, 2]] = (-6.0, 12.0), (2.0, 3.0)
    found, of_shares = ranged.expand(x), shares.expand(x)
    np.testing.assert_allclose(found.records, matrix @ of_shares.records @ matrix.T, rtol=1e-10)
    np.testing.assert_array_equal(found.log_prior, of_shares.log_prior)
    # The bounds hold: every mean feature lies between them.
    means = found.records[:, 0] / found.records[:, :1, 0]
    assert ((means[:, 1] > -6) & (means[:, 1] < 6) & (means[:, 2] > 2) & (means[:, 2] < 5)).all()
    by = np.random.default_rng(6).standard_normal((3, 6, 6))
    by = by + by.transpose(0, 2, 1)

    def scalar(at):
        expanded = ranged.expand(at)
        return expanded.log_prior + (by * expanded.records).sum(axis=(1, 2))

    gradient = found.pull_back(by)
    for index in range(ranged.size):
        shift = np.zeros(ranged.size)
        shift[index] = 1e-5
        slope = (scalar(x + shift) - scalar(x - shift)) / 2e-5
        np.testing.assert_allclose(gradient[:, index], slope, rtol=1e-5, atol=1e-4)


def test_a_start_with_other_bounds_has_the_guessed_diagonal():
    # A centred number of variance 1, one near 3, levels, and a share.
    guess = np.array([100.0, 100.0, 900.0, 60.0, 40.0, 30.0])
    coordinates = ranged_coordinates(guess)
    records = coordinates.expand(coordinates.start()[None]).records[0]
    assert records[0, 0] == pytest.approx(100.0)
    assert records[0, 1] == pytest.approx(0.0, abs=1e-9)
    assert records[1, 1] == pytest.approx(100.0)
    assert records[0, 2] == pytest.approx(300.0)
    assert records[0, 3] == pytest.approx(60.0)
    wide = ranged_coordinates(np.array([100.0, 900.0, 900.0, 60.0, 40.0, 30.0]))
    assert wide.expand(wide.start()[None]).records[0, 1, 1] == pytest.approx(900.0)


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ((Group(kind=GroupKind.NUMBER, start=0, low=-1.0),), "needs a constant"),
    ],
)
def test_bounds_without_a_constant_are_refused(groups, text):
    with pytest.raises(ArgumentError, match=text):
        DensePrior(precision=np.ones(1), groups=groups)


@pytest.mark.parametrize("settings", [{"low": 1.0}, {"low": 2.0, "high": 1.0}])
def test_bounds_of_a_group_ascend(settings):
    with pytest.raises(ArgumentError, match="cannot have features in"):
        Group(kind=GroupKind.NUMBER, start=0, **settings)


def log_jacobian(function, x):
    """Return log |det| of a square map's derivative at x."""
    steps = 1e-5 * np.eye(x.size)
    matrix = [(function(x + step) - function(x - step)) / 2e-5 for step in steps]
    return np.linalg.slogdet(np.array(matrix))[1]


def test_matrix_coordinates_have_the_prior_that_they_state():
    """Draws of the coordinates: log scales normal, an entry of R a beta by the LKJ law. Each test at 1e-3."""
    model, _, _ = make_case("matrix", num_directions=7)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((20_000, model.size))
    expanded = model.coordinates.expand(x)
    assert model.size == 3 * 8
    np.testing.assert_allclose(expanded.log_prior, -0.5 * np.square(x).sum(axis=1))
    h = np.diagonal(expanded.records, axis1=1, axis2=2)
    for index, centre in enumerate(model.coordinates.centre):
        assert stats.kstest(np.log(h[:, index]), stats.norm(np.log(centre), 2.0).cdf).pvalue > 1e-3
    association = expanded.records / np.sqrt(h[:, :, None] * h[:, None, :])
    # LKJ with shape eta over 3 x 3: (r + 1) / 2 is beta(eta + 1 / 2, eta + 1 / 2), eta = (7 - 3 + 1) / 2.
    for row, col in zip(*np.triu_indices(3, 1), strict=True):
        entry = 0.5 * (association[:, row, col] + 1.0)
        assert stats.kstest(entry, stats.beta(3.0, 3.0).cdf).pvalue > 1e-3
        assert stats.kstest(entry, stats.beta(3.5, 3.5).cdf).pvalue < 1e-3
    # ... and its determinant, which sees all entries, is a product of betas (Wishart, Bartlett's parts).
    log_det = np.linalg.slogdet(association)[1]
    parts = rng.beta([3.0, 2.5], [0.5, 1.0], (20_000, 2))
    assert stats.ks_2samp(log_det, np.log(parts).sum(axis=1)).pvalue > 1e-3


def test_pattern_coordinates_have_the_prior_that_they_state():
    model, _, _ = make_case("pattern", association_df=3.0)
    layout = model.coordinates.layout
    rng = np.random.default_rng(2)
    offsets = []
    for _ in range(5):
        x = np.zeros(model.size)
        x[: layout.num_margins] = model.coordinates.start()[: layout.num_margins]
        x[: layout.num_margins] += rng.standard_normal(layout.num_margins)
        z = 0.5 * rng.standard_normal(model.size - layout.num_margins)
        x[layout.num_margins :] = z
        found = margins(layout, x[None])
        shares = [found.mean[0, group.columns] for group in (PATTERN[2], PATTERN[4])]
        expected = stats.norm(np.log(layout.centre[0]), 2.0).logpdf(x[0])
        for at, share in zip((layout.slices[2], layout.slices[4]), shares, strict=True):
            order = np.argsort(-layout.centre[PATTERN[2].columns]) if share.size == 3 else None
            order = np.argsort(-layout.centre[PATTERN[4].columns]) if order is None else order
            expected += stats.dirichlet(np.full(share.size, 0.5)).logpdf(share)

            def to_shares(logits, order=order):
                part = expit(logits)
                left = np.concatenate([[1.0], np.cumprod(1.0 - part)])
                sizes = left[:-1] * part
                return np.concatenate([sizes, left[-1:]])[:-1]

            np.testing.assert_allclose(share[order][:-1], to_shares(x[at]), rtol=1e-12)
            expected += log_jacobian(to_shares, x[at])
        number, binary = layout.slices[1], layout.slices[3]
        for at, law in (
            (number.start, stats.beta(0.5, 0.5)),
            (number.start + 1, stats.uniform()),
            (binary.start, stats.beta(0.5, 0.5)),
        ):
            expected += law.logpdf(expit(x[at])) + np.log(expit(x[at]) * expit(-x[at]))
        offsets.append(found.log_prior[0] - expected)
        inner, log_size = np.split(z, [layout.num_inner - layout.num_margins])
        associations = 0.2 * np.exp(log_size)[layout.pair] * inner
        matrix = np.eye(8)
        matrix[layout.rows, layout.cols] = matrix[layout.cols, layout.rows] = associations
        # Normal entries times the root of an inverse-gamma number are t with 3 degrees of freedom.
        together = stats.norm.logpdf(inner).sum() + (2.0 * log_size + np.log(2.0)).sum()
        together += stats.invgamma(1.5, scale=1.5).logpdf(np.exp(2.0 * log_size)).sum()
        sign, log_det = np.linalg.slogdet(matrix)
        expanded = model.coordinates.expand(x[None])
        assert expanded.is_definite[0] == (sign > 0 and np.linalg.eigvalsh(matrix).min() > 0)
        if expanded.is_definite[0]:
            offsets[-1] = (expanded.log_prior[0] - expected - together - log_det, offsets[-1])
    whole = [pair[0] for pair in offsets if isinstance(pair, tuple)]
    alone = [pair[1] if isinstance(pair, tuple) else pair for pair in offsets]
    assert len(whole) >= 2
    np.testing.assert_allclose(whole, whole[0], atol=1e-6)
    np.testing.assert_allclose(alone, alone[0], atol=1e-6)


def test_phi_star_and_residuals_are_those_of_the_raw_window():
    model, (phi, noisy), point = make_case("matrix", prior_sd=0.7)
    variance = np.array([[9.0, 4.0, 16.0], [8.0, 7.0, 6.0]])
    curvature = dense_curvature(model, point)
    mean, precision = conditional_phi_star(model, curvature=curvature, variance=variance)
    for index in range(2):
        slope = 0.1 * curvature[index]
        design = np.tile(-slope / np.sqrt(variance[index])[:, None], (len(phi), 1))
        target = ((noisy - phi @ slope) / np.sqrt(variance[index])).ravel()
        by_hand = design.T @ design + np.eye(3) / 0.49
        np.testing.assert_allclose(precision[index], by_hand, rtol=1e-10)
        np.testing.assert_allclose(mean[index], np.linalg.solve(by_hand, design.T @ target), rtol=1e-8)
        residual = noisy - (phi - mean[index]) @ slope
        total = squares(model, curvature=curvature, phi_star=mean)[index]
        np.testing.assert_allclose(total, np.square(residual).sum(axis=0), rtol=1e-9)


def test_several_traces_at_once_are_each_by_itself():
    rng = np.random.default_rng(5)
    phi_star = rng.standard_normal((2, 3))
    phi, noisy = simulate_traces(
        lambda phi: 3.0 * (phi - phi_star),
        phi_star=phi_star,
        num_steps=40,
        noise_std=2.0,
        learning_rate=0.05,
        rng=rng,
    )
    both = make_model(batch_sums(phi, noisy), centre=np.full(3, 30.0))
    point, variance = 0.3 * rng.standard_normal((2, both.size)), np.full((2, 3), 5.0)
    together = evaluate(both, point, variance=variance)
    curvature = dense_curvature(both, point)
    mean, _ = conditional_phi_star(both, curvature=curvature, variance=variance)
    for index in range(2):
        one = make_model(make_dense_sums(phi[:, index], noisy[:, index]), centre=np.full(3, 30.0))
        alone = evaluate(one, point[[index]], variance=variance[:1])
        assert together.log_density[index] == pytest.approx(alone.log_density[0], rel=1e-10)
        np.testing.assert_allclose(together.gradient[index], alone.gradient[0], rtol=1e-8)
        own, _ = conditional_phi_star(one, curvature=curvature[[index]], variance=variance[:1])
        np.testing.assert_allclose(mean[index], own[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"precision": [-1.0, 1.0]}, "precision must be"),
        ({"groups": (Group(kind=GroupKind.BINARY, start=1),)}, "in order"),
        ({"groups": (Group(kind=GroupKind.BINARY, start=0),)}, "cover all 2"),
        ({"groups": tuple(Group(kind=GroupKind.CONSTANT, start=i) for i in range(2))}, "two constants"),
        ({"association_scale": 0.0}, "association_scale"),
        ({"association_df": 0.0}, "association_df"),
        ({"num_directions": 2}, "num_directions must be at least 3"),
        ({"estimate": MatrixEstimate(matrix=np.eye(3), noise_std=1.0)}, r"shape \(2, 2\)"),
    ],
)
def test_priors_out_of_range_are_refused(change, text):
    with pytest.raises(ArgumentError, match=text):
        DensePrior(**{"precision": np.ones(2), "groups": (), **change})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"matrix": np.ones((2, 3))}, "square"),
        ({"matrix": np.array([[1.0, 2.0], [0.0, 1.0]])}, "symmetric"),
        ({"noise_std": 0.0}, "positive"),
        ({"log_scale_std": -1.0}, "log_scale_std"),
    ],
)
def test_estimates_out_of_range_are_refused(change, text):
    with pytest.raises(ArgumentError, match=text):
        MatrixEstimate(**{"matrix": np.eye(2), "noise_std": 1.0, **change})


def test_a_group_of_several_coordinates_is_one_of_levels():
    with pytest.raises(ArgumentError, match="'binary'"):
        Group(kind=GroupKind.BINARY, start=0, size=2)
