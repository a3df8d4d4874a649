"""TARP ranks: how many draws are nearer to a reference point than the truth is."""

import numpy as np
from numpy.typing import NDArray

from nadpvi.privacy.randomness import check_seed

__all__ = ["MIN_DRAWS", "num_held_out", "reference_offsets", "tarp_ranks"]

Array = NDArray[np.float64]

MIN_DRAWS = 50


def num_held_out(num_draws: int) -> int:
    """Return how many of the first draws place the reference points, and are not counted."""
    return max(10, num_draws // 10)


def reference_offsets(num_references: int, *, num_params: int, seed: int) -> Array:
    """Return standard normal offsets of reference points, shape (F, K); more points keep the first ones."""
    rng = np.random.default_rng(check_seed("reference_seed", seed))
    return rng.standard_normal((num_references, num_params))


def tarp_ranks(
    draws: Array, truth: Array, *, offsets: Array, uniforms: Array, centre: Array | None
) -> tuple[Array, Array]:
    """Return joint (R, F) and marginal (R, F, K) ranks in (0, 1), uniform for a perfect posterior.

    Parameters
    ----------
    draws : ndarray, shape (R, S, K)
        Draws; the first of them (`num_held_out`) give centre and scale.
    truth : ndarray, shape (R, K)
        True values.
    offsets : ndarray, shape (F, K)
        Reference points, in units of the scale from the centre.
    uniforms : ndarray, shape (R, F, K + 1)
        Uniform random numbers that place the truth within its step and among ties.
    centre : ndarray, shape (R, K), or None
        Another centre than the mean of the held out draws.
    """
    held = num_held_out(draws.shape[1])
    mean = draws[:, :held].mean(axis=1)
    scale = draws[:, :held].std(axis=1, ddof=1)
    standard = (draws[:, held:] - mean[:, None]) / scale[:, None]
    true = (truth - mean) / scale
    points = np.broadcast_to(offsets, (len(draws), *offsets.shape))
    if centre is not None:
        points = points + ((centre - mean) / scale)[:, None]
    marginal = np.empty(points.shape)
    draws_squared, truth_squared = 0.0, 0.0
    # Coordinate by coordinate: a draw equal to the truth gets a distance equal to the last bit.
    for k in range(points.shape[2]):
        to_draws = np.abs(standard[:, None, :, k] - points[:, :, None, k])
        to_truth = np.abs(true[:, None, k] - points[:, :, k])
        marginal[..., k] = _rank(to_draws, to_truth, uniforms[..., k])
        draws_squared = draws_squared + np.square(to_draws)
        truth_squared = truth_squared + np.square(to_truth)
    if points.shape[2] == 1:
        return marginal[..., 0], marginal
    return _rank(np.asarray(draws_squared), np.asarray(truth_squared), uniforms[..., -1]), marginal


def _rank(to_draws: Array, to_truth: Array, uniform: Array) -> Array:
    """Return the truth's place among (R, F, S) distances as a number in (0, 1), shape (R, F)."""
    nearer = np.count_nonzero(to_draws < to_truth[..., None], axis=-1)
    as_near = np.count_nonzero(to_draws <= to_truth[..., None], axis=-1)
    place: Array = (nearer + uniform * (as_near - nearer + 1)) / (to_draws.shape[-1] + 1)
    return place
