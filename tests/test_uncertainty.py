"""Shares of uncertainty against mixtures whose parts are known."""

import numpy as np
import pytest
from report_cases import posterior_of

import nadpvi as na
from nadpvi.baselines import last_iterate_posterior
from nadpvi.errors import ArgumentError
from nadpvi.guides import FullRank, LowRank, MeanField
from nadpvi.guides.scales import scale_of
from nadpvi.uncertainty import uncertainty_shares

pytestmark = pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")


@pytest.mark.parametrize("scale", ["sd", "variance"])
def test_shares_are_those_of_a_simulated_mixture(scale):
    rng = np.random.default_rng(1)
    location_sd, center, spread = np.array([0.5, 2.0, 0.01]), np.array([-1.0, 0.3, 0.0]), 0.4
    u = center + spread * rng.standard_normal((200_000, 3))
    phi_star = np.concatenate([location_sd * rng.standard_normal((200_000, 3)) + 7.0, u], axis=1)
    guide = MeanField(scale=scale)
    table = uncertainty_shares(guide, phi_star, labels=("a", "b", "c"))
    # theta itself, drawn from the mixture: its variance is the sum of the parts.
    theta = guide.draw(phi_star, rng.standard_normal((200_000, 3)))
    assert table["sd"].to_numpy() == pytest.approx(theta.std(axis=0), rel=0.01)
    # The parts by themselves, by other draws of the same law.
    other = center + spread * np.random.default_rng(2).standard_normal((200_000, 3))
    of_data = np.sqrt((scale_of(other, scale=scale) ** 2).mean(axis=0))
    assert table["sd_data"].to_numpy() == pytest.approx(of_data, rel=0.01)
    assert table["sd_privacy"].to_numpy() == pytest.approx(location_sd, rel=0.01)
    expected = location_sd**2 / (location_sd**2 + of_data**2)
    assert table["share_privacy"].to_numpy() == pytest.approx(expected, rel=0.02)
    assert (table["share_data"] + table["share_privacy"]).to_numpy() == pytest.approx(1.0)


@pytest.mark.parametrize("guide", [FullRank(), LowRank(rank=2)])
def test_guides_with_correlations_are_split_as_well(guide):
    rng = np.random.default_rng(3)
    size = guide.num_variational(3)
    phi_star = 0.3 * rng.standard_normal((100_000, size))
    table = uncertainty_shares(guide, phi_star, labels=("a", "b", "c"))
    theta = guide.draw(phi_star, rng.standard_normal((100_000, guide.num_noise(3))))
    assert table["sd"].to_numpy() == pytest.approx(theta.std(axis=0), rel=0.02)
    assert table["sd_privacy"].to_numpy() == pytest.approx(0.3, rel=0.02)


def test_a_posterior_knows_its_shares():
    posterior = posterior_of("multinomial", draws=1000)
    table = posterior.uncertainty_shares()
    assert list(table.index) == list(posterior.description.names)
    theta = posterior.theta().reshape(-1, len(table))
    assert table["sd"].to_numpy() == pytest.approx(theta.std(axis=0), rel=0.15)


def test_more_noise_is_a_larger_share():
    from report_cases import CONFIG, MODELS, SCHEMA, people

    shares = []
    for epsilon in (0.2, 50.0):
        made = na.release(
            MODELS["coin"],
            people(),
            schema=SCHEMA,
            privacy=na.PrivacyBudget(epsilon=epsilon, delta=1e-5),
            config=CONFIG,
            insecure_seed=5,
        )
        table = na.infer(made, method="exact", draws=500, seed=1).uncertainty_shares()
        shares.append(table["share_privacy"].item())
    assert shares[0] > shares[1] + 0.2


def test_what_cannot_be_split_is_refused():
    with pytest.raises(ArgumentError, match="no draws of phi_star"):
        last_iterate_posterior(posterior_release(), draws=20, seed=1).uncertainty_shares()
    with pytest.raises(ArgumentError, match="at least two"):
        uncertainty_shares(MeanField(), np.zeros((1, 2)), labels=("a",))
    with pytest.raises(ArgumentError, match="4 coordinates for 2 parameters"):
        uncertainty_shares(MeanField(), np.zeros((5, 3)), labels=("a", "b"))


def posterior_release():
    from report_cases import release_of

    return release_of("logistic")
