"""Made-up traces and models for the tests of a dense curvature."""

import numpy as np

from nadpvi.gradient_model.dense.density import DenseModel
from nadpvi.gradient_model.dense.prior import DensePrior, Group, GroupKind
from nadpvi.gradient_model.dense.setup import make_coordinates
from nadpvi.gradient_model.dense.sums import DenseSums

PATTERN = (
    Group(kind=GroupKind.CONSTANT, start=0),
    Group(kind=GroupKind.NUMBER, start=1),
    Group(kind=GroupKind.LEVELS, start=2, size=3),
    Group(kind=GroupKind.BINARY, start=5),
    Group(kind=GroupKind.LEVELS, start=6, size=2),
)


def simulate_traces(gradient, *, phi_star, num_steps, noise_std, learning_rate, rng, start=0.0):
    """Return phi and noisy gradients (T, R, M) of R runs of noisy gradient descent."""
    shape = (num_steps, *phi_star.shape)
    phi, noisy = np.empty(shape), np.empty(shape)
    now = np.full(phi_star.shape, float(start))
    for t in range(num_steps):
        phi[t] = now
        noisy[t] = gradient(now) + noise_std * rng.standard_normal(phi_star.shape)
        now = now - learning_rate * noisy[t]
    return phi, noisy


def batch_sums(phi, noisy, *, burn_in=0.2):
    """Return the sums of R traces (T, R, M), one a chain."""
    first = round(burn_in * len(phi))
    phi, noisy = phi[first:], noisy[first:]
    away, up = phi - phi.mean(axis=0), noisy - noisy.mean(axis=0)
    return DenseSums(
        num_steps=len(phi),
        phi_bar=phi.mean(axis=0),
        g_bar=noisy.mean(axis=0),
        s_pp=np.einsum("tri,trj->rij", away, away),
        s_gp=np.einsum("tri,trj->rij", up, away),
        s_gg=np.square(up).sum(axis=0),
    )


def make_model(
    sums, *, centre, groups=(), precision=1.0, rate=0.1, noise_std=40.0, tau_scale=None, prior_sd=1.0, **prior
):
    """Return a dense model with normal(0, prior_sd) as phi_star's prior."""
    size = sums.num_parameters
    known = DensePrior(precision=np.full(size, precision), groups=groups, **prior)
    return DenseModel(
        sums=sums,
        sampling_rate=rate,
        noise_std=np.full(size, noise_std),
        phi_star_prior_mean=np.zeros(size),
        phi_star_prior_sd=np.full(size, prior_sd),
        tau_prior_scale=None if tau_scale is None else np.full(size, tau_scale),
        prior=known,
        coordinates=make_coordinates(known, centre=np.asarray(centre, dtype=float)),
    )


def random_features(rng, *, num_records=400):
    """Return features that follow PATTERN, columns dependent on each other, and positive weights."""
    score = rng.standard_normal(num_records)
    number = 1.0 / (1.0 + np.exp(-score - rng.standard_normal(num_records)))
    first = np.digitize(score + rng.standard_normal(num_records), [-1.0, 0.8])
    second = (score + rng.standard_normal(num_records) > 1.0).astype(int)
    third = rng.integers(2, size=num_records)
    columns = [np.ones(num_records), number, *(first == np.arange(3)[:, None]), second]
    columns += [*(third == np.arange(2)[:, None])]
    return np.stack(columns, axis=1).astype(float), rng.uniform(0.05, 0.25, num_records)
