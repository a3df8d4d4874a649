"""Traces that another program made, brought into the units of a release.

A release holds noisy *sums* of clipped gradients. Other programs divide them, by the expected batch size for
the most part, and a step size and a noise that belong to the divided gradient would give intervals that are
wrong by that factor. So gradients, and a curvature beside them, are multiplied back here, and step sizes
divided.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nadpvi.checks import check_count, check_positive
from nadpvi.containers.array_labels import coordinate_labels
from nadpvi.containers.array_numbers import real_array, single_number
from nadpvi.containers.release_checks import check_curvature
from nadpvi.containers.trace_checks import check_steps
from nadpvi.errors import ArgumentError
from nadpvi.privacy.budget import PrivacyBudget
from nadpvi.privacy.guarantee import Guarantee
from nadpvi.privacy.guarantee_maker import make_guarantee
from nadpvi.privacy.parameters import check_num_steps, check_sampling_rate

__all__ = ["LOSSES", "SummedTrace", "foreign_fields", "summed_trace"]

Array = NDArray[np.float64]

LOSSES = ("sum", "mean", "expected_batch")

_PER_COORDINATE = "a number, or one for each coordinate"
_NON_NEGATIVE, _POSITIVE = "finite and not negative", "finite and positive"
_TINY = np.nextafter(0.0, 1.0)


class SummedTrace(NamedTuple):
    """A trace in the units of a release.

    ``phi`` and ``noisy_gradient`` have shape (T, D), ``learning_rate`` is a scalar or (D,); ``final_phi`` is
    the iterate after the last step, of size 0 where it is not known. ``curvature_factor`` is what a Hessian
    in the trace's units is multiplied by to be one of the loss summed over the records.
    """

    phi: Array
    noisy_gradient: Array
    learning_rate: Array
    final_phi: Array
    curvature_factor: float


class ForeignFields(TypedDict):
    """Arguments of `nadpvi.Release` for a trace from elsewhere."""

    phi: Array
    noisy_gradient: Array
    final_phi: Array
    noise_multiplier: float
    clip_norm: float
    sampling_rate: float
    preconditioner: Array
    learning_rate: Array
    model_prior_mean: Array
    model_prior_sd: Array
    phi_labels: tuple[str, ...]
    curvature: Array | None
    curvature_std: Array | None
    guarantee: Guarantee | None


def summed_trace(
    *,
    phi: ArrayLike,
    noisy_gradient: ArrayLike,
    learning_rate: ArrayLike,
    sampling_rate: float,
    loss: str,
    num_records: int | None,
    expected_batch_size: float | None,
) -> SummedTrace:
    """Return a trace with gradients as noisy sums, and the step size that belongs to them.

    Arguments are those of `nadpvi.Release.from_arrays`.

    Raises
    ------
    ArgumentError
        If shapes do not fit, the loss lacks its number or has that of another, or the iterates show that
        each gradient was paired with the iterate after its step, or that the step size has other units.
    """
    factor = _divisor(
        loss,
        sampling_rate=sampling_rate,
        num_records=num_records,
        expected_batch_size=expected_batch_size,
    )
    iterates = real_array("phi", phi, dims=(2,), shape="shape (T, D)")
    gradients = real_array("noisy_gradient", noisy_gradient, dims=(2,), shape="shape (T, D)")
    if not gradients.size:
        raise ArgumentError(
            "noisy_gradient must hold at least one step of at least one coordinate, shape (T, D) "
            f"(got {gradients.shape})."
        )
    steps = gradients.shape[0]
    if iterates.shape[0] not in (steps, steps + 1) or iterates.shape[1:] != gradients.shape[1:]:
        raise ArgumentError(
            "phi must have the shape (T, D) of noisy_gradient, or one more row, the final iterate "
            f"(got {iterates.shape} and {gradients.shape})."
        )
    if not np.isfinite(iterates[steps:]).all():
        raise ArgumentError("phi is not finite after the last step; the run diverged.")
    rates = real_array("learning_rate", learning_rate, dims=(0, 1), shape=_PER_COORDINATE)
    if (rates <= 0).any() or np.isinf(rates).any():
        raise ArgumentError("learning_rate must be finite and positive; leave it out if it is not known.")
    check_steps(iterates, gradients, learning_rate=rates)
    return SummedTrace(
        phi=iterates[:steps],
        noisy_gradient=factor * gradients,
        learning_rate=rates / factor,
        final_phi=iterates[steps:].reshape(-1),
        curvature_factor=1.0 if loss == "sum" else factor / sampling_rate,
    )


def _divisor(
    loss: str, *, sampling_rate: float, num_records: int | None, expected_batch_size: float | None
) -> float:
    """Return what the noisy sums were divided by, or raise `ArgumentError`."""
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ArgumentError(f"loss must be one of {', '.join(map(repr, LOSSES))} (got {loss!r}).")
    needed = {"sum": None, "mean": "num_records", "expected_batch": "expected_batch_size"}[loss]
    for name, value in (("num_records", num_records), ("expected_batch_size", expected_batch_size)):
        if value is None and name == needed:
            raise ArgumentError(f"loss={loss!r} needs {name}, a public number.")
        if value is not None and name != needed:
            other = "mean" if name == "num_records" else "expected_batch"
            raise ArgumentError(f"{name} belongs to loss={other!r}; leave it out with loss={loss!r}.")
    if num_records is not None:
        return sampling_rate * check_count("num_records", num_records)
    if expected_batch_size is not None:
        return check_positive("expected_batch_size", expected_batch_size)
    return 1.0


def foreign_fields(
    *,
    phi: ArrayLike,
    noisy_gradient: ArrayLike,
    noise_multiplier: float,
    clip_norm: float,
    sampling_rate: float,
    preconditioner: ArrayLike,
    learning_rate: ArrayLike,
    loss: str,
    num_records: int | None,
    expected_batch_size: float | None,
    phi_labels: Sequence[str] | None,
    model_prior_mean: ArrayLike,
    model_prior_sd: ArrayLike,
    guarantee: Guarantee | None,
    privacy: PrivacyBudget | None,
    num_steps: int | None,
    curvature: ArrayLike | None,
    curvature_std: ArrayLike | None,
) -> ForeignFields:
    """Return what `nadpvi.Release.from_arrays` was given, as arguments of `nadpvi.Release`."""
    rate = check_sampling_rate(single_number("sampling_rate", sampling_rate, rule="in (0, 1]"))
    sigma = single_number("noise_multiplier", noise_multiplier, rule=_NON_NEGATIVE, least=0.0)
    clip = single_number("clip_norm", clip_norm, rule=_POSITIVE, least=_TINY)
    trace = summed_trace(
        phi=phi,
        noisy_gradient=noisy_gradient,
        learning_rate=learning_rate,
        sampling_rate=rate,
        loss=loss,
        num_records=num_records,
        expected_batch_size=expected_batch_size,
    )
    steps, dimension = trace.phi.shape
    if guarantee is not None and not isinstance(guarantee, Guarantee):
        raise ArgumentError(
            f"guarantee must be the Guarantee of a release, as it was (got type {type(guarantee).__name__}); "
            "or name a budget by privacy."
        )
    if num_steps is not None and privacy is None:
        raise ArgumentError("num_steps goes with privacy; leave it out.")
    if privacy is not None:
        if guarantee is not None:
            raise ArgumentError("give guarantee or privacy, not both.")
        guarantee = _stated_guarantee(
            privacy,
            noise_multiplier=sigma,
            clip_norm=clip,
            sampling_rate=rate,
            num_steps=steps if num_steps is None else check_num_steps(num_steps),
            num_records_is_public=num_records is not None,
        )
    mean, sd = _prior(model_prior_mean, model_prior_sd, dimension)
    matrix, std = check_curvature(curvature, curvature_std, dimension=dimension)
    factor = trace.curvature_factor
    return ForeignFields(
        phi=trace.phi,
        noisy_gradient=trace.noisy_gradient,
        final_phi=trace.final_phi,
        noise_multiplier=sigma,
        clip_norm=clip,
        sampling_rate=rate,
        preconditioner=_per_coordinate("preconditioner", preconditioner, dimension),
        learning_rate=_per_coordinate("learning_rate", trace.learning_rate, dimension),
        model_prior_mean=mean,
        model_prior_sd=sd,
        phi_labels=coordinate_labels(phi_labels, dimension=dimension),
        curvature=None if matrix is None else factor * matrix,
        curvature_std=None if std is None else factor * std,
        guarantee=guarantee,
    )


def _per_coordinate(name: str, value: ArrayLike, dimension: int) -> Array:
    """Return a scalar as a constant vector, and a vector as it is."""
    array = real_array(name, value, dims=(0, 1), shape=_PER_COORDINATE)
    if array.ndim == 1 and array.shape != (dimension,):
        raise ArgumentError(f"{name} must have shape ({dimension},) (got {array.shape}).")
    return np.full(dimension, float(array)) if array.ndim == 0 else array


def _prior(mean: ArrayLike, sd: ArrayLike, dimension: int) -> tuple[Array, Array]:
    """Return mean and sd of phi_star's prior, (D,), both NaN where there is none."""
    means = _per_coordinate("model_prior_mean", mean, dimension)
    sds = _per_coordinate("model_prior_sd", sd, dimension)
    if np.isinf(means).any():
        raise ArgumentError("model_prior_mean must be finite, or NaN where there is no prior.")
    if (sds <= 0).any() or np.isinf(sds).any():
        raise ArgumentError("model_prior_sd must be finite and positive, or NaN where there is no prior.")
    if (np.isnan(means) != np.isnan(sds)).any():
        raise ArgumentError(
            "model_prior_mean and model_prior_sd go together: give both for a coordinate, or neither."
        )
    return means, sds


def _stated_guarantee(
    privacy: PrivacyBudget,
    *,
    noise_multiplier: float,
    clip_norm: float,
    sampling_rate: float,
    num_steps: int,
    num_records_is_public: bool,
) -> Guarantee:
    """Return the guarantee of a run elsewhere, accounted from the settings that it is said to have had."""
    if not isinstance(privacy, PrivacyBudget):
        raise ArgumentError(
            f"privacy must be a PrivacyBudget(epsilon=, delta=) (got {type(privacy).__name__})."
        )
    return make_guarantee(
        budget=privacy,
        noise_multiplier=noise_multiplier,
        num_steps=num_steps,
        sampling_rate=sampling_rate,
        clip_norm=clip_norm,
        mechanism="Gaussian noise of another program, taken on trust",
        assumed_public=("settings of the run", *(("number of records",) if num_records_is_public else ())),
    )
