"""Contract of every guide: one list, the same demands on each, against formulas written a second time."""

import json

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad, jacobian

from nadpvi import ArgumentError, DPVIConfig
from nadpvi.guides import GUIDES, FullRank, Guide, LowRank, MeanField, check_guide, guide_from_dict

# A new guide joins by being listed, once for every choice that changes its mathematics.
EXAMPLES = {
    "mean_field": MeanField(),
    "mean_field_variance": MeanField(scale="variance"),
    "full_rank": FullRank(),
    "full_rank_variance": FullRank(scale="variance"),
    "rank_one": LowRank(rank=1),
    "rank_three": LowRank(rank=3),
    "rank_three_variance": LowRank(rank=3, scale="variance"),
}
NUM_PARAMS = 4


@pytest.fixture(params=sorted(EXAMPLES))
def guide(request):
    return EXAMPLES[request.param]


def point(guide, *, num_params=NUM_PARAMS, seed=0, leading=()):
    """Return phi at random: no weight is zero, and no scale is large or small against the others."""
    rng = np.random.default_rng(seed)
    dimension = guide.num_variational(num_params)
    phi = 0.8 * rng.normal(size=(*leading, dimension))
    phi[..., num_params : 2 * num_params] -= 1.0
    return phi


def noise_of(guide, *, num_params=NUM_PARAMS, seed=1, leading=(5,)):
    return np.random.default_rng(seed).standard_normal((*leading, guide.num_noise(num_params)))


def written_factor(guide, phi, num_params=NUM_PARAMS):
    """Return A with theta = mu + A noise from the guides' docstrings, entry by entry, for autograd."""
    u = phi[num_params : 2 * num_params]
    softened = anp.logaddexp(0.0, u)
    scale = softened if guide.scale == "sd" else anp.sqrt(softened)
    rows = [[1.0 * (k == m) for m in range(guide.num_noise(num_params))] for k in range(num_params)]
    if isinstance(guide, FullRank):
        filled = [(k, m) for k in range(num_params) for m in range(k)]
    elif isinstance(guide, LowRank):
        filled = [(k, num_params + j) for j in range(guide.rank) for k in range(j, num_params)]
    else:
        filled = []
    for place, (row, column) in enumerate(filled, start=2 * num_params):
        rows[row][column] = phi[place]
    assert 2 * num_params + len(filled) == len(phi)
    return anp.stack([scale[k] * anp.array(row) for k, row in enumerate(rows)])


def test_every_registered_guide_has_an_example():
    assert {guide.kind for guide in EXAMPLES.values()} == set(GUIDES)


def test_follows_the_protocol(guide):
    assert isinstance(guide, Guide)
    assert hash(guide) == hash(guide_from_dict(guide.to_dict()))


def test_description_round_trip(guide):
    assert guide_from_dict(json.loads(json.dumps(guide.to_dict()))) == guide
    with pytest.raises(ArgumentError, match=guide.kind):
        guide_from_dict({**guide.to_dict(), "colour": "red"})
    config = DPVIConfig(guide=guide)
    assert DPVIConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize("data", [{"kind": "cauchy"}, {}, {"kind": ["mean_field"]}, 7, None])
def test_unknown_guides_are_refused(data):
    with pytest.raises(ArgumentError, match="guide kind must be one of"):
        guide_from_dict(data)


@pytest.mark.parametrize("value", [None, "mean_field", MeanField, 3])
def test_what_is_no_guide_is_refused(value):
    with pytest.raises(ArgumentError, match=r"guide must be one of MeanField\(\.\.\.\), FullRank"):
        check_guide(value)


@pytest.mark.parametrize("kind", [MeanField, FullRank])
def test_scale_is_sd_or_variance(kind):
    with pytest.raises(ArgumentError, match="scale"):
        kind(scale="precision")


@pytest.mark.parametrize("rank", [0, -1, 1.5, True, "2", None])
def test_rank_is_a_positive_number(rank):
    with pytest.raises(ArgumentError, match="rank"):
        LowRank(rank=rank)


def test_rank_is_at_most_the_number_of_parameters():
    assert LowRank(rank=3).num_variational(3) == 12
    with pytest.raises(ArgumentError, match="rank must be at most"):
        LowRank(rank=3).num_variational(2)


def test_sizes_and_labels_agree(guide):
    for num_params in range(getattr(guide, "rank", 1), 9):
        names = [f"p{k}" for k in range(num_params)]
        labels = guide.labels(names)
        assert len(labels) == len(set(labels)) == guide.num_variational(num_params)
        assert labels[:num_params] == tuple(f"mu[{name}]" for name in names)
        assert labels[num_params : 2 * num_params] == tuple(f"u[{name}]" for name in names)
        assert guide.num_params(len(labels)) == num_params
        start = guide.initial(mean=np.arange(num_params) * 1.0, u=-2.5)
        assert start.shape == (len(labels),)
        np.testing.assert_array_equal(start[:num_params], np.arange(num_params))
        assert (start[num_params : 2 * num_params] == -2.5).all()


def test_labels_name_rows_and_columns():
    assert MeanField().labels("ab") == ("mu[a]", "mu[b]", "u[a]", "u[b]")
    assert FullRank().labels("abc")[6:] == ("L[b,a]", "L[c,a]", "L[c,b]")
    assert LowRank(rank=2).labels("abc")[6:] == ("F[a,0]", "F[b,0]", "F[c,0]", "F[b,1]", "F[c,1]")


def test_draws_are_what_is_written(guide):
    phi, noise = point(guide), noise_of(guide)
    expected = phi[:NUM_PARAMS] + noise @ written_factor(guide, phi).T
    np.testing.assert_allclose(guide.draw(phi, noise), expected, rtol=1e-12, atol=1e-14)


def test_draws_have_the_stated_mean_and_covariance(guide):
    # 200,000 draws, at most 14 figures a guide: 5 standard errors give a false alarm below 1e-5.
    num = 200_000
    phi = point(guide)
    draws = guide.draw(phi, noise_of(guide, leading=(num,)))
    covariance = guide.covariance(phi)
    variance = np.diag(covariance)
    assert (np.abs(draws.mean(axis=0) - phi[:NUM_PARAMS]) < 5 * np.sqrt(variance / num)).all()
    standard_error = np.sqrt((np.outer(variance, variance) + covariance**2) / num)
    sample = np.cov(draws.T)
    assert (np.abs(sample - covariance) < 5 * standard_error).all()
    # Another phi is told apart.
    other = phi.copy()
    other[-1] += 0.2
    assert (np.abs(sample - guide.covariance(other)) > 5 * standard_error).any()


def test_standard_deviation_is_the_root_of_the_variance(guide):
    phi = point(guide, leading=(2, 3))
    variance = np.diagonal(guide.covariance(phi), axis1=-2, axis2=-1)
    np.testing.assert_allclose(guide.standard_deviation(phi), np.sqrt(variance), rtol=1e-13)
    for phi_one, covariance in zip(phi.reshape(6, -1), guide.covariance(phi).reshape(6, 4, 4), strict=True):
        factor = written_factor(guide, phi_one)
        np.testing.assert_allclose(covariance, factor @ factor.T, rtol=1e-12, atol=1e-15)


def test_entropy_and_its_gradient(guide):
    def written(phi):
        factor = written_factor(guide, phi)
        _, log_det = anp.linalg.slogdet(2.0 * np.pi * np.e * anp.dot(factor, factor.T))
        return 0.5 * log_det

    phi = point(guide, leading=(3,))
    np.testing.assert_allclose(guide.entropy(phi), [written(one) for one in phi], rtol=1e-12)
    expected = np.stack([grad(written)(one) for one in phi])
    np.testing.assert_allclose(guide.entropy_gradient(phi), expected, rtol=1e-10, atol=1e-13)
    np.testing.assert_array_equal(guide.entropy_gradient(phi[0]), guide.entropy_gradient(phi)[0])


def test_draws_broadcast_over_chains(guide):
    phi, noise = point(guide, leading=(2, 3)), noise_of(guide, leading=(2, 3))
    draws = guide.draw(phi, noise)
    assert draws.shape == (2, 3, NUM_PARAMS)
    for chain in range(2):
        for draw in range(3):
            alone = guide.draw(phi[chain, draw], noise[chain, draw])
            np.testing.assert_allclose(draws[chain, draw], alone, rtol=1e-13, atol=1e-14)
    # Many draws at each of several phi, as replicates and planning take them.
    many = guide.draw(phi[0], noise_of(guide, leading=(7, 1)))
    assert many.shape == (7, 3, NUM_PARAMS)
    np.testing.assert_allclose(many[:, 1], guide.draw(phi[0, 1], noise_of(guide, leading=(7,))), rtol=1e-12)


def test_pull_back_is_the_chain_rule_through_the_draws(guide):
    phi, noise = point(guide), noise_of(guide)
    slopes = np.random.default_rng(3).normal(size=(5, 6, NUM_PARAMS))  # (S, B, K)

    def drawn(value):
        return value[:NUM_PARAMS] + anp.dot(noise, written_factor(guide, value).T)

    moved = jacobian(drawn)(phi)  # (S, K, D)
    expected = np.einsum("sbk,skd->bd", slopes, moved) / 5
    found = guide.pull_back(phi, theta_gradient=slopes, standard_normal=noise)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)
    alone = guide.pull_back(phi, theta_gradient=slopes[:, 2], standard_normal=noise)
    np.testing.assert_allclose(alone, expected[2], rtol=1e-11, atol=1e-13)


def test_pull_back_with_phi_and_noise_of_each_record(guide):
    phi = point(guide, leading=(6,))
    slopes = np.random.default_rng(3).normal(size=(5, 6, NUM_PARAMS))
    shared, own = noise_of(guide), noise_of(guide, leading=(5, 6))
    by_phi = guide.pull_back(phi, theta_gradient=slopes, standard_normal=shared)
    by_both = guide.pull_back(phi, theta_gradient=slopes, standard_normal=own)
    for b in range(6):
        for found, noise in ((by_phi, shared), (by_both, own[:, b])):
            alone = guide.pull_back(phi[b], theta_gradient=slopes[:, b], standard_normal=noise)
            np.testing.assert_allclose(found[b], alone, rtol=1e-12, atol=1e-14)


def test_factors_reproduce_pull_back(guide):
    phi, noise = point(guide), noise_of(guide)
    slopes = np.random.default_rng(3).normal(size=(5, 6, NUM_PARAMS))
    bases, theta_index, base_index, factor = guide.factors(phi, noise)
    found = np.einsum("sbd,sd->bd", slopes[:, :, theta_index], bases[:, base_index]) * factor / 5
    expected = guide.pull_back(phi, theta_gradient=slopes, standard_normal=noise)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    # Locations first, then scales, each with a base of its own: the linear route relies on it.
    own = np.arange(NUM_PARAMS)
    np.testing.assert_array_equal(theta_index[: 2 * NUM_PARAMS], np.concatenate([own, own]))
    np.testing.assert_array_equal(base_index[: 2 * NUM_PARAMS], np.concatenate([0 * own, 1 + own]))
    assert (bases[:, 0] == 1.0).all()
    assert (factor[:NUM_PARAMS] == 1.0).all()


@pytest.mark.parametrize("u", [-1e4, -800.0, -30.0, 30.0, 1e4])
def test_extreme_scales_stay_positive_and_finite(guide, u):
    phi = point(guide)
    phi[NUM_PARAMS : 2 * NUM_PARAMS] = u
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        assert (guide.standard_deviation(phi) > 0).all()
        assert np.isfinite(guide.entropy(phi))
        assert np.isfinite(guide.entropy_gradient(phi)).all()
        assert np.isfinite(guide.draw(phi, noise_of(guide))).all()
        assert np.isfinite(guide.factors(phi, noise_of(guide)).factor).all()


def test_scale_is_what_its_name_says():
    phi = np.array([0.0, 0.0])
    assert MeanField(scale="sd").standard_deviation(phi)[0] == pytest.approx(np.log(2))
    assert MeanField(scale="variance").standard_deviation(phi)[0] == pytest.approx(np.sqrt(np.log(2)))


def spd(num_params, seed=5):
    root = np.random.default_rng(seed).normal(size=(num_params, 2 * num_params))
    return root @ root.T


def test_full_rank_reaches_any_covariance():
    covariance = spd(5)
    factor = np.linalg.cholesky(covariance)
    s = np.diag(factor)
    below = np.tril_indices(5, -1)
    phi = np.concatenate([np.zeros(5), np.log(np.expm1(s)), (factor / s[:, None])[below]])
    np.testing.assert_allclose(FullRank().covariance(phi), covariance, rtol=1e-12)


def test_zeros_above_the_diagonal_cost_low_rank_no_covariance():
    rng = np.random.default_rng(6)
    s, f = np.exp(rng.normal(size=5)), rng.normal(size=(5, 3))
    covariance = s[:, None] * (np.eye(5) + f @ f.T) * s
    _, triangle = np.linalg.qr(f.T)  # f' = Q R, so that R' is f turned
    lower = np.concatenate([triangle.T[column:, column] for column in range(3)])
    phi = np.concatenate([np.zeros(5), np.log(np.expm1(s)), lower])
    np.testing.assert_allclose(LowRank(rank=3).covariance(phi), covariance, rtol=1e-12)


def test_low_rank_does_not_start_on_its_saddle():
    # For log density -theta' H theta / 2 the negative ELBO is tr(H covariance) / 2 - entropy.
    guide, num_params = LowRank(rank=2), 4
    precision = 10.0 * (0.9 + 0.1 * np.eye(num_params))  # exchangeable: what it leaves loose sums to zero

    def slope(phi):
        def loss(value):
            factor = written_factor(guide, value, num_params)
            covariance = anp.dot(factor, factor.T)
            _, log_det = anp.linalg.slogdet(covariance)
            return 0.5 * anp.sum(precision * covariance) - 0.5 * log_det

        return grad(loss)(phi)[2 * num_params :]

    start = guide.initial(mean=np.zeros(num_params), u=-2.0)
    saddle = np.concatenate([start[: 2 * num_params], np.zeros(len(start) - 2 * num_params)])
    np.testing.assert_allclose(slope(saddle), 0.0, atol=1e-12)
    assert (np.abs(slope(start)) > 1e-4).all()
    assert len(np.unique(np.abs(start[2 * num_params :]))) == len(start) - 2 * num_params
