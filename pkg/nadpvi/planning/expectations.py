"""What a run can be expected to tell, from public knowledge alone: curvature, noise and how fast it moves.

Everything is that of a typical table: the average information over the prior would be that of the few tables
that tell most, and its diagonal is brought to the median over tables. Write N for the number of records, J
for the expected information of one (`nadpvi.planning.curvature`), kappa for the sampling rate, n for the
steps of the window and P for the prior's covariance. The negative ELBO has curvature ``H = N J + P^-1`` in
the locations; locations and scales do not interact to this order, nor scales among each other. Near the
optimum phi_star a step's noisy gradient is ``kappa H (phi - phi_star)`` plus noise of covariance

    S = diag((sigma C / beta)^2) + kappa (1 - kappa) N J + (M mod 2) (kappa / M)^2 H diag(H)^-1 H

from the mechanism, from Poisson sampling (at the optimum the records' gradients have mean zero and second
moment J), and from the guide's M Monte Carlo draws, of which an odd one has no opposite. The noise of
different steps is independent, so that the window's estimate of phi_star, given H, has covariance
``W^-1 = H^-1 S H^-1 / (n kappa^2)``. Under the prior, phi_star itself varies with covariance
``V = P - H^-1``, what the records teach about theta; knowing it only through the trace adds
``(V^-1 + W)^-1`` to the covariance H^-1 of the non-private posterior. The sum never exceeds P: a drowned
direction returns to its prior. Not counted: that H has to be learnt from the trace too, and what clipping
does.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nadpvi.description import ModelDescription
from nadpvi.planning.curvature import (
    clipping_norms,
    expected_information,
    information_evenness,
    mean_field_of,
    scale_optimum,
)
from nadpvi.planning.predictive import predict_information
from nadpvi.settings import Settings

__all__ = [
    "ExpectedRun",
    "LocationSpread",
    "expect_run",
    "location_spread",
    "step_covariance",
    "typical_information",
]

Array = NDArray[np.float64]

# Share of the largest variance, or of 1.
_LEAST_NOISE = 1e-12


class LocationSpread(NamedTuple):
    """Expected covariance diagonals of the K locations, each of shape (K,).

    Parameters
    ----------
    non_private : ndarray
        The posterior's variance, were there no noise: diagonal of H^-1.
    trace : ndarray
        Variance of phi_star as the trace alone gives it: diagonal of W^-1.
    added : ndarray
        What the noise adds to the posterior's variance: diagonal of (V^-1 + W)^-1.
    learnable : ndarray
        What the records could take off the prior's variance: diagonal of V; `added` never exceeds it.
    """

    non_private: Array
    trace: Array
    added: Array
    learnable: Array


class ExpectedRun(NamedTuple):
    """What a run does on average over the prior.

    Parameters
    ----------
    prior_sd : ndarray, shape (K,)
        The prior's standard deviations.
    spread : LocationSpread
        Expected variances of the locations.
    margin : ndarray, shape (K,)
        Information of each parameter over what it needs, taken by itself, for signal to equal noise.
    scale_error : ndarray, shape (K,)
        Relative error that the trace leaves in the guide's standard deviations.
    relaxation_steps : ndarray, shape (D,)
        1 / (lambda kappa a).
    largest_step : float
        Largest eigenvalue of lambda kappa H, the scales included.
    norms : ndarray
        Norms of made-up records' gradients at the optimum.
    evenness : float
        Share of the prior's draws that an average of the information rests on.
    """

    prior_sd: Array
    spread: LocationSpread
    margin: Array
    scale_error: Array
    relaxation_steps: Array
    largest_step: float
    norms: Array
    evenness: float


def expect_run(
    settings: Settings, *, noise_std: Array, num_records: int, num_window_steps: int, rng: np.random.Generator
) -> ExpectedRun:
    """Return what a run is expected to do.

    Parameters
    ----------
    settings : Settings
        The run.
    noise_std : ndarray, shape (D,)
        sigma C / beta.
    num_records, num_window_steps : int
        N and n.
    rng : numpy.random.Generator
        For made-up records.
    """
    description, rate = settings.description, settings.sampling_rate
    guide = mean_field_of(description)
    _, prior_sd = description.model.prior_moments(description.design)
    located, _ = np.split(noise_std, [len(prior_sd)])
    information = expected_information(description, rng=rng)
    typical = typical_information(description, information, rng=rng.spawn(1)[0])
    covariance = step_covariance(
        typical, prior_sd=prior_sd, noise_std=located, num_records=num_records, settings=settings
    )
    learnt = num_records * np.diag(typical)
    curvature = learnt + prior_sd**-2.0
    u = scale_optimum(guide, curvature)
    curvature_u = guide.scale_curvature(u)
    steps = settings.learning_rate * rate * np.concatenate([curvature, curvature_u])
    root = np.sqrt(settings.learning_rate[: len(prior_sd)] * rate)
    hessian = num_records * information + np.diag(prior_sd**-2.0)
    last = len(prior_sd) - 1
    fastest = float(linalg.eigvalsh(hessian * np.outer(root, root), subset_by_index=[last, last])[0])
    window_noise = noise_std / (rate * math.sqrt(num_window_steps))
    # d log sd / d u is sqrt(curvature_u / 2).
    scale_error = window_noise[len(prior_sd) :] / curvature_u * np.sqrt(curvature_u / 2.0)
    return ExpectedRun(
        prior_sd=prior_sd,
        spread=location_spread(
            typical,
            prior_sd=prior_sd,
            covariance=covariance,
            num_records=num_records,
            num_window_steps=num_window_steps,
            sampling_rate=rate,
        ),
        margin=_margin(learnt, prior_sd=prior_sd, window_noise=window_noise[: len(prior_sd)]),
        scale_error=scale_error,
        relaxation_steps=1.0 / steps,
        largest_step=max(fastest, float(steps[len(prior_sd) :].max())),
        norms=clipping_norms(settings, curvature=curvature, rng=rng),
        evenness=information_evenness(description, rng=rng),
    )


def _margin(learnt: Array, *, prior_sd: Array, window_noise: Array) -> Array:
    """Return `learnt` over the information at which one parameter by itself loses half its signal to noise.

    With curvature h, prior sd p and window noise w, V = p^2 - 1/h and W = (h / w)^2. V W = 1 is the quadratic
    p^2 h^2 - h - w^2 = 0, and what is needed is its root less the precision of the prior.
    """
    precision = prior_sd**-2.0
    needed = 0.5 * precision * (np.sqrt(1.0 + 4.0 * (window_noise * prior_sd) ** 2) - 1.0)
    with np.errstate(divide="ignore"):
        margin: Array = learnt / needed
    return margin


def typical_information(
    description: ModelDescription, information: Array, *, rng: np.random.Generator
) -> Array:
    """Return the information of one record of a typical table, shape (K, K).

    Its diagonal is the median over tables; how parameters go together is as in the average, which rests on
    more records.

    Parameters
    ----------
    description : ModelDescription
    information : ndarray, shape (K, K)
        The average, from `expected_information`.
    rng : numpy.random.Generator
        For made-up tables.
    """
    typical = np.median(predict_information(description, rng=rng), axis=0)
    average = np.diag(information)
    root = np.sqrt(np.divide(typical, average, out=np.zeros_like(average), where=average > 0.0))
    found: Array = information * np.outer(root, root)
    return found


def location_spread(
    information: Array,
    *,
    prior_sd: Array,
    covariance: Array,
    num_records: int,
    num_window_steps: int,
    sampling_rate: float,
) -> LocationSpread:
    """Return how far the locations' posterior is expected to be spread by what is unknown and by the noise.

    Parameters
    ----------
    information : ndarray, shape (K, K)
        J, from `expected_information`.
    prior_sd : ndarray, shape (K,)
        Square roots of the diagonal of P.
    covariance : ndarray, shape (K, K)
        S, positive semi-definite, from `step_covariance`.
    num_records, num_window_steps, sampling_rate
        N, n and kappa.
    """
    # In coordinates where the prior is standard normal and the records' information is diagonal, H and V are
    # diagonal too, and no direction that the records are silent about is ever divided by.
    whitened = num_records * information * np.outer(prior_sd, prior_sd)
    gain, basis = linalg.eigh(whitened)
    gain = np.maximum(gain, 0.0)
    posterior_root = prior_sd[:, None] * basis / np.sqrt(1.0 + gain)
    signal_root = posterior_root * np.sqrt(gain)
    pulled = basis / prior_sd[:, None] * np.sqrt(gain * (1.0 + gain))
    # Without privacy noise S may have no part where the records say nothing, or none at all. What keeps the
    # factor whole is next to nothing beside the unit variance that a single record would add.
    least = _LEAST_NOISE * max(1.0, np.diag(covariance).max()) * np.eye(len(gain))
    noise_root = linalg.cholesky(covariance + least, lower=True)
    scaled = math.sqrt(num_window_steps) * sampling_rate
    seen = scaled * linalg.solve_triangular(noise_root, pulled, lower=True)
    factor = linalg.cholesky(np.eye(len(gain)) + seen.T @ seen, lower=True)
    added_root = linalg.solve_triangular(factor, signal_root.T, lower=True)
    posterior = posterior_root @ posterior_root.T
    return LocationSpread(
        non_private=np.diag(posterior).copy(),
        trace=np.sum((posterior @ noise_root / scaled) ** 2, axis=1),
        added=np.sum(added_root**2, axis=0),
        learnable=np.sum(signal_root**2, axis=1),
    )


def step_covariance(
    information: Array, *, prior_sd: Array, noise_std: Array, num_records: int, settings: Settings
) -> Array:
    """Return S, the covariance of the noise in one step's gradient of the locations, shape (K, K).

    Parameters
    ----------
    information, prior_sd
        J and the prior's sds.
    noise_std : ndarray, shape (K,)
        sigma C / beta.
    num_records : int
        N.
    settings : Settings
        For kappa and the number of Monte Carlo draws.
    """
    rate = settings.sampling_rate
    curvature = num_records * information + np.diag(prior_sd**-2.0)
    num_draws = settings.monte_carlo_samples
    # The mean of the draws' noise: zero in pairs of opposite sign, that of the one without an opposite else.
    unpaired = (num_draws % 2) / num_draws**2
    monte_carlo = unpaired * rate**2 * (curvature / np.diag(curvature)) @ curvature
    subsampling = rate * (1.0 - rate) * num_records * information
    covariance: Array = np.diag(noise_std**2) + subsampling + monte_carlo
    return covariance
