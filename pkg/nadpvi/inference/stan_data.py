"""The data of the Stan programs, under the names that they declare."""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nadpvi.errors import ArgumentError
from nadpvi.gradient_model import GradientModel, ReleasedTrace
from nadpvi.guides import Guide, MeanField
from nadpvi.guides.correlated import CorrelatedGaussian
from nadpvi.models import Parameter
from nadpvi.models.parameters import unconstrained_labels

__all__ = ["StanDataEntry", "SteppedTrace", "make_parameter_data", "make_stan_data", "make_trace_data"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
StanDataEntry = int | float | FloatArray | IntArray

_SUPPORT_CODES = {"real": 1, "positive": 2, "unit_interval": 3, "ordered": 4, "simplex": 5, "covariance": 6}
# Rounding of one step, in units of the largest number in it.
_STEP_TOLERANCE = 1e-12


class SteppedTrace(ReleasedTrace, Protocol):
    """A trace that also says how large its steps were and where it ended."""

    @property
    def learning_rate(self) -> FloatArray:
        """Lambda, shape (D,)."""

    @property
    def final_phi(self) -> FloatArray:
        """The iterate after the last step, shape (D,)."""


def make_stan_data(
    model: GradientModel, *, guide: Guide | None = None, parameters: Sequence[Parameter] = ()
) -> dict[str, StanDataEntry]:
    """Return the data of `stan/gradient_model.stan`.

    Parameters
    ----------
    model : GradientModel
    guide : Guide, optional
        The variational family, for the program to draw the model's parameters as well; without it theta is
        left out.
    parameters : sequence of Parameter
        The model's parameter blocks; required with `guide`.

    Raises
    ------
    ArgumentError
        If the guide and the parameters do not fit the D coordinates of phi.
    """
    sums = model.sums
    return {
        "D": model.num_parameters,
        "num_steps": sums.num_steps,
        "phi_bar": sums.phi_bar,
        "g_bar": sums.g_bar,
        "s_pp": sums.s_pp,
        "s_gp": sums.s_gp,
        "s_gg": sums.s_gg,
        **_noise_and_priors(model),
        **_guide_data(model.num_parameters, guide, parameters),
    }


def make_trace_data(
    model: GradientModel,
    release: ReleasedTrace,
    *,
    guide: Guide | None = None,
    parameters: Sequence[Parameter] = (),
) -> dict[str, StanDataEntry]:
    """Return the data of `stan/gradient_model_trace.stan`: the rows of the window.

    Parameters
    ----------
    model : GradientModel
        Of that release.
    release : ReleasedTrace
        Must hold its trace.
    guide, parameters
        As in `make_stan_data`.

    Raises
    ------
    ArgumentError
        If the release holds sums only, or as in `make_stan_data`.
    """
    first = _first_row(model, release)
    return {
        "D": model.num_parameters,
        "num_steps": model.sums.num_steps,
        "phi": np.asarray(release.phi, dtype=np.float64)[first:],
        "noisy_gradient": np.asarray(release.noisy_gradient, dtype=np.float64)[first:],
        **_noise_and_priors(model),
        **_guide_data(model.num_parameters, guide, parameters),
    }


def make_parameter_data(
    model: GradientModel,
    release: SteppedTrace,
    *,
    guide: Guide | None = None,
    parameters: Sequence[Parameter] = (),
) -> dict[str, StanDataEntry]:
    """Return the data of `stan/parameter_model.stan` (Eq. 22): the iterates of the window and the next one.

    Parameters
    ----------
    model : GradientModel
        Of that release.
    release : SteppedTrace
        Must hold its trace, and have taken each of its steps as
        ``phi[t + 1] = phi[t] - learning_rate * noisy_gradient[t]``.
    guide, parameters
        As in `make_stan_data`.

    Raises
    ------
    ArgumentError
        If a step was not of that form (a box, thinning, a larger step at first), or as in `make_trace_data`.
    """
    data = make_trace_data(model, release, guide=guide, parameters=parameters)
    phi, gradient = np.asarray(data["phi"]), np.asarray(data.pop("noisy_gradient"))
    learning_rate = np.asarray(release.learning_rate, dtype=np.float64)
    if not (np.isfinite(learning_rate).all() and (learning_rate > 0).all()):
        raise ArgumentError("the parameter model needs a learning_rate that is known and positive.")
    after = np.vstack([phi[1:], release.final_phi])
    step = learning_rate * gradient
    largest = np.maximum(np.maximum(np.abs(phi), np.abs(after)), np.abs(step))
    is_off = ~(np.abs(phi - step - after) <= _STEP_TOLERANCE * largest)
    if is_off.any():
        raise ArgumentError(
            "the parameter model needs phi[t + 1] = phi[t] - learning_rate * noisy_gradient[t] in every "
            f"step, and {int(is_off.any(axis=1).sum())} of {len(phi)} are not: raise burn_in past larger "
            "early steps, and use the gradient model for a run that was thinned or kept in a box."
        )
    return data | {"phi": np.vstack([phi[:1], after]), "learning_rate": learning_rate}


def _first_row(model: GradientModel, release: ReleasedTrace) -> int:
    """Return where the window starts in a release's trace."""
    if release.sums is not None:
        raise ArgumentError(
            "this release holds the sums of its window and not the trace, so the row-by-row programs cannot "
            "use it: use gradient_model, which is the same posterior."
        )
    first = len(release.phi) - model.sums.num_steps
    if first < 0:
        raise ArgumentError("model must be that of the release, whose trace is shorter than its window.")
    return first


def _noise_and_priors(model: GradientModel) -> dict[str, StanDataEntry]:
    """Return what every program knows besides the trace."""
    tau_scale = model.tau_prior_scale
    return {
        "sampling_rate": model.sampling_rate,
        "noise_std": model.noise_std,
        "phi_star_prior_mean": model.phi_star_prior_mean,
        "phi_star_prior_sd": model.phi_star_prior_sd,
        "v_prior_mean": model.v_prior_mean,
        "v_prior_sd": model.v_prior_sd,
        "use_tau": int(tau_scale is not None),
        "tau_prior_scale": np.zeros(0) if tau_scale is None else tau_scale,
    }


def _guide_data(size: int, guide: Guide | None, parameters: Sequence[Parameter]) -> dict[str, StanDataEntry]:
    """Return what the programs draw theta with; K = 0 without a guide."""
    nothing = np.zeros(0, dtype=np.int64)
    if guide is None:
        if parameters:
            raise ArgumentError("parameters need a guide: give both or neither.")
        return _entries(0, 0, 0, (nothing, nothing), ())
    num_params = len(unconstrained_labels(parameters))
    if not num_params or guide.num_variational(num_params) != size:
        raise ArgumentError(
            f"guide and parameters must fit phi of {size} coordinates (got {num_params} model parameters)."
        )
    return _entries(
        num_params,
        int(getattr(guide, "scale", None) == "sd"),
        guide.num_noise(num_params),
        _weights(guide, num_params),
        parameters,
    )


def _entries(
    num_params: int,
    scale_is_sd: int,
    num_noise: int,
    weights: tuple[IntArray, IntArray],
    parameters: Sequence[Parameter],
) -> dict[str, StanDataEntry]:
    """Return the entries in the order of stan/parts/guide_data.stan."""
    # One block a parameter; all but vectors along a last axis and matrices are entry by entry.
    columns = [block.shape[-1] if block.shape else 1 for block in parameters]
    rows = [
        1 if block.support == "covariance" else math.prod(block.shape) // width
        for block, width in zip(parameters, columns, strict=True)
    ]
    return {
        "K": num_params,
        "scale_is_sd": scale_is_sd,
        "num_noise": num_noise,
        "num_weights": len(weights[0]),
        "weight_row": weights[0],
        "weight_noise": weights[1],
        "num_blocks": len(parameters),
        "support": np.array([_SUPPORT_CODES[block.support] for block in parameters], dtype=np.int64),
        "num_rows": np.array(rows, dtype=np.int64),
        "num_columns": np.array(columns, dtype=np.int64),
    }


def _weights(guide: Guide, num_params: int) -> tuple[IntArray, IntArray]:
    """Return, counted from 1, which parameter each weight of phi moves and which noise it multiplies."""
    if isinstance(guide, MeanField):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    if not isinstance(guide, CorrelatedGaussian):
        raise ArgumentError(f"the Stan programs do not know the guide {guide.kind!r}.")
    pattern = guide.pattern(num_params)
    places = np.arange(guide.num_noise(num_params), dtype=np.float64)
    noise = guide.sources(places, num_params=num_params)[pattern.columns]
    return pattern.rows.astype(np.int64) + 1, noise.astype(np.int64) + 1
