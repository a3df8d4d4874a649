"""Expected curvature and gradients at the prior, over made-up records. Public side; no private data.

The information of one record is ``J = E[score score']`` with score = d log p(y | x, theta) / d theta. It
equals the expected curvature -E[d2 log p / d theta2] because outcomes are drawn from the model itself, and
takes one reverse pass where second derivatives would take K. For the scale u of a location with curvature h
the negative ELBO is ``h sd(u)^2 / 2 - log sd(u)`` up to a constant. It is least where sd = h^-1/2, and its
second derivative there is ``2 (d log sd / d u)^2``, whichever of sd and variance is softplus(u).
"""

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nadpvi.bijectors import inverse_softplus
from nadpvi.description import ModelDescription
from nadpvi.encoding import Design
from nadpvi.errors import ArgumentError, ModelError
from nadpvi.guides import MeanField
from nadpvi.guides.antithetic import draw_antithetic
from nadpvi.made_up import made_up_records, prior_draws
from nadpvi.models.base import Model, RecordBatch
from nadpvi.settings import Settings

__all__ = [
    "clipping_norms",
    "expected_information",
    "information_evenness",
    "mean_field_of",
    "scale_optimum",
]

Array = NDArray[np.float64]

# Rows enough that a level which one record in a hundred has is seen hundreds of times.
_LEAST_ROWS, _ROWS_PER_PARAMETER, _MOST_ROWS = 20_000, 400, 200_000
_CHUNK_VALUES = 2_000_000
# Behind an average, below which its relative standard error passes a tenth.
_LEAST_EFFECTIVE_ROWS = 100


def expected_information(description: ModelDescription, *, rng: np.random.Generator) -> Array:
    """Return J, the expected information of one made-up record, shape (K, K), by Monte Carlo.

    Every record has its own theta from the prior, so that one reverse pass gives independent scores.

    Raises
    ------
    ModelError
        If a score is not finite.
    """
    model, design = description.model, description.design
    num_params = len(description.names)
    rows_left = total = min(_LEAST_ROWS + _ROWS_PER_PARAMETER * num_params, _MOST_ROWS)
    chunk = max(100, _CHUNK_VALUES // num_params)
    moment = np.zeros((num_params, num_params))
    while rows_left > 0:
        num_rows = min(chunk, rows_left)
        scores = _prior_scores(model, design, num_rows=num_rows, rng=rng)
        moment += scores.T @ scores
        rows_left -= num_rows
    return moment / total


def information_evenness(description: ModelDescription, *, rng: np.random.Generator) -> float:
    """Return how evenly a record's information is spread over the prior, in (0, 1].

    It is ``(E |score|^2)^2 / E |score|^4``: the share of the prior's draws that an average over them rests
    on. Counts with a wide prior on a log link have a small one: a few draws with large rates hold it all.

    Raises
    ------
    ModelError
        If so few draws hold the information that no average over the prior can be trusted.
    """
    model, design = description.model, description.design
    chunk = min(_LEAST_ROWS, max(100, _CHUNK_VALUES // len(description.names)))
    parts = [
        (_prior_scores(model, design, num_rows=chunk, rng=rng) ** 2).sum(axis=1)
        for _ in range(-(-_LEAST_ROWS // chunk))
    ]
    squares = np.concatenate(parts)
    squares /= squares.max()
    evenness = float(squares.mean() ** 2 / (squares**2).mean())
    if evenness * len(squares) < _LEAST_EFFECTIVE_ROWS:
        raise ModelError(
            f"{type(model).__name__} cannot be planned for under this prior: {evenness:.2%} of its draws "
            "hold nearly all the information, so that averages say nothing. Narrow it (prior_sd) to outcomes "
            "that you expect."
        )
    return evenness


def mean_field_of(description: ModelDescription) -> MeanField:
    """Return the description's guide, or raise unless it is the one that forecasts are derived for."""
    if not isinstance(description.guide, MeanField):
        raise ArgumentError(
            f"plan is derived for the MeanField guide (got {type(description.guide).__name__}); plan with "
            "that: what the noise does to the locations is much the same."
        )
    return description.guide


def scale_optimum(guide: MeanField, curvature: Array) -> Array:
    """Return u with sd(u) = curvature^-1/2, shape (K,): where the scales settle."""
    spread = curvature**-0.5 if guide.scale == "sd" else 1.0 / curvature
    return inverse_softplus(spread)


def clipping_norms(
    settings: Settings, *, curvature: Array, rng: np.random.Generator, num_batches: int = 4
) -> Array:
    """Return norms of made-up records' preconditioned gradients at the optimum, in no order.

    Locations are at the record's own theta, scales at their optimum for the locations' `curvature`. These are
    the norms that a run cuts to its clip norm.
    """
    description = settings.description
    model, design, guide = description.model, description.design, mean_field_of(description)
    num_params = len(curvature)
    draws = settings.monte_carlo_samples
    num_rows = max(50, min(500, _CHUNK_VALUES // (draws * num_params)))
    scales = np.broadcast_to(scale_optimum(guide, curvature), (num_rows, num_params))
    norms = []
    for _ in range(num_batches):
        theta = prior_draws(model, design, num_draws=num_rows, rng=rng)
        batch = made_up_records(model, design, theta=theta, num_records=num_rows, rng=rng)
        phi = np.concatenate([theta, scales], axis=1)
        noise = draw_antithetic(rng, num_draws=draws, size=num_params)
        gradient = theta_gradient(model, guide.draw(phi, noise[:, None, :]), x=batch.x, y=batch.y)
        rows = guide.pull_back(phi, theta_gradient=gradient, standard_normal=noise) * settings.preconditioner
        norms.append(linalg.norm(rows, axis=1))
    return np.concatenate(norms)


def _prior_scores(model: Model, design: Design, *, num_rows: int, rng: np.random.Generator) -> Array:
    """Return the score of made-up records, each at its own theta from the prior, shape (`num_rows`, K).

    Outcomes are as the model draws them: held to the bounds of their column, they would not be its own.
    """
    theta = prior_draws(model, design, num_draws=num_rows, rng=rng)
    batch = made_up_records(model, design, theta=theta, num_records=num_rows, rng=rng, clamp=False)
    return theta_gradient(model, theta, x=batch.x, y=batch.y)


def theta_gradient(model: Model, theta: Array, *, x: Array, y: Array) -> Array:
    """Return the gradient of each record's log likelihood at its theta, of the shape of `theta`."""
    from autograd import grad

    batch = RecordBatch(x=x, y=y)
    gradient: Array = grad(lambda value: model.log_likelihood(value, batch).sum())(theta)
    if not np.isfinite(gradient).all():
        raise ModelError(
            f"{type(model).__name__}.log_likelihood has a gradient that is not finite at draws from the "
            "prior."
        )
    return gradient
