"""Guides on the whole road: the limit without privacy noise, and release, inference and files with each."""

import numpy as np
import pytest
import test_guides

import nadpvi as na
from nadpvi.baselines import last_iterate_posterior
from nadpvi.description import ModelDescription
from nadpvi.guides import FullRank, LowRank, MeanField
from nadpvi.private.records import make_records

SCHEMA = na.Schema.from_dict(
    {
        "columns": {
            "a": {"kind": "real", "lower": -1, "upper": 1},
            "b": {"kind": "real", "lower": -1, "upper": 1},
            "y": {"kind": "binary", "levels": ["no", "yes"]},
        }
    }
)
MODEL = na.models.LogisticRegression(outcome="y", intercept=False, prior_sd=2.0)


def table(num_records=400, seed=0):
    """Return records with two predictors that nearly agree, so that their coefficients are correlated."""
    rng = np.random.default_rng(seed)
    a = rng.uniform(-1, 1, num_records)
    b = np.clip(0.8 * a + 0.35 * rng.normal(size=num_records), -1, 1)
    is_yes = rng.random(num_records) < 1 / (1 + np.exp(-(a - 0.5 * b)))
    return {"a": a, "b": b, "y": np.where(is_yes, "yes", "no")}


def posterior_moments():
    """Return the exact posterior mean and covariance by a sum over a grid of 301 by 301 points."""
    design = ModelDescription(model=MODEL, schema=SCHEMA, guide=MeanField()).design
    records = make_records(table(), design)
    axes = np.meshgrid(np.linspace(-1.5, 3.0, 301), np.linspace(-3.0, 1.5, 301), indexing="ij")
    theta = np.stack([axis.ravel() for axis in axes], axis=-1)
    log_density = -0.5 * (theta**2).sum(axis=1) / 4.0
    for x, y in zip(records.x, records.y, strict=True):
        eta = theta @ x
        log_density += y * eta - np.logaddexp(0.0, eta)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ theta
    return mean, (theta - mean).T @ (weights[:, None] * (theta - mean))


def fitted(guide):
    """Return the mean phi of a run's second half, without noise and with every record in every step."""
    config = na.DPVIConfig(
        num_steps=6000,
        sampling_rate=1.0,
        clip_norm=1e6,
        learning_rate=0.005,
        preconditioner_u=4.0,
        initial_u=-1.0,
        guide=guide,
    )
    made = na.release(
        MODEL, table(), schema=SCHEMA, privacy=na.NonPrivate(), config=config, insecure_seed=3, progress=False
    )
    return made.phi[3000:].mean(axis=0)


def distance(guide, phi, mean, covariance):
    """Return the largest errors: of means in posterior sds, of sds as shares, and of the correlation."""
    sd = np.sqrt(np.diag(covariance))
    found = guide.covariance(phi)
    found_sd = np.sqrt(np.diag(found))
    correlation = covariance[0, 1] / sd.prod()
    return (
        np.abs((phi[:2] - mean) / sd).max(),
        np.abs(found_sd / sd - 1.0).max(),
        abs(found[0, 1] / found_sd.prod() - correlation),
    )


@pytest.mark.parametrize("guide", [FullRank(), FullRank(scale="variance"), LowRank(rank=1)])
def test_guides_with_correlations_recover_the_posterior_covariance(guide):
    """Two parameters: either guide can have any covariance. The best Gaussian is itself 1 % off here."""
    mean, covariance = posterior_moments()
    of_mean, of_sd, of_correlation = distance(guide, fitted(guide), mean, covariance)
    assert of_mean < 0.05
    assert of_sd < 0.06
    assert of_correlation < 0.02


def test_the_mean_field_guide_cannot():
    """Its variances are the inverse precisions, 1 - correlation^2 of the posterior's."""
    mean, covariance = posterior_moments()
    correlation = covariance[0, 1] / np.sqrt(np.diag(covariance).prod())
    assert correlation < -0.7
    phi = fitted(MeanField())
    of_mean, of_sd, of_correlation = distance(MeanField(), phi, mean, covariance)
    assert of_mean < 0.1
    assert of_sd > 0.25
    assert of_correlation == pytest.approx(abs(correlation))
    expected = 1.0 / np.sqrt(np.diag(np.linalg.inv(covariance)))
    np.testing.assert_allclose(MeanField().standard_deviation(phi), expected, rtol=0.06)


@pytest.mark.filterwarnings("ignore::nadpvi.InferenceWarning")  # so short a run is warned of
@pytest.mark.parametrize("name", sorted(set(test_guides.EXAMPLES) - {"rank_three", "rank_three_variance"}))
def test_release_inference_and_files(name, tmp_path):
    guide = test_guides.EXAMPLES[name]
    made = na.release(
        MODEL,
        table(),
        schema=SCHEMA,
        privacy=na.PrivacyBudget(epsilon=5.0, delta=1e-5),
        config=na.DPVIConfig(num_steps=200, sampling_rate=0.2, guide=guide),
        progress=False,
    )
    assert made.phi_labels == guide.labels(["a", "b"])
    assert made.phi.shape == (200, guide.num_variational(2))
    made.save(tmp_path / "release.nc")
    again = na.Release.load(tmp_path / "release.nc")
    assert again.description.guide == guide
    posterior = na.infer(again, method="exact", phi_star_prior="model", draws=2500, chains=4, seed=1)
    phi_star = posterior.groups["posterior"]["phi_star"].to_numpy().reshape(10_000, -1)
    theta = posterior.theta().reshape(10_000, 2)
    # The mixture's moments: 10,000 draws, five standard errors of a mean and, roughly, of a covariance.
    covariance = np.cov(phi_star[:, :2].T) + guide.covariance(phi_star).mean(axis=0)
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(theta.mean(axis=0) - phi_star[:, :2].mean(axis=0)) < 5 * sd / 100).all()
    assert (np.abs(np.cov(theta.T) - covariance) < 0.25 * np.outer(sd, sd)).all()
    naive = last_iterate_posterior(again, draws=4000, seed=2).theta().reshape(4000, 2)
    expected = guide.standard_deviation(again.final_phi)
    np.testing.assert_allclose(naive.std(axis=0), expected, rtol=5 / np.sqrt(2 * 4000))
