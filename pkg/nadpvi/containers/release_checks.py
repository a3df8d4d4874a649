"""What every release must satisfy, however it was made."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.containers.array_numbers import real_array
from nadpvi.errors import ArgumentError
from nadpvi.privacy.guarantee import Guarantee

__all__ = ["check_coordinates", "check_curvature", "check_finite_steps", "check_settings", "check_values"]

Array = NDArray[np.float64]

# A curvature's diagonal is never negative; noise of the size that is claimed brings it so low once in 10^9.
_MOST_NEGATIVE = 6.0


def check_coordinates(vectors: Mapping[str, Array], *, labels: tuple[str, ...], dimension: int) -> None:
    """Raise `ArgumentError` unless every vector has D entries, and phi as many different labels."""
    for name, vector in vectors.items():
        if vector.shape != (dimension,):
            raise ArgumentError(f"{name} must have shape ({dimension},) (got {vector.shape}).")
    if len(labels) != dimension or len(set(labels)) != dimension:
        raise ArgumentError(f"phi_labels must be {dimension} different names.")


def check_settings(
    *,
    noise_multiplier: float,
    clip_norm: float,
    sampling_rate: float,
    preconditioner: Array,
    guarantee: Guarantee | None,
) -> None:
    """Raise `ArgumentError` for settings that no DP-SGD run can have had, or a guarantee of another run."""
    if not (math.isfinite(noise_multiplier) and noise_multiplier >= 0):
        raise ArgumentError(f"noise_multiplier must be finite and not negative (got {noise_multiplier}).")
    if not (math.isfinite(clip_norm) and clip_norm > 0):
        raise ArgumentError(f"clip_norm must be finite and positive (got {clip_norm}).")
    if not 0 < sampling_rate <= 1:
        raise ArgumentError(f"sampling_rate must be in (0, 1] (got {sampling_rate}).")
    if not (np.isfinite(preconditioner).all() and (preconditioner > 0).all()):
        raise ArgumentError("preconditioner must be finite and positive in every coordinate.")
    if guarantee is not None and (
        guarantee.noise_multiplier != noise_multiplier
        or guarantee.clip_norm != clip_norm
        or guarantee.sampling_rate != sampling_rate
    ):
        raise ArgumentError(
            "guarantee must be that of this trace: its noise_multiplier, clip_norm or sampling_rate differs."
        )


def check_values(*, learning_rate: Array, model_prior_sd: Array, final_phi: Array) -> None:
    """Raise `ArgumentError` for a step size, a prior's sd or a final iterate that no run can have had.

    All have shape (D,). NaN stands for what is not known; of the final iterate only without a step size.
    """
    for name, vector in (("learning_rate", learning_rate), ("model_prior_sd", model_prior_sd)):
        if not (np.isnan(vector) | (np.isfinite(vector) & (vector > 0))).all():
            raise ArgumentError(f"{name} must be finite and positive, or NaN where it is not known.")
    if not (np.isfinite(final_phi) | (np.isnan(final_phi) & np.isnan(learning_rate))).all():
        raise ArgumentError("final_phi is not finite; the run diverged.")


def check_finite_steps(name: str, values: Array) -> None:
    """Raise `ArgumentError` that names the first step at which an array of shape (T, D) is not finite."""
    bad = ~np.isfinite(values).all(axis=1)
    if bad.any():
        raise ArgumentError(f"{name} is not finite at step {int(np.argmax(bad))}; the run diverged.")


def check_curvature(
    curvature: ArrayLike | None, curvature_std: ArrayLike | None, *, dimension: int
) -> tuple[Array | None, Array | None]:
    """Return a released curvature and the sd of its noise as read-only matrices, or two times None.

    Raises
    ------
    ArgumentError
        If one is given without the other, the curvature is no symmetric finite matrix of at most D rows, an
        entry of its diagonal is more negative than noise would make it, or an sd is not positive.
    """
    if curvature is None and curvature_std is None:
        return None, None
    if curvature is None or curvature_std is None:
        raise ArgumentError("curvature and curvature_std go together: give both or neither.")
    matrix = np.array(
        real_array("curvature", curvature, dims=(0, 1, 2), shape=f"a square of at most {dimension} rows")
    )
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not 1 <= matrix.shape[0] <= dimension:
        raise ArgumentError(
            f"curvature must be a square matrix of at most {dimension} rows (got shape {matrix.shape})."
        )
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
        raise ArgumentError("curvature must be symmetric, with finite entries.")
    std = real_array("curvature_std", curvature_std, dims=(0, 1, 2), shape="a number, or one an entry")
    if std.ndim != 0 and std.shape != matrix.shape:
        raise ArgumentError(
            f"curvature_std must be a number or have the curvature's shape {matrix.shape} (got {std.shape})."
        )
    std = np.array(np.broadcast_to(std, matrix.shape))
    if not (std > 0).all() or not np.array_equal(std, std.T):
        raise ArgumentError("curvature_std must be positive and symmetric; np.inf says nothing of an entry.")
    score = -np.diag(matrix) / np.diag(std)
    if (score > _MOST_NEGATIVE).any():
        at = int(np.argmax(score))
        raise ArgumentError(
            f"curvature[{at}, {at}] is {score[at]:.3g} of its own sds below 0: give the Hessian of the loss "
            "(the negative log likelihood), not of its negative."
        )
    matrix.setflags(write=False)
    std.setflags(write=False)
    return matrix, std
