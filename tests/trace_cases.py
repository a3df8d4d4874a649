"""Made-up releases for the tests of the post-processing model."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True, kw_only=True, eq=False)
class FakeRelease:
    phi: np.ndarray
    noisy_gradient: np.ndarray
    noise_multiplier: float
    clip_norm: float
    sampling_rate: float
    preconditioner: np.ndarray
    phi_labels: tuple[str, ...]
    model_prior_mean: np.ndarray
    model_prior_sd: np.ndarray
    curvature: np.ndarray = field(repr=False)
    phi_star: np.ndarray = field(repr=False)
    learning_rate: np.ndarray = field(repr=False)
    final_phi: np.ndarray = field(repr=False)
    sums: None = None
    description: None = None
    guide: None = None


def make_release(
    *,
    num_steps=300,
    curvature=(40.0, 80.0, 200.0),
    phi_star=(0.5, -1.0, 0.0),
    start=0.0,
    learning_rate=2e-3,
    noise_multiplier=20.0,
    clip_norm=2.0,
    sampling_rate=0.1,
    preconditioner=(1.0, 2.0, 1.0),
    subsampling_std=0.0,
    offset=0.0,
    scale=1.0,
    seed=0,
):
    """Simulate DP-SGD on a quadratic loss; `offset` and `scale` shift and stretch phi afterwards."""
    rng = np.random.default_rng(seed)
    a, optimum, beta = (np.asarray(x, dtype=float) for x in (curvature, phi_star, preconditioner))
    noise_std = noise_multiplier * clip_norm / beta
    total_std = np.hypot(noise_std, subsampling_std)
    phi = np.empty((num_steps, a.size))
    gradient = np.empty_like(phi)
    now = np.full(a.size, float(start))
    for t in range(num_steps):
        phi[t] = now
        gradient[t] = sampling_rate * a * (now - optimum) + total_std * rng.standard_normal(a.size)
        now = now - learning_rate * gradient[t]
    return FakeRelease(
        phi=offset + scale * phi,
        noisy_gradient=gradient / scale,
        noise_multiplier=noise_multiplier,
        clip_norm=clip_norm,
        sampling_rate=sampling_rate,
        preconditioner=beta * scale,
        phi_labels=tuple(f"mu[{i}]" for i in range(a.size)),
        model_prior_mean=np.full(a.size, np.nan),
        model_prior_sd=np.full(a.size, np.nan),
        curvature=a / scale**2,
        phi_star=offset + scale * optimum,
        learning_rate=np.full(a.size, scale**2) * learning_rate,
        final_phi=offset + scale * now,
    )
